"""Cutting off the beginning of a log: what is too old, too much, or no longer wanted.

Whole segments go, from the oldest on, and never one that has records at or above the high watermark. The log start
offset is on the disk before a segment is touched, so that a crash in the middle leaves nothing that can be read and has
a hole in it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from logcore.errors import OffsetOutOfRangeError

from .segment import Segment

if TYPE_CHECKING:
    from .partition import PartitionLog

_Rule = Callable[[Segment, Segment | None], bool]


def retain(log: "PartitionLog", now_ms: int) -> int:
    """Delete the segments that the policy lets go: below the log start offset, over the size, over the age.

    Returns how many. A compacted log that is not to be deleted from loses only what lies below its start.
    """
    log.check_usable()
    deleted = delete_below_start(log, now_ms)
    if log.config.is_deleting:
        deleted += _delete(log, _over_size(log), now_ms)
        deleted += _delete(log, _over_age(log, now_ms), now_ms)
    return deleted


def delete_records(log: "PartitionLog", before_offset: int, now_ms: int) -> int:
    """Let the log begin at `before_offset`, and delete the segments before it. Returns the log start offset.

    A lower one than it has changes nothing. -1 is the high watermark.
    """
    log.check_usable()
    if before_offset == -1:
        before_offset = log.high_watermark
    if not 0 <= before_offset <= log.high_watermark:
        raise OffsetOutOfRangeError(
            f"delete records of {log.partition}: got offset {before_offset}, wanted 0 to {log.high_watermark}, "
            "the high watermark"
        )
    if raise_log_start_offset(log, before_offset):
        delete_below_start(log, now_ms)
        log.publish()
    return log.log_start_offset


def raise_log_start_offset(log: "PartitionLog", offset: int) -> bool:
    """Let the log begin later, on the disk too. Says whether it does. Producers stay known."""
    if offset <= log.log_start_offset:
        return False
    log.keeper.write_log_start_offset(log.partition, offset)
    log.log_start_offset = offset
    log.is_changed = True
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start_offset_incremented(offset)
    return True


def delete_below_start(log: "PartitionLog", now_ms: int) -> int:
    """Delete the segments whose records all lie below the log start offset."""

    def is_below(segment: Segment, following: Segment | None) -> bool:
        return following is not None and following.base_offset <= log.log_start_offset

    return _delete(log, is_below, now_ms)


def _over_size(log: "PartitionLog") -> _Rule:
    limit = log.config.retention_bytes
    excess = log.size - limit if limit >= 0 else -1

    def is_over(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess
        if excess < 0 or excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return is_over


def _over_age(log: "PartitionLog", now_ms: int) -> _Rule:
    limit = log.config.retention_ms

    def is_over(segment: Segment, _: Segment | None) -> bool:
        return limit >= 0 and now_ms - segment.largest_timestamp > limit

    return is_over


def _delete(log: "PartitionLog", is_due: _Rule, now_ms: int) -> int:
    """Delete segments from the oldest on, until one is not due."""
    segments = log.segments.view.segments
    due: list[Segment] = []
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        end = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end or (following is None and not segment.size) or not is_due(segment, following):
            break
        due.append(segment)
    if not due:
        return 0
    if len(due) == len(segments):
        log.roll(now_ms)  # One segment always remains.
    following = log.segments.higher(due[-1].base_offset)
    assert following is not None
    raise_log_start_offset(log, following.base_offset)
    try:
        log.segments.replace(due, [])
        log.delete_later(due, now_ms)
    except BaseException as error:
        # They are in no list any more, and would be back under their names.
        raise log.fail_halfway("deletion of segments", error) from None
    log.publish()
    return len(due)
