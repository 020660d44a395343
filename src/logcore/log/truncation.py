"""Cutting off the end of a log: a follower whose leader knows better, a user who changes their mind.

What a crash in the middle may leave is the log before or after, or with some of the last segments gone, never with a
hole: the recovery point is lowered on the disk first, then segments behind the cut go one by one from the last, each
durably, and only then the segment of the cut is shortened.

Readers are told by `cuts`. And what is appended next gets a new leader epoch, by which readers in other processes
tell that what they read before is no longer what lies there (Kafka's followers and consumers do the same, KIP-320).
"""

from typing import TYPE_CHECKING

from logcore.errors import UsageError

from .epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from .names import OFFSET_MAX
from .recovery import rebuild_producers

if TYPE_CHECKING:
    from .partition import PartitionLog


def truncate_to(log: "PartitionLog", offset: int, now_ms: int) -> bool:
    """Remove every batch that has `offset` or a later one; the log ends at `offset`, perhaps with a gap before it.

    Says whether there was something to remove.
    """
    log.check_usable()
    if not 0 <= offset <= OFFSET_MAX:
        raise UsageError("offset to truncate to", where=log.directory, got=offset, wanted="0 or more")
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments.first.base_offset:
        truncate_fully(log, offset, now_ms)
    else:
        # To where the segment begins: what is left of it may end before `offset`, and its indexes change too.
        floor = log.segments.floor(offset)
        log.keeper.lower_recovery_point(log.partition, 0 if floor is None else floor.base_offset)
        log.keeper.lower_cleaned_offset(log.partition, offset)
        log.cuts.append(0 if floor is None else min(floor.end_before(offset), offset))
        try:
            cut(log, offset, now_ms)
        except BaseException as error:
            raise log.fail_halfway("truncation", error) from None
        log.publish()
    return True


def truncate_to_epoch_end(log: "PartitionLog", told: EpochEndOffset, now_ms: int) -> bool:
    """Cut off what a leader does not have. `told` is its end_offset_for_epoch() of this log's latest epoch.

        where the epoch ends, nobody knows        the log is cut at the high watermark
        an epoch that this log has                at where it ends in both logs
        one that it does not have                 at where the largest epoch below ends here. Behind that, both may
                                                  have records of other leaders: the leader has to be asked again, for
                                                  the latest epoch that is left

    Says whether this was all. KIP-101, KIP-279; Kafka: AbstractFetcherThread.

    here (0, 0) (3, 6) with the end 9, there (0, 0) (1, 8) (2, 12) (5, 20): asked for 3, it tells (2, 20). That cuts at
    6, and is not all. Asked for 0, which is the latest now, it tells (0, 8), and nothing is left to be cut.
    """
    log.check_usable()
    if told.end_offset == UNDEFINED_EPOCH_OFFSET:
        truncate_to(log, log.high_watermark, now_ms)
        return True
    mine = log.end_offset_for_epoch(told.epoch)
    if told.epoch == UNDEFINED_EPOCH or mine.end_offset == UNDEFINED_EPOCH_OFFSET:
        truncate_to(log, min(told.end_offset, log.log_end_offset), now_ms)
        return True
    is_all = mine.epoch == told.epoch
    end_offset = min(mine.end_offset, told.end_offset) if is_all else mine.end_offset
    truncate_to(log, min(end_offset, log.log_end_offset), now_ms)
    return is_all


def cut(log: "PartitionLog", offset: int, now_ms: int) -> None:
    """Let the log end at `offset`, which lies in its segments."""
    for segment in reversed(log.segments.view.segments):
        if segment.base_offset <= offset:
            break
        log.segments.remove(segment)
        log.delete_later([segment], now_ms)
        log.disk.sync_directory(log.directory)
    active = log.segments.active
    active.truncate_to(offset, now_ms)
    active.sync_log()
    log.log_end_offset = log.cut_offset = offset
    # What was cut inside a batch ends before `offset`. There is nothing on the disk between.
    log.written_end_offset = active.next_offset()
    log.recovery_point = min(log.recovery_point, log.written_end_offset)
    if offset < log.log_start_offset:
        _lower_start(log, offset)
    log.is_changed = True
    log.least_epoch = log.leader_epoch + 1  # also if the epochs that go now are the latest
    log.epochs.truncate_from_end(offset)
    _reload(log, now_ms)


def truncate_fully(log: "PartitionLog", offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
    """Remove everything; the log is empty and goes on at `offset`."""
    log.check_usable()
    log.keeper.lower_recovery_point(log.partition, 0)
    log.keeper.lower_cleaned_offset(log.partition, 0)
    log.cuts.append(min(offset, log.log_start_offset))
    try:
        _remove_all(log, offset, now_ms, offset if log_start_offset is None else log_start_offset)
    except BaseException as error:
        raise log.fail_halfway("truncation", error) from None
    log.publish()


def _remove_all(log: "PartitionLog", offset: int, now_ms: int, log_start_offset: int) -> None:
    for segment in reversed(log.segments.view.segments):
        log.segments.remove(segment)
        log.delete_later([segment], now_ms)
        log.disk.sync_directory(log.directory)
    segment = log.new_segment(offset, now_ms)
    segment.create()
    log.segments.add(segment)
    log.disk.sync_directory(log.directory)
    log.log_end_offset = log.written_end_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    _lower_start(log, log_start_offset)
    log.high_watermark = min(max(log.high_watermark, offset), offset)
    log.is_changed = True
    log.least_epoch = log.leader_epoch + 1
    log.epochs.clear()
    log.producers.truncate_fully_and_start_at(offset)
    _reload(log, now_ms)


def _lower_start(log: "PartitionLog", offset: int) -> None:
    """Let the log begin at `offset`, on the disk too: what is appended below its old start would be lost.

    Only now, when nothing is left that lies between: what was deleted there must not be seen again. A crash before this
    leaves a log that ends before it begins, and is empty when it is opened.
    """
    log.keeper.write_log_start_offset(log.partition, offset)
    log.log_start_offset = offset


def _reload(log: "PartitionLog", now_ms: int) -> None:
    rebuild_producers(log.producers, log.segments, log.log_start_offset, log.log_end_offset, now_ms)
    if log.epochs.is_dirty:
        log.epochs.flush(log.disk)
    log.disk.sync_directory(log.directory)
