"""Damaged bytes: rows, columns and the reference refuse them together, or agree on every record and header field."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import logcore
from logcore import CorruptBatch, Record, decode_batches, decode_columns, encode_batch
from tests.reference import batch_v2, control, stream
from tests.reference.batch_v2 import HEADER_BYTES, BatchV2
from tests.reference.model import CODEC_NAMES, RefBatch, RefRecord, Refused
from tests.strategies import Draft, damaged_buffers, drafts, from_reference, record_lists, rows_of

# Which of several things wrong with a record is told first is each reader's own affair; that it is the record is not.
_CLASSES = {
    "BATCH_SIZE": "size", "MAGIC": "magic", "CRC": "crc", "UNKNOWN_CODEC": "codec",
    "DECOMPRESSION": "decompression", "DECOMPRESSED_SIZE": "decompression", "CONTROL_RECORD": "control",
}  # fmt: skip


def reason_class(error: CorruptBatch | Refused) -> str:
    name = error.reason if isinstance(error, Refused) else error.reason.name
    return _CLASSES.get(name, "records")


def outcome(read: Callable[[], Any]) -> Any:
    """What `read` returns, or its refusal."""
    try:
        return read()
    except (CorruptBatch, Refused) as refusal:
        return refusal


def compared_fields(batch: RefBatch) -> tuple[str, ...]:
    """For magic 0 and 1 the base offset needs the records and is compared with them; it has no base timestamp."""
    left_out = {"base_offset", "base_timestamp", "attributes"} if batch.magic < 2 else set()
    return tuple(name for name in RefBatch.HEADER_FIELDS if name not in left_out)


def refusal_of_both(mine: logcore.Batch, its: RefBatch) -> CorruptBatch | None:
    """Check that both read the batch alike or both refuse it; returns what ours said."""
    got, expected = outcome(lambda: list(mine)), outcome(its.records)
    if isinstance(expected, Refused):
        assert isinstance(got, CorruptBatch), expected
        assert got.position == its.position
        # A message of magic 0 or 1 that is too short for its fields is told by its size or by the field.
        assert its.magic < 2 or reason_class(got) == reason_class(expected)
        event(f"both refuse: {reason_class(expected)}")
        return got
    if isinstance(got, CorruptBatch):
        assert is_stricter_on_purpose(got, its), got
        event("stricter on purpose")
        return got
    assert [tuple(record) for record in got] == [from_reference(record) for record in expected]
    if its.magic < 2:
        assert mine.base_offset == its.base_offset
    if its.is_control:
        assert_same_control_records(mine, expected)
    return None


def is_stricter_on_purpose(error: CorruptBatch, its: RefBatch) -> bool:
    """The three streams that Kafka's libraries happen to read and ours does not (_compression.pyx says why)."""
    if error.reason.name != "DECOMPRESSION":
        return False
    payload = its.data[HEADER_BYTES:] if isinstance(its, BatchV2) else its.message.key_and_value()[1] or b""
    return {
        "gzip": payload[3:4] > b"\x1f",  # reserved flags
        "snappy": payload.count(b"\x82SNA") > 1,  # a header in mid-stream that is none
        "zstd": payload.count(b"\x28\xb5\x2f\xfd") + payload.count(b"\x2a\x4d\x18") > 1,  # a second frame, cut off
    }.get(its.compression, False)


def assert_same_control_records(mine: logcore.Batch, expected: list[RefRecord]) -> None:
    def decoded() -> list[tuple[Any, ...]]:
        found = []
        for record in expected:
            number, name = control.control_type(record)
            epoch = control.end_transaction_marker(record)[1] if name in ("COMMIT", "ABORT") else None
            found.append((record.offset, number, name, epoch, record.value))
        return found

    its, ours = outcome(decoded), outcome(mine.control_records)
    if isinstance(its, Refused):
        assert reason_class(ours) == "control"
    else:
        assert [(c.offset, c.type_id, c.type, c.coordinator_epoch, c.value) for c in ours] == its


def with_replaced_names(record: Record) -> tuple[Any, ...]:
    offset, timestamp, key, value, pairs = record
    replaced = tuple((n.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), v) for n, v in pairs)
    return (offset, timestamp, key, value, replaced)


def told(error: CorruptBatch) -> tuple[Any, ...]:
    """What two readers that met the same damage say alike; of compression a library says it, in words of its own."""
    if error.reason.name == "DECOMPRESSION":
        return (error.reason, error.position)
    return (error.reason, error.position, error.record_index, error.at, error.got, error.wanted)


def assert_columns_agree(buffer: bytes, rows: list[Record], refusals: list[CorruptBatch], consumed: int) -> None:
    """Columns read all or nothing: what the rows met first is what the columns raise."""
    for layout in ("binary", "view"):
        got = outcome(lambda layout=layout: decode_columns(buffer, layout=layout))
        if isinstance(got, CorruptBatch):
            assert refusals, got
            assert told(got) == told(refusals[0])
        else:
            assert not refusals
            assert got.consumed == consumed
            assert [tuple(record) for record in got] == [with_replaced_names(record) for record in rows]


@given(damaged_buffers())
def test_damaged_bytes_are_refused_by_rows_columns_and_reference_or_read_alike_by_all(buffer: bytes) -> None:
    batches, consumed, damage = stream.decode_batches(buffer)
    iterator = decode_batches(buffer)
    refusals: list[CorruptBatch] = []
    rows: list[Record] = []
    for its in batches:
        mine = next(iterator)
        names = compared_fields(its)
        assert {name: getattr(mine, name) for name in names} == {name: getattr(its, name) for name in names}
        assert bytes(mine.data) == its.data
        refusal = refusal_of_both(mine, its)
        if refusal is None:
            rows += mine
        else:
            refusals.append(refusal)
    end = outcome(lambda: next(iterator, None))
    if damage is None:
        assert end is None
    else:
        assert (end.reason.name, end.position) == (damage.reason, damage.batch_position)
        refusals.append(end)
    assert iterator.consumed == consumed
    event("damage found" if refusals else "nothing wrong")
    assert_columns_agree(buffer, rows, refusals, consumed)


@given(damaged_buffers())
def test_unverified_checksums_change_nothing_but_their_own_refusals(buffer: bytes) -> None:
    batches, consumed, damage = stream.decode_batches(buffer, verify_crc=False)
    refused = [outcome(batch.records) for batch in batches if isinstance(outcome(batch.records), Refused)]
    got = outcome(lambda: decode_columns(buffer, verify_crc=False))
    if isinstance(got, CorruptBatch):
        assert got.reason.name != "CRC"
        assert refused or damage or any(is_stricter_on_purpose(got, batch) for batch in batches)
    else:
        assert not refused
        assert damage is None
        assert got.consumed == consumed


@given(drafts(magics=(2,), max_size=4), st.data())
def test_one_flipped_bit_anywhere_is_seen(draft: Draft, data: st.DataObject) -> None:
    buffer = bytearray(encode_batch(draft.records, **draft.arguments()))
    at = data.draw(st.integers(0, len(buffer) - 1))
    buffer[at] ^= 1 << data.draw(st.integers(0, 7))
    for read in (rows_of, decode_columns):
        got = outcome(lambda read=read: read(bytes(buffer)))
        if at < 8 or 12 <= at < 16:  # base offset and leader epoch lie outside the checksum
            assert [tuple(record)[1:4] for record in got] == [tuple(record)[1:4] for record in draft.expected()]
        elif isinstance(got, CorruptBatch):
            assert got.position == 0
        else:
            assert 8 <= at < 12  # a larger size is a batch that is not all there yet
            assert len(got) == 0


@given(drafts(max_size=4), st.floats(0, 1, exclude_max=True))
def test_a_buffer_cut_anywhere_ends_quietly_before_the_cut_batch(draft: Draft, where: float) -> None:
    whole = encode_batch([(b"k", b"v")])
    buffer = encode_batch(draft.records, **draft.arguments())
    first = logcore.split_batches(buffer)[0].nbytes
    cut = buffer[: int(where * first)]
    batches = decode_batches(whole + cut)
    assert len(list(batches)) == 1
    assert batches.consumed == len(whole)
    columns = decode_columns(whole + cut)
    assert (len(columns), columns.consumed) == (1, len(whole))


@given(record_lists(max_size=4), st.sampled_from(CODEC_NAMES), st.integers(-4, 4))
def test_the_cap_on_decompressed_bytes_holds_to_the_byte(records: list[Record], codec: str, spare: int) -> None:
    cap = max(len(encode_batch(records)) - HEADER_BYTES + spare, 1)
    buffer = encode_batch(records, compression=codec)
    for got in (
        outcome(lambda: [list(batch) for batch in decode_batches(buffer, max_decompressed_bytes=cap)]),
        outcome(lambda: decode_columns(buffer, max_decompressed_bytes=cap)),
    ):
        if codec == "none" or spare >= 0:
            assert len(got)
        else:
            assert got.reason.name == "DECOMPRESSED_SIZE"


def under_a_right_header(body: bytes, count: int, attributes: int) -> bytes:
    header = batch_v2.HEADER.pack(
        7, HEADER_BYTES - 12 + len(body), 3, 2, 0, attributes, 2, 100, 100, -1, -1, -1, count
    )  # fmt: skip
    return batch_v2.with_crc(header + body)


def assert_read_alike(buffer: bytes) -> None:
    (mine,), (its,) = list(decode_batches(buffer)), stream.decode_batches(buffer)[0]
    refusal = refusal_of_both(mine, its)
    assert_columns_agree(buffer, [] if refusal else list(mine), [refusal] if refusal else [], len(buffer))


@given(st.binary(max_size=200), st.integers(0, 7), st.booleans())
def test_random_bytes_under_a_right_header_are_refused_or_read_alike(body: bytes, codec: int, is_control: bool) -> None:
    assert_read_alike(under_a_right_header(body, 3, codec | is_control << 5))


@given(st.lists(st.integers(0, 12) | st.sampled_from((0x7F, 0x80, 0xFF)), max_size=60), st.integers(1, 9))
def test_random_small_bytes_as_records_are_refused_or_read_alike(body: list[int], count: int) -> None:
    """Small bytes are small lengths, so that some of them are whole records."""
    assert_read_alike(under_a_right_header(bytes(body), count, 0))


@given(record_lists(max_size=6), st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 9))
def test_a_wrong_count_is_refused_or_reads_nothing(records: list[Record], count: int) -> None:
    buffer = bytearray(encode_batch(records))
    buffer[57:61] = struct.pack(">i", count)
    sealed = batch_v2.with_crc(bytes(buffer))
    if count == len(records):
        assert rows_of(sealed) == records
    elif count == 0:
        assert rows_of(sealed) == []
        assert len(decode_columns(sealed)) == 0
    else:
        for read in (rows_of, decode_columns):
            with pytest.raises(CorruptBatch) as caught:
                read(sealed)
            assert caught.value.kafka_error is logcore.errors.InvalidRecordError


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.sampled_from((-2, -1, 0, 1, low, high)) | st.integers(low, high)


@given(_integers(64), _integers(32), _integers(16), _integers(32), st.tuples(*[_integers(64)] * 3), _integers(32))
def test_whatever_a_header_says_is_read_alike(
    base_offset: int, last_delta: int, attributes: int, sequence: int, times_and_producer: tuple[int, ...], epoch: int
) -> None:
    body = batch_v2.encode_record(RefRecord(3, 5, b"key", b"value"), 0, 0)
    header = batch_v2.HEADER.pack(
        base_offset, HEADER_BYTES - 12 + len(body), epoch, 2, 0, attributes, last_delta, *times_and_producer,
        epoch % 2**15, sequence, 1,
    )  # fmt: skip
    buffer = batch_v2.with_crc(header + body)
    (mine,), (its,) = list(decode_batches(buffer)), stream.decode_batches(buffer)[0]
    names = compared_fields(its)
    assert {name: getattr(mine, name) for name in names} == {name: getattr(its, name) for name in names}
    row = logcore.scan_batches(buffer).headers[0]
    assert {name: row[name] for name in row.dtype.names} == {name: getattr(its, name) for name in row.dtype.names}
    assert_read_alike(buffer)
