"""What is drawn as left of files and names: nothing that cannot be, and everything that can."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.disk.damage import (
    BLOCK_BYTES,
    SECTOR_BYTES,
    Event,
    NameChange,
    Order,
    damage_file,
    damage_names,
    every_choice,
    made_sure,
    replay,
)
from tests.disk.volume import DirectoryNode, FileNode


def drawn(
    data: bytes, events: Sequence[Event], count: int = 3000, *, length: int | None = None, garbles: bool = False
) -> Iterator[tuple[bytes, int]]:
    """What is left, for many seeds: the bytes up to the last that was ever written, and the length."""
    for seed in range(count):
        made = damage_file(
            random.Random(seed), data, len(data) if length is None else length, events, None, garbles=garbles
        )
        assert len(made.data) <= made.length
        assert len(str(made).split("of: ")[1].split(", ")) == len(events)
        yield bytes(made.data), made.length


def contents(*arguments: object, **options: object) -> set[bytes]:
    return {data.ljust(length, b"\0") for data, length in drawn(*arguments, **options)}  # type: ignore[arg-type]


def test_an_append_is_lost_kept_torn_at_any_byte_or_followed_by_zeros() -> None:
    found = contents(b"old", [(3, b"NEW!")])
    assert found == {b"old" + b"NEW!"[:size].ljust(grown, b"\0") for grown in range(5) for size in range(grown + 1)}


def test_a_piece_of_a_write_is_garbled_and_nothing_beside_it() -> None:
    """Unless it was told not to."""
    pieces = set()
    for data, length in drawn(b"old" + b"....", [(3, b"abcd")], garbles=True):
        assert (data[:3], length) == (b"old", 7)
        if any(byte not in b"abcd." for byte in data[3:]):
            pieces.add(tuple(at for at, byte in enumerate(data[3:]) if byte not in (b"abcd"[at], ord("."))))
    assert {(0,), (3,), (1, 2), (0, 1, 2, 3)} <= pieces


def test_a_later_write_is_kept_where_an_earlier_one_is_lost() -> None:
    found = contents(b"", [(0, b"aaa"), (3, b"bbb")])
    assert {b"", b"aaa", b"aaabbb", b"\0\0\0bbb", b"aaa\0\0\0", b"\0\0\0\0\0\0", b"\0\0\0"} <= found


def test_any_sectors_of_a_long_write_are_there() -> None:
    """At the sectors of the disk, not at those of the write."""
    begin, size = 100, 3 * SECTOR_BYTES
    parts = [range(begin, 512), range(512, 1024), range(1024, 1536), range(1536, begin + size)]
    found = set()
    for data, length in drawn(bytes(begin), [(begin, b"x" * size)]):
        whole = data.ljust(length, b"\0")
        if length == begin + size and all(len(set(whole[part.start : part.stop])) == 1 for part in parts):
            found.add(tuple(whole[part.start] == ord("x") for part in parts))
    assert found == set(product((False, True), repeat=4))


def test_an_overwrite_is_the_old_bytes_or_the_new_and_no_zeros() -> None:
    found = contents(b"0123456789", [(2, b"abc"), (6, b"de")])
    for content in found:
        assert len(content) == 10
        assert all(content[at] in (b"0123456789"[at], b"01abc5de89"[at]) for at in range(10))
    assert {b"0123456789", b"01abc5de89", b"01abc56789", b"012345de89", b"01a3456789"} <= found


def test_a_preallocation_is_there_or_not_and_its_zeros_are_no_bytes() -> None:
    found = set(drawn(b"", [(1 << 40, None), (0, b"ab")]))
    assert found == {(data, length) for data in (b"", b"a", b"ab") for length in (0, 1 << 40) if len(data) <= length}


def test_a_cut_is_there_or_not_or_has_only_cleared_the_rest_of_its_block() -> None:
    old = b"a" * (2 * BLOCK_BYTES)
    found = contents(old, [(100, None)])
    assert found == {old, old[:100], old[:100] + bytes(BLOCK_BYTES - 100) + old[BLOCK_BYTES:]}


def test_what_is_appended_after_a_cut_may_lie_in_the_middle_of_what_was_cut() -> None:
    found = contents(b"aaaaaa", [(2, None), (2, b"bb")])
    assert {b"aaaaaa", b"aa", b"aabb", b"aabbaa", b"aabb\0\0", b"aa\0\0\0\0", b"aa\0\0", b"aab", b"aa\0"} <= found
    for content in found:
        assert content[:2] == b"aa"


def test_everything_kept_is_what_the_file_was() -> None:
    events: list[Event] = [(3, b"abc"), (1, b"x"), (4, None), (10, None), (8, b"yz"), (12, b"!")]
    data = bytearray(b"012")
    length = replay(data, 3, events)
    made = damage_file(random.Random(1), b"012", 3, events, "kept", garbles=True)
    assert (made.data, made.length) == (data, length) == (b"0x2a\0\0\0\0yz\0\0!", 13)
    lost = damage_file(random.Random(1), b"012", 3, events, "lost", garbles=True)
    assert (lost.data, lost.length) == (b"012", 3)
    sizes = damage_file(random.Random(1), b"012", 3, events, "lengths", garbles=True)
    assert (sizes.data, sizes.length) == (b"012", 13)


def whole_states(data: bytes, events: Sequence[Event]) -> set[bytes]:
    """Slow and plain: every choice of whole writes, of how many lengths count, and of cuts that cleared their block."""
    states = set()
    for lengths in range(len(events) + 1):
        for choice in product((False, True), repeat=len(events)):
            memory, length = bytearray(100), len(data)
            memory[: len(data)] = data
            for index, ((at, new), is_there) in enumerate(zip(events, choice, strict=True)):
                if new is not None:
                    if is_there:
                        memory[at : at + len(new)] = new
                    if index < lengths:
                        length = max(length, at + len(new))
                elif index < lengths:
                    memory[at:] = bytes(100 - at)
                    length = at
                elif is_there:
                    memory[at:] = bytes(100 - at)
            states.add(bytes(memory[:length]))
    return states


@pytest.mark.parametrize(
    "events",
    [
        [(4, b"AB"), (2, b"CD"), (3, None), (3, b"EF")],
        [(0, None), (0, b"AB"), (2, b"CD")],
        [(8, None), (5, b"AB"), (1, b"C"), (7, None)],
        [(4, b"A"), (5, b"B"), (6, b"C"), (7, b"D"), (8, b"E")],
    ],
)
def test_every_choice_of_whole_writes_and_lengths_is_reached(events: list[Event]) -> None:
    assert whole_states(b"0123", events) <= contents(b"0123", events, 30_000)


# --------------------------------------------------------------------------------------------------------------- names


def changes_of(*changes: tuple[str, ...]) -> list[NameChange]:
    """Changes told by their slots: "d/a" is the name a of the directory d."""
    directories: dict[str, DirectoryNode] = {}
    made = []
    for slots in changes:
        kept = []
        for slot in slots:
            directory, name = slot.split("/")
            kept.append((directories.setdefault(directory, DirectoryNode(0, 0)), name, FileNode(0, 0)))
        made.append(NameChange("change", " ".join(slots), tuple(kept)))
    return made


def legal_choices(changes: Sequence[NameChange], order: Order) -> set[tuple[bool, ...]]:
    """Slow and plain: of any two changes that have to do with each other, the later is there only if the earlier is."""
    return {
        choice
        for choice in product((False, True), repeat=len(changes))
        if all(
            choice[first] or not choice[second]
            for second in range(len(changes))
            for first in range(second)
            if set(changes[first].keys(order)) & set(changes[second].keys(order))
        )
    }


RENAMES = [("d/a",), ("d/a", "d/b"), ("e/a",), ("d/c", "e/c"), ("e/x",), ("d/a",), ("f/a",)]


@pytest.mark.parametrize("order", ["journal", "names"])
def test_each_legal_choice_of_names_is_listed_and_drawn_and_no_other(order: Order) -> None:
    changes = changes_of(*RENAMES)
    legal = legal_choices(changes, order)
    listed = [tuple(choice) for choice in every_choice(changes, order)]
    assert len(listed) == len(set(listed))
    assert set(listed) == legal
    assert {tuple(damage_names(random.Random(seed), changes, order, None)) for seed in range(5000)} == legal
    for fate in ("lost", "kept"):
        choice = damage_names(random.Random(1), changes, order, fate)  # type: ignore[arg-type]
        assert choice == [fate == "kept"] * len(changes)


def test_what_a_journal_may_leave_so_may_independent_names() -> None:
    changes = changes_of(*RENAMES)
    assert legal_choices(changes, "journal") < legal_choices(changes, "names")


def test_a_name_does_not_overtake_another_of_its_directory_in_a_journal_but_may_without() -> None:
    changes = changes_of(("d/a",), ("d/b",), ("e/c",))
    assert (False, True, False) not in legal_choices(changes, "journal")
    assert (False, False, True) in legal_choices(changes, "journal")
    assert (False, True, False) in legal_choices(changes, "names")


def test_syncing_a_directory_makes_sure_of_its_names_and_of_what_they_came_from() -> None:
    """A rename out of another directory takes along what made the file there; in a journal, all that came before."""
    changes = changes_of(("s/x",), ("s/a",), ("s/a", "d/a"), ("s/y",), ("d/b",), ("t/z",))
    _, created, renamed, _, other, _ = changes
    sure = made_sure(changes, renamed.slots[1][0])
    assert sure == {created, renamed, other}
    assert [change.is_committed for change in changes] == [True, True, True, False, True, False]
    left = [change for change in changes if change not in sure]
    assert {tuple(choice) for choice in every_choice(left, "journal")} == {
        (True, is_y, is_z) for is_y in (False, True) for is_z in (False, True)
    }
    assert len(list(every_choice(left, "names"))) == 8
    assert all(damage_names(random.Random(seed), left, "journal", "lost")[0] for seed in range(20))
