"""Finding records by their time.

Timestamps need not go up with offsets, so every segment is asked for its largest one, from the first on; the first that
reaches the time is searched, and no other, as in Kafka.
"""

from typing import NamedTuple

from .view import LogView


class OffsetAndTimestamp(NamedTuple):
    """A record that was found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int | None


def find_timestamp(view: LogView, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record that is not older than `timestamp` and not below the log start offset, or None."""
    for index, segment in enumerate(view.segments.segments):
        if segment.largest_timestamp >= timestamp:
            found = segment.find_timestamp(timestamp, view.log_start_offset, view.end_of(index))
            if found is None or found.offset >= view.high_watermark:
                return None
            return _made(*found)
    return None


def find_max_timestamp(view: LogView) -> OffsetAndTimestamp | None:
    """The first record with the largest timestamp of all, or None if no record has one."""
    segments = view.segments.segments
    index = max(range(len(segments)), key=lambda index: (segments[index].max_timestamp[0], -index))
    timestamp, offset = segments[index].max_timestamp
    if timestamp < 0:
        return None
    end = view.end_of(index)
    start = segments[index].start_for(offset, end)
    found = segments[index].log.find_timestamp(timestamp, view.log_start_offset, start, end)
    return None if found is None else _made(*found)


def _made(offset: int, timestamp: int, leader_epoch: int) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(offset, timestamp, None if leader_epoch < 0 else leader_epoch)
