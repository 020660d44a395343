"""What is appended: batches that have their offsets, with what their headers say; and what an append answers.

From three sides: rows and columns are encoded with their offsets (from_encoded); a leader's buffer is checked and
numbered, batch by batch (from_leader); a follower's keeps what it says (from_follower). From here on all are the same.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from logcore._batch import BatchScan, BatchSummary, scan_batches, summarize
from logcore._validate import validate, validate_and_assign
from logcore.errors import InvalidRecordError, MessageTooLargeError, UsageError

from .config import LogConfig

Headers = npt.NDArray[np.void]
Origin = Literal["leader", "coordinator", "raft_leader", "follower"]

ORIGINS: tuple[Origin, ...] = ("leader", "coordinator", "raft_leader", "follower")
OFFSET_DELTA_MAX = 0x7FFFFFFF


class AppendResult(NamedTuple):
    """What became of an append."""

    first_offset: int
    last_offset: int
    record_count: int | None  # None for messages of magic 0 and 1 as they came
    size_in_bytes: int
    max_timestamp: int
    log_append_time_ms: int  # -1 if the records keep their own times
    leader_epoch: int
    log_start_offset: int
    is_duplicate: bool = False  # it was there already: the offsets are those it got then


class Appendable(NamedTuple):
    """Batches that are ready to be written: numbered, and checked."""

    parts: list[Buffer]  # one or more buffers, that together are `headers`
    headers: Headers
    summary: BatchSummary  # of `headers`
    size_in_bytes: int
    log_append_time_ms: int = -1

    @property
    def roll_offset(self) -> int:
        """What the base offset of a segment that begins with it may be at least."""
        if self.summary.magic < 2:
            return self.summary.last_offset - OFFSET_DELTA_MAX
        return self.summary.first_offset


def whole(buffer: Buffer, *, verify_crc: bool) -> BatchScan:
    """The whole batches of a buffer. Damage raises; a part of a batch at the end is left out."""
    scan = scan_batches(buffer, verify_crc=verify_crc)
    if scan.error is not None:
        raise scan.error
    return scan


def checked_summary(headers: Headers, config: LogConfig) -> BatchSummary:
    """What the batches have together. A batch that is larger than max.message.bytes is refused."""
    summary = summarize(headers)
    if summary.size_max > config.max_message_bytes:
        raise MessageTooLargeError(
            f"batch to append: got {summary.size_max} bytes, wanted at most {config.max_message_bytes} "
            "(max.message.bytes)"
        )
    return summary


def from_encoded(data: bytes, config: LogConfig, now_ms: int) -> Appendable:
    """Batches that our own encoder made, with their offsets: the topic's rules are checked, and nothing else."""
    headers = scan_batches(data, verify_crc=False).headers
    summary = checked_summary(headers, config)
    is_append_time = bool(summary.attributes & 0x08)
    newest = summary.max_timestamp
    if config.is_compacted or (
        not is_append_time
        and (
            newest - now_ms > config.message_timestamp_after_max_ms
            or config.message_timestamp_before_max_ms < 0x7FFFFFFFFFFFFFFF
        )
    ):
        _check_records(data, headers, config, now_ms, is_append_time)
    return Appendable([data], headers, summary, len(data), newest if is_append_time else -1)


def _check_records(data: bytes, headers: Headers, config: LogConfig, now_ms: int, is_append_time: bool) -> None:
    view = memoryview(data)
    for position, size in zip(headers["position"].tolist(), headers["size_in_bytes"].tolist(), strict=True):
        validate(
            view[position : position + size],
            now_ms=now_ms,
            timestamp_type="log_append_time" if is_append_time else "create_time",
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.is_compacted,
            origin="coordinator" if is_append_time else "client",
            verify_crc=False,
            check_base_offset=False,
        )


def from_leader(
    buffer: Buffer, config: LogConfig, *, first_offset: int, leader_epoch: int, now_ms: int, origin: Origin
) -> Appendable | None:
    """A producer's buffer: checked as Kafka's leader does, numbered from `first_offset` on. None if it has no batch."""
    scan = whole(buffer, verify_crc=True)
    if not len(scan):
        return None
    checked_summary(scan.headers, config)
    view = memoryview(buffer).cast("B")[: scan.consumed]
    spans = [(0, scan.consumed)]
    if int(scan.headers["magic"].min()) >= 2:
        sizes = scan.headers["size_in_bytes"].tolist()
        spans = [(at, at + size) for at, size in zip(scan.headers["position"].tolist(), sizes, strict=True)]
    parts: list[Buffer] = []
    append_time_ms = -1
    for begin, end in spans:
        made = validate_and_assign(
            view[begin:end],
            first_offset=first_offset,
            now_ms=now_ms,
            timestamp_type=config.timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.is_compacted,
            compression=config.compression_type,
            level=config.compression_level,
            origin="client" if origin == "leader" else "coordinator",
            leader_epoch=leader_epoch,
            verify_crc=False,
        )
        parts.append(made.data)
        first_offset = made.last_offset + 1
        append_time_ms = made.log_append_time_ms
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    headers = scan_batches(data, verify_crc=False).headers
    return Appendable([data], headers, checked_summary(headers, config), memoryview(data).nbytes, append_time_ms)


def from_follower(buffer: Buffer, *, leader_epoch: int, origin: Origin) -> Appendable | None:
    """Batches that have their offsets and are kept as they are. None if there is none.

    Those from the first on whose leader epoch is higher than the one they are fetched under are left out: their leader
    has been replaced meanwhile. Last offsets must increase.
    """
    scan = whole(buffer, verify_crc=True)
    headers = scan.headers
    if origin == "raft_leader" and (headers["leader_epoch"] != leader_epoch).any():
        raise InvalidRecordError(
            f"batch of a raft leader: got leader epochs {sorted(set(headers['leader_epoch'].tolist()))}, "
            f"wanted {leader_epoch}"
        )
    if origin == "follower":
        newer = np.flatnonzero(headers["leader_epoch"] > leader_epoch)
        if len(newer):
            headers = headers[: newer[0]]
    if not len(headers):
        return None
    lasts = headers["last_offset"]
    if (lasts[1:] <= lasts[:-1]).any():
        raise UsageError("offsets to append", got=str(lasts.tolist()[:20]), wanted="last offsets that increase")
    end = int(headers[-1]["position"]) + int(headers[-1]["size_in_bytes"])
    return Appendable([memoryview(buffer).cast("B")[:end]], headers, summarize(headers), end)
