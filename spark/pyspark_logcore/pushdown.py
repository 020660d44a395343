"""Spark's filters, as far as they spare reading: whole partitions, and parts of the log that have no wanted record.

    topic, partition    exact: other partitions are not even opened
    offset              exact for =, <, <=, > and >=; In reads from its least to its greatest
    timestamp           from below only: segments whose latest record is older are left out, and the beginning of the
                        first one that is kept, as its time index tells. Times need not go up with offsets, and no index
                        tells the earliest of a segment, so nothing follows from a latest time

What is exact need not be looked at again by Spark; everything else it still filters itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from logcore.errors import CorruptCheckpoint
from logcore.log.checkpoints import read_offsets
from logcore.log.disk import Disk
from logcore.log.names import RECOVERY_CHECKPOINT, TopicPartition
from logcore.log.readonly import ReadOnlyLog, ReadOnlySegment

from .bounds import Range

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestamptype")

# By the names of the classes in pyspark.sql.datasource.
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda found, wanted: found == wanted,
    "EqualNullSafe": lambda found, wanted: found == wanted,
    "GreaterThan": lambda found, wanted: found > wanted,
    "GreaterThanOrEqual": lambda found, wanted: found >= wanted,
    "LessThan": lambda found, wanted: found < wanted,
    "LessThanOrEqual": lambda found, wanted: found <= wanted,
    "In": lambda found, wanted: found in wanted,
    "StringStartsWith": lambda found, wanted: found.startswith(wanted),
    "StringEndsWith": lambda found, wanted: found.endswith(wanted),
    "StringContains": lambda found, wanted: wanted in found,
}


@dataclass(frozen=True)
class Condition:
    """A filter: the name of its class, the column in lower case, a value; or what is not to hold."""

    kind: str
    column: str
    value: Any = None
    is_negated: bool = False

    def holds(self, found: Any) -> bool:
        """Whether a value of the column passes."""
        return _HOLDS[self.kind](found, self.value) is not self.is_negated


class TrustedIndexes:
    """Which segments' time indexes are known to be whole: those below the recovery point, which were synced.

    The machine's death may leave others short, and then their last entry is not the latest time.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._of: dict[str, dict[TopicPartition, int]] = {}

    def end_offset(self, root: str, partition: TopicPartition) -> int:
        """Indexes of segments that end here or before are whole."""
        if root not in self._of:
            try:
                self._of[root] = read_offsets(self._disk, f"{root}/{RECOVERY_CHECKPOINT}")
            except CorruptCheckpoint:
                self._of[root] = {}
        return self._of[root].get(partition, 0)


@dataclass(frozen=True)
class Wanted:
    """What filters leave of a read."""

    of_partition: tuple[Condition, ...] = ()  # on topic and partition
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def narrow(self, condition: Condition) -> "tuple[Wanted, bool]":
        """With one condition more; and whether that is all there is to it, so that nobody has to look again."""
        if condition.kind == "IsNotNull":
            return self, condition.column in _NEVER_NULL and not condition.is_negated
        if condition.kind not in _HOLDS or condition.value is None:
            return self, False
        if condition.column == "topic" and _is_of(condition, str):
            return replace(self, of_partition=(*self.of_partition, condition)), True
        if condition.column == "partition" and _is_of(condition, int):
            return replace(self, of_partition=(*self.of_partition, condition)), True
        if condition.column == "offset" and _is_of(condition, int) and not condition.is_negated:
            return self._narrow_offsets(condition)
        if condition.column == "timestamp" and not condition.is_negated:
            return self._narrow_times(condition), False
        return self, False

    def _narrow_offsets(self, condition: Condition) -> "tuple[Wanted, bool]":
        kind, value = condition.kind, condition.value
        first: int | None = None
        end: int | None = None
        if kind in ("EqualTo", "EqualNullSafe"):
            first, end = value, value + 1
        elif kind == "In":
            if not value:
                return self, False
            first, end = min(value), max(value) + 1
        elif kind in ("GreaterThan", "GreaterThanOrEqual"):
            first = value + (kind == "GreaterThan")
        else:
            end = value + (kind == "LessThanOrEqual")
        made = self
        if first is not None:
            made = replace(made, first_offset=max(made.first_offset, first))
        if end is not None:
            made = replace(made, end_offset=end if made.end_offset is None else min(made.end_offset, end))
        return made, kind != "In"

    def _narrow_times(self, condition: Condition) -> "Wanted":
        if condition.kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            return self
        if not isinstance(condition.value, datetime):
            return self
        time = condition.value if condition.value.tzinfo else condition.value.astimezone()
        passed = time - _EPOCH
        microseconds = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        since = -(-microseconds // 1000)
        return replace(self, since_ms=since if self.since_ms is None else max(self.since_ms, since))

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition may have a wanted record."""
        of = {"topic": partition.topic, "partition": partition.partition}
        return all(condition.holds(of[condition.column]) for condition in self.of_partition)

    def narrowed(self, found: Range, log: ReadOnlyLog, trusted: TrustedIndexes) -> list[Range]:
        """The parts of a range that may have a wanted record, in order."""
        end = found.end if self.end_offset is None else min(found.end, self.end_offset)
        found = replace(found, start=max(found.start, self.first_offset), end=end)
        if found.size <= 0:
            return []
        if self.since_ms is None or self.since_ms <= 0:
            return [found]
        return _since(found, log, self.since_ms, trusted.end_offset(found.root, found.partition))


def _since(found: Range, log: ReadOnlyLog, since_ms: int, trusted_end: int) -> list[Range]:
    """The parts of a range that may have a record from `since_ms` on: runs of segments."""
    segments, bases = log.view.segments
    parts: list[Range] = []
    for index in range(max(log.view.segments.floor_index(found.start), 0), len(segments)):
        segment = segments[index]
        end = bases[index + 1] if index + 1 < len(bases) else log.view.log_end_offset
        if bases[index] >= found.end:
            break
        is_whole = end <= trusted_end or index + 1 == len(bases)  # of the last one the batches are looked at
        if is_whole and 0 <= segment.max_timestamp[0] < since_ms:
            continue
        start = max(bases[index], found.start)
        end = min(end, found.end)
        if parts and parts[-1].end == start:
            parts[-1] = replace(parts[-1], end=end)
            continue
        if isinstance(segment, ReadOnlySegment):
            start = min(max(start, segment.time_floor(since_ms - 1)), end)
        parts.append(replace(found, start=start, end=end))
    return [part for part in parts if part.size > 0]


def _is_of(condition: Condition, kind: type) -> bool:
    values = condition.value if condition.kind == "In" else (condition.value,)
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
