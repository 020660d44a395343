"""The splits of a batch read: which part of which partition each task reads.

The driver opens each partition that is read, without a lock and without writing. It reads names, the small files of
roots and partitions, the newest snapshot, a few entries of indexes, and headers behind the last entry. It decodes no
record, except to find a time: then one batch a partition.
"""

import errno

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


def plan(options: ReadOptions, wanted: Wanted, now_ms: int, disk: Disk = SYSTEM_DISK) -> list[Range]:
    """The splits, by topic, partition and offset."""
    roots = find_roots(disk, options.paths)
    replicas = Replicas(disk, roots, now_ms)
    chosen = options.selection.choose(replicas.partitions, ", ".join(roots))
    for limit in (options.start, options.end):
        _check_named(limit, set(chosen))
    watermarks = HighWatermarks(disk)
    trusted = TrustedIndexes(disk)
    ranges: list[Divided] = []
    for partition in chosen:
        log = _open(replicas, partition, options) if wanted.has(partition) else None
        if log is not None:
            try:
                found = resolve(log, options, watermarks)
                ranges += [Divided(one, _boundary(log)) for one in wanted.narrowed(found, log, trusted)]
            finally:
                log.close()  # of thousands of partitions none is left open: _boundary() opens what it looks at
    return divide(ranges, options.min_partitions, options.max_records)


def _check_named(limit: Limit, chosen: set[TopicPartition]) -> None:
    if isinstance(limit, Offsets | Timestamps):
        check_partitions(limit.option, limit.of, chosen, "the partitions that are read")


def _open(replicas: Replicas, partition: TopicPartition, options: ReadOptions) -> ReadOnlyLog | None:
    try:
        return replicas.open(partition)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        if options.fail_on_data_loss:
            raise DataLossError(
                f"read of {partition}: got no {error.path}, wanted the partition that was there just now "
                "(failOnDataLoss=false goes on without)"
            ) from None
        return None


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
