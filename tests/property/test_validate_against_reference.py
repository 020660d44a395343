"""The validator against the slow reference and against Kafka's own verdicts, on good, odd and damaged buffers.

Where logcore is stricter by design (said in _validate.pyx) the reference's verdict is turned into the stricter one
here, in `expected`, and nowhere else.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from logcore import CorruptBatch, KafkaError
from logcore._compression import decompress
from logcore._validate import AppendBatch, validate, validate_and_assign
from tests.reference import batch_v2, compression, legacy, stream
from tests.reference import validate as reference
from tests.reference.batch_v2 import BatchV2
from tests.reference.builder import build
from tests.reference.legacy import LegacyBatch
from tests.reference.model import RefKafkaError, RefRecord, Refused
from tests.reference.stream import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "validations.jsonl.gz"
OFFSET_START = 1234567


@dataclass(frozen=True)
class Verdict:
    """What is to come out: bytes and numbers, or the names of the errors of which one is to be raised."""

    names: tuple[str, ...] = ()
    indexes: list[int] | None = None  # of record errors; None: not compared
    validated: reference.Validated | None = None
    is_renumbered: bool = False  # rebuilt by logcore where Kafka keeps offsets that are not 0, 1, 2, …


def options(rules: reference.Rules) -> dict[str, Any]:
    """The rules as logcore's keywords, for what the validator alone does."""
    return {
        "now_ms": rules.now_ms,
        "timestamp_type": rules.timestamp_type,
        "timestamp_before_max_ms": rules.timestamp_before_max_ms,
        "timestamp_after_max_ms": rules.timestamp_after_max_ms,
        "compacted": rules.compacted,
        "compression": "uncompressed" if rules.target_codec == "none" else rules.target_codec,
        # To the validator every origin but the client is the same. logcore takes a follower's batches unvalidated.
        "origin": "client" if rules.origin == "client" else "coordinator",
        "magic": rules.to_magic,
        "leader_epoch": rules.leader_epoch,
        "check_base_offset": False,
    }


def expected(buffer: bytes, rules: reference.Rules, offset_start: int, analyzed_codec: str | None = None) -> Verdict:
    """The reference's verdict, made as strict as logcore's; with `analyzed_codec`, of the look at records alone."""
    rules = replace(rules, skim=False)
    batches, _, _ = stream.decode_batches(buffer, verify_crc=False)
    if any(batch.is_control and not batch.is_compressed for batch in batches) and rules.to_magic == 2:
        # Control records stay as they came; Kafka compresses them, as ordinary ones, if their offsets are odd.
        rules = replace(rules, target_codec="none")
    try:
        if analyzed_codec is None:
            validated = reference.validate(buffer, rules, offset_start)
        else:
            validated = reference.validate_and_assign(buffer, rules, analyzed_codec, offset_start)
        verdict = Verdict(validated=validated)
    except RefKafkaError as refused:
        # Java's runtime, not Kafka, has refused: a client sees UNKNOWN_SERVER_ERROR, logcore says what it is about.
        name = "INVALID_RECORD" if refused.name == "UNKNOWN_SERVER_ERROR" else refused.name
        if name != refused.name and rules.target_codec == "zstd" and rules.to_magic < 2:
            name = "UNSUPPORTED_COMPRESSION_TYPE"
        is_nested = "NESTED_COMPRESSION" in str(refused)  # logcore lists that record
        indexes = None if is_nested else [index for index, _ in refused.record_errors]
        verdict = Verdict((name,), indexes)
    if any(batch.is_control for batch in batches) and rules.to_magic < 2:
        # Kafka makes ordinary messages of a control batch.
        verdict = Verdict((*verdict.names, "UNSUPPORTED_FOR_MESSAGE_FORMAT"))
    damage = damages(batches)
    if damage and rules.to_magic < 2 and any(batch.is_transactional or batch.producer_id > -1 for batch in batches):
        damage.append("UNSUPPORTED_FOR_MESSAGE_FORMAT")  # which of the two Kafka finds first depends on its way
    if damage:
        # Kafka does not read everything; logcore does, and tells of damage before it tells of rules.
        return Verdict((*verdict.names, *damage))
    if verdict.validated is not None and len(batches) == 1 and is_kept_with_odd_offsets(batches[0], verdict.validated):
        return renumbered(batches[0], verdict.validated, rules, offset_start)
    return verdict


def renumbered(batch: Batch, kept: reference.Validated, rules: reference.Rules, offset_start: int) -> Verdict:
    try:
        built = build(
            batch.records(),
            first_batch=batch,
            base_offset=offset_start,
            magic=2,
            codec="none",
            level=None,
            timestamp_type=rules.timestamp_type,
            now_ms=rules.now_ms,
            leader_epoch=rules.leader_epoch,
        )
    except RefKafkaError:
        return Verdict(("INVALID_RECORD",), [], is_renumbered=True)
    count = kept.offset_next - offset_start
    validated = replace(kept, data=built.data, size_maybe_changed=True, converted_count=count)
    return Verdict(validated=validated, is_renumbered=True)


def damages(batches: list[Batch]) -> list[str]:
    """The errors for records that no reader could read, if there are any."""
    found = []
    for batch in batches:
        if isinstance(batch, BatchV2) and batch.count == 0 and batch.size_in_bytes > batch_v2.HEADER_BYTES:
            # Kafka looks at nothing behind the header of an empty batch, logcore decompresses it and finds bytes.
            found += ["INVALID_RECORD", "CORRUPT_MESSAGE"] if batch.is_compressed else ["INVALID_RECORD"]
        try:
            batch.records()
        except Refused as refused:
            found.append(refused.kafka)
            if isinstance(batch, LegacyBatch) and refused.reason == "RECORD_TRUNCATED":
                found.append("CORRUPT_MESSAGE")  # to logcore its size is wrong; Java's runtime stumbles over the end
            if isinstance(batch, LegacyBatch) and batch.is_compressed and has_unsound_message(batch):
                found.append("CORRUPT_MESSAGE")  # damaged in two ways at once, which logcore may tell first
    return found


def has_unsound_message(batch: LegacyBatch) -> bool:
    try:
        return not all(message.crc_is_right() for _, message in batch._inner_messages())
    except Refused:
        return False


def is_kept_with_odd_offsets(batch: Batch, validated: reference.Validated) -> bool:
    if not isinstance(batch, BatchV2) or batch.is_compressed or batch.is_control or validated.size_maybe_changed:
        return False
    return [record.offset for record in batch.records()] != [batch.base_offset + index for index in range(batch.count)]


def headers_and_records(data: bytes) -> list[tuple[dict[str, object], list[RefRecord]]]:
    """What a buffer holds, without what depends on how a library compresses."""
    found = []
    for batch in stream.decode_batches(data)[0]:
        header = batch.header()
        del header["crc"], header["size_in_bytes"]
        header["attributes"] = batch.attributes & ~0x20
        header["is_control"] = False  # compared in a unit test: logcore keeps the bit where Kafka drops it
        found.append((header, batch.records()))
    return found


def check(buffer: bytes, rules: reference.Rules, verdict: Verdict, offset_start: int, verify_crc: bool = True) -> None:
    """Both functions of logcore, on a read-only and on a writable buffer, end as `verdict` says."""
    keywords = {**options(rules), "verify_crc": verify_crc}
    writable = bytearray(buffer)
    if verdict.names:
        for run in (
            lambda: validate(buffer, **keywords),
            lambda: validate_and_assign(buffer, first_offset=offset_start, **keywords),
            lambda: validate_and_assign(writable, first_offset=offset_start, **keywords),
        ):
            with pytest.raises(KafkaError) as caught:
                run()
            assert caught.value.name in verdict.names, str(caught.value)
            if verdict.indexes is not None:
                assert [error.index for error in caught.value.record_errors] == verdict.indexes
        assert writable == buffer
        return
    validated = verdict.validated
    assert validated is not None
    looked = validate(buffer, **keywords)
    made = validate_and_assign(buffer, first_offset=offset_start, **keywords)
    also_made = validate_and_assign(writable, first_offset=offset_start, **keywords)
    assert bytes(also_made.data) == bytes(made.data)
    assert bytes(writable[looked.consumed :]) == buffer[looked.consumed :]
    if made.converted:
        assert writable == buffer
    assert (looked.in_place, looked.record_count) == (not made.converted, made.record_count)
    assert (made.first_offset, made.last_offset) == (offset_start, validated.offset_next - 1)
    assert made.max_timestamp == looked.max_timestamp == validated.max_timestamp
    assert made.log_append_time_ms == (rules.now_ms if rules.timestamp_type == "log_append_time" else -1)
    assert made.converted == validated.size_maybe_changed
    assert made.converted_count == validated.converted_count
    if made.converted:
        assert headers_and_records(bytes(made.data)) == headers_and_records(validated.data)
    else:
        assert bytes(made.data) == validated.data


# --- what is tried -------------------------------------------------------------------------------------------------

small_bytes = st.none() | st.binary(max_size=6)
moments = st.sampled_from([0, 5, 1_000, 1_700_000_000_000])
near = st.sampled_from([-1, -1, 0, 1, 5, 900, 1_000, 1_001, 1_699_999_999_000, 1_700_000_000_050, 2**62])
codec_names = st.sampled_from(["none", "none", "gzip", "snappy", "lz4", "zstd"])
records = st.lists(
    st.tuples(near, small_bytes, small_bytes, st.lists(st.tuples(st.binary(max_size=3), small_bytes), max_size=2)),
    min_size=1,
    max_size=5,
)


@st.composite
def all_rules(draw: st.DrawFn) -> reference.Rules:
    to_magic = draw(st.sampled_from([2, 2, 2, 1, 0]))
    codec = draw(codec_names)
    return reference.Rules(
        now_ms=draw(moments),
        target_codec="lz4" if codec == "zstd" and to_magic < 2 else codec,
        compacted=draw(st.booleans()),
        to_magic=to_magic,
        timestamp_type=draw(st.sampled_from(["create_time", "log_append_time"])),
        timestamp_before_max_ms=draw(st.sampled_from([2**63 - 1, 2**63 - 1, 60, 1_000])),
        timestamp_after_max_ms=draw(st.sampled_from([2**63 - 1, 2**63 - 1, 60, 1_000])),
        leader_epoch=draw(st.sampled_from([-1, 3])),
        origin=draw(st.sampled_from(["client", "client", "coordinator"])),
    )


@st.composite
def produced(draw: st.DrawFn) -> bytes:
    """One batch or message set, mostly as a producer sends it."""
    magic = draw(st.sampled_from([2, 2, 2, 1, 0]))
    codec = draw(codec_names)
    rows = draw(records)
    base = draw(st.sampled_from([0, 0, 0, 7]))
    step = draw(st.sampled_from([1, 1, 1, 2]))
    stamp = draw(st.sampled_from(["create_time", "create_time", "create_time", "log_append_time"]))
    numbered = [
        RefRecord(base + step * index, timestamp, key, value, headers if magic == 2 else [])
        for index, (timestamp, key, value, headers) in enumerate(rows)
    ]
    if magic < 2:
        return legacy.encode_set(
            numbered,
            magic=magic,
            base_offset=numbered[0].offset,
            compression_name="lz4" if codec == "zstd" else codec,
            timestamp_type=stamp,
            log_append_time_ms=draw(near),
        )
    producer = draw(st.sampled_from([(-1, -1, -1), (-1, -1, -1), (9, 0, 0), (9, 0, -1), (9, -1, 4), (-5, 0, 0)]))
    return batch_v2.encode(
        numbered,
        base_offset=base,
        compression_name=codec,
        timestamp_type=stamp,
        log_append_time_ms=draw(near),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=draw(st.sampled_from([False, False, True])),
        is_control=draw(st.sampled_from([False, False, False, True])),
        delete_horizon_ms=draw(st.sampled_from([None, None, None, 77])),
    )


buffers = st.lists(produced(), min_size=1, max_size=2).map(b"".join) | produced()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A buffer with bytes changed, put in or taken out; mostly with sizes and checksums made right again."""
    data = bytearray(draw(buffers))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["set", "set", "set", "insert", "remove"]))
        if kind == "set":
            data[at] = draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=3))
        elif len(data) > 1:
            del data[at]
    return mended(bytes(data)) if draw(st.sampled_from([True, True, False])) else bytes(data)


def mended(data: bytes) -> bytes:
    """Size and checksum of the first batch made right; what follows it is taken into it."""
    if len(data) < 26:
        return data
    data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    if data[16] == 2:
        return batch_v2.with_crc(data) if len(data) >= batch_v2.HEADER_BYTES else data
    return legacy.with_crc(data)


@given(buffers, all_rules())
def test_good_and_odd_buffers_end_as_in_the_reference(buffer: bytes, rules: reference.Rules) -> None:
    verdict = expected(buffer, rules, OFFSET_START)
    event("refused: " + verdict.names[0] if verdict.names else "accepted")
    check(buffer, rules, verdict, OFFSET_START)


def codecs_agree(buffer: bytes) -> bool:
    """Whether both sides read the same out of what is compressed; if not, that is for the tests of the codecs."""
    for batch in stream.decode_batches(buffer, verify_crc=False)[0]:
        if not 0 < batch.codec_id <= 4:
            continue
        try:
            packed = batch.data[61:] if isinstance(batch, BatchV2) else batch.message.key_and_value()[1] or b""
        except Refused:
            continue
        try:
            theirs = compression.decompress(batch.compression, packed, batch.magic, 2**20)
        except Refused:
            theirs = None
        try:
            ours = decompress(batch.codec_id, packed, 2**20, magic=batch.magic)
        except CorruptBatch:
            ours = None
        if ours != theirs:
            return False
    return True


@given(damaged(), all_rules())
def test_damaged_buffers_end_as_in_the_reference(buffer: bytes, rules: reference.Rules) -> None:
    assume(codecs_agree(buffer))
    verdict = expected(buffer, rules, OFFSET_START)
    event("refused: " + verdict.names[0] if verdict.names else "accepted")
    check(buffer, rules, verdict, OFFSET_START)


def analysis_error(buffer: bytes, rules: reference.Rules, batch_bytes_max: int | None) -> str | None:
    try:
        reference.analyze(buffer, rules, batch_bytes_max)
    except RefKafkaError as refused:
        return refused.name
    return None


@given(buffers | damaged(), st.sampled_from([None, 40, 70, 100]))
def test_a_followers_buffer_is_checked_by_its_batches_alone(buffer: bytes, batch_bytes_max: int | None) -> None:
    """REC-149: what a leader has sent is kept as received; size, checksum and codec are all that is looked at."""
    rules = reference.Rules(now_ms=5, target_codec="none", origin="replication")
    keywords: dict[str, Any] = {"now_ms": 5, "origin": "replication", "batch_bytes_max": batch_bytes_max}
    batches, consumed, _ = stream.decode_batches(buffer, verify_crc=False)
    ends = [batch.last_offset for batch in batches]
    is_ordered = all(one < other for one, other in pairwise(ends))
    refused = analysis_error(buffer, rules, batch_bytes_max)
    if refused is not None:
        with pytest.raises(KafkaError) as caught:
            validate_and_assign(buffer, first_offset=0, **keywords)
        assert caught.value.name == refused or (not is_ordered and caught.value.name == "INVALID_RECORD")
        return
    if not is_ordered or any(isinstance(batch, BatchV2) and batch.count < 0 for batch in batches):
        with pytest.raises(KafkaError) as caught:
            validate(buffer, **keywords)
        assert caught.value.name == "INVALID_RECORD"
        return
    made = validate_and_assign(bytearray(buffer), first_offset=0, **keywords)
    assert (bytes(made.data), made.converted) == (buffer[:consumed], False)
    if batches:
        assert made.last_offset == ends[-1]


KAFKA_ERRORS = {
    "CorruptRecordException": "CORRUPT_MESSAGE",
    "InvalidRecordException": "INVALID_RECORD",
    "InvalidTimestampException": "INVALID_TIMESTAMP",
    "UnsupportedForMessageFormatException": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
}


def test_every_validation_of_kafka_ends_the_same_way() -> None:
    """Kafka's verdicts themselves, not by way of the reference, except where logcore is stricter."""
    accepted = agreed = rebuilt = stricter = 0
    with gzip.open(GOLDEN, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    for case in cases:
        rules = reference.Rules(**case["rules"])
        buffer, start = bytes.fromhex(case["hex"]), case["offsetStart"]
        if rules.target_codec == "zstd" and rules.to_magic < 2:
            continue  # no topic can be configured so, and logcore refuses the option
        verdict = expected(buffer, rules, start, case["sourceCodec"])
        check(buffer, rules, verdict, start, verify_crc=False)
        keywords = {**options(rules), "verify_crc": False}
        if case.get("refused") == "UnsupportedOperationException" and verdict.validated is not None:
            rebuilt += 1  # Kafka has skimmed what it must rebuild, and fails; `check` has compared with the reference
        elif "refused" in case:
            with pytest.raises(KafkaError) as caught:
                validate(buffer, **keywords)
            if caught.value.name == KAFKA_ERRORS.get(case["refused"]):
                assert [error.index for error in caught.value.record_errors] == case["recordErrors"] or (
                    verdict.indexes is None
                ), case
                agreed += 1
            else:  # Java's runtime has refused; or there is damage too, or a control batch below magic 2
                assert case["refused"] not in KAFKA_ERRORS or len(verdict.names) > 1, case
        elif verdict.is_renumbered:
            rebuilt += 1
        elif verdict.names:
            stricter += 1
        else:
            check_like_kafka(validate_and_assign(buffer, first_offset=start, **keywords), case, rules)
            accepted += 1
    assert accepted > 300
    assert agreed > 500
    assert rebuilt > 30
    assert stricter < 10


def check_like_kafka(made: AppendBatch, case: dict[str, Any], rules: reference.Rules) -> None:
    theirs = bytes.fromhex(case["data"])
    assert (made.last_offset + 1, made.max_timestamp) == (case["offsetNext"], case["maxTimestamp"]), case
    assert (made.converted, made.converted_count) == (case["sizeMaybeChanged"], case["convertedCount"]), case
    assert made.temporary_bytes == case["temporaryBytes"], case
    is_control = any(batch.is_control for batch in stream.decode_batches(bytes(made.data))[0])
    if not made.converted or (rules.target_codec == "none" and not is_control):
        assert bytes(made.data) == theirs, case
    else:
        assert headers_and_records(bytes(made.data)) == headers_and_records(theirs), case
