"""Magic 2 as records: every field of a record, and every way in which one can lie."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest

from logcore import (
    CorruptBatch,
    CorruptionReason,
    Record,
    decode_columns,
    encode_batch,
    increment_sequence,
    patch_batch,
)
from logcore.errors import InvalidRecordError
from tests.helpers import CODECS, only_batch, refusal, same_in_every_reader, sized, v2_batch, with_length
from tests.reference import varint

write = varint.write
HEADERS = [("a", b"1"), ("b", None), ("a", b""), ("", b"x" * 70), ("é", b"\xff")]


def body(
    *,
    attributes: bytes = b"\x00",
    timestamp_delta: bytes = b"\x00",
    offset_delta: bytes = b"\x00",
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    header_count: int = 0,
    headers: bytes = b"",
) -> bytes:
    """What follows a record's length."""
    return attributes + timestamp_delta + offset_delta + sized(key) + sized(value) + write(header_count) + headers


def refused_in_every_codec(payload: bytes, count: int = 1) -> CorruptBatch:
    """The same refusal whether the records lie in the buffer or come out of a stream."""
    plain = refusal(v2_batch(payload, count))
    assert plain.kafka_error is InvalidRecordError
    assert plain.record_index is not None or plain.reason is CorruptionReason.RECORD_COUNT
    for codec in CODECS[1:]:
        error = refusal(v2_batch(payload, count, codec=codec))
        assert (error.reason, error.what, error.got, error.record_index) == (
            plain.reason, plain.what, plain.got, plain.record_index,
        )  # fmt: skip
    return plain


def refused(payload: bytes, reason: CorruptionReason, *, got: object = None, at: int | None = None) -> None:
    """`at` counts from the record's first byte; positions in errors count from the batch's."""
    error = refused_in_every_codec(payload)
    assert error.reason is reason
    if got is not None:
        assert error.got == str(got)
    if at is not None:
        assert error.at == 61 + at


# ---------------------------------------------------------------------------------------------------- what is there


def test_a_record_is_its_fields_in_kafkas_order() -> None:
    """REC-028: length, attributes, timestamp delta, offset delta, key, value, headers, all varints zig-zag."""
    records = [Record(0, 1000, b"key", b"value"), Record(300, 999, None, None, [("name", b"x"), ("none", None)])]
    batch = encode_batch(records)
    first = b"\x00" + write(0) + write(0) + write(3) + b"key" + write(5) + b"value" + write(0)
    second = b"\x00" + write(-1) + write(300) + write(-1) + write(-1) + write(2)
    second += write(4) + b"name" + write(1) + b"x" + write(4) + b"none" + write(-1)
    assert batch[61:] == with_length(first) + with_length(second)
    assert same_in_every_reader(batch) == records


def test_varints_are_zig_zag_at_every_width() -> None:
    """REC-028: timestamp deltas reach over 64 bits, offset deltas over 31, lengths over as many as there are bytes."""
    times = sorted({(1 << power) + near for power in range(63) for near in (-1, 0, 1)})
    batch = encode_batch([(None, None, time) for time in times])
    assert [record.timestamp for record in same_in_every_reader(batch)] == times
    offsets = sorted({(1 << power) + near for power in range(31) for near in (-1, 0, 1)})
    batch = encode_batch([Record(offset) for offset in offsets], base_offset=0)
    assert [record.offset for record in same_in_every_reader(batch)] == offsets
    for size in (63, 64, 65, 8191, 8192, 8193, 1 << 20, (1 << 20) + 1):
        batch = encode_batch([(b"k" * size, b"v" * size, 0, [("n" * size, b"w" * size)])])
        (record,) = same_in_every_reader(batch)
        assert (record.key, record.value, record.headers) == (b"k" * size, b"v" * size, (("n" * size, b"w" * size),))


def test_duplicated_header_names_keep_their_order_and_null_values_stay_null() -> None:
    """REC-029: names are UTF-8 and never null, values may be null, and an empty one is not null."""
    (record,) = same_in_every_reader(encode_batch([(b"k", b"v", 0, HEADERS)]))
    assert record.headers == tuple(HEADERS)


def test_header_names_that_are_no_utf_8_survive_a_round_trip_in_rows_and_are_replaced_in_columns() -> None:
    raw = v2_batch(with_length(body(header_count=1, headers=sized(b"\xffa\xfe") + sized(b"w"))), 1)
    (record,) = only_batch(raw)
    assert record.headers == (("\udcffa\udcfe", b"w"),)
    assert encode_batch([record])[61:] == raw[61:]
    assert decode_columns(raw).headers[0] == (("�a�", b"w"),)


@pytest.mark.parametrize("attributes", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_the_attributes_of_a_record_are_one_plain_byte(attributes: int) -> None:
    """REC-030: not a varint, so a high bit takes no further byte with it; it has no meaning yet."""
    payload = with_length(body(attributes=bytes([attributes]), timestamp_delta=write(5), offset_delta=write(3)))
    assert same_in_every_reader(v2_batch(payload, 1)) == [Record(3, 5, b"k", b"v")]
    assert encode_batch([(b"k", b"v")])[62] == 0


def test_any_negative_length_of_a_key_or_value_is_null() -> None:
    """REC-036: -1 is what is written, -2 and the least int read the same; a header's name must not be negative."""
    for length in (-1, -2, -64, -(2**31)):
        null = write(length)
        record = b"\x00" * 3 + null + null + write(1) + sized(b"h") + null
        assert same_in_every_reader(v2_batch(with_length(record), 1)) == [Record(0, 0, None, None, [("h", None)])]
        refused(with_length(body(header_count=1, headers=null + sized(b"w"))), CorruptionReason.HEADER_KEY, got=length)


@pytest.mark.parametrize("codec", CODECS)
def test_the_sequence_of_a_record_is_the_base_sequence_plus_its_offset_delta(codec: str) -> None:
    """REC-039: with wrap-around; without a base sequence the whole batch has -1."""
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 2**31 - 3}
    batch = only_batch(encode_batch([Record(10), Record(12), Record(15)], compression=codec, **producer))
    sequences = [increment_sequence(batch.base_sequence, record.offset - batch.base_offset) for record in batch]
    assert sequences == [2**31 - 3, 2**31 - 1, 2]
    assert batch.last_sequence == sequences[-1]
    assert only_batch(encode_batch([Record(10), Record(12)], compression=codec)).last_sequence == -1


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_hides_a_records_own_delta(codec: str) -> None:
    """REC-040: every record has the batch's max timestamp; the deltas are still there for who asks."""
    records = [Record(0, 50), Record(1, 40), Record(2, 60)]
    batch = encode_batch(records, compression=codec, timestamp_type="log_append_time", log_append_time_ms=900)
    assert [record.timestamp for record in same_in_every_reader(batch)] == [900, 900, 900]
    assert list(only_batch(batch).records(stored_timestamps=True)) == records
    back = bytearray(batch)
    patch_batch(back, timestamp_type="create_time", max_timestamp=60)
    assert same_in_every_reader(back) == records


# ------------------------------------------------------------------------------------------------------ what lies


def test_a_header_count_above_the_headers_there_is_refused() -> None:
    """REC-031: from a buffer and from a stream alike."""
    headers = sized(b"hkey") + sized(b"hval")
    error = refused_in_every_codec(with_length(body(header_count=2, headers=headers)))
    assert error.reason in (CorruptionReason.VARINT, CorruptionReason.HEADER_KEY, CorruptionReason.HEADER_COUNT)


def test_a_header_count_below_the_headers_there_is_refused() -> None:
    """REC-032: bytes of the record are left over."""
    headers = sized(b"hkey") + sized(b"hval")
    refused(with_length(body(header_count=1, headers=headers * 2)), CorruptionReason.TRAILING_BYTES, got=10)
    refused(with_length(body(header_count=0, headers=headers)), CorruptionReason.TRAILING_BYTES, got=10)


@pytest.mark.parametrize("count", [-1, -(2**31), 1, 11, 2**31 - 1])
def test_a_header_count_that_is_negative_or_above_the_bytes_left_takes_no_memory(count: int) -> None:
    """REC-033: it is refused before anything is allocated for it."""
    payload = with_length(body(header_count=count, headers=b"" if count == 1 else b"\x00" * 10))
    batch = v2_batch(payload, 1)
    refused(payload, CorruptionReason.HEADER_COUNT, got=count, at=8)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            list(only_batch(batch))
        with pytest.raises(CorruptBatch):
            decode_columns(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("size", [-1, -2, -(2**31)])
def test_a_header_without_a_name_is_refused(size: int) -> None:
    """REC-034: a negative size of a header's name."""
    headers = write(size) + sized(b"w" * 20)
    refused(with_length(body(header_count=1, headers=headers)), CorruptionReason.HEADER_KEY, got=size, at=9)


@pytest.mark.parametrize("size", [105, 100, 2**31 - 1])
@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("key", CorruptionReason.KEY_LENGTH),
        ("value", CorruptionReason.VALUE_LENGTH),
        ("header name", CorruptionReason.HEADER_KEY),
        ("header value", CorruptionReason.HEADER_VALUE),
    ],
)
@pytest.mark.parametrize("followed", [False, True])
def test_a_size_larger_than_the_body_is_refused(
    field: str, reason: CorruptionReason, size: int, followed: bool
) -> None:
    """REC-035: 105 in a body of 100; by readers that skip keys and values too, and with other records behind it."""
    fields = {
        "key": write(size),
        "value": sized(b"k") + write(size),
        "header name": sized(b"k") + sized(b"v") + write(1) + write(size),
        "header value": sized(b"k") + sized(b"v") + write(1) + sized(b"h") + write(size),
    }
    record = with_length((b"\x00" * 3 + fields[field]).ljust(100, b"\x00"))
    at = record.index(write(size), 3)
    error = refused_in_every_codec(record + with_length(body()) * 200 * followed, 1 + 200 * followed)
    assert (error.reason, error.got, error.at, error.record_index) == (reason, str(size), 61 + at, 0)


def test_a_length_that_differs_from_the_body_is_refused() -> None:
    """REC-037: too short, too long, beyond the bytes left, or too small for any record."""
    whole = body(key=b"key", value=b"value" * 20)
    for length in (*range(-3, len(whole)), len(whole) + 1, len(whole) + 1000, 2**31 - 1):
        error = refused_in_every_codec(write(length) + whole)
        assert error.record_index == 0
        assert error.reason is not CorruptionReason.RECORD_COUNT
    for cut in range(1, len(whole)):
        # What is too short for any record is told from the count, before the first record is looked at.
        error = refused_in_every_codec(with_length(whole)[:-cut])
        assert (error.reason, error.record_index) in (
            (CorruptionReason.RECORD_TRUNCATED, 0),
            (CorruptionReason.RECORD_COUNT, None),
        )


def test_the_index_and_place_of_a_bad_record_are_told() -> None:
    good = with_length(body())
    payload = good * 17 + with_length(b"\x00" * 3 + write(99_999) + b"k" * 100)
    error = refused_in_every_codec(payload, 18)
    assert (error.record_index, error.at, error.what) == (17, 61 + 17 * len(good) + 5, "key length")
    assert str(error) == (
        f"batch at position 0, offset 0, record 17 at byte {61 + 17 * len(good) + 5}: "
        "key length got 99999, wanted at most the 100 bytes left"
    )


@pytest.mark.parametrize("padding", [0, 64])
@pytest.mark.parametrize("field", ["length", "timestamp delta", "offset delta", "key", "value", "header count", "name"])
def test_an_overlong_varint_is_an_invalid_record(field: str, padding: int) -> None:
    """REC-038: more than 5 bytes, or 10 for the timestamp delta, whatever the field, close to the end or not."""
    endless = b"\xff" * (10 if field == "timestamp delta" else 5) + b"\x00"
    before = {
        "timestamp delta": b"\x00",
        "offset delta": b"\x00" * 2,
        "key": b"\x00" * 3,
        "value": b"\x00" * 3 + sized(b"k"),
        "header count": b"\x00" * 3 + sized(b"k") + sized(b"v"),
        "name": b"\x00" * 3 + sized(b"k") + sized(b"v") + write(1),
    }
    if field == "length":
        payload = endless + b"\x00" * (10 + padding)
        at = 0
    else:
        payload = with_length(before[field] + endless + b"\x00" * padding)
        at = payload.index(endless)
    if field == "name" and not padding:
        payload = with_length(before[field] + endless + b"\x00" * 3)
    refused(payload, CorruptionReason.VARINT, at=at)


def test_bits_beyond_a_varints_width_are_dropped_as_kafka_drops_them() -> None:
    wide = b"\x84\x80\x80\x80\x70"
    assert same_in_every_reader(v2_batch(with_length(body(offset_delta=wide)), 1)) == [Record(2, 0, b"k", b"v")]
    padded = b"\x84\x80\x80\x80\x00"
    assert same_in_every_reader(v2_batch(with_length(body(offset_delta=padded)), 1)) == [Record(2, 0, b"k", b"v")]


# -------------------------------------------------------------------------------------------------- Record, the type


def test_a_record_compares_hashes_unpacks_and_pickles_by_its_fields() -> None:
    record = Record(5, 6, b"k", b"v", [("h", b"x"), ("n", None)])
    same = Record(5, 6, bytearray(b"k"), memoryview(b"v"), (("h", bytearray(b"x")), ("n", None)))
    assert record == same
    assert hash(record) == hash(same)
    assert {record, same} == {record}
    offset, timestamp, key, value, headers = record
    assert (offset, timestamp, key, value, headers) == (5, 6, b"k", b"v", (("h", b"x"), ("n", None)))
    assert record != Record(5, 6, b"k", b"v")
    assert record != (5, 6, b"k", b"v", record.headers)
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(Record()) == "Record(offset=-1, timestamp=-1, key=None, value=None, headers=())"
    with pytest.raises(AttributeError):
        record.offset = 7


def test_every_record_that_can_be_read_can_be_pickled() -> None:
    """Kafka's reader takes timestamps below -1 and offsets that wrap, so a Record may hold them."""
    payload = with_length(body(timestamp_delta=write(-500), offset_delta=write(-7)))
    (record,) = only_batch(v2_batch(payload, 1, last_offset_delta=0))
    assert (record.offset, record.timestamp) == (-7, -500)
    assert pickle.loads(pickle.dumps(record)) == record
