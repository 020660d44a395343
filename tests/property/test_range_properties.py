"""Records from an offset on, up to another: columns and rows of a range are those of the whole buffer, sieved."""

from __future__ import annotations

import operator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logcore import Record, decode_batches, encode_batch, encode_empty_batch
from tests.strategies import Draft, drafts

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
