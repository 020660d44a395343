"""Leader epochs: which leader appended which offsets, and when the file has to know it."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from logcore.errors import CorruptCheckpoint, InvariantError, StorageError, UsageError, UsageTypeError
from logcore.log.checkpoints import EpochEntry, read_epochs
from logcore.log.disk import SYSTEM_DISK
from logcore.log.epochs import UNDEFINED_END_OFFSET, EpochEndOffset, LeaderEpochCache
from tests.unit.log.test_checkpoints import RecordingDisk

UNDEFINED = (-1, -1)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "leader-epoch-checkpoint")


@pytest.fixture
def cache(path) -> Iterator[LeaderEpochCache]:
    made = LeaderEpochCache(path)
    yield made
    made.check_invariants()


def filled(*entries: tuple[int, int], path: str = "leader-epoch-checkpoint") -> LeaderEpochCache:
    """A cache that the file agrees with."""
    made = LeaderEpochCache(path, [EpochEntry(*entry) for entry in entries])
    assert (made.entries, made.is_dirty) == (entries, False)
    return made


# --------------------------------------------------------------------------------------------------------- assigning


@pytest.mark.parametrize(
    ("before", "assigned", "after"),
    [
        ([(1, 5), (2, 6)], (1, 7), [(1, 7)]),  # a lower epoch, behind what is known
        ([(2, 6)], (3, 5), [(3, 5)]),  # a higher epoch, but a lower offset
        ([(5, 11), (6, 12), (7, 13)], (7, 12), [(5, 11), (7, 12)]),  # the same epoch, but a lower offset
        ([(5, 11), (6, 12), (7, 13)], (6, 12), [(5, 11), (6, 12)]),
        ([(5, 11), (6, 12), (7, 13)], (6, 20), [(5, 11), (6, 20)]),
        ([(5, 11), (6, 12), (7, 13)], (9, 0), [(9, 0)]),
        ([(5, 11), (6, 12), (7, 13)], (0, 99), [(0, 99)]),
        ([(5, 11), (6, 12)], (8, 14), [(5, 11), (6, 12), (8, 14)]),
    ],
)
def test_what_an_assignment_contradicts_goes(before, assigned, after):
    """LOG-092: epochs and start offsets strictly increase, always."""
    cache = filled(*before)
    assert cache.assign(*assigned)
    assert cache.entries == tuple(after)
    assert cache.is_dirty
    cache.check_invariants()


def test_an_epoch_that_starts_where_the_last_one_does_takes_its_place(cache):
    """LOG-093: nothing was appended in the older one."""
    cache.assign(2, 9)
    cache.assign(3, 9)
    assert cache.entries == ((3, 9),)


def test_the_latest_epoch_is_assigned_once(cache, path):
    """LOG-094: on every later append nothing changes and no file is touched."""
    disk = RecordingDisk()
    assert cache.assign(2, 6)
    cache.flush(disk)
    written = len(disk.calls)
    for start_offset in (6, 7, 10, 2**63 - 1):
        entries = cache.entries
        assert not cache.assign(2, start_offset)
        assert cache.entries is entries
        assert not cache.flush(disk)
    assert (cache.entries, len(disk.calls)) == (((2, 6),), written)


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1), (-1, -1), (2**31, 0), (3, 2**63)])
def test_an_epoch_or_offset_that_cannot_be_is_refused_and_changes_nothing(epoch, start_offset):
    """LOG-095."""
    cache = filled((2, 6))
    with pytest.raises(UsageError):
        cache.assign(epoch, start_offset)
    with pytest.raises(UsageError):
        LeaderEpochCache("x", [EpochEntry(epoch, start_offset)])
    assert (cache.entries, cache.is_dirty) == (((2, 6),), False)


def test_an_epoch_is_an_int():
    cache = filled((2, 6))
    for epoch in ("3", 3.0, None, True):
        with pytest.raises(UsageTypeError):
            cache.assign(epoch, 9)  # type: ignore[arg-type]
    assert cache.entries == ((2, 6),)


# --------------------------------------------------------------------------------------------------------- questions


def test_the_latest_epoch_ends_where_the_log_does(cache):
    """LOG-096."""
    cache.assign(2, 11)
    cache.assign(2, 12)
    assert cache.end_offset_for(2, log_end_offset=14) == EpochEndOffset(2, 14)


def test_an_older_epoch_ends_where_the_next_one_starts():
    """LOG-096: one that is not known ends with the largest below it."""
    cache = filled((0, 10), (2, 13), (4, 17))
    ends = [cache.end_offset_for(epoch, log_end_offset=20) for epoch in range(5)]
    assert ends == [(0, 13), (0, 13), (2, 17), (2, 17), (4, 20)]


def test_ends_follow_leaders_that_come_and_go(cache):
    """LOG-096: also where one has left without a record."""
    cache.assign(0, 0)
    cache.assign(1, 0)
    assert [cache.end_offset_for(epoch, 0) for epoch in (0, 1)] == [(0, 0), (1, 0)]
    assert [cache.end_offset_for(epoch, 5) for epoch in (0, 1)] == [(0, 0), (1, 5)]
    cache.assign(2, 5)
    assert [cache.end_offset_for(epoch, 10) for epoch in (0, 1, 2)] == [(0, 0), (1, 5), (2, 10)]


def test_an_epoch_before_the_first_ends_where_that_starts():
    """LOG-097: its records are gone; the follower goes on at the leader's start."""
    cache = filled((5, 11), (6, 12), (7, 13))
    assert cache.end_offset_for(4, log_end_offset=0) == (4, 11)
    assert cache.end_offset_for(0, log_end_offset=20) == (0, 11)


def test_nobody_knows_where_an_undefined_or_a_future_epoch_ends(cache):
    """LOG-097."""
    for epoch in (-1, 0, 7):
        assert cache.end_offset_for(epoch, 73) == UNDEFINED
    cache.assign(2, 11)
    cache.assign(3, 12)
    for epoch in (-1, 4, 2**31 - 1):
        assert cache.end_offset_for(epoch, 100) == UNDEFINED_END_OFFSET == UNDEFINED


def test_the_epoch_of_an_offset_is_the_last_that_started_before():
    """LOG-098."""
    cache = filled((0, 10), (1, 20), (5, 30))
    assert [cache.epoch_for_offset(offset) for offset in (10, 19, 20, 25, 30, 50)] == [0, 0, 1, 1, 5, 5]
    assert cache.epoch_for_offset(9) is None
    assert cache.epoch_for_offset(-1) is None
    assert LeaderEpochCache("x").epoch_for_offset(0) is None


def test_neighbours_of_an_epoch(cache):
    assert (cache.latest_epoch, cache.latest_entry, cache.earliest_entry) == (None, None, None)
    assert (cache.previous_epoch(2), cache.previous_entry(2), cache.next_epoch(-1), cache.entry_for(2)) == (None,) * 4
    for entry in [(2, 10), (4, 15), (10, 20)]:
        cache.assign(*entry)
    assert (cache.latest_epoch, cache.latest_entry, cache.earliest_entry) == (10, (10, 20), (2, 10))
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 4, 10, 11)] == [None, 2, 2, 4, 10]
    assert [cache.previous_entry(epoch) for epoch in (2, 4, 11)] == [None, (2, 10), (10, 20)]
    assert [cache.next_epoch(epoch) for epoch in (-1, 2, 3, 4, 10, 100)] == [2, 4, 4, 10, None, None]
    assert [cache.entry_for(epoch) for epoch in (1, 2, 3, 10, 11)] == [None, (2, 10), None, (10, 20), None]


def test_entries_of_a_range_are_cut_to_it():
    cache = filled((2, 6), (3, 8), (4, 11))
    assert cache.entries_in_range(7, 11) == ((2, 7), (3, 8))
    assert cache.entries_in_range(0, 8) == ((2, 6),)
    assert cache.entries_in_range(-1, -1) == cache.entries
    assert cache.entries_in_range(20, 30) == ((4, 20),)
    assert cache.entries_in_range(20, 20) == ()
    assert cache.entries == ((2, 6), (3, 8), (4, 11))
    assert not cache.is_dirty


# -------------------------------------------------------------------------------------------------------- truncating


@pytest.mark.parametrize(
    ("end_offset", "after"),
    [
        (12, [(2, 6), (3, 8), (4, 11)]),
        (11, [(2, 6), (3, 8)]),
        (9, [(2, 6), (3, 8)]),
        (8, [(2, 6)]),
        (6, []),
        (0, []),
        (-1, [(2, 6), (3, 8), (4, 11)]),
        (-5, [(2, 6), (3, 8), (4, 11)]),
    ],
)
def test_truncating_from_the_end_forgets_epochs_that_start_there_or_later(end_offset, after):
    """LOG-099."""
    cache = filled((2, 6), (3, 8), (4, 11))
    cache.truncate_from_end(end_offset)
    assert cache.entries == tuple(after)
    assert cache.is_dirty == (len(after) < 3)
    cache.check_invariants()


@pytest.mark.parametrize(
    ("start_offset", "after"),
    [
        (1, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
        (-1, [(2, 6), (3, 8), (4, 11)]),
    ],
)
def test_truncating_from_the_start_keeps_the_epoch_that_goes_on_there(start_offset, after):
    """LOG-100."""
    cache = filled((2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(start_offset)
    assert cache.entries == tuple(after)
    assert cache.is_dirty == (after != [(2, 6), (3, 8), (4, 11)])
    cache.check_invariants()


def test_deleted_segments_move_the_start_of_the_epochs():
    """LOG-078: the numbers; that deleting segments does this, the log's own tests show."""
    cache = filled((0, 0), (1, 7), (2, 10))
    cache.truncate_from_start(5)
    assert cache.entries == ((0, 5), (1, 7), (2, 10))
    cache = filled((1, 0))
    cache.truncate_from_start(100)
    assert cache.entries == ((1, 100),)


def test_an_empty_cache_is_truncated_and_cleared_in_vain(cache):
    cache.truncate_from_end(7)
    cache.truncate_from_start(7)
    cache.clear()
    assert (cache.entries, cache.is_dirty) == ((), False)


def test_clearing_forgets_all(path):
    cache = filled((2, 6), (3, 8), path=path)
    cache.clear()
    assert (cache.entries, cache.latest_epoch, cache.is_dirty) == ((), None, True)
    cache.flush(SYSTEM_DISK)
    assert read_epochs(SYSTEM_DISK, path) == []


def test_the_log_does_not_start_behind_every_offset():
    cache = filled((2, 6))
    with pytest.raises(UsageError):
        cache.truncate_from_start(2**63)
    assert cache.entries == ((2, 6),)


# ---------------------------------------------------------------------------------------------------------- the file


def test_an_assignment_asks_for_the_file_until_it_is_written(path):
    """LOG-101: a failed write is asked for again by the next append, though that changes nothing."""
    cache = filled((2, 6), path=path)
    assert cache.assign(3, 9)
    with pytest.raises(StorageError):
        cache.flush(RecordingDisk(sync=errno.EIO))
    assert cache.assign(3, 9)
    assert cache.assign(3, 12)
    assert cache.flush(SYSTEM_DISK)
    assert not cache.assign(3, 12)
    assert read_epochs(SYSTEM_DISK, path) == [(2, 6), (3, 9)]


def test_a_truncation_may_be_written_later(path):
    """LOG-101: the next append of the same epoch does not wait for it. Until then the file has entries too many."""
    cache = LeaderEpochCache(path)
    for entry in [(2, 6), (3, 8), (4, 11)]:
        cache.assign(*entry)
    cache.flush(SYSTEM_DISK)
    cache.truncate_from_end(11)
    cache.truncate_from_start(7)
    assert cache.is_dirty
    assert not cache.assign(3, 10)
    assert read_epochs(SYSTEM_DISK, path) == [(2, 6), (3, 8), (4, 11)]
    stale = LeaderEpochCache.load(SYSTEM_DISK, path)
    stale.truncate_from_end(11)
    stale.truncate_from_start(7)
    assert stale.entries == cache.entries == ((2, 7), (3, 8))
    assert cache.flush_unless_gone(SYSTEM_DISK)
    assert not cache.flush_unless_gone(SYSTEM_DISK)
    assert read_epochs(SYSTEM_DISK, path) == [(2, 7), (3, 8)]


def test_a_truncation_is_not_written_to_a_directory_that_is_gone(tmp_path):
    """LOG-141: it was renamed to be deleted. An assignment must be written, and is not passed over."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    cache = filled((2, 6), (3, 8), path=str(directory / "leader-epoch-checkpoint"))
    directory.rename(tmp_path / "orders-0.x-delete")
    cache.truncate_from_end(8)
    assert not cache.flush_unless_gone(SYSTEM_DISK)
    assert cache.is_dirty
    cache.assign(4, 9)
    with pytest.raises(StorageError) as caught:
        cache.flush(SYSTEM_DISK)
    assert caught.value.errno == errno.ENOENT
    cache.path = str(tmp_path / "orders-0.x-delete" / "leader-epoch-checkpoint")
    assert cache.flush(SYSTEM_DISK)
    assert read_epochs(SYSTEM_DISK, cache.path) == [(2, 6), (4, 9)]


def test_a_failing_disk_is_not_passed_over(path):
    cache = filled((2, 6), path=path)
    cache.clear()
    with pytest.raises(StorageError):
        cache.flush_unless_gone(RecordingDisk(sync=errno.EIO))


def test_epochs_outlive_the_cache(path):
    cache = LeaderEpochCache.load(SYSTEM_DISK, path)
    assert (cache.entries, cache.is_dirty) == ((), False)
    cache.assign(2, 6)
    cache.flush(SYSTEM_DISK)
    again = LeaderEpochCache.load(SYSTEM_DISK, path)
    assert (again.entries, again.is_dirty) == (((2, 6),), False)
    assert not again.assign(2, 7)


def test_in_a_file_that_contradicts_itself_the_later_lines_win(tmp_path, path):
    """LOG-092: the file is written anew when the log next writes it."""
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n5\n1 5\n2 6\n1 7\n3 9\n3 11\n")
    cache = LeaderEpochCache.load(SYSTEM_DISK, path)
    assert (cache.entries, cache.is_dirty) == (((1, 7), (3, 9)), True)
    assert not cache.assign(3, 12)
    cache.check_invariants()
    cache.flush(SYSTEM_DISK)
    assert read_epochs(SYSTEM_DISK, path) == [(1, 7), (3, 9)]


def test_a_damaged_file_is_refused(tmp_path, path):
    """LOG-139."""
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n2\n1 5\n")
    with pytest.raises(CorruptCheckpoint) as caught:
        LeaderEpochCache.load(SYSTEM_DISK, path)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "entries", [[(3, 9), (3, 10)], [(2, 9), (3, 9)], [(3, 9), (2, 10)], [(-1, 0)], [(0, -1)], [(0, 2**63)]]
)
def test_a_state_that_cannot_be_is_found(entries):
    cache = LeaderEpochCache("x")
    cache._entries = tuple(EpochEntry(*entry) for entry in entries)
    with pytest.raises(InvariantError):
        cache.check_invariants()


def test_an_unwritten_assignment_that_nobody_would_write_is_found():
    cache = LeaderEpochCache("x")
    cache._is_unwritten = True
    with pytest.raises(InvariantError):
        cache.check_invariants()
