"""Records from an offset on, up to another: columns and rows of a range are those of the whole buffer, sieved."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from logcore import Record, decode_batches, decode_columns, encode_batch, encode_empty_batch
from tests.strategies import Draft, drafts, with_utf8_names

ALL_COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
TIMESTAMP_TYPES = {"none": -1, "create_time": 0, "log_append_time": 1}
DEFAULTS = {"offset": -1, "timestamp": -1, "key": None, "value": None, "headers": ()}

_GAPS = st.integers(0, 3)
_LINKS = st.tuples(_GAPS, st.sampled_from((False, False, True)))


def moved(draft: Draft, base_offset: int) -> Draft:
    """The draft with its offsets, and those of its header, from `base_offset` on."""
    by = base_offset - min(draft.records[0].offset, draft.options.get("base_offset", draft.records[0].offset))
    spans = {name: draft.options[name] + by for name in ("base_offset", "last_offset") if name in draft.options}
    records = [Record(record.offset + by, *list(record)[1:]) for record in draft.records]
    return replace(draft, records=records, options=draft.options | spans)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of every magic, codec and kind in the order of their offsets, with gaps between, and empty ones."""
    buffer, offset = b"", draw(st.integers(0, 3))
    for draft in draw(st.lists(drafts(), min_size=1, max_size=5)):
        gap, is_empty = draw(_LINKS)
        if is_empty:
            buffer += encode_empty_batch(offset, offset + gap)
            offset += gap + 1
        draft = moved(draft, offset + gap)
        buffer += encode_batch(draft.records, **draft.arguments())
        offset = max(draft.records[-1].offset, draft.options.get("last_offset", 0)) + 1
    return buffer


@st.composite
def bounds(draw: st.DrawFn, buffer: bytes) -> tuple[int | None, int | None]:
    """Two offsets at, beside or around what is in the buffer."""
    edges = {0, 2**63 - 1}
    for batch in decode_batches(buffer):
        for offset in (batch.base_offset, batch.last_offset, *(record.offset for record in batch)):
            edges |= {max(offset - 1, 0), offset, offset + 1}
    first, end = sorted(draw(st.tuples(*[st.sampled_from(sorted(edges))] * 2)))
    return draw(st.sampled_from((None, first, first, first))), draw(st.sampled_from((None, end, end, end)))


@given(
    st.data(),
    logs(),
    st.permutations(ALL_COLUMNS),
    st.sampled_from((1, 2, 6, 6, 6)),
    st.sampled_from(("binary", "view")),
    st.none() | st.integers(1, 300),
    st.booleans(),
)
def test_columns_of_a_range_are_the_rows_whose_offsets_lie_in_it(
    data: st.DataObject, buffer: bytes, names: list[str], kept: int, layout: str, chunk_bytes: int | None, control: bool
) -> None:
    first, end = data.draw(bounds(buffer))
    names = names[:kept]
    columns = decode_columns(
        buffer, columns=names, layout=layout, chunk_bytes_max=chunk_bytes, include_control=control,
        first_offset=first, end_offset=end,
    )  # fmt: skip
    expected: list[Record] = []
    types: list[int] = []
    consumed = len(buffer)
    for batch in decode_batches(buffer):
        if end is not None and batch.base_offset >= end:
            consumed = batch.position
            break
        inside = [r for r in batch if (first is None or r.offset >= first) and (end is None or r.offset < end)]
        if inside and len(inside) < len(list(batch)):
            event(f"a batch of magic {batch.magic} is cut, {'compressed' if batch.is_compressed else 'plain'}")
        if control or not batch.is_control:
            expected += map(with_utf8_names, inside)
            types += [TIMESTAMP_TYPES[batch.timestamp_type]] * len(inside)
    assert columns.consumed == consumed
    assert list(columns) == [
        Record(**{n: getattr(record, n) if n in names else default for n, default in DEFAULTS.items()})
        for record in expected
    ]
    if "timestamp_type" in names:
        assert columns.timestamp_type.tolist() == types
    assert_sound(columns, expected, names)


def assert_sound(columns: Any, expected: list[Record], names: list[str]) -> None:
    """What Arrow sees is whole, down to its bitmaps and offsets, and its nulls are counted right."""
    table = columns.to_arrow()
    table.validate(full=True)
    assert table.num_rows == len(expected)
    for name in {"key", "value"} & set(names):
        values = [getattr(record, name) for record in expected]
        assert table.column(name).to_pylist() == values
        assert table.column(name).null_count == values.count(None)
    if "headers" in names:
        pairs = [[{"key": name, "value": value} for name, value in record.headers] for record in expected]
        assert table.column("headers").to_pylist() == pairs


@given(st.data(), logs(), st.booleans())
def test_rows_from_an_offset_on_are_the_rows_whose_offsets_are_no_less(
    data: st.DataObject, buffer: bytes, stored_timestamps: bool
) -> None:
    first, _ = data.draw(bounds(buffer))
    for batch in decode_batches(buffer):
        everything = list(batch.records(stored_timestamps=stored_timestamps))
        found = batch.records(stored_timestamps=stored_timestamps, first_offset=first)
        wanted = [record for record in everything if first is None or record.offset >= first]
        assert operator.length_hint(found) == len(wanted)
        assert list(found) == wanted
