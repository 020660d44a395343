"""Producers, written to snapshots and read back: after a crash, a truncation, a clean shutdown, beside a writer."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from logcore.errors import StorageError, TransactionCoordinatorFencedError, UsageError
from logcore.log import snapshot
from logcore.log.disk import SYSTEM_DISK, SystemDisk
from logcore.log.names import SNAPSHOT, file_name
from logcore.log.producer_append import EndTxnMarker, Origin
from logcore.log.producers import ProducerState
from logcore.log.snapshot import SnapshotEntry
from logcore.log.transactions import LogOffsetMetadata

PRODUCER = 1
NOW_MS = 1_000_000_000


@pytest.fixture
def state(tmp_path: Path) -> ProducerState:
    return opened(tmp_path)


def opened(directory: Path, **options) -> ProducerState:
    return ProducerState(SYSTEM_DISK, str(directory), **options)


def append(
    state: ProducerState,
    sequence: int,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    is_transactional: bool = False,
    origin: Origin = "client",
) -> None:
    candidate = state.prepare(producer_id, origin)
    candidate.append(epoch, sequence, sequence, offset, offset, timestamp, is_transactional)
    state.update(candidate)
    state.map_end_offset = offset + 1


def append_marker(
    state: ProducerState, offset: int, *, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = NOW_MS
) -> None:
    candidate = state.prepare(PRODUCER, "coordinator")
    marker = EndTxnMarker(True, coordinator_epoch, timestamp)
    completed = candidate.append_control(epoch, offset, marker, transaction_version=0)
    state.update(candidate)
    if completed is not None:
        state.complete_transaction(completed)
    state.map_end_offset = offset + 1


def listed(directory: Path) -> list[int]:
    return sorted(int(path.name.removesuffix(SNAPSHOT)) for path in directory.iterdir())


def reloaded(directory: Path, start: int, end: int, *, now_ms: int = NOW_MS, **options) -> ProducerState:
    state = opened(directory, **options)
    state.truncate_and_reload(start, end, now_ms)
    state.check_invariants()
    return state


def with_snapshots(state: ProducerState, count: int) -> ProducerState:
    """Batches at 0, 1, 2, …, and a snapshot after each."""
    for offset in range(count):
        append(state, offset, offset)
        state.take_snapshot(sync=False)
    return state


def unstable(state: ProducerState) -> int | None:
    found = state.first_unstable_offset()
    return None if found is None else found.offset


# --------------------------------------------------------------------------------------------------------- what is kept


def test_a_snapshot_holds_what_is_known_and_is_named_by_the_end(state, tmp_path):
    """PST-054: in the order in which the producers came."""
    append(state, 4, 100, producer_id=9, epoch=3, timestamp=5000)
    candidate = state.prepare(2, "client")
    candidate.append(1, 0, 9, 110, 119, 6000, True)
    state.update(candidate)
    append_marker(state, 120, epoch=7, coordinator_epoch=4, timestamp=7000)
    path = state.take_snapshot(sync=True)
    assert path == str(tmp_path / "00000000000000000121.snapshot")
    assert snapshot.parse(Path(path).read_bytes()) == [
        SnapshotEntry(9, 3, 4, 100, 0, 5000, -1, -1),
        SnapshotEntry(2, 1, 9, 119, 9, 6000, -1, 110),
        SnapshotEntry(PRODUCER, 7, -1, -1, 0, 7000, 4, -1),
    ]
    assert reloaded(tmp_path, 0, 121, now_ms=8000).active_producers == state.active_producers


@pytest.mark.parametrize("is_ended", [False, True])
def test_of_the_batches_only_the_last_is_kept_and_the_open_transaction(state, tmp_path, is_ended):
    """PST-055: the duplicate window begins anew with one batch."""
    append(state, 0, 0, is_transactional=True)
    append(state, 1, 1, is_transactional=True)
    if is_ended:
        append_marker(state, 2)
    state.take_snapshot(sync=True)
    recovered = reloaded(tmp_path, 0, 3)
    entry = recovered.last_entry(PRODUCER)
    assert entry is not None
    assert (entry.first_sequence, entry.first_data_offset) == (1, 1)
    assert (entry.last_sequence, entry.last_data_offset) == (1, 1)
    assert entry.current_txn_first_offset == (None if is_ended else 0)
    assert entry.find_duplicate(0, 0, 0) is None
    assert entry.find_duplicate(0, 1, 1) is not None
    assert recovered.first_undecided_offset() == (None if is_ended else 0)
    append(recovered, 2, 3, is_transactional=True)
    recovered.check_invariants()


def test_a_marker_without_records_is_kept(state, tmp_path):
    """PST-055: its timestamp too."""
    append_marker(state, 0, timestamp=NOW_MS - 5)
    state.take_snapshot(sync=True)
    assert reloaded(tmp_path, 0, 1).last_entry(PRODUCER) == (PRODUCER, 0, 0, NOW_MS - 5, None, ())


def test_a_coordinator_is_fenced_after_a_reload(state, tmp_path):
    """PST-027: by the epoch that the snapshot has."""
    append(state, 0, 99, is_transactional=True)
    append_marker(state, 100, coordinator_epoch=1)
    state.take_snapshot(sync=True)
    recovered = reloaded(tmp_path, 0, 101)
    with pytest.raises(TransactionCoordinatorFencedError):
        append_marker(recovered, 101, coordinator_epoch=0)
    append_marker(recovered, 101, coordinator_epoch=1)


def test_a_late_transaction_is_late_after_a_reload_and_gone_after_a_truncation(state, tmp_path):
    """PST-040: whatever the truncation is."""
    append(state, 0, 100, is_transactional=True)
    append(state, 0, 150, producer_id=2, is_transactional=True, timestamp=NOW_MS + 500)
    state.take_snapshot(sync=True)
    late_ms = NOW_MS + 900_000 + 300_000 + 1
    assert state.has_late_transaction(late_ms)
    assert reloaded(tmp_path, 0, 151, now_ms=late_ms).has_late_transaction(late_ms)
    assert not reloaded(tmp_path, 0, 80, now_ms=late_ms).has_late_transaction(late_ms)
    state.truncate_fully_and_start_at(150)
    assert not state.has_late_transaction(late_ms)


def test_an_idle_producer_is_left_out_in_loading(state, tmp_path):
    """PST-052: judged by the time of loading."""
    append(state, 0, 0)
    append(state, 0, 1, producer_id=2, timestamp=NOW_MS + 1)
    append(state, 0, 2, producer_id=3, is_transactional=True)
    state.take_snapshot(sync=True)
    recovered = reloaded(tmp_path, 0, 3, now_ms=NOW_MS + 86_400_000)
    assert list(recovered.active_producers) == [2, 3]
    append(recovered, 7, 3)  # it is unknown now
    append(recovered, 1, 4, producer_id=2)
    assert list(reloaded(tmp_path, 0, 3, now_ms=NOW_MS + 86_399_999).active_producers) == [1, 2, 3]


# ------------------------------------------------------------------------------------------------------- when and where


def test_two_snapshots_of_one_end_are_one_file(state, tmp_path):
    """PST-056: the second is not written."""
    append(state, 0, 0)
    assert state.take_snapshot(sync=True) is not None
    assert state.take_snapshot(sync=True) is None
    assert listed(tmp_path) == [1]


def test_records_without_a_producer_advance_the_end(state, tmp_path):
    """PST-057: after one of them there is a snapshot at 1, of nobody."""
    assert state.take_snapshot(sync=True) is None
    state.map_end_offset = 1
    path = state.take_snapshot(sync=True)
    assert path is not None
    assert listed(tmp_path) == [1]
    assert snapshot.parse(Path(path).read_bytes()) == []


def test_a_snapshot_that_cannot_be_written_is_written_later(tmp_path):
    class Full(SystemDisk):
        is_full = True

        def rename(self, source: str, target: str) -> None:
            if self.is_full:
                raise StorageError("rename", errno=errno.ENOSPC, path=source)
            super().rename(source, target)

    disk = Full()
    state = ProducerState(disk, str(tmp_path))
    append(state, 0, 0)
    with pytest.raises(StorageError):
        state.take_snapshot(sync=True)
    assert state.snapshots.offsets == listed(tmp_path) == []
    disk.is_full = False
    assert state.take_snapshot(sync=True) is not None
    assert state.snapshots.offsets == listed(tmp_path) == [1]


def test_what_was_not_synced_is_told(state):
    append(state, 0, 0)
    state.take_snapshot(sync=False)
    assert state.snapshots.is_directory_changed
    state.snapshots.sync()
    state.check_invariants()


# ------------------------------------------------------------------------------------------------------------ reloading


def cut_to(size: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:size]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(cut_to(0), id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: bytes(37) + data[37:], id="garbled"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="wrong crc"),
        pytest.param(lambda data: data + b"\x00", id="longer"),
    ],
)
def test_a_damaged_snapshot_is_removed_and_an_older_one_taken(state, tmp_path, damage):
    """PST-058: of two, both, and then none."""
    with_snapshots(state, 3)

    def spoil(offset: int) -> None:
        path = tmp_path / file_name(offset, SNAPSHOT)
        path.write_bytes(damage(path.read_bytes()))

    spoil(3)
    spoil(2)
    recovered = reloaded(tmp_path, 0, 20)
    assert listed(tmp_path) == recovered.snapshots.offsets == [1]
    assert recovered.last_entry(PRODUCER).last_data_offset == 0
    assert recovered.map_end_offset == 1
    spoil(1)
    recovered = reloaded(tmp_path, 0, 20)
    assert listed(tmp_path) == []
    assert (recovered.map_end_offset, recovered.is_empty) == (0, True)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([SnapshotEntry(7, 0, 4, 1, 0, NOW_MS, -1, -1)] * 2, id="a producer twice"),
        pytest.param([SnapshotEntry(n, 0, 4, 1, 0, NOW_MS, -1, 1) for n in (7, 8)], id="two transactions from 1"),
        pytest.param([SnapshotEntry(7, 0, 4, 1, 0, NOW_MS, -1, 3)], id="a transaction from the end"),
        pytest.param([SnapshotEntry(7, 0, 4, 1, 0, NOW_MS, -1, 1 << 60)], id="a transaction behind the end"),
    ],
)
def test_a_snapshot_that_cannot_be_true_is_a_damaged_one(state, tmp_path, entries):
    """PST-058: a right checksum does not make it so."""
    with_snapshots(state, 2)
    state.snapshots.write(3, entries, sync=False)
    recovered = reloaded(tmp_path, 0, 20)
    assert listed(tmp_path) == [1, 2]
    assert list(recovered.active_producers) == [PRODUCER]


def test_a_snapshot_that_is_gone_is_passed_over(state, tmp_path):
    with_snapshots(state, 2)
    names = [path.name for path in tmp_path.iterdir()]
    (tmp_path / file_name(2, SNAPSHOT)).unlink()
    assert reloaded(tmp_path, 0, 20, names=names).map_end_offset == 1


def test_a_disk_that_fails_while_loading_leaves_the_state(tmp_path, state):
    class Failing(SystemDisk):
        def open(self, path: str, *, is_writable: bool = False, create: bool = False):
            raise StorageError("open", errno=errno.EIO, path=path)

    with_snapshots(state, 2)
    failing = ProducerState(Failing(), str(tmp_path))
    append(failing, 5, 10)
    with pytest.raises(StorageError):
        failing.truncate_and_reload(0, 2, NOW_MS)
    assert (failing.map_end_offset, list(failing.active_producers)) == (11, [PRODUCER])
    assert listed(tmp_path) == [1, 2]


def test_truncating_removes_the_snapshots_outside_of_the_range(state, tmp_path):
    """PST-059: of 1 to 5 with (1, 3] there remain 2 and 3."""
    with_snapshots(state, 5)
    state.truncate_and_reload(1, 3, NOW_MS)
    assert listed(tmp_path) == state.snapshots.offsets == [2, 3]
    assert (state.map_end_offset, state.last_entry(PRODUCER).last_sequence) == (3, 2)
    append(state, 3, 3)


def test_a_state_that_is_at_the_end_already_is_kept(state, tmp_path):
    """PST-060: with all its batches; only the start moves."""
    with_snapshots(state, 3)
    append(state, 0, 3, producer_id=2, is_transactional=True)
    state.truncate_and_reload(2, 4, NOW_MS * 100)
    assert len(state.last_entry(PRODUCER).kept) == 3
    assert state.first_undecided_offset() == 3
    assert listed(tmp_path) == state.snapshots.offsets == [3]
    state.truncate_and_reload(4, 4, NOW_MS * 100)
    assert (len(state.active_producers), listed(tmp_path)) == (2, [])


def test_unstable_offsets_come_back_with_a_truncation(state, tmp_path):
    """PST-036, PST-060: a transaction that was ended behind the new end is open again."""
    append(state, 0, 99, is_transactional=True)
    state.take_snapshot(sync=False)
    append_marker(state, 105)
    state.on_high_watermark_updated(106)
    assert unstable(state) is None
    state.take_snapshot(sync=False)
    append(state, 1, 106)
    state.truncate_and_reload(0, 106, NOW_MS)
    assert unstable(state) is None
    state.truncate_and_reload(0, 100, NOW_MS)
    assert state.first_unstable_offset() == LogOffsetMetadata(99)
    state.check_invariants()


def test_a_truncation_forgets_ended_transactions(state, tmp_path):
    append(state, 0, 99, is_transactional=True)
    append_marker(state, 105)
    assert unstable(state) == 99
    state.truncate_and_reload(0, 50, NOW_MS)
    assert (unstable(state), state.is_empty, state.map_end_offset) == (None, True, 0)


def test_full_truncation_forgets_and_removes_everything(state, tmp_path):
    """PST-061: and the state is that of the offset."""
    with_snapshots(state, 3)
    append(state, 3, 3, is_transactional=True)
    state.truncate_fully_and_start_at(150)
    state.check_invariants()
    assert (listed(tmp_path), state.snapshots.offsets) == ([], [])
    assert (state.map_end_offset, state.is_empty, unstable(state)) == (150, True, None)
    state.truncate_fully_and_start_at(0)
    append(state, 0, 0)
    state.take_snapshot(sync=False)
    assert listed(tmp_path) == [1]


def test_strays_are_removed_by_the_bases_of_segments(state, tmp_path):
    """PST-062: the newest above them all is kept."""
    with_snapshots(state, 5)
    state.remove_stray_snapshots([0, 2])
    assert listed(tmp_path) == state.snapshots.offsets == [2, 5]
    state.remove_stray_snapshots([6], names=[path.name for path in tmp_path.iterdir()])
    assert listed(tmp_path) == []


def test_snapshots_before_an_offset_are_deleted_and_producers_stay(state, tmp_path):
    """PST-053, PST-063: before 3 means below it."""
    append(state, 0, 0)
    append(state, 1, 1)
    state.take_snapshot(sync=False)
    append(state, 2, 2)
    state.take_snapshot(sync=False)
    assert listed(tmp_path) == [2, 3]
    state.delete_snapshots_before(3)
    assert listed(tmp_path) == state.snapshots.offsets == [3]
    state.delete_snapshots_before(4)
    assert listed(tmp_path) == state.snapshots.offsets == []
    assert state.last_entry(PRODUCER).last_sequence == 2


def test_a_snapshot_is_marked_for_deletion(state, tmp_path):
    """PST-064: renamed and forgotten; if it is gone, forgotten."""
    with_snapshots(state, 2)
    assert state.mark_snapshot_for_deletion(1) == str(tmp_path / "00000000000000000001.snapshot.deleted")
    (tmp_path / file_name(2, SNAPSHOT)).unlink()
    assert state.mark_snapshot_for_deletion(2) is None
    assert state.snapshots.offsets == []


def test_the_list_of_snapshots_may_be_made_anew(state, tmp_path):
    """PST-065: what is known is removed and forgotten, and what the directory holds counts."""
    for sequence in (1, 2):
        append(state, sequence, sequence)
    state.take_snapshot(sync=False)
    restored = (tmp_path / file_name(3, SNAPSHOT)).read_bytes()
    for sequence in (3, 4):
        append(state, sequence, sequence)
    state.take_snapshot(sync=False)
    state.truncate_and_reload(3, 5, NOW_MS)
    assert listed(tmp_path) == [5]
    (tmp_path / file_name(3, SNAPSHOT)).write_bytes(restored)
    state.truncate_fully_and_reload_snapshots()
    assert listed(tmp_path) == state.snapshots.offsets == [3]
    assert (state.is_empty, state.map_end_offset) == (True, 0)
    state.truncate_and_reload(0, 5, NOW_MS)
    assert (state.map_end_offset, state.last_entry(PRODUCER).last_sequence) == (3, 2)


def test_the_names_may_be_the_callers(state, tmp_path):
    with_snapshots(state, 3)
    names = [file_name(2, SNAPSHOT), file_name(2, ".log"), "leader-epoch-checkpoint"]
    assert reloaded(tmp_path, 0, 20, names=names).map_end_offset == 2


def test_after_the_log_start_has_moved_a_snapshot_is_taken_only_above_the_latest(state, tmp_path):
    with_snapshots(state, 3)
    state.on_log_start_offset_incremented(1)
    assert state.take_snapshot(sync=False) is None
    state.on_log_start_offset_incremented(10)
    assert state.take_snapshot(sync=False) is not None
    assert listed(tmp_path) == [1, 2, 3, 10]
    state.delete_snapshots_before(11)
    state.on_log_start_offset_incremented(12)
    assert state.take_snapshot(sync=False) is None


# ------------------------------------------------------------------------------------------------------ beside a writer


def test_a_reader_takes_the_newest_good_snapshot_and_touches_nothing(state, tmp_path):
    """PST-058, PST-059: what it would remove it looks at no more."""
    with_snapshots(state, 5)
    (tmp_path / file_name(4, SNAPSHOT)).write_bytes(b"half-writt")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tmp_path.chmod(0o555)
    try:
        reader = opened(tmp_path, read_only=True)
        reader.truncate_and_reload(1, 4, NOW_MS)
        assert (reader.map_end_offset, reader.snapshots.offsets) == (3, [2, 3])
        assert reader.last_entry(PRODUCER).last_sequence == 2
        append(reader, 3, 3, origin="replication")
        with pytest.raises(UsageError, match="read_only"):
            reader.take_snapshot(sync=True)
        reader.remove_stray_snapshots([2])
        reader.delete_snapshots_before(3)
        reader.mark_snapshot_for_deletion(5)
        reader.truncate_fully_and_start_at(0)
        reader.truncate_fully_and_reload_snapshots()
        assert reader.snapshots.offsets == [1, 2, 3, 4, 5]
    finally:
        tmp_path.chmod(0o755)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
