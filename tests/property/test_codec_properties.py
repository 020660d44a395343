"""Round trips: what rows, columns or the reference write, each of the three reads alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

import logcore
from logcore import Record, decode_batches, decode_columns, encode_batch, encode_columns
from tests.reference import stream
from tests.reference.batch_v2 import BatchV2
from tests.reference.model import RefRecord
from tests.strategies import (
    HEADER_NAMES,
    Draft,
    drafts,
    from_reference,
    record_lists,
    rows_of,
    to_reference,
    with_utf8_names,
)

ALL_COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
TIMESTAMP_TYPES = {"none": -1, "create_time": 0, "log_append_time": 1}
COLUMN_DEFAULTS = {"offset": -1, "timestamp": -1, "key": None, "value": None, "headers": ()}


def by_reference(buffer: bytes) -> list[tuple[Any, ...]]:
    batches, consumed, damage = stream.decode_batches(buffer)
    assert (consumed, damage) == (len(buffer), None)
    return [from_reference(record) for batch in batches for record in batch.records()]


@given(drafts())
def test_what_is_written_is_read_by_rows_by_both_layouts_and_by_the_reference(draft: Draft) -> None:
    buffer = encode_batch(draft.records, **draft.arguments())
    expected = draft.expected()
    in_columns = [with_utf8_names(record) for record in expected]
    assert rows_of(buffer) == expected
    assert by_reference(buffer) == [tuple(record) for record in expected]
    for layout in ("binary", "view"):
        columns = decode_columns(buffer, layout=layout)
        assert list(columns) == in_columns
        assert columns.consumed == len(buffer)


@given(drafts())
def test_what_the_reference_writes_is_read_by_rows_and_columns(draft: Draft) -> None:
    buffer = draft.by_reference()
    assert rows_of(buffer) == draft.expected()
    assert list(decode_columns(buffer, layout="view")) == [with_utf8_names(record) for record in draft.expected()]


@given(drafts(magics=(2,)))
def test_a_batch_is_written_like_the_references_byte_for_byte(draft: Draft) -> None:
    ours, theirs = encode_batch(draft.records, **draft.arguments()), draft.by_reference()
    if draft.compression == "none":
        assert ours == theirs
        return
    # Compressed bytes are the library's own affair; all around them and all inside them is not.
    (mine,), (its,) = stream.decode_batches(ours)[0], stream.decode_batches(theirs)[0]
    assert isinstance(mine, BatchV2)
    assert isinstance(its, BatchV2)
    assert mine.payload() == its.payload()
    sized = {"size_in_bytes", "crc"}
    assert {k: v for k, v in mine.header().items() if k not in sized} == {
        k: v for k, v in its.header().items() if k not in sized
    }


@given(drafts(magics=(0, 1)))
def test_messages_of_older_formats_are_written_like_the_references(draft: Draft) -> None:
    ours, theirs = encode_batch(draft.records, **draft.arguments()), draft.by_reference()
    if draft.compression == "none":
        assert ours == theirs
        return
    (mine,), (its,) = stream.decode_batches(ours)[0], stream.decode_batches(theirs)[0]
    assert mine.records() == its.records()
    assert {k: v for k, v in mine.header().items() if k not in {"size_in_bytes", "crc"}} == {
        k: v for k, v in its.header().items() if k not in {"size_in_bytes", "crc"}
    }
    assert [(offset, message.data) for offset, message in mine.messages()] == [
        (offset, message.data) for offset, message in its.messages()
    ]


@given(drafts(magics=(2,)), st.sampled_from(("binary", "view")))
def test_columns_are_written_like_the_rows_they_came_from(draft: Draft, layout: str) -> None:
    records = [with_utf8_names(record) for record in draft.records]
    by_rows = encode_batch(records, **draft.arguments())
    (batch,) = decode_batches(by_rows)
    # Append time hides what is stored; only the stored times give the bytes back.
    plain = encode_batch(list(batch.records(stored_timestamps=True)))
    arguments = {name: value for name, value in draft.arguments().items() if name != "magic"}
    assert encode_columns(decode_columns(plain, layout=layout), **arguments) == by_rows


@given(st.lists(drafts(), min_size=1, max_size=4), st.integers(1, 2000), st.sampled_from(("binary", "view")))
def test_chunked_columns_hold_the_same_records_and_encode_the_same(
    found: list[Draft], chunk_bytes_max: int, layout: str
) -> None:
    buffer = b"".join(encode_batch(draft.records, **draft.arguments()) for draft in found)
    whole = decode_columns(buffer, layout=layout)
    chunked = decode_columns(buffer, layout=layout, chunk_bytes_max=chunk_bytes_max)
    event(f"chunks: {min(len(chunked.chunks), 4)}")
    assert list(chunked) == list(whole)
    assert len(chunked) == len(whole) == sum(len(chunk) for chunk in chunked.chunks)
    assert chunked.consumed == len(buffer)
    assert chunked.offset.tolist() == whole.offset.tolist()
    assert chunked.to_arrow().combine_chunks() == whole.to_arrow().combine_chunks()
    offsets = whole.offset
    assume((offsets[1:] > offsets[:-1]).all())
    assert rows_without_offsets(encode_columns(chunked)) == rows_without_offsets(encode_columns(whole))


def rows_without_offsets(buffer: bytes) -> list[tuple[Any, ...]]:
    return [tuple(record)[1:] for record in rows_of(buffer)]


@given(record_lists(max_size=30), st.integers(62, 600), st.sampled_from(("none", "gzip", "snappy", "lz4", "zstd")))
def test_columns_are_cut_into_batches_that_stay_within_their_bytes(
    records: list[Record], batch_bytes: int, codec: str
) -> None:
    records = [with_utf8_names(record) for record in records]
    columns = decode_columns(encode_batch(records))
    sequence = 2**31 - 3
    buffer = encode_columns(
        columns, batch_bytes=batch_bytes, compression=codec, producer_id=1, producer_epoch=0, base_sequence=sequence
    )
    assert rows_of(buffer) == records
    batches = list(decode_batches(buffer))
    event(f"batches: {min(len(batches), 5)}")
    for batch in batches:
        plain = encode_batch(list(batch), base_offset=batch.base_offset)
        assert batch.count == 1 or len(plain) <= batch_bytes
        assert batch.base_sequence == sequence
        sequence = logcore.increment_sequence(batch.last_sequence, 1)
    for batch, following in itertools.pairwise(batches):
        # It was cut because the next record would not have fitted.
        more = encode_batch([*batch, next(iter(following))], base_offset=batch.base_offset)
        assert len(more) > batch_bytes


@given(
    st.lists(drafts(), min_size=1, max_size=3),
    st.permutations(ALL_COLUMNS),
    st.integers(1, 6),
    st.sampled_from(("binary", "view")),
    st.booleans(),
)
def test_a_projection_is_the_same_as_leaving_columns_out_afterwards(
    found: list[Draft], names: list[str], kept: int, layout: str, include_control: bool
) -> None:
    names = names[:kept]
    buffer = b"".join(encode_batch(draft.records, **draft.arguments()) for draft in found)
    columns = decode_columns(buffer, columns=names, layout=layout, include_control=include_control)
    batches = [batch for batch in decode_batches(buffer) if include_control or not batch.is_control]
    expected = []
    for record in (with_utf8_names(record) for batch in batches for record in batch):
        seen = {n: getattr(record, n) if n in names else default for n, default in COLUMN_DEFAULTS.items()}
        expected.append(Record(**seen))
    assert columns.names == tuple(names)
    assert list(columns) == expected
    if "timestamp_type" in names:
        types = [TIMESTAMP_TYPES[batch.timestamp_type] for batch in batches for _ in batch]
        assert columns.timestamp_type.tolist() == types
    for name in set(ALL_COLUMNS) - set(names):
        with pytest.raises(logcore.UsageError):
            getattr(columns, name)
    for name, array in columns.to_numpy().items():
        assert array.tolist() == (getattr(columns, name).tolist() if "time" in name or name == "offset" else [
            getattr(record, name) for record in expected
        ])  # fmt: skip


@given(drafts(), st.sampled_from((bytes, bytearray, memoryview)))
def test_any_buffer_will_do(draft: Draft, kind: Callable[[bytes], Any]) -> None:
    buffer = encode_batch(draft.records, **draft.arguments())
    assert rows_of(kind(buffer)) == rows_of(buffer)
    assert list(decode_columns(kind(buffer))) == list(decode_columns(buffer))


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=20))
@example([b"\xf0\x90\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf", b"\xc0\x80", b"\xf0\x9f\x98"])
def test_header_names_that_are_no_utf8_are_replaced_in_columns_as_python_replaces_them(names: list[bytes]) -> None:
    pairs = tuple((name.decode("utf-8", "surrogateescape"), None) for name in names)
    buffer = encode_batch([Record(0, 0, None, None, pairs)])
    assert [name.encode("utf-8", "surrogateescape") for name, _ in rows_of(buffer)[0].headers] == names
    for layout in ("binary", "view"):
        columns = decode_columns(buffer, layout=layout)
        assert [name for name, _ in columns.headers[0]] == [name.decode("utf-8", "replace") for name in names]


@given(HEADER_NAMES, st.none() | st.binary(max_size=30))
def test_header_names_survive_rows_byte_for_byte(name: str, value: bytes | None) -> None:
    assert rows_of(encode_batch([(b"k", b"v", 1, [(name, value)])]))[0].headers == ((name, value),)


@given(st.lists(drafts(magics=(2,)), min_size=1, max_size=3))
def test_reference_records_are_what_the_drafts_say(found: list[Draft]) -> None:
    """The strategies themselves: a Draft that lied about what it writes would make every property hollow."""
    for draft in found:
        (batch,), _, _ = stream.decode_batches(draft.by_reference())
        assert [from_reference(record) for record in batch.records()] == [tuple(r) for r in draft.expected()]
        assert [to_reference(r) for r in draft.records] == [
            RefRecord(r.offset, r.timestamp, r.key, r.value, r.headers) for r in BatchV2.stored_records(batch)
        ]
