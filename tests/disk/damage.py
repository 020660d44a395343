"""What the death of a machine may leave: of a file whose last writes were not synced, of names that were not either.

What this takes for possible, and why. File systems meant: ext4 (data=ordered, delayed allocation), xfs, btrfs.

**Bytes of a file.** Since its last sync a file had events: writes, and new lengths. Afterwards

- each write is there, or not, or its first bytes are, or any of its sectors of 512 bytes are, whatever became of those
  before and after it, in this file and in others: the kernel writes pages back in any order, and a disk sectors;
- where a write is missing lies what was there before; zeros, where nothing was;
- with `garbles`, a piece of a write may be anything: what a sector holds that lost its power while it was written.
  Bytes that no write since the last sync has touched are never garbled, and neither are their neighbours.

**Its length** is that after any number of the events, in order: it is the file's own metadata. It follows neither from
the bytes that are there nor from the names. So a file may be longer than its bytes (it ends with zeros: the length of a
preallocation or of a later page came first), or shorter (they are lost); of the event where it stopped, a write may
have made the file longer by a part of itself.

**A cut** is a length, and more: where it is not there, the rest of its block may be zero all the same, since the kernel
clears that in the page, and may write the page before the inode. What was appended after the cut may then be there in
the middle of what was cut.

**Names.** A create, unlink, rename, mkdir or rmdir is there whole or not at all; a rename with both of its names. Which
of them are there, by `order`:

    "journal"   of the changes to one directory, any first ones: xfs, and ext4 without fast commits. A change that
                touches two directories is among the changes of both.
    "names"     any, but of the changes to one name any first ones: btrfs, and ext4 with fast commits, where the
                fsync of a file can log its own name before those of others

Every choice of the first kind is one of the second. Only sync_directory() makes sure of a name: the sync of a file does
not, although ext4 and xfs mostly carry its name along. A file whose name is there has the bytes that are durable, none
if none are. A directory that was synced can be gone with all that is in it, if its own name was not.

**Times** are not what a sync is for (fdatasync leaves them out): a file's is one that it had.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.disk.volume import Slot

SECTOR_BYTES = 512
BLOCK_BYTES = 4096

# (position, bytes) is a write; (length, None) a new length.
Event = tuple[int, bytes | None]
# What became of an event: a word, and a position where there is one.
Verdict = tuple[str, int]

Order = Literal["journal", "names"]
Fate = Literal["lost", "kept", "lengths"]

_LOST: Verdict = ("lost", 0)
_KEPT: Verdict = ("kept", 0)


# --------------------------------------------------------------------------------------------------------------- bytes


def put(data: bytearray, position: int, new: bytes) -> None:
    """Write into bytes behind which there are zeros."""
    if new:
        if position > len(data):
            data.extend(bytes(position - len(data)))
        data[position : position + len(new)] = new


def replay(data: bytearray, length: int, events: Sequence[Event]) -> int:
    """Let everything happen to `data`; returns how long the file is then."""
    for at, new in events:
        if new is None:
            del data[at:]
            length = at
        else:
            put(data, at, new)
            length = max(length, at + len(new))
    return length


@dataclass
class FileDamage:
    """What became of the events of one file."""

    events: Sequence[Event]
    verdicts: list[Verdict]
    lengths: int  # how many of the first events count for the length
    data: bytearray
    length: int

    def __str__(self) -> str:
        told = []
        for (at, new), (verdict, where) in zip(self.events, self.verdicts, strict=True):
            what = f"length {at}" if new is None else f"write {at}+{len(new)}"
            told.append(f"{what} {verdict}" + (f" at {where}" if where else ""))
        return f"{self.length} bytes, by the lengths of {self.lengths} of: {', '.join(told)}"


def damage_file(
    rng: random.Random, data: bytes, length: int, events: Sequence[Event], fate: Fate | None, *, garbles: bool
) -> FileDamage:
    """Draw what is left of a file that was durable as `data` and `length`, and had `events` since.

    fate: no event is there ("lost"), all are ("kept"), all lengths but no byte ("lengths"), or what `rng` says
    """
    count = len(events)
    torn_at = -1  # the event where lengths stop and of which a part counts, if it is a write
    lot = rng.random()
    if fate is None and lot < 0.45:
        fate = "lost" if lot < 0.15 else "kept" if lot < 0.35 else "lengths"
    if fate is not None:
        lengths = 0 if fate == "lost" else count
        verdicts = [_KEPT if fate == "kept" else _LOST] * count
    elif lot < 0.70 and count:
        # The first events, and a part of the next: what a disk leaves that writes in order.
        lengths = torn_at = int(rng.random() * count)
        verdicts = [_KEPT] * lengths + [("torn", 0)] + [_LOST] * (count - lengths - 1)
    else:
        lengths = count if rng.random() < 0.5 else int(rng.random() * (count + 1))
        torn_at = lengths if rng.random() < 0.5 else -1
        kept = rng.random()
        verdicts = [_any_verdict(rng, kept, garbles) for _ in events]
    return _damaged(rng, bytearray(data), length, FileDamage(events, verdicts, lengths, bytearray(), 0), torn_at)


def _any_verdict(rng: random.Random, kept: float, garbles: bool) -> Verdict:
    if rng.random() < kept:
        return _KEPT
    lot = rng.random()
    if lot < 0.5:
        return _LOST
    return ("torn" if lot < 0.7 else "sectors" if lot < 0.85 or not garbles else "garbled"), 0


def _damaged(rng: random.Random, data: bytearray, length: int, made: FileDamage, torn_at: int) -> FileDamage:
    for index, (at, new) in enumerate(made.events):
        verdict = made.verdicts[index][0]
        if new is None:
            if index < made.lengths:
                del data[at:]
                length = at
                made.verdicts[index] = _KEPT
            else:
                end = min(len(data), at + -at % BLOCK_BYTES)
                is_cleared = at < end and verdict != "lost"
                if is_cleared:
                    data[at:end] = bytes(end - at)
                made.verdicts[index] = ("lost but for its zeros", end) if is_cleared else _LOST
            continue
        there = len(new)
        if verdict == "kept":
            put(data, at, new)
        elif verdict == "torn":
            there = int(rng.random() * (len(new) + 1))
            put(data, at, new[:there])
            made.verdicts[index] = ("torn", at + there)
        elif verdict == "sectors":
            _put_sectors(rng, data, at, new)
        elif verdict == "garbled":
            begin = int(rng.random() * len(new))
            size = 1 + int(rng.random() * (len(new) - begin))
            put(data, at, new[:begin] + rng.randbytes(size) + new[begin + size :])
            made.verdicts[index] = ("garbled", at + begin)
        if index < made.lengths:
            length = max(length, at + len(new))
        elif index == torn_at:
            grown = there if verdict == "torn" and rng.random() < 0.7 else int(rng.random() * (len(new) + 1))
            length = max(length, at + grown)
    del data[length:]
    made.data, made.length = data, length
    return made


def _put_sectors(rng: random.Random, data: bytearray, position: int, new: bytes) -> None:
    """Write those parts of `new` that lie in some of its sectors."""
    begin = position
    while begin < position + len(new):
        end = min(begin - begin % SECTOR_BYTES + SECTOR_BYTES, position + len(new))
        if rng.random() < 0.5:
            put(data, begin, new[begin - position : end - position])
        begin = end


# --------------------------------------------------------------------------------------------------------------- names


@dataclass(eq=False)
class NameChange:
    """What one call did to names, all at once."""

    kind: str
    path: str
    slots: tuple[Slot, ...]
    is_committed: bool = False  # there for sure in the order "journal", though maybe not in the order "names"

    def keys(self, order: Order) -> list[Hashable]:
        """Of two changes with a key in common, the later one is there only if the earlier one is."""
        return [directory if order == "journal" else (directory, name) for directory, name, _ in self.slots]

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


def damage_names(
    rng: random.Random, changes: Sequence[NameChange], order: Order, fate: Literal["lost", "kept"] | None
) -> list[bool]:
    """Draw which of the changes are there."""
    kept = {"lost": 0.0, "kept": 1.0, None: rng.random()}[fate]
    lost: set[Hashable] = set()
    chosen = []
    for change in changes:
        keys = change.keys(order)
        is_there = (order == "journal" and change.is_committed) or (rng.random() < kept and lost.isdisjoint(keys))
        if not is_there:
            lost.update(keys)
        chosen.append(is_there)
    return chosen


def every_choice(changes: Sequence[NameChange], order: Order) -> Iterator[list[bool]]:
    """Each legal choice of the changes that are there, once; from none to all."""

    def choose(index: int, lost: frozenset[Hashable]) -> Iterator[list[bool]]:
        if index == len(changes):
            yield []
            return
        keys = changes[index].keys(order)
        is_sure = order == "journal" and changes[index].is_committed
        if not is_sure:
            for rest in choose(index + 1, lost.union(keys)):
                yield [False, *rest]
        if is_sure or lost.isdisjoint(keys):
            for rest in choose(index + 1, lost):
                yield [True, *rest]

    return choose(0, frozenset())


def made_sure(changes: Sequence[NameChange], slots_of: Hashable) -> set[NameChange]:
    """The changes that the sync of the directory `slots_of` makes durable; marks those that it commits in a journal."""
    sure: set[NameChange] = set()
    names: set[Hashable] = set()
    directories: set[Hashable] = {slots_of}
    for change in reversed(changes):
        if any(directory is slots_of for directory, _, _ in change.slots) or not names.isdisjoint(change.keys("names")):
            sure.add(change)
            names.update(change.keys("names"))
        if change.is_committed or not directories.isdisjoint(change.keys("journal")):
            change.is_committed = True
            directories.update(change.keys("journal"))
    return sure
