"""The segments of a log, ordered by base offset. The last one is active, the others are sealed.

Readers take `view`, which is never changed but replaced, and go on with it whatever happens to the log meanwhile.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from logcore.errors import InvariantError, LogcoreError, UsageError

from .segment import Segment


class SegmentsView(NamedTuple):
    """The segments at one moment, and their base offsets."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[int, ...]

    def floor_index(self, offset: int) -> int:
        """The number of the segment that `offset` belongs to, or -1 if it is before the first."""
        return bisect_right(self.base_offsets, offset) - 1


class Segments:
    """Segments by base offset. No two have the same."""

    def __init__(self) -> None:
        self.view = SegmentsView((), ())

    def add(self, segment: Segment) -> Segment | None:
        """Put in a segment; returns the one of the same base offset that it takes the place of, if any."""
        segments, base_offsets = self.view
        at = bisect_left(base_offsets, segment.base_offset)
        has_place = at < len(base_offsets) and base_offsets[at] == segment.base_offset
        self._set((*segments[:at], segment, *segments[at + has_place :]))
        return segments[at] if has_place else None

    def remove(self, segment: Segment) -> None:
        """Take out a segment; one that is not in is no error."""
        self._set(tuple(one for one in self.view.segments if one is not segment))

    def replace(self, old: "list[Segment]", new: "list[Segment]") -> None:
        """Put `new` in the place of `old`, in one step for whoever reads."""
        kept = [one for one in self.view.segments if not any(one is gone for gone in old)]
        self._set(tuple(sorted((*kept, *new), key=lambda segment: segment.base_offset)))

    def _set(self, segments: tuple[Segment, ...]) -> None:
        self.view = SegmentsView(segments, tuple(segment.base_offset for segment in segments))

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.view.segments)

    def __len__(self) -> int:
        return len(self.view.segments)

    def __contains__(self, base_offset: object) -> bool:
        return base_offset in self.view.base_offsets

    @property
    def active(self) -> Segment:
        """The last one."""
        return self.view.segments[-1]

    @property
    def first(self) -> Segment:
        """The first one."""
        return self.view.segments[0]

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self)

    def _at(self, index: int) -> Segment | None:
        return self.view.segments[index] if 0 <= index < len(self) else None

    def floor(self, offset: int) -> Segment | None:
        """The segment with the largest base offset that is at most `offset`."""
        return self._at(self.view.floor_index(offset))

    def lower(self, offset: int) -> Segment | None:
        """The one with the largest base offset below `offset`."""
        return self._at(bisect_left(self.view.base_offsets, offset) - 1)

    def higher(self, offset: int) -> Segment | None:
        """The one with the smallest base offset above `offset`."""
        return self._at(bisect_right(self.view.base_offsets, offset))

    def between(self, first_offset: int, end_offset: int) -> list[Segment]:
        """The segments that may have offsets of [first_offset, end_offset)."""
        if first_offset > end_offset:
            raise UsageError(
                "range of offsets", got=f"{first_offset} to {end_offset}", wanted="an end behind the start"
            )
        if first_offset == end_offset:
            return []
        begin = max(self.view.floor_index(first_offset), 0)
        return list(self.view.segments[begin : bisect_left(self.view.base_offsets, end_offset)])

    def sealed_from(self, offset: int) -> list[Segment]:
        """The segments from that of `offset` on, but for the active one."""
        if not len(self) or offset > self.active.base_offset:
            raise UsageError("offset", got=offset, wanted="at most the active segment's base offset")
        return self.between(offset, self.active.base_offset)

    def close(self) -> None:
        """Close all of them. One that fails does not keep the others from it; the first failure is raised."""
        failures = []
        for segment in self:
            try:
                segment.close()
            except LogcoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def check_invariants(self) -> None:
        """Base offsets increase, and are those of the segments."""
        segments, base_offsets = self.view
        if tuple(segment.base_offset for segment in segments) != base_offsets or list(base_offsets) != sorted(
            set(base_offsets)
        ):
            raise InvariantError(f"segments at {base_offsets}")
