"""What readers see of a log: its segments and offsets at one moment, never changed, only replaced.

A reader takes the log's view and works on it without a lock. Appends, rolls, retention and compaction that come later
make new views; the files of this one stay readable, also when they have been replaced or deleted. Only a truncation
takes bytes away: a reader that finds less than its view says asks for the log's `generation`, which counts them.
"""

from typing import Literal, NamedTuple

from logcore._segment import BatchPosition
from logcore.errors import OffsetOutOfRangeError, UsageError

from .segment import Segment
from .segments import SegmentsView
from .txnindex import AbortedTransaction

Isolation = Literal["read_uncommitted", "read_committed"]


class Slice(NamedTuple):
    """Whole batches in one file, to be sent or read: [position, end) of the segment's .log."""

    segment: Segment
    position: int
    end: int

    @property
    def size_in_bytes(self) -> int:
        """How many bytes that are."""
        return self.end - self.position


class Fetch(NamedTuple):
    """What fetch() gives. `first_offset` is the base offset of the batch that it begins with."""

    first_offset: int
    slice: Slice | None  # None: nothing to read there yet
    aborted: list[AbortedTransaction]
    is_first_incomplete: bool  # the first batch is longer than what was asked for, and cut


class LogView(NamedTuple):
    """A log at one moment."""

    segments: SegmentsView
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    end_position: int  # in the active segment's .log: where log_end_offset will be written
    generation: int  # how often the log was truncated

    def check_offset(self, offset: int) -> None:
        """Raise OffsetOutOfRangeError unless there may be something to read at `offset`, now or later."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"read: got offset {offset}, wanted {self.log_start_offset} to {self.log_end_offset}"
            )

    def end_of(self, index: int) -> int:
        """Where the batches of segment `index` end. It opens the file, as whoever asks is about to read it: a file that
        gets its name meanwhile may have another size.
        """
        return self.end_in(index, self.segments.segments[index].file.size)

    def end_in(self, index: int, size: int) -> int:
        """Likewise, for who has the file open and knows its size."""
        return self.end_position if index == len(self.segments.segments) - 1 else size

    def find(self, offset: int) -> tuple[int, BatchPosition] | None:
        """The batch that has `offset`, or the first one behind it: the segment's number, and where it lies in it."""
        index = max(self.segments.floor_index(offset), 0)
        while index < len(self.segments.segments):
            found = self.segments.segments[index].find(offset, self.end_of(index))
            if found is not None:
                return index, found
            index += 1
        return None

    def fetch(
        self, offset: int, *, bytes_max: int, end_offset: int, at_least_one: bool = True, want_aborted: bool = False
    ) -> Fetch:
        """One segment's bytes from the batch of `offset` on, as Kafka answers a fetch: up to `end_offset`.

        The last batch may be cut at `bytes_max`; the first one too, unless `at_least_one`.
        """
        if bytes_max < 0:
            raise UsageError("bytes_max", got=bytes_max, wanted="0 or more")
        self.check_offset(offset)
        found = None if offset >= end_offset else self.find(offset)
        if found is None or found[1].base_offset >= end_offset:
            return Fetch(offset, None, [], False)
        index, first = found
        segment = self.segments.segments[index]
        limit = self.end_of(index)
        if end_offset < self.log_end_offset:
            behind = segment.find(end_offset, limit)
            if behind is not None:
                limit = behind.position
        size = max(bytes_max, first.size_in_bytes) if at_least_one else bytes_max
        if size == 0:
            return Fetch(first.base_offset, None, [], False)
        part = Slice(segment, first.position, min(first.position + size, limit))
        aborted = self.aborted(offset, self._upper_bound(index, part)) if want_aborted else []
        return Fetch(first.base_offset, part, aborted, size < first.size_in_bytes)

    def _upper_bound(self, index: int, part: Slice) -> int:
        """An offset that is behind what lies in `part`, cheaply."""
        entry = part.segment.offset_index.upper_bound(part.position, part.size_in_bytes)
        if entry is not None:
            return entry.offset
        if index + 1 < len(self.segments.segments):
            return self.segments.base_offsets[index + 1]
        return self.log_end_offset

    def aborted(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch [first_offset, end_offset), in the order of their markers."""
        found: list[AbortedTransaction] = []
        for index in range(max(self.segments.floor_index(first_offset), 0), len(self.segments.segments)):
            more, is_complete = self.segments.segments[index].transactions.collect(first_offset, end_offset)
            found += more
            if is_complete:
                break
        return found
