"""What a disk in memory has that the system's has not: a capacity, a clock, processes, and a look at everything."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logcore._index import OffsetIndex
from logcore.errors import InvariantError, StorageError
from logcore.log.disk import DiskFile
from tests.disk.crash import CrashDisk
from tests.disk.memory import MemoryDisk


@pytest.fixture(params=[MemoryDisk, CrashDisk])
def disk(request: pytest.FixtureRequest) -> MemoryDisk:
    made: MemoryDisk = request.param()
    return made


def writable(disk: MemoryDisk, path: str) -> DiskFile:
    return disk.open(path, is_writable=True, create=True)


def test_a_full_disk_takes_no_part_of_an_append(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 100
    file = writable(disk, "/a")
    file.append([bytes(90)])
    file.preallocate(200)
    with pytest.raises(StorageError) as caught:
        file.append([b"x" * 5, b"y" * 6])
    assert (caught.value.what, caught.value.errno, caught.value.path) == ("write", errno.ENOSPC, "/a")
    assert (file.size, disk.used_bytes, disk.status("/a").size) == (90, 90, 200)  # type: ignore[union-attr]
    file.append([b"z" * 10])
    file.write(0, b"over what is there")
    disk.capacity_bytes = 101
    file.append([b"!"])
    file.close()
    assert disk.used_bytes == 101


def test_what_is_cut_or_removed_makes_room_once_nobody_has_it_open(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 100
    file = writable(disk, "/a")
    file.append([bytes(80)])
    file.truncate(50)
    assert disk.used_bytes == 50
    disk.unlink("/a")
    assert disk.used_bytes == 50
    file.close()
    assert disk.used_bytes == 0
    for name in ("/a", "/b"):
        file = writable(disk, name)
        file.append([bytes(50)])
        file.close()
    disk.rename("/a", "/b")
    assert disk.used_bytes == 50


def test_a_mapping_on_a_full_disk_says_so(disk: MemoryDisk) -> None:
    index = OffsetIndex(disk.map("/0.index", 80, is_writable=True), 0, entry_count=0, is_writable=True)
    disk.capacity_bytes = 8
    index.append(1, 1)
    with pytest.raises(StorageError):
        index.append(2, 2)
    disk.capacity_bytes = None
    index.append(2, 2)
    assert (len(index), index.lookup(9)) == (2, (2, 2))


def test_zeros_that_were_never_written_cost_nothing(disk: MemoryDisk) -> None:
    file = writable(disk, "/0.log")
    file.preallocate(1 << 50)
    file.append([b"abc"])
    assert disk.used_bytes == 3
    file.close()
    assert disk.tree() == {"0.log": b"abc"}


def test_times_are_those_of_the_clock() -> None:
    now_ms = 1000
    disk = MemoryDisk(clock=lambda: now_ms)
    file = writable(disk, "/a")
    now_ms = 2000
    file.append([b"abc"])
    now_ms = 3000
    file.read(0, 3)
    status, root = disk.status("/a"), disk.status("/")
    assert status is not None
    assert root is not None
    assert (status.modified_ms, root.modified_ms) == (2000, 1000)


def test_a_cut_under_a_mapping_is_refused_because_a_look_would_end_the_process(disk: MemoryDisk) -> None:
    mapping = disk.map("/0.index", 80, is_writable=True)
    file = writable(disk, "/0.index")
    with pytest.raises(InvariantError, match="cut to 8 bytes under a mapping of 80"):
        file.truncate(8)
    mapping.close()
    file.truncate(8)
    disk.map("/0.index", 0)  # forgotten, and so closed
    file.truncate(0)


def test_a_node_keeps_its_number_and_no_other_gets_it(disk: MemoryDisk) -> None:
    numbers = set()
    for _ in range(5):
        writable(disk, "/a").close()
        status = disk.status("/a")
        assert status is not None
        numbers.add(status.inode)
        disk.unlink("/a")
    assert len(numbers) == 5


def test_relative_paths_begin_at_the_root(disk: MemoryDisk) -> None:
    disk.make_directory("data/orders-0")
    writable(disk, "./data//orders-0/../a").close()
    assert disk.tree("/data") == {"a": b"", "orders-0": None}
    assert disk.list("data") == ["a", "orders-0"]
    for path, code in (("", errno.ENOENT), ("/a" * 2048, errno.ENAMETOOLONG)):
        with pytest.raises(StorageError) as caught:
            disk.list(path)
        assert caught.value.errno == code


def test_a_real_directory_goes_in_and_comes_out(disk: MemoryDisk, tmp_path: Path) -> None:
    (tmp_path / "in" / "orders-0").mkdir(parents=True)
    (tmp_path / "in" / "orders-0" / "0.log").write_bytes(b"abc")
    (tmp_path / "in" / "meta.properties").write_bytes(b"version=1\n")
    disk.copy_in(tmp_path / "in", "/data")
    expected = {"meta.properties": b"version=1\n", "orders-0": None, "orders-0/0.log": b"abc"}
    assert disk.tree("/data") == expected
    status = disk.status("/data/meta.properties")
    assert status is not None
    assert status.modified_ms == (tmp_path / "in" / "meta.properties").stat().st_mtime_ns // 1_000_000
    disk.copy_out("/data", tmp_path / "out")
    again = MemoryDisk()
    again.copy_in(tmp_path / "out", "/")
    assert again.tree() == expected
