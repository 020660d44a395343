"""From ranges to splits: as many as minPartitions and maxRecordsPerPartition ask for, cut between batches.

How many follows Spark's Kafka connector: one a partition without options; ranges longer than maxRecordsPerPartition are
divided; if that leaves fewer than minPartitions, long ranges are divided in proportion to their length.

Where is ours. The connector cuts at equal distances, which lie inside of batches: both neighbours would read and
decompress the batch. Here a cut moves to the nearest boundary between batches that an index tells, if there is one
within half a split's length, and otherwise stays. So the cuts are where they should be also in a log whose batches are
longer than the splits.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .bounds import Range

# The boundary between two batches in [low, high] that is nearest to an offset, or None: of one partition's log.
Boundary = Callable[[int, int, int], int | None]


@dataclass(frozen=True)
class Divided:
    """A range, and what knows the boundaries in it."""

    range: Range
    boundary: Boundary


def divide(ranges: Sequence[Divided], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """The splits of all ranges, in order; empty ranges are left out. Together they are exactly the ranges."""
    parts = [one for one in ranges if one.range.size > 0]
    if max_records is not None:
        parts = [part for one in parts for part in _cut(one, _at_most(one, max_records))]
    if min_partitions is not None and min_partitions > len(parts):
        counts = _counts([one.range.size for one in parts], min_partitions)
        parts = [part for one, count in zip(parts, counts, strict=True) for part in _cut(one, _evenly(one, count))]
    return [one.range for one in parts]


def _counts(sizes: list[int], min_partitions: int) -> list[int]:
    """Into how many parts each range goes: in proportion to its size, but for those that stay whole."""
    total = sum(sizes)
    is_whole = [_share(size, total, min_partitions) == 1 for size in sizes]
    divided_total = total - sum(size for size, whole in zip(sizes, is_whole, strict=True) if whole)
    left = max(min_partitions - sum(is_whole), 1)
    return [
        1 if whole else min(_share(size, divided_total, left), size)
        for size, whole in zip(sizes, is_whole, strict=True)
    ]


def _share(size: int, total: int, count: int) -> int:
    """`count` x size / total, rounded as Java rounds, and at least 1."""
    return max(math.floor(size / total * count + 0.5), 1)


def _evenly(one: Divided, count: int) -> list[int]:
    """Where to cut a range into `count` parts."""
    start, size = one.range.start, one.range.size
    wanted = [start + size * number // count for number in range(1, count)]
    cuts: list[int] = []
    for number, offset in enumerate(wanted):
        # Between the cut before and the one behind; each may move by half a part, so they cannot meet.
        low = (wanted[number - 1] + offset) // 2 + 1 if number else (start + offset) // 2 + 1
        high = (offset + (wanted[number + 1] if number + 1 < len(wanted) else one.range.end)) // 2
        found = one.boundary(offset, low, high) if low <= high else None
        cuts.append(offset if found is None else found)
    return cuts


def _at_most(one: Divided, max_records: int) -> list[int]:
    """Where to cut a range so that no part is longer than `max_records`."""
    cuts: list[int] = []
    at, end = one.range.start, one.range.end
    while end - at > max_records:
        parts = -(-(end - at) // max_records)
        wanted = at + (end - at) // parts
        found = one.boundary(wanted, at + max(max_records // 2, 1), at + max_records)
        at = wanted if found is None else found
        cuts.append(at)
    return cuts


def _cut(one: Divided, cuts: list[int]) -> list[Divided]:
    edges = [one.range.start, *cuts, one.range.end]
    return [replace(one, range=replace(one.range, start=start, end=end)) for start, end in itertools.pairwise(edges)]
