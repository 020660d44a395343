"""The two small files of a log root that are no checkpoints: .kafka_cleanshutdown and meta.properties.

**.kafka_cleanshutdown** says that all logs of the root were closed in order, and by which registration of the broker:

    {"version":0,"brokerEpoch":354}         no end of line

It is there, or not: that alone decides whether logs are recovered. It is taken away before the first log is opened, so
that a crash from then on is seen. The epoch in it is a second matter, believed only if all roots agree on it; where it
cannot be read, or nobody knew it, it is -1.

**meta.properties** says whose directory it is, in the syntax of java.util.Properties. Kafka's `storage format` writes
it, and logcore never does:

    #Wed Nov 18 05:57:38 UTC 2026
    node.id=1
    directory.id=yG6BgJkGPyrNBtmDhYFd2w
    version=1
    cluster.id=BeMU7GzZSzSGU12VFMhhAA
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logcore.errors import CorruptCheckpoint, CorruptionReason, UsageError

from .disk import Disk
from .names import CLEAN_SHUTDOWN, META_PROPERTIES
from .text_files import (
    INT_MAX,
    LONG_MAX,
    SMALL_FILE_BYTES_MAX,
    check_integer,
    integer_of,
    lines_of,
    malformed,
    read_bytes,
    replace_file,
)
from .uuids import Uuid, parse_uuid

UNKNOWN_BROKER_EPOCH = -1

CLEAN_SHUTDOWN_VERSION = 0

_BLANK = " \t\f"
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROLS = "".join(map(chr, range(33)))  # what Java's trim() takes away


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python writes and reads NaN and Infinity all the same


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


# ------------------------------------------------------------------------------------------------- .kafka_cleanshutdown


def parse_clean_shutdown(data: bytes, path: str) -> int:
    """The broker epoch in the bytes of a .kafka_cleanshutdown; `path` is for the error.

    As in Kafka, any version will do, and what is not known is ignored: other fields, and anything behind the object.
    Kafka also takes an epoch that is a string or a fraction; here that is damage, which costs no more than the epoch.

    >>> parse_clean_shutdown(b'{"version":0,"brokerEpoch":354,"more":[]}', ".kafka_cleanshutdown")
    354
    """
    try:
        # As Kafka decodes it: what is no UTF-8 becomes U+FFFD, which only a string may contain.
        content, _ = _JSON.raw_decode(data.decode("utf-8", "replace").lstrip(" \t\r\n"))
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(
            "content", reason=CorruptionReason.MALFORMED, got=str(error)[:80], wanted="a JSON object", path=path
        ) from None
    if not isinstance(content, dict):
        raise CorruptCheckpoint(
            "content", reason=CorruptionReason.MALFORMED, got=type(content).__name__, wanted="a JSON object", path=path
        )
    if content.get("version") is not None:
        _json_integer(content["version"], "version", INT_MAX, path)
    return _json_integer(content.get("brokerEpoch"), "brokerEpoch", LONG_MAX, path)


def format_clean_shutdown(broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> bytes:
    """The bytes of a .kafka_cleanshutdown."""
    check_integer("broker epoch", broker_epoch, -LONG_MAX - 1, LONG_MAX)
    return b'{"version":%d,"brokerEpoch":%d}' % (CLEAN_SHUTDOWN_VERSION, broker_epoch)


def take_clean_shutdown(disk: Disk, root: str) -> int | None:
    """Read the .kafka_cleanshutdown of a log root and take it away, for good. To be done before any log is opened.

    None if there is none: the logs have to be recovered. Otherwise the broker epoch in it, -1 if that cannot be read.
    """
    path = os.path.join(root, CLEAN_SHUTDOWN)
    broker_epoch = read_clean_shutdown(disk, root)
    if broker_epoch is None:
        return None
    disk.unlink(path)
    disk.sync_directory(root)  # otherwise it may be back after a crash, beside logs that were written to
    return broker_epoch


def read_clean_shutdown(disk: Disk, root: str) -> int | None:
    """What take_clean_shutdown() would return; nothing is changed."""
    path = os.path.join(root, CLEAN_SHUTDOWN)
    try:
        data = read_bytes(disk, path, SMALL_FILE_BYTES_MAX)
        return None if data is None else parse_clean_shutdown(data, path)
    except CorruptCheckpoint:
        return UNKNOWN_BROKER_EPOCH


def write_clean_shutdown(disk: Disk, root: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """Say that all logs of a root were closed in order, for good. To be done last."""
    replace_file(disk, os.path.join(root, CLEAN_SHUTDOWN), format_clean_shutdown(broker_epoch))


def common_broker_epoch(found: Iterable[int | None]) -> int:
    """The broker epoch to believe, given what take_clean_shutdown() returned for each root: -1 unless all agree.

    >>> common_broker_epoch([354, 354]), common_broker_epoch([354, 355]), common_broker_epoch([354, None])
    (354, -1, -1)
    """
    epochs = set(found)
    epoch = epochs.pop() if len(epochs) == 1 else None
    return UNKNOWN_BROKER_EPOCH if epoch is None else epoch


def _json_integer(value: object, name: str, limit: int, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        got: int | str = "nothing" if value is None else type(value).__name__
    elif -limit - 1 <= value <= limit:
        return value
    else:
        got = value
    wanted = f"an int of {(limit + 1).bit_length()} bits"
    raise CorruptCheckpoint(name, reason=CorruptionReason.MALFORMED, got=got, wanted=wanted, path=path)


# ------------------------------------------------------------------------------------------------------ meta.properties


class MetaProperties(NamedTuple):
    """Whose directory a log root is. Version 0, of clusters that were not formatted as KRaft's, promises no field."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """What the bytes of a meta.properties say; `path` is for the error.

    >>> parse_meta_properties(b"version=1\\ncluster.id = BeMU7GzZSzSGU12VFMhhAA\\nnode.id: 1", "meta.properties")
    MetaProperties(version=1, cluster_id='BeMU7GzZSzSGU12VFMhhAA', node_id=1, directory_id=None)
    """
    properties = parse_properties(data, path)
    version_text = properties.get("version", "0")
    version = integer_of(version_text.strip(_CONTROLS), INT_MAX)
    if version is None:
        raise malformed("version", version_text, "0 or 1", path)
    if version not in (0, 1):
        raise CorruptCheckpoint("version", reason=CorruptionReason.VERSION, got=version, wanted="0 or 1", path=path)
    node_id_name = "node.id" if version else "broker.id"
    node_id_text = properties.get(node_id_name)
    node_id = None if node_id_text is None else integer_of(node_id_text, INT_MAX)
    if node_id is None and (version or node_id_text is not None):
        raise malformed(node_id_name, node_id_text or "", "an int of 32 bits", path)
    cluster_id = properties.get("cluster.id")
    if cluster_id is None and version:
        raise malformed("cluster.id", "", "an id", path)
    directory_id_text = properties.get("directory.id")
    try:
        directory_id = None if directory_id_text is None else parse_uuid(directory_id_text)
    except UsageError as error:
        raise malformed("directory.id", directory_id_text or "", str(error.wanted), path) from None
    return MetaProperties(version, cluster_id, node_id, directory_id)


def read_meta_properties(disk: Disk, root: str) -> MetaProperties | None:
    """The meta.properties of a log root; None if there is none."""
    path = os.path.join(root, META_PROPERTIES)
    data = read_bytes(disk, path, SMALL_FILE_BYTES_MAX)
    return None if data is None else parse_meta_properties(data, path)


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """The pairs of a Java properties file, in Latin-1 with \\uXXXX for the rest. Of two with one key the later stays.

    >>> parse_properties(b"! comment\\na = 1\\nb: two \\\\\\n   lines\\nc\\\\=d \\\\u0041\\\\tB", "some.properties")
    {'a': '1', 'b': 'two lines', 'c=d': 'A\\tB'}
    """
    properties = {}
    for line in _logical_lines(data.decode("latin-1")):
        key, value = _PROPERTY.findall(line)[0]  # there is no line that it does not match
        properties[_unescaped(key, path)] = _unescaped(value, path)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without what begins them, joined where a backslash ends them; blank ones and comments are left out."""
    parts: list[str] = []
    for line in lines_of(text):
        line = line.lstrip(_BLANK)
        if not parts and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if is_continued else line
        if part:
            parts.append(part)
        if not is_continued:
            yield "".join(parts)
            parts.clear()
    if parts:
        yield "".join(parts)


def _unescaped(text: str, path: str) -> str:
    def character(found: "re.Match[str]") -> str:
        escape = found[1]
        if escape == "u":
            raise malformed("escape", text, "four hexadecimal digits behind \\u", path)
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)

    units = _ESCAPE.sub(character, text)
    try:
        # An escape is half a character where it has to be; halves that are not two make no text.
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise malformed("escape", text, "text", path) from None
