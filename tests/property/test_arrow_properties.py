"""Columns and Arrow: what is exported is valid and outlives its makers; what any producer hands in is encoded."""

from __future__ import annotations

import gc
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from logcore import Columns, Record, UsageError, decode_columns, encode_batch, encode_columns
from tests.strategies import (
    ArrowDraft,
    Draft,
    arrow_drafts,
    drafts,
    record_lists,
    rows_of,
    with_utf8_names,
)

LAYOUTS = st.sampled_from(("binary", "view"))
NAMES = ("offset", "timestamp", "key", "value", "headers")


def records_in(table: pa.Table) -> list[Record]:
    """The rows of an Arrow table of all five columns."""
    found = []
    for row in table.to_pylist():
        pairs = tuple((entry["key"], entry["value"]) for entry in row["headers"])
        found.append(Record(row["offset"], row["timestamp"], row["key"], row["value"], pairs))
    return found


def buffer_of(found: list[Draft]) -> bytes:
    return b"".join(encode_batch(draft.records, **draft.arguments()) for draft in found)


@given(st.lists(drafts(max_size=5), max_size=3), LAYOUTS, st.none() | st.integers(1, 500))
def test_exports_are_valid_and_hold_the_records(found: list[Draft], layout: str, chunk_bytes_max: int | None) -> None:
    buffer = buffer_of(found)
    columns = decode_columns(buffer, layout=layout, chunk_bytes_max=chunk_bytes_max)
    table = pa.table(columns)
    table.validate(full=True)
    assert table.column_names == list(NAMES)
    assert records_in(table) == [with_utf8_names(record) for record in rows_of(buffer)]
    kind = pa.binary_view() if layout == "view" else pa.binary()
    assert table.schema.field("value").type == table.schema.field("key").type == kind
    assert table.num_rows == len(columns)
    for chunk in columns.chunks:
        batch = pa.record_batch(chunk)
        batch.validate(full=True)
        for name in ("key", "value", "headers"):
            array = pa.array(getattr(chunk, name))
            array.validate(full=True)
            assert array.equals(batch.column(name))


@given(st.lists(drafts(max_size=5), min_size=1, max_size=3), LAYOUTS)
def test_polars_reads_the_same_records(found: list[Draft], layout: str) -> None:
    buffer = buffer_of(found)
    frame = pl.DataFrame(decode_columns(buffer, layout=layout))
    expected = [with_utf8_names(record) for record in rows_of(buffer)]
    assert frame["value"].to_list() == [record.value for record in expected]
    assert frame["key"].to_list() == [record.key for record in expected]
    assert frame["offset"].to_list() == [record.offset for record in expected]
    pairs = [tuple((entry["key"], entry["value"]) for entry in row) for row in frame["headers"].to_list()]
    assert pairs == [record.headers for record in expected]


@given(arrow_drafts(), st.sampled_from(("none", "gzip", "snappy", "lz4", "zstd")))
def test_any_arrow_layout_slice_and_null_is_encoded_as_the_rows_are(draft: ArrowDraft, codec: str) -> None:
    draft.table.validate(full=True)
    assert encode_columns(draft.table, compression=codec) == encode_batch(draft.records, compression=codec)
    event("value as " + str(draft.table.schema.field("value").type).split("[")[0])


@given(arrow_drafts(), st.integers(0, 8), st.integers(1, 8))
def test_a_slice_of_a_table_is_encoded_as_the_slice_of_the_rows(draft: ArrowDraft, start: int, count: int) -> None:
    """A struct's own offset comes on top of its children's."""
    records = draft.records[start : start + count]
    table = draft.table.slice(start, count)
    if not records:
        return
    if "offset" not in draft.table.column_names:
        records = [Record(index, *list(record)[1:]) for index, record in enumerate(records)]
    expected = encode_batch(records)
    assert encode_columns(table) == expected
    (whole,) = draft.table.combine_chunks().to_batches()
    as_struct = pa.StructArray.from_arrays(whole.columns, names=whole.schema.names)
    assert encode_columns(as_struct.slice(start, count)) == expected
    assert encode_columns(whole.slice(start, count)) == expected
    arrays = {name: table[name].combine_chunks() for name in table.column_names}
    assert encode_columns(arrays) == expected


@given(record_lists())
def test_a_polars_frame_is_encoded(records: list[Record]) -> None:
    plain = [Record(r.offset, r.timestamp, r.key, r.value) for r in records]
    frame = pl.DataFrame(
        {name: [getattr(record, name) for record in plain] for name in ("offset", "timestamp", "key", "value")},
        schema={"offset": pl.Int64, "timestamp": pl.Int64, "key": pl.Binary, "value": pl.Binary},
    )
    assert encode_columns(frame) == encode_batch(plain)


@given(
    st.lists(st.none() | st.integers(-(2**50), 2**50), min_size=1, max_size=6), st.sampled_from(["s", "ms", "us", "ns"])
)
def test_timestamps_of_any_unit_become_milliseconds(times: list[int | None], unit: str) -> None:
    per_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    in_ms = [7 if t is None else t * 1000 if unit == "s" else t // int(per_ms) for t in times]
    table = pa.table({"timestamp": pa.array(times, pa.timestamp(unit)), "value": [b"v"] * len(times)})
    rows = [(None, b"v", time) for time in in_ms]
    if min(in_ms) < -1:
        event("refused")
        with pytest.raises(UsageError, match="timestamp"):
            encode_columns(table, now_ms=7)
        with pytest.raises(UsageError, match="timestamp"):
            encode_batch(rows)
    else:
        assert encode_columns(table, now_ms=7) == encode_batch(rows)


# --- lifetimes: a mistake here is a read of freed memory, which the sanitize build reports ---------------------------


@given(st.lists(drafts(max_size=5), min_size=1, max_size=3), LAYOUTS)
def test_arrays_outlive_columns_and_columns_outlive_the_buffer_object(found: list[Draft], layout: str) -> None:
    buffer = buffer_of(found)
    expected = [with_utf8_names(record) for record in rows_of(buffer)]
    lent = bytearray(buffer)
    columns: Columns | None = decode_columns(lent, layout=layout)
    del lent
    gc.collect(0)
    assert list(columns) == expected
    table = pa.table(columns)
    offsets, values, keys = columns.offset, columns.value, columns.key
    views = values.buffers if layout == "view" else (values.data, values.offsets, values.validity)
    del columns
    gc.collect(0)
    assert records_in(table) == expected
    part = table["value"].chunk(0)
    del table
    gc.collect(0)
    assert part.to_pylist() == [record.value for record in expected]
    assert [values[index] for index in range(len(values))] == [record.value for record in expected]
    assert [keys[index] for index in range(len(keys))] == [record.key for record in expected]
    assert offsets.tolist() == [record.offset for record in expected]
    del values, keys
    gc.collect(0)
    assert all(view is None or len(bytes(view)) >= 0 for view in views)


@given(st.lists(drafts(max_size=3), min_size=2, max_size=4), LAYOUTS, st.integers(0, 3))
@settings(max_examples=40)
def test_streams_and_capsules_may_be_dropped_at_any_point(found: list[Draft], layout: str, read: int) -> None:
    buffer = buffer_of(found)
    columns = decode_columns(buffer, layout=layout, chunk_bytes_max=1)
    expected = [with_utf8_names(record) for record in rows_of(buffer)]
    columns.__arrow_c_stream__()  # made and dropped unread
    columns.chunks[0].__arrow_c_array__()
    columns.__arrow_c_schema__()
    reader = pa.RecordBatchReader.from_stream(columns)
    count = len(columns.chunks)
    del columns
    seen: list[Record] = []
    for _ in range(min(read, count)):
        seen += records_in(pa.Table.from_batches([reader.read_next_batch()]))
    assert seen == expected[: len(seen)]
    rest = reader.read_all() if read % 2 else None
    del reader
    gc.collect(0)
    if rest is not None:
        assert seen + records_in(rest) == expected


@given(record_lists(), LAYOUTS)
def test_columns_that_read_columns_share_nothing_that_dies(records: list[Record], layout: str) -> None:
    records = [with_utf8_names(record) for record in records]
    columns: Any = decode_columns(encode_batch(records), layout=layout)
    for _ in range(3):
        columns = decode_columns(encode_columns(pa.table(columns)), layout=layout)
    assert list(columns) == records
