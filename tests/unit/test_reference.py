"""The slow reference of the record format against bytes and verdicts of Apache Kafka."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reference import batch_v2, checksum, compression, control, legacy, murmur2, stream, validate, varint
from tests.reference.batch_v2 import BatchV2
from tests.reference.legacy import LegacyBatch
from tests.reference.model import RefKafkaError, RefRecord, Refused, increment_sequence

GOLDEN = Path(__file__).parent.parent / "golden"
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


def read_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def vectors() -> list[dict[str, Any]]:
    return read_lines("batches.jsonl.gz")


@pytest.fixture(scope="module")
def verdicts() -> list[dict[str, Any]]:
    return read_lines("verdicts.jsonl.gz")


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def golden_batches(vectors: list[dict[str, Any]]) -> Iterator[tuple[int, stream.Batch, dict[str, Any]]]:
    for line in vectors:
        buffer = bytes.fromhex(line["hex"])
        batches, consumed, damage = stream.decode_batches(buffer)
        assert (damage, consumed, len(batches)) == (None, len(buffer), len(line["batches"])), line["i"]
        for batch, expected in zip(batches, line["batches"], strict=True):
            yield line["i"], batch, expected


def encode_like(batch: BatchV2) -> bytes:
    return batch_v2.encode(
        batch.stored_records(),
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        compression_name=batch.compression,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        leader_epoch=batch.leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
    )


def test_golden_batches_cover_every_magic_codec_and_kind(vectors: list[dict[str, Any]]) -> None:
    kinds = {
        (batch["magic"], batch["compression"], batch["control"], batch["transactional"])
        for line in vectors
        for batch in line["batches"]
    }
    old = {(magic, codec, False, False) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")}
    new = {(2, codec, False, flag) for codec in ("none", "gzip", "snappy", "lz4", "zstd") for flag in (False, True)}
    assert kinds == old | new | {(2, "none", True, True)}


def test_golden_batches_decode_to_what_kafka_saw(vectors: list[dict[str, Any]]) -> None:
    for line, batch, expected in golden_batches(vectors):
        for theirs, ours in HEADER_NAMES.items():
            assert getattr(batch, ours) == expected[theirs], (line, ours)
        assert batch.timestamp_type == TIMESTAMP_TYPES[expected["timestampType"]], line
        assert batch.records() == [
            RefRecord(
                record["offset"],
                record["timestamp"],
                unhex(record["key"]),
                unhex(record["value"]),
                [(name.encode(), unhex(value)) for name, value in record["headers"]],
                record["sequence"],
            )
            for record in expected["records"]
        ], line


def test_golden_v2_batches_encode_again_to_the_same_bytes_when_uncompressed(vectors: list[dict[str, Any]]) -> None:
    count = 0
    for line, batch, _ in golden_batches(vectors):
        if isinstance(batch, BatchV2) and not batch.is_compressed:
            assert encode_like(batch) == batch.data, line
            count += 1
    assert count > 50


def test_golden_v2_batches_encode_again_to_the_same_records_when_compressed(vectors: list[dict[str, Any]]) -> None:
    for line, batch, _ in golden_batches(vectors):
        if isinstance(batch, BatchV2) and batch.is_compressed:
            again, _, damage = stream.decode_batches(encode_like(batch))
            assert damage is None, line
            assert again[0].records() == batch.records(), line


def test_golden_v0_and_v1_messages_encode_again(vectors: list[dict[str, Any]]) -> None:
    for line, batch, _ in golden_batches(vectors):
        if not isinstance(batch, LegacyBatch):
            continue
        again = legacy.encode_set(
            batch.records(),
            magic=batch.magic,
            base_offset=batch.base_offset,
            compression_name=batch.compression,
            timestamp_type=batch.timestamp_type if batch.magic else "create_time",
            log_append_time_ms=batch.max_timestamp,
        )
        if batch.is_compressed:
            reread = stream.decode_batches(again)[0][0]
            assert (reread.records(), reread.max_timestamp) == (batch.records(), batch.max_timestamp), line
        else:
            assert again == batch.data, line


def test_skimming_sees_the_offsets_timestamps_and_sizes_that_reading_sees(vectors: list[dict[str, Any]]) -> None:
    """REC-021: a whole read and one that skips keys and values give the same records for every codec."""
    for line, batch, _ in golden_batches(vectors):
        if isinstance(batch, BatchV2):
            whole = [
                (
                    record.offset,
                    record.timestamp,
                    record.sequence,
                    -1 if record.key is None else len(record.key),
                    -1 if record.value is None else len(record.value),
                    varint.size(length) + length,
                )
                for record, length in batch.iterate_with_lengths()
            ]
            skimmed = [
                (seen.offset, seen.timestamp, seen.sequence, seen.key_size, seen.value_size, seen.size_in_bytes)
                for seen in batch.skim()
            ]
            assert skimmed == whole, line


def test_every_verdict_of_kafka_on_odd_and_damaged_bytes_is_the_references_too(verdicts: list[dict[str, Any]]) -> None:
    """Batches, records and refusals; Kafka's own error where it has one, any refusal where Java's runtime has one."""
    refused_by_kafka = {"CorruptRecordException": "CORRUPT_MESSAGE", "InvalidRecordException": "INVALID_RECORD"}
    for verdict in verdicts:
        name = (verdict["name"], verdict["hex"])
        batches, _, damage = stream.decode_batches(bytes.fromhex(verdict["hex"]))
        assert (None if damage is None else damage.kafka) == refused_by_kafka.get(verdict["refused"]), name
        assert len(batches) == len(verdict["batches"]), name
        for batch, expected in zip(batches, verdict["batches"], strict=True):
            for field in ("magic", "lastOffset", "maxTimestamp", "baseSequence", "lastSequence"):
                assert getattr(batch, HEADER_NAMES[field]) == expected[field], name
            if expected["refused"] is not None:
                with pytest.raises(Refused) as caught:
                    batch.records()
                # Kafka decompresses while it parses, so damage in a record can come before damage in the stream.
                if caught.value.reason != "DECOMPRESSION":
                    assert refused_by_kafka.get(expected["refused"], caught.value.kafka) == caught.value.kafka, name
                continue
            # Java has replaced header names that are no UTF-8; those are compared by what is around them.
            assert [
                [record.offset, record.timestamp, record.sequence, record.key, record.value]
                + [[name.decode(errors="replace").encode(), value] for name, value in record.headers]
                for record in batch.records()
            ] == [
                record[:3]
                + [unhex(text) for text in record[3:5]]
                + [[unhex(text) for text in pair] for pair in record[5:]]
                for record in expected["records"]
            ], name


KAFKA_ERRORS = {
    "CorruptRecordException": "CORRUPT_MESSAGE",
    "InvalidRecordException": "INVALID_RECORD",
    "InvalidTimestampException": "INVALID_TIMESTAMP",
    "UnsupportedForMessageFormatException": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
}


def headers_and_records(data: bytes) -> list[tuple[dict[str, object], list[RefRecord]]]:
    """What a buffer holds, without what depends on how a library compresses."""
    found = []
    for batch in stream.decode_batches(data)[0]:
        header = batch.header()
        del header["crc"], header["size_in_bytes"]
        found.append((header, batch.records()))
    return found


def test_every_validation_of_kafka_ends_the_same_way_in_the_reference() -> None:
    accepted = 0
    for case in read_lines("validations.jsonl.gz"):
        rules = validate.Rules(**case["rules"])
        buffer, name = bytes.fromhex(case["hex"]), (case["hex"], case["rules"])
        if "refused" in case:
            with pytest.raises(RefKafkaError) as caught:
                validate.validate_and_assign(buffer, rules, case["sourceCodec"], case["offsetStart"])
            # An exception of Java's runtime has no code of its own; damage under compression is found in another order.
            if case["refused"] in KAFKA_ERRORS and "DECOMPRESSION" not in str(caught.value):
                assert caught.value.name == KAFKA_ERRORS[case["refused"]], name
                assert [index for index, _ in caught.value.record_errors] == case["recordErrors"], name
            continue
        accepted += 1
        result = validate.validate_and_assign(buffer, rules, case["sourceCodec"], case["offsetStart"])
        assert result.offset_next == case["offsetNext"], name
        assert result.max_timestamp == case["maxTimestamp"], name
        assert result.size_maybe_changed == case["sizeMaybeChanged"], name
        assert result.converted_count == case["convertedCount"], name
        assert result.temporary_bytes == case["temporaryBytes"], name
        theirs = bytes.fromhex(case["data"])
        if rules.target_codec == "none" or not result.size_maybe_changed:
            assert result.data == theirs, name
        else:
            assert headers_and_records(result.data) == headers_and_records(theirs), name
    assert accepted > 100


@pytest.mark.parametrize(("magic", "expected"), [(0, 1978725405), (1, 109425508), (2, 3851219455)])
def test_checksums_of_two_records_are_kafkas(magic: int, expected: int) -> None:
    """REC-123: the pinned checksums of two uncompressed records."""
    records = [RefRecord(0, 283843, b"key1", b"value1"), RefRecord(1, 1234, b"key2", b"value2")]
    encoded = batch_v2.encode(records) if magic == 2 else legacy.encode_set(records, magic=magic)
    assert stream.decode_batches(encoded)[0][0].crc == expected


def test_checksums_have_their_published_check_values() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283
    assert checksum.crc32(b"123456789") == 0xCBF43926
    long = b"Nobody inspects the spammish repetition"
    assert [checksum.xxhash32(data) for data in (b"", b"abc", long)] == [0x02CC5D05, 0x32D153FF, 0xE2293B2F]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2.murmur2(key) == expected
    assert murmur2.partition(key, 7) == (expected & 0x7FFFFFFF) % 7


@pytest.mark.parametrize("bits", [32, 64])
def test_varints_round_trip_at_every_width(bits: int) -> None:
    edges = {sign * (1 << power) + near for power in range(bits - 1) for sign in (1, -1) for near in (-1, 0, 1)}
    for value in edges | {2 ** (bits - 1) - 1, -(2 ** (bits - 1))}:
        encoded = varint.write(value)
        assert varint.read(encoded, 0, bits) == (value, len(encoded))


def test_sequences_wrap_to_zero() -> None:
    """REC-005: 5+5=10, int32max+1=0, (int32max-5)+10=4."""
    top = 2**31 - 1
    assert [increment_sequence(*pair) for pair in ((5, 5), (top, 1), (top - 5, 10))] == [10, 0, 4]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000])
def test_codecs_round_trip_and_stop_at_the_cap(codec: str, size: int) -> None:
    data = bytes(size // 2) + bytes(range(256)) * (size // 512 + 1)
    data = data[:size] if codec != "snappy" else data[: max(size, 1)]
    packed = compression.compress(codec, data)
    assert compression.decompress(codec, packed, 2, len(data)) == data
    if data:
        with pytest.raises(Refused) as caught:
            compression.decompress(codec, packed, 2, len(data) - 1)
        assert caught.value.reason == "DECOMPRESSED_SIZE"


def test_end_of_transaction_markers_are_read(vectors: list[dict[str, Any]]) -> None:
    ends = set()
    for _, batch, _ in golden_batches(vectors):
        if batch.is_control:
            for record in batch.records():
                name, epoch = control.end_transaction_marker(record)
                assert record.key == control.encode_key(name)
                assert record.value == control.encode_end_transaction_value(epoch)
                ends.add(name)
    assert ends == {"COMMIT", "ABORT"}


def produced(*records: RefRecord, **header: Any) -> bytes:
    records = records or (
        RefRecord(0, 1000, b"k", b"v"),
        RefRecord(1, 3000, b"k", b"v"),
        RefRecord(2, 2000, b"k", b"v"),
    )
    return batch_v2.encode(records, **header)


def rules(**changes: Any) -> validate.Rules:
    return replace(validate.Rules(now_ms=3000, target_codec="none", leader_epoch=4), **changes)


def test_validation_patches_offset_epoch_and_newest_timestamp_in_place() -> None:
    """REC-146: the max timestamp comes from the records, whatever the producer wrote."""
    buffer = produced(max_timestamp=9, leader_epoch=0)
    result = validate.validate(buffer, rules(), offset_start=50)
    assert result.data == batch_v2.encode(
        [replace(record, offset=record.offset + 50) for record in stream.decode_batches(buffer)[0][0].records()],
        leader_epoch=4,
    )
    assert (result.offset_next, result.max_timestamp, result.size_maybe_changed) == (53, 3000, False)


def test_validation_recompresses_when_the_codec_changes() -> None:
    result = validate.validate(produced(compression_name="lz4"), rules(target_codec="gzip"), offset_start=7)
    (batch,), _, damage = stream.decode_batches(result.data)
    assert (damage, batch.compression, batch.base_offset, batch.leader_epoch) == (None, "gzip", 7, 4)
    assert (result.size_maybe_changed, result.converted_count) == (True, 3)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_timestamp_beyond_the_limit_names_its_record(codec: str) -> None:
    """REC-138: a difference equal to the limit is accepted, one more is not."""
    buffer = produced(compression_name=codec)
    accepted = rules(target_codec=codec, timestamp_before_max_ms=2000)
    assert validate.validate(buffer, accepted).offset_next == 3
    with pytest.raises(RefKafkaError) as caught:
        validate.validate(buffer, replace(accepted, timestamp_before_max_ms=1999))
    assert (caught.value.name, caught.value.record_errors) == ("INVALID_TIMESTAMP", ((0, "INVALID_TIMESTAMP"),))


def test_a_wrong_record_length_passes_only_the_skimming_validation() -> None:
    record = batch_v2.encode_record(RefRecord(0, 0, b"k", b"v"), 0, 0)
    plain = varint.write(record[0] // 2 + 1) + record[1:]
    good = produced(RefRecord(0, 0, b"k", b"v"), compression_name="gzip")
    payload = compression.compress("gzip", plain)
    size = (len(payload) + batch_v2.HEADER_BYTES - 12).to_bytes(4, "big")
    buffer = batch_v2.with_crc(good[:8] + size + good[12 : batch_v2.HEADER_BYTES] + payload)
    kafkas = rules(target_codec="gzip")
    assert validate.validate(buffer, kafkas).offset_next == 1
    with pytest.raises(RefKafkaError) as caught:
        validate.validate(buffer, replace(kafkas, skim=False))
    assert caught.value.name == "INVALID_RECORD"


@pytest.mark.parametrize(
    ("buffer", "changes", "name"),
    [
        pytest.param(b"", {}, "INVALID_RECORD", id="no batch"),
        pytest.param(produced() * 2, {}, "INVALID_RECORD", id="two v2 batches"),
        pytest.param(produced(last_offset=3), {}, "INVALID_RECORD", id="count and offsets disagree"),
        pytest.param(produced(is_control=True), {}, "INVALID_RECORD", id="a control batch of a client"),
        pytest.param(produced(producer_id=1, producer_epoch=0), {}, "INVALID_RECORD", id="a producer without sequence"),
        pytest.param(produced(RefRecord(0, 1000, None, b"v")), {"compacted": True}, "INVALID_RECORD", id="no key"),
        pytest.param(
            produced(producer_id=1, producer_epoch=0, base_sequence=0),
            {"to_magic": 1},
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            id="idempotence in magic 1",
        ),
        pytest.param(produced()[:-1] + b"\x02", {}, "CORRUPT_MESSAGE", id="a wrong checksum"),
    ],
)
def test_validation_answers_with_kafkas_error(buffer: bytes, changes: dict[str, Any], name: str) -> None:
    with pytest.raises(RefKafkaError) as caught:
        validate.validate(buffer, rules(**changes))
    assert caught.value.name == name


def test_a_batch_over_the_limit_is_too_large_by_one_byte() -> None:
    buffer = produced()
    assert validate.validate(buffer, rules(), batch_bytes_max=len(buffer)).offset_next == 3
    with pytest.raises(RefKafkaError) as caught:
        validate.validate(buffer, rules(), batch_bytes_max=len(buffer) - 1)
    assert caught.value.name == "MESSAGE_TOO_LARGE"
