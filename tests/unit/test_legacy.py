"""Magic 0 and 1: messages, compressed wrappers, relative offsets, and wrappers that lie."""

from __future__ import annotations

import struct
import zlib

import pytest

from logcore import (
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    decode_batches,
    encode_batch,
    patch_batch,
    scan_batches,
)
from logcore.errors import CorruptMessageError, InvalidRecordError
from tests.helpers import only_batch, ref_records, refusal, replaced, rows, same_in_every_reader
from tests.reference import compression, legacy

CODECS = ("none", "gzip", "snappy", "lz4")
THREE = [Record(0, 1, b"a", b"1"), Record(1, 2, b"b", b"2"), Record(2, 3, b"c", b"3")]


def timed(records: list[Record], magic: int) -> list[Record]:
    """What a reader of `magic` sees of them: magic 0 has no timestamps."""
    return [Record(offset, -1 if magic == 0 else time, key, value) for offset, time, key, value, _ in records]


def wrapper(inner: bytes, *, magic: int, offset: int, codec: str = "gzip", timestamp: int = 0) -> bytes:
    """A compressed message around any bytes, with a right checksum."""
    packed = compression.compress(codec, inner, magic)
    return legacy.encode_message(offset, None, packed, magic=magic, timestamp=timestamp, compression_name=codec)


def messages(*offsets: int, magic: int) -> bytes:
    return b"".join(
        legacy.encode_message(offset, b"k", b"v%d" % at, magic=magic, timestamp=at) for at, offset in enumerate(offsets)
    )


# ---------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(("magic", "overhead"), [(0, 14), (1, 22)])
def test_a_message_is_its_fields_behind_offset_and_size(magic: int, overhead: int) -> None:
    """REC-041: crc, magic, attributes, in magic 1 the timestamp, key and value; 14 or 22 bytes beside those two."""
    data = encode_batch([Record(7, 1234, b"key", b"value")], magic=magic)
    rest = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1234) if magic else b"")
    rest += struct.pack(">i", 3) + b"key" + struct.pack(">i", 5) + b"value"
    assert data == struct.pack(">qiI", 7, len(rest) + 4, zlib.crc32(rest)) + rest
    assert len(data) == 12 + overhead + 3 + 5
    assert len(encode_batch([(None, None)], magic=magic)) == 12 + overhead


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_and_their_type_depend_on_the_magic(codec: str) -> None:
    """REC-042: -1 and none in magic 0; in magic 1 its own and the type of bit 3."""
    (first, *_) = decode_batches(encode_batch(THREE, magic=0, compression=codec))
    assert (first.timestamp_type, first.max_timestamp) == ("none", -1)
    assert same_in_every_reader(encode_batch(THREE, magic=0, compression=codec)) == timed(THREE, 0)
    for batch in decode_batches(encode_batch(THREE, magic=1, compression=codec)):
        assert (batch.timestamp_type, batch.attributes & 8) == ("create_time", 0)
    assert same_in_every_reader(encode_batch(THREE, magic=1, compression=codec)) == THREE
    stamped = encode_batch(THREE, magic=1, compression=codec, timestamp_type="log_append_time", log_append_time_ms=99)
    for batch in decode_batches(stamped):
        assert (batch.timestamp_type, batch.attributes & 8, batch.max_timestamp) == ("log_append_time", 8, 99)
    assert [record.timestamp for record in same_in_every_reader(stamped)] == [99, 99, 99]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_checksum_is_crc_32_over_everything_behind_it(magic: int, codec: str) -> None:
    """REC-043: any byte changed there makes the message corrupt; offset and size lie before it."""
    data = encode_batch([(b"key", b"value", 1)], magic=magic, compression=codec)
    assert only_batch(data).crc == zlib.crc32(data[16:])
    for at in range(17, len(data)):
        error = refusal(replaced(data, at, bytes([data[at] ^ 0x10])))
        assert (error.reason, error.at, error.kafka_error) == (CorruptionReason.CRC, 12, CorruptMessageError)
    for at in range(8):
        assert scan_batches(replaced(data, at, bytes([data[at] ^ 0x10]))).error is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_empty_keys_and_values_are_not_null(magic: int, codec: str) -> None:
    """REC-044: both ways, in magic 0 and 1."""
    pairs = [(b"", b""), (None, b""), (b"", None), (None, None), (b"k", b"v")]
    data = encode_batch(pairs, magic=magic, compression=codec)
    assert [(record.key, record.value) for record in same_in_every_reader(data)] == pairs


@pytest.mark.parametrize("size", [0, 2, 4, 13, -1])
def test_a_message_too_small_for_its_fields_is_refused_and_not_read_past_its_end(size: int) -> None:
    """REC-045: 2 bytes, or 4 that hold only a checksum."""
    body = zlib.crc32(b"").to_bytes(4, "big")[: max(size, 0)].ljust(max(size, 0), b"\0")
    error = refusal(struct.pack(">qi", 0, size) + body)
    assert (error.reason, error.got, error.wanted) == (CorruptionReason.BATCH_SIZE, str(size), "at least 14")
    assert error.kafka_error is CorruptMessageError


@pytest.mark.parametrize("size", range(14, 22))
def test_a_magic_1_message_without_room_for_its_fields_is_refused(size: int) -> None:
    body = struct.pack(">bbqii", 1, 0, 5, -1, -1)[: size - 4]
    error = refusal(struct.pack(">qiI", 0, size, zlib.crc32(body)) + body, same_code=False)
    assert (error.reason, error.got, error.wanted) == (CorruptionReason.BATCH_SIZE, str(size), "at least 22")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [2, 100, 2**31 - 1])
def test_a_length_beyond_the_message_is_refused(magic: int, length: int) -> None:
    start = 18 + 8 * magic
    data = legacy.encode_message(0, b"k", b"v", magic=magic)
    for at, reason in ((start, CorruptionReason.KEY_LENGTH), (start + 5, CorruptionReason.VALUE_LENGTH)):
        if length == 2 and reason is CorruptionReason.KEY_LENGTH:
            continue  # the key would take a byte of the value's length, and that is what is refused then
        error = refusal(legacy.with_crc(replaced(data, at, struct.pack(">i", length))))
        assert (error.reason, error.got, error.at) == (reason, str(length), at)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_legacy_batch_has_no_producer_no_epoch_and_no_kind(magic: int) -> None:
    """REC-057: all -1, not transactional, not control, no delete horizon, whatever its attributes say."""
    data = legacy.with_crc(replaced(legacy.encode_message(3, b"k", b"v", magic=magic), 17, b"\x70"))
    batch = only_batch(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (-1, -1, -1, -1)
    assert (batch.leader_epoch, batch.is_transactional, batch.is_control) == (-1, False, False)
    assert (batch.delete_horizon_ms, batch.count) == (None, None)


# ---------------------------------------------------------------------------------------------------------- wrappers


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrapper_without_a_value_is_refused_when_iterated(codec: str) -> None:
    """REC-046: its header can be read, its records cannot."""
    for magic in (0, 1):
        data = legacy.encode_message(0, None, None, magic=magic, compression_name=codec)
        error = refusal(data)
        assert (error.reason, error.kafka_error) == (CorruptionReason.WRAPPER_VALUE, InvalidRecordError)
        assert only_batch(data).compression == codec


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("inner", [b"", b"\0" * 11, messages(0, magic=1)[:-1]])
def test_a_wrapper_around_no_message_is_refused_when_iterated(codec: str, inner: bytes) -> None:
    """REC-047: nothing, or less than one whole message."""
    for magic in (0, 1):
        error = refusal(wrapper(inner, magic=magic, offset=0, codec=codec))
        assert (error.reason, error.kafka_error) == (CorruptionReason.WRAPPER_EMPTY, InvalidRecordError)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrapper_of_magic_1_carries_its_last_offset_and_the_inner_ones_are_relative(codec: str) -> None:
    """REC-048: 500 on three records gives 498 to 500."""
    data = bytearray(encode_batch(THREE, magic=1, compression=codec))
    patch_batch(data, last_offset=500)
    batch = only_batch(data)
    assert (batch.base_offset, batch.last_offset) == (498, 500)
    assert [record.offset for record in same_in_every_reader(data)] == [498, 499, 500]


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_with_offset_0_leaves_the_inner_offsets_as_they_are(magic: int, codec: str) -> None:
    """REC-049: so old producers wrote: 0, 1, 2 under 0."""
    data = wrapper(messages(0, 1, 2, magic=magic), magic=magic, offset=0, codec=codec)
    assert [record.offset for record in same_in_every_reader(data)] == [0, 1, 2]


def test_a_wrapper_offset_below_its_last_inner_offset_is_refused() -> None:
    """REC-050: 1 over 0..2 would make the base negative."""
    error = refusal(wrapper(messages(0, 1, 2, magic=1), magic=1, offset=1))
    assert (error.reason, error.kafka_error) == (CorruptionReason.INNER_OFFSET, InvalidRecordError)
    assert (error.got, error.wanted) == ("1", "0, or at least 2, its last inner offset")


@pytest.mark.parametrize("inner_magic", [0, 1])
def test_the_wrapper_decides_whether_inner_offsets_are_relative(inner_magic: int) -> None:
    """REC-051: absolute under magic 0, relative under magic 1, whatever the messages inside are."""
    for magic, offsets in ((0, [5, 7, 9]), (1, [105, 107, 109])):
        data = wrapper(messages(5, 7, 9, magic=inner_magic), magic=magic, offset=109)
        assert [record.offset for record in same_in_every_reader(data)] == offsets
    assert [record.offset for record in rows(encode_batch(
        [Record(40), Record(45)], magic=1, compression="gzip"))] == [40, 45]  # fmt: skip
    assert [record.offset for record in rows(encode_batch(
        [Record(40), Record(45)], magic=0, compression="gzip"))] == [40, 45]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_offset_and_count_of_a_legacy_batch(magic: int, codec: str) -> None:
    """REC-056: an uncompressed one is its own base offset; a compressed one must be opened; the count is unknown."""
    data = encode_batch([Record(40, 0, b"k", b"v"), Record(45, 0, b"k", b"v")], magic=magic, compression=codec)
    batches = list(decode_batches(data))
    assert [batch.count for batch in batches] == [None] * len(batches)
    if codec == "none":
        assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(40, 40), (45, 45)]
        return
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(40, 45)]
    # An opened wrapper is refused where a header alone is not.
    broken = only_batch(legacy.encode_message(45, None, b"\x00no stream", magic=magic, compression_name=codec))
    assert broken.last_offset == 45
    with pytest.raises(CorruptBatch, match=codec):
        _ = broken.base_offset


def test_a_compressed_message_inside_a_compressed_message_is_refused() -> None:
    inner = wrapper(messages(0, 1, magic=1), magic=1, offset=1)
    error = refusal(wrapper(inner, magic=1, offset=1))
    assert (error.reason, error.kafka_error) == (CorruptionReason.NESTED_COMPRESSION, InvalidRecordError)


# ------------------------------------------------------------------------------------------------------------ patches


def test_what_old_formats_have_no_field_for_cannot_be_set() -> None:
    """REC-052: type none on v1, any timestamp on v0, a leader epoch on both; nothing is changed by the attempt."""
    for codec in CODECS:
        for magic, options, match in (
            (1, {"timestamp_type": "none"}, "timestamp_type: got 'none'"),
            (0, {"timestamp_type": "create_time"}, "timestamp to patch: got a batch of magic 0, wanted magic 1 or 2"),
            (0, {"timestamp_type": "log_append_time", "max_timestamp": 5}, "timestamp to patch"),
            (0, {"max_timestamp": 5}, "timestamp to patch"),
            (0, {"leader_epoch": 5}, "leader_epoch: got a batch of magic 0, wanted magic 2"),
            (1, {"leader_epoch": 5}, "leader_epoch: got a batch of magic 1, wanted magic 2"),
        ):
            before = encode_batch(THREE, magic=magic, compression=codec)
            data = bytearray(before)
            with pytest.raises(UsageError, match=match):
                patch_batch(data, **options)
            assert data == before


@pytest.mark.parametrize("codec", CODECS[1:])
def test_log_append_time_on_a_wrapper_is_every_inner_records_time(codec: str) -> None:
    """REC-053: 15, and the wrapper's checksum is computed anew."""
    data = bytearray(encode_batch(THREE, magic=1, compression=codec))
    assert patch_batch(data, timestamp_type="log_append_time", max_timestamp=15) is True
    batch = only_batch(data)
    assert (batch.timestamp_type, batch.max_timestamp, batch.crc) == ("log_append_time", 15, zlib.crc32(data[16:]))
    assert [record.timestamp for record in same_in_every_reader(data)] == [15, 15, 15]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_create_time_on_a_wrapper_leaves_the_inner_times_alone(codec: str) -> None:
    """REC-054: only the wrapper's max timestamp becomes 15; inside stay 1, 2, 3."""
    data = bytearray(encode_batch(THREE, magic=1, compression=codec))
    assert patch_batch(data, timestamp_type="create_time", max_timestamp=15) is True
    batch = only_batch(data)
    assert (batch.timestamp_type, batch.max_timestamp) == ("create_time", 15)
    assert same_in_every_reader(data) == THREE


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_neither_written_nor_read_in_old_formats(magic: int) -> None:
    """REC-055: refused as a wrong argument, and as INVALID_RECORD."""
    with pytest.raises(UsageError, match=f"compression zstd, magic {magic}: got a value, wanted magic 2"):
        encode_batch(THREE, magic=magic, compression="zstd")
    packed = compression.compress("zstd", messages(0, magic=magic), 2)
    error = refusal(legacy.encode_message(0, None, packed, magic=magic, compression_name="zstd"))
    assert (error.reason, error.kafka_error) == (CorruptionReason.UNKNOWN_CODEC, InvalidRecordError)
    assert f"zstd in magic {magic}" in str(error)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_written_is_what_the_reference_writes(magic: int, codec: str) -> None:
    records = [Record(40, 9, b"a", b"1"), Record(41, 7, None, b""), Record(45, 8, b"", None)]
    theirs = legacy.encode_set(ref_records(records), magic=magic, compression_name=codec)
    ours = encode_batch(records, magic=magic, compression=codec)
    if codec == "none":
        assert ours == theirs
    assert same_in_every_reader(ours) == same_in_every_reader(theirs) == timed(records, magic)
