"""What the seam promises, asked of every disk: the system's, those in memory, and both behind one that can fail."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logcore._index import OffsetIndex, TimeIndex
from logcore.errors import LockedError, StorageError, UsageError
from logcore.log.disk import Disk, DiskFile, SystemDisk, read_file, write_file
from tests.disk.crash import CrashDisk
from tests.disk.faulty import FaultyDisk
from tests.disk.memory import MemoryDisk


@dataclass
class Place:
    """A directory of a disk."""

    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: bytes = b"") -> None:
        file = self.writable(name)
        file.append([data])
        file.close()

    def read(self, name: str) -> bytes | None:
        return read_file(self.disk, self.path(name), 1 << 20)

    def writable(self, name: str) -> DiskFile:
        return self.disk.open(self.path(name), is_writable=True, create=True)

    def refusal(self, call: Callable[[], object]) -> tuple[str, int | None, str]:
        """The words, errno and path of what a call is refused with."""
        with pytest.raises(StorageError) as caught:
            call()
        return caught.value.what, caught.value.errno, caught.value.path.removeprefix(self.root + "/")


MAKERS: dict[str, Callable[[], Disk]] = {
    "system": SystemDisk,
    "memory": MemoryDisk,
    "crash": CrashDisk,
    "faulty system": lambda: FaultyDisk(SystemDisk()),
    "faulty memory": lambda: FaultyDisk(MemoryDisk()),
}


@pytest.fixture(params=MAKERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    disk = MAKERS[request.param]()
    disk.make_directory(str(tmp_path))
    yield Place(disk, str(tmp_path))
    if isinstance(disk, FaultyDisk):
        assert disk.still_open() == []


# --------------------------------------------------------------------------------------------------------------- files


def test_what_is_appended_is_read_and_the_rest_is_cut_off_on_close(place: Place) -> None:
    file = place.writable("a")
    assert (file.append([b"abc", bytearray(b"de"), memoryview(b"fg")]), file.append([]), file.append([b"h"])) == (
        0,
        7,
        7,
    )
    file.preallocate(100)
    assert (file.size, file.read(0, 100), file.read(6, 1), file.read(50, 9)) == (8, b"abcdefgh", b"g", b"")
    status = place.disk.status(place.path("a"))
    assert status is not None
    assert (status.size, status.is_directory) == (100, False)
    file.write(1, b"BC")
    file.close()
    file.close()
    assert place.read("a") == b"aBCdefgh"


def test_a_file_that_was_preallocated_and_not_cut_is_told_where_it_ends(place: Place) -> None:
    place.write("a", b"abc" + bytes(20))
    file = place.writable("a")
    file.set_size(3)
    assert file.append([b"d"]) == 3
    file.truncate(2)
    assert (file.size, file.append([b"x"])) == (2, 2)
    file.close()
    assert place.read("a") == b"abx"


def test_a_reader_sees_what_a_writer_adds_when_it_looks_again(place: Place) -> None:
    file = place.writable("a")
    reader = place.disk.open(place.path("a"))
    file.append([b"abc"])
    assert (reader.read(0, 9), reader.refresh(), reader.read(0, 9)) == (b"", 3, b"abc")
    file.truncate(1)
    assert reader.read(0, 9) == b"a"
    file.close()
    reader.close()


def test_a_file_stays_open_under_another_name_and_under_none(place: Place) -> None:
    file = place.writable("a")
    file.append([b"abc"])
    place.disk.rename(place.path("a"), place.path("b"))
    file.path = place.path("b")
    file.append([b"d"])
    assert place.read("b") == b"abcd"
    assert place.disk.unlink(place.path("b"))
    assert (file.append([b"e"]), file.read(0, 9), place.read("b")) == (4, b"abcde", None)
    place.write("b", b"another")
    file.sync()
    file.close()
    assert place.read("b") == b"another"


def test_bytes_go_to_a_socket(place: Place) -> None:
    left, right = socket.socketpair()
    with left, right:
        file = place.writable("a")
        file.append([b"0123456789"])
        assert [file.send_to(left.fileno(), at, size) for at, size in ((2, 5), (8, 100), (10, 5))] == [5, 2, 0]
        assert right.recv(100) == b"2345689"
        left.setblocking(False)
        file.append([bytes(1 << 20)])
        with pytest.raises(BlockingIOError):
            list(iter(lambda: file.send_to(left.fileno(), 0, 1 << 20), None))
        right.close()
        with pytest.raises(BrokenPipeError):
            file.send_to(left.fileno(), 0, 10)
        file.close()


def test_a_closed_or_read_only_file_refuses(place: Place) -> None:
    file = place.writable("a")
    file.append([b"abc"])
    file.close()
    reader = place.disk.open(place.path("a"))
    writes: list[Callable[[DiskFile], object]] = [
        lambda file: file.append([b"x"]),
        lambda file: file.write(0, b"x"),
        lambda file: file.truncate(0),
        lambda file: file.preallocate(9),
        lambda file: file.sync(),
    ]
    for call in writes:
        with pytest.raises(UsageError, match="got a write, wanted a file that was opened to be written"):
            call(reader)
    for call in [*writes, lambda file: file.read(0, 1), lambda file: file.refresh(), lambda file: file.set_size(0)]:
        with pytest.raises(UsageError, match=r"got a call, wanted none after close"):
            call(file)
    for misuse in (lambda: reader.read(-1, 1), lambda: reader.set_size(4), lambda: reader.read(0, 2**63)):
        with pytest.raises(UsageError):
            misuse()
    reader.close()
    assert place.read("a") == b"abc"


def test_what_cannot_be_opened_says_why(place: Place) -> None:
    disk = place.disk
    place.write("a")
    disk.make_directory(place.path("d"))
    long = "n" * 256
    for name, create, code in (
        ("no", False, errno.ENOENT),
        ("no/a", True, errno.ENOENT),
        ("d", False, errno.EISDIR),
        ("d", True, errno.EISDIR),
        ("a/b", True, errno.ENOTDIR),
        (long, True, errno.ENAMETOOLONG),
    ):
        for call in (
            lambda name=name, create=create: disk.open(place.path(name), is_writable=True, create=create),
            lambda name=name: disk.map(place.path(name), 8, is_writable=True),
        ):
            if name != "no":
                assert place.refusal(call) == ("open", code, name)
    assert place.refusal(lambda: disk.open(place.path("no"))) == ("open", errno.ENOENT, "no")
    assert place.refusal(lambda: disk.map(place.path("no"), 8)) == ("open", errno.ENOENT, "no")
    assert place.refusal(lambda: disk.map(place.path("d"), 8)) == ("map", errno.ENODEV, "d")
    directory = disk.open(place.path("d"))
    assert place.refusal(lambda: directory.read(0, 1)) == ("read", errno.EISDIR, "d")
    directory.close()


# ------------------------------------------------------------------------------------------------------------ mappings


def test_a_mapping_shows_what_is_written_and_keeps_its_length(place: Place) -> None:
    mapping = place.disk.map(place.path("0.index"), 80, is_writable=True)
    assert (mapping.is_new, len(mapping), bytes(memoryview(mapping.view()))) == (True, 80, bytes(80))
    mapping.write(8, b"entry")
    with memoryview(mapping.view()) as view:
        assert view[8:13] == b"entry"
        mapping.write(8, b"ENTRY")
        assert view[8:13] == b"ENTRY"
    with pytest.raises(UsageError, match="wanted none behind the end at 80"):
        mapping.write(76, b"12345")
    mapping.flush()
    mapping.close()
    mapping.close()
    assert len(mapping) == 0
    with pytest.raises(UsageError, match="got a look, wanted none after close"):
        mapping.view()
    assert place.read("0.index") == bytes(8) + b"ENTRY" + bytes(67)
    again = place.disk.map(place.path("0.index"), 8000, is_writable=True)
    assert (again.is_new, len(again)) == (False, 80)
    again.close()


def test_a_view_outlives_the_resize_of_its_mapping(place: Place) -> None:
    mapping = place.disk.map(place.path("0.index"), 16, is_writable=True)
    with memoryview(mapping.view()) as before:
        mapping.write(0, b"entry")
        mapping.resize(24)
        assert (len(before), len(mapping)) == (16, 24)
        mapping.write(8, b"more")
        assert bytes(before) == b"entry\0\0\0more\0\0\0\0"
        mapping.resize(8)
        with before[:8] as kept:
            assert bytes(kept) == b"entry\0\0\0"
        with memoryview(mapping.view()) as after:
            assert bytes(after) == b"entry\0\0\0"
        mapping.close()


def test_a_mapping_shows_what_is_written_past_it(place: Place) -> None:
    place.write("a", b"0123456789")
    mapping = place.disk.map(place.path("a"), 0)
    file = place.writable("a")
    file.write(4, b"xyz")
    file.append([b"more"])
    assert bytes(memoryview(mapping.view())) == b"0123xyz789"
    file.close()
    with pytest.raises(UsageError, match="a file that was opened to be written"):
        mapping.write(0, b"x")
    mapping.close()


def test_indexes_live_in_mappings(place: Place) -> None:
    offsets = OffsetIndex(
        place.disk.map(place.path("0.index"), 1000, is_writable=True), 100, entry_count=0, is_writable=True
    )
    times = TimeIndex(
        place.disk.map(place.path("0.timeindex"), 1000, is_writable=True), 100, entry_count=0, is_writable=True
    )
    for n in range(50):
        offsets.append(109 + 10 * n, 4096 * n)
        times.append(1000 + n, 109 + 10 * n)
    assert offsets.lookup(150) == (149, 4096 * 4)
    assert times.lookup(1004) == (1004, 149)
    offsets.flush()
    offsets.truncate_to(120)
    for index in (offsets, times):
        index.trim()
        index.close()
    assert place.read("0.index") == bytes.fromhex("00000009 00000000 00000013 00001000")
    assert len(place.read("0.timeindex") or b"") == 600
    again = OffsetIndex(place.disk.map(place.path("0.index"), 1000, is_writable=True), 100, is_writable=True)
    assert len(again) == 2
    again.resize(0)
    assert (len(again), again.lookup(150)) == (0, (100, 0))
    again.resize(16)
    again.append(105, 7)
    again.close()
    assert place.read("0.index") == bytes.fromhex("00000005 00000007") + bytes(8)


# --------------------------------------------------------------------------------------------------------------- names


def test_directories_are_made_listed_and_removed(place: Place) -> None:
    disk = place.disk
    assert (disk.make_directory(place.path("d/e/f")), disk.make_directory(place.path("d/e"))) == (True, False)
    place.write("d/b", b"x")
    place.write("d/a")
    assert (disk.list(place.path("d")), disk.list(place.root)) == (["a", "b", "e"], ["d"])
    status = disk.status(place.path("d/e"))
    assert status is not None
    assert status.is_directory
    assert [disk.status(place.path(name)) for name in ("no", "no/a", "d/a/x")] == [None, None, None]
    assert place.refusal(lambda: disk.make_directory(place.path("d/a"))) == ("make directory", errno.EEXIST, "d/a")
    assert place.refusal(lambda: disk.make_directory(place.path("d/a/x"))) == (
        *("make directory", errno.ENOTDIR, "d/a/x"),
    )
    assert place.refusal(lambda: disk.remove_directory(place.path("d"))) == ("remove directory", errno.ENOTEMPTY, "d")
    assert place.refusal(lambda: disk.remove_directory(place.path("d/a"))) == (
        *("remove directory", errno.ENOTDIR, "d/a"),
    )
    assert place.refusal(lambda: disk.unlink(place.path("d/e"))) == ("unlink", errno.EISDIR, "d/e")
    assert place.refusal(lambda: disk.list(place.path("d/a"))) == ("list", errno.ENOTDIR, "d/a")
    assert place.refusal(lambda: disk.list(place.path("no"))) == ("list", errno.ENOENT, "no")
    assert place.refusal(lambda: disk.sync_directory(place.path("no"))) == ("sync directory", errno.ENOENT, "no")
    disk.sync_directory(place.path("d"))
    assert [disk.remove_directory(place.path(name)) for name in ("d/e/f", "d/e/f", "d/e")] == [True, False, True]
    assert [disk.unlink(place.path(name)) for name in ("d/a", "d/a", "d/b", "no/a")] == [True, False, True, False]
    assert disk.remove_directory(place.path("d"))


def test_a_rename_takes_the_place_of_a_file_and_of_an_empty_directory_only(place: Place) -> None:
    disk = place.disk
    place.write("a", b"new")
    place.write("b", b"old")
    before = disk.status(place.path("a"))
    disk.rename(place.path("a"), place.path("b"))
    after = disk.status(place.path("b"))
    assert before is not None
    assert after is not None
    assert (before.inode, place.read("a"), place.read("b")) == (after.inode, None, b"new")
    for name in ("d/e", "full/e", "empty"):
        disk.make_directory(place.path(name))
    for source, target, code in (
        ("no", "x", errno.ENOENT),
        ("b", "no/x", errno.ENOENT),
        ("b", "d", errno.EISDIR),
        ("d", "b", errno.ENOTDIR),
        ("d", "full", errno.ENOTEMPTY),
        ("d", "d/e/x", errno.EINVAL),
        ("d/e", "d", errno.ENOTEMPTY),
    ):
        assert place.refusal(
            lambda source=source, target=target: disk.rename(place.path(source), place.path(target))
        ) == (*("rename", code, source),)
    place.write("d/e/deep", b"x")
    disk.rename(place.path("d"), place.path("empty"))
    disk.rename(place.path("empty/e/deep"), place.path("full/deep"))
    disk.rename(place.path("full"), place.path("empty/e/full"))
    assert (disk.list(place.root), place.read("empty/e/full/deep")) == (["b", "empty"], b"x")


def test_a_time_is_set_and_changes_when_a_file_does(place: Place) -> None:
    disk, set_ms = place.disk, 1_234_567_890_123

    def is_set(name: str) -> bool:
        status = disk.status(place.path(name))
        assert status is not None
        return status.modified_ms == set_ms

    disk.make_directory(place.path("d"))
    file = place.writable("d/a")
    for changes, call in (
        (True, lambda: file.append([b"abcdef"])),
        (False, lambda: file.append([b""])),
        (False, lambda: file.read(0, 3)),
        (False, lambda: file.sync()),
        (True, lambda: file.write(1, b"x")),
        (True, lambda: file.truncate(4)),
        (True, lambda: file.preallocate(10)),
        (False, lambda: disk.rename(place.path("d/a"), place.path("d/a"))),
        (True, lambda: file.close()),
    ):
        disk.set_modified(place.path("d/a"), set_ms)
        disk.set_modified(place.path("d"), set_ms)
        assert is_set("d/a")
        call()
        assert is_set("d/a") == (not changes)
        assert is_set("d")
    for call in (
        lambda: disk.rename(place.path("d/a"), place.path("d/b")),
        lambda: disk.unlink(place.path("d/b")),
        lambda: disk.make_directory(place.path("d/e")),
        lambda: disk.remove_directory(place.path("d/e")),
        lambda: place.write("d/a"),
    ):
        disk.set_modified(place.path("d"), set_ms)
        call()
        assert not is_set("d")
    assert place.refusal(lambda: disk.set_modified(place.path("no"), 5)) == ("set time of", errno.ENOENT, "no")


def test_a_file_is_written_beside_and_put_in_place(place: Place) -> None:
    write_file(place.disk, place.path("checkpoint"), b"old")
    write_file(place.disk, place.path("checkpoint"), b"new")
    assert (place.read("checkpoint"), place.disk.list(place.root)) == (b"new", ["checkpoint"])
    assert place.refusal(lambda: read_file(place.disk, place.path("checkpoint"), 2))[1] == errno.EFBIG
    assert place.refusal(lambda: read_file(place.disk, place.root, 2))[1] == errno.EISDIR


# --------------------------------------------------------------------------------------------------------------- locks


def test_a_process_takes_a_lock_twice_and_loses_it_when_it_lets_go_once(place: Place) -> None:
    first, second = place.disk.lock(place.path(".lock")), place.disk.lock(place.path(".lock"))
    assert place.read(".lock") == b""
    second.release()
    second.release()
    first.release()
    place.disk.make_directory(place.path("d"))
    assert place.refusal(lambda: place.disk.lock(place.path("d"))) == ("lock", errno.EISDIR, "d")
    assert place.refusal(lambda: place.disk.lock(place.path("no/.lock"))) == ("lock", errno.ENOENT, "no/.lock")


LOCKED = """
import sys
from logcore.log.disk import SystemDisk
lock = SystemDisk().lock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_another_process_is_refused_by_its_id(tmp_path: Path) -> None:
    """Of the system's, and of one in memory, which is as another process when it is told so."""
    path = str(tmp_path / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", LOCKED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(LockedError) as theirs:
            SystemDisk().lock(path)
        other.stdin.close()
    SystemDisk().lock(path).release()

    disk = MemoryDisk(process=os.getpid())
    lock = disk.as_process(4711).lock("/.lock")
    with pytest.raises(LockedError) as ours:
        disk.lock("/.lock")
    assert (ours.value.holder, ours.value.errno, theirs.value.holder) == (4711, theirs.value.errno, other.pid)
    lock.release()
    disk.lock("/.lock").release()


def test_a_lock_goes_when_its_process_closes_the_file_anywhere_else() -> None:
    disk = MemoryDisk(process=1)
    disk.lock("/.lock")
    disk.as_process(2).open("/.lock").close()
    with pytest.raises(LockedError):
        disk.as_process(2).lock("/.lock")
    disk.open("/.lock").close()
    disk.as_process(2).lock("/.lock").release()
