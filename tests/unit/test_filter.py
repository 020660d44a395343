"""Batches without the records that compaction drops: Kafka's filterTo, and what its cleaner asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logcore import (
    Batch,
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    decode_batches,
    encode_batch,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._filter import FilterResult, LastRecords, filter_batches, filter_batches_by
from logcore._offsetmap import OffsetMap, map_keys
from tests.helpers import CODECS, CODECS_BY_MAGIC, only_batch, replaced, rows, sized, v2_batch, with_length
from tests.reference import compression, legacy, varint

SEED = bytes(range(16))
DAY = 86_400_000
PRODUCER: dict[str, Any] = {"producer_id": 23, "producer_epoch": 5, "base_sequence": 10}


def batch_of(*cells: tuple[int, bytes | None, bytes | None], base_offset: int = 0, **options: Any) -> bytes:
    """A batch of (timestamp, key, value) at consecutive offsets."""
    records = [Record(base_offset + index, *cell) for index, cell in enumerate(cells)]
    return encode_batch(records, base_offset=base_offset, **options)


def keyed_only(data: bytes, **options: Any) -> FilterResult:
    """Without the records that have no key, as most of Kafka's own tests filter."""
    return filter_batches_by(
        data, lambda batch: "delete_empty", lambda batch, record: record.key is not None, **options
    )


def retain(retention: Any, keep: bool) -> tuple[Callable[[Batch], Any], Callable[[Batch, Record], bool]]:
    return lambda batch: retention, lambda batch, record: keep


def clean(data: bytes, *, first_offset: int = 0, limit: int | None = None, now_ms: int = 0, **options: Any) -> bytes:
    """One round over the whole of `data`."""
    offset_map = mapped(data, first_offset, limit)
    return filter_batches(data, offset_map, now_ms=now_ms, delete_retention_ms=DAY, **options).output


def mapped(data: bytes, first_offset: int = 0, limit: int | None = None) -> OffsetMap:
    offset_map = OffsetMap(24 * 64, seed=SEED)
    map_keys(data, offset_map, first_offset=first_offset, limit=limit)
    return offset_map


def kept(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in rows(data)]


# --- filterTo -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_the_leader_epoch_stays(magic: int, codec: str) -> None:
    """REC-089: of a v2 batch; older ones have none."""
    options = {"leader_epoch": 67} if magic == 2 else {}
    data = batch_of((10, None, b"a"), (11, b"1", b"b"), (12, None, b"c"), magic=magic, compression=codec, **options)
    assert only_batch(keyed_only(data).output).leader_epoch == (67 if magic == 2 else -1)


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_sequences_and_producer_stay_when_records_go(codec: str) -> None:
    """REC-090: only the count shrinks."""
    options = {"compression": codec, "base_offset": 3}
    transactional = PRODUCER | {"producer_id": 99384, "producer_epoch": 234, "base_sequence": 15}
    data = (
        batch_of((10, None, b"a"), (11, b"1", b"b"), (12, None, b"c"), compression=codec)
        + batch_of((13, None, b"d"), (14, b"4", b"e"), (15, b"5", b"f"), **options, **PRODUCER)
        + batch_of(
            (16, b"6", b"g"), (17, b"7", b"h"), (18, None, b"i"), is_transactional=True, **options, **transactional
        )
    )
    first, second, third = decode_batches(keyed_only(data).output)
    fields = ("count", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence")
    assert [getattr(first, name) for name in fields] == [1, 0, 2, -1, -1, -1, -1]
    assert [getattr(second, name) for name in fields] == [2, 3, 5, 23, 5, 10, 12]
    assert [getattr(third, name) for name in fields] == [2, 3, 5, 99384, 234, 15, 17]
    assert [batch.is_transactional for batch in (first, second, third)] == [False, False, True]
    assert list(first) == [Record(1, 11, b"1", b"b")]
    assert list(second) == [Record(4, 14, b"4", b"e"), Record(5, 15, b"5", b"f")]
    assert list(third) == [Record(3, 16, b"6", b"g"), Record(4, 17, b"7", b"h")]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_batch_that_loses_all_records_may_stay_as_its_header(codec: str, is_transactional: bool) -> None:
    """REC-091: 61 bytes that say what the batch said."""
    data = batch_of(
        (11, b"2", b"b"),
        (12, b"3", b"c"),
        base_offset=3,
        compression=codec,
        leader_epoch=293,
        is_transactional=is_transactional,
        **PRODUCER,
    )
    result = filter_batches_by(data, *retain("retain_empty", False))
    assert (result.messages_read, result.consumed, result.messages_retained) == (2, len(data), 0)
    assert (result.max_offset, result.max_timestamp, result.shallow_offset_of_max_timestamp) == (4, 12, 4)
    assert len(result.output) == 61
    batch = only_batch(result.output)
    assert (batch.count, batch.max_timestamp, batch.timestamp_type) == (0, 12, "create_time")
    assert (batch.base_offset, batch.last_offset, batch.base_sequence, batch.last_sequence) == (3, 4, 10, 11)
    assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch) == (23, 5, 293)
    assert (batch.is_transactional, batch.is_control, batch.base_timestamp) == (is_transactional, False, -1)
    assert (batch.compression, batch.delete_horizon_ms) == ("none", None)


def test_a_header_left_over_forgets_codec_and_horizon_and_keeps_the_other_marks() -> None:
    """REC-091: LogAppendTime and its time, transactional, control."""
    data = encode_batch(
        [(b"\0\0\0\0", b"\0\0\0\0\0\1", 5)],
        compression="gzip",
        timestamp_type="log_append_time",
        log_append_time_ms=77,
        is_transactional=True,
        is_control=True,
        delete_horizon_ms=1000,
        **PRODUCER | {"base_sequence": -1},
    )
    result = filter_batches_by(data, *retain("retain_empty", False))
    assert result.output == encode_empty_batch(
        0,
        0,
        timestamp_type="log_append_time",
        log_append_time_ms=77,
        is_transactional=True,
        is_control=True,
        **PRODUCER | {"base_sequence": -1},
    )


def test_an_empty_batch_stays_as_it_is_or_goes() -> None:
    """REC-092."""
    data = encode_empty_batch(3, 3, max_timestamp=123, leader_epoch=293, **PRODUCER)
    result = filter_batches_by(data, *retain("retain_empty", False))
    assert (result.output, result.messages_read, result.messages_retained) == (data, 0, 0)
    assert (result.consumed, result.max_offset, result.max_timestamp) == (61, 3, 123)
    assert result.shallow_offset_of_max_timestamp == 3
    for retention in ("delete", "delete_empty"):
        result = filter_batches_by(data, *retain(retention, False))
        assert (result.output, result.consumed, result.max_offset, result.max_timestamp) == (b"", 61, -1, -1)


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in CODECS_BY_MAGIC if pair[0] < 2])
def test_an_older_batch_cannot_stay_empty(magic: int, codec: str) -> None:
    """REC-093: an illegal state, in either form."""
    data = batch_of((1, None, b"v"), base_offset=5, magic=magic, compression=codec)
    message = (
        f"^batch that must stay, batch at position 9: got none of its records kept, in magic {magic}, wanted magic 2"
    )
    with pytest.raises(UsageError, match=message):
        filter_batches_by(data, *retain("retain_empty", False), base_position=9)
    with pytest.raises(UsageError, match=message):
        clean(data, upper_bound_offset=6, base_position=9)
    assert clean(data) == b""
    assert kept(filter_batches_by(data, *retain("retain_empty", True)).output) == [(5, None, b"v")]
    last = batch_of((1, None, b"v"), base_offset=2**63 - 1, magic=magic, compression=codec)
    assert clean(last) == b"", "no offset comes after it, and no upper bound is none"


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_deleted_batch_is_skipped_and_another_goes_only_if_empty(magic: int, codec: str) -> None:
    """REC-094: nobody asks about the records of one that is deleted."""
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    data = (
        batch_of((10, b"1", b"a"), **options)
        + batch_of((11, b"2", b"b"), (12, b"3", b"c"), base_offset=1, **options)
        + batch_of((13, b"4", b"d"), (20, b"5", b"e"), (15, b"6", b"f"), base_offset=3, **options)
        + batch_of((16, b"7", b"g"), base_offset=6, **options)
    )
    asked = []

    def should_retain(batch: Batch, record: Record) -> bool:
        asked.append(record.offset)
        return record.offset != 0

    result = filter_batches_by(
        data, lambda batch: "delete" if batch.last_offset in (2, 6) else "delete_empty", should_retain
    )
    last_offsets = [batch.last_offset for batch in decode_batches(result.output)]
    if magic < 2 and codec == "none":
        assert (asked, last_offsets) == ([0, 1, 3, 4, 5], [1, 3, 4, 5])
    else:
        assert (asked, last_offsets) == ([0, 3, 4, 5], [5])
    assert (result.messages_read, result.consumed) == (len(asked), len(data))


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in CODECS_BY_MAGIC if pair[0] < 2])
def test_older_batches_become_magic_2_even_if_every_record_is_kept(magic: int, codec: str) -> None:
    """REC-095: under the same codec; magic 0 gets CreateTime and -1."""
    data = batch_of((11, b"2", b"b"), (12, b"3", None), base_offset=8, magic=magic, compression=codec)
    result = filter_batches_by(data, *retain("delete_empty", True), now_ms=100, delete_retention_ms=7)
    batches = list(decode_batches(result.output))
    assert {(batch.magic, batch.compression, batch.timestamp_type) for batch in batches} == {(2, codec, "create_time")}
    times = (-1, -1) if magic == 0 else (11, 12)
    assert rows(result.output) == [Record(8, times[0], b"2", b"b"), Record(9, times[1], b"3", None)]
    assert batches[-1].max_timestamp == times[1]
    assert batches[-1].delete_horizon_ms == 107
    assert (result.max_timestamp, result.shallow_offset_of_max_timestamp) == ((-1, -1) if magic == 0 else (12, 9))


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_an_older_batch_takes_the_offsets_of_what_is_kept(magic: int, codec: str) -> None:
    """REC-096: 0 to 10 with 8 kept is 8 to 8; in magic 2 it stays 0 to 10."""
    records = [Record(0, 1, None, b"a"), Record(8, 2, b"k", b"b"), Record(10, 3, None, b"c")]
    batch = only_batch(keyed_only(encode_batch(records, magic=magic, compression=codec)).output)
    assert (batch.base_offset, batch.last_offset) == ((0, 10) if magic == 2 else (8, 8))
    assert [record.offset for record in batch] == [8]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_keeps_all_is_copied(codec: str) -> None:
    """REC-097: byte for byte, with whatever else no writer would write."""
    data = batch_of((11, b"2", b"b"), (12, b"3", b"c"), compression=codec, leader_epoch=3, **PRODUCER)
    body = with_length(b"\x7f\x00\x80\x00" + varint.write(-7) + sized(b"v") + b"\x00")
    odd = v2_batch(body, 1, codec=codec, attributes=0x4080, last_offset_delta=4, max_timestamp=-9)
    result = filter_batches_by(data + odd, *retain("delete_empty", True))
    assert result.output == data + odd
    assert (result.max_timestamp, result.shallow_offset_of_max_timestamp, result.max_offset) == (12, 1, 4)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_kept_tombstone_sets_the_delete_horizon(codec: str) -> None:
    """REC-098: times of records stay; the marker of an emptied transaction does the same."""
    data = batch_of((5, b"0", b"0"), (10, b"1", None), (15, b"2", b"2"), compression=codec)
    horizon = 2**30
    options = {"now_ms": horizon - 1, "delete_retention_ms": 1}
    result = filter_batches_by(data, *retain("retain_empty", True), **options)
    batch = only_batch(result.output)
    assert (batch.delete_horizon_ms, batch.base_timestamp, batch.max_timestamp) == (horizon, horizon, 15)
    assert [record.timestamp for record in batch] == [5, 10, 15]
    assert batch.compression == codec

    marker = encode_transaction_marker(7, 0, commit=True, coordinator_epoch=1, offset=20, timestamp=33)
    assert filter_batches_by(marker, *retain("retain_empty", True), **options).output == marker
    batch = only_batch(filter_batches_by(marker, *retain(("delete_empty", True), True), **options).output)
    assert (batch.delete_horizon_ms, batch.is_control, batch.is_transactional) == (horizon, True, True)
    assert [(one.type, one.timestamp, one.coordinator_epoch) for one in batch.control_records()] == [("COMMIT", 33, 1)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_delete_horizon_stays(codec: str) -> None:
    """REC-099: in a copy, and in a batch that is written anew."""
    data = batch_of((5, None, b"0"), (10, b"1", None), compression=codec, delete_horizon_ms=400)
    options = {"now_ms": 1000, "delete_retention_ms": 1000}
    assert filter_batches_by(data, *retain("delete_empty", True), **options).output == data
    batch = only_batch(keyed_only(data, **options).output)
    assert (batch.delete_horizon_ms, batch.max_timestamp, list(batch)) == (400, 10, [Record(1, 10, b"1", None)])


def test_no_horizon_is_set_past_the_end_of_time_and_none_below_zero_is_kept() -> None:
    """As Kafka's builder has it: the sum wraps, and what is negative is none."""
    data = batch_of((5, b"0", None))
    result = filter_batches_by(data, *retain("delete_empty", True), now_ms=2**63 - 1, delete_retention_ms=1)
    assert result.output == data
    body = with_length(b"\0\x02\0" + sized(b"k") + sized(None) + b"\0") + with_length(
        b"\0\x04\x02" + sized(None) + sized(None) + b"\0"
    )
    odd = v2_batch(body, 2, attributes=0x40, base_timestamp=-3)
    assert only_batch(odd).delete_horizon_ms == -3
    batch = only_batch(keyed_only(odd, now_ms=9, delete_retention_ms=9).output)
    assert (batch.delete_horizon_ms, batch.base_timestamp) == (None, -2)
    assert [tuple(record) for record in batch] == [(0, -2, b"k", None, ())]
    assert batch.max_timestamp == -1


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in CODECS_BY_MAGIC if pair[0]])
def test_log_append_time_stays_and_create_time_is_the_largest_of_what_is_kept(magic: int, codec: str) -> None:
    """REC-100."""
    cells = ((10, None, b"a"), (14, b"4", b"b"), (12, b"5", b"c"), (99, None, b"d"))
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    stamped = batch_of(*cells, timestamp_type="log_append_time", log_append_time_ms=5000, **options)
    result = keyed_only(stamped)
    for batch in decode_batches(result.output):
        assert (batch.timestamp_type, batch.max_timestamp, batch.compression) == ("log_append_time", 5000, codec)
    assert [record.timestamp for record in rows(result.output)] == [5000, 5000]
    assert result.max_timestamp == 5000
    result = keyed_only(batch_of(*cells, **options))
    assert [record.timestamp for record in rows(result.output)] == [14, 12]
    assert (result.max_timestamp, next(decode_batches(result.output)).max_timestamp) == (14, 14)


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_result_counts_what_was_read_and_what_stays(magic: int, codec: str) -> None:
    """REC-101: and tells the largest timestamp with the last offset of its batch."""
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    data = (
        batch_of((10, None, b"a"), **options)
        + batch_of((11, b"1", b"b"), (12, None, b"c"), base_offset=1, **options)
        + batch_of((13, None, b"d"), (20, b"4", b"e"), (15, b"5", b"f"), base_offset=3, **options)
        + batch_of((16, b"6", b"g"), base_offset=6, **options)
    )
    result = keyed_only(data)
    assert (result.messages_read, result.messages_retained) == (7, 4)
    assert (result.consumed, result.max_offset) == (len(data), 6)
    assert repr(result) == f"FilterResult(4 of 7 records, {len(result.output)} of {len(data)} bytes, max_offset=6)"
    single = magic < 2 and codec == "none"
    if magic:
        assert (result.max_timestamp, result.shallow_offset_of_max_timestamp) == (20, 4 if single else 5)
    else:
        assert (result.max_timestamp, result.shallow_offset_of_max_timestamp) == (-1, -1)
    batches = list(decode_batches(result.output))
    spans = [(batch.base_offset, batch.last_offset) for batch in batches]
    if single:
        assert spans == [(1, 1), (4, 4), (5, 5), (6, 6)]
    else:
        assert spans == ([(1, 1), (4, 5), (6, 6)] if magic < 2 else [(1, 2), (3, 5), (6, 6)])
    assert {(batch.magic, batch.compression, batch.timestamp_type) for batch in batches} == {(2, codec, "create_time")}
    assert kept(result.output) == [(1, b"1", b"b"), (4, b"4", b"e"), (5, b"5", b"f"), (6, b"6", b"g")]
    times = [11, 20, 15, 16] if magic else [-1] * 4
    assert [record.timestamp for record in rows(result.output)] == times


def test_the_largest_offset_is_that_of_the_last_record_kept_if_the_batch_is_written_anew() -> None:
    """REC-101: which may lie before the batch's last offset."""
    data = batch_of((1, b"a", b"1"), (2, b"b", b"2"), (3, None, b"3"), base_offset=5)
    assert keyed_only(data).max_offset == 6
    assert only_batch(keyed_only(data).output).last_offset == 7
    assert filter_batches_by(data, *retain("delete_empty", True)).max_offset == 7


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
@pytest.mark.parametrize("output_bytes_max", [0, 64, 100, 10_000])
def test_a_small_output_is_enough(magic: int, codec: str, output_bytes_max: int) -> None:
    """REC-102: a call ends with the batch that makes it larger, and the next goes on from there."""
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    data = (
        batch_of((10, None, b"a"), **options)
        + batch_of((11, b"1", bytes(128)), (12, b"2", b"c"), (13, None, b"d"), base_offset=1, **options)
        + batch_of((14, None, b"e"), (15, b"5", b"f"), (16, b"6", b"g"), base_offset=4, **options)
        + batch_of((17, b"7", bytes(128)), base_offset=7, **options)
    )
    parts, position = [], 0
    while position < len(data):
        result = keyed_only(data[position:], output_bytes_max=output_bytes_max)
        assert result.consumed > 0
        parts.append(result.output)
        position += result.consumed
    assert b"".join(parts) == keyed_only(data).output
    assert [record.key for record in rows(b"".join(parts))] == [b"1", b"2", b"5", b"6", b"7"]
    if output_bytes_max == 0:
        assert len([part for part in parts if part]) == len(list(decode_batches(keyed_only(data).output)))
    elif output_bytes_max == 10_000:
        assert len(parts) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_headers_survive_and_odd_encodings_come_out_as_a_writer_has_them(codec: str) -> None:
    headers = [("trace", b"1"), ("", None), ("\udcff", b"")]
    data = encode_batch([(None, b"x", 1), (b"k", b"v", 2, headers), (b"l", None, 3, headers[:1])], compression=codec)
    result = keyed_only(data)
    assert [record.headers for record in rows(result.output)] == [tuple(headers), (("trace", b"1"),)]
    # A length of two bytes where one would do, a null of -7, an attribute, a header whose value is a null of -2.
    odd = with_length(b"\x05\x80\x00\x82\x00" + sized(b"k") + varint.write(-7) + b"\x02\x82\x00h" + varint.write(-2))
    first = with_length(b"\0\0\0" + sized(None) + sized(b"x") + b"\0")
    result = keyed_only(v2_batch(first + odd, 2, codec=codec), now_ms=5, delete_retention_ms=5)
    plain = with_length(
        b"\0" + varint.write(-10) + b"\x02" + sized(b"k") + sized(None) + b"\x02" + sized(b"h") + sized(None)
    )
    batch = only_batch(result.output)
    packed = bytes(batch.data[61:])
    assert compression.decompress(codec, packed, 2, 1000) == plain


def test_a_callable_that_answers_nonsense_is_refused() -> None:
    data = batch_of((1, b"k", b"v"))
    for answer, got in (("keep", "'keep'"), (None, "NoneType"), ((1, 2, 3), "tuple"), (("delete", 1, 2), "tuple")):
        with pytest.raises(UsageError, match=f"^check_batch_retention, batch at position 0: got {got}, wanted"):
            filter_batches_by(data, lambda batch, answer=answer: answer, lambda batch, record: True)
    for arguments in ((None, len), (len, 3)):
        with pytest.raises(UsageError, match="wanted a callable"):
            filter_batches_by(data, *arguments)

    def mine(*_: Any) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        filter_batches_by(data, mine, len)
    with pytest.raises(KeyError, match="mine"):
        filter_batches_by(data, lambda batch: "delete_empty", mine)


# --- what a cleaner keeps -------------------------------------------------------------------------------------------


def one_each(*cells: tuple[bytes | None, bytes | None], base_offset: int = 0, **options: Any) -> bytes:
    """A batch a record."""
    return b"".join(
        batch_of((0, *cell), base_offset=base_offset + index, **options) for index, cell in enumerate(cells)
    )


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_the_latest_record_of_a_key_stays_and_what_lies_behind_the_map(magic: int, codec: str) -> None:
    """CLN-031, CLN-074: in every magic and codec, as magic 2."""
    options: dict[str, Any] = {"magic": magic, "compression": codec}
    data = batch_of((1, b"a", b"1"), (2, b"b", b"2"), (3, b"a", b"3"), **options)
    data += batch_of((4, b"c", b"4"), (5, b"b", b"5"), base_offset=3, **options)
    later = batch_of((6, b"a", b"6"), (7, None, b"7"), (8, b"a", None), base_offset=5, **options)
    offset_map = mapped(data)
    output = filter_batches(data + later, offset_map, now_ms=0, delete_retention_ms=0).output
    assert kept(output) == [
        (2, b"a", b"3"),
        (3, b"c", b"4"),
        (4, b"b", b"5"),
        (5, b"a", b"6"),
        (6, None, b"7"),
        (7, b"a", None),
    ]
    assert {(batch.magic, batch.compression) for batch in decode_batches(output)} == {(2, codec)}


def test_what_is_not_in_the_map_stays() -> None:
    """CLN-031: the clean part of a log has keys that the dirty part does not."""
    data = one_each((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    assert kept(clean(data, first_offset=2)) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_an_empty_map_keeps_all() -> None:
    data = one_each((b"a", b"1"), (None, b"1"), (b"a", None))
    offset_map = OffsetMap(24, seed=SEED)
    result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0)
    assert kept(result.output) == kept(data)
    assert result.invalid_messages_read == 0


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_record_without_key_is_dropped_and_counted(magic: int, codec: str) -> None:
    """CLN-032: an empty key is a key, an empty value a value."""
    data = batch_of((1, None, b"1"), (2, b"", b""), (3, None, None), magic=magic, compression=codec)
    result = filter_batches(data, mapped(data), now_ms=0, delete_retention_ms=0)
    assert kept(result.output) == [(1, b"", b"")]
    assert (result.invalid_messages_read, result.messages_read, result.messages_retained) == (2, 3, 1)


def test_five_records_of_two_keys_become_two() -> None:
    """CLN-033: 0, 1, 0, 1, 0 from dirty offset 2."""
    data = one_each(*((key, b"v") for key in (b"0", b"1", b"0", b"1", b"0")))
    result = filter_batches(data, mapped(data, first_offset=2), now_ms=0, delete_retention_ms=0)
    assert kept(result.output) == [(3, b"1", b"v"), (4, b"0", b"v")]
    assert (result.messages_read, result.messages_retained) == (5, 2)
    assert (result.consumed, len(result.output)) == (len(data), len(data) * 2 // 5)


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_batch_of_a_round_stays_though_empty(codec: str) -> None:
    """CLN-035: the one whose next offset is the round's upper bound; aborted or not."""
    data = batch_of((1, b"a", b"1"), (2, None, b"2"), compression=codec)
    last = batch_of((3, None, b"3"), (4, None, b"4"), base_offset=2, compression=codec)
    output = clean(data + last, upper_bound_offset=4)
    first, second = decode_batches(output)
    assert (first.count, second.count, second.base_offset, second.last_offset) == (1, 0, 2, 3)
    assert kept(clean(data + last, upper_bound_offset=5)) == [(0, b"a", b"1")]

    aborted = batch_of((3, b"k", b"3"), (4, b"l", b"4"), base_offset=2, is_transactional=True, **PRODUCER)
    offset_map = mapped(data)
    offset_map.update_latest_offset(3)
    options: dict[str, Any] = {"now_ms": 0, "delete_retention_ms": 0, "should_discard_batch": lambda batch: True}
    result = filter_batches(aborted, offset_map, upper_bound_offset=4, **options)
    assert (only_batch(result.output).count, result.messages_read, result.messages_retained) == (0, 2, 0)
    result = filter_batches(aborted, offset_map, upper_bound_offset=9, **options)
    assert (result.output, result.messages_read, result.consumed) == (b"", 0, len(aborted))


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_goes_in_the_second_pass_at_the_earliest(codec: str) -> None:
    """CLN-038, CLN-039: now + retention from the first pass that keeps it, however old its record is."""
    data = batch_of((5, b"a", b"1"), (6, b"b", None), (7, b"b", None), compression=codec)
    once = clean(data, now_ms=10 * DAY)
    assert kept(once) == [(0, b"a", b"1"), (2, b"b", None)]
    assert only_batch(once).delete_horizon_ms == 11 * DAY
    assert clean(once, now_ms=11 * DAY - 1) == once
    assert kept(clean(once, now_ms=11 * DAY)) == [(0, b"a", b"1")]


def test_a_tombstone_removes_earlier_values_in_the_pass_that_keeps_it() -> None:
    """CLN-041."""
    data = one_each((b"a", b"1"), (b"b", b"1"), (b"a", None))
    assert kept(clean(data)) == [(1, b"b", b"1"), (2, b"a", None)]
    # Also where its horizon has come: the earlier value may lie in a segment that was not cleaned yet.
    gone = one_each((b"a", b"1")) + batch_of((0, b"a", None), base_offset=1, delete_horizon_ms=5)
    assert clean(gone, now_ms=5) == b""


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in CODECS_BY_MAGIC if pair[0] < 2])
def test_older_tombstones_go_when_their_segment_is_old_and_get_a_horizon_else(magic: int, codec: str) -> None:
    """CLN-040: whether it is, the caller says."""
    data = batch_of((1, b"a", b"1"), (2, b"b", None), magic=magic, compression=codec)
    assert kept(clean(data, retain_legacy_deletes=False)) == [(0, b"a", b"1")]
    output = clean(data, retain_legacy_deletes=True, now_ms=3)
    assert kept(output) == [(0, b"a", b"1"), (1, b"b", None)]
    *others, last = decode_batches(output)
    assert (last.delete_horizon_ms, len(others)) == (DAY + 3, 1 if codec == "none" else 0)
    # In magic 2 only the horizon counts.
    newer = batch_of((1, b"a", b"1"), (2, b"b", None))
    assert len(kept(clean(newer, retain_legacy_deletes=False))) == 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_wrapper_of_magic_1_around_messages_of_magic_0_is_repaired(codec: str) -> None:
    """CLN-064: what an old cleaner left; the records end in a batch of one magic, at their offsets."""
    inner = b"".join(
        legacy.encode_message(offset, b"k%d" % (offset % 2), b"v%d" % offset, magic=0) for offset in range(4)
    )
    packed = compression.compress(codec, inner, 1)
    data = legacy.encode_message(7, None, packed, magic=1, timestamp=55, compression_name=codec)
    assert [record.offset for record in rows(data)] == [4, 5, 6, 7]
    batch = only_batch(clean(data))
    assert (batch.magic, batch.compression, batch.base_offset, batch.last_offset) == (2, codec, 6, 7)
    assert list(batch) == [Record(6, -1, b"k0", b"v2"), Record(7, -1, b"k1", b"v3")]


# --- producers and transactions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_batch_of_an_active_producer_stays_as_its_header(codec: str) -> None:
    options = PRODUCER | {"compression": codec}
    data = batch_of((1, b"a", b"1"), (2, b"b", b"1"), **options)
    data += batch_of((3, b"a", b"2"), (4, b"b", b"2"), base_offset=2, **options)
    data += batch_of((5, b"a", b"3"), (6, b"b", b"3"), base_offset=4)
    for last_records, expected in (
        (None, [(2, 4)]),
        ({}, [(2, 4)]),
        ({23: (3, 5)}, [(0, 2), (2, 4)]),
        ({23: (1, 5)}, [(0, 0), (2, 4)]),
        ({23: (2, 5)}, [(2, 4)]),
        ({24: (3, 5)}, [(2, 4)]),
        ({23: (None, 5)}, [(2, 4)]),
        ({23: (3, 5), 24: (1, 0)}, [(0, 2), (2, 4)]),
    ):
        batches = list(decode_batches(clean(data, last_records=last_records)))
        assert [(batch.count, batch.base_offset) for batch in batches] == expected, last_records


def test_the_last_records_of_many_producers_are_found() -> None:
    count = 300
    producers = [{"producer_id": 7 * number, "producer_epoch": 0, "base_sequence": 0} for number in range(count)]
    data = b"".join(batch_of((1, b"k", b"v"), base_offset=number, **one) for number, one in enumerate(producers))
    data += one_each((b"k", b"v"), base_offset=count)
    active = range(0, count, 3)
    last_records = LastRecords({7 * number: (number, 0) for number in reversed(active)})
    assert len(last_records) == len(active)
    batches = list(decode_batches(clean(data, last_records=last_records)))
    assert [batch.base_offset for batch in batches] == [*active, count]
    assert {batch.count for batch in batches[:-1]} == {0}
    elsewhere = LastRecords({7 * number + 1: (number, 0) for number in active})
    assert clean(data, last_records=elsewhere) == clean(data, last_records=LastRecords({})) == clean(data)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([3], "last_records: got list, wanted a mapping of producer ids"),
        ({"a": (1, 0), 3: (1, 0)}, "producer id: got str"),
        ({-1: (1, 0)}, "producer id: got -1"),
        ({3: 5}, "last record, producer 3: got int, wanted a tuple"),
        ({3: (5,)}, "last record, producer 3: got tuple, wanted a tuple"),
        ({3: (-1, 0)}, "last_data_offset: got -1"),
        ({3: (None, 2**15)}, "producer_epoch: got 32768"),
    ],
)
def test_what_is_no_last_record_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        LastRecords(rows)


def test_a_batch_that_keeps_a_record_is_kept_whoever_wrote_it() -> None:
    data = batch_of((1, b"a", b"1"), (2, b"b", b"1"), **PRODUCER) + one_each((b"a", b"2"), base_offset=2)
    for last_records in ({23: (1, 5)}, {}):
        first, _ = decode_batches(clean(data, last_records=last_records))
        assert (first.count, first.last_sequence) == (1, 11)


def marker(offset: int, *, commit: bool = True, epoch: int = 5) -> bytes:
    return encode_transaction_marker(23, epoch, commit=commit, coordinator_epoch=0, offset=offset, timestamp=7)


def test_a_marker_that_nothing_needs_gets_a_horizon_and_goes_when_it_has_come() -> None:
    data = marker(4)
    offset_map = mapped(one_each((b"a", b"1"), base_offset=9))
    options: dict[str, Any] = {"delete_retention_ms": DAY}
    needed = filter_batches(data, offset_map, now_ms=5, should_discard_batch=lambda batch: False, **options)
    assert needed.output == data
    assert filter_batches(data, offset_map, now_ms=5, **options).output == data

    def discard(data: bytes, now_ms: int, **more: Any) -> bytes:
        more.setdefault("should_discard_batch", lambda batch: True)
        return filter_batches(data, offset_map, now_ms=now_ms, **more, **options).output

    once = discard(data, 5)
    assert only_batch(once).delete_horizon_ms == DAY + 5
    assert [(one.type, one.timestamp) for one in only_batch(once).control_records()] == [("COMMIT", 7)]
    assert discard(once, DAY + 4) == once
    assert discard(once, DAY + 5) == b""
    assert discard(once, DAY + 5, should_discard_batch=lambda batch: False) == once
    # The marker with the producer's epoch stays, where there is no other batch of it to tell.
    assert only_batch(discard(once, DAY + 5, last_records={23: (None, 5)})).count == 0
    assert discard(once, DAY + 5, last_records={23: (None, 6)}) == b""
    assert only_batch(discard(once, DAY + 5, last_records={23: (4, 9)})).is_control


def test_aborted_data_goes_though_it_is_the_latest_and_markers_are_no_keys() -> None:
    data = batch_of((1, b"a", b"1"), (2, b"\0\0\0\1", b"data"))
    data += batch_of((3, b"a", b"2"), base_offset=2, is_transactional=True, **PRODUCER)
    data += marker(3, commit=False)
    asked = []

    def should_discard(batch: Batch) -> bool:
        asked.append(batch.base_offset)
        return not batch.is_control

    offset_map = OffsetMap(24 * 8, seed=SEED)
    map_keys(data, offset_map, first_offset=0, should_discard_batch=should_discard)
    result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0, should_discard_batch=should_discard)
    assert asked == [2, 3, 2, 3]
    assert [(record.offset, record.value) for record in rows(result.output)][:2] == [(0, b"1"), (1, b"data")]
    assert [batch.base_offset for batch in decode_batches(result.output)] == [0, 3]
    assert (result.messages_read, result.messages_retained) == (3, 3)


# --- damage, and use ------------------------------------------------------------------------------------------------


FORMS: dict[str, Callable[..., FilterResult]] = {
    "by the map": lambda data, **options: filter_batches(
        data, mapped(batch_of((1, b"a", b"9"), base_offset=99)), now_ms=0, delete_retention_ms=0, **options
    ),
    "by callables": lambda data, **options: keyed_only(data, **options),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_told_with_its_place(form: str, codec: str) -> None:
    good = batch_of((1, b"a", b"1"), (2, b"b", b"2"), compression=codec)
    bad = replaced(good, len(good) - 1, bytes([good[-1] ^ 1]))
    with pytest.raises(CorruptBatch) as caught:
        FORMS[form](good + bad, base_position=500)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.CRC, 500 + len(good))
    body = batch_of((1, b"a", b"1"), (2, b"b", b"2"))[61:-6] + b"\xff" * 6
    with pytest.raises(CorruptBatch) as caught:
        FORMS[form](v2_batch(body, 2, codec=codec), base_position=3)
    assert (caught.value.position, caught.value.record_index) == (3, 1)
    for count, reason in ((1, CorruptionReason.RECORD_COUNT), (-1, CorruptionReason.RECORD_COUNT)):
        with pytest.raises(CorruptBatch) as caught:
            FORMS[form](v2_batch(batch_of((1, b"a", b"1"), (2, b"b", b"2"))[61:], count, codec=codec))
        assert caught.value.reason is reason


@pytest.mark.parametrize("form", FORMS)
def test_offsets_that_go_back_can_be_copied_but_not_written_anew(form: str) -> None:
    def record(delta: int, key: bytes | None) -> bytes:
        return with_length(b"\0\0" + varint.write(delta) + sized(key) + sized(b"v") + b"\0")

    whole = v2_batch(record(3, b"k") + record(1, b"l"), 2, last_offset_delta=3)
    assert FORMS[form](whole).output == whole
    with pytest.raises(CorruptBatch, match="offset of a record got 1, wanted more than 3") as caught:
        FORMS[form](v2_batch(record(3, b"k") + record(0, None) + record(1, b"l"), 3, last_offset_delta=3))
    error = caught.value
    assert (error.reason, error.position, error.record_index) == (CorruptionReason.OFFSET_ORDER, 0, 2)


def test_offsets_of_old_messages_may_not_lie_2_to_the_31_apart() -> None:
    inner = b"".join(legacy.encode_message(offset, b"k%d" % offset, b"v", magic=0) for offset in (0, 2**31))
    packed = compression.compress("gzip", inner, 0)
    data = legacy.encode_message(2**31, None, packed, magic=0, compression_name="gzip")
    with pytest.raises(CorruptBatch, match="offset of a record got 2147483648") as caught:
        clean(data)
    assert caught.value.reason is CorruptionReason.OFFSET_ORDER


def test_a_batch_that_stays_has_an_offset() -> None:
    body = batch_of((1, b"a", b"1"))[61:]
    for data in (v2_batch(body, 1, base_offset=-5), v2_batch(body, 1, base_offset=3, last_offset_delta=-9)):
        with pytest.raises(CorruptBatch, match=r"largest offset of a batch got -[56], wanted 0 or more"):
            filter_batches_by(data, *retain("delete_empty", True))
    assert filter_batches_by(v2_batch(body, 1, base_offset=-5), *retain("delete_empty", False)).output == b""


@pytest.mark.parametrize("form", FORMS)
def test_a_partial_last_batch_is_left_and_nothing_is_nothing(form: str) -> None:
    data, more = batch_of((1, b"a", b"1")), batch_of((1, b"b", b"1"), base_offset=1)
    for cut in range(len(more)):
        assert FORMS[form](data + more[:cut]).consumed == len(data)
    result = FORMS[form](b"")
    assert (result.output, result.consumed, result.max_offset, result.messages_read) == (b"", 0, -1, 0)


@pytest.mark.parametrize("form", FORMS)
def test_any_buffer_will_do(form: str) -> None:
    data = batch_of((1, b"a", b"1"), (2, None, b"2"))
    expected = FORMS[form](data).output
    for buffer in (bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert FORMS[form](buffer).output == expected
    with pytest.raises(UsageError, match=r"^buffer: got str"):
        FORMS[form]("text")


def test_a_bomb_is_refused_by_its_size() -> None:
    data = encode_batch([(b"k", bytes(1 << 20))], compression="zstd")
    for form in FORMS.values():
        with pytest.raises(CorruptBatch) as caught:
            form(data, max_decompressed_bytes=1 << 16)
        assert caught.value.reason is CorruptionReason.DECOMPRESSED_SIZE


def test_many_records_and_large_ones_find_room() -> None:
    """Times that grow by a horizon make each record longer; the output grows with them."""
    tombstones = encode_batch([(b"%d" % number, None, number) for number in range(20_000)])
    batch = only_batch(clean_all(tombstones))
    assert (batch.count, batch.delete_horizon_ms) == (20_000, 2**62)
    assert [record.timestamp for record in batch] == list(range(20_000))
    assert batch.size_in_bytes > len(tombstones)
    large = batch_of(*((index, b"k%d" % index, b"v" * 300_000) for index in range(9)), (9, None, b"x"))
    assert len(kept(clean_all(large))) == 9


def clean_all(data: bytes) -> bytes:
    offset_map = OffsetMap(24 * 30_000, seed=SEED)
    map_keys(data, offset_map, first_offset=0)
    return filter_batches(data, offset_map, now_ms=2**61, delete_retention_ms=2**61).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"now_ms": -1}, "now_ms: got -1"),
        ({"delete_retention_ms": -1}, "delete_retention_ms: got -1"),
        ({"output_bytes_max": -1}, "output_bytes_max: got -1"),
        ({"base_position": -1}, "base_position: got -1"),
        ({"max_decompressed_bytes": 0}, "max_decompressed_bytes: got 0"),
        ({"upper_bound_offset": -1}, "upper_bound_offset: got -1"),
        ({"should_discard_batch": 3}, "should_discard_batch: got int, wanted a callable"),
        ({"last_records": [3]}, "last_records: got list, wanted a mapping"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"now_ms": 0, "delete_retention_ms": 0} | options
    with pytest.raises(UsageError, match=f"^{message}"):
        filter_batches(b"", OffsetMap(24, seed=SEED), **arguments)


def test_what_a_callable_raises_comes_out_and_the_map_is_free_again() -> None:
    data = batch_of((1, b"a", b"1"), is_transactional=True, **PRODUCER)
    offset_map = mapped(data)

    def mine(batch: Batch) -> bool:
        assert offset_map.get(b"a") == 0  # others may look too
        with pytest.raises(UsageError, match="wanted one user at a time"):
            offset_map.put(b"a", 1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        filter_batches(data, offset_map, now_ms=0, delete_retention_ms=0, should_discard_batch=mine)
    offset_map.put(b"a", 1)
