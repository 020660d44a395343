"""Reading a log again to make what follows from it: indexes, leader epochs, producer state; and to find its end.

recover_segment() reads a segment from its beginning, and stops at the first batch that cannot be one of it. Three ends
are told apart:

    clean      the last batch ends where the file ends
    torn       what follows the last good batch is the rest of an interrupted write: nothing good lies behind it
    corrupt    good batches lie behind the bad one: somebody changed bytes that were written whole

A batch is good if its size, magic and checksum are right, and its offsets go forward. Gaps are kept, as compaction and
truncation leave them.

Memory: one chunk of the segment, and its largest batch, at a time.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from typing_extensions import Buffer

from logcore._batch import BatchScan, find_batch
from logcore.errors import CorruptBatch, CorruptionReason

from .appending import Headers
from .epochs import LeaderEpochCache
from .feeding import replay
from .names import OFFSET_MAX
from .producers import ProducerState
from .segment import Segment, SegmentOffsetOverflow
from .segments import Segments
from .view import LogView

CHUNK_BYTES = 4 << 20  # of one read
HEADERS_MAX = 4096  # of one read of headers
SEARCH_BYTES = 8 << 20  # of one look for a good batch behind a bad one; half of it is the longest that is surely found

Outcome = Literal["clean", "torn", "corrupt"]
Progress = Callable[[int], None]  # told how many bytes more were read


class SegmentRecovery(NamedTuple):
    """What recover_segment() found."""

    end_offset: int  # the offset after the last good batch
    end_position: int  # where that batch ends
    bytes_cut: int
    outcome: Outcome
    error: CorruptBatch | None  # what is wrong with the first batch that is not good


def recover_segment(
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochCache,
    *,
    first_offset: int,
    keep_before: int = 0,
    progress: Progress | None = None,
) -> SegmentRecovery:
    """Make the indexes of a segment anew, take its batches into `producers` and `epochs`, and cut off its bad end.

    first_offset: what the offsets of the segment must not be below
    keep_before: the recovery point: bad bytes before this offset are not cut off but raised. They were on the disk for
        sure, so no crash explains them, and good records behind them would be lost

    SegmentOffsetOverflow if a good batch does not fit the segment, which then has to be split.
    """
    indexer = segment.rebuild()
    size = segment.size
    position, next_offset = 0, max(first_offset, segment.base_offset)
    error: CorruptBatch | None = None
    while position < size and error is None:
        data, scan = segment.log.chunk(position, size, CHUNK_BYTES)
        headers, error = _good(segment, scan, position, next_offset)
        if len(headers):
            indexer.add(headers, position)
            _note_epochs(epochs, headers)
            for aborted in replay(producers, headers, data):
                segment.transactions.append(aborted)
            next_offset = int(headers[-1]["last_offset"]) + 1
            producers.map_end_offset = next_offset
            read = int(headers[-1]["position"]) + int(headers[-1]["size_in_bytes"])
            position += read
            if progress is not None:
                progress(read)
        elif error is None:
            break  # a part of a batch
    outcome: Outcome = "clean"
    if position < size:
        outcome = "corrupt" if _has_good_batch(segment, position + 1, size) else "torn"
        if error is None:
            error = CorruptBatch(
                "size", reason=CorruptionReason.TRUNCATED, got=f"{size - position} bytes", wanted="a whole batch",
                path=segment.path, position=position, offset=next_offset,
            )  # fmt: skip
        if next_offset < keep_before:
            raise error
        # Durably: good batches may lie behind the bad one. If the next append took just the place of the bad one, and
        # a crash undid the cut, they would follow it as if they had been appended after it.
        segment.file.truncate(position)
        segment.is_log_dirty = True
        segment.sync_log()
    segment.seal()
    return SegmentRecovery(next_offset, position, size - position, outcome, error)


def _good(segment: Segment, scan: BatchScan, position: int, next_offset: int) -> tuple[Headers, CorruptBatch | None]:
    """The batches of a chunk up to the first that is bad, and what is wrong with that one."""
    headers = scan.headers
    if not len(headers):
        return headers, scan.error
    lasts = headers["last_offset"]
    # Messages of magic 0 and 1 tell their last offset only.
    firsts = np.where(headers["magic"] < 2, lasts, headers["base_offset"])
    expected = np.concatenate(([next_offset], lasts[:-1] + 1))
    bad = np.flatnonzero((firsts < expected) | (lasts < firsts) | (lasts == OFFSET_MAX))
    if len(bad):
        first = int(bad[0])
        # No checksum covers an offset. If the one that goes back belongs into a gap, what leapt over it is wrong.
        leaps = np.flatnonzero((expected[:first] <= firsts[first]) & (firsts[first] < firsts[:first]))
        if len(leaps):
            first = int(leaps[0])
        error: CorruptBatch | None = CorruptBatch(
            "offsets", reason=CorruptionReason.OFFSET_ORDER, got=f"{firsts[first]} to {lasts[first]}",
            wanted=f"{expected[first]} or more, and less than what follows", path=segment.path,
            position=position + int(headers[first]["position"]),
        )  # fmt: skip
        headers = headers[:first]
    else:
        error = scan.error
    if len(headers) and not segment.fits(int(headers[-1]["last_offset"])):
        raise SegmentOffsetOverflow(segment, int(headers[-1]["last_offset"]))
    return headers, error


def _note_epochs(epochs: LeaderEpochCache, headers: Headers) -> None:
    known = headers["leader_epoch"]
    for index in (0, *(np.flatnonzero(known[1:] != known[:-1]) + 1).tolist()):
        epoch, latest = int(known[index]), epochs.latest_epoch
        if epoch >= 0 and headers[index]["magic"] >= 2 and (latest is None or epoch > latest):
            epochs.assign(epoch, int(headers[index]["base_offset"]))


def _has_good_batch(segment: Segment, position: int, end: int) -> bool:
    while position < end:
        window = segment.file.read(position, min(SEARCH_BYTES, end - position))
        if find_batch(window) is not None:
            return True
        if len(window) < SEARCH_BYTES:
            return False
        position += SEARCH_BYTES // 2
    return False


def rebuild_producers(
    producers: ProducerState,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    is_clean: bool = False,
    progress: Progress | None = None,
) -> None:
    """Bring the producers to what they were at `end_offset`: from the newest good snapshot, and the batches behind it.

    A log that was closed cleanly and has no snapshot at all is one of a time before there were any: it has no
    producers. Snapshots are taken at the last two segments and at the end, so that the next time there is less to read.
    """
    bases = segments.view.base_offsets
    wanted = {*bases[-2:], end_offset}
    if is_clean and producers.snapshots.latest() is None:
        for offset in sorted(wanted):
            producers.map_end_offset = offset
            producers.take_snapshot(sync=False)
        return
    was_empty = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not was_empty:
        for segment in segments.between(producers.map_end_offset, end_offset):
            producers.map_end_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            if segment.base_offset in wanted:
                producers.take_snapshot(sync=False)
            _read_producers(producers, segment, segment.size, end_offset, progress)
    producers.map_end_offset = end_offset
    producers.take_snapshot(sync=False)


def read_producers(producers: ProducerState, view: LogView) -> None:
    """Take the batches of a log from where the state stands to the log's end into it. Nothing is written.

    Aborted transactions are noted in the segments, since their indexes may lack the last ones (txnindex.py). Headers
    are enough, and the few control batches, which are read whole and checked. What the headers say was checked when it
    was written, or is no later than what a refresh has checked.
    """
    segments = view.segments.segments
    for index in range(max(view.segments.floor_index(producers.map_end_offset), 0), len(segments)):
        segment = segments[index]
        size = view.end_of(index)
        position, end = _span(producers, segment, size, view.log_end_offset)
        over = segment.find(view.log_end_offset, size) if end < size else None
        if over is not None and over.base_offset < view.log_end_offset:
            end += over.size_in_bytes  # the end lies in the midst of this batch
        while position < end:
            headers = segment.log.headers(position, end, HEADERS_MAX)
            if not len(headers):
                raise _cut_off(segment, position, end)
            segment.transactions.replayed += replay(producers, headers, partial(_checked_batch, segment, position))
            position = int(headers[-1]["position"]) + int(headers[-1]["size_in_bytes"])
    producers.map_end_offset = view.log_end_offset


def _span(producers: ProducerState, segment: Segment, size: int, end_offset: int) -> tuple[int, int]:
    """Where the batches begin and end in a segment that the state lacks, up to `end_offset`."""
    first = segment.find(producers.map_end_offset, size)
    if first is None:
        return size, size
    behind = segment.find(end_offset, size)
    return first.position, size if behind is None else behind.position


def _checked_batch(segment: Segment, first: int, at: int, size: int) -> Buffer:
    """The batch that lies `at` bytes behind position `first`."""
    data, scan = segment.log.chunk(first + at, first + at + size, size)
    if not len(scan):
        raise scan.error or _cut_off(segment, first + at, first + at + size)
    return data


def _cut_off(segment: Segment, position: int, end: int) -> CorruptBatch:
    return CorruptBatch(
        "size", reason=CorruptionReason.TRUNCATED, got=f"{end - position} bytes", wanted="a whole batch",
        path=segment.path, position=position,
    )  # fmt: skip


def _read_producers(
    producers: ProducerState, segment: Segment, size: int, end_offset: int, progress: Progress | None
) -> None:
    """Take the batches of a segment from where the state stands, up to `end_offset`, into it."""
    position, end = _span(producers, segment, size, end_offset)
    while position < end:
        data, scan = segment.log.chunk(position, end, CHUNK_BYTES)
        if not len(scan):
            raise scan.error or _cut_off(segment, position, end)
        replay(producers, scan.headers, data)
        position += scan.consumed
        if progress is not None:
            progress(scan.consumed)
