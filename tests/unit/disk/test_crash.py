"""The disk that dies: where it dies, what is left, and that it finds the mistakes it is there to find."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from logcore._index import OffsetIndex
from logcore.errors import LockedError, StorageError
from logcore.log.disk import Disk, DiskFile, read_file, write_file
from tests.disk.cases import CrashCase, crash_cases
from tests.disk.crash import EXTREMES, CrashDisk, Crashed
from tests.disk.damage import Order


def writable(disk: Disk, path: str) -> DiskFile:
    return disk.open(path, is_writable=True, create=True)


def put(disk: Disk, path: str, data: bytes) -> None:
    """Write a file and sync nothing."""
    file = writable(disk, path)
    file.append([data])
    file.close()


def trees(disk: CrashDisk, count: int = 400, order: Order | None = None) -> list[dict[str, bytes | None]]:
    return [state.disk.tree() for state in disk.crash_states(random.Random(5), count, order=order)]


# --------------------------------------------------------------------------------------------------------- what is left


def test_what_was_synced_survives_and_what_was_not_is_lost_kept_torn_zeroed_and_garbled() -> None:
    disk = CrashDisk()
    file = writable(disk, "/0.log")
    file.append([b"durable."])
    file.sync()
    disk.sync_directory("/")
    file.append([b"unsynced"])
    seen = set()
    for tree in trees(disk):
        data = tree["0.log"]
        assert data is not None
        assert data.startswith(b"durable.")
        tail = data[8:]
        if tail == b"unsynced":
            seen.add("kept")
        elif tail == b"":
            seen.add("lost")
        elif b"unsynced".startswith(tail):
            seen.add("torn")
        elif set(tail) == {0}:
            seen.add("zeros")
        elif b"unsynced".startswith(tail.rstrip(b"\0")):
            seen.add("torn, then zeros")
        else:
            seen.add("garbled")
    assert seen == {"kept", "lost", "torn", "zeros", "torn, then zeros", "garbled"}


def test_writes_are_reordered_across_files() -> None:
    disk = CrashDisk()
    for name in ("/a", "/b"):
        put(disk, name, b"")
    disk.settle()
    first, second = writable(disk, "/a"), writable(disk, "/b")
    first.append([b"first"])
    second.append([b"second"])
    found = trees(disk)
    for expected in ({"a": b"", "b": b"second"}, {"a": b"first", "b": b""}, {"a": b"first", "b": b"second"}):
        assert expected in found


def test_writes_into_a_mapping_are_writes() -> None:
    disk = CrashDisk()
    index = OffsetIndex(disk.map("/0.index", 24, is_writable=True), 0, entry_count=0, is_writable=True)
    disk.sync_directory("/")
    index.append(1, 100)
    index.flush()
    index.append(2, 200)
    one, two = bytes.fromhex("00000001 00000064"), bytes.fromhex("00000002 000000c8")
    found = [tree["0.index"] for tree in trees(disk)]
    assert all(data is not None and data[:8] == one and data[16:] == bytes(8) for data in found)
    assert {one + two + bytes(8), one + bytes(16), one + two[:4] + bytes(12)} <= set(found)


def test_a_file_whose_directory_was_not_synced_may_vanish_however_well_it_was_synced() -> None:
    disk = CrashDisk()
    file = writable(disk, "/a")
    file.append([b"abc"])
    file.sync()
    assert {} in trees(disk)
    assert {"a": b"abc"} in trees(disk)
    assert all(tree.get("a", b"abc") == b"abc" for tree in trees(disk))
    disk.sync_directory("/")
    assert all(tree == {"a": b"abc"} for tree in trees(disk))


def test_a_directory_vanishes_with_all_that_is_in_it_if_its_name_was_not_synced() -> None:
    disk = CrashDisk()
    disk.make_directory("/data/orders-0")
    put(disk, "/data/orders-0/a", b"")
    disk.sync_directory("/data/orders-0")
    found = trees(disk)
    whole: dict[str, bytes | None] = {"data": None, "data/orders-0": None, "data/orders-0/a": b""}
    assert all(tree in ({}, {"data": None}, whole) for tree in found)
    assert {len(tree) for tree in found} == {0, 1, 3}


def test_an_unsynced_unlink_may_bring_the_file_back_as_durable_as_it_was() -> None:
    disk = CrashDisk()
    file = writable(disk, "/a")
    file.append([b"abc"])
    file.sync()
    disk.sync_directory("/")
    disk.unlink("/a")
    file.append([b"more"])
    file.close()
    found = trees(disk)
    assert {} in found
    assert {"a": b"abc"} in found
    assert all(not tree or str(tree["a"])[2:].startswith("abc") for tree in found)
    put(disk, "/a", b"")
    assert all(tree == {} or str(tree["a"])[2:].startswith("abc") or tree == {"a": b""} for tree in trees(disk))
    disk.sync_directory("/")
    assert all(tree == {"a": b""} for tree in trees(disk))


def test_a_rename_is_atomic() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"new")
    put(disk, "/b", b"old")
    disk.settle()
    disk.rename("/a", "/b")
    found = trees(disk)
    assert all(tree in ({"a": b"new", "b": b"old"}, {"b": b"new"}) for tree in found)
    assert len({len(tree) for tree in found}) == 2


@pytest.mark.parametrize("order", ["journal", "names"])
def test_a_rename_into_another_directory_is_atomic_and_durable_when_either_is_synced(order: Order) -> None:
    for synced in ("/from", "/to"):
        disk = CrashDisk()
        disk.make_directory("/from")
        disk.make_directory("/to")
        disk.settle()
        put(disk, "/from/a", b"")
        put(disk, "/from/other", b"")
        disk.rename("/from/a", "/to/a")
        found = trees(disk, order=order)
        assert all(not ("from/a" in tree and "to/a" in tree) for tree in found)
        assert any("from/a" in tree for tree in found)
        assert any("to/a" in tree for tree in found)
        disk.sync_directory(synced)
        found = trees(disk, order=order) + trees(disk.killed(), order=order)
        assert all("to/a" in tree and "from/a" not in tree for tree in found)
        may_be_lost = synced == "/to" and order == "names"
        assert any("from/other" not in tree for tree in found) == may_be_lost


def test_a_later_name_without_an_earlier_one_of_its_directory_is_left_by_names_only() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"")
    put(disk, "/b", b"")
    assert {"b": b""} in trees(disk, order="names")
    assert {"b": b""} not in trees(disk, order="journal")


def test_the_states_at_the_edges_are_what_they_say() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"old")
    disk.settle()
    file = writable(disk, "/a")
    file.append([b"+"])
    put(disk, "/b", b"new")
    found = [state.disk.tree() for state in disk.extreme_states(random.Random(1))]
    assert dict(zip(EXTREMES, found, strict=True)) == {
        ("lost", "lost"): {"a": b"old"},
        ("lost", "kept"): {"a": b"old", "b": b""},
        ("lengths", "kept"): {"a": b"old\0", "b": b"\0\0\0"},
        ("kept", "lost"): {"a": b"old+"},
        ("kept", "kept"): {"a": b"old+", "b": b"new"},
    }


def test_each_choice_of_names_comes_up_once() -> None:
    disk = CrashDisk()
    for name in "abcd":
        put(disk, f"/{name}", b"")
    found = ["".join(state.disk.list("/")) for state in disk.name_states(random.Random(1))]
    assert (len(found), len(set(found))) == (16, 16)
    found = ["".join(state.disk.list("/")) for state in disk.name_states(random.Random(1), order="journal")]
    assert sorted(found) == ["", "a", "ab", "abc", "abcd"]
    assert len(list(disk.name_states(random.Random(1), states_max=5))) == 5


def test_a_killed_process_leaves_everything_and_the_machine_may_still_lose_it() -> None:
    disk = CrashDisk(process=7)
    file = writable(disk, "/a")
    file.append([b"abc"])
    disk.lock("/.lock")
    left = disk.killed()
    assert left.tree() == {"a": b"abc", ".lock": b""}
    left.as_process(8).lock("/.lock").release()
    with pytest.raises(LockedError):
        disk.as_process(8).lock("/.lock")
    assert {} in trees(left)
    file = writable(left, "/a")
    file.sync()
    left.sync_directory("/")
    assert all(tree["a"] == b"abc" for tree in trees(left))
    assert {} in trees(disk), "the disk that was copied stays as it is"


def test_the_dead_process_cannot_reach_the_disk_that_is_left() -> None:
    disk = CrashDisk()
    file = writable(disk, "/a")
    left = disk.killed()
    state = disk.crash_state(1, names="kept").disk
    file.append([b"abc"])
    disk.unlink("/a")
    assert left.tree() == state.tree() == {"a": b""}


def test_a_time_is_one_that_the_file_had() -> None:
    now_ms = 1000
    disk = CrashDisk(clock=lambda: now_ms)
    file = writable(disk, "/a")
    disk.sync_directory("/")
    for now_ms in (2000, 3000):  # the clock reads it
        file.append([b"x"])
        if now_ms == 2000:
            file.sync()
    times = set()
    for state in disk.crash_states(random.Random(1), 100):
        status = state.disk.status("/a")
        assert status is not None
        times.add(status.modified_ms)
    assert times == {1000, 2000, 3000}


def test_what_a_failed_sync_has_forgotten_no_later_one_makes_durable() -> None:
    disk = CrashDisk()
    file = writable(disk, "/a")
    disk.sync_directory("/")
    file.append([b"one"])
    file.sync()
    file.append([b"two"])
    disk.forget_unsynced(file)
    file.append([b"three"])
    assert file.read(0, 99) == b"onetwothree"
    file.sync()
    assert disk.killed().tree() == {"a": b"onetwothree"}
    for left in (disk, disk.killed()):
        assert all(tree == {"a": b"one\0\0\0three"} for tree in trees(left, 20))
    file.write(3, b"2")
    file.sync()
    assert all(tree == {"a": b"one2\0\0three"} for tree in trees(disk, 20))
    kept = set()
    for seed in range(200):
        disk = CrashDisk()
        file = writable(disk, "/a")
        disk.sync_directory("/")
        file.append([b"two"])
        disk.forget_unsynced(file, random.Random(seed))
        file.sync()
        (data,) = {tree["a"] for tree in trees(disk, 5)}
        kept.add(data)
    assert {b"", b"two", b"t", b"\0\0\0"} <= kept


def test_a_state_is_made_again_by_what_it_prints() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"abc")
    disk.rename("/a", "/b")
    put(disk, "/c", b"x")
    states = [
        *disk.crash_states(random.Random(3), 20, garbles=False),
        *disk.extreme_states(random.Random(3)),
        *disk.name_states(random.Random(3), order="journal"),
    ]
    for state in states:
        again = eval(f"disk.{state.replay}", {"disk": disk})
        assert (str(again), again.disk.tree()) == (str(state), state.disk.tree())
    assert "crash_state(" in str(states[0])
    assert any("  rename /a -> /b: lost\n" in str(state) + "\n" for state in states)
    assert any("write 0+3 torn" in str(state) for state in disk.crash_states(random.Random(3), 200))


# -------------------------------------------------------------------------------------------------------- where it dies


def steps(disk: Disk, noted: list[Any]) -> None:
    """Every kind of operation once."""
    disk.make_directory("/d")
    file = writable(disk, "/d/a")
    file.append([b"ab", b"cd"])
    file.write(1, b"B")
    file.preallocate(10)
    file.sync()
    noted.append("synced")
    file.close()
    disk.rename("/d/a", "/d/b")
    disk.sync_directory("/d")
    noted.append("renamed")
    mapping = disk.map("/d/m", 8, is_writable=True)
    mapping.write(0, b"x")
    mapping.resize(4)
    mapping.flush()
    mapping.close()
    disk.set_modified("/d/m", 5)
    disk.unlink("/d/m")
    disk.make_directory("/e/f")
    disk.remove_directory("/e/f")
    disk.lock("/.lock").release()


STEPS = [
    *(
        "make directory /d",
        "create /d/a",
        "write /d/a",
        "write /d/a",
        "set length /d/a",
        "sync /d/a",
        "set length /d/a",
    ),
    *("rename /d/a -> /d/b", "sync directory /d", "create /d/m", "set length /d/m", "write /d/m", "set length /d/m"),
    *("sync /d/m", "set time of /d/m", "unlink /d/m", "make directory /e", "make directory /e/f"),
    *("remove directory /e/f", "create /.lock", "unlink /.lock"),
]


def test_an_operation_is_one_change_or_one_sync() -> None:
    disk = CrashDisk()
    steps(disk, [])
    assert [str(operation) for operation in disk.operations] == STEPS
    for look in (disk.status, disk.open, disk.list):
        with_nothing = len(disk.operations)
        look("/d")
        assert len(disk.operations) == with_nothing


def test_it_dies_before_the_operation_it_was_told_to_and_what_came_before_is_done() -> None:
    before: list[dict[str, bytes | None]] = []
    for point in range(len(STEPS)):
        disk = CrashDisk(crash_after=point)
        with pytest.raises(Crashed, match=f"in operation {point + 1}: {STEPS[point]}"):
            steps(disk, [])
        assert disk.is_dead
        assert len(disk.operations) == point + 1
        before.append(disk.tree())
    assert before[:4] == [{}, {"d": None}, {"d": None, "d/a": b""}, {"d": None, "d/a": b"abcd"}]
    assert before[8] == {"d": None, "d/b": b"aBcd"}
    alive = CrashDisk(crash_after=len(STEPS))
    steps(alive, [])
    assert not alive.is_dead


def test_a_part_of_the_last_operation_may_have_happened() -> None:
    def left(point: int) -> set[tuple[tuple[str, bytes | None], ...]]:
        found = set()
        for seed in range(100):
            disk = CrashDisk(rng=random.Random(seed), crash_after=point)
            with pytest.raises(Crashed):
                steps(disk, [])
            found.add(tuple(disk.killed().tree().items()))
        return found

    assert {dict(tree)["d/a"] for tree in left(2)} == {b"abcd"[:size] for size in range(5)}
    assert {dict(tree)["d/a"] for tree in left(4)} == {b"aBcd", b"aBcd" + bytes(6)}
    assert {frozenset(dict(tree)) for tree in left(7)} == {frozenset({"d", "d/a"}), frozenset({"d", "d/b"})}
    assert {dict(tree)["d/b"] for tree in left(8)} == {b"aBcd"}


def test_nothing_is_changed_after_it_died() -> None:
    disk = CrashDisk()
    file, mapping = writable(disk, "/a"), disk.map("/m", 8, is_writable=True)
    lock = disk.lock("/.lock")
    file.append([b"abc"])
    file.preallocate(9)
    disk.volume.crash_after = len(disk.operations)
    with pytest.raises(Crashed):
        disk.unlink("/a")
    before = disk.killed().tree()
    calls: list[Callable[[], object]] = [
        lambda: file.append([b"x"]),
        lambda: file.write(0, b"x"),
        lambda: file.truncate(0),
        lambda: file.sync(),
        lambda: mapping.write(0, b"x"),
        lambda: mapping.resize(0),
        lambda: mapping.flush(),
        lambda: disk.rename("/a", "/b"),
        lambda: disk.make_directory("/d"),
        lambda: disk.set_modified("/a", 1),
        lambda: disk.sync_directory("/"),
        lambda: writable(disk, "/new"),
    ]
    for call in calls:
        with pytest.raises(Crashed, match="after the crash"):
            call()
    file.close()
    mapping.close()
    lock.release()
    assert disk.killed().tree() == before
    assert before["a"] == b"abc" + bytes(6)


def test_no_handler_of_errors_takes_a_crash_for_one() -> None:
    disk = CrashDisk(crash_after=1)
    file = writable(disk, "/a")

    def careful() -> None:
        try:
            file.append([b"x"])
        except Exception:
            pytest.fail("it was handled")
        finally:
            file.close()

    with pytest.raises(Crashed):
        careful()


# ------------------------------------------------------------------------------------------------------------- the loop


def test_a_workload_dies_at_each_of_its_operations_and_after_the_last() -> None:
    cases = list(crash_cases(steps, seed=1, states=2))
    assert [case.point for case in cases] == [point for point in range(len(STEPS) + 1) for _ in range(8)]
    assert sum(case.is_killed for case in cases) == len(STEPS) + 1
    for case in cases:
        noted = [] if case.point < 6 else ["synced"] if case.point < 9 else ["synced", "renamed"]
        assert case.noted == noted
        if case.is_killed and "renamed" in noted:
            assert read_file(case.disk, "/d/b", 99) == b"aBcd"


def test_points_are_drawn_by_the_seed() -> None:
    def points(seed: int) -> list[int]:
        return [case.point for case in crash_cases(steps, seed=seed, points=5, states=1)]

    assert len(points(1)) == 10
    assert points(1) == points(1) != points(2)


def test_it_begins_with_copies_of_a_disk_and_goes_on_from_what_a_crash_left() -> None:
    start = CrashDisk()
    put(start, "/a", b"x")
    start.settle()

    def rewrite(disk: CrashDisk, noted: list[Any]) -> None:
        write_file(disk, "/a", b"new")

    def rewrite_again(disk: CrashDisk, noted: list[Any]) -> None:
        write_file(disk, "/a", b"newer")
        disk.sync_directory("/")
        noted.append("newer")

    count = 0
    for case in crash_cases(rewrite, seed=1, start=start):
        for second in crash_cases(rewrite_again, seed=2, start=case.disk, points=2, states=2):
            found = read_file(second.disk, "/a", 99)
            assert found == b"newer" if second.noted else found in (b"x", b"new", b"newer")
            count += 1
    assert count > 200
    assert start.tree() == {"a": b"x"}


def test_a_failure_prints_how_to_get_the_case_again(capsys: pytest.CaptureFixture[str]) -> None:
    def check(case: CrashCase) -> None:
        with case:
            assert case.disk.status("/d/b") is None

    for case in crash_cases(steps, seed=9):
        if case.disk.status("/d/b") is not None:
            with pytest.raises(AssertionError):
                check(case)
            break
        check(case)
    printed = capsys.readouterr().err
    assert printed.startswith(f"crash_cases(…, seed=9, only=({case.point}, {case.number})): died after {case.point} ")
    (again,) = crash_cases(steps, seed=9, only=(case.point, case.number))
    assert (again.disk.tree(), str(again)) == (case.disk.tree(), str(case))
    with case:
        pass
    assert capsys.readouterr().err == ""


def test_a_workload_that_is_not_the_same_each_time_is_refused() -> None:
    runs = []

    def changing(disk: CrashDisk, noted: list[Any]) -> None:
        runs.append(1)
        put(disk, f"/{len(runs)}", b"")

    with pytest.raises(AssertionError, match="does other operations when it is run again"):
        list(crash_cases(changing, seed=1))


def test_an_error_of_the_workload_is_an_error() -> None:
    with pytest.raises(StorageError):
        list(crash_cases(lambda disk, noted: disk.open("/no"), seed=1))


# --------------------------------------------------------------------------------------------------- mistakes it finds


def replaced_without_sync(disk: Disk, noted: list[Any]) -> None:
    put(disk, "/c.tmp", b"new")
    disk.rename("/c.tmp", "/c")


def replaced_without_directory_sync(disk: Disk, noted: list[Any]) -> None:
    write_file(disk, "/c", b"new")
    noted.append("new")


def overwritten_in_place(disk: Disk, noted: list[Any]) -> None:
    file = writable(disk, "/c")
    file.truncate(0)
    file.append([b"new"])
    file.sync()
    file.close()


def removed_and_renamed(disk: Disk, noted: list[Any]) -> None:
    file = writable(disk, "/c.tmp")
    file.append([b"new"])
    file.sync()
    file.close()
    disk.unlink("/c")
    disk.rename("/c.tmp", "/c")


def replaced_well(disk: Disk, noted: list[Any]) -> None:
    write_file(disk, "/c", b"new")
    disk.sync_directory("/")
    noted.append("new")


def right(disk: Disk, noted: list[Any]) -> bool:
    found = read_file(disk, "/c", 99)
    return found == b"new" if noted else found in (b"old", b"new")


@pytest.mark.parametrize(
    ("workload", "is_right", "is_right_when_killed"),
    [
        (replaced_well, True, True),
        (replaced_without_sync, False, True),
        (replaced_without_directory_sync, False, True),
        (overwritten_in_place, False, False),
        (removed_and_renamed, False, False),
    ],
)
def test_ways_to_replace_a_file_are_told_apart(
    workload: Callable[[Disk, list[Any]], None], is_right: bool, is_right_when_killed: bool
) -> None:
    start = CrashDisk()
    put(start, "/c", b"old")
    start.settle()
    cases = list(crash_cases(workload, seed=1, start=start))
    assert all(right(case.disk, case.noted) for case in cases) == is_right
    assert all(right(case.disk, case.noted) for case in cases if case.is_killed) == is_right_when_killed
