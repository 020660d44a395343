"""What the property tests draw from: records, batches with every option, Arrow arrays of every shape, and damage.

A drawn batch is a `Draft`: the records and options it is to be written from. The properties write it with the compiled
encoder and with the reference and compare, so a Draft knows how to say itself to both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logcore import Record, decode_batches
from tests.reference import batch_v2, compression, legacy
from tests.reference.model import CODEC_NAMES, LOG_APPEND_TIME, RefRecord, Refused
from tests.reference.stream import next_batch

INT31_MAX = 2**31 - 1
INT63_MAX = 2**63 - 1
LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")

# --- records ---------------------------------------------------------------------------------------------------------
# Strategies are values, not functions, wherever they take no argument: to build one costs more than to draw from it.

# Lengths on both sides of what the code branches on: a view's 12 inline bytes, a varint's second byte (63), the 32-byte
# steps of the copy, its end (256), a varint's third byte (8191).
_EDGE_LENGTHS = (0, 1, 4, 11, 12, 13, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 288, 1000, 8191, 8192)

PAYLOADS = st.binary(max_size=40) | st.builds(
    lambda size, byte: bytes([byte]) * size, st.sampled_from(_EDGE_LENGTHS), st.integers(0, 255)
)
OPTIONAL_PAYLOADS = st.none() | PAYLOADS

#: Text, and bytes that are no UTF-8 as surrogate escapes.
HEADER_NAMES = st.text(max_size=8).map(lambda text: text.encode("utf-8", "replace").decode()) | st.binary(
    max_size=12
).map(lambda raw: raw.decode("utf-8", "surrogateescape"))

HEADERS = st.just(()) | st.lists(st.tuples(HEADER_NAMES, OPTIONAL_PAYLOADS), max_size=3).map(tuple)

TIMESTAMPS = st.integers(-1, 2000) | st.integers(1_600_000_000_000, 1_600_000_009_999) | st.integers(-1, INT63_MAX)

_GAPS = st.sampled_from((1, 1, 1, 2, 64, 70_000))
_PLACES = st.tuples(_GAPS, st.none() | TIMESTAMPS)
_ROWS = {
    True: st.tuples(_PLACES, OPTIONAL_PAYLOADS, OPTIONAL_PAYLOADS, HEADERS),
    False: st.tuples(_PLACES, OPTIONAL_PAYLOADS, OPTIONAL_PAYLOADS, st.just(())),
}
_FIRST_OFFSETS = st.sampled_from((0, 1, 1_000_000)) | st.integers(0, INT63_MAX - INT31_MAX)


@st.composite
def record_lists(draw: st.DrawFn, *, with_headers: bool = True, max_size: int = 8) -> list[Record]:
    """Records whose offsets increase, perhaps with gaps, anywhere below 2^63."""
    offset, usual_time = draw(_FIRST_OFFSETS), draw(TIMESTAMPS)
    made = []
    for (gap, timestamp), key, value, pairs in draw(st.lists(_ROWS[with_headers], min_size=1, max_size=max_size)):
        made.append(Record(offset, usual_time if timestamp is None else timestamp, key, value, pairs))
        offset += gap
    return made


# --- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """A batch to be written."""

    records: list[Record]
    magic: int = 2
    compression: str = "none"
    options: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """What encode_batch() takes beside the records."""
        return {"magic": self.magic, "compression": self.compression, **self.options}

    def expected(self) -> list[Record]:
        """The records as a reader gets them: older formats have no headers, append time replaces each record's."""
        time = self.options.get("log_append_time_ms")
        read = []
        for offset, timestamp, key, value, pairs in self.records:
            if self.magic == 0:
                timestamp = -1
            elif time is not None:
                timestamp = time
            read.append(Record(offset, timestamp, key, value, pairs))
        return read

    def by_reference(self) -> bytes:
        """The batch as the reference writes it."""
        arguments = dict(self.options)
        arguments["compression_name"] = self.compression
        if arguments.get("log_append_time_ms") is None:
            arguments.pop("log_append_time_ms", None)
        if self.magic == 2:
            return batch_v2.encode(map(to_reference, self.records), **arguments)
        return legacy.encode_set(map(to_reference, self.records), magic=self.magic, **arguments)


def rows_of(buffer: bytes) -> list[Record]:
    return [record for batch in decode_batches(buffer) for record in batch]


def from_reference(record: RefRecord) -> tuple[Any, ...]:
    """As a Record unpacks. No Record, because hostile bytes hold offsets and times that its constructor refuses."""
    pairs = tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers)
    return (record.offset, record.timestamp, record.key, record.value, pairs)


def to_reference(record: Record) -> RefRecord:
    pairs = [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers]
    return RefRecord(record.offset, record.timestamp, record.key, record.value, pairs)


_KINDS = st.sampled_from(("plain", "plain", "idempotent", "transactional", "control"))
_PRODUCERS = st.tuples(st.integers(0, INT63_MAX), st.integers(0, 0x7FFF), st.integers(0, INT31_MAX))
_EPOCHS = st.integers(-1, 3) | st.integers(-1, INT31_MAX)
_TIMES = st.none() | st.integers(0, INT63_MAX)
_SPANS = st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5))
_V2_OPTIONS = st.tuples(_EPOCHS, _KINDS, _PRODUCERS, _TIMES, _TIMES, _SPANS)
_CODECS = {2: st.sampled_from(CODEC_NAMES), 1: st.sampled_from(LEGACY_CODECS), 0: st.sampled_from(LEGACY_CODECS)}


def _v2_options(draw: st.DrawFn, records: Sequence[Record]) -> dict[str, Any]:
    """Header fields that Kafka's builder accepts together."""
    leader_epoch, kind, (producer_id, producer_epoch, sequence), append_time, horizon, span = draw(_V2_OPTIONS)
    options: dict[str, Any] = {"leader_epoch": leader_epoch}
    if kind != "plain":
        options["producer_id"] = producer_id
        options["producer_epoch"] = producer_epoch
        options["base_sequence"] = -1 if kind == "control" else sequence
        options["is_transactional"] = kind != "idempotent"
        options["is_control"] = kind == "control"
    if append_time is not None:
        options |= {"timestamp_type": LOG_APPEND_TIME, "log_append_time_ms": append_time}
    if horizon is not None:
        options["delete_horizon_ms"] = horizon
    if span is not None:
        options["base_offset"] = max(0, records[0].offset - span[0])
        options["last_offset"] = records[-1].offset + span[1]
    return options


def as_control(record: Record) -> Record:
    """The record with a key that a control record may have: a version, a type, perhaps bytes of a later version."""
    kind = len(record.value or b"") % 9  # two more than there are types
    key = struct.pack(">hh", 0, kind) + (record.key or b"")
    return Record(record.offset, record.timestamp, key, record.value, record.headers)


@st.composite
def drafts(draw: st.DrawFn, magics: Sequence[int] = (2, 2, 0, 1), max_size: int = 8) -> Draft:
    """Batches of every magic, codec and kind."""
    magic = draw(st.sampled_from(magics))
    records = draw(record_lists(with_headers=magic == 2, max_size=max_size))
    if magic == 2:
        options = _v2_options(draw, records)
        if options.get("is_control"):
            records = [as_control(record) for record in records]
        return Draft(records, 2, draw(_CODECS[2]), options)
    append_time = draw(_TIMES) if magic == 1 else None
    options = {} if append_time is None else {"timestamp_type": LOG_APPEND_TIME, "log_append_time_ms": append_time}
    return Draft(records, magic, draw(_CODECS[magic]), options)


# --- damage ----------------------------------------------------------------------------------------------------------


def mend(buffer: bytes) -> bytes:
    """Every batch that still has a readable size and magic, with its checksum made right."""
    out, position = b"", 0
    while True:
        try:
            batch = next_batch(buffer, position, INT31_MAX, None)
        except Refused:
            break
        if batch is None:
            break
        fix = batch_v2.with_crc if batch.magic == 2 else legacy.with_crc
        out += fix(batch.data)
        position += batch.size_in_bytes
    return out + buffer[position:]


@dataclass(frozen=True)
class Wound:
    """One change of a buffer; `where` is a fraction, so that it fits any buffer."""

    kind: str
    where: float
    width: int
    data: bytes

    def apply(self, buffer: bytes) -> bytes:
        at = int(self.where * len(buffer))
        end = at + self.width
        if self.kind == "cut":
            return buffer[:at]
        if self.kind == "remove":
            return buffer[:at] + buffer[end:]
        if self.kind == "insert":
            return buffer[:at] + self.data + buffer[at:]
        if self.kind == "copy":
            return buffer[:at] + buffer[at:end] + buffer[at:]
        if self.kind == "flip":
            return buffer[:at] + bytes(byte ^ 1 << self.width % 8 for byte in buffer[at : at + 1]) + buffer[at + 1 :]
        return buffer[:at] + self.data[: len(buffer) - at] + buffer[at + len(self.data) :]


# Lengths near 2^31, negative ones, and varints without end.
_NASTY = (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 4, b"\xff" * 11, b"\x80" * 10, b"\xfe\xff\xff\x0f")

_WOUNDS = st.builds(
    Wound,
    st.sampled_from(("flip", "flip", "set", "set", "cut", "remove", "insert", "copy")),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 24),
    st.binary(min_size=1, max_size=6) | st.sampled_from(_NASTY),
)
_OUTER_WOUNDS = st.lists(_WOUNDS, max_size=3)
_INNER_WOUNDS = st.lists(_WOUNDS, min_size=1, max_size=2)


@st.composite
def damaged_buffers(draw: st.DrawFn) -> bytes:
    """Batches, hurt; before compression, after it, or both; checksums and sizes mended or not."""
    written = []
    for draft in draw(st.lists(drafts(max_size=5), min_size=1, max_size=3)):
        if draw(st.booleans()):
            written.append(draft.by_reference())
            continue
        # Hurt behind compression: the batch is written plain, its records are changed and then compressed.
        written.append(_hurt_inside(draft, draw(_INNER_WOUNDS)))
    buffer = b"".join(written)
    for wound in draw(_OUTER_WOUNDS):
        buffer = wound.apply(buffer)
    return mend(buffer) if draw(st.booleans()) else buffer


def _hurt_inside(draft: Draft, changes: list[Wound]) -> bytes:
    plain = replace(draft, compression="none").by_reference()
    if draft.magic == 2:
        body = plain[batch_v2.HEADER_BYTES :]
        for wound in changes:
            body = wound.apply(body)
        packed = compression.compress(draft.compression, body)
        attributes = plain[22] & 0xF8 | CODEC_NAMES.index(draft.compression)
        size = batch_v2.HEADER_BYTES - 12 + len(packed)
        head = plain[:8] + size.to_bytes(4, "big") + plain[12:22] + bytes([attributes]) + plain[23:61]
        return batch_v2.with_crc(head + packed)
    for wound in changes:
        plain = wound.apply(plain)
    if draft.compression == "none":
        return mend(plain)
    packed = compression.compress(draft.compression, plain, draft.magic)
    offset = draft.records[-1].offset
    return legacy.encode_message(
        offset, None, packed, magic=draft.magic, timestamp=7, compression_name=draft.compression
    )


# --- Arrow -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrowDraft:
    """A table to be encoded, and the records that are in it."""

    table: pa.Table
    records: list[Record]


@st.composite
def bytes_types(draw: st.DrawFn, rows: Sequence[bytes | None]) -> pa.DataType:
    """One of the layouts that can hold these rows."""
    kinds = [pa.binary(), pa.large_binary(), pa.binary_view()]
    sizes = {len(row) for row in rows if row is not None}
    if not sizes:
        kinds.append(pa.null())
    elif len(sizes) == 1 and 0 not in sizes:
        kinds += [pa.binary(*sizes)] * 3
    return draw(st.sampled_from(kinds))


@st.composite
def headers_types(draw: st.DrawFn) -> pa.DataType:
    name = draw(st.sampled_from((pa.utf8(), pa.large_utf8(), pa.string_view(), pa.binary())))
    value = draw(st.sampled_from((pa.binary(), pa.large_binary(), pa.binary_view())))
    entry = pa.struct([("key", name), ("value", value)])
    return draw(st.sampled_from((pa.list_(entry), pa.large_list(entry), pa.map_(name, value))))


def _spares(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """What lies in an array beside the slice that is encoded, and must not be seen in the batch."""
    if pa.types.is_integer(kind):
        return st.sampled_from((0, 10**12))
    if pa.types.is_map(kind):
        return st.sampled_from((None, [("spare", b"a longer spare value")]))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.sampled_from((None, [{"key": "spare", "value": b"a longer spare value"}]))
    if pa.types.is_fixed_size_binary(kind):
        return st.sampled_from((None, b"!" * kind.byte_width))
    return st.none() if pa.types.is_null(kind) else st.sampled_from((None, b"spare", b"a longer spare value"))


@st.composite
def sliced_arrays(draw: st.DrawFn, rows: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of `rows` that begins and ends inside a longer one, so that its offset is not 0."""
    before, after, spare = draw(st.integers(0, 9)), draw(st.integers(0, 2)), draw(_spares(kind))
    return pa.array([spare] * before + rows + [spare] * after, kind).slice(before, len(rows))


@st.composite
def arrow_drafts(draw: st.DrawFn) -> ArrowDraft:
    """Tables of one chunk or two, each column in a layout of its own, sliced, with nulls; some columns missing."""
    records = [with_utf8_names(record) for record in draw(record_lists())]
    cut = draw(st.integers(0, len(records)))
    wanted = {"value"} | draw(st.sets(st.sampled_from(("offset", "timestamp", "key", "headers"))))
    fields: dict[str, pa.ChunkedArray] = {}
    for name in sorted(wanted):
        rows = [getattr(record, name) for record in records]
        if name in ("key", "value"):
            kind = draw(bytes_types(rows))
        elif name == "headers":
            kind = draw(headers_types())
            if not pa.types.is_map(kind):
                rows = [[{"key": name, "value": value} for name, value in row] for row in rows]
        else:
            kind = pa.int64()
        chunks = [draw(sliced_arrays(part, kind)) for part in (rows[:cut], rows[cut:]) if part]
        fields[name] = pa.chunked_array(chunks, kind)
    missing = {"timestamp": -1, "key": None, "headers": ()}
    expected = []
    for index, record in enumerate(records):
        seen = {name: getattr(record, name) if name in wanted else missing[name] for name in missing}
        expected.append(Record(record.offset if "offset" in wanted else index, value=record.value, **seen))
    return ArrowDraft(pa.table(fields), expected)


def with_utf8_names(record: Record) -> Record:
    """The record with U+FFFD in header names for what is no UTF-8, as columns have them."""
    pairs = tuple(
        (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value) for name, value in record.headers
    )
    return Record(record.offset, record.timestamp, record.key, record.value, pairs)
