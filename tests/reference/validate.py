"""What a leader does with a produced buffer: check it, give it offsets, and patch or rebuild it.

Two steps of the broker in one place. `analyze` is the look at each batch before anything else (size, checksum, codec,
and that a client's base offset is 0); `validate_and_assign` is the look at each record. `validate` does both.

The buffer is patched in place when source and target codec are the same, the magic stays, and the offsets inside are
0, 1, 2, … already; otherwise the records are written anew. How thoroughly a record is read depends on that:

    uncompressed v2, or any v2 that is rebuilt     whole
    compressed v2 that stays                       skimmed: a wrong record length is not noticed
    v0 and v1 that stay                            key and value are not looked at, not even their lengths
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import batch_v2, legacy, varint
from .batch_v2 import BatchV2
from .builder import Built, build, header_bytes
from .legacy import LegacyBatch, Message
from .model import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    RefKafkaError,
    RefRecord,
    Refused,
    int32,
    int64,
    known_codec,
)
from .stream import MAX_DECOMPRESSED_BYTES, Batch, decode_batches

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Rules:
    """The topic's settings and the moment, as the broker's validator takes them."""

    now_ms: int
    target_codec: str
    target_level: int | None = None
    compacted: bool = False
    to_magic: int = 2
    timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    leader_epoch: int = -1
    origin: str = "client"  # "client", "coordinator", "raft_leader" or "replication"
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    #: Kafka skims compressed v2 batches that stay as they are. False reads them whole, which refuses more.
    skim: bool = True


@dataclass(frozen=True)
class Validated:
    data: bytes
    offset_next: int
    log_append_time_ms: int
    max_timestamp: int
    size_maybe_changed: bool
    converted_count: int
    temporary_bytes: int


@dataclass(frozen=True)
class Analyzed:
    source_codec: str
    valid_bytes: int


def validate(
    buffer: bytes,
    rules: Rules,
    offset_start: int = 0,
    batch_bytes_max: int | None = None,
    check_base_offset: bool = False,
) -> Validated:
    """Both steps; a cut batch at the end is dropped. Raises RefKafkaError."""
    analyzed = analyze(buffer, rules, batch_bytes_max, check_base_offset)
    return validate_and_assign(buffer[: analyzed.valid_bytes], rules, analyzed.source_codec, offset_start)


def analyze(
    buffer: bytes, rules: Rules, batch_bytes_max: int | None = None, check_base_offset: bool = False
) -> Analyzed:
    """The checks of a batch as a whole. `batch_bytes_max` (max.message.bytes) counts the whole batch."""
    batches, _, damage = decode_batches(buffer, rules.max_decompressed_bytes, verify_crc=False)
    source_codec, valid_bytes = "none", 0
    for batch in batches:
        if check_base_offset and batch.magic == 2 and rules.origin == "client" and batch.base_offset != 0:
            raise RefKafkaError("INVALID_RECORD", f"a produced batch with base offset {batch.base_offset}")
        if batch_bytes_max is not None and batch.size_in_bytes > batch_bytes_max:
            raise RefKafkaError("MESSAGE_TOO_LARGE", f"{batch.size_in_bytes} bytes of at most {batch_bytes_max}")
        try:
            batch.check_crc()
            codec = known_codec(batch.codec_id)
        except Refused as refused:
            raise _answer(refused) from refused
        if codec != "none":
            source_codec = codec  # the last one counts; more than one is refused later
        valid_bytes += batch.size_in_bytes
    if damage is not None:
        raise _answer(damage)
    return Analyzed(source_codec, valid_bytes)


def validate_and_assign(buffer: bytes, rules: Rules, source_codec: str, offset_start: int) -> Validated:
    """The checks of records, and the bytes to append with offsets from `offset_start` on.

    `buffer` has been analyzed. Damage in a later batch is told before anything about the records of an earlier one.
    """
    try:
        batches, _, damage = decode_batches(buffer, rules.max_decompressed_bytes, verify_crc=False)
        if damage is not None:
            raise damage
        if source_codec == "none" and rules.target_codec == "none":
            if all(batch.magic == rules.to_magic for batch in batches):
                return _assign_uncompressed(batches, rules, offset_start)
            return _convert_uncompressed(batches, rules, offset_start)
        return _validate_compressed(batches, rules, source_codec, offset_start)
    except Refused as refused:
        raise _answer(refused) from refused


def _answer(refused: Refused) -> RefKafkaError:
    return RefKafkaError(refused.kafka, str(refused))


# --- the three ways through ----------------------------------------------------------------------------------------


def _convert_uncompressed(batches: list[Batch], rules: Rules, offset_start: int) -> Validated:
    for batch in batches:
        batch.records()  # sizes are estimated first, which reads everything
    first = _first_batch(batches, "none")
    records: list[RefRecord] = []
    for batch in batches:
        _check_batch(batch, first, rules)
        errors = []
        for index, seen in enumerate(_read(batch)):
            errors += _check_record(batch, seen, index, rules)
            records.append(seen.whole())
        _raise_for(errors)
    built = _rebuild(records, first, rules, "none", offset_start)
    return _rebuilt(built, records, rules, offset_start, built.bytes_before_compression)


def _assign_uncompressed(batches: list[Batch], rules: Rules, offset_start: int) -> Validated:
    first = _first_batch(batches, "none")
    offset_next, newest, out = offset_start, NO_TIMESTAMP, b""
    for batch in batches:
        _check_batch(batch, first, rules)
        errors, batch_newest = [], NO_TIMESTAMP
        for index, seen in enumerate(_read(batch)):
            errors += _check_record(batch, seen, index, rules)
            offset_next += 1
            if batch.magic > 0:
                batch_newest = max(batch_newest, seen.timestamp)
        _raise_for(errors)
        newest = max(newest, batch_newest)
        out += patch(batch, offset_next - 1, rules, batch_newest)
    if rules.timestamp_type == LOG_APPEND_TIME:
        newest = NO_TIMESTAMP if rules.to_magic == 0 else rules.now_ms
    return Validated(out, offset_next, rules.now_ms, newest, False, 0, 0)


def _validate_compressed(batches: list[Batch], rules: Rules, source_codec: str, offset_start: int) -> Validated:
    in_place = source_codec == rules.target_codec
    first = _first_batch(batches, source_codec)
    if first.magic != rules.to_magic or rules.to_magic == 0:
        in_place = False
    if source_codec == "none" and first.is_control:
        in_place = True  # control records are only compressed if they came so
    skims = in_place and first.magic == 2 and first.is_compressed and rules.skim
    seen_all: list[_Seen] = []
    newest, plain_bytes = NO_TIMESTAMP, 0
    for batch in batches:
        _check_batch(batch, first, rules)
        plain_bytes += header_bytes(rules.to_magic, known_codec(batch.codec_id))
        errors: list[tuple[int, str]] = []
        for index, seen in enumerate(_read(batch, skims)):
            expected_offset = len(seen_all) + len(errors)
            if source_codec != "none" and seen.codec_id != 0:
                failed = [(index, "INVALID_RECORD")]
            else:
                failed = _check_record(batch, seen, index, rules)
            if failed:
                errors += failed
                continue
            if batch.magic > 0 and rules.to_magic > 0:
                newest = max(newest, seen.timestamp)
                if seen.offset != expected_offset:
                    in_place = False
            plain_bytes = int32(plain_bytes + seen.size_in_bytes)
            seen_all.append(seen)
        _raise_for(errors)
    if not in_place:
        records = [seen.whole() for seen in seen_all]
        built = _rebuild(records, first, rules, rules.target_codec, offset_start)
        return _rebuilt(built, records, rules, offset_start, plain_bytes + built.bytes_before_compression)
    offset_next = offset_start + len(seen_all)
    if rules.timestamp_type == LOG_APPEND_TIME:
        newest = rules.now_ms
    data = patch(first, offset_next - 1, rules, newest)
    return Validated(data, offset_next, rules.now_ms, newest, False, 0, plain_bytes)


def _rebuild(records: list[RefRecord], first: Batch, rules: Rules, codec: str, offset_start: int) -> Built:
    return build(
        records,
        first_batch=first,
        base_offset=offset_start,
        magic=rules.to_magic,
        codec=codec,
        level=rules.target_level,
        timestamp_type=rules.timestamp_type,
        now_ms=rules.now_ms,
        leader_epoch=rules.leader_epoch,
    )


def _rebuilt(
    built: Built, records: list[RefRecord], rules: Rules, offset_start: int, temporary_bytes: int
) -> Validated:
    offset_next = offset_start + len(records)
    return Validated(
        built.data, offset_next, rules.now_ms, built.max_timestamp, True, len(records), int32(temporary_bytes)
    )


# --- the checks ----------------------------------------------------------------------------------------------------


def _first_batch(batches: list[Batch], source_codec: str) -> Batch:
    if not batches:
        raise RefKafkaError("INVALID_RECORD", "no batch at all")
    if len(batches) > 1 and (batches[0].magic == 2 or source_codec != "none"):
        raise RefKafkaError("INVALID_RECORD", "more than one batch")
    return batches[0]


def _check_batch(batch: Batch, first: Batch, rules: Rules) -> None:
    if batch.magic != first.magic:
        raise RefKafkaError("INVALID_RECORD", f"magic {batch.magic} after magic {first.magic}")
    has_producer_id = batch.producer_id > -1
    if rules.origin == "client":
        if isinstance(batch, BatchV2):
            by_offsets = int64(batch.last_offset - batch.base_offset + 1)
            if by_offsets <= 0:
                raise RefKafkaError("INVALID_RECORD", f"offsets {batch.base_offset} to {batch.last_offset}")
            if batch.count <= 0:
                raise RefKafkaError("INVALID_RECORD", f"a count of {batch.count}")
            if batch.count != by_offsets:
                raise RefKafkaError("INVALID_RECORD", f"a count of {batch.count} over {by_offsets} offsets")
        if batch.is_control:
            raise RefKafkaError("INVALID_RECORD", "a client's control batch")
        if has_producer_id and batch.base_sequence < 0:
            raise RefKafkaError("INVALID_RECORD", f"sequence {batch.base_sequence} of a producer")
    if rules.to_magic < 2 and (batch.is_transactional or has_producer_id):
        raise RefKafkaError("UNSUPPORTED_FOR_MESSAGE_FORMAT", f"transactions or idempotence in magic {rules.to_magic}")


def _check_record(batch: Batch, seen: _Seen, index: int, rules: Rules) -> list[tuple[int, str]]:
    """The record's error as a list of none or one; a wrong checksum inside a wrapper ends everything at once."""
    if seen.magic != batch.magic:
        return [(index, "INVALID_RECORD")]
    if batch.magic < 2 and batch.is_compressed and not seen.crc_is_right():
        raise RefKafkaError("CORRUPT_MESSAGE", f"wrong checksum of message {index} inside a compressed message")
    if rules.compacted and not seen.has_key():
        return [(index, "INVALID_RECORD")]
    if rules.timestamp_type == CREATE_TIME and seen.timestamp != NO_TIMESTAMP:
        age = int64(rules.now_ms - seen.timestamp)
        if age > rules.timestamp_before_max_ms or int64(-age) > rules.timestamp_after_max_ms:
            return [(index, "INVALID_TIMESTAMP")]
    elif batch.timestamp_type == LOG_APPEND_TIME:
        return [(index, "INVALID_TIMESTAMP")]  # only the broker may say so
    return []


def _raise_for(errors: list[tuple[int, str]]) -> None:
    if errors:
        names = {name for _, name in errors}
        name = "INVALID_TIMESTAMP" if "INVALID_TIMESTAMP" in names else "INVALID_RECORD"
        raise RefKafkaError(name, f"{len(errors)} records", tuple(errors))


# --- a record as the validator sees it, however thoroughly it was read ---------------------------------------------


@dataclass(frozen=True)
class _SeenV2:
    offset: int
    timestamp: int
    size_in_bytes: int
    key_is_null: bool
    record: RefRecord | None
    magic: int = 2
    codec_id: int = 0

    def has_key(self) -> bool:
        return not self.key_is_null

    def crc_is_right(self) -> bool:
        return True

    def whole(self) -> RefRecord:
        if self.record is None:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", "a skimmed record has to be rebuilt, and its key is gone")
        return self.record


@dataclass(frozen=True)
class _SeenMessage:
    offset: int
    message: Message

    @property
    def timestamp(self) -> int:
        return self.message.timestamp

    @property
    def magic(self) -> int:
        return self.message.magic

    @property
    def codec_id(self) -> int:
        return self.message.codec_id

    @property
    def size_in_bytes(self) -> int:
        return legacy.LOG_OVERHEAD + len(self.message.data)

    def has_key(self) -> bool:
        return self.message.key_length() >= 0

    def crc_is_right(self) -> bool:
        return self.message.crc_is_right()

    def whole(self) -> RefRecord:
        key, value = self.message.key_and_value()
        return RefRecord(self.offset, self.message.timestamp, key, value)


_Seen = _SeenV2 | _SeenMessage


def _read(batch: Batch, skims: bool = False) -> Iterator[_Seen]:
    if isinstance(batch, LegacyBatch):
        for offset, message in batch.messages():
            yield _SeenMessage(offset, message)
    elif skims:
        for skimmed in batch.skim():
            yield _SeenV2(skimmed.offset, skimmed.timestamp, skimmed.size_in_bytes, skimmed.key_size < 0, None)
    else:
        for record, length in batch.iterate_with_lengths():
            yield _SeenV2(record.offset, record.timestamp, varint.size(length) + length, record.key is None, record)


# --- patching ------------------------------------------------------------------------------------------------------


def patch(batch: Batch, last_offset: int, rules: Rules, newest: int) -> bytes:
    """The batch at its new place: offset, leader epoch and timestamps, each only where its magic has it.

    The checksum is only computed anew when type or time really change; then attribute bits without a meaning are lost.
    """
    if rules.timestamp_type == LOG_APPEND_TIME:
        newest = rules.now_ms
    is_changed = (batch.timestamp_type, batch.max_timestamp) != (rules.timestamp_type, newest)
    time_bit = 0x08 if rules.timestamp_type == LOG_APPEND_TIME else 0
    data = bytearray(batch.data)
    if isinstance(batch, BatchV2):
        data[0:8] = int64(last_offset - batch.last_offset_delta).to_bytes(8, "big", signed=True)
        data[12:16] = rules.leader_epoch.to_bytes(4, "big", signed=True)
        if is_changed:
            data[21:23] = (batch.attributes & 0x77 | time_bit).to_bytes(2, "big")
            data[35:43] = newest.to_bytes(8, "big", signed=True)
            return batch_v2.with_crc(bytes(data))
        return bytes(data)
    data[0:8] = last_offset.to_bytes(8, "big", signed=True)
    if batch.magic == 1 and is_changed:
        data[17] = batch.attributes & 0x07 | time_bit
        data[18:26] = newest.to_bytes(8, "big", signed=True)
        return legacy.with_crc(bytes(data))
    return bytes(data)
