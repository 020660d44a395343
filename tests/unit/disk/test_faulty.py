"""The disk that fails: only what it was told to, as it was told to; and that it leaves no call out."""

from __future__ import annotations

import errno
import inspect
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from logcore._index import OffsetIndex
from logcore.errors import StorageError, UsageError
from logcore.log.disk import Disk, DiskFile, DiskLock, DiskMapping, SystemDisk, read_file, write_file
from tests.disk.crash import CrashDisk
from tests.disk.faulty import KINDS, Call, FaultyDisk
from tests.disk.memory import MemoryDisk

MAKERS: dict[str, Callable[[], Disk]] = {"system": SystemDisk, "memory": MemoryDisk, "crash": CrashDisk}


@pytest.fixture(params=MAKERS)
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    monkeypatch.chdir(tmp_path)  # the paths of the tests are relative
    return FaultyDisk(MAKERS[request.param]())


def writable(disk: Disk, path: str, data: bytes = b"") -> DiskFile:
    file = disk.open(path, is_writable=True, create=True)
    if data:
        file.append([data])
    return file


def on_disk(disk: FaultyDisk, path: str) -> bytes | None:
    """What another process would find."""
    return read_file(disk.inner, path, 1 << 20)


def refusal(call: Callable[[], object]) -> tuple[str, int | None, str]:
    with pytest.raises(StorageError) as caught:
        call()
    return caught.value.what, caught.value.errno, caught.value.path


# ------------------------------------------------------------------------------------------------------ what goes wrong


def test_a_call_fails_by_kind_path_and_count_and_does_nothing(disk: FaultyDisk) -> None:
    for name in ("a.log", "b.log", "a.index"):
        writable(disk, name).close()
    fault = disk.fail("unlink", "*.log", errno=errno.EACCES, skip=1, times=2)
    assert disk.unlink("a.index")
    assert disk.unlink("a.log")
    assert refusal(lambda: disk.unlink("b.log")) == ("unlink", errno.EACCES, "b.log")
    disk.rename("b.log", "c.log")
    assert refusal(lambda: disk.unlink("c.log")) == ("unlink", errno.EACCES, "c.log")
    assert disk.unlink("c.log")
    assert fault.hits == 2


def test_faults_stand_until_they_are_healed(disk: FaultyDisk) -> None:
    disk.fail(["open", "list"], errno=errno.EMFILE, times=None)
    for _ in range(3):
        assert refusal(lambda: writable(disk, "a")) == ("open", errno.EMFILE, "a")
        assert refusal(lambda: disk.list(".")) == ("list", errno.EMFILE, ".")
    disk.heal()
    writable(disk, "a").close()
    assert disk.list(".") == ["a"]


def test_every_kind_of_call_can_fail_with_the_words_of_the_real_one(disk: FaultyDisk) -> None:
    disk.make_directory("d")
    file, mapping = writable(disk, "a", b"abc"), disk.map("m", 8, is_writable=True)
    lock = disk.lock("l")
    left, right = socket.socketpair()
    calls: dict[str, tuple[str, str, Callable[[], object]]] = {
        "open": ("open", "a", lambda: disk.open("a")),
        "create": ("open", "new", lambda: writable(disk, "new")),
        "map": ("map", "m", lambda: disk.map("m", 8)),
        "list": ("list", "d", lambda: disk.list("d")),
        "status": ("stat", "a", lambda: disk.status("a")),
        "rename": ("rename", "a", lambda: disk.rename("a", "b")),
        "unlink": ("unlink", "a", lambda: disk.unlink("a")),
        "make_directory": ("make directory", "e", lambda: disk.make_directory("e")),
        "remove_directory": ("remove directory", "d", lambda: disk.remove_directory("d")),
        "sync_directory": ("sync directory", "d", lambda: disk.sync_directory("d")),
        "set_modified": ("set time of", "a", lambda: disk.set_modified("a", 5)),
        "lock": ("lock", "l", lambda: disk.lock("l")),
        "append": ("write", "a", lambda: file.append([b"x"])),
        "write": ("write", "a", lambda: file.write(0, b"x")),
        "read": ("read", "a", lambda: file.read(0, 1)),
        "truncate": ("truncate", "a", lambda: file.truncate(0)),
        "preallocate": ("truncate", "a", lambda: file.preallocate(9)),
        "set_size": ("set_size", "a", lambda: file.set_size(0)),
        "refresh": ("stat", "a", lambda: file.refresh()),
        "sync": ("sync", "a", lambda: file.sync()),
        "send_to": ("send_to", "a", lambda: file.send_to(left.fileno(), 0, 1)),
        "resize": ("truncate", "m", lambda: mapping.resize(0)),
        "flush": ("sync", "m", lambda: mapping.flush()),
        "release": ("release", "l", lambda: lock.release()),
        "close": ("close", "a", lambda: file.close()),
    }
    assert set(calls) == KINDS
    for kind, (words, path, call) in calls.items():
        before = disk.inner.list(".")
        fault = disk.fail(kind, path, errno=errno.EIO)
        assert refusal(call) == (words, errno.EIO, path)
        assert fault.hits == 1
        assert disk.inner.list(".") == before
        assert on_disk(disk, "a") == b"abc"
    mapping.close()
    lock.release()
    left.close()
    right.close()
    assert disk.still_open() == []


def test_what_makes_a_file_can_fail_where_opening_one_does_not(disk: FaultyDisk) -> None:
    writable(disk, "a").close()
    disk.fail("create", errno=errno.ENOSPC, times=None)
    writable(disk, "a").close()
    for call in (
        lambda: writable(disk, "b"),
        lambda: disk.map("b", 8, is_writable=True),
        lambda: disk.lock("b"),
        lambda: write_file(disk, "c", b"x"),
    ):
        assert refusal(call)[1] == errno.ENOSPC
    assert disk.list(".") == ["a"]


def test_a_rename_fails_by_either_name_and_before_or_after_it_was_done(disk: FaultyDisk) -> None:
    writable(disk, "a").close()
    disk.fail("rename", "*.swap", errno=errno.ENOSPC)
    assert refusal(lambda: disk.rename("a", "a.swap")) == ("rename", errno.ENOSPC, "a")
    assert disk.list(".") == ["a"]
    disk.fail("rename", "a", errno=errno.EIO, happens=True)
    assert refusal(lambda: disk.rename("a", "a.swap")) == ("rename", errno.EIO, "a")
    assert disk.list(".") == ["a.swap"]


def test_a_disk_that_fills_up_takes_a_part_of_an_append_which_is_cut_off_again(disk: FaultyDisk) -> None:
    file = writable(disk, "a", b"abc")
    file.preallocate(20)
    disk.fail("append", errno=errno.ENOSPC, short=2)
    assert refusal(lambda: file.append([b"xy", b"z"])) == ("write", errno.ENOSPC, "a")
    assert (file.size, file.read(0, 9), on_disk(disk, "a")) == (3, b"abc", b"abc" + bytes(17))
    assert file.append([b"d"]) == 3
    file.close()
    assert on_disk(disk, "a") == b"abcd"
    if isinstance(disk.inner, CrashDisk):
        assert [str(operation) for operation in disk.inner.operations[3:6]] == [
            "write a",
            "set length a",
            "set length a",
        ]


@pytest.mark.parametrize("end", ["append", "truncate", "close", "refresh", "set_size"])
def test_what_could_not_be_cut_off_lies_behind_the_end_until_it_is(disk: FaultyDisk, end: str) -> None:
    file = writable(disk, "a", b"abc")
    disk.fail("append", errno=errno.ENOSPC, short=2, is_mended=False)
    assert refusal(lambda: file.append([b"xyz"])) == ("write", errno.ENOSPC, "a")
    assert (file.size, file.read(0, 9), file.read(2, 9), file.read(4, 9)) == (3, b"abc", b"c", b"")
    assert on_disk(disk, "a") == b"abcxy"
    if end == "append":
        assert file.append([b"d"]) == 3
    elif end == "truncate":
        file.truncate(1)
    elif end == "refresh":
        assert file.refresh() == 5
    elif end == "set_size":
        file.set_size(2)
    size = file.size
    file.close()
    expected = {"append": b"abcd", "truncate": b"a", "close": b"abc", "refresh": b"abcxy", "set_size": b"ab"}[end]
    assert (on_disk(disk, "a"), size) == (expected, len(expected))


def test_a_part_of_an_overwrite_stays(disk: FaultyDisk) -> None:
    file, mapping = writable(disk, "a", b"abcdef"), disk.map("m", 6, is_writable=True)
    disk.fail("write", errno=errno.EIO, short=2, times=2)
    assert refusal(lambda: file.write(1, b"XYZ")) == ("write", errno.EIO, "a")
    assert refusal(lambda: mapping.write(1, b"XYZ")) == ("write", errno.EIO, "m")
    assert on_disk(disk, "a") == file.read(0, 9) == b"aXYdef"
    assert on_disk(disk, "m") == bytes(memoryview(mapping.view())) == b"\0XY\0\0\0"
    file.close()
    mapping.close()


def test_a_bad_page_fails_the_reads_that_touch_it(disk: FaultyDisk) -> None:
    file = writable(disk, "a", bytes(100))
    disk.fail("read", "a", errno=errno.EIO, within=range(40, 60), times=None)
    assert len(file.read(0, 40)) == 40
    assert len(file.read(60, 40)) == 40
    for position, size in ((0, 41), (59, 1), (0, 100), (45, 5)):
        assert refusal(lambda position=position, size=size: file.read(position, size)) == ("read", errno.EIO, "a")
    file.close()


def test_a_bit_reads_wrong_wherever_it_is_read_and_is_right_on_the_disk(disk: FaultyDisk) -> None:
    file = writable(disk, "a", b"abcdef")
    flip = disk.flip("a", 2, mask=0x20)
    once = disk.flip("a", 0, times=1)
    assert [file.read(0, 9), file.read(0, 9), file.read(2, 1), file.read(3, 2)] == [b"`bCdef", b"abCdef", b"C", b"de"]
    left, right = socket.socketpair()
    with left, right:
        assert file.send_to(left.fileno(), 1, 3) == 3
        assert file.send_to(left.fileno(), 3, 9) == 3
        assert right.recv(99) == b"bCddef"
    mapping = disk.map("a", 0)
    assert bytes(memoryview(mapping.view())) == b"abCdef"
    file.write(1, b"xyz")
    assert bytes(memoryview(mapping.view())) == b"axYzef"
    assert (flip.hits, once.hits, on_disk(disk, "a")) == (5, 1, b"axyzef")
    disk.heal()
    assert file.read(0, 9) == b"axyzef"
    mapping.close()
    file.close()


def test_an_index_over_a_mapping_that_fails(disk: FaultyDisk) -> None:
    """What the index does is what the file has, and a failed entry is in neither."""
    index = OffsetIndex(disk.map("0.index", 80, is_writable=True), 0, entry_count=0, is_writable=True)
    index.append(1, 1)
    disk.fail("write", "*.index", errno=errno.ENOSPC)
    assert refusal(lambda: index.append(2, 2)) == ("write", errno.ENOSPC, "0.index")
    index.append(3, 3)
    disk.fail("resize", "*.index", errno=errno.EIO)
    assert refusal(index.trim) == ("truncate", errno.EIO, "0.index")
    assert index.lookup(9) == (3, 3)
    index.trim()
    index.close()
    assert on_disk(disk, "0.index") == bytes.fromhex("0000000100000001 0000000300000003")


def test_a_close_that_fails_closes(disk: FaultyDisk) -> None:
    file, mapping = writable(disk, "a", b"abc"), disk.map("m", 8, is_writable=True)
    file.preallocate(9)
    disk.fail("close", errno=errno.EIO, times=2)
    assert refusal(file.close) == ("close", errno.EIO, "a")
    assert refusal(mapping.close) == ("close", errno.EIO, "m")
    assert (on_disk(disk, "a"), disk.still_open()) == (b"abc", [])


# -------------------------------------------------------------------------------------------------------- a failed sync


def test_a_failed_sync_leaves_what_was_written_or_takes_it_away(disk: FaultyDisk) -> None:
    file, mapping = writable(disk, "a", b"abcdef"), disk.map("m", 6, is_writable=True)
    mapping.write(0, b"123456")
    file.sync()
    mapping.flush()
    for unsynced in ("kept", "reverted"):
        file.write(1, b"X")
        file.write(1, b"YZ")
        file.append([b"gh"])
        file.append([b"i"])
        file.truncate(8)
        mapping.write(2, b"##")
        disk.fail(["sync", "flush"], errno=errno.EIO, times=2, unsynced=unsynced)  # type: ignore[arg-type]
        assert refusal(file.sync) == ("sync", errno.EIO, "a")
        assert refusal(mapping.flush) == ("sync", errno.EIO, "m")
        found = {"kept": (b"aYZdefgh", b"12##56"), "reverted": (b"abcdef\0\0", b"123456")}[unsynced]
        assert (file.read(0, 99), bytes(memoryview(mapping.view()))) == found
        assert (on_disk(disk, "a"), on_disk(disk, "m")) == found
        file.write(1, b"bc")
        file.truncate(6)
        mapping.write(2, b"34")
        file.sync()
        mapping.flush()
    file.close()
    mapping.close()


def test_what_a_failed_sync_has_forgotten_is_read_until_the_crash() -> None:
    inner = CrashDisk()
    disk = FaultyDisk(inner)
    file, mapping = writable(disk, "/a"), disk.map("/m", 4, is_writable=True)
    mapping.flush()
    disk.sync_directory("/")
    file.append([b"abc"])
    mapping.write(0, b"1234")
    disk.fail(["sync", "flush"], errno=errno.EIO, times=2, unsynced="forgotten")
    for call in (file.sync, mapping.flush):
        assert refusal(call)[:2] == ("sync", errno.EIO)
    file.append([b"def"])
    file.sync()
    mapping.flush()
    assert (file.read(0, 9), bytes(memoryview(mapping.view()))) == (b"abcdef", b"1234")
    for state in inner.crash_states(random.Random(1), 20):
        assert state.disk.tree() == {"a": b"\0\0\0def", "m": bytes(4)}
    with pytest.raises(UsageError, match="only a crash can tell"):
        FaultyDisk(MemoryDisk()).fail("sync", errno=errno.EIO, unsynced="forgotten")


# ------------------------------------------------------------------------------------------------------ what was asked


def test_every_method_of_the_seam_is_recorded() -> None:
    """Told by the seam itself, so that a method which is added to it cannot be missed."""
    methods = {
        name
        for kind in (Disk, DiskFile, DiskMapping, DiskLock)
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert methods - {"view"} | {"create"} == KINDS  # a look at a mapping is no call to the system


def test_calls_are_recorded_with_what_they_were_about(disk: FaultyDisk) -> None:
    with disk.recorded() as calls:
        disk.make_directory("d")
        file = writable(disk, "d/a", b"abcdef")
        file.write(1, b"xy")
        assert file.read(2, 100) == b"ydef"
        file.truncate(3)
        file.sync()
        disk.rename("d/a", "d/b")
        file.path = "d/b"
        file.refresh()
        file.close()
        mapping = disk.map("d/m", 16, is_writable=True)
        mapping.write(8, b"entry")
        mapping.resize(8)
        mapping.flush()
        mapping.close()
        disk.lock("d/l").release()
        assert disk.status("d/no") is None
    assert calls == [
        Call("make_directory", "d"),
        Call("open", "d/a", is_new=True),
        Call("append", "d/a", 0, 6),
        Call("write", "d/a", 1, 2),
        Call("read", "d/a", 2, 100),
        Call("truncate", "d/a", 3),
        Call("sync", "d/a"),
        Call("rename", "d/a", target="d/b"),
        Call("refresh", "d/b"),
        Call("close", "d/b"),
        Call("map", "d/m", size=16, is_new=True),
        Call("write", "d/m", 8, 5),
        Call("resize", "d/m", 8),
        Call("flush", "d/m"),
        Call("close", "d/m"),
        Call("lock", "d/l", is_new=True),
        Call("release", "d/l"),
        Call("status", "d/no"),
    ]
    assert disk.calls == calls
    assert disk.paths("sync", "flush") == ["d/a", "d/m"]
    assert set(disk.paths()) == {"d", "d/a", "d/b", "d/m", "d/l", "d/no"}


def test_bytes_are_counted_by_path(disk: FaultyDisk) -> None:
    first, second = writable(disk, "a", b"abcdef"), writable(disk, "b", b"xyz")
    first.read(0, 4)
    first.read(4, 100)
    first.read(99, 5)
    second.write(0, b"XY")
    left, right = socket.socketpair()
    with left, right:
        second.send_to(left.fileno(), 1, 99)
    assert dict(disk.bytes_read) == {"a": 6, "b": 2}
    assert dict(disk.bytes_written) == {"a": 6, "b": 5}
    first.close()
    second.close()


def test_a_failed_call_is_recorded_too(disk: FaultyDisk) -> None:
    disk.fail("open", errno=errno.EACCES)
    with disk.recorded() as calls:
        assert refusal(lambda: disk.open("a"))[1] == errno.EACCES
        assert refusal(lambda: disk.open("a"))[1] == errno.ENOENT
    assert calls == [Call("open", "a"), Call("open", "a")]


def test_what_is_still_open_is_listed_until_it_is_closed_or_forgotten(disk: FaultyDisk) -> None:
    file, mapping = writable(disk, "a"), disk.map("m", 8, is_writable=True)
    assert disk.still_open() == ["a", "m"]
    file.close()
    assert disk.still_open() == ["m"]
    mapping.close()
    forgotten = writable(disk, "b")
    assert disk.still_open() == ["b"]
    del forgotten
    assert disk.still_open() == []


def test_a_kind_that_is_none_is_refused(disk: FaultyDisk) -> None:
    with pytest.raises(UsageError, match="kinds: got fsync, wanted append, close, "):
        disk.fail(["sync", "fsync"], errno=errno.EIO)


def test_the_disk_behind_is_the_same_as_ever(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    write_file(disk, str(tmp_path / "a"), b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["a"]
