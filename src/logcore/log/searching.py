"""Finding records by their time.

Timestamps need not go up with offsets, so every segment is asked for its largest one, from the first on; the first that
reaches the time is searched, and no other, as in Kafka.
"""

from typing import NamedTuple

import numpy as np

from logcore._segment import RecordPosition

from .segment import Segment
from .view import LogView

CHUNK_BYTES = 1 << 20  # of one read


class OffsetAndTimestamp(NamedTuple):
    """A record that was found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int | None


def find_timestamp(view: LogView, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record that is not older than `timestamp` and not below the log start offset, or None."""
    for index, segment in enumerate(view.segments.segments):
        if segment.largest_timestamp >= timestamp:
            return _committed(view, segment.find_timestamp(timestamp, view.log_start_offset, view.end_of(index)))
    return None


def find_max_timestamp(view: LogView) -> OffsetAndTimestamp | None:
    """The first record with the largest timestamp of those that can be read, or None if no record has one.

    Nor if that one is not committed yet, as in Kafka. (Kafka also tells one that lies below the log start offset.)
    """
    found: RecordPosition | None = None
    segments = view.segments.segments
    # What a segment says is a bound: that record may have been deleted, or appended since the view was taken.
    bounds = [segment.max_timestamp for segment in segments]
    for index in sorted(range(len(segments)), key=lambda index: (-bounds[index][0], index)):
        timestamp, offset = bounds[index]
        if timestamp < 0 or (found is not None and timestamp < found.timestamp):
            break
        latest = _latest(segments[index], timestamp, offset, view.log_start_offset, view.end_of(index))
        if latest is not None and (
            found is None or (latest.timestamp, -latest.offset) > (found.timestamp, -found.offset)
        ):
            found = latest
    return _committed(view, found)


def _latest(segment: Segment, timestamp: int, offset: int, first_offset: int, end: int) -> RecordPosition | None:
    """The first record with the largest timestamp of a segment, from `first_offset` to the position `end`.

    Perhaps it has `timestamp`, and lies in the batch that ends with `offset`. Otherwise the headers say which batch to
    look into first, and where it cannot be any more.
    """
    quick: RecordPosition | None = segment.log.find_timestamp(
        timestamp, first_offset, segment.start_for(offset, end), end
    )
    if quick is not None and quick.timestamp == timestamp:
        return quick
    found: RecordPosition | None = None
    times, positions, sizes = _batch_times(segment, segment.start_for(first_offset, end), end)
    for at in np.argsort(-times, kind="stable").tolist():
        if times[at] < 0 or (found is not None and times[at] < found.timestamp):
            break
        for batch in segment.log.batches(int(positions[at]), int(positions[at] + sizes[at])):
            for record in batch:
                if record.offset >= first_offset and (
                    found is None or (record.timestamp, -record.offset) > (found.timestamp, -found.offset)
                ):
                    found = RecordPosition(record.offset, record.timestamp, batch.leader_epoch)
    return None if found is None or found.timestamp < 0 else found


def _batch_times(segment: Segment, position: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each batch between two positions its largest timestamp, its position and its size."""
    times, positions, sizes = [], [], []
    while position < end:
        _, scan = segment.log.chunk(position, end, CHUNK_BYTES, verify_crc=False)
        if not len(scan):
            if scan.error is not None:
                raise scan.error
            break
        times.append(scan.headers["max_timestamp"].astype(np.int64))
        positions.append(scan.headers["position"].astype(np.int64) + position)
        sizes.append(scan.headers["size_in_bytes"].astype(np.int64))
        position += scan.consumed
    empty = [np.empty(0, np.int64)]
    return np.concatenate(times or empty), np.concatenate(positions or empty), np.concatenate(sizes or empty)


def _committed(view: LogView, found: RecordPosition | None) -> OffsetAndTimestamp | None:
    if found is None or found.offset >= view.high_watermark:
        return None
    return OffsetAndTimestamp(found.offset, found.timestamp, None if found.leader_epoch < 0 else found.leader_epoch)
