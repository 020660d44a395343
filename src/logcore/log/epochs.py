"""The leader epochs of a partition: which leader appended which offsets. Kafka's LeaderEpochFileCache.

    entries    (0, 40) (2, 160)        epoch 0's leader appended offsets 40 to 159, epoch 2's appends from 160 on

A follower that comes back asks the leader where the epoch of its own last record ends, and cuts off what lies behind
(KIP-101, KIP-279); a consumer finds out that way that its position was cut off (KIP-320). For that, both epochs and
start offsets of the entries strictly increase, always: what a new entry contradicts, goes.

The cache is in memory; its file, leader-epoch-checkpoint, is written by flush(), when the log says so:

- After an assignment **before** a record of the epoch is appended: assign() returns True until that is done. Records
  whose epoch the file does not know would belong to an older epoch after a crash, and survive a truncation that they
  should not.
- After a truncation whenever it suits. The file then has entries too many, which opening the log takes away: it cuts
  the cache at its own end and start.

One thread changes a cache. Any thread may ask it: each question looks at one tuple, and no tuple is ever changed.
"""

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from logcore._timingwheel import DEBUG
from logcore.errors import InvariantError, StorageError

from .checkpoints import EpochEntry, read_epochs, write_epochs
from .disk import Disk
from .text_files import INT_MAX, LONG_MAX, check_integer

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1

_CHECKED_COUNT_MAX = 256  # entries up to which a debug build walks them all after each change

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class EpochEndOffset(NamedTuple):
    """Where an epoch ends: `end_offset` is the first offset that is not its any more. (-1, -1) where nobody knows."""

    epoch: int
    end_offset: int


UNDEFINED_END_OFFSET = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LeaderEpochCache:
    """Epochs and their start offsets, and whether the file has them.

        path       of the file; to be set anew when its directory is renamed
        entries    what the file has; where they contradict each other, the later win, and the cache is dirty

    >>> cache = LeaderEpochCache("orders-0/leader-epoch-checkpoint", [EpochEntry(0, 40)])
    >>> cache.assign(0, 100), cache.assign(2, 160)             # epoch 0 is known; 2 has to be written
    (False, True)
    >>> cache.end_offset_for(0, log_end_offset=170), cache.end_offset_for(2, log_end_offset=170)
    (EpochEndOffset(epoch=0, end_offset=160), EpochEndOffset(epoch=2, end_offset=170))
    >>> cache.epoch_for_offset(159), cache.epoch_for_offset(39)
    (0, None)
    """

    def __init__(self, path: str, entries: Iterable[EpochEntry] = ()) -> None:
        self.path = path
        given = tuple(entries)
        kept: list[EpochEntry] = []
        for epoch, start_offset in given:
            entry = _checked_entry(epoch, start_offset)
            if _is_news(kept, entry):
                del kept[_agreeing_count(kept, entry) :]
                kept.append(entry)
        self._entries = tuple(kept)  # epochs and start offsets strictly increase
        self._is_dirty = self._entries != given  # the file has other entries
        self._is_unwritten = False  # an assignment was not followed by a flush yet; implies _is_dirty

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochCache":
        """What the file `path` says; empty if there is none. It may be stale: truncate to the log's end and start."""
        return cls(path, read_epochs(disk, path))

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return self._entries

    @property
    def is_dirty(self) -> bool:
        """Whether the file has other entries."""
        return self._is_dirty

    @property
    def latest_entry(self) -> EpochEntry | None:
        """The entry of the latest leader."""
        entries = self._entries
        return entries[-1] if entries else None

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the latest leader, who may not have appended anything yet."""
        entries = self._entries
        return entries[-1].epoch if entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The entry of the leader that appended what now is the start of the log."""
        entries = self._entries
        return entries[0] if entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Say that the leader of `epoch` appends from `start_offset` on. True if flush() must come before it does.

        For the latest epoch, as in nearly every append, nothing changes and nothing is looked up. A lower epoch, or an
        offset before a known start, contradicts what is known, and the tail that it contradicts goes:

            (5, 11) (6, 12) (7, 13)    assign(7, 12) -> (5, 11) (7, 12)
            (1, 5) (2, 6)              assign(1, 7)  -> (1, 7)
            (2, 9)                     assign(3, 9)  -> (3, 9): epoch 2 has no records
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return self._is_unwritten
        entry = _checked_entry(epoch, start_offset)
        self._entries = (*entries[: _agreeing_count(entries, entry)], entry)
        self._is_dirty = self._is_unwritten = True
        self._check_in_debug()
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at `end_offset` or behind. -1 changes nothing.

        (2, 6) (3, 8) (4, 11)    at 9 -> (2, 6) (3, 8);    at 8 -> (2, 6)
        """
        if end_offset >= 0:
            self._change(_before(self._entries, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what lies before `start_offset`: the epoch that goes on there begins there now. -1 changes nothing.

        (2, 6) (3, 8) (4, 11)    at 8 -> (3, 8) (4, 11);    at 9 -> (3, 9) (4, 11);    at 15 -> (4, 15)
        """
        check_integer("start offset", start_offset, -LONG_MAX - 1, LONG_MAX)
        self._change(_from(self._entries, start_offset))

    def clear(self) -> None:
        """Forget all epochs."""
        self._change(())

    def flush(self, disk: Disk) -> bool:
        """Write the file, for good, if it has other entries. Returns whether it had."""
        if not self._is_dirty:
            return False
        write_epochs(disk, self.path, self._entries)
        self._is_dirty = self._is_unwritten = False
        return True

    def flush_unless_gone(self, disk: Disk) -> bool:
        """The same after a truncation: if the file's directory is gone, it was renamed to be deleted, and that is fine.

        Then False is returned, and the cache stays dirty.
        """
        try:
            return self.flush(disk)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where the largest known epoch up to `epoch` ends.

            -1, above the latest, or nothing is known    (-1, -1)
            the latest                                   (epoch, log_end_offset)
            below the first                              (epoch, where the first starts): the records are gone
            else                                         (largest one <= epoch, where the next starts)

        (0, 10) (2, 13) (4, 17)    for 1 -> (0, 13);    for 2 and 3 -> (2, 17)
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_END_OFFSET
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(entries, epoch, key=_epoch)
        floor_epoch = entries[higher - 1].epoch if higher else epoch
        return EpochEndOffset(floor_epoch, entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch whose leader appended `offset`, or is to; None below the first."""
        entries = self._entries
        count = bisect_right(entries, offset, key=_start_offset)
        return entries[count - 1].epoch if count else None

    def entry_for(self, epoch: int) -> EpochEntry | None:
        """The entry of just this epoch."""
        entries = self._entries
        at = bisect_left(entries, epoch, key=_epoch)
        return entries[at] if at < len(entries) and entries[at].epoch == epoch else None

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of the largest epoch below `epoch`."""
        entries = self._entries
        count = bisect_left(entries, epoch, key=_epoch)
        return entries[count - 1] if count else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest known epoch below `epoch`."""
        entry = self.previous_entry(epoch)
        return None if entry is None else entry.epoch

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest known epoch above `epoch`."""
        entries = self._entries
        at = bisect_right(entries, epoch, key=_epoch)
        return entries[at].epoch if at < len(entries) else None

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """The entries that offsets from `start_offset` to before `end_offset` need, cut to them; -1 cuts nothing."""
        entries = _from(self._entries, start_offset)
        return _before(entries, end_offset) if end_offset >= 0 else entries

    def check_invariants(self) -> None:
        """Walk all of it, and raise InvariantError at what cannot be. Debug builds do so after each change."""
        for entry in self._entries:
            if not (0 <= entry.epoch <= INT_MAX and 0 <= entry.start_offset <= LONG_MAX):
                raise InvariantError(f"leader epochs, {self.path}: got {entry}, wanted an epoch and an offset")
        for earlier, later in pairwise(self._entries):
            if not (earlier.epoch < later.epoch and earlier.start_offset < later.start_offset):
                raise InvariantError(f"leader epochs, {self.path}: got {later} behind {earlier}, wanted both to rise")
        if self._is_unwritten and not self._is_dirty:
            raise InvariantError(f"leader epochs, {self.path}: got an unwritten assignment, wanted it to be dirty")

    def _change(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self._entries:
            self._entries = entries
            self._is_dirty = True
            self._check_in_debug()

    def _check_in_debug(self) -> None:
        if DEBUG and len(self._entries) <= _CHECKED_COUNT_MAX:
            self.check_invariants()


def _checked_entry(epoch: int, start_offset: int) -> EpochEntry:
    return EpochEntry(
        check_integer("leader epoch", epoch, 0, INT_MAX), check_integer("start offset", start_offset, 0, LONG_MAX)
    )


def _is_news(entries: Sequence[EpochEntry], entry: EpochEntry) -> bool:
    return not entries or entries[-1].epoch != entry.epoch or entries[-1].start_offset > entry.start_offset


def _agreeing_count(entries: Sequence[EpochEntry], entry: EpochEntry) -> int:
    """How many of the first entries have a lower epoch and a lower start offset. Both rise, so both are searched."""
    by_epoch = bisect_left(entries, entry.epoch, key=_epoch)
    return min(by_epoch, bisect_left(entries, entry.start_offset, key=_start_offset))


def _before(entries: tuple[EpochEntry, ...], end_offset: int) -> tuple[EpochEntry, ...]:
    return entries[: bisect_left(entries, end_offset, key=_start_offset)]


def _from(entries: tuple[EpochEntry, ...], start_offset: int) -> tuple[EpochEntry, ...]:
    started = bisect_right(entries, start_offset, key=_start_offset)
    if not started:
        return entries
    return (EpochEntry(entries[started - 1].epoch, start_offset), *entries[started:])
