"""Checkpoints: offsets of partitions, and the leader epochs of one, as lines of text.

    0                       version
    2                       how many entries follow
    orders 0 4364           topic, partition, offset; in leader-epoch-checkpoint: epoch, start offset
    orders 1 4636

A log root has four files of offsets (recovery-point-, replication-, log-start- and cleaner-offset-checkpoint), a
partition has one leader-epoch-checkpoint. An empty file, and one with nothing but a version, has no entries; and so has
a file that is not there, because Kafka creates its files empty before it has anything to say.

What Kafka takes is taken: signs and leading zeros, any white space between fields, topics that no cluster would create,
and of two lines for one partition the later. What it does not take is a CorruptCheckpoint. Written are single blanks,
and partitions in order, so that equal maps are equal bytes; Kafka writes them in any order.

What the offsets mean, and which partitions are listed, is decided by whoever holds the logs.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logcore.errors import CorruptCheckpoint, CorruptionReason, UsageError

from .disk import Disk
from .names import TopicPartition
from .text_files import (
    INT_MAX,
    LONG_MAX,
    check_integer,
    fields_of,
    integer_of,
    lines_of,
    malformed,
    read_bytes,
    replace_file,
    shown,
    text_of,
)

VERSION = 0

OFFSETS_BYTES_MAX = 1 << 26  # over 200,000 partitions with the longest names there are
EPOCHS_BYTES_MAX = 1 << 24  # half a million epochs

_WHITE_SPACE = re.compile(r"\s+", re.ASCII)


class EpochEntry(NamedTuple):
    """The offset of the first record that the leader of an epoch appended, or would have."""

    epoch: int
    start_offset: int


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in the bytes of an offset checkpoint; `path` is for the error.

    >>> parse_offsets(b"0\\n1\\norders 3 170\\n", "recovery-point-offset-checkpoint")
    {TopicPartition(topic='orders', partition=3): 170}
    """
    offsets = {}
    for number, line in _entry_lines(data, path):
        fields = fields_of(_WHITE_SPACE, line)
        if len(fields) != 3:
            raise malformed(f"line {number}", line, "topic, partition and offset", path)
        partition = integer_of(fields[1], INT_MAX)
        if partition is None:
            raise malformed(f"partition in line {number}", fields[1], "an int of 32 bits", path)
        offset = integer_of(fields[2], LONG_MAX)
        if offset is None:
            raise malformed(f"offset in line {number}", fields[2], "an int of 64 bits", path)
        offsets[TopicPartition(fields[0], partition)] = offset
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of an offset checkpoint, by topic and partition."""
    lines = []
    for (topic, partition), offset in sorted(offsets.items()):
        if _WHITE_SPACE.search(topic):
            raise UsageError("topic", where="offset checkpoint", got=shown(topic), wanted="no white space")
        check_integer("partition", partition, -INT_MAX - 1, INT_MAX)
        check_integer("offset", offset, -LONG_MAX - 1, LONG_MAX)
        lines.append(f"{topic} {partition} {offset}")
    return _formatted(lines)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets in the file `path`; none if there is no file."""
    data = read_bytes(disk, path, OFFSETS_BYTES_MAX)
    return {} if data is None else parse_offsets(data, path)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Put these offsets in place of the file `path`, for good."""
    replace_file(disk, path, format_offsets(offsets))


def parse_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """The entries in the bytes of a leader-epoch-checkpoint, in the order in which they stand there.

    An order that cannot be is no damage here: LeaderEpochCache lets later entries win, as Kafka's does.

    >>> parse_epochs(b"0\\n2\\n0 40\\n2 160\\n", "leader-epoch-checkpoint")
    [EpochEntry(epoch=0, start_offset=40), EpochEntry(epoch=2, start_offset=160)]
    """
    entries = []
    for number, line in _entry_lines(data, path):
        fields = fields_of(_WHITE_SPACE, line)
        if len(fields) != 2:
            raise malformed(f"line {number}", line, "epoch and start offset", path)
        epoch = integer_of(fields[0], INT_MAX)
        if epoch is None or epoch < 0:
            raise malformed(f"epoch in line {number}", fields[0], "a number of 31 bits", path)
        start_offset = integer_of(fields[1], LONG_MAX)
        if start_offset is None or start_offset < 0:
            raise malformed(f"start offset in line {number}", fields[1], "a number of 63 bits", path)
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The bytes of a leader-epoch-checkpoint."""
    return _formatted(
        [
            f"{check_integer('epoch', epoch, 0, INT_MAX)} {check_integer('start offset', start_offset, 0, LONG_MAX)}"
            for epoch, start_offset in entries
        ]
    )


def read_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    """The entries in the file `path`; none if there is no file."""
    data = read_bytes(disk, path, EPOCHS_BYTES_MAX)
    return [] if data is None else parse_epochs(data, path)


def write_epochs(disk: Disk, path: str, entries: Iterable[EpochEntry]) -> None:
    """Put these entries in place of the file `path`, for good."""
    replace_file(disk, path, format_epochs(entries))


def _entry_lines(data: bytes, path: str) -> Iterable[tuple[int, str]]:
    """The lines of the entries with their numbers, after version and count have been found right."""
    lines = lines_of(text_of(data, path))
    if not lines:
        return ()
    version = integer_of(lines[0], INT_MAX)
    if version is None:
        raise malformed("version in line 1", lines[0], str(VERSION), path)
    if version != VERSION:
        raise CorruptCheckpoint(
            "version in line 1", reason=CorruptionReason.VERSION, got=version, wanted=VERSION, path=path
        )
    if len(lines) == 1:
        return ()
    count = integer_of(lines[1], INT_MAX)
    if count is None:
        raise malformed("number of entries in line 2", lines[1], str(len(lines) - 2), path)
    if count != len(lines) - 2:
        raise CorruptCheckpoint(
            "number of entries in line 2",
            reason=CorruptionReason.ENTRY_COUNT,
            got=count,
            wanted=f"{len(lines) - 2}, which follow",
            path=path,
        )
    return enumerate(lines[2:], 3)


def _formatted(lines: list[str]) -> bytes:
    try:
        return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError("topic", got=shown(error.object[error.start : error.end]), wanted="text") from None
