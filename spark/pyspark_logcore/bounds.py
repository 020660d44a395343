"""From limits to offsets: what earliest, latest and a time mean in one partition, now.

earliest    the log start offset
latest      read_uncommitted: where the valid batches end; read_committed: the last stable offset. With
            bound=high_watermark nothing behind the high watermark that the root has checkpointed
a time      the first record that is not older; if that lies at or behind latest, or there is none, there is no match
"""

from dataclasses import dataclass

from logcore.log.checkpoints import read_offsets
from logcore.log.disk import Disk
from logcore.log.names import REPLICATION_CHECKPOINT, TopicPartition
from logcore.log.readonly import ReadOnlyLog
from logcore.log.searching import find_timestamp
from logcore.log.view import LogView

from .errors import DataLossError, option_error
from .limits import EARLIEST, LATEST, Edge, Limit, OnNoMatch, Timestamp, Timestamps
from .options import ReadOptions


@dataclass(frozen=True)
class Range:
    """What is read of one partition: the offsets from start on, before end. `latest` is where it may be read to."""

    partition: TopicPartition
    root: str
    topic_id: str | None
    start: int
    end: int
    latest: int

    @property
    def size(self) -> int:
        """How many offsets; records may be fewer."""
        return self.end - self.start


class HighWatermarks:
    """The high watermarks that roots have checkpointed, each root's file read once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._of: dict[str, dict[TopicPartition, int]] = {}

    def get(self, root: str, partition: TopicPartition) -> int:
        """That of a partition; 0 where none is known, since then nothing is known to be committed."""
        if root not in self._of:
            self._of[root] = read_offsets(self._disk, f"{root}/{REPLICATION_CHECKPOINT}")
        return self._of[root].get(partition, 0)


def resolve(log: ReadOnlyLog, options: ReadOptions, watermarks: HighWatermarks) -> Range:
    """What the options ask of a log. UsageError if it ends before it starts; DataLossError for what is not there."""
    view = log.view
    latest = _latest(log, options, watermarks)
    view = view._replace(high_watermark=latest)
    start = _start(log, view, options)
    end = _end(log, view, options)
    if start > end:
        raise option_error(
            _name(options.end, "endingOffsets"),
            f"{end} for {log.partition}",
            f"{start} or more, where {_name(options.start, 'startingOffsets')} has it start",
        )
    found = Range(log.partition, log.root, log.topic_id, start, end, latest)
    return _available(found, view, options)


def _latest(log: ReadOnlyLog, options: ReadOptions, watermarks: HighWatermarks) -> int:
    if options.bound == "high_watermark":
        high_watermark = watermarks.get(log.root, log.partition)
        bound = min(max(high_watermark, log.view.log_start_offset), log.view.log_end_offset)
        return log.stable_offset_at(bound) if options.isolation == "read_committed" else bound
    return log.bounded(options.isolation)[1]


def _start(log: ReadOnlyLog, view: LogView, options: ReadOptions) -> int:
    found = _offset(log, view, options.start)
    if found is None:
        if options.on_no_match is OnNoMatch.ERROR:
            raise option_error(
                _name(options.start, "startingTimestamp"),
                f"a time behind all records of {log.partition}",
                "one that a record reaches, or startingOffsetsByTimestampStrategy=latest",
            )
        return view.high_watermark
    return found


def _end(log: ReadOnlyLog, view: LogView, options: ReadOptions) -> int:
    found = _offset(log, view, options.end)
    return view.high_watermark if found is None else found


def _offset(log: ReadOnlyLog, view: LogView, limit: Limit) -> int | None:
    """The offset that a limit means; None if no record is as late as its time."""
    if isinstance(limit, Edge):
        return view.log_start_offset if limit is Edge.EARLIEST else view.high_watermark
    given = limit.ms if isinstance(limit, Timestamp) else limit.of[log.partition]
    if isinstance(limit, Timestamp | Timestamps):
        found = find_timestamp(view, given)
        return None if found is None else found.offset
    return {EARLIEST: view.log_start_offset, LATEST: view.high_watermark}.get(given, given)


def _available(found: Range, view: LogView, options: ReadOptions) -> Range:
    """The part of a range that is there. What is not is a loss, or left out with failOnDataLoss=false."""
    first, last = view.log_start_offset, found.latest
    if found.start >= first and found.end <= last:
        return found
    if options.fail_on_data_loss:
        raise DataLossError(
            f"read of {found.partition} in {found.root}: got offsets {first} to {last}, "
            f"wanted {found.start} to {found.end} (failOnDataLoss=false reads what is there)"
        )
    start = min(max(found.start, first), last)
    return Range(found.partition, found.root, found.topic_id, start, max(min(found.end, last), start), found.latest)


def _name(limit: Limit, otherwise: str) -> str:
    return otherwise if isinstance(limit, Edge) else limit.option
