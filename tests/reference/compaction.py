"""What compaction keeps: a map of keys to their latest offsets, and batches filtered by it.

Kafka's SkimpyOffsetMap, the loop of Cleaner.buildOffsetMapForSegment, the two questions of Cleaner's RecordFilter, and
MemoryRecords.filterTo. Two of Kafka's refusals are not here, since the compiled code has none of them: its builder
refuses to write again what it reads, if a timestamp lies below -1 or a producer's fields do not fit together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from . import batch_v2
from .model import LOG_APPEND_TIME, NO_TIMESTAMP, NO_TIMESTAMP_TYPE, RefRecord, int64
from .stream import Batch, decode_batches

#: As Kafka spells them, in lower case.
DELETE, DELETE_EMPTY, RETAIN_EMPTY = "delete", "delete_empty", "retain_empty"


class Unwritable(Exception):
    """Records whose offsets Kafka's builder or filter refuses."""


class EmptyLegacy(Exception):
    """A batch of magic 0 or 1 that should stay without a record."""


class RefOffsetMap:
    """Digest -> offset. With the key itself for a digest, nothing can be confused."""

    def __init__(self, slots: int, digest: Callable[[bytes], bytes] = bytes) -> None:
        self.slots = slots
        self.digest = digest
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self.offsets)

    def put(self, key: bytes, offset: int) -> None:
        if len(self.offsets) >= self.slots:
            raise ValueError("full")
        self.offsets[self.digest(key)] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        return self.offsets.get(self.digest(key), -1)


@dataclass
class Mapped:
    consumed: int = 0
    is_full: bool = False
    messages_read: int = 0


def map_keys(
    buffer: bytes,
    offset_map: RefOffsetMap,
    first_offset: int,
    limit: int,
    should_discard_batch: Callable[[Batch], bool],
) -> Mapped:
    """Fill the map from every whole batch; raises Refused at damage before a record that it has no room for."""
    result = Mapped()
    batches, _, damage = decode_batches(buffer)
    for batch in batches:
        # Kafka asks for each batch. Outside transactions the answer is no, and asking changes nothing.
        in_transaction = batch.is_transactional or batch.is_control
        discard = in_transaction and should_discard_batch(batch)
        if batch.is_control:
            result.messages_read += 1
        elif discard:
            result.messages_read += max(batch.count or 0, 0)
        else:
            for record in batch.iterate():
                if record.key is not None and record.offset >= first_offset:
                    if len(offset_map) >= limit:
                        result.is_full = True
                        return result
                    offset_map.put(record.key, record.offset)
                result.messages_read += 1
        if batch.last_offset >= first_offset:
            offset_map.latest_offset = batch.last_offset
        result.consumed += batch.size_in_bytes
    if damage is not None:
        raise damage
    return result


@dataclass
class Filtered:
    """What filtering made: each batch that stays, and whether it is the very same bytes."""

    pieces: list[tuple[bytes, bool]] = field(default_factory=list)
    consumed: int = 0
    messages_read: int = 0
    messages_retained: int = 0
    max_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    shallow_offset_of_max_timestamp: int = -1

    def retained(self, data: bytes, count: int, max_timestamp: int, shallow: int, max_offset: int, same: bool) -> None:
        if (max_timestamp != NO_TIMESTAMP and shallow < 0) or max_offset < 0:
            raise Unwritable("a negative offset")
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.shallow_offset_of_max_timestamp = max_timestamp, shallow
        self.max_offset = max(self.max_offset, max_offset)
        self.messages_retained += count
        self.pieces.append((data, same))


def filter_batches(
    buffer: bytes,
    check_batch_retention: Callable[[Batch], tuple[str, bool]],
    should_retain_record: Callable[[Batch, RefRecord], bool],
    now_ms: int,
    delete_retention_ms: int,
) -> Filtered:
    """Filter every whole batch; raises Refused at damage."""
    result = Filtered()
    batches, _, damage = decode_batches(buffer)
    for batch in batches:
        retention, contains_marker_for_empty_txn = check_batch_retention(batch)
        result.consumed += batch.size_in_bytes
        if retention == DELETE:
            continue
        records = batch.records()
        kept = [record for record in records if should_retain_record(batch, record)]
        result.messages_read += len(records)
        if kept:
            has_tombstones = any(record.value is None for record in kept)
            sets_horizon = (has_tombstones or contains_marker_for_empty_txn) and batch.delete_horizon_ms is None
            if batch.magic == 2 and len(kept) == len(records) and not sets_horizon:
                result.retained(
                    batch.data, len(kept), batch.max_timestamp, batch.last_offset, batch.last_offset, same=True
                )
            else:
                horizon = int64(now_ms + delete_retention_ms) if sets_horizon else batch.delete_horizon_ms
                _rewrite(batch, kept, None if horizon is None or horizon < 0 else horizon, result)
        elif retention == RETAIN_EMPTY:
            if batch.magic < 2:
                raise EmptyLegacy
            data = batch_v2.encode(
                [],
                base_offset=batch.base_offset,
                last_offset=batch.last_offset,
                timestamp_type=batch.timestamp_type,
                log_append_time_ms=batch.max_timestamp,
                max_timestamp=batch.max_timestamp,
                **_lasting_fields(batch),
            )
            result.retained(data, 0, batch.max_timestamp, batch.last_offset, batch.last_offset, same=False)
    if damage is not None:
        raise damage
    return result


def _lasting_fields(batch: Batch) -> dict[str, int | bool]:
    names = ("producer_id", "producer_epoch", "base_sequence", "leader_epoch", "is_transactional", "is_control")
    return {name: getattr(batch, name) for name in names}


def _rewrite(batch: Batch, kept: list[RefRecord], horizon: int | None, result: Filtered) -> None:
    """Kafka's buildRetainedRecordsInto."""
    for one, two in itertools.pairwise(kept):
        if two.offset <= one.offset:
            raise Unwritable("offsets go back")
    if batch.magic < 2 and kept[-1].offset - kept[0].offset >= 2**31:
        raise Unwritable("offsets too far apart")
    is_stamped = batch.timestamp_type == LOG_APPEND_TIME
    newest = batch.max_timestamp if is_stamped else max(NO_TIMESTAMP, *(record.timestamp for record in kept))
    last_offset = batch.last_offset if batch.magic == 2 else kept[-1].offset
    data = batch_v2.encode(
        kept,
        base_offset=batch.base_offset if batch.magic == 2 else kept[0].offset,
        last_offset=last_offset,
        compression_name=batch.compression,
        timestamp_type="create_time" if batch.timestamp_type == NO_TIMESTAMP_TYPE else batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp,
        max_timestamp=newest,
        delete_horizon_ms=horizon,
        **_lasting_fields(batch),
    )
    shallow = -1 if newest == NO_TIMESTAMP and not is_stamped else last_offset
    result.retained(data, len(kept), newest, shallow, max(-1, *(record.offset for record in kept)), same=False)


@dataclass
class Cleaner:
    """The two questions that a log's cleaner answers about batches and records."""

    offset_map: RefOffsetMap
    now_ms: int
    should_discard_batch: Callable[[Batch], bool]
    last_records: Mapping[int, tuple[int | None, int]]
    retain_legacy_deletes: bool
    upper_bound_offset: int | None
    discards_records: bool = False
    invalid_messages_read: int = 0

    def check_batch_retention(self, batch: Batch) -> tuple[str, bool]:
        in_transaction = batch.is_transactional or batch.is_control
        can_discard = in_transaction and self.should_discard_batch(batch)
        self.discards_records = can_discard
        if batch.is_control:
            horizon = batch.delete_horizon_ms
            self.discards_records = can_discard and horizon is not None and horizon <= self.now_ms
        if self._is_last_of_producer(batch) or int64(batch.last_offset + 1) == self.upper_bound_offset:
            retention = RETAIN_EMPTY
        else:
            retention = DELETE if self.discards_records else DELETE_EMPTY
        return retention, can_discard and batch.is_control

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self.last_records.get(batch.producer_id)
        if last is None or batch.producer_id < 0:
            return False
        last_data_offset, producer_epoch = last
        if last_data_offset is not None:
            return batch.last_offset == last_data_offset
        return batch.is_control and batch.producer_epoch == producer_epoch

    def should_retain_record(self, batch: Batch, record: RefRecord) -> bool:
        if self.discards_records:
            return False
        if batch.is_control or record.offset > self.offset_map.latest_offset:
            return True
        if record.key is None:
            self.invalid_messages_read += 1
            return False
        is_latest = record.offset >= self.offset_map.get(record.key)
        if batch.magic < 2:
            retain_deletes = self.retain_legacy_deletes
        else:
            retain_deletes = batch.delete_horizon_ms is None or self.now_ms < batch.delete_horizon_ms
        return is_latest and (record.value is not None or retain_deletes)
