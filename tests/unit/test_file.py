"""Files as a log uses them: what is written is there, what failed is not."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logcore._file import File, MappedFile
from logcore._index import OffsetIndex
from logcore.errors import StorageError, UsageError


def writable(path: Path) -> File:
    return File(path, is_writable=True, create=True)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` fail with EFBIG, after as much as fits: a disk that fills up within a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_appended_is_read_wherever_it_lies(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        assert file.append([b"abc", bytearray(b"de"), memoryview(b"xfgx")[1:3]]) == 0
        assert file.append([]) == 7
        assert file.append([b""]) == 7
        assert file.append([b"h"]) == 7
        assert (file.size, file.read(0, 100), file.read(2, 3), file.read(8, 5), file.read(99, 5)) == (
            *(8, b"abcdefgh", b"cde", b"", b""),
        )
    assert (tmp_path / "0.log").read_bytes() == b"abcdefgh"


def test_hundreds_of_buffers_are_one_append(tmp_path: Path) -> None:
    parts = [os.urandom(n % 7) for n in range(1000)]
    with writable(tmp_path / "0.log") as file:
        file.append([b"before"])
        assert file.append(iter(parts)) == 6
        assert file.read(6, 10_000) == b"".join(parts)


def test_a_file_is_opened_again_where_it_ended(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        file.append([b"abc"])
    with writable(tmp_path / "0.log") as file:
        assert file.append([b"d"]) == 3
    with File(tmp_path / "0.log") as file:
        assert file.read(0, 10) == b"abcd"


def test_an_append_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        file.append([b"kept" * 10])
        with file_size_limit(100), pytest.raises(StorageError) as caught:
            file.append([b"x" * 30, b"y" * 50])
        assert (caught.value.errno, caught.value.path) == (errno.EFBIG, str(tmp_path / "0.log"))
        assert str(caught.value).startswith("write, ")
        assert file.size == 40
        assert (tmp_path / "0.log").stat().st_size == 40
        assert file.append([b"on"]) == 40
    assert (tmp_path / "0.log").read_bytes() == b"kept" * 10 + b"on"


def test_a_buffer_that_is_none_leaves_nothing_either(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        file.append([b"abc"])
        with pytest.raises(TypeError):
            file.append([*[b"x" * 10] * 70, "text"])  # type: ignore[list-item]
        assert (tmp_path / "0.log").stat().st_size == 3
        assert file.append([b"d"]) == 3


def test_preallocated_space_lies_behind_what_is_written_and_goes_on_close(tmp_path: Path) -> None:
    """SEG-050."""
    path = tmp_path / "0.log"
    with writable(path) as file:
        file.preallocate(512 << 20)
        file.append([b"abc"])
        assert path.stat().st_size == 512 << 20
        assert (file.size, file.read(0, 10)) == (3, b"abc")
        with file_size_limit(100), pytest.raises(StorageError):
            file.append([b"x" * 200])
        assert file.read(0, 500) == b"abc"
    assert path.read_bytes() == b"abc"
    with File(path) as file:
        assert file.size == 3


def test_a_preallocated_file_that_was_not_closed_is_told_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"abc" + bytes(1000))
    with writable(path) as file:
        assert file.size == 1003
        file.set_size(3)
        assert file.append([b"d"]) == 3
    assert path.read_bytes() == b"abcd"


def test_truncating_keeps_the_front(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        file.append([b"abcdef"])
        file.preallocate(100)
        file.truncate(2)
        assert (file.size, (tmp_path / "0.log").stat().st_size) == (2, 2)
        assert file.append([b"z"]) == 2
        with pytest.raises(UsageError, match="size: got 9, wanted 0 to 3"):
            file.truncate(9)


def test_a_reader_sees_what_another_writes_when_it_looks_again(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file, File(tmp_path / "0.log") as reader:
        file.append([b"abc"])
        assert reader.read(0, 10) == b""
        assert reader.refresh() == 3
        assert reader.read(0, 10) == b"abc"
        file.truncate(1)
        assert reader.read(0, 10) == b"a"


def test_bytes_go_to_a_socket_without_a_copy(tmp_path: Path) -> None:
    left, right = socket.socketpair()
    with left, right, writable(tmp_path / "0.log") as file:
        file.append([b"0123456789"])
        assert file.send_to(left.fileno(), 2, 5) == 5
        assert file.send_to(left.fileno(), 8, 100) == 2
        assert file.send_to(left.fileno(), 10, 100) == 0
        assert right.recv(100) == b"2345689"
        left.setblocking(False)
        file.append([bytes(1 << 20)])
        with pytest.raises(BlockingIOError):
            list(iter(lambda: file.send_to(left.fileno(), 0, 1 << 20), None))  # until it is full
        right.close()
        with pytest.raises(BrokenPipeError):
            file.send_to(left.fileno(), 0, 10)


def test_syncing_is_asked_of_the_system(tmp_path: Path) -> None:
    with writable(tmp_path / "0.log") as file:
        file.append([b"abc"])
        file.sync()
    read_end, write_end = os.pipe()
    try:
        with (
            pytest.raises(StorageError, match="sync, /dev/fd/"),
            File(f"/dev/fd/{write_end}", is_writable=True) as pipe,
        ):
            pipe.sync()
    finally:
        os.close(read_end)
        os.close(write_end)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "no.log", errno.ENOENT),
        (tmp_path, errno.EISDIR),
        (tmp_path / "no" / "x", errno.ENOENT),
    ):
        with pytest.raises(StorageError) as caught:
            File(path, is_writable=True, create=path.name == "x")
        assert (caught.value.errno, caught.value.path) == (code, str(path))


def test_a_closed_or_read_only_file_refuses_by_name(tmp_path: Path) -> None:
    file = writable(tmp_path / "0.log")
    file.append([b"abc"])
    file.close()
    file.close()
    calls: list[Callable[[File], object]] = [
        lambda file: file.append([b"x"]),
        lambda file: file.write(0, b"x"),
        lambda file: file.truncate(0),
        lambda file: file.preallocate(9),
        lambda file: file.sync(),
    ]
    for call in [*calls, lambda file: file.read(0, 1), lambda file: file.fileno(), lambda file: file.refresh()]:
        with pytest.raises(UsageError, match=r"0\.log: got a call, wanted none after close"):
            call(file)
    with File(tmp_path / "0.log") as reader:
        for call in calls:
            with pytest.raises(UsageError, match=r"got a write, wanted a file that was opened to be written"):
                call(reader)
    assert (tmp_path / "0.log").read_bytes() == b"abc"


def test_a_file_that_was_never_opened_closes_nothing(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for kind in (File, MappedFile):
        with pytest.raises(TypeError):
            kind.__new__(kind)  # type: ignore[call-overload]
    with pytest.raises(StorageError):
        File(tmp_path / "no.log")
    assert os.listdir("/proc/self/fd") == before


def test_a_forgotten_file_closes_its_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for n in range(50):
        writable(tmp_path / f"{n}.log")
        MappedFile(tmp_path / f"{n}.index", 800, is_writable=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_signal_within_a_call_runs_its_handler_and_the_call_goes_on(tmp_path: Path) -> None:
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with writable(tmp_path / "0.log") as file:
            while len(seen) < 5:
                file.append([bytes(1 << 20)])
                file.sync()
                assert len(file.read(0, 1 << 20)) == 1 << 20
                file.truncate(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------------------------------------------------ mapped


def test_a_new_mapping_is_preallocated_and_an_old_one_keeps_its_length(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    mapped = MappedFile(path, 80, is_writable=True)
    assert (mapped.is_new, len(mapped), bytes(mapped.view())) == (True, 80, bytes(80))
    mapped.write(8, b"entry")
    assert bytes(memoryview(mapped.view())[8:13]) == b"entry"
    mapped.flush()
    mapped.close()
    mapped.close()
    assert path.read_bytes() == bytes(8) + b"entry" + bytes(67)
    mapped = MappedFile(path, 8000, is_writable=True)
    assert (mapped.is_new, len(mapped)) == (False, 80)
    mapped.close()


def test_a_mapping_is_resized_down_to_nothing_and_up_again(tmp_path: Path) -> None:
    mapped = MappedFile(tmp_path / "0.index", 80, is_writable=True)
    mapped.write(0, b"12345678")
    mapped.resize(8)
    assert bytes(mapped.view()) == b"12345678"
    mapped.resize(0)
    assert (len(mapped), bytes(mapped.view())) == (0, b"")
    mapped.resize(16)
    assert bytes(mapped.view()) == bytes(16)
    with pytest.raises(UsageError, match="wanted none behind the end at 16"):
        mapped.write(10, b"1234567")
    mapped.close()
    with pytest.raises(UsageError, match="got a look, wanted none after close"):
        mapped.view()


def test_a_view_of_a_mapping_outlives_its_resizing_and_closing(tmp_path: Path) -> None:
    mapped = MappedFile(tmp_path / "0.index", 80, is_writable=True)
    mapped.write(0, b"12345678")
    view = memoryview(mapped.view())
    mapped.resize(8)
    mapped.write(0, b"abcd")
    assert bytes(view[:8]) == bytes(mapped.view()) == b"abcd5678"
    mapped.resize(4096)
    mapped.close()
    assert bytes(view[:8]) == b"abcd5678"


def test_an_index_over_a_mapped_file_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    index = OffsetIndex(MappedFile(path, 10 << 20, is_writable=True), 100, entry_count=0, is_writable=True)
    for n in range(2000):
        index.append(109 + 10 * n, 4096 * n)
    assert index.lookup(150) == (149, 4096 * 4)
    index.flush()
    index.trim()
    assert path.stat().st_size == 8 * 2000
    assert OffsetIndex(path.read_bytes(), 100).lookup(10**6) == (109 + 10 * 1999, 4096 * 1999)
    index.resize(10 << 20)
    index.truncate_to(120)
    index.trim()
    index.close()
    assert path.read_bytes() == bytes.fromhex("00000009 00000000 00000013 00001000")


def test_a_full_disk_is_an_error_of_the_index_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    index = OffsetIndex(MappedFile(tmp_path / "0.index", 80, is_writable=True), 0, entry_count=0, is_writable=True)
    index.append(1, 1)
    with file_size_limit(8), pytest.raises(StorageError):
        index.append(2, 2)
    assert len(index) == 1
    index.append(2, 2)
    assert index.lookup(5) == (2, 2)


def test_the_descriptor_of_a_closed_file_stays_until_the_last_call_that_uses_it(tmp_path: Path) -> None:
    with writable(tmp_path / "file") as file:
        file.append([bytes(8 << 20)])
    file = File(tmp_path / "file")
    descriptor = file.fileno()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent: list[int] = []

        def send() -> None:
            sent.append(file.send_to(ours.fileno(), 0, 8 << 20))
            ours.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = len(theirs.recv(1))
        file.close()
        assert os.fstat(descriptor).st_size == 8 << 20
        with pytest.raises(UsageError, match="none after close"):
            file.read(0, 1)
        while data := theirs.recv(1 << 20):
            received += len(data)
        sender.join()
    assert received == sum(sent) > 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
