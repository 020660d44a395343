"""Batches written by Apache Kafka, and Kafka's verdicts on odd and damaged ones, against every reader and writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logcore import (
    Batch,
    CorruptBatch,
    Record,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_columns,
    encode_transaction_marker,
)
from logcore.errors import CorruptMessageError, InvalidRecordError
from tests.helpers import LAYOUTS, facts, golden_lines, rows

TIMESTAMP_TYPES = {"CreateTime": "create_time", "LogAppendTime": "log_append_time", "NoTimestampType": "none"}
HEADER_NAMES = {
    "magic": "magic",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "sizeInBytes": "size_in_bytes",
    "crc": "crc",
    "compression": "compression",
    "maxTimestamp": "max_timestamp",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "leaderEpoch": "leader_epoch",
    "transactional": "is_transactional",
    "control": "is_control",
}
VERDICT_FIELDS = ("magic", "lastOffset", "maxTimestamp", "baseSequence", "lastSequence")
REFUSALS = {"CorruptRecordException": CorruptMessageError, "InvalidRecordException": InvalidRecordError}


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def expected_record(record: dict[str, Any]) -> Record:
    headers = tuple((name, unhex(value)) for name, value in record["headers"])
    return Record(record["offset"], record["timestamp"], unhex(record["key"]), unhex(record["value"]), headers)


@pytest.fixture(scope="module")
def vectors() -> list[tuple[int, bytes, list[dict[str, Any]]]]:
    """Number, bytes and what Kafka saw in them, a line."""
    lines = golden_lines("batches.jsonl.gz")
    assert len(lines) == 392
    return [(line["i"], bytes.fromhex(line["hex"]), line["batches"]) for line in lines]


@pytest.fixture(scope="module")
def uncompressed(vectors: list[tuple[int, bytes, list[dict[str, Any]]]]) -> list[Batch]:
    found = [batch for _, data, _ in vectors for batch in decode_batches(data) if batch.magic == 2]
    return [batch for batch in found if not batch.is_compressed]


def options_of(batch: Batch) -> dict[str, Any]:
    """What encode_batch() must be told to write this batch again."""
    log_append_time = batch.timestamp_type == "log_append_time"
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "compression": batch.compression,
        "timestamp_type": batch.timestamp_type,
        "log_append_time_ms": batch.max_timestamp if log_append_time else None,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }


def test_rows_are_what_kafka_saw(vectors: list[tuple[int, bytes, list[dict[str, Any]]]]) -> None:
    for line, data, expected in vectors:
        batches = decode_batches(data)
        for batch, fields in zip(batches, expected, strict=True):
            for theirs, ours in HEADER_NAMES.items():
                assert getattr(batch, ours) == fields[theirs], (line, ours)
            assert batch.timestamp_type == TIMESTAMP_TYPES[fields["timestampType"]], line
            assert list(batch) == [expected_record(record) for record in fields["records"]], line
        assert batches.consumed == len(data), line


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes_max", [None, 1, 3000])
def test_columns_are_what_kafka_saw(
    vectors: list[tuple[int, bytes, list[dict[str, Any]]]], layout: str, chunk_bytes_max: int | None
) -> None:
    chunked = 0
    for line, data, expected in vectors:
        columns = decode_columns(data, layout=layout, chunk_bytes_max=chunk_bytes_max)
        records = [expected_record(record) for fields in expected for record in fields["records"]]
        assert list(columns) == records, line
        assert (len(columns), columns.consumed) == (len(records), len(data)), line
        assert columns.offset.tolist() == [record.offset for record in records], line
        assert columns.timestamp.tolist() == [record.timestamp for record in records], line
        chunked += len(columns.chunks) > 1
    assert (chunked > 0) == (chunk_bytes_max is not None)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes_max", [None, 20_000])
def test_all_batches_in_one_buffer_are_one_set_of_columns(
    vectors: list[tuple[int, bytes, list[dict[str, Any]]]], layout: str, chunk_bytes_max: int | None
) -> None:
    data = b"".join(data for _, data, _ in vectors)
    columns = decode_columns(data, layout=layout, chunk_bytes_max=chunk_bytes_max)
    assert (chunk_bytes_max is None) == (len(columns.chunks) == 1)
    assert list(columns) == [
        expected_record(record) for _, _, expected in vectors for fields in expected for record in fields["records"]
    ]
    types = decode_columns(data, columns=("timestamp_type",), layout=layout).timestamp_type.tolist()
    numbers = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
    assert types == [
        numbers[fields["timestampType"]] for _, _, expected in vectors for fields in expected for _ in fields["records"]
    ]


def test_a_projection_gives_the_columns_it_names_and_no_others(
    vectors: list[tuple[int, bytes, list[dict[str, Any]]]],
) -> None:
    data = b"".join(data for _, data, _ in vectors)
    whole = decode_columns(data).to_numpy()
    for name, column in whole.items():
        alone = decode_columns(data, columns=(name,)).to_numpy()
        assert list(alone) == [name]
        assert alone[name].tolist() == column.tolist()


def test_uncompressed_batches_are_written_again_byte_for_byte(uncompressed: list[Batch]) -> None:
    kinds = {(batch.timestamp_type, batch.is_control, batch.is_transactional) for batch in uncompressed}
    assert len(uncompressed) > 50
    assert {kind for kind, _, _ in kinds} == {"create_time", "log_append_time"}
    assert (True, True) in {(control, transactional) for _, control, transactional in kinds}
    for batch in uncompressed:
        again = encode_batch(batch.records(stored_timestamps=True), **options_of(batch))
        assert again == bytes(batch.data), batch


@pytest.mark.parametrize("layout", LAYOUTS)
def test_uncompressed_batches_are_written_again_from_columns(uncompressed: list[Batch], layout: str) -> None:
    """Of create time only: columns have the times that readers see, and log append time hides what was stored."""
    written = 0
    for batch in uncompressed:
        if batch.timestamp_type == "create_time" and batch.count:
            columns = decode_columns(batch.data, layout=layout)
            again = encode_columns(columns, batch_bytes=2**31 - 1, **options_of(batch))
            assert again == bytes(batch.data), batch
            written += 1
    assert written > 30


def test_transaction_markers_are_written_again_byte_for_byte(uncompressed: list[Batch]) -> None:
    markers = [batch for batch in uncompressed if batch.is_control]
    assert {marker.type for batch in markers for marker in batch.control_records()} == {"COMMIT", "ABORT"}
    for batch in markers:
        (marker,) = batch.control_records()
        again = encode_transaction_marker(
            batch.producer_id,
            batch.producer_epoch,
            commit=marker.type == "COMMIT",
            coordinator_epoch=marker.coordinator_epoch,
            offset=batch.base_offset,
            timestamp=marker.timestamp,
            leader_epoch=batch.leader_epoch,
        )
        assert again == bytes(batch.data)


def test_compressed_batches_are_written_again_with_the_same_header_and_records(
    vectors: list[tuple[int, bytes, list[dict[str, Any]]]],
) -> None:
    for line, data, _ in vectors:
        for batch in decode_batches(data):
            if batch.magic == 2 and batch.is_compressed:
                again = next(decode_batches(encode_batch(batch.records(stored_timestamps=True), **options_of(batch))))
                for ours in set(HEADER_NAMES.values()) - {"size_in_bytes", "crc"}:
                    assert getattr(again, ours) == getattr(batch, ours), (line, ours)
                assert list(again) == list(batch), line
                assert list(again.records(stored_timestamps=True)) == list(batch.records(stored_timestamps=True)), line


def test_old_messages_are_written_again(vectors: list[tuple[int, bytes, list[dict[str, Any]]]]) -> None:
    for line, data, _ in vectors:
        for batch in decode_batches(data):
            if batch.magic == 2:
                continue
            stamped = batch.timestamp_type == "log_append_time"
            again = encode_batch(
                batch,
                magic=batch.magic,
                compression=batch.compression,
                timestamp_type="log_append_time" if stamped else "create_time",
                log_append_time_ms=batch.max_timestamp if stamped else None,
            )
            if not batch.is_compressed:
                assert again == bytes(batch.data), line
            assert rows(again) == list(batch), line


# ---------------------------------------------------------------------------------------------------------- verdicts


def our_verdict(data: bytes) -> list[Any]:
    """What rows say of a buffer: for each batch its header fields and its records or its refusal, then the end."""
    batches, found = decode_batches(data), []
    try:
        for batch in batches:
            header = [getattr(batch, HEADER_NAMES[field]) for field in VERDICT_FIELDS]
            try:
                # Java has replaced header names that are no UTF-8; those are compared by what is around them.
                content: object = [
                    [record.offset, record.timestamp, record.key, record.value]
                    + [[replaced_name(name), value] for name, value in record.headers]
                    for record in batch
                ]
            except CorruptBatch as error:
                content = error
            found.append((header, content))
    except CorruptBatch as error:
        return [*found, error]
    return [*found, None]


def agree(ours: object, theirs: object) -> bool:
    """Two contents or two refusals: with Kafka's own error where it has one, any where Java's runtime has one.

    Kafka decompresses while it parses, so for it damage in a record can come before damage in the stream.
    """
    if isinstance(ours, CorruptBatch) and isinstance(theirs, str):
        return theirs not in REFUSALS or ours.reason.name == "DECOMPRESSION" or ours.kafka_error is REFUSALS[theirs]
    return ours == theirs


# Streams that Kafka's readers take although their codec's own rules, or what follows the first frame, say that they are
# damaged. Refusing them loses nothing that a writer wrote; reading them would hide that something did not arrive.
STRICTER = [
    "gzip: reserved flags",
    "lz4: an empty block at the end",
    "lz4: an empty block, then junk",
    "snappy: a damaged later header at the end",
    "zstd: 2 bytes of a second frame",
    "zstd: cut second frame after its header",
    "zstd: cut skippable",
]


def test_every_verdict_of_kafka_on_odd_and_damaged_bytes_is_ours_too() -> None:
    """Batches, records and refusals."""
    differing, refused = [], 0
    for verdict in golden_lines("verdicts.jsonl.gz"):
        *batches, end = our_verdict(bytes.fromhex(verdict["hex"]))
        kafkas = [
            (
                [expected[field] for field in VERDICT_FIELDS],
                expected["refused"]
                or [
                    record[:2]
                    + [unhex(text) for text in record[3:5]]
                    + [[unhex(text) for text in pair] for pair in record[5:]]
                    for record in expected["records"]
                ],
            )
            for expected in verdict["batches"]
        ]
        refused += any(isinstance(content, str) for _, content in kafkas) or verdict["refused"] is not None
        if (
            [header for header, _ in batches] != [header for header, _ in kafkas]
            or not all(agree(ours, theirs) for (_, ours), (_, theirs) in zip(batches, kafkas, strict=True))
            or not agree(end, verdict["refused"])
        ):
            differing.append(verdict["name"])
    assert sorted(differing) == sorted(STRICTER)
    assert refused > 100


def replaced_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").decode(errors="replace").encode()


def attempt(read: Callable[..., Any], data: bytes, **options: Any) -> tuple[Any, CorruptBatch | None]:
    """What a reader gives, or why it refuses."""
    try:
        return read(data, **options), None
    except CorruptBatch as error:
        return None, error


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_refuse_or_read_what_rows_refuse_or_read(layout: str) -> None:
    """On the same odd and damaged bytes: the same error at the same place, or the same records."""
    for verdict in golden_lines("verdicts.jsonl.gz"):
        data = bytes.fromhex(verdict["hex"])
        expected, refused = attempt(rows, data)
        columns, also_refused = attempt(decode_columns, data, layout=layout)
        if refused is not None:
            assert also_refused is not None, (verdict["name"], verdict["hex"])
            assert facts(also_refused) == facts(refused), (verdict["name"], verdict["hex"])
            continue
        assert also_refused is None, (verdict["name"], verdict["hex"])
        assert columns.offset.tolist() == [record.offset for record in expected]
        assert columns.timestamp.tolist() == [record.timestamp for record in expected]
        for record, theirs in zip(columns, expected, strict=True):
            assert (record.key, record.value) == (theirs.key, theirs.value)
            # In columns a name is text, so what is no UTF-8 is replaced there and kept in rows.
            assert [(name.encode(), value) for name, value in record.headers] == [
                (replaced_name(name), value) for name, value in theirs.headers
            ]
