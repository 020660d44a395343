"""A machine that dies keeps what was synced, whatever was done, and leaves nothing that nobody wrote."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.disk.crash import CrashDisk
from tests.disk.damage import BLOCK_BYTES, Event, NameChange, damage_file, made_sure
from tests.disk.memory import MemoryDisk
from tests.disk.twins import Call, Twin
from tests.disk.volume import DirectoryNode, FileNode

seeds = st.integers(0, 2**32)
near = st.integers(0, 30) | st.sampled_from([510, 512, 4095, 4096, 5000])
events = st.lists(
    st.tuples(near, st.binary(min_size=1, max_size=20) | st.binary(min_size=600, max_size=700))
    | st.tuples(near, st.none()),
    max_size=8,
)


@given(st.binary(max_size=40), st.integers(0, 5000), events, seeds, st.sampled_from([None, "lost", "kept", "lengths"]))
def test_each_byte_left_of_a_file_is_durable_or_was_written_or_is_a_zero_that_may_be(
    data: bytes, more: int, done: list[Event], seed: int, fate: Any
) -> None:
    durable_length = len(data) + more
    made = damage_file(random.Random(seed), data, durable_length, done, fate, garbles=False)
    length, lengths = durable_length, {durable_length}
    for at, new in done:
        before, length = length, at if new is None else max(length, at + len(new))
        lengths.update(range(before, length + 1) if new is not None else [length])
    assert made.length in lengths
    assert len(made.data) <= made.length
    for position, byte in enumerate(made.data):
        possible = {data[position]} if position < len(data) else {0}
        for at, new in done:
            if new is None:
                if at <= position:
                    possible.add(0)
            elif at <= position < at + len(new):
                possible.add(new[position - at])
        assert byte in possible
    cuts = [at for at, new in done if new is None]
    for position in range(min(len(data), *cuts, made.length) if cuts else len(data)):
        if not any(new is not None and at <= position < at + len(new) for at, new in done):
            assert made.data[position : position + 1] == data[position : position + 1]


@given(st.binary(min_size=1, max_size=40), st.integers(0, 40), seeds)
def test_a_cut_never_changes_what_lies_before_it(data: bytes, at: int, seed: int) -> None:
    done: list[Event] = [(min(at, len(data)), None)]
    made = damage_file(random.Random(seed), data, len(data), done, None, garbles=True)
    assert made.data[: done[0][0]] == data[: done[0][0]]
    assert len(data) < BLOCK_BYTES


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("def"), st.sampled_from("abc")), min_size=1, max_size=2), max_size=10),
    st.lists(st.sampled_from("def"), max_size=3),
)
def test_a_sync_makes_sure_of_all_that_its_names_depend_on(
    slots_by_change: list[list[tuple[str, str]]], synced: list[str]
) -> None:
    """Compared with a slow rule: take in earlier changes until there is none that a sure one depends on."""
    directories = {name: DirectoryNode(0, 0) for name in "def"}
    changes = [
        NameChange("change", "", tuple((directories[directory], name, FileNode(0, 0)) for directory, name in slots))
        for slots in slots_by_change
    ]
    everything, committed = list(changes), set[int]()
    for directory in synced:
        sure = made_sure(changes, directories[directory])
        for order in ("names", "journal"):
            wanted = {
                index
                for index, change in enumerate(everything)
                if change in changes and any(slot[0] is directories[directory] for slot in change.slots)
            }
            while True:
                more = {
                    earlier
                    for later in wanted
                    for earlier in range(later)
                    if everything[earlier] in changes
                    and set(everything[earlier].keys(order)) & set(everything[later].keys(order))  # type: ignore[arg-type]
                }
                if more <= wanted:
                    break
                wanted |= more
            if order == "names":
                assert {index for index, change in enumerate(everything) if change in sure} == wanted
            else:
                committed |= wanted
                assert {index for index, change in enumerate(everything) if change.is_committed} == committed
        changes = [change for change in changes if change not in sure]


NAMES = ("a", "b", "d/a", "d/b", "e/a")
names = st.sampled_from(NAMES)
numbers = st.integers(0, 4)
data = st.binary(min_size=1, max_size=12)
calls = st.one_of(
    st.tuples(st.just("open"), names, st.just(True), st.just(True)),
    st.tuples(st.just("map"), names, st.integers(1, 20), st.just(True)),
    st.tuples(st.just("append"), numbers, data),
    st.tuples(st.just("append"), numbers, data),
    st.tuples(st.just("write"), numbers, st.integers(0, 9), data),
    st.tuples(st.just("put"), numbers, st.integers(0, 9), data),
    st.tuples(st.just("truncate"), numbers, st.integers(0, 9)),
    st.tuples(st.just("preallocate"), numbers, st.integers(0, 99)),
    st.tuples(st.just("resize"), numbers, st.integers(0, 30)),
    st.tuples(st.sampled_from(["sync", "flush", "close", "unmap"]), numbers),
    st.tuples(st.just("unlink"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("sync_directory"), st.sampled_from([".", "d", "e"])),
)


def content_by_number(disk: MemoryDisk) -> dict[int, bytes]:
    """What each file holds, by the number of its node."""
    found = {}
    directories = [disk.volume.root]
    for directory in directories:
        for node in directory.entries.values():
            if isinstance(node, DirectoryNode):
                directories.append(node)
            else:
                found[node.number] = node.read(0, node.length)
    return found


def numbers_by_name(disk: MemoryDisk, path: str) -> dict[str, int]:
    found = {}
    for name in disk.list(path):
        status = disk.status(f"{path}/{name}")
        assert status is not None
        found[name] = status.inode
    return found


@given(st.lists(calls, max_size=50), st.lists(seeds, min_size=3, max_size=3))
def test_what_was_synced_is_there_after_every_crash(done: list[Call], chosen: list[int]) -> None:
    """Bytes: those at the last sync of the file. Names: those at the last sync of the directory.

    Of names only where no rename between directories has taken more along.
    """
    disk = CrashDisk()
    twin = Twin(disk, "/root")
    for name in ("d", "e"):
        twin.do(("make", name))
    disk.settle()
    synced: dict[int, bytes] = {}
    names_synced = {name: numbers_by_name(disk, f"/root/{name}") for name in (".", "d", "e")}
    crossed = False
    for call in done:
        outcome = twin.do(call)
        if call[0] in ("sync", "flush") and outcome[0] == "gave" and outcome[1] is not None:
            opened: Any = twin.files if call[0] == "sync" else twin.mappings
            node = opened[call[1] % len(opened)]._node
            synced[node.number] = node.read(0, node.length)
        if call[0] == "rename" and outcome[0] == "gave":
            crossed |= call[1].rpartition("/")[0] != call[2].rpartition("/")[0]
        if call[0] == "sync_directory":
            names_synced[call[1]] = numbers_by_name(disk, f"/root/{call[1]}")

    kept = disk.crash_state(1, files="kept", names="kept")
    assert kept.disk.tree() == disk.tree()

    bare = content_by_number(disk.crash_state(1, files="lost", names="kept").disk)
    assert bare == {number: synced.get(number, b"") for number in content_by_number(disk)}

    if not crossed:
        nameless = disk.crash_state(1, files="kept", names="lost", order="names").disk
        assert {name: numbers_by_name(nameless, f"/root/{name}") for name in names_synced} == names_synced

    for seed in chosen:
        state = disk.crash_state(seed)
        seen = [node for path in ("/root", "/root/d", "/root/e") for node in numbers_by_name(state.disk, path).values()]
        assert len(seen) == len(set(seen)), "a file has two names"
        assert state.disk.crash_state(seed).disk.tree() == state.disk.tree(), "what is left is durable"
        state.disk.make_directory("/root/new")
        again = disk.crash_state(seed).disk
        again.make_directory("/root/new")
        assert again.tree() == state.disk.tree()
