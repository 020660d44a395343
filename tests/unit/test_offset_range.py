"""Reading from an offset on, and up to one: in the middle of a batch, at its edges, and around it; by rows and columns.

The batches of LOG hold the offsets 10 to 13, 20 to 23 and 30 to 33, in every magic and codec.
"""

from __future__ import annotations

import operator
import struct
from typing import Any

import numpy as np
import pytest

from logcore import (
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    UsageTypeError,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_empty_batch,
    encode_transaction_marker,
    scan_batches,
)
from tests.helpers import CODECS_BY_MAGIC, LAYOUTS, only_batch, replaced, rows, sized, v2_batch, with_length
from tests.reference import legacy, varint

INT63_MAX = 2**63 - 1
BASES = (10, 20, 30)
EDGES = (None, 0, 9, 10, 11, 13, 14, 19, 20, 21, 22, 24, 30, 33, 34, 1000, INT63_MAX)
RANGES = [(first, end) for first in EDGES for end in EDGES if first is None or end is None or first <= end]


def batch_at(base: int, magic: int = 2, codec: str = "none") -> bytes:
    """Four records from offset `base` on: with a key, without one, without a value, with a long value and headers."""
    long = bytes([base]) * 40
    made = [
        Record(base, 1000 + base, b"key", b"short"),
        Record(base + 1, 1001 + base, None, b"no key"),
        Record(base + 2, 1002 + base, b"tombstone of %d" % base, None),
        Record(base + 3, 1003 + base, b"k", long, [("a", b"b"), ("long", long), ("none", None)] if magic == 2 else ()),
    ]
    return encode_batch(made, magic=magic, compression=codec)


def log_of(magic: int = 2, codec: str = "none") -> bytes:
    return b"".join(batch_at(base, magic, codec) for base in BASES)


LOG = log_of()
FIRST, SECOND, THIRD = (batch_at(base) for base in BASES)


def is_in(record: Record, first: int | None, end: int | None) -> bool:
    return (first is None or record.offset >= first) and (end is None or record.offset < end)


def offsets(buffer: Any, **options: Any) -> list[int]:
    return decode_columns(buffer, **options).offset.tolist()


# -------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_columns_hold_the_records_from_the_first_offset_up_to_the_end_offset(
    magic: int, codec: str, layout: str
) -> None:
    log = log_of(magic, codec)
    everything = rows(log)
    for first, end in RANGES:
        columns = decode_columns(log, layout=layout, first_offset=first, end_offset=end)
        assert list(columns) == [record for record in everything if is_in(record, first, end)], (first, end)


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_rows_begin_at_the_first_offset(magic: int, codec: str) -> None:
    for batch in decode_batches(log_of(magic, codec)):
        for first in (0, *range(8, 36), INT63_MAX):
            found = batch.records(first_offset=first)
            wanted = [record for record in batch if record.offset >= first]
            assert operator.length_hint(found) == len(wanted)
            assert list(found) == wanted
            assert list(found) == []


def test_nulls_are_counted_of_what_is_kept_only() -> None:
    columns = decode_columns(LOG, first_offset=12, end_offset=22)
    assert columns.offset.tolist() == [12, 13, 20, 21]
    assert [columns.key[index] for index in range(4)] == [b"tombstone of 10", b"k", b"key", None]
    assert (columns.key.null_count, columns.value.null_count) == (1, 1)
    assert np.unpackbits(columns.key.validity, bitorder="little")[:4].tolist() == [1, 1, 1, 0]
    assert np.unpackbits(columns.value.validity, bitorder="little")[:4].tolist() == [0, 1, 1, 1]
    assert decode_columns(LOG, first_offset=10, end_offset=11).key.validity is None


def test_headers_of_records_left_out_are_not_there() -> None:
    for layout in LAYOUTS:
        columns = decode_columns(LOG, layout=layout, first_offset=13, end_offset=33)
        assert columns.headers.offsets.tolist() == [0, 3, 3, 3, 3, 6, 6, 6, 6]
        assert [len(columns.headers[row]) for row in range(8)] == [3, 0, 0, 0, 3, 0, 0, 0]
        columns = decode_columns(LOG, layout=layout, first_offset=30, end_offset=33)
        assert (columns.headers.offsets.tolist(), len(columns.headers.names)) == ([0, 0, 0, 0], 0)


def test_append_time_and_its_type_are_kept_where_a_batch_is_cut() -> None:
    log = encode_batch([(None, b"x", 1)] * 4, base_offset=10, timestamp_type="log_append_time", log_append_time_ms=77)
    columns = decode_columns(log, columns=("timestamp", "timestamp_type"), first_offset=11, end_offset=13)
    assert (columns.timestamp.tolist(), columns.timestamp_type.tolist()) == ([77, 77], [1, 1])
    (batch,) = decode_batches(log)
    assert [record.timestamp for record in batch.records(first_offset=12)] == [77, 77]
    assert [record.timestamp for record in batch.records(first_offset=12, stored_timestamps=True)] == [1, 1]


def test_a_gap_at_a_bound_is_passed_over() -> None:
    """Compaction leaves batches whose records are fewer than their offsets, down to none at all."""
    holes = encode_batch([Record(12, 0, b"k", b"v")], base_offset=10, last_offset=19)
    log = holes + encode_empty_batch(20, 29) + THIRD
    assert offsets(log, first_offset=13) == [30, 31, 32, 33]
    assert offsets(log, first_offset=12, end_offset=25) == [12]
    assert offsets(log, first_offset=15, end_offset=17) == []
    assert decode_columns(log, first_offset=25, end_offset=27).consumed == len(log) - len(THIRD)
    assert list(only_batch(holes).records(first_offset=13)) == []


def test_control_records_are_kept_or_left_out_in_a_range_too() -> None:
    log = FIRST + encode_transaction_marker(1, 0, commit=True, coordinator_epoch=0, offset=14) + SECOND
    assert offsets(log, first_offset=13, end_offset=21) == [13, 14, 20]
    assert offsets(log, first_offset=13, end_offset=21, include_control=False) == [13, 20]


def test_the_highest_offset_of_all_is_kept_unless_it_is_the_end() -> None:
    for magic in (0, 1, 2):
        log = encode_batch([(None, b"x"), (None, b"y")], base_offset=INT63_MAX - 1, magic=magic)
        assert offsets(log) == offsets(log, first_offset=5) == [INT63_MAX - 1, INT63_MAX]
        assert offsets(log, first_offset=INT63_MAX) == [INT63_MAX]
        assert offsets(log, end_offset=INT63_MAX) == [INT63_MAX - 1]


def test_a_message_set_whose_offset_says_nothing_is_opened() -> None:
    """Old producers left the offset of a compressed set at 0; those inside are meant as they are."""
    whole = encode_batch([(None, b"%d" % n) for n in range(4)], magic=1, compression="gzip")
    log = replaced(whole, 0, struct.pack(">q", 0))
    assert only_batch(log).last_offset == 0
    assert [record.offset for record in only_batch(log).records(first_offset=2)] == [2, 3]
    assert offsets(log, first_offset=2) == [2, 3]
    assert offsets(log, first_offset=1, end_offset=2) == [1]


def test_offsets_in_no_order_are_kept_where_they_lie_in_the_range() -> None:
    """No writer writes them so; a header that says the batch straddles a bound has each record looked at."""
    payload = b"".join(
        with_length(b"\0" + varint.write(0) + varint.write(delta) + sized(None) + sized(b"%d" % delta) + b"\0")
        for delta in (5, 1, 3, -2, 4, 9, 2)
    )
    log = v2_batch(payload, 7, base_offset=100, last_offset_delta=9)
    columns = decode_columns(log, first_offset=102, end_offset=106)
    assert [(record.offset, record.value) for record in columns] == [(105, b"5"), (103, b"3"), (104, b"4"), (102, b"2")]
    assert offsets(log, first_offset=500) == []
    assert [record.offset for record in only_batch(log).records(first_offset=106)] == [109, 102]


def test_a_header_that_contradicts_itself_has_each_record_looked_at() -> None:
    log = v2_batch(FIRST[61:], 4, base_offset=10, last_offset_delta=-2)
    assert only_batch(log).last_offset == 8
    assert offsets(log) == [10, 11, 12, 13]
    assert offsets(log, first_offset=8, end_offset=12) == [10, 11]
    assert offsets(log, first_offset=9) == []


# ------------------------------------------------------------------------------------------- what is not looked at


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_what_was_consumed_ends_before_the_first_batch_behind_the_range(magic: int, codec: str) -> None:
    log = log_of(magic, codec)
    batches = list(decode_batches(log))
    for first, end in RANGES:
        behind = [batch.position for batch in batches if end is not None and batch.base_offset >= end]
        columns = decode_columns(log, first_offset=first, end_offset=end)
        assert columns.consumed == (behind[0] if behind else len(log)), (first, end)


def test_batches_outside_of_the_range_may_be_damaged() -> None:
    """Before it only sizes have to be right; behind it nothing has."""
    third = len(FIRST + SECOND)
    log = bytearray(LOG)
    log[100] ^= 1
    log[third + 100] ^= 1
    assert offsets(log, first_offset=14, end_offset=30) == [20, 21, 22, 23]
    assert offsets(FIRST + SECOND + b"\xff" * 10, end_offset=24) == offsets(FIRST + SECOND)
    for first, end, position in ((13, 30, 0), (14, 31, third), (None, 31, 0), (20, None, third)):
        with pytest.raises(CorruptBatch) as caught:
            decode_columns(log, first_offset=first, end_offset=end)
        assert (caught.value.reason, caught.value.position) == (CorruptionReason.CRC, position)
    damaged = replaced(LOG, 8, struct.pack(">i", 5))
    with pytest.raises(CorruptBatch, match="batch at position 0, byte 8: size got 5"):
        decode_columns(damaged, first_offset=20)


@pytest.mark.parametrize(("magic", "codec"), [case for case in CODECS_BY_MAGIC if case[1] != "none"])
def test_batches_outside_of_the_range_are_not_decompressed(magic: int, codec: str) -> None:
    """A message set of magic 0 or 1 says only where it ends; that one reaches the end tells that no more is wanted."""
    log = log_of(magic, codec)
    starts = [*scan_batches(log).headers["position"].tolist(), len(log)]
    for index in (0, 2):
        # Nothing that a codec could read, but the checksum is right.
        body = b"\xff" * (starts[index + 1] - starts[index])
        header = bytearray(log[starts[index] : starts[index] + 61])
        if magic == 2:
            broken = v2_batch(body, 4, base_offset=BASES[index], attributes=header[22])
        else:
            broken = legacy.encode_message(
                BASES[index] + 3, None, body, magic=magic, timestamp=7, compression_name=codec
            )
        hurt = b"".join(broken if n == index else log[starts[n] : starts[n + 1]] for n in range(3))
        for end in (21, 22, 24):
            assert offsets(hurt, first_offset=20, end_offset=end) == list(range(20, end))
        with pytest.raises(CorruptBatch):
            decode_columns(hurt, first_offset=13, end_offset=31)


def test_a_batch_that_is_cut_is_verified_whole() -> None:
    """A flipped bit in a record that is left out is told by the checksum, before a row is given."""
    for layout in LAYOUTS:
        for at in (70, len(FIRST) - 1):
            damaged = bytearray(FIRST)
            damaged[at] ^= 1
            with pytest.raises(CorruptBatch) as caught:
                decode_columns(damaged, layout=layout, first_offset=11, end_offset=12)
            assert (caught.value.reason, caught.value.position) == (CorruptionReason.CRC, 0)


def test_views_point_behind_the_batches_that_were_passed_over() -> None:
    columns = decode_columns(LOG, layout="view", first_offset=23, columns=("value",))
    (source,) = columns.value.buffers
    assert bytes(source) == SECOND + THIRD
    assert columns.value[0] == bytes([20]) * 40
    nothing = decode_columns(LOG, layout="view", first_offset=40)
    assert (len(nothing), nothing.consumed, nothing.to_arrow().num_rows) == (0, len(LOG), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_begin_at_what_is_wanted(layout: str) -> None:
    for codec in ("none", "lz4"):
        log = log_of(2, codec)
        for first, end in RANGES:
            chunked = decode_columns(log, layout=layout, chunk_bytes_max=1, first_offset=first, end_offset=end)
            wanted = [
                [record for record in batch if is_in(record, first, end)]
                for batch in decode_batches(log)
            ]  # fmt: skip
            chunks = [list(chunk) for chunk in chunked.chunks if len(chunk)]
            assert chunks == [part for part in wanted if part]


# ---------------------------------------------------------------------------------------------------------- damage


def hurt(record: int, body: bytes) -> bytes:
    """A batch of offsets 10 to 13 with a right checksum, one record of which is `body`."""
    good = [
        with_length(b"\0" + varint.write(0) + varint.write(delta) + sized(b"k") + sized(b"v" * 50) + b"\0")
        for delta in range(4)
    ]
    return v2_batch(b"".join([*good[:record], body, *good[record + 1 :]]), 4, base_offset=10)


NO_LENGTH = {
    "a varint without end": b"\xff" * 6,
    "a negative length": varint.write(-3) + bytes(40),
    "a length of 0": varint.write(0) + bytes(40),
    "too long": varint.write(10_000) + bytes(40),
    "no offset": with_length(b"\0" + b"\xff" * 11),
    "an offset of six bytes": with_length(b"\0\0" + b"\xff" * 6 + bytes(20)),
    "an offset behind the end": with_length(b"\0\0")[:-1] + b"\0\0" + bytes(40),
}


@pytest.mark.parametrize("kind", NO_LENGTH)
@pytest.mark.parametrize("record", range(4))
def test_a_record_that_cannot_be_walked_over_is_told_as_ever(record: int, kind: str) -> None:
    damaged = hurt(record, NO_LENGTH[kind])
    with pytest.raises(CorruptBatch) as caught:
        rows(damaged)
    told = str(caught.value)
    assert caught.value.record_index == record
    for first in range(11, 14):
        with pytest.raises(CorruptBatch) as caught:
            list(only_batch(damaged).records(first_offset=first))
        assert str(caught.value) == told
        for options in ({"first_offset": first}, {"end_offset": first}, {"first_offset": first, "end_offset": first}):
            for layout in LAYOUTS:
                with pytest.raises(CorruptBatch) as caught:
                    decode_columns(damaged, layout=layout, **options)
                assert str(caught.value) == told


@pytest.mark.parametrize("record", range(4))
def test_of_records_left_out_only_length_and_offset_are_looked_at(record: int) -> None:
    key = with_length(b"\0" + varint.write(0) + varint.write(record) + varint.write(1000) + bytes(20))
    damaged = hurt(record, key)
    with pytest.raises(CorruptBatch) as caught:
        rows(damaged)
    told = str(caught.value)
    assert (caught.value.reason, caught.value.record_index) == (CorruptionReason.KEY_LENGTH, record)
    for kept in range(4):
        bounds = {"first_offset": 10 + kept, "end_offset": 11 + kept}
        if kept != record:
            assert offsets(damaged, **bounds) == [10 + kept]
        else:
            with pytest.raises(CorruptBatch) as caught:
                decode_columns(damaged, **bounds)
            assert str(caught.value) == told
    if record < 3:
        found = only_batch(damaged).records(first_offset=11 + record)
        assert [row.offset for row in found] == list(range(11 + record, 14))


def test_a_count_that_is_too_small_or_too_large_is_told_in_a_range_too() -> None:
    for change, words in ((-1, "bytes after the last counted record"), (1, "varint"), (10_000, "record count")):
        damaged = v2_batch(FIRST[61:], 4 + change, base_offset=10, last_offset_delta=3)
        with pytest.raises(CorruptBatch, match=words) as caught:
            rows(damaged)
        for bounds in ((11, None), (None, 12), (11, 12)):
            with pytest.raises(CorruptBatch) as ranged:
                decode_columns(damaged, first_offset=bounds[0], end_offset=bounds[1])
            assert str(ranged.value) == str(caught.value)
        with pytest.raises(CorruptBatch) as ranged:
            list(only_batch(damaged).records(first_offset=13))
        assert str(ranged.value) == str(caught.value)


# ------------------------------------------------------------------------------------------------------- bad use


@pytest.mark.parametrize("name", ["first_offset", "end_offset"])
def test_bounds_are_offsets(name: str) -> None:
    for given in (-1, 2**63, -(2**70)):
        with pytest.raises(UsageError) as caught:
            decode_columns(LOG, **{name: given})
        assert (caught.value.what, caught.value.wanted) == (name, f"0 to {INT63_MAX}")
    for given in ("5", 5.0, True, b""):
        with pytest.raises(UsageTypeError, match=f"^{name}: got {type(given).__name__}, wanted an int$"):
            decode_columns(LOG, **{name: given})
    assert offsets(LOG, **{name: np.int64(20)}) == offsets(LOG, **{name: 20})


def test_a_range_does_not_end_before_it_begins() -> None:
    with pytest.raises(UsageError, match=f"^end_offset: got 19, wanted 20 to {INT63_MAX}$"):
        decode_columns(LOG, first_offset=20, end_offset=19)
    assert offsets(LOG, first_offset=20, end_offset=20) == []


def test_the_first_offset_of_rows_is_an_offset() -> None:
    batch = only_batch(FIRST)
    for given in (-1, 2**63):
        with pytest.raises(UsageError) as caught:
            batch.records(first_offset=given)
        assert (caught.value.what, caught.value.wanted) == ("first_offset", f"0 to {INT63_MAX}")
    with pytest.raises(UsageTypeError, match="first_offset: got str, wanted an int"):
        batch.records(first_offset="5")
    with pytest.raises(TypeError):
        batch.records(False, 5)
