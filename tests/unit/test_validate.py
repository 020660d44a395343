"""What a broker checks before it appends, and what it makes of the buffer: facts REC-124 to REC-150."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from logcore import (
    Batch,
    CorruptBatch,
    CorruptionReason,
    KafkaError,
    Record,
    UsageError,
    UsageTypeError,
    decode_batches,
    encode_batch,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._compression import compress
from logcore._validate import AppendBatch, ValidationResult, validate, validate_and_assign
from tests.reference import batch_v2, legacy

NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TARGETS = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
ROWS = [(b"a", b"1", NOW), (b"b", b"2", NOW + 2), (b"c", b"3", NOW + 1)]
FIRST = 1234567


def refused(name: str, buffer: bytes, **options: Any) -> KafkaError:
    """The error of both functions, which must be `name`; a refused buffer must stay as it was."""
    writable = bytearray(buffer)
    with pytest.raises(KafkaError) as looked:
        validate(buffer, **{"now_ms": NOW, **options})
    with pytest.raises(KafkaError) as assigned:
        validate_and_assign(writable, first_offset=FIRST, **{"now_ms": NOW, **options})
    assert looked.value.name == assigned.value.name == name
    assert looked.value.record_errors == assigned.value.record_errors
    assert writable == buffer
    return looked.value


def accepted(buffer: bytes, **options: Any) -> AppendBatch:
    """What is appended; validate() must say the same in advance."""
    made = validate_and_assign(buffer, first_offset=FIRST, **{"now_ms": NOW, **options})
    looked = validate(buffer, **{"now_ms": NOW, **options})
    assert (looked.in_place, looked.record_count, looked.max_timestamp) == (
        not made.converted,
        made.record_count,
        made.max_timestamp,
    )
    return made


def only_batch(data: Any) -> Batch:
    (batch,) = decode_batches(data)
    return batch


def with_field(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """A v2 batch with a header field changed and its checksum made right."""
    data = bytearray(batch)
    struct.pack_into(layout, data, at, value)
    return batch_v2.with_crc(bytes(data))


def last_offset_delta(batch: bytes, value: int) -> bytes:
    return with_field(batch, 23, ">i", value)


def count(batch: bytes, value: int) -> bytes:
    return with_field(batch, 57, ">i", value)


def wrapper(inner: bytes, magic: int, codec: int = 1, offset: int = 0) -> bytes:
    """A compressed message set of magic 0 or 1 around any inner bytes."""
    return legacy.encode_message(
        offset,
        None,
        bytes(compress(codec, inner, magic=magic)),
        magic=magic,
        timestamp=NOW,
        compression_name=CODECS[codec],
    )


def message(magic: int, offset: int = 0, key: bytes | None = b"k", codec: str = "none", timestamp: int = NOW) -> bytes:
    return legacy.encode_message(offset, key, b"v", magic=magic, timestamp=timestamp, compression_name=codec)


# --- the buffer as a whole -----------------------------------------------------------------------------------------


def test_a_buffer_without_a_batch_is_refused() -> None:
    """REC-124: a produce set without any batch is refused; a part of a batch is none."""
    refused("INVALID_RECORD", b"")
    refused("INVALID_RECORD", encode_batch(ROWS)[:-1])


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_only_uncompressed_messages_of_old_magic_may_come_in_numbers(magic: int) -> None:
    """REC-125: more than one batch is refused for v2 and for compressed sources, several v0/v1 messages are allowed."""
    codec = "gzip" if magic < 2 else "none"
    refused("INVALID_RECORD", encode_batch(ROWS, magic=magic, compression=codec) * 2)
    if magic < 2:
        made = accepted(encode_batch(ROWS, magic=magic), magic=magic)
        assert (made.record_count, made.converted) == (3, False)
        refused("INVALID_RECORD", encode_batch(ROWS, magic=magic) + encode_batch(ROWS, magic=magic, compression="lz4"))


def test_batches_of_differing_magic_are_refused() -> None:
    """REC-126: messages of magic 0 and 1 in one set."""
    error = refused("INVALID_RECORD", message(0) + message(1))
    assert "magic got 1, wanted 0" in str(error)
    refused("INVALID_RECORD", message(1) + encode_batch(ROWS))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("delta", [0, 15, -3])
def test_a_clients_count_must_be_its_offset_range(codec: str, delta: int) -> None:
    """REC-127: last offset deltas 0, 15 and -3 with count 3."""
    refused("INVALID_RECORD", last_offset_delta(encode_batch(ROWS, compression=codec), delta))


@pytest.mark.parametrize("value", [0, -1, 2, 4, 2**31 - 1])
def test_a_clients_count_must_be_positive_and_the_range(value: int) -> None:
    """REC-127: the count itself."""
    refused("INVALID_RECORD", count(encode_batch(ROWS), value))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("delta", "declared"), [(5, 6), (1, 2)])
def test_a_count_that_is_not_the_number_of_records_is_refused(codec: str, delta: int, declared: int) -> None:
    """REC-128: count and offset range agree (delta 5 count 6, delta 1 count 2), the three records do not."""
    batch = count(last_offset_delta(encode_batch(ROWS, compression=codec), delta), declared)
    refused("INVALID_RECORD", batch)


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", TARGETS)
def test_a_clients_empty_batch_is_refused(source: int, target: str) -> None:
    """REC-129: a header only, for every pair of source and target codecs."""
    empty = encode_empty_batch(0, 0)
    refused("INVALID_RECORD", with_field(empty, 21, ">h", source), compression=target)


def test_control_batches_are_for_coordinators() -> None:
    """REC-130: refused from a client, accepted from the coordinator and from the raft leader."""
    marker = encode_transaction_marker(7, 1, commit=True, coordinator_epoch=3, timestamp=NOW)
    refused("INVALID_RECORD", marker)
    for origin in ("coordinator", "raft_leader"):
        made = accepted(marker, origin=origin)
        assert only_batch(made.data).is_control
        assert only_batch(made.data).control_records()[0].type == "COMMIT"


def test_a_producers_sequence_must_not_be_negative() -> None:
    """REC-131: a producer id with base sequence -2."""
    batch = encode_batch(ROWS, producer_id=9, producer_epoch=0, base_sequence=4)
    assert accepted(batch).record_count == 3
    error = refused("INVALID_RECORD", with_field(batch, 53, ">i", -2))
    assert "sequence" in str(error)
    assert accepted(with_field(batch, 53, ">i", -2), origin="coordinator").record_count == 3


def test_an_uncompressed_control_batch_stays_uncompressed() -> None:
    """REC-132: with a topic of snappy."""
    marker = encode_transaction_marker(7, 1, commit=False, coordinator_epoch=3, timestamp=NOW)
    made = accepted(marker, origin="coordinator", compression="snappy")
    assert (made.converted, only_batch(made.data).compression) == (False, "none")


def test_a_compressed_control_batch_that_is_rebuilt_stays_a_control_batch() -> None:
    batch = encode_batch([(bytes(4), bytes(6), NOW)], compression="gzip", is_control=True)
    made = accepted(batch, origin="coordinator", compression="zstd")
    assert (made.converted, only_batch(made.data).is_control, only_batch(made.data).compression) == (True, True, "zstd")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_producers_and_transactions_need_magic_2(magic: int, codec: str) -> None:
    """REC-133: transactional or idempotent records with a lower target magic."""
    producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "compression": codec}
    refused("UNSUPPORTED_FOR_MESSAGE_FORMAT", encode_batch(ROWS, **producer), magic=magic)
    refused("UNSUPPORTED_FOR_MESSAGE_FORMAT", encode_batch(ROWS, is_transactional=True, **producer), magic=magic)
    control = encode_batch([(bytes(4), bytes(6), NOW)], is_control=True, compression=codec)
    refused("UNSUPPORTED_FOR_MESSAGE_FORMAT", control, magic=magic, origin="coordinator")
    assert accepted(encode_batch(ROWS, compression=codec), magic=magic).converted


# --- its records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outer", "inner"), [(1, 0), (0, 1)])
def test_records_of_another_magic_than_their_set_are_listed(outer: int, inner: int) -> None:
    """REC-134: all 20 bad records of a compressed set, by index."""
    data = wrapper(b"".join(message(inner, index) for index in range(20)), outer)
    error = refused("INVALID_RECORD", data, magic=outer)
    assert [record.index for record in error.record_errors] == list(range(20))
    assert error.record_errors[3].message == f"magic got {inner}, wanted {outer}, the set's"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_checksum_inside_a_set_is_corruption(magic: int) -> None:
    """REC-135: an inner record of a compressed v0/v1 batch; with a wrong length too, the checksum explains it."""
    good = b"".join(message(magic, index) for index in range(3))
    bad = bytearray(good)
    bad[-1] ^= 1
    error = refused("CORRUPT_MESSAGE", wrapper(bytes(bad), magic))
    assert isinstance(error.__cause__, CorruptBatch)
    assert (error.__cause__.reason, error.__cause__.record_index) == (CorruptionReason.CRC, 2)
    bad = bytearray(good)
    bad[-5] = 99  # the length of the last value
    error = refused("CORRUPT_MESSAGE", wrapper(bytes(bad), magic))
    assert "crc of an inner message" in str(error)


def test_v2_records_have_no_checksum_of_their_own() -> None:
    """REC-135: any attributes byte of a record will do, since only the batch's checksum covers it."""
    batch = bytearray(encode_batch(ROWS))
    batch[62] = 0xFF
    assert accepted(batch_v2.with_crc(bytes(batch))).record_count == 3


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_compacted_topic_wants_keys(magic: int, codec: str) -> None:
    """REC-136: records without key are listed, in compressed batches too."""
    rows = [(b"k", b"v", NOW), (None, b"v", NOW), (b"", b"v", NOW), (None, None, NOW)]
    batch = encode_batch(rows, magic=magic, compression=codec)
    error = refused("INVALID_RECORD", batch, compacted=True)
    # Uncompressed messages of old magic are a batch each, and the first that fails ends it.
    assert [record.index for record in error.record_errors] == ([0] if magic < 2 and codec == "none" else [1, 3])
    assert error.record_errors[0].message == "key got null, wanted one: the topic is compacted"
    assert accepted(batch).record_count == 4


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_record_in_a_compressed_set_is_listed(magic: int) -> None:
    """REC-137: its compression attribute is enough."""
    data = wrapper(message(magic, 0) + message(magic, 1, codec="snappy"), magic)
    error = refused("INVALID_RECORD", data)
    assert [record.index for record in error.record_errors] == [1]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_timestamps_must_lie_in_the_topics_range(magic: int, codec: str) -> None:
    """REC-138: 1001 ms with a limit of 1000 is too old or too new, 1000 is not; -1 is always accepted."""
    limits = {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 1000, "magic": magic}
    rows = [(b"k", b"v", -1), (b"k", b"v", NOW - 1000), (b"k", b"v", NOW + 1000)]
    assert accepted(encode_batch(rows, magic=magic, compression=codec), **limits).max_timestamp == NOW + 1000
    for timestamp in (NOW - 1001, NOW + 1001):
        batch = encode_batch([(b"k", b"v", timestamp)], magic=magic, compression=codec)
        error = refused("INVALID_TIMESTAMP", batch, **limits)
        assert error.record_errors[0] == (
            0,
            f"timestamp got {timestamp}, wanted -1 or {NOW - 1000} to {NOW + 1000}",
        )


def test_the_range_is_an_hour_ahead_and_all_the_past_by_default() -> None:
    """REC-138: message.timestamp.before.max.ms and after.max.ms as a topic has them if nobody sets them."""
    assert accepted(encode_batch([(b"k", b"v", 0), (b"k", b"v", NOW + 3_600_000)])).record_count == 2
    refused("INVALID_TIMESTAMP", encode_batch([(b"k", b"v", NOW + 3_600_001)]))


@pytest.mark.parametrize("codec", CODECS)
def test_an_invalid_timestamp_decides_the_error_and_all_records_are_listed(codec: str) -> None:
    """REC-139: INVALID_TIMESTAMP wins over INVALID_RECORD, and both are in the answer."""
    rows = [(None, b"v", NOW), (b"k", b"v", NOW), (b"k", b"v", 1), (None, b"v", 1)]
    batch = encode_batch(rows, compression=codec)
    error = refused("INVALID_TIMESTAMP", batch, compacted=True, timestamp_before_max_ms=1000)
    assert [record.index for record in error.record_errors] == [0, 2, 3]
    assert [record.message.split()[0] for record in error.record_errors] == ["key", "timestamp", "key"]
    error = refused("INVALID_RECORD", batch, compacted=True)
    assert [record.index for record in error.record_errors] == [0, 3]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_producer_may_not_say_log_append_time(magic: int, codec: str) -> None:
    """REC-140: refused when the topic uses LogAppendTime, or when the record has no timestamp."""
    stamped = {"timestamp_type": "log_append_time", "magic": magic, "compression": codec}
    batch = encode_batch(ROWS, log_append_time_ms=NOW, **stamped)
    error = refused("INVALID_TIMESTAMP", batch, timestamp_type="log_append_time", magic=magic)
    assert error.record_errors[0].message.startswith("timestamp type got log_append_time")
    assert accepted(batch, magic=magic).record_count == 3
    if magic == 2:
        refused("INVALID_TIMESTAMP", with_field(batch, 35, ">q", -1))


# --- what becomes of it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_patched_into_the_header(codec: str) -> None:
    """REC-141: no range check, type bit and max timestamp; base timestamp and deltas stay, and so does the size."""
    batch = encode_batch([(b"k", b"v", 1234), (b"k", b"w", 2345)], compression=codec)
    limits = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 10}
    made = accepted(batch, timestamp_type="log_append_time", **limits)
    after = only_batch(made.data)
    assert (made.converted, len(made.data)) == (False, len(batch))
    assert (after.timestamp_type, after.max_timestamp, after.base_timestamp) == ("log_append_time", NOW, 1234)
    assert [record.timestamp for record in after] == [NOW, NOW]
    assert bytes(made.data)[61:] == batch[61:]
    assert (made.max_timestamp, made.log_append_time_ms) == (NOW, NOW)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "lz4"])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
def test_offsets_are_assigned_in_place_when_codec_magic_and_offsets_allow(
    magic: int, source: str, target: str, to_magic: int
) -> None:
    """REC-142: equal codecs, the target magic, inner offsets 0, 1, 2; otherwise rebuilt."""
    batch = encode_batch(ROWS, magic=magic, compression=source)
    made = accepted(batch, magic=to_magic, compression=target)
    same = magic == to_magic and target == ("uncompressed" if source == "none" else source)
    # A compressed set of magic 0 has absolute offsets inside.
    assert made.converted == (not same or (magic == 0 and source != "none"))
    after = list(decode_batches(made.data))
    assert {batch.magic for batch in after} == {to_magic}
    assert {batch.compression for batch in after} == {"none" if target == "uncompressed" else target}
    records = [record for batch in after for record in batch]
    assert [record.offset for record in records] == [FIRST, FIRST + 1, FIRST + 2]
    assert [(record.key, record.value) for record in records] == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    expected = [-1, -1, -1] if 0 in (magic, to_magic) else [NOW, NOW + 2, NOW + 1]
    assert [record.timestamp for record in records] == expected


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_level_alone_recompresses_nothing(codec: str) -> None:
    """REC-143: only another codec does, with the topic's level."""
    rows = [(b"k", b"%d" % (index % 97), NOW) for index in range(3000)]
    batch = encode_batch(rows, compression=codec, level=1)
    made = accepted(batch, compression=codec, level=7)
    assert (made.converted, bytes(made.data)[61:]) == (False, batch[61:])
    other = encode_batch(rows, compression="snappy")
    for level in (1, 7):
        made = accepted(other, compression=codec, level=level)
        payload = encode_batch(rows, compression=codec, level=level)[61:]
        assert (made.converted, bytes(made.data)[61:]) == (True, payload)


def test_odd_offsets_inside_a_v1_set_are_made_consecutive() -> None:
    """REC-144: a compressed set with inner offsets 0, 5, 9 is rewritten."""
    inner = b"".join(message(1, offset) for offset in (0, 5, 9))
    made = accepted(wrapper(inner, 1, offset=9), magic=1)
    assert made.converted
    assert [record.offset for record in only_batch(made.data)] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("codec", CODECS)
def test_a_v2_batch_whose_offsets_are_all_0_is_refused(codec: str) -> None:
    """REC-144: its count and its range disagree."""
    one = encode_batch(ROWS[:1])[61:]
    head = count(encode_batch(ROWS[:1], compression=codec), 3)[:61]
    plain = one * 3
    batch = head[:8] + struct.pack(">i", 0) + head[12:] + bytes(compress(CODECS.index(codec), plain))
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    refused("INVALID_RECORD", batch_v2.with_crc(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_a_v2_batch_with_odd_offsets_inside_is_renumbered(codec: str) -> None:
    """Count and range agree, and yet the offsets inside are 0, 0, 0: nothing that a log should hold."""
    plain = encode_batch(ROWS[:1])[61:] * 3
    head = last_offset_delta(count(encode_batch(ROWS[:1], compression=codec), 3), 2)[:61]
    batch = head + bytes(compress(CODECS.index(codec), plain))
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    made = accepted(batch_v2.with_crc(batch))
    assert made.converted
    assert [record.offset for record in only_batch(made.data)] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", TARGETS)
def test_offsets_and_leader_epoch_are_those_of_the_log(codec: str, target: str) -> None:
    """REC-145: n records at 1234567 have 1234567 .. 1234567 + n - 1, and the leader epoch is stamped."""
    made = accepted(encode_batch(ROWS, compression=codec), compression=target, leader_epoch=42)
    batch = only_batch(made.data)
    assert [record.offset for record in batch] == [FIRST, FIRST + 1, FIRST + 2]
    assert (made.first_offset, made.last_offset) == (batch.base_offset, batch.last_offset) == (FIRST, FIRST + 2)
    assert batch.leader_epoch == 42


@pytest.mark.parametrize("codec", CODECS)
def test_max_timestamp_is_recomputed_and_the_checksum_only_if_it_changed(codec: str) -> None:
    """REC-146: 1, 3, 2 -> 3, whatever the producer wrote."""
    rows = [(b"k", b"v", 1), (b"k", b"v", 3), (b"k", b"v", 2)]
    good = encode_batch(rows, compression=codec)
    made = accepted(good, leader_epoch=7)
    assert made.max_timestamp == only_batch(made.data).max_timestamp == 3
    assert bytes(made.data)[17:] == good[17:]
    wrong = with_field(good, 35, ">q", 99)
    made = accepted(wrong)
    assert made.max_timestamp == only_batch(made.data).max_timestamp == 3
    assert bytes(made.data)[17:] == good[17:]


def test_the_checksum_is_not_touched_where_it_need_not_be() -> None:
    """REC-146: even a wrong one stays as it is, if it was not to be verified and nothing under it changes."""
    batch = bytearray(encode_batch(ROWS))
    batch[17:21] = b"\x00\x01\x02\x03"
    made = validate_and_assign(batch, first_offset=5, now_ms=NOW, verify_crc=False)
    assert bytes(made.data)[17:21] == b"\x00\x01\x02\x03"
    batch[0:8] = bytes(8)
    made = validate_and_assign(batch, first_offset=5, now_ms=NOW, verify_crc=False, timestamp_type="log_append_time")
    assert only_batch(made.data).max_timestamp == NOW


def test_unknown_attribute_bits_go_when_the_attributes_are_written() -> None:
    batch = with_field(encode_batch(ROWS), 21, ">h", 0x4180)
    assert only_batch(accepted(batch).data).attributes == 0x4180
    assert only_batch(accepted(batch, timestamp_type="log_append_time").data).attributes == 0x08


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_up_conversion_from_v0_has_no_timestamps_and_no_producer(codec: str) -> None:
    """REC-147: -1 with CreateTime, the append time with LogAppendTime."""
    old = encode_batch(ROWS, magic=0, compression=codec)
    for timestamp_type, timestamp in (("create_time", -1), ("log_append_time", NOW)):
        made = accepted(old, timestamp_type=timestamp_type)
        batch = only_batch(made.data)
        assert (batch.magic, batch.timestamp_type, batch.max_timestamp) == (2, timestamp_type, timestamp)
        assert [record.timestamp for record in batch] == [timestamp] * 3
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        assert made.max_timestamp == timestamp


def test_the_result_tells_what_was_done() -> None:
    """REC-148: append time, max timestamp, converted or not, how many, and temporary bytes."""
    plain = accepted(encode_batch(ROWS))
    assert (plain.log_append_time_ms, plain.max_timestamp) == (-1, NOW + 2)
    assert (plain.converted, plain.converted_count, plain.temporary_bytes) == (False, 0, 0)
    size = len(encode_batch(ROWS))
    packed = accepted(encode_batch(ROWS, compression="zstd"), timestamp_type="log_append_time")
    assert (packed.log_append_time_ms, packed.max_timestamp) == (NOW, NOW)
    assert (packed.converted_count, packed.temporary_bytes) == (0, size)
    rebuilt = accepted(encode_batch(ROWS, compression="zstd"), compression="lz4")
    assert (rebuilt.converted_count, rebuilt.temporary_bytes) == (3, 2 * size)
    old = accepted(encode_batch(ROWS, magic=0), magic=0, timestamp_type="log_append_time")
    assert (old.max_timestamp, old.converted) == (-1, False)
    converted = accepted(encode_batch(ROWS, magic=1))
    assert (converted.converted_count, converted.temporary_bytes, converted.max_timestamp) == (3, size, NOW + 2)
    assert repr(converted).startswith(f"AppendBatch({size} bytes, first_offset=1234567, last_offset=1234569, record_co")


def test_a_followers_buffer_is_kept_as_received() -> None:
    """REC-149: offsets, leader epochs and timestamps, of any number of batches, and records are not looked at."""
    data = bytearray(
        encode_batch(ROWS, base_offset=10, leader_epoch=2, timestamp_type="log_append_time", log_append_time_ms=5)
        + encode_batch([(None, b"x", 2**60)], base_offset=90, leader_epoch=3, compression="gzip")
    )
    before = bytes(data)
    options: dict[str, Any] = {"now_ms": NOW, "origin": "replication", "compacted": True, "compression": "lz4"}
    made = validate_and_assign(data, first_offset=0, **options)
    assert made.data is data
    assert data == before
    assert (made.first_offset, made.last_offset, made.record_count, made.converted) == (10, 90, 4, False)
    assert (made.max_timestamp, made.log_append_time_ms) == (2**60, -1)
    assert validate(data, **options).batch_count == 2
    data[-1] ^= 1
    with pytest.raises(KafkaError, match="crc") as caught:
        validate(data, **options)
    assert caught.value.name == "CORRUPT_MESSAGE"


def test_a_followers_offsets_must_not_go_back() -> None:
    """REC-149: the one thing that is looked at across batches."""
    one, two = encode_batch(ROWS, base_offset=10), encode_batch(ROWS, base_offset=12)
    assert validate(one + encode_batch(ROWS, base_offset=11), now_ms=NOW, origin="replication").record_count == 6
    with pytest.raises(KafkaError, match="last offset got 12, wanted more than 14"):
        validate(two + one, now_ms=NOW, origin="replication")


def test_a_follower_does_not_open_compressed_sets() -> None:
    data = encode_batch(ROWS, magic=1, compression="gzip")
    assert validate(data, now_ms=NOW, origin="replication").record_count is None


@pytest.mark.parametrize("codec", CODECS)
def test_compression_type_producer_keeps_the_codec_and_uncompressed_undoes_it(codec: str) -> None:
    """REC-150: compression.type=producer and =uncompressed."""
    batch = encode_batch(ROWS, compression=codec)
    kept = accepted(batch, compression="producer")
    assert (kept.converted, only_batch(kept.data).compression) == (False, codec)
    undone = accepted(batch, compression="uncompressed")
    assert (undone.converted, only_batch(undone.data).compression) == (codec != "none", "none")
    assert list(only_batch(undone.data)) == list(only_batch(kept.data))


# --- the look at batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_flipped_bit_anywhere_behind_the_offset_is_refused(codec: str, magic: int) -> None:
    batch = encode_batch(ROWS[:1], magic=magic, compression="none" if codec == "zstd" and magic < 2 else codec)
    for at in range(8, len(batch)):
        data = bytearray(batch)
        data[at] ^= 0x01
        if 12 <= at < 16 and magic == 2:  # the leader epoch, which the broker writes
            assert validate(data, now_ms=NOW).record_count == 1
            continue
        with pytest.raises(KafkaError) as caught:
            validate(data, now_ms=NOW)
        # Another size may also make a partial batch of it.
        names = ("CORRUPT_MESSAGE",) if at >= 12 else ("CORRUPT_MESSAGE", "INVALID_RECORD")
        assert caught.value.name in names


def test_a_wrong_checksum_is_told_before_anything_else_of_the_batch() -> None:
    batch = encode_batch(ROWS)
    for damage in (count(batch, 7), batch[:-1] + b"\x05", last_offset_delta(batch, 9)):
        broken = damage[:17] + b"\x00\x00\x00\x00" + damage[21:]
        assert refused("CORRUPT_MESSAGE", broken).__cause__.reason is CorruptionReason.CRC  # type: ignore[union-attr]


def test_damage_in_a_record_is_told_with_its_place() -> None:
    data = bytearray(encode_batch(ROWS))
    data[-3] = 0x7E  # the length of the last value
    error = refused("INVALID_RECORD", batch_v2.with_crc(bytes(data)))
    cause = error.__cause__
    assert isinstance(cause, CorruptBatch)
    assert (cause.reason, cause.record_index, cause.position) == (CorruptionReason.VALUE_LENGTH, 2, 0)
    assert str(error) == str(cause)
    assert error.record_errors == ()


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_record_length_is_seen_in_compressed_batches_that_stay(codec: str) -> None:
    """Kafka skims these, and would append them."""
    plain = bytearray(encode_batch(ROWS)[61:])
    plain[0] += 2
    head = encode_batch(ROWS, compression=codec)[:61]
    batch = head + bytes(compress(CODECS.index(codec), bytes(plain)))
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    refused("INVALID_RECORD", batch_v2.with_crc(batch))


def test_an_unknown_codec_is_refused() -> None:
    assert "unknown-5" in str(refused("INVALID_RECORD", with_field(encode_batch(ROWS), 21, ">h", 5)))


def test_zstd_does_not_fit_below_magic_2() -> None:
    refused("UNSUPPORTED_COMPRESSION_TYPE", encode_batch(ROWS, compression="zstd"), magic=1)


def test_a_batch_over_the_limit_is_too_large_before_and_after_conversion() -> None:
    batch = encode_batch([(b"k", bytes(1000), NOW)], compression="gzip")
    assert accepted(batch, batch_bytes_max=len(batch)).record_count == 1
    error = refused("MESSAGE_TOO_LARGE", batch, batch_bytes_max=len(batch) - 1)
    assert str(error) == f"batch at position 0: size got {len(batch)}, wanted at most {len(batch) - 1}"
    with pytest.raises(KafkaError, match="after conversion: size got 10") as caught:
        validate_and_assign(batch, first_offset=0, now_ms=NOW, compression="uncompressed", batch_bytes_max=len(batch))
    assert caught.value.name == "MESSAGE_TOO_LARGE"


def test_a_batch_may_not_decompress_beyond_the_cap() -> None:
    batch = encode_batch([(b"k", bytes(100_000), NOW)], compression="zstd")
    assert accepted(batch, max_decompressed_bytes=200_000).record_count == 1
    assert "decompressed size" in str(refused("CORRUPT_MESSAGE", batch, max_decompressed_bytes=50_000))


def test_a_clients_base_offset_is_0_unless_told_otherwise() -> None:
    batch = encode_batch(ROWS, base_offset=3)
    assert "base offset got 3" in str(refused("INVALID_RECORD", batch))
    assert accepted(batch, check_base_offset=False).converted is False
    assert accepted(batch, origin="coordinator").converted is False


def test_a_raft_leaders_batches_have_its_epoch() -> None:
    batch = encode_batch(ROWS, leader_epoch=4)
    assert accepted(batch, origin="raft_leader", leader_epoch=4).record_count == 3
    refused("INVALID_RECORD", batch, origin="raft_leader", leader_epoch=5)


# --- buffers -------------------------------------------------------------------------------------------------------


def test_a_writable_buffer_is_patched_in_place_and_a_read_only_one_copied() -> None:
    batch = encode_batch(ROWS)
    writable = bytearray(batch)
    made = validate_and_assign(writable, first_offset=FIRST, now_ms=NOW)
    assert made.data is writable
    copied = validate_and_assign(batch, first_offset=FIRST, now_ms=NOW)
    assert type(copied.data) is bytes
    assert copied.data == writable != batch
    view = memoryview(bytearray(batch)).toreadonly()
    assert type(validate_and_assign(view, first_offset=FIRST, now_ms=NOW).data) is bytes
    assert bytes(view) == batch


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    batch = encode_batch(ROWS)
    looked = validate(batch + batch[:40], now_ms=NOW)
    assert (looked.batch_count, looked.consumed) == (1, len(batch))
    writable = bytearray(batch + batch[:40])
    made = validate_and_assign(writable, first_offset=1, now_ms=NOW)
    assert isinstance(made.data, memoryview)
    assert made.data.obj is writable
    assert bytes(made.data) == bytes(writable[: len(batch)])
    assert writable[len(batch) :] == batch[:40]
    assert len(
        bytes(validate_and_assign(bytes(writable), first_offset=1, now_ms=NOW, check_base_offset=False).data)
    ) == len(batch)


def test_records_with_headers_survive_a_rebuild() -> None:
    records = [
        Record(0, NOW, b"k", None, (("a", b"1"), ("b", None), ("", b""))),
        Record(1, NOW - 5, None, b"", ()),
        Record(2, -1, b"", b"v" * 300, (("\udcff", b"x" * 200),)),
    ]
    batch = encode_batch(records, producer_id=5, producer_epoch=1, base_sequence=9, is_transactional=True)
    made = accepted(batch, compression="zstd", leader_epoch=8)
    after = only_batch(made.data)
    assert [record._astuple()[1:] for record in after] == [record._astuple()[1:] for record in records]  # type: ignore[attr-defined]
    assert (after.producer_id, after.producer_epoch, after.base_sequence, after.is_transactional) == (5, 1, 9, True)
    refused("INVALID_RECORD", encode_batch(records), magic=1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"now_ms": None}, UsageTypeError, "now_ms: got None"),
        ({"now_ms": "5"}, UsageTypeError, "now_ms: got str, wanted an int"),
        ({"now_ms": -1}, UsageError, "now_ms: got -1"),
        ({"timestamp_type": "CreateTime"}, UsageError, "timestamp_type: got 'CreateTime'"),
        ({"timestamp_before_max_ms": -1}, UsageError, "timestamp_before_max_ms"),
        ({"timestamp_after_max_ms": 2**63}, UsageError, "timestamp_after_max_ms"),
        ({"compression": "none"}, UsageError, "compression: got 'none', wanted producer, uncompressed, gzip"),
        ({"compression": "gzip", "level": 99}, UsageError, "compression level, gzip: got 99"),
        ({"level": 3}, UsageError, "level: got 3"),
        ({"compression": "zstd", "magic": 1}, UsageError, "compression, magic 1: got zstd"),
        ({"origin": "leader"}, UsageError, "origin: got 'leader', wanted client, coordinator"),
        ({"origin": []}, UsageError, "origin"),
        ({"magic": 3}, UsageError, "magic: got 3"),
        ({"leader_epoch": -2}, UsageError, "leader_epoch: got -2"),
        ({"batch_bytes_max": 0}, UsageError, "batch_bytes_max: got 0"),
        ({"max_decompressed_bytes": 0}, UsageError, "max_decompressed_bytes"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], error: type[Exception], words: str) -> None:
    for run in (
        lambda: validate(encode_batch(ROWS), **{"now_ms": NOW, **options}),
        lambda: validate_and_assign(encode_batch(ROWS), first_offset=0, **{"now_ms": NOW, **options}),
    ):
        with pytest.raises(error, match=re.escape(words)):
            run()


def test_offsets_end_at_two_to_the_63() -> None:
    top = 2**63 - 1
    batch = encode_batch(ROWS)
    assert validate_and_assign(batch, first_offset=top - 3, now_ms=NOW).last_offset == top - 1
    for wrong in (top - 2, top + 1, -1, None):
        with pytest.raises(UsageError, match="first_offset"):
            validate_and_assign(batch, first_offset=wrong, now_ms=NOW)  # type: ignore[arg-type]


def test_results_are_made_by_the_validator_only() -> None:
    with pytest.raises(UsageTypeError, match="validate"):
        ValidationResult()
    with pytest.raises(UsageTypeError, match="validate_and_assign"):
        AppendBatch()


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(UsageTypeError, match="buffer: got str"):
        validate("text", now_ms=NOW)  # type: ignore[arg-type]
