"""CrashDisk: a disk that dies where it is told to, and comes back as any disk that it may be afterwards.

It remembers what is durable (of each file its bytes at the last sync, of each directory its names) and, in order, all
that was done since. From that:

    disk.killed()                     after the death of the process: all that was done is there, but no more durable
                                      than it was
    disk.crash_states(rng, 10)        ten of the many that the death of the machine may leave (damage.py says which)
    disk.extreme_states(rng)          those at the edges: nothing kept, everything kept, names without bytes, …
    disk.name_states(rng)             one for each legal choice of the names that are there, with any bytes
    disk.crash_state(seed, …)         the one that a failed test has printed

Each is a new CrashDisk, on which the next process can be started, and die again. The disk itself stays as it is.

Where it dies: `CrashDisk(crash_after=n)` lets n operations happen and raises Crashed in the next one. An operation is
one change of one file or of names, or one sync: a make_directory() of three levels is three, an open() that makes
nothing is none. With `rng` a part of the operation where it dies may have happened: the first bytes of a write, a
rename or not. After that nothing can be changed any more: the code that died may still run its `finally`, but what it
does there is refused with Crashed again. Crashed is no Exception, so that no handler takes it for an error.

The loop around all this is crash_cases(), in cases.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, NoReturn

from logcore.errors import StorageError
from tests.disk.damage import (
    Event,
    Fate,
    FileDamage,
    NameChange,
    Order,
    damage_file,
    damage_names,
    every_choice,
    made_sure,
    replay,
)
from tests.disk.memory import MemoryDisk, MemoryFile, MemoryMapping
from tests.disk.volume import DirectoryNode, FileNode, Node, Slot, Volume

NAME_STATES_MAX = 4096  # of name_states(): twelve changes that have nothing to do with each other

# (files, names) of extreme_states().
EXTREMES: tuple[tuple[Fate, Literal["lost", "kept"]], ...] = (
    ("lost", "lost"),
    ("lost", "kept"),
    ("lengths", "kept"),
    ("kept", "lost"),
    ("kept", "kept"),
)


class Crashed(BaseException):
    """The process is dead, or the machine."""


class Operation(NamedTuple):
    """A change, or a sync, that was begun."""

    kind: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


class CrashFile(FileNode):
    """A file, and what of it is durable: `data` and `length` themselves, unless `durable` says otherwise."""

    __slots__ = ("created_ms", "durable", "events", "is_forgotten", "synced_ms")

    def __init__(self, number: int, now_ms: int) -> None:
        super().__init__(number, now_ms)
        self.created_ms = self.synced_ms = now_ms
        self.durable: tuple[bytes, int] | None = None  # before the first of the events
        self.events: list[Event] = []
        self.is_forgotten = False  # a failed sync has lost something: no sync makes `data` durable by itself

    def remember(self) -> None:
        """Keep what is durable, before the first change."""
        if self.durable is None:
            self.durable = bytes(self.data), self.length

    def synced(self) -> None:
        """All events are durable."""
        if self.is_forgotten and self.durable is not None:
            data = bytearray(self.durable[0])
            length = replay(data, self.durable[1], self.events)
            self.durable = bytes(data), length
        else:
            self.durable = None
        self.events.clear()
        self.synced_ms = self.modified_ms


class CrashDirectory(DirectoryNode):
    """A directory, and its durable names."""

    __slots__ = ("durable",)

    def __init__(self, number: int, now_ms: int) -> None:
        super().__init__(number, now_ms)
        self.durable: dict[str, Node] = {}


class CrashVolume(Volume):
    """A volume that counts and remembers what is done to it."""

    def __init__(
        self,
        clock: Callable[[], int],
        capacity_bytes: int | None,
        rng: random.Random | None = None,
        crash_after: int | None = None,
    ) -> None:
        self.rng = rng
        self.crash_after = crash_after
        self.operations: list[Operation] = []
        self.changes: list[NameChange] = []
        super().__init__(clock, capacity_bytes)

    def make_file(self) -> CrashFile:
        self.nodes_made += 1
        return CrashFile(self.nodes_made, self.clock())

    def make_directory(self) -> CrashDirectory:
        self.nodes_made += 1
        return CrashDirectory(self.nodes_made, self.clock())

    # ------------------------------------------------------------------------------------------------ what is done

    def _begin(self, kind: str, path: str) -> bool:
        """Count an operation; True if this is the one to die in."""
        if self.is_dead:
            raise Crashed(f"{kind} {path}, after the crash")
        self.is_dead = len(self.operations) == self.crash_after
        self.operations.append(Operation(kind, path))
        return self.is_dead

    def _die(self) -> NoReturn:
        raise Crashed(f"in operation {len(self.operations)}: {self.operations[-1]}")

    def _happens(self) -> bool:
        return self.rng is not None and self.rng.random() < 0.5

    def write(self, node: FileNode, position: int, data: bytes, path: str) -> None:
        if self._begin("write", path):
            part = data[: int(self.rng.random() * (len(data) + 1))] if self.rng is not None else b""
            with suppress(StorageError):
                if part:
                    super().write(node, position, part, path)
            self._die()
        super().write(node, position, data, path)

    def put(self, node: FileNode, position: int, data: bytes, path: str) -> None:
        assert isinstance(node, CrashFile)
        node.remember()
        node.events.append((position, data))
        super().put(node, position, data, path)

    def set_length(self, node: FileNode, length: int, path: str) -> None:
        assert isinstance(node, CrashFile)
        is_last = self._begin("set length", path)
        if not is_last or self._happens():
            node.remember()
            super().set_length(node, length, path)
            node.events.append((length, None))
        if is_last:
            self._die()

    def change(self, kind: str, path: str, *slots: Slot) -> None:
        is_last = self._begin(kind, path)
        if not is_last or self._happens():
            self.changes.append(NameChange(kind, path, slots))
            super().change(kind, path, *slots)
        if is_last:
            self._die()

    def forget_if_unused(self, node: Node) -> None:
        if isinstance(node, FileNode) and node.links == 0 and node.opens == 0:
            self.used_bytes -= len(node.data)  # but it stays: the machine may die, and its name come back

    def set_modified(self, node: Node, modified_ms: int, path: str) -> None:
        is_last = self._begin("set time of", path)
        if not is_last or self._happens():
            super().set_modified(node, modified_ms, path)
        if is_last:
            self._die()

    def sync(self, node: FileNode, path: str) -> None:
        assert isinstance(node, CrashFile)
        if self._begin("sync", path):
            self._die()
        node.synced()

    def sync_directory(self, node: DirectoryNode, path: str) -> None:
        if self._begin("sync directory", path):
            self._die()
        sure = made_sure(self.changes, node)
        for change in self.changes:
            if change in sure:
                _apply(change.slots)
        self.changes = [change for change in self.changes if change not in sure]

    # ------------------------------------------------------------------------------------------------ what is left

    def successor(self) -> CrashVolume:
        """An empty volume that goes on where this one ends."""
        after = CrashVolume(self.clock, self.capacity_bytes)
        after.nodes_made = self.nodes_made
        return after

    def copied(self) -> CrashVolume:
        """The same once more, with nobody who has anything open."""
        after = self.successor()
        copies: dict[Node, Node] = {}

        def copy_of(node: Node, into: Node | None = None) -> Node:
            if node in copies:
                return copies[node]
            if isinstance(node, CrashFile):
                file = copies[node] = CrashFile(node.number, node.created_ms)
                file.data, file.length = bytearray(node.data), node.length
                file.durable, file.events, file.is_forgotten = node.durable, node.events.copy(), node.is_forgotten
                file.synced_ms, file.modified_ms = node.synced_ms, node.modified_ms
                return file
            assert isinstance(node, CrashDirectory)
            directory = into if isinstance(into, CrashDirectory) else CrashDirectory(node.number, node.modified_ms)
            copies[node] = directory
            for name, entry in node.entries.items():
                after._link(directory, name, copy_of(entry))
            directory.durable = {name: copy_of(entry) for name, entry in node.durable.items()}
            return directory

        copy_of(self.root, after.root)
        for change in self.changes:
            slots = []
            for directory, name, entry in change.slots:
                copied = copy_of(directory)
                assert isinstance(copied, DirectoryNode)
                slots.append((copied, name, None if entry is None else copy_of(entry)))
            after.changes.append(NameChange(change.kind, change.path, tuple(slots), change.is_committed))
        return after

    def _link(self, directory: CrashDirectory, name: str, node: Node) -> None:
        """Give a node its name, in a volume that is being made."""
        directory.entries[name] = node
        node.links = 1
        if isinstance(node, DirectoryNode):
            node.parent = directory
        else:
            self.used_bytes += len(node.data)

    def crashed(
        self, rng: random.Random, chosen: Sequence[bool], fate: Fate | None, *, garbles: bool
    ) -> tuple[CrashVolume, list[tuple[str, FileDamage]]]:
        """What is left if those changes of names are there; and what became of the files."""
        entries: dict[DirectoryNode, dict[str, Node]] = {}
        for change, is_there in zip(self.changes, chosen, strict=True):
            if is_there:
                for directory, name, node in change.slots:
                    assert isinstance(directory, CrashDirectory)
                    names = entries.setdefault(directory, directory.durable.copy())
                    names.pop(name, None)
                    if node is not None:
                        names[name] = node
        after = self.successor()
        damaged: list[tuple[str, FileDamage]] = []

        def fill(directory: CrashDirectory, made: CrashDirectory, path: str) -> None:
            for name, node in entries.get(directory, directory.durable).items():
                if isinstance(node, CrashDirectory):
                    inside = CrashDirectory(node.number, node.modified_ms)
                    after._link(made, name, inside)
                    fill(node, inside, f"{path}{name}/")
                    continue
                assert isinstance(node, CrashFile)
                file = CrashFile(node.number, rng.choice((node.created_ms, node.synced_ms, node.modified_ms)))
                if node.durable is None:
                    file.data, file.length = bytearray(node.data), node.length
                else:
                    damage = damage_file(rng, *node.durable, node.events, fate, garbles=garbles)
                    file.data, file.length = damage.data, damage.length
                    damaged.append((path + name, damage))
                after._link(made, name, file)
            made.durable = made.entries.copy()

        assert isinstance(self.root, CrashDirectory)
        assert isinstance(after.root, CrashDirectory)
        fill(self.root, after.root, "/")
        return after, damaged

    def settle(self) -> None:
        """Make everything durable as it is."""
        for change in self.changes:
            _apply(change.slots)
        self.changes.clear()
        directories: list[Node] = [self.root]
        for node in directories:
            if isinstance(node, CrashDirectory):
                directories.extend(node.entries.values())
            elif isinstance(node, CrashFile):
                node.is_forgotten = False
                node.synced()


def _apply(slots: Sequence[Slot]) -> None:
    for directory, name, node in slots:
        assert isinstance(directory, CrashDirectory)
        directory.durable.pop(name, None)
        if node is not None:
            directory.durable[name] = node


@dataclass
class CrashState:
    """A disk as the death of the machine may have left it. `str` of it says what became of what."""

    disk: CrashDisk
    replay: str  # the call that makes it again
    changes: list[tuple[NameChange, bool]] = field(repr=False)
    files: list[tuple[str, FileDamage]] = field(repr=False)

    def __str__(self) -> str:
        lines = [self.replay]
        lines += [f"  {change}: {'kept' if is_there else 'lost'}" for change, is_there in self.changes]
        lines += [f"  {path}: {damage}" for path, damage in self.files]
        return "\n".join(lines)


class CrashDisk(MemoryDisk):
    """A MemoryDisk that can die. See the module."""

    volume: CrashVolume

    def __init__(
        self,
        *,
        clock: Callable[[], int] = lambda: 0,
        capacity_bytes: int | None = None,
        process: int = 1,
        rng: random.Random | None = None,
        crash_after: int | None = None,
    ) -> None:
        self.volume = CrashVolume(clock, capacity_bytes, rng, crash_after)
        self.process = process

    @property
    def operations(self) -> Sequence[Operation]:
        """What was begun, in order. The last one is where it died, if it did."""
        return self.volume.operations

    @property
    def is_dead(self) -> bool:
        """Whether it died."""
        return self.volume.is_dead

    def settle(self) -> None:
        """Make everything durable as it is: the state in which a test begins. No operation."""
        self.volume.settle()

    def forget_unsynced(self, opened: MemoryFile | MemoryMapping, rng: random.Random | None = None) -> None:
        """What a failed sync may do: what was written is still read, but no later sync makes it durable.

        None of it is; with `rng`, any part of it is. That is ext4's and xfs's way: pages that could not be written
        are clean afterwards.
        """
        node = opened._node
        assert isinstance(node, CrashFile)
        if node.durable is not None:
            if rng is not None:
                damage = damage_file(rng, *node.durable, node.events, None, garbles=False)
                node.durable = bytes(damage.data), damage.length
            node.events.clear()
            node.is_forgotten = True

    def _with_volume(self, volume: CrashVolume) -> CrashDisk:
        disk = CrashDisk(process=self.process)
        disk.volume = volume
        return disk

    def copy(self, *, rng: random.Random | None = None, crash_after: int | None = None) -> CrashDisk:
        """The same disk once more, with nobody who has anything open, as durable as it is, and its own count."""
        volume = self.volume.copied()
        volume.rng, volume.crash_after = rng, crash_after
        return self._with_volume(volume)

    def killed(self) -> CrashDisk:
        """What the next process finds if only this one dies."""
        return self.copy()

    def crash_state(
        self,
        seed: int | str,
        *,
        order: Order | None = None,
        files: Fate | None = None,
        names: Literal["lost", "kept"] | Sequence[bool] | None = None,
        garbles: bool = True,
    ) -> CrashState:
        """One disk that the death of the machine may leave. What is not said, the seed decides.

        order: see damage.py; files: what becomes of all of them; names: which changes of names are there;
        garbles: whether a piece of a write may be anything
        """
        rng = random.Random(seed)
        drawn_order: Order = "journal" if rng.random() < 0.5 else "names"
        drawn_fate: list[Fate | None] = ["lost", "kept", "lengths", *[None] * 7]
        fate = drawn_fate[int(rng.random() * len(drawn_fate))]
        chosen: Sequence[bool]
        if names is None or isinstance(names, str):
            chosen = damage_names(rng, self.volume.changes, order or drawn_order, names)
        else:
            chosen = names
        volume, damaged = self.volume.crashed(rng, chosen, files or fate, garbles=garbles)
        arguments = {"order": order, "files": files, "names": names}
        told = "".join(f", {name}={value!r}" for name, value in arguments.items() if value is not None)
        return CrashState(
            self._with_volume(volume),
            f"crash_state({seed!r}{told}{'' if garbles else ', garbles=False'})",
            list(zip(self.volume.changes, chosen, strict=True)),
            damaged,
        )

    def crash_states(
        self, rng: random.Random, count: int, *, order: Order | None = None, garbles: bool = True
    ) -> Iterator[CrashState]:
        """Disks that the death of the machine may leave, drawn."""
        for _ in range(count):
            yield self.crash_state(rng.getrandbits(48), order=order, garbles=garbles)

    def extreme_states(self, rng: random.Random) -> Iterator[CrashState]:
        """The disks at the edges, one for each of EXTREMES."""
        for files, names in EXTREMES:
            yield self.crash_state(rng.getrandbits(48), files=files, names=names)

    def name_states(
        self,
        rng: random.Random,
        *,
        order: Order = "names",
        files: Fate | None = None,
        states_max: int = NAME_STATES_MAX,
    ) -> Iterator[CrashState]:
        """A disk for each legal choice of the changes of names; of `states_max` first ones, if there are more."""
        for chosen in islice(every_choice(self.volume.changes, order), states_max):
            yield self.crash_state(rng.getrandbits(48), files=files, names=chosen)
