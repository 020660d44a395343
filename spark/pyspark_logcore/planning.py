"""The splits of a batch read: which part of which partition each task reads.

The driver opens each partition that is read, without a lock and without writing. It reads names, the small files of
roots and partitions, the newest snapshot, a few entries of indexes, and headers behind the last entry. It decodes no
record, except to find a time: then one batch a partition.
"""

import errno
from dataclasses import dataclass

from logcore.errors import StorageError
from logcore.log.disk import SYSTEM_DISK, Disk
from logcore.log.names import TopicPartition
from logcore.log.readonly import ReadOnlyLog, ReadOnlySegment

from .bounds import HighWatermarks, Range, resolve
from .dividing import Boundary, Divided, divide
from .errors import DataLossError
from .limits import Limit, Offsets, Timestamps, check_partitions
from .options import ReadOptions
from .paths import find_roots
from .pushdown import TrustedIndexes, Wanted
from .replicas import Replicas

ATTEMPTS_MAX = 100  # at a partition whose files vanish while they are looked at: retention and compaction do that


def plan(options: ReadOptions, wanted: Wanted, now_ms: int, disk: Disk = SYSTEM_DISK) -> list[Range]:
    """The splits, by topic, partition and offset."""
    roots = find_roots(disk, options.paths)
    replicas = Replicas(disk, roots, now_ms)
    chosen = options.selection.choose(replicas.partitions, ", ".join(roots))
    for limit in (options.start, options.end):
        _check_named(limit, set(chosen))
    planner = _Planner(options, wanted, replicas, HighWatermarks(disk), TrustedIndexes(disk))
    ranges = [one for partition in chosen if wanted.has(partition) for one in planner.ranges(partition)]
    return divide(ranges, options.min_partitions, options.max_records)


def _check_named(limit: Limit, chosen: set[TopicPartition]) -> None:
    if isinstance(limit, Offsets | Timestamps):
        check_partitions(limit.option, limit.of, chosen, "the partitions that are read")


@dataclass(frozen=True)
class _Planner:
    """What is read of one partition after the other."""

    options: ReadOptions
    wanted: Wanted
    replicas: Replicas
    watermarks: HighWatermarks
    trusted: TrustedIndexes

    def ranges(self, partition: TopicPartition) -> list[Divided]:
        """The ranges of one partition. A file that vanishes meanwhile is a reason to look again."""
        gone: StorageError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                log = self.replicas.open(partition)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                return self._lost(partition, error)
            try:
                found = resolve(log, self.options, self.watermarks)
                return [Divided(one, _boundary(log)) for one in self.wanted.narrowed(found, log, self.trusted)]
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                gone = error
            finally:
                log.close()  # of thousands of partitions none is left open: _boundary() opens what it looks at
        assert gone is not None
        raise gone

    def _lost(self, partition: TopicPartition, error: StorageError) -> list[Divided]:
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"read of {partition}: got no {error.path}, wanted the partition that was there just now "
                "(failOnDataLoss=false goes on without)"
            ) from None
        return []


def _boundary(log: ReadOnlyLog) -> Boundary:
    segments, bases = log.view.segments

    def nearest(offset: int, low: int, high: int) -> int | None:
        index = log.view.segments.floor_index(offset)
        found: list[int] = []
        if 0 <= index < len(segments) and isinstance(segment := segments[index], ReadOnlySegment):
            near = segment.boundary_near(offset, low, high)
            found = [] if near is None else [near]
        found += [base for base in bases[max(index, 0) : index + 2] if low <= base <= high]
        return min(found, key=lambda one: abs(one - offset), default=None)

    return nearest
