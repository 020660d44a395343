"""The option path: which log roots are read.

    /var/kafka-logs                          a root: a directory that holds directories of partitions
    /disk1/kafka,/disk2/kafka                several: the log.dirs of one broker, or of several
    ["/disk1/kafka", "/disk2/kafka"]         the same as JSON, for names that have commas
    /disk*/kafka                             a glob
    file:///var/kafka-logs                   as Spark writes paths

What is there under its literal name is taken for it, commas and asterisks included.
"""

import glob
import json
import os
from urllib.parse import unquote, urlsplit

from logcore.errors import StorageError, UsageError
from logcore.log.disk import Disk
from logcore.log.names import LOG, parse_directory
from logcore.log.root import list_partitions

from .errors import option_error

_MAGIC = "*?["


def find_roots(disk: Disk, paths: tuple[str, ...]) -> list[str]:
    """The directories that `paths` mean, absolute, in the order they are given, each once."""
    found: dict[str, str] = {}
    for text in paths:
        for path in _expanded(disk, text):
            found.setdefault(os.path.realpath(path), os.path.abspath(path))
    for root in found.values():
        _check_no_partition(disk, root)
    return list(found.values())


def _expanded(disk: Disk, text: str) -> list[str]:
    literal = _local(text.strip())
    if _is_directory(disk, literal):
        return [literal]
    roots = []
    for part in _parts(text.strip()):
        path = _local(part)
        if _is_directory(disk, path):
            roots.append(path)
            continue
        matches = sorted(one for one in glob.glob(path) if _is_directory(disk, one)) if _has_magic(path) else []
        if not matches:
            why = "matches no directory" if _has_magic(path) else _why_not(disk, path)
            raise option_error("path", f"{path}, which {why}", "a log root")
        roots += matches
    return roots


def _parts(text: str) -> list[str]:
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, list) and found and all(isinstance(one, str) and one.strip() for one in found):
            return [one.strip() for one in found]
        if '"' in text:
            raise option_error("path", text, 'a log root, or several, as ["/disk1/kafka", "/disk2/kafka"]')
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise option_error("path", text, "a log root")
    return parts


def _local(path: str) -> str:
    """A path, or a file: URI, as a path of this machine."""
    if path.startswith("file:"):
        return unquote(urlsplit(path).path)
    scheme, separator, _ = path.partition("://")
    if separator and scheme.isalnum():
        raise option_error("path", path, "a directory that this machine and all executors reach as a file system")
    return path


def _has_magic(path: str) -> bool:
    return any(character in path for character in _MAGIC)


def _is_directory(disk: Disk, path: str) -> bool:
    return _why_not(disk, path) is None


def _why_not(disk: Disk, path: str) -> str | None:
    """Why a path leads to no directory; None if it does. A list of several may be too long for a name: no error."""
    try:
        status = disk.status(path)
    except StorageError as error:
        return error.strerror or "cannot be looked at"
    if status is None:
        return "is not there"
    return None if status.is_directory else "is a file"


def _check_no_partition(disk: Disk, root: str) -> None:
    """Raise if somebody gave the directory of a partition, which is in a root and is none."""
    try:
        parse_directory(os.path.basename(root))
    except UsageError:
        return
    if not list_partitions(disk, root) and any(name.endswith(LOG) for name in disk.list(root)):
        raise option_error(
            "path", f"{root}, the directory of a partition", f"the log root it lies in, {os.path.dirname(root)}"
        )
