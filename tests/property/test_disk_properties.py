"""A disk in memory does what the operating system does, whatever is done to both."""

from __future__ import annotations

import random
import tempfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logcore.log.disk import Disk, SystemDisk
from tests.disk.crash import CrashDisk
from tests.disk.faulty import FaultyDisk
from tests.disk.memory import MemoryDisk
from tests.disk.twins import Call, Twin
from tests.disk.volume import FileNode

PATHS = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a", "f/e", ".", "d/.", "d/..", "d/../a", "./d//a", "a/")
paths = st.sampled_from(PATHS)
numbers = st.integers(0, 5)
sizes = st.integers(-1, 40) | st.sampled_from([511, 512, 4096, 5000])
data = st.binary(max_size=20)


def calls() -> st.SearchStrategy[Call]:
    def one(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
        return st.tuples(st.just(name), *arguments)

    return st.one_of(
        one("open", paths, st.just(True), st.just(True)),
        one("open", paths, st.booleans(), st.booleans()),
        one("map", paths, sizes, st.booleans()),
        one("lock", paths),
        one("release", numbers),
        one("list", paths),
        one("status", paths),
        one("rename", paths, paths),
        one("unlink", paths),
        one("make", paths),
        one("remove", paths),
        one("sync_directory", paths),
        one("touch", paths),
        one("append", numbers, data, data),
        one("append", numbers, data),
        one("write", numbers, sizes, data),
        one("read", numbers, sizes, sizes),
        one("truncate", numbers, sizes),
        one("preallocate", numbers, sizes),
        one("set_size", numbers, sizes),
        one("refresh", numbers),
        one("sync", numbers),
        one("close", numbers),
        one("look", numbers),
        one("put", numbers, sizes, data),
        one("resize", numbers, sizes),
        one("resize_seen", numbers, sizes),
        one("flush", numbers),
        one("unmap", numbers),
    )


def tree(twin: Twin, path: str = ".") -> dict[str, Any]:
    """All that lies on a disk, read through the seam."""
    found: dict[str, Any] = {}
    for name in twin.disk.list(f"{twin.root}/{path}"):
        inside = f"{path}/{name}"
        status = twin.do(("status", inside))
        found[inside] = status
        if status[1][2]:
            found.update(tree(twin, inside))
        else:
            file = twin.disk.open(f"{twin.root}/{inside}")
            found[inside] = status, file.read(0, file.size)
            file.close()
    return found


def compare(left: Twin, right: Twin, done: list[Call]) -> None:
    """Do all of it to both, up to what the left one refuses because it would end the process on a real disk."""
    for call in done:
        expected = left.do(call)
        if expected[0] == "failed" and "SIGBUS" in expected[2]:
            return
        assert right.do(call) == expected, call
    assert tree(right) == tree(left)


@given(st.lists(calls(), max_size=60), st.sampled_from(["memory", "crash"]), st.booleans())
def test_a_disk_in_memory_answers_and_refuses_as_the_system_does(done: list[Call], kind: str, is_faulty: bool) -> None:
    """So does one that could crash; and a disk that can fail, but is not told to, changes nothing about either."""
    with tempfile.TemporaryDirectory() as directory:
        memory: Disk = MemoryDisk() if kind == "memory" else CrashDisk()
        system: Disk = SystemDisk()
        left, right = Twin(memory, "/root"), Twin(FaultyDisk(system) if is_faulty else system, directory)
        try:
            compare(left, right, done)
        finally:
            left.close()
            right.close()


@given(st.lists(calls(), max_size=40), st.integers(0, 2**32))
def test_a_crash_after_everything_was_synced_changes_nothing(done: list[Call], seed: int) -> None:
    disk = CrashDisk()
    twin = Twin(disk, "/root")
    for call in done:
        twin.do(call)
    before = disk.tree()
    disk.settle()
    assert disk.crash_state(seed).disk.tree() == disk.tree() == before
    assert disk.killed().tree() == before


@given(st.lists(calls(), max_size=40), st.integers(0, 2**32))
def test_a_killed_process_leaves_all_that_it_did_and_the_machine_may_still_lose_it(done: list[Call], seed: int) -> None:
    disk = CrashDisk()
    twin = Twin(disk, "/root")
    for call in done:
        twin.do(call)
    killed = disk.killed()
    assert killed.tree() == disk.tree()
    assert killed.used_bytes == sum(len(file.data) for file in files(killed))
    for state in (disk.crash_state(seed), *disk.extreme_states(random.Random(seed))):
        again = eval(f"killed.{state.replay}", {"killed": killed})
        assert again.disk.tree() == state.disk.tree()
        assert str(again) == str(state)


def files(disk: MemoryDisk) -> list[FileNode]:
    found: list[FileNode] = []
    directories = [disk.volume.root]
    for directory in directories:
        for node in directory.entries.values():
            if isinstance(node, FileNode):
                found.append(node)
            else:
                directories.append(node)
    return found
