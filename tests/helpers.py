"""What several tests share: batches built byte by byte, and one question put to every reader.

Bytes that no writer of ours would write come from here or from `tests.reference`, never from the code under test.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from logcore import CorruptBatch, Record, decode_batches, decode_columns
from logcore.errors import error_for_name
from tests.reference import batch_v2, compression, stream, varint
from tests.reference.model import RefRecord, Refused, codec_id

GOLDEN = Path(__file__).parent / "golden"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_BY_MAGIC = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
LAYOUTS = ("binary", "view")


def golden_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt") as lines:
        return [json.loads(line) for line in lines]


def sized(data: bytes | None) -> bytes:
    """A key, a value or half a header: its length as a varint, and its bytes."""
    return varint.write(-1) if data is None else varint.write(len(data)) + data


def with_length(body: bytes) -> bytes:
    """A v2 record from what follows its length."""
    return varint.write(len(body)) + body


def v2_batch(
    payload: bytes,
    count: int,
    *,
    codec: str = "none",
    attributes: int = 0,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    base_sequence: int = -1,
) -> bytes:
    """A v2 batch with a right checksum around any payload and any count."""
    packed = compression.compress(codec, payload, 2)
    header = batch_v2.HEADER.pack(
        base_offset,
        batch_v2.HEADER_BYTES - 12 + len(packed),
        -1,
        2,
        0,
        attributes | codec_id(codec),
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        base_sequence,
        count,
    )
    return batch_v2.with_crc(header + packed)


def replaced(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def rows(buffer: Any, **options: Any) -> list[Record]:
    """Every record of a buffer, read as rows."""
    return [record for batch in decode_batches(buffer, **options) for record in batch]


def only_batch(buffer: Any, **options: Any) -> Any:
    (batch,) = decode_batches(buffer, **options)
    return batch


def as_row(record: RefRecord) -> tuple[Any, ...]:
    """A record of the reference as the fields of ours; not as a Record, which only holds what may be written."""
    headers = tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers)
    return record.offset, record.timestamp, record.key, record.value, headers


def same_in_every_reader(buffer: Any, **options: Any) -> list[Record]:
    """The records of a buffer, after rows, both column layouts, a projection and the reference have agreed on them."""
    found = rows(buffer, **options)
    for layout in LAYOUTS:
        assert list(decode_columns(buffer, layout=layout, **options)) == found
    assert decode_columns(buffer, columns=("offset",), **options).offset.tolist() == [row.offset for row in found]
    batches, consumed, damage = stream.decode_batches(bytes(buffer), **options)
    assert damage is None
    assert [as_row(record) for batch in batches for record in batch.records()] == [tuple(row) for row in found]
    assert decode_columns(buffer, **options).consumed == consumed
    return found


def refusal(buffer: Any, *, same_code: bool = True, **options: Any) -> CorruptBatch:
    """The error of a damaged buffer, after rows, columns of every kind and the reference have refused it alike.

    same_code: False where Kafka has no error of its own to agree on, but an exception of Java's runtime.
    """
    with pytest.raises(CorruptBatch) as caught:
        rows(buffer, **options)
    error = caught.value
    for columns in ({"layout": "binary"}, {"layout": "view"}, {"columns": ("offset",)}):
        with pytest.raises(CorruptBatch) as caught:
            decode_columns(buffer, **columns, **options)
        assert facts(caught.value) == facts(error), (columns, str(caught.value), str(error))
    assert error.position is not None
    theirs = reference_refusal(bytes(buffer), **options)
    assert not same_code or error.kafka_error is error_for_name(theirs.kafka), (str(error), str(theirs))
    return error


def facts(error: CorruptBatch) -> dict[str, Any]:
    """Every attribute of an error but the offset: who finds damage in a header need not know it."""
    return {name: fact for name, fact in vars(error).items() if name != "offset"}


def reference_refusal(buffer: bytes, **options: Any) -> Refused:
    """What the reference says against a buffer: of the records of the first bad batch, or of the buffer itself."""
    batches, _, damage = stream.decode_batches(buffer, **options)
    try:
        for batch in batches:
            batch.records()
    except Refused as refused:
        return refused
    assert damage is not None, "the reference reads what ours refuses"
    return damage


def ref_records(records: Iterable[Record]) -> list[RefRecord]:
    return [
        RefRecord(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers],
        )
        for record in records
    ]
