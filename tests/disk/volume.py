"""A file system in memory: nodes, and the few changes that every call of a disk comes down to.

    FileNode        bytes, a length, the mappings that show them
    DirectoryNode   names -> nodes

    write           put bytes into a file, which may grow by it
    set_length      cut a file, or let it be longer
    change          let names mean other nodes: one name to create or remove, two to rename; all at once
    set_modified    set the time of a node
    sync, sync_directory

A disk that is to count, record or refuse changes overrides these (crash.py) and needs to know nothing else.

A file's zeros at the end take no memory: `data` is its front, up to the last byte that was ever written, and `length`
is how long it is. So 10 MiB for an index and 512 MiB for a segment cost nothing until they are written to, and count
nothing against `capacity_bytes`, as a sparse file does not on a real disk.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable

from logcore.errors import InvariantError, StorageError

DIRECTORY_BYTES = 4096  # what a small directory says of its size


POISON = 0xA5  # what a view shows of bytes that its file no longer has, where the real one ends the process


class LentBytes(bytearray):
    """Bytes that others look at in place: what view() of a mapping in memory gives.

    A copy of what the file has, which is kept up to date as long as somebody holds it.

    is_current: the mapping shows its file by it; False once the mapping was resized and has another
    """

    is_current = True


class _Node:
    """What files and directories have in common."""

    __slots__ = ("links", "modified_ms", "number", "opens")

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number  # never given again
        self.modified_ms = now_ms
        self.links = 0  # names it has: 0 or 1
        self.opens = 0  # open files of it


class FileNode(_Node):
    """A file. len(data) <= length; behind `data` there are zeros."""

    __slots__ = ("data", "length", "lock_holder", "mappings")

    def __init__(self, number: int, now_ms: int) -> None:
        super().__init__(number, now_ms)
        self.data = bytearray()
        self.length = 0
        self.mappings: list[weakref.ref[LentBytes]] = []  # one that is forgotten is closed
        self.lock_holder: int | None = None

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer where the file ends."""
        end = min(position + size, self.length)
        found = bytes(self.data[position:end])
        return found if len(found) >= end - position else found + bytes(end - position - len(found))


class DirectoryNode(_Node):
    """A directory. The root is its own parent."""

    __slots__ = ("entries", "parent")

    length = DIRECTORY_BYTES

    def __init__(self, number: int, now_ms: int) -> None:
        super().__init__(number, now_ms)
        self.entries: dict[str, Node] = {}
        self.parent: DirectoryNode = self

    def is_within(self, other: Node | None) -> bool:
        """Whether it is `other`, or lies below it."""
        at = self
        while at is not other and at.parent is not at:
            at = at.parent
        return at is other


Node = FileNode | DirectoryNode

# A name of a directory, and what it is to mean: None for nothing.
Slot = tuple[DirectoryNode, str, Node | None]


class Volume:
    """A tree of nodes. `is_dead`: nothing can be changed any more, and closing is no change."""

    is_dead = False

    def __init__(self, clock: Callable[[], int], capacity_bytes: int | None = None) -> None:
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0  # of all files' `data`, also of those that are open and have no name any more
        self.nodes_made = 0
        self.root = self.make_directory()

    def make_file(self) -> FileNode:
        """A node that no name means yet."""
        self.nodes_made += 1
        return FileNode(self.nodes_made, self.clock())

    def make_directory(self) -> DirectoryNode:
        """A node that no name means yet."""
        self.nodes_made += 1
        return DirectoryNode(self.nodes_made, self.clock())

    def change(self, kind: str, path: str, *slots: Slot) -> None:
        """Let names mean other nodes, all at once. Who calls has checked that it may be."""
        gone = []
        for directory, name, node in slots:
            before = directory.entries.pop(name, None)
            if before is not None:
                before.links -= 1
                gone.append(before)
            if node is not None:
                node.links += 1
                directory.entries[name] = node
                if isinstance(node, DirectoryNode):
                    node.parent = directory
            directory.modified_ms = self.clock()
        for node in gone:
            self.forget_if_unused(node)

    def forget_if_unused(self, node: Node) -> None:
        """Give back the place of a file that has no name and that nobody has open."""
        if isinstance(node, FileNode) and node.links == 0 and node.opens == 0:
            self.used_bytes -= len(node.data)
            node.data = bytearray()
            node.length = 0

    def write(self, node: FileNode, position: int, data: bytes, path: str) -> None:
        """Put bytes into a file. A disk that fills up takes the first of them, and then refuses."""
        if self.capacity_bytes is not None:
            missing = max(position + len(data) - len(node.data), 0) - (self.capacity_bytes - self.used_bytes)
            if missing > 0:
                if len(data) > missing:
                    self.put(node, position, data[: len(data) - missing], path)
                raise StorageError("write", errno=errno.ENOSPC, path=path)
        self.put(node, position, data, path)

    def put(self, node: FileNode, position: int, data: bytes, path: str) -> None:
        """Put bytes into a file for which there is room."""
        front, before, end = node.data, len(node.data), position + len(data)
        if position > before:
            front.extend(bytes(position - before))
        front[position:end] = data
        self.used_bytes += len(front) - before
        node.length = max(node.length, end)
        node.modified_ms = self.clock()
        for mapping in node.mappings:
            shown = mapping()
            if shown is not None and position < len(shown):
                shown[position:end] = data[: len(shown) - position]

    def set_length(self, node: FileNode, length: int, path: str) -> None:
        """Cut a file, or let it be longer."""
        views = [shown for shown in (mapping() for mapping in node.mappings) if shown is not None]
        for shown in views:
            if shown.is_current and length < len(shown):
                raise InvariantError(f"{path}: cut to {length} bytes under a mapping of {len(shown)}: SIGBUS")
        for shown in views:
            if length < len(shown):
                shown[length:] = bytes([POISON]) * (len(shown) - length)
            grown = min(length, len(shown)) - node.length
            if grown > 0:
                shown[node.length : node.length + grown] = bytes(grown)
        self.used_bytes -= max(len(node.data) - length, 0)
        del node.data[length:]
        node.length = length
        node.modified_ms = self.clock()

    def set_modified(self, node: Node, modified_ms: int, path: str) -> None:
        """Set the time of the last modification."""
        node.modified_ms = modified_ms

    def sync(self, node: FileNode, path: str) -> None:
        """Make a file durable: here, everything always is."""

    def sync_directory(self, node: DirectoryNode, path: str) -> None:
        """Make a directory's entries durable: here, they always are."""
