"""Magic 2 as a batch: header, checksum, sequences, timestamps, and counts that lie."""

from __future__ import annotations

import gc
import struct
import tracemalloc

import pytest

from logcore import (
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    decode_batches,
    decode_columns,
    decrement_sequence,
    encode_batch,
    encode_empty_batch,
    increment_sequence,
    patch_batch,
    scan_batches,
)
from logcore.errors import CorruptMessageError, InvalidRecordError
from tests.helpers import (
    CODECS,
    only_batch,
    ref_records,
    refusal,
    replaced,
    rows,
    same_in_every_reader,
    v2_batch,
)
from tests.reference import batch_v2, checksum

INT32_MAX = 2**31 - 1
LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, COUNT = 8, 12, 16, 17, 21, 23, 57
THREE = [Record(0, 1, b"a", b"1"), Record(1, 2, b"b", b"2"), Record(2, 3, b"c", b"3")]


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def with_count(batch: bytes, count: int) -> bytes:
    return batch_v2.with_crc(replaced(batch, COUNT, int32(count)))


# ------------------------------------------------------------------------------------------------------ the header


def test_a_batch_is_a_header_of_61_bytes_and_its_records() -> None:
    """REC-001: every field of the header stands where Kafka has it."""
    batch = encode_batch(
        [Record(1000, 5000, b"k", b"v"), Record(1003, 7000, None, None)],
        leader_epoch=9,
        producer_id=77,
        producer_epoch=3,
        base_sequence=21,
        is_transactional=True,
        last_offset=1007,
    )
    fields = struct.unpack(">qiibIhiqqqhii", batch[:61])
    crc = checksum.crc32c(batch[21:])
    assert fields == (1000, len(batch) - 12, 9, 2, crc, 0x10, 7, 5000, 7000, 77, 3, 21, 2)
    read = only_batch(batch)
    assert (read.base_offset, read.last_offset, read.size_in_bytes, read.leader_epoch, read.magic, read.crc) == (
        1000, 1007, len(batch), 9, 2, crc,
    )  # fmt: skip
    assert (read.base_timestamp, read.max_timestamp, read.count, read.attributes) == (5000, 7000, 2, 0x10)
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.last_sequence) == (77, 3, 21, 28)
    assert bytes(read.data) == batch


def test_a_batch_without_a_producer_has_no_id_epoch_or_sequence() -> None:
    """REC-002: they are -1; a Record has no sequence of its own, the batch's first and last say it for all."""
    batch = only_batch(encode_batch(THREE))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (-1, -1, -1, -1)


@pytest.mark.parametrize(("last_offset", "last_sequence"), [(1, 984), (9, 992)])
def test_the_last_sequence_follows_from_the_offsets_and_not_from_the_count(
    last_offset: int, last_sequence: int
) -> None:
    """REC-003: base sequence 983 and two records give 984; more offsets than records give more."""
    batch = only_batch(
        encode_batch([(b"k", b"v")] * 2, last_offset=last_offset, producer_id=1, producer_epoch=0, base_sequence=983)
    )
    assert (batch.count, batch.base_sequence, batch.last_sequence) == (2, 983, last_sequence)


def test_the_sequences_of_a_batch_wrap_to_zero() -> None:
    """REC-004: 2147483646, 2147483647, 0; never a negative number."""
    batch = only_batch(encode_batch(THREE, producer_id=1, producer_epoch=0, base_sequence=INT32_MAX - 1))
    sequences = [increment_sequence(batch.base_sequence, record.offset - batch.base_offset) for record in batch]
    assert sequences == [INT32_MAX - 1, INT32_MAX, 0]
    assert batch.last_sequence == 0


def test_sequences_go_up_and_down_in_a_ring() -> None:
    """REC-005: 5+5=10, int32max+1=0, (int32max-5)+10=4; 5-5=0, 0-1=int32max."""
    ups = [increment_sequence(*pair) for pair in ((5, 5), (INT32_MAX, 1), (INT32_MAX - 5, 10))]
    downs = [decrement_sequence(*pair) for pair in ((5, 5), (0, 1), (4, 10))]
    assert (ups, downs) == ([10, 0, 4], [0, INT32_MAX, INT32_MAX - 5])


def test_the_size_of_an_uncompressed_batch_is_the_sum_of_its_fields() -> None:
    """REC-006: null keys, null values, headers with null values and growing timestamps counted."""
    records = [
        Record(0, 1, b"key-1", b"value-1"),
        Record(1, 90, None, b"value-2"),
        Record(2, 20_000, b"key-3", None),
        Record(3, 3_000_000, None, None, [("h", b"x"), ("h", None), ("", b"")]),
        Record(4, 400_000_000_000, b"k" * 70, b"v" * 9000, [("n" * 64, b"w" * 64)] * 65),
    ]
    predicted = 61 + sum(len(batch_v2.encode_record(record, 0, 1)) for record in ref_records(records))
    batch = encode_batch(records)
    assert len(batch) == predicted
    assert same_in_every_reader(batch) == records


@pytest.mark.parametrize("bits", range(0x80))
def test_each_attribute_has_its_bits(bits: int) -> None:
    """REC-024: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon."""
    batch = only_batch(v2_batch(b"", 0, attributes=bits, last_offset_delta=0, base_timestamp=1234))
    assert batch.attributes == bits
    assert batch.compression == (*CODECS, "unknown-5", "unknown-6", "unknown-7")[bits & 7]
    assert batch.timestamp_type == ("log_append_time" if bits & 8 else "create_time")
    assert (batch.is_transactional, batch.is_control) == (bits & 16 != 0, bits & 32 != 0)
    assert batch.delete_horizon_ms == (1234 if bits & 64 else None)


# ------------------------------------------------------------------------------------------ checksum and in-place


@pytest.mark.parametrize("size", [10, 13, 40, 48])
def test_a_length_below_the_header_makes_a_batch_invalid(size: int) -> None:
    """REC-007: below 61 bytes no checksum is even looked at."""
    error = refusal(replaced(encode_batch(THREE), LENGTH, int32(size)))
    assert (error.reason, error.kafka_error) == (CorruptionReason.BATCH_SIZE, CorruptMessageError)
    assert error.got == str(size)


def test_a_changed_last_offset_delta_makes_a_batch_invalid() -> None:
    """REC-008: it lies under the checksum."""
    batch = encode_batch(THREE)
    damaged = replaced(batch, LAST_OFFSET_DELTA, int32(23))
    error = refusal(damaged)
    assert (error.reason, error.kafka_error) == (CorruptionReason.CRC, CorruptMessageError)
    assert error.got == f"0x{only_batch(batch).crc:08x}"
    assert error.wanted == f"0x{checksum.crc32c(damaged[21:]):08x}"
    assert only_batch(damaged, verify_crc=False).last_offset == 23


def test_base_offset_and_leader_epoch_lie_outside_the_checksum() -> None:
    """REC-009: any of their bytes may change and the batch stays valid."""
    batch = encode_batch(THREE)
    for at in (*range(LENGTH), *range(LEADER_EPOCH, MAGIC)):
        changed = replaced(batch, at, bytes([batch[at] ^ 0x01]))
        assert scan_batches(changed).error is None
        assert only_batch(changed).crc == only_batch(batch).crc


def test_every_byte_from_the_attributes_on_lies_under_the_checksum() -> None:
    """REC-026: a v2 record has no checksum of its own, so this one covers them all; so does the stored checksum."""
    batch = encode_batch(THREE)
    for at in range(CRC, len(batch)):
        error = refusal(replaced(batch, at, bytes([batch[at] ^ 0x40])))
        assert (error.reason, error.position, error.at) == (CorruptionReason.CRC, 0, CRC)


@pytest.mark.parametrize("codec", CODECS)
def test_setting_the_last_offset_renumbers_the_records(codec: str) -> None:
    """REC-010: 500 on three records moves the base to 498 and keeps the checksum."""
    batch = bytearray(encode_batch(THREE, compression=codec))
    crc = only_batch(bytes(batch)).crc
    assert patch_batch(batch, last_offset=500) is False
    after = only_batch(bytes(batch))
    assert (after.base_offset, after.last_offset, after.crc) == (498, 500, crc)
    assert [record.offset for record in same_in_every_reader(batch)] == [498, 499, 500]


def test_setting_the_leader_epoch_changes_only_that_field() -> None:
    """REC-011: 500, and the batch is still valid."""
    before = encode_batch(THREE)
    batch = bytearray(before)
    assert patch_batch(batch, leader_epoch=500) is False
    assert batch == replaced(before, LEADER_EPOCH, int32(500))
    assert only_batch(batch).leader_epoch == 500


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_becomes_every_records_time(codec: str) -> None:
    """REC-012: attributes and max timestamp are written, the checksum anew, the stored deltas stay hidden."""
    before = encode_batch(THREE, compression=codec)
    batch = bytearray(before)
    assert patch_batch(batch, timestamp_type="log_append_time", max_timestamp=15) is True
    after = only_batch(batch)
    assert (after.timestamp_type, after.max_timestamp, after.base_timestamp) == ("log_append_time", 15, 1)
    assert after.crc == checksum.crc32c(bytes(batch[21:])) != only_batch(before).crc
    assert batch[61:] == before[61:]
    assert [record.timestamp for record in same_in_every_reader(batch)] == [15, 15, 15]


def test_a_v2_batch_cannot_be_given_the_timestamp_type_none() -> None:
    """REC-013: the caller is told, and nothing changes."""
    before = encode_batch(THREE)
    batch = bytearray(before)
    with pytest.raises(UsageError, match='timestamp_type: got \'none\', wanted "create_time" or "log_append_time"'):
        patch_batch(batch, timestamp_type="none", max_timestamp=15)
    assert batch == before


@pytest.mark.parametrize("kind", ["create_time", "log_append_time"])
def test_setting_the_timestamp_that_is_there_computes_no_checksum(kind: str) -> None:
    """REC-014: shown on a wrong checksum, which stays as it is; and a real change mends it."""
    append_time = {"log_append_time_ms": 3} if kind == "log_append_time" else {}
    good = encode_batch(THREE, timestamp_type=kind, **append_time)
    wrong = bytearray(replaced(good, CRC, b"\xde\xad\xbe\xef"))
    before = bytes(wrong)
    assert patch_batch(wrong, timestamp_type=kind, max_timestamp=3) is False
    assert patch_batch(wrong, max_timestamp=3) is False
    assert wrong == before
    assert patch_batch(wrong, timestamp_type=kind, max_timestamp=4) is True
    assert only_batch(wrong).max_timestamp == 4


# ---------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_above_the_records_there_is_refused(codec: str) -> None:
    """REC-015: 5 declared, 3 there."""
    error = refusal(with_count(encode_batch(THREE, compression=codec), 5))
    assert error.kafka_error is InvalidRecordError


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_below_the_records_there_is_refused_after_the_last_declared_one(codec: str) -> None:
    """REC-016: 2 declared, 3 there: both come, then the left-over bytes are refused."""
    batch = with_count(encode_batch(THREE, compression=codec), 2)
    error = refusal(batch)
    assert (error.reason, error.kafka_error) == (CorruptionReason.RECORD_COUNT, InvalidRecordError)
    assert (error.what, error.got) == ("bytes after the last counted record", "9")
    records = iter(only_batch(batch))
    assert [next(records), next(records)] == THREE[:2]
    with pytest.raises(CorruptBatch):
        next(records)
    assert list(records) == [], "an iterator that has raised is at its end"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_negative_count_is_refused_before_the_first_record(codec: str, count: int) -> None:
    """REC-017: as soon as an iterator is made."""
    batch = with_count(encode_batch(THREE, compression=codec), count)
    error = refusal(batch)
    assert (error.reason, error.kafka_error) == (CorruptionReason.RECORD_COUNT, InvalidRecordError)
    assert (error.got, error.wanted) == (str(count), "0 or more")
    read = only_batch(batch)
    assert read.count == count
    with pytest.raises(CorruptBatch, match="record count"):
        iter(read)


@pytest.mark.parametrize("count", [2**31 - 1, 10**9])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_memory_is_taken(count: int) -> None:
    tracemalloc.start()
    try:
        error = refusal(with_count(encode_batch(THREE), count))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (error.reason, error.got) == (CorruptionReason.RECORD_COUNT, str(count))
    assert peak < 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
def test_an_early_end_of_the_records_is_told_from_a_broken_stream(codec: str) -> None:
    """REC-018: a premature end is INVALID_RECORD, a stream that does not decompress is damage."""
    payload = b"".join(batch_v2.encode_record(record, 0, 0) for record in ref_records(THREE))
    for cut in range(1, len(payload)):
        assert refusal(v2_batch(payload[:-cut], 3, codec=codec)).kafka_error is InvalidRecordError
    whole = v2_batch(payload, 3, codec=codec)
    broken = batch_v2.with_crc(whole[:61] + b"\xff" * (len(whole) - 61))
    error = refusal(broken)
    assert (error.reason, error.kafka_error) == (CorruptionReason.DECOMPRESSION, CorruptMessageError)
    assert codec in error.what


# ----------------------------------------------------------------------------------------------- batches of none


@pytest.mark.parametrize("kind", ["create_time", "log_append_time"])
@pytest.mark.parametrize(("transactional", "control"), [(False, False), (True, False), (True, True)])
def test_an_empty_batch_keeps_everything_but_records(kind: str, transactional: bool, control: bool) -> None:
    """REC-019: producer, offsets, epoch, timestamp type and time, bits; base timestamp -1, codec none, count 0."""
    times = {"log_append_time_ms": 777} if kind == "log_append_time" else {"max_timestamp": 777}
    batch = encode_empty_batch(
        1983,
        1990,
        producer_id=23423,
        producer_epoch=145,
        base_sequence=983,
        leader_epoch=293,
        is_transactional=transactional,
        is_control=control,
        timestamp_type=kind,
        **times,
    )
    read = only_batch(batch)
    assert len(batch) == read.size_in_bytes == 61
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (23423, 145, 983)
    assert (read.base_offset, read.last_offset, read.leader_epoch) == (1983, 1990, 293)
    assert (read.timestamp_type, read.max_timestamp, read.base_timestamp) == (kind, 777, -1)
    assert (read.is_transactional, read.is_control, read.compression, read.count) == (transactional, control, "none", 0)
    assert same_in_every_reader(batch) == []


def test_the_last_sequence_of_an_empty_batch_follows_from_its_offsets() -> None:
    """REC-020: base sequence + (last offset - base offset), with the wrap."""
    producer = {"producer_id": 1, "producer_epoch": 0}
    assert only_batch(encode_empty_batch(1983, 1990, base_sequence=983, **producer)).last_sequence == 990
    assert only_batch(encode_empty_batch(5, 7, base_sequence=INT32_MAX - 1, **producer)).last_sequence == 0
    assert only_batch(encode_empty_batch(5, 7)).last_sequence == -1


# ------------------------------------------------------------------------------------------------- whole iteration


@pytest.mark.parametrize("codec", CODECS)
def test_rows_columns_and_projections_give_the_same_records(codec: str) -> None:
    """REC-021: a full read, a streaming read and one that skips keys and values, for every codec."""
    records = [
        Record(
            offset=7 + index,
            timestamp=1000 - index,
            key=None if index % 3 == 0 else b"k%d" % index,
            value=b"v" * index,
            headers=[("h", None)] * (index % 2),
        )
        for index in range(50)
    ]
    batch = encode_batch(records, compression=codec, producer_id=1, producer_epoch=2, base_sequence=3)
    assert same_in_every_reader(batch) == records
    for name in ("offset", "timestamp", "key", "value", "headers"):
        column = list(decode_columns(batch, columns=(name,)).to_numpy()[name])
        assert column == [getattr(record, name) for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_of_keys_values_and_records_are_known_without_their_bytes(codec: str) -> None:
    """REC-022: key and value sizes 1 or null, whole records of 9, 8, 8 and 7 bytes."""
    pairs = [(b"a", b"1"), (b"b", None), (None, b"3"), (None, None)]
    batch = encode_batch([(key, value, 1) for key, value in pairs], compression=codec)
    columns = decode_columns(batch, columns=("key", "value"))
    for at, column in enumerate((columns.key, columns.value)):
        nulls = ~column.validity[0] & 0b1111
        assert column.offsets.tolist()[-1] == sum(pair[at] is not None for pair in pairs)
        assert nulls == sum(1 << index for index, pair in enumerate(pairs) if pair[at] is None)
    sizes = [len(encode_batch([(key, value, 1)])) - 61 for key, value in pairs]
    assert sizes == [9, 8, 8, 7]


@pytest.mark.parametrize("size", [1, 200 * 1024])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_iterating_a_compressed_batch_takes_one_buffer_and_gives_it_back(codec: str, size: int) -> None:
    """REC-023: one buffer for all values, small or large, held as long as the iteration lasts."""
    count = 20
    batch = only_batch(encode_batch([(None, bytes([index]) * size) for index in range(count)], compression=codec))
    list(batch)  # what a codec allocates once and keeps is not the iteration's
    plain = count * (size + 20)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            records = iter(batch)
            held = []
            for _ in range(count):
                next(records)
                held.append(tracemalloc.get_traced_memory()[0] - before)
            assert max(held) - min(held) < 4096, "the buffer neither grows nor moves from record to record"
            assert max(held) < plain + 64 * 1024
            del records
            assert tracemalloc.get_traced_memory()[0] - before < 4096
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------ timestamps


def test_a_delete_horizon_is_the_base_timestamp_and_deltas_may_be_negative() -> None:
    """REC-025: absent without bit 6; the records keep their times."""
    records = [Record(0, 50, b"k", None), Record(1, 150, b"k", b"v")]
    read = only_batch(batch := encode_batch(records, delete_horizon_ms=100))
    assert (read.delete_horizon_ms, read.base_timestamp, read.attributes) == (100, 100, 0x40)
    assert same_in_every_reader(batch) == records
    plain = only_batch(encode_batch(records))
    assert (plain.delete_horizon_ms, plain.base_timestamp) == (None, 50)


@pytest.mark.parametrize("timestamp", [-2, -(2**63)])
def test_a_negative_base_timestamp_cannot_be_written_unless_it_is_minus_one(timestamp: int) -> None:
    """REC-027: neither by a first record nor by a delete horizon."""
    with pytest.raises(UsageError, match=f"timestamp, record 0: got {timestamp}, wanted -1 to 2"):
        encode_batch([(b"k", b"v", timestamp)])
    with pytest.raises(UsageError, match=f"timestamp of a record: got {timestamp}"):
        Record(0, timestamp)
    with pytest.raises(UsageError, match=f"delete_horizon_ms: got {timestamp}"):
        encode_batch([(b"k", b"v", 0)], delete_horizon_ms=timestamp)
    assert only_batch(encode_batch([(b"k", b"v", -1)])).base_timestamp == -1


def test_header_fields_are_read_signed_and_sums_wrap_like_javas() -> None:
    """Kafka's reader takes any header whose checksum is right; so do ours, with the same numbers."""
    payload = b"".join(batch_v2.encode_record(record, 0, 0) for record in ref_records(THREE))
    batch = v2_batch(
        payload, 3, base_offset=2**63 - 2, last_offset_delta=-1, base_timestamp=2**63 - 1, max_timestamp=-(2**63)
    )
    found = same_in_every_reader(batch)
    assert [record.offset for record in found] == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert [record.timestamp for record in found] == [-(2**63), -(2**63) + 1, -(2**63) + 2]
    read = only_batch(batch)
    assert (read.last_offset, read.max_timestamp) == (2**63 - 3, -(2**63))


def test_positions_and_base_positions_are_told_in_batches_and_errors() -> None:
    first, second = encode_batch(THREE), encode_batch(THREE, compression="zstd")
    buffer = first + second + replaced(first, COUNT, int32(9))
    batches = decode_batches(buffer, base_position=4096)
    assert [next(batches).position, next(batches).position] == [4096, 4096 + len(first)]
    with pytest.raises(CorruptBatch) as caught:
        next(batches)
    assert caught.value.position == 4096 + len(first) + len(second)
    assert batches.consumed == len(first) + len(second)
    with pytest.raises(CorruptBatch) as caught:
        decode_columns(buffer, base_position=4096)
    assert caught.value.position == 4096 + len(first) + len(second)
    assert rows(buffer[: len(first) + len(second)]) == THREE * 2


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [(LENGTH, int32(10), CorruptionReason.BATCH_SIZE), (MAGIC, b"\x09", CorruptionReason.MAGIC)],
)
def test_damage_in_a_later_header_is_told_with_that_batchs_position(
    at: int, new: bytes, reason: CorruptionReason
) -> None:
    first = encode_batch([(b"k", b"v")], base_offset=100)
    error = refusal(first + replaced(encode_batch([(b"k", b"v")], base_offset=200), at, new))
    assert (error.reason, error.position, error.at) == (reason, len(first), at)
