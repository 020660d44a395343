"""Whether a path is what a caller takes it for: a partition's directory, or the log root around such ones."""

import errno
import os
from os.path import basename, dirname

from logcore.errors import StorageError, UsageError, UsageTypeError
from logcore.log.disk import SYSTEM_DISK, Disk
from logcore.log.names import LOG, TopicPartition, parse_directory, parse_file_name
from logcore.log.root import list_partitions

_SHOWN = 3  # partitions of a root that are named


def absolute(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """`path` from the root of the file system: a change of the working directory does not move it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageTypeError("path", got=type(path).__name__, wanted="a str, or an os.PathLike")
    text = os.fsdecode(path)
    try:
        is_possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise UsageError("path", got=ascii(text)[:300], wanted="one that a file can have")
    return os.path.abspath(text)


def partition_of(directory: str, disk: Disk = SYSTEM_DISK) -> TopicPartition:
    """The partition whose directory this is, or is to be. UsageError if its name is no such, or not the one it has.

    Kafka takes "orders-00" for partition 0 too, and writes "orders-0": opened by the other name it would be one log
    under two.
    """
    name = basename(directory)
    try:
        partition, kind = parse_directory(name)
    except UsageError:
        _check_no_root(directory, disk)
        raise
    if kind:
        raise UsageError("partition directory", got=repr(name), wanted=f"one that is not {kind}")
    if name != str(partition):
        raise UsageError("partition directory", got=repr(name), wanted=f"{str(partition)!r}, as its number is written")
    return partition


def _check_no_root(directory: str, disk: Disk) -> None:
    status = disk.status(directory)
    if status is None or not status.is_directory:
        return
    found = [str(partition) for partition in list_partitions(disk, directory)]
    if found:
        more = ", …" * (len(found) > _SHOWN)
        raise UsageError(
            "partition directory",
            where=directory,
            got="a log root",
            wanted=f"one of its partitions: {', '.join(found[:_SHOWN])}{more}",
        )


def check_root(directory: str, disk: Disk = SYSTEM_DISK) -> None:
    """Raise UsageError if there are segments in what is to be a log root, as in a partition's directory.

    StorageError if it is a file.
    """
    status = disk.status(directory)
    if status is None:
        return
    if not status.is_directory:
        raise StorageError("open", errno=errno.ENOTDIR, path=directory)
    for name in disk.list(directory):
        file = parse_file_name(name)
        if file is not None and file.kind == LOG:
            raise UsageError(
                "log root",
                where=directory,
                got=f"a partition's directory: it has {name}",
                wanted=f"the directory around it, {dirname(directory)}",
            )
