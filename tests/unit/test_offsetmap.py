"""The map of keys to their latest offsets, the hash behind it, and filling it from batches."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logcore import (
    Batch,
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    UsageTypeError,
    encode_batch,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._filter import filter_batches
from logcore._offsetmap import OffsetMap, map_keys, siphash128
from tests.helpers import CODECS_BY_MAGIC, only_batch, replaced, rows, v2_batch
from tests.reference import siphash
from tests.reference.compaction import RefOffsetMap

SEED = bytes.fromhex("5ca1ab1e0ddba11decade0ffacade123")
SLOT_BYTES = 24
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}

# Two blocks of one MD5, the first that were published (Wang, Feng, Lai and Yu, 2004).
MD5_COLLISION = [
    bytes.fromhex(
        "d131dd02c5e6eec4693d9a0698aff95c2fcab5" + "87"
        "12467eab4004583eb8fb7f8955ad340609f4b30283e4888325" + "71"
        "415a085125e8f7cdc99fd91dbd" + "f2"
        "80373c5bd8823e3156348f5bae6dacd436c919c6dd53e2" + "b4"
        "87da03fd02396306d248cda0e99f33420f577ee8ce54b67080" + "a8"
        "0d1ec69821bcb6a8839396f965" + "2b"
        "6ff72a70"
    ),
    bytes.fromhex(
        "d131dd02c5e6eec4693d9a0698aff95c2fcab5" + "07"
        "12467eab4004583eb8fb7f8955ad340609f4b30283e4888325" + "f1"
        "415a085125e8f7cdc99fd91dbd" + "72"
        "80373c5bd8823e3156348f5bae6dacd436c919c6dd53e2" + "34"
        "87da03fd02396306d248cda0e99f33420f577ee8ce54b67080" + "28"
        "0d1ec69821bcb6a8839396f965" + "ab"
        "6ff72a70"
    ),
]  # fmt: skip


def map_of(slots: int) -> OffsetMap:
    return OffsetMap(slots * SLOT_BYTES, seed=SEED)


def key(number: int) -> bytes:
    return b"%d" % number


def keyed(*keys: bytes | None, base_offset: int = 0, **options: Any) -> bytes:
    """A batch with a record a key."""
    records = [Record(base_offset + index, 0, one, b"v") for index, one in enumerate(keys)]
    return encode_batch(records, base_offset=base_offset, **options)


# --- the hash -------------------------------------------------------------------------------------------------------


def test_the_hash_has_the_vectors_of_its_authors() -> None:
    """The table `vectors_sip128` of the reference implementation: 00 01 02 … under the key 00 … 0f, 0 to 63 bytes."""
    seed = bytes(range(16))
    digests = [siphash128(bytes(range(size)), seed=seed) for size in range(64)]
    assert digests[0].hex() == "a3817f04ba25a8e66df67214c7550293"
    assert digests[1].hex() == "da87c1d86b99af44347659119b22fc45"
    assert digests[15].hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
    assert digests[63].hex() == "5150d1772f50834a503e069a973fbd7c"
    assert hashlib.sha256(b"".join(digests)).hexdigest() == (
        "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9"
    )


def test_the_reference_hash_is_the_same_one() -> None:
    for size in [*range(40), 255, 256, 257, 1000]:
        data = bytes(range(256)) * 4
        assert siphash128(data[:size], seed=SEED) == siphash.siphash128(data[:size], SEED)


def test_keys_of_one_md5_are_two_keys() -> None:
    """With Kafka's digest the value of the first would be gone after compaction."""
    first, second = MD5_COLLISION
    assert first != second
    assert hashlib.md5(first).digest() == hashlib.md5(second).digest()
    as_kafka = RefOffsetMap(8, lambda one: hashlib.md5(one).digest())
    offset_map = map_of(8)
    for index, one in enumerate(MD5_COLLISION):
        as_kafka.put(one, index)
        offset_map.put(one, index)
    assert [as_kafka.get(one) for one in MD5_COLLISION] == [1, 1]
    assert [offset_map.get(one) for one in MD5_COLLISION] == [0, 1]
    data = keyed(*MD5_COLLISION)
    assert filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0).output == data


def test_what_the_digest_is_long_for() -> None:
    """Cut to 16 bits, some of a thousand keys fall together, and live records would go; of 128 bits none do."""
    keys = [b"user-%d" % number for number in range(1000)]
    cut = RefOffsetMap(1000, lambda one: siphash.siphash128(one, SEED)[:2])
    offset_map = map_of(1000)
    for offset, one in enumerate(keys):
        cut.put(one, offset)
        offset_map.put(one, offset)
    lost = [one for offset, one in enumerate(keys) if cut.get(one) > offset]
    assert lost
    assert [offset_map.get(one) for one in keys] == list(range(1000))
    data = keyed(*keys)
    result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0)
    assert result.output == data
    assert set(lost) <= {record.key for record in rows(result.output)}


def test_another_seed_is_another_order() -> None:
    """So that nobody can choose keys that all want one slot."""
    digests = {siphash128(b"k", seed=bytes([number]) * 16) for number in range(100)}
    assert len(digests) == 100


# --- the map --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 10, 100, 5000])
def test_a_map_gives_back_what_was_put(count: int) -> None:
    """CLN-022: 24 bytes a slot, and as many slots as the memory holds."""
    offset_map = OffsetMap(count * 48 + 23, seed=SEED)
    assert offset_map.slots == 2 * count
    for number in range(count):
        offset_map.put(key(number), number)
    assert [offset_map.get(key(number)) for number in range(count)] == list(range(count))
    assert len(offset_map) == count
    offset_map.check_invariants()


def test_an_absent_key_has_no_offset_in_a_full_map_either() -> None:
    """CLN-023: -1; and the latest offset is that of the last put, or what one says it is."""
    offset_map = map_of(170)
    assert (offset_map.latest_offset, offset_map.get(b"")) == (-1, -1)
    for number in range(37, 37 + 170):
        offset_map.put(key(number), number)
        assert offset_map.latest_offset == number
    offset_map.check_invariants()
    assert offset_map.get(key(300)) == -1
    assert [offset_map.get(key(number)) for number in range(37, 37 + 170)] == list(range(37, 37 + 170))
    offset_map.update_latest_offset(1000)
    assert offset_map.latest_offset == 1000
    assert offset_map.get(key(206)) == 206


def test_utilization_is_entries_by_slots_and_clearing_empties() -> None:
    """CLN-024."""
    offset_map = map_of(170)
    assert offset_map.utilization == 0.0
    for number in range(170):
        offset_map.put(key(number), number)
        assert offset_map.utilization == (number + 1) / 170
    offset_map.clear()
    assert (len(offset_map), offset_map.utilization, offset_map.latest_offset) == (0, 0.0, -1)
    assert {offset_map.get(key(number)) for number in range(170)} == {-1}
    offset_map.check_invariants()
    offset_map.put(b"k", 0)
    assert offset_map.get(b"k") == 0


def test_the_last_put_of_a_key_counts_even_if_its_offset_is_lower() -> None:
    offset_map = map_of(2)
    offset_map.put(b"k", 5)
    offset_map.put(b"k", 3)
    assert (len(offset_map), offset_map.get(b"k"), offset_map.latest_offset) == (1, 3, 3)


def test_a_full_map_takes_no_put_not_even_of_a_key_that_it_has() -> None:
    offset_map = map_of(1)
    offset_map.put(b"k", 5)
    with pytest.raises(UsageError, match=r"^offset map: got a put, wanted fewer than its 1 entries$"):
        offset_map.put(b"k", 6)
    assert (offset_map.get(b"k"), offset_map.get(b"other"), offset_map.latest_offset) == (5, -1, 5)


def test_offsets_go_up_to_the_largest() -> None:
    offset_map = map_of(3)
    offset_map.put(b"", 0)
    offset_map.put(bytearray(b"max"), 2**63 - 1)
    assert (offset_map.get(memoryview(b"max")), offset_map.get(b"")) == (2**63 - 1, 0)


@pytest.mark.parametrize("slots", [1, 2, 40])
def test_noted_offsets_and_searched_ones_come_to_the_same(slots: int) -> None:
    """A slot has bits for 8 offsets; those behind are looked up. A map that is emptied has noted nothing."""
    noted, searched = OffsetMap(slots * SLOT_BYTES, seed=SEED, first_offset=3), map_of(slots)
    for base_offset in (0, 3, 5):
        data = keyed(*(b"%d" % (number % slots) for number in range(8 * slots + 9)), base_offset=base_offset)
        outputs = []
        for offset_map in (noted, searched):
            offset_map.clear()
            map_keys(data, offset_map, first_offset=3, limit=slots)
            result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0)
            outputs.append((result.output, result.messages_retained))
        assert outputs[0] == outputs[1]


def test_what_is_noted_spares_the_search() -> None:
    """So a record whose key the map never saw goes by its bit: the map was told that all from 3 on are put."""
    noted = OffsetMap(8 * SLOT_BYTES, seed=SEED, first_offset=3)
    map_keys(keyed(b"a", b"b", b"a", base_offset=3), noted, first_offset=3)
    result = filter_batches(keyed(b"x", b"y", b"z", base_offset=3), noted, now_ms=0, delete_retention_ms=0)
    assert [(record.offset, record.key) for record in rows(result.output)] == [(4, b"y"), (5, b"z")]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OffsetMap(23, seed=SEED), "memory_bytes: got 23, wanted 24 to"),
        (lambda: OffsetMap(-1, seed=SEED), "memory_bytes: got -1"),
        (lambda: OffsetMap(48, seed=SEED, first_offset=-1), "first_offset: got -1"),
        (lambda: OffsetMap(48, seed=SEED[:15]), "seed: got 15 bytes, wanted 16 bytes"),
        (lambda: OffsetMap(48, seed=bytearray(SEED)), "seed: got bytearray, wanted 16 bytes"),
        (lambda: siphash128("text", seed=SEED), "data: got str"),
        (lambda: map_of(1).put("text", 0), "key: got str"),
        (lambda: map_of(1).put(b"k", -1), "offset: got -1"),
        (lambda: map_of(1).put(b"k", 2**63), "offset: got"),
        (lambda: map_of(1).get(None), "key: got NoneType"),
        (lambda: map_of(1).update_latest_offset(-2), "offset: got -2"),
        (lambda: map_keys(b"", map_of(1), first_offset=-1), "first_offset: got -1"),
        (lambda: map_keys(b"", map_of(1), first_offset=0, limit=2), "limit: got 2, wanted 0 to 1"),
        (lambda: map_keys(b"", map_of(1), first_offset=0, should_discard_batch=3), "should_discard_batch: got int"),
        (lambda: map_keys("", map_of(1), first_offset=0), "buffer: got str"),
    ],
)
def test_what_makes_no_map_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        call()


def test_too_much_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        OffsetMap(2**62, seed=SEED)
    with pytest.raises(TypeError):
        map_keys(b"", None, first_offset=0)  # type: ignore[arg-type]


# --- filling it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_the_latest_offset_of_each_key_is_mapped(magic: int, codec: str) -> None:
    data = keyed(b"a", b"b", b"a", b"", magic=magic, compression=codec)
    data += keyed(b"c", b"b", b"c", base_offset=10, magic=magic, compression=codec)
    offset_map = map_of(10)
    result = map_keys(data, offset_map, first_offset=0)
    assert repr(result) == f"MapResult(consumed={len(data)}, is_full=False, messages_read=7)"
    found = {one: offset_map.get(one) for one in (b"a", b"b", b"c", b"", b"d")}
    assert found == {b"a": 2, b"b": 11, b"c": 12, b"": 3, b"d": -1}
    assert (len(offset_map), offset_map.latest_offset) == (4, 12)
    offset_map.check_invariants()


def test_more_keys_than_are_hashed_ahead() -> None:
    keys = [key(number % 700) for number in range(1000)]
    data = b"".join(keyed(*keys[at : at + 70], base_offset=at) for at in range(0, 1000, 70))
    offset_map = map_of(800)
    assert map_keys(data, offset_map, first_offset=0).messages_read == 1000
    expected = {one: offset for offset, one in enumerate(keys)}
    assert {one: offset_map.get(one) for one in expected} == expected


def test_records_below_the_first_offset_and_without_key_are_left_out() -> None:
    """CLN-026: only from the first dirty offset on, also in the middle of a batch."""
    offset_map = map_of(10)
    before = keyed(b"x", b"y")
    data = keyed(b"a", b"b", None, b"d", base_offset=2)
    result = map_keys(before, offset_map, first_offset=4)
    assert (result.messages_read, len(offset_map), offset_map.latest_offset) == (2, 0, -1)
    assert map_keys(data, offset_map, first_offset=4).messages_read == 4
    assert [offset_map.get(one) for one in (b"a", b"b", b"d")] == [-1, -1, 5]
    assert offset_map.latest_offset == 5


def test_a_gap_behind_the_last_record_is_covered() -> None:
    offset_map = map_of(10)
    data = encode_batch([Record(3, 0, b"a", b"v")], base_offset=0, last_offset=9)
    map_keys(data, offset_map, first_offset=0)
    assert (offset_map.get(b"a"), offset_map.latest_offset) == (3, 9)


def test_mapping_stops_at_the_limit() -> None:
    """CLN-025: with 3 slots at 0.75 there is room for two keys; what is covered ends with the last record put."""
    offset_map = map_of(3)
    data = keyed(b"a", b"b") + keyed(None, b"c", b"d", base_offset=2) + keyed(b"a", base_offset=5)
    result = map_keys(data, offset_map, first_offset=0, limit=int(3 * 0.75))
    assert (result.is_full, result.consumed, result.messages_read) == (True, len(keyed(b"a", b"b")), 3)
    assert (len(offset_map), offset_map.latest_offset) == (2, 1)
    assert [offset_map.get(one) for one in (b"a", b"b", b"c")] == [0, 1, -1]
    result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0)
    assert result.output == data, "nothing beyond offset 1 may go"


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_map_full_in_the_middle_of_a_batch_covers_it_up_to_the_last_put(magic: int, codec: str) -> None:
    """CLN-025: of a batch that is half mapped the first half is cleaned, the rest stays for the next pass."""
    data = keyed(b"a", b"b", b"a", None, b"a", b"c", b"a", magic=magic, compression=codec)
    offset_map = map_of(9)
    result = map_keys(data, offset_map, first_offset=0, limit=2)
    assert (result.is_full, offset_map.latest_offset) == (True, 1)
    # Kafka does not look whether a key is in a map that has no room: offset 2 is not put.
    assert [offset_map.get(one) for one in (b"a", b"b")] == [0, 1]
    # A compressed batch is left as a whole; messages without a codec are batches of one each.
    single = magic < 2 and codec == "none"
    assert result.consumed == (len(keyed(b"a", b"b", magic=magic)) if single else 0)
    kept = [record.offset for record in rows(filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0).output)]
    assert kept == [0, 1, 2, 3, 4, 5, 6]


def test_a_map_for_one_key_still_gets_on() -> None:
    """CLN-028: each pass removes one duplicate."""
    data = b"".join(keyed(one, base_offset=offset) for offset, one in enumerate((b"1", b"0", b"1", b"0")))

    def clean(data: bytes, first_offset: int) -> bytes:
        offset_map = map_of(2)
        map_keys(data, offset_map, first_offset=first_offset, limit=1)
        assert offset_map.latest_offset == first_offset
        return filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0).output

    once = clean(data, 2)
    assert [record.key for record in rows(once)] == [b"0", b"1", b"0"]
    assert [record.key for record in rows(clean(once, 3))] == [b"1", b"0"]


def test_a_limit_of_nothing_is_full_at_the_first_key() -> None:
    offset_map = map_of(3)
    result = map_keys(keyed(None, None) + keyed(b"a", base_offset=2), offset_map, first_offset=0, limit=0)
    assert (result.is_full, result.messages_read, offset_map.latest_offset) == (True, 2, 1)
    assert result.consumed == len(keyed(None, None))


def test_aborted_transactions_and_control_records_are_not_mapped() -> None:
    """CLN-027: the caller is asked about each transactional and each control batch, in order, and about no other."""
    data = b"".join(
        [
            keyed(b"a"),
            keyed(b"a", b"b", base_offset=1, **PRODUCER),
            keyed(b"c", base_offset=3, compression="zstd", **PRODUCER | {"producer_id": 8}),
            encode_transaction_marker(7, 0, commit=False, coordinator_epoch=0, offset=4),
            encode_transaction_marker(8, 0, commit=True, coordinator_epoch=0, offset=5),
            keyed(b"d", base_offset=6, **PRODUCER | {"is_transactional": False}),
        ]
    )
    asked = []

    def should_discard(batch: Batch) -> bool:
        asked.append((batch.producer_id, batch.is_control, batch.position))
        return batch.producer_id == 7

    offset_map = map_of(10)
    result = map_keys(data, offset_map, first_offset=0, should_discard_batch=should_discard)
    assert [(producer_id, is_control) for producer_id, is_control, _ in asked] == [
        (7, False),
        (8, False),
        (7, True),
        (8, True),
    ]
    assert [offset_map.get(one) for one in (b"a", b"b", b"c", b"d")] == [0, -1, 3, 6]
    assert offset_map.get(b"\0\0\0\0") == offset_map.get(b"\0\0\0\1") == -1
    assert (result.messages_read, offset_map.latest_offset) == (7, 6)
    without = map_of(10)
    assert map_keys(data, without, first_offset=0).messages_read == 7
    assert [without.get(one) for one in (b"a", b"b", b"c", b"d")] == [1, 2, 3, 6]


def test_batches_without_records_only_move_the_latest_offset() -> None:
    offset_map = map_of(3)
    data = encode_empty_batch(5, 9, producer_id=7, producer_epoch=0, base_sequence=3)
    data += encode_empty_batch(10, 12, producer_id=7, producer_epoch=0, is_transactional=True, base_sequence=0)
    result = map_keys(data, offset_map, first_offset=0, should_discard_batch=lambda batch: False)
    assert (result.consumed, result.messages_read) == (122, 0)
    assert (len(offset_map), offset_map.latest_offset) == (0, 12)
    # A count of 0 means: do not look, neither at the bytes nor at the codec.
    odd = v2_batch(b"nonsense", 0, attributes=6, base_offset=20, last_offset_delta=2)
    assert map_keys(odd, offset_map, first_offset=0).consumed == len(odd)
    assert offset_map.latest_offset == 22


def test_a_partial_last_batch_is_left() -> None:
    data, more = keyed(b"a"), keyed(b"b", base_offset=1)
    offset_map = map_of(3)
    for cut in range(len(more)):
        assert map_keys(data + more[:cut], offset_map, first_offset=0).consumed == len(data)
    assert offset_map.get(b"b") == -1
    assert map_keys(b"", offset_map, first_offset=0).consumed == 0


def test_damage_while_mapping_is_told_with_its_place() -> None:
    good = keyed(b"a", b"b", b"c")
    bad = replaced(good, len(good) - 1, b"!")
    with pytest.raises(CorruptBatch) as caught:
        map_keys(good + bad, map_of(9), first_offset=0, base_position=1000)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.CRC, 1000 + len(good))

    body = good[61:-9] + b"\xff" * 9
    for codec in ("none", "gzip"):
        with pytest.raises(CorruptBatch) as caught:
            map_keys(v2_batch(body, 3, codec=codec), map_of(9), first_offset=0, base_position=7)
        error = caught.value
        assert (error.reason, error.position, error.record_index) == (CorruptionReason.VARINT, 7, 2)
        with pytest.raises(CorruptBatch) as caught:
            map_keys(v2_batch(good[61:], 2, codec=codec), map_of(9), first_offset=0)
        assert caught.value.reason is CorruptionReason.RECORD_COUNT
    for count in (-1, 2**31 - 1):
        with pytest.raises(CorruptBatch) as caught:
            map_keys(v2_batch(good[61:], count), map_of(9), first_offset=0)
        assert caught.value.reason is CorruptionReason.RECORD_COUNT


def test_damage_behind_the_record_that_filled_the_map_exactly_is_told() -> None:
    """The keys are put once, and not again on the way to the words."""
    body = keyed(b"a", b"b", b"c")[61:-9] + b"\xff" * 9
    with pytest.raises(CorruptBatch) as caught:
        map_keys(v2_batch(body, 3), map_of(9), first_offset=0, limit=2)
    assert caught.value.record_index == 2


def test_a_bomb_is_refused_by_its_size() -> None:
    data = encode_batch([(b"k", bytes(1 << 20))], compression="zstd")
    with pytest.raises(CorruptBatch) as caught:
        map_keys(data, map_of(9), first_offset=0, max_decompressed_bytes=1 << 16)
    assert caught.value.reason is CorruptionReason.DECOMPRESSED_SIZE


def test_what_a_callable_raises_comes_out_and_the_map_can_be_used_again() -> None:
    offset_map = map_of(9)

    def should_discard(batch: Batch) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        map_keys(keyed(b"a", **PRODUCER), offset_map, first_offset=0, should_discard_batch=should_discard)
    offset_map.put(b"a", 1)


def test_a_map_that_is_being_filled_is_nobody_elses() -> None:
    offset_map = map_of(9)
    offset_map.put(b"a", 0)
    data = keyed(b"b", base_offset=1, **PRODUCER)
    refused = []

    def should_discard(batch: Batch) -> bool:
        for use in (
            lambda: offset_map.put(b"a", 1),
            lambda: offset_map.get(b"a"),
            lambda: offset_map.clear(),
            lambda: offset_map.update_latest_offset(5),
            lambda: offset_map.check_invariants(),
            lambda: map_keys(data, offset_map, first_offset=0),
            lambda: filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0),
        ):
            with pytest.raises(UsageError, match=r"^offset map: got a call while it is filled"):
                use()
            refused.append(use)
        return False

    map_keys(data, offset_map, first_offset=0, should_discard_batch=should_discard)
    assert len(refused) == 7
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.latest_offset) == (0, 1, 1)


# --- threads --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _switch_never() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(before)


def lets_another_thread_run(work: Callable[[], Any]) -> bool:
    """Whether a thread that waits for the GIL gets it during `work`; nobody takes it away meanwhile."""
    waiting, seen = threading.Lock(), []
    waiting.acquire()

    def other() -> None:
        with waiting:
            seen.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    waiting.release()
    for _ in range(200):
        work()
        if seen:
            break
    found = bool(seen)
    thread.join()
    return found


@pytest.mark.usefixtures("_switch_never")
def test_the_gil_is_let_go_for_large_buffers_and_kept_for_small_ones() -> None:
    small = keyed(*map(key, range(10)))
    large = b"".join(keyed(*map(key, range(1000)), base_offset=at * 1000) for at in range(100))
    mixed = b"".join(
        keyed(b"k", base_offset=2 * at) + keyed(b"l", base_offset=2 * at + 1, **PRODUCER) for at in range(99)
    )
    offset_map = map_of(5000)
    options: dict[str, Any] = {"now_ms": 0, "delete_retention_ms": 0}
    for work in (
        lambda data: map_keys(data, offset_map, first_offset=0),
        lambda data: filter_batches(data, offset_map, **options),
    ):
        assert lets_another_thread_run(lambda work=work: work(large))
        assert not lets_another_thread_run(lambda work=work: work(small))
        # To get it back may take long, so that it is not let go for each small batch between others.
        assert not lets_another_thread_run(lambda work=work: work(mixed))


def test_many_threads_look_up_in_one_map() -> None:
    data = b"".join(keyed(*map(key, range(500)), base_offset=at * 500) for at in range(20))
    offset_map = map_of(1000)
    map_keys(data, offset_map, first_offset=0)
    expected = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0).output
    assert only_batch(expected).count == 500
    made: list[bytes] = []

    def clean() -> None:
        made.extend(filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0).output for _ in range(5))

    threads = [threading.Thread(target=clean) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [expected] * 40
    offset_map.put(b"k", 1)


def test_a_seed_of_another_type_is_a_type_error() -> None:
    with pytest.raises(UsageTypeError):
        OffsetMap(48, seed="0123456789abcdef")  # type: ignore[arg-type]
