"""The .snapshot files of a directory: listed, written, read, removed; and never touched by a reader."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logcore.errors import CorruptionReason, CorruptSnapshot, InvariantError, StorageError, UsageError
from logcore.log import snapshot, snapshot_files
from logcore.log.disk import SYSTEM_DISK, DiskFile, SystemDisk
from logcore.log.names import SNAPSHOT, file_name
from logcore.log.snapshot import SnapshotEntry
from logcore.log.snapshot_files import SnapshotFiles

ENTRIES = [SnapshotEntry(7, 0, 4, 104, 4, 1600, -1, -1)]


def put(directory: Path, *offsets: int, data: bytes = b"") -> None:
    for offset in offsets:
        (directory / file_name(offset, SNAPSHOT)).write_bytes(data)


def listed(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.iterdir() if path.name.endswith(SNAPSHOT))


class Recording:
    """A SystemDisk whose calls are noted, and refused where `refused` names them."""

    def __init__(self) -> None:
        self.disk = SystemDisk()
        self.calls: list[tuple[str, str]] = []
        self.refused: set[str] = set()

    def note(self, what: str, path: str) -> None:
        self.calls.append((what, os.path.basename(path)))
        if what in self.refused:
            raise StorageError(what, errno=errno.EIO, path=path)

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> DiskFile:
        self.note("open" if is_writable else "open to read", path)
        return NotedFile(self.disk.open(path, is_writable=is_writable, create=create), self)

    def rename(self, source: str, target: str) -> None:
        self.note("rename", source)
        self.disk.rename(source, target)

    def unlink(self, path: str) -> bool:
        self.note("unlink", path)
        return self.disk.unlink(path)

    def __getattr__(self, name: str):
        return getattr(self.disk, name)


class NotedFile:
    def __init__(self, file: DiskFile, disk: Recording) -> None:
        self.file, self.disk = file, disk

    def append(self, parts) -> int:
        self.disk.note("append", self.file.path)
        return self.file.append(parts)

    def sync(self) -> None:
        self.disk.note("sync", self.file.path)
        self.file.sync()

    def __getattr__(self, name: str):
        return getattr(self.file, name)


@pytest.fixture
def disk() -> Recording:
    return Recording()


def test_the_list_is_made_of_a_listing_or_of_the_callers_names(tmp_path):
    """PST-065: other files, and those on their way out, are none."""
    put(tmp_path, 5, 3)
    names = ["00000000000000000009.log", "00000000000000000007.snapshot.deleted", "leader-epoch-checkpoint"]
    names += ["7.snapshot", "00000000000000000004.snapshot.tmp", "99999999999999999999.snapshot"]
    for name in names:
        (tmp_path / name).touch()
    assert SnapshotFiles(SYSTEM_DISK, str(tmp_path)).offsets == [3, 5]
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path), names=[*names, file_name(8, SNAPSHOT)])
    assert (files.offsets, files.oldest(), files.latest()) == ([8], 8, 8)
    files.reload()
    assert (files.offsets, files.oldest(), files.latest()) == ([3, 5], 3, 5)


def test_a_directory_that_is_not_there_has_no_snapshots(tmp_path):
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path / "none"))
    assert (files.offsets, files.oldest(), files.latest()) == ([], None, None)


def test_a_listing_that_fails_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        SnapshotFiles(SYSTEM_DISK, str(tmp_path / "file"))


def test_a_snapshot_has_its_name_only_once_it_is_whole(tmp_path, disk):
    files = SnapshotFiles(disk, str(tmp_path))
    path = files.write(200, ENTRIES, sync=True)
    name, temporary = file_name(200, SNAPSHOT), file_name(200, SNAPSHOT, ".tmp")
    assert path == str(tmp_path / name)
    assert disk.calls == [(what, temporary) for what in ("open", "append", "sync", "rename")]
    assert Path(path).read_bytes() == snapshot.format(ENTRIES)
    assert (files.read(200), files.offsets, files.is_directory_changed) == (ENTRIES, [200], True)


def test_one_that_was_written_without_sync_is_synced_later(tmp_path, disk):
    files = SnapshotFiles(disk, str(tmp_path))
    for offset in (300, 100, 200, 400):
        files.write(offset, ENTRIES, sync=False)
    files.write(300, ENTRIES, sync=True)
    files.remove(400)
    os.unlink(files.path(200))
    disk.calls.clear()
    files.sync()
    opened, synced = ("open", file_name(100, SNAPSHOT)), ("sync", file_name(100, SNAPSHOT))
    assert disk.calls == [opened, synced, ("open", file_name(200, SNAPSHOT))]
    files.sync()
    assert len(disk.calls) == 3


def test_a_sync_that_fails_is_owed(tmp_path, disk):
    files = SnapshotFiles(disk, str(tmp_path))
    files.write(100, ENTRIES, sync=False)
    disk.refused = {"open"}
    with pytest.raises(StorageError):
        files.sync()
    disk.refused = {"sync"}
    with pytest.raises(StorageError):
        files.sync()
    disk.refused = set()
    disk.calls.clear()
    files.sync()
    assert [what for what, _ in disk.calls] == ["open", "sync"]


def test_a_shorter_snapshot_in_place_of_a_longer_one_is_whole(tmp_path):
    put(tmp_path, 100, data=b"x" * 5000)
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    (tmp_path / file_name(100, SNAPSHOT, ".tmp")).write_bytes(b"y" * 5000)  # left by a crash
    files.write(100, ENTRIES, sync=True)
    assert (files.read(100), files.offsets) == (ENTRIES, [100])


@pytest.mark.parametrize("refused", ["open", "append", "sync", "rename"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, disk, refused):
    files = SnapshotFiles(disk, str(tmp_path))
    files.write(100, ENTRIES, sync=True)
    files.is_directory_changed = False
    disk.refused = {refused}
    for offset in (100, 200):
        with pytest.raises(StorageError) as caught:
            files.write(offset, [], sync=True)
        assert caught.value.what == refused
    assert [path.name for path in tmp_path.iterdir()] == [file_name(100, SNAPSHOT)]
    assert (files.read(100), files.offsets, files.is_directory_changed) == (ENTRIES, [100], False)


def test_a_failure_to_clean_up_does_not_hide_why(tmp_path, disk):
    disk.refused = {"append", "unlink"}
    with pytest.raises(StorageError) as caught:
        SnapshotFiles(disk, str(tmp_path)).write(100, ENTRIES, sync=True)
    assert caught.value.what == "append"


def test_a_file_that_is_gone_or_a_directory_is_no_snapshot(tmp_path):
    (tmp_path / file_name(5, SNAPSHOT)).mkdir()
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path), names=[file_name(5, SNAPSHOT), file_name(6, SNAPSHOT)])
    assert (files.read(5), files.read(6)) == (None, None)
    files.remove(5)
    files.remove(6)
    files.remove(6)
    assert (files.offsets, files.is_directory_changed) == ([], False)
    assert (tmp_path / file_name(5, SNAPSHOT)).is_dir()


def test_a_damaged_file_names_itself(tmp_path):
    put(tmp_path, 5, data=b"\x00\x02")
    with pytest.raises(CorruptSnapshot) as caught:
        SnapshotFiles(SYSTEM_DISK, str(tmp_path)).read(5)
    assert caught.value.path == str(tmp_path / file_name(5, SNAPSHOT))


def test_a_file_longer_than_kafka_can_read_is_damage_and_not_read(tmp_path, monkeypatch):
    put(tmp_path, 5, data=bytes(100))
    monkeypatch.setattr(snapshot_files, "SNAPSHOT_BYTES_MAX", 99)
    with pytest.raises(CorruptSnapshot, match="size wanted up to 99 bytes") as caught:
        SnapshotFiles(SYSTEM_DISK, str(tmp_path)).read(5)
    assert caught.value.reason is CorruptionReason.MALFORMED


def test_other_failures_to_read_or_remove_are_told(tmp_path, disk):
    put(tmp_path, 5)
    files = SnapshotFiles(disk, str(tmp_path))
    disk.refused = {"open to read", "unlink", "rename"}
    for call in (files.read, files.remove, files.mark_deleted):
        with pytest.raises(StorageError):
            call(5)
    assert files.offsets == [5]


def test_those_before_an_offset_are_removed(tmp_path):
    """PST-063: before 3 means below it."""
    put(tmp_path, 2, 3, 5)
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    files.remove_before(3)
    assert files.offsets == listed(tmp_path) == [3, 5]
    assert files.is_directory_changed
    files.remove_before(6)
    assert files.offsets == listed(tmp_path) == []


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [(1, 3, [2, 3]), (0, 9, [1, 2, 3, 4, 5]), (5, 5, []), (4, 2, []), (0, 0, []), (2, 2, [])],
)
def test_those_outside_of_a_range_are_removed(tmp_path, start, end, left):
    """PST-059: at or below its start, and above its end."""
    put(tmp_path, 1, 2, 3, 4, 5)
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    files.remove_outside(start, end)
    assert files.offsets == listed(tmp_path) == left


@pytest.mark.parametrize(
    ("offsets", "bases", "left"),
    [
        ([2, 5, 42], [5], [5, 42]),
        ([2, 5, 42], [42], [42]),
        ([2, 5, 42], [2, 5, 42], [2, 5, 42]),
        ([2, 5, 42], [100], []),
        ([2, 5, 42], [], [42]),
        ([41, 42, 43], [40], [43]),
        ([], [5], []),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
def test_strays_are_removed_but_for_the_newest_above_all_segments(tmp_path, offsets, bases, left, is_listed):
    """PST-062: that one was written at a clean shutdown."""
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    put(tmp_path, *offsets)
    files.remove_stray(bases, [path.name for path in tmp_path.iterdir()] if is_listed else None)
    assert files.offsets == listed(tmp_path) == left


def test_what_a_crash_left_half_written_goes_with_the_strays(tmp_path):
    (tmp_path / file_name(9, SNAPSHOT, ".tmp")).touch()
    (tmp_path / "leader-epoch-checkpoint.tmp").touch()
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path), read_only=True)
    files.remove_stray([])
    assert len(list(tmp_path.iterdir())) == 2
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    files.remove_stray([])
    assert [path.name for path in tmp_path.iterdir()] == ["leader-epoch-checkpoint.tmp"]
    assert files.is_directory_changed


def test_marking_renames_and_forgets(tmp_path):
    """PST-064: to .deleted."""
    put(tmp_path, 5)
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    marked = str(tmp_path / file_name(5, SNAPSHOT, ".deleted"))
    assert files.mark_deleted(5) == marked
    assert files.offsets == []
    assert [str(path) for path in tmp_path.iterdir()] == [marked]
    assert files.is_directory_changed
    assert files.mark_deleted(5) is None


def test_marking_one_that_is_gone_only_forgets_it(tmp_path):
    """PST-064: somebody else removed the file."""
    put(tmp_path, 5)
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path))
    os.unlink(files.path(5))
    assert files.mark_deleted(5) is None
    assert (files.offsets, files.is_directory_changed) == ([], False)


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[Path]:
    """A directory that must be the same afterwards."""
    put(tmp_path, 1, 2, 3, data=snapshot.format(ENTRIES))
    put(tmp_path, 4, data=b"bad")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    yield tmp_path
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before


def test_read_only_forgets_where_it_would_remove(untouched):
    def opened() -> SnapshotFiles:
        return SnapshotFiles(SYSTEM_DISK, str(untouched), read_only=True)

    files = opened()
    files.remove(2)
    assert files.offsets == [1, 3, 4]
    assert files.mark_deleted(3) is None
    assert files.offsets == [1, 4]
    files = opened()
    files.remove_before(3)
    assert files.offsets == [3, 4]
    files = opened()
    files.remove_outside(1, 3)
    assert files.offsets == [2, 3]
    files.remove_stray([1, 2])
    assert files.offsets == [1, 2, 4]
    assert files.read(2) == ENTRIES
    files.sync()
    with pytest.raises(UsageError, match=r"^snapshot, .*: got read_only, wanted a log open for writing$"):
        files.write(9, [], sync=False)
    assert not files.is_directory_changed


def test_check_invariants_finds_what_cannot_be(tmp_path):
    files = SnapshotFiles(SYSTEM_DISK, str(tmp_path), names=[])
    files._offsets = [2, 1]
    with pytest.raises(InvariantError, match="in order"):
        files.check_invariants()
    files._offsets, files._unsynced = [1], {2}
    with pytest.raises(InvariantError, match="unsynced"):
        files.check_invariants()
