"""`logcore dump` for everything that is not a file of batches: told by its name, parsed by the engine's own parsers.

    .index .timeindex .txnindex .snapshot       entries, with the names that Kafka's DumpLogSegments gives them
    leader-epoch-checkpoint, *-offset-checkpoint, partition.metadata, meta.properties, .kafka_cleanshutdown
    a partition's directory, a log root         a summary

A suffix .deleted, .cleaned or .swap changes nothing: such a file is read as what it was or will be.
"""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

from logcore import CorruptionError, CorruptionReason, Log, StorageError, UsageError, open_log
from logcore.cli._logs import print_json
from logcore.cli._printers import json_name, text_name, text_time
from logcore.cli.command import EXIT_DAMAGE, one_line, tell
from logcore.errors import CorruptIndex
from logcore.log import snapshot
from logcore.log.checkpoints import EPOCHS_BYTES_MAX, OFFSETS_BYTES_MAX, parse_epochs, parse_offsets
from logcore.log.disk import SYSTEM_DISK, read_file
from logcore.log.names import (
    CLEAN_SHUTDOWN,
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    META_PROPERTIES,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    OffsetFile,
    parse_directory,
    parse_file_name,
)
from logcore.log.partition_metadata import parse_partition_metadata
from logcore.log.root_files import parse_clean_shutdown, parse_meta_properties
from logcore.log.snapshot_files import SNAPSHOT_BYTES_MAX
from logcore.log.text_files import SMALL_FILE_BYTES_MAX
from logcore.log.txnindex import TransactionIndex
from logcore.log.verify import OFFSET_CHECKPOINTS, is_partition, is_root

_TIMES = {"timestamp"}  # fields that people want to read as a time
_READ_ENTRIES = 1 << 14

Fields = dict[str, object]


def is_other_file(path: str) -> bool:
    """Whether `path` is a directory, or a file that is not one of batches: by its name alone."""
    return os.path.isdir(path) or _parser_of(path) is not None


def dump_other(path: str, *, is_json: bool, limit: int | None) -> int:
    """Print it; 1 if it is damaged, else 0."""
    if os.path.isdir(path):
        return _Directory(path, is_json).run()
    parser = _parser_of(path)
    assert parser is not None
    printer = _Printer(is_json)
    status = SYSTEM_DISK.status(path)
    if status is None:
        raise StorageError("open", errno=errno.ENOENT, path=path)
    printer.show("file", {"path": path, "size_in_bytes": status.size})
    try:
        for count, fields in enumerate(parser(path)):
            if count == limit:
                break
            printer.show(str(fields.pop("type", "entry")), fields)
    except CorruptionError as error:
        printer.damage(error)
        return EXIT_DAMAGE
    return 0


class _Printer:
    """For people or for programs."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json

    def show(self, kind: str, fields: Fields) -> None:
        """A line. A "path" is told first and without its name."""
        if self._is_json:
            print_json({"type": kind, **{name: _json(name, value) for name, value in fields.items()}})
            return
        parts = [kind]
        for name, value in fields.items():
            if name in ("path", "name"):
                parts.append(text_name(str(value)))
            elif name in _TIMES and isinstance(value, int):
                parts.append(f"{name}={text_time(value)}")
            else:
                parts.append(f"{name}={one_line('none' if value is None else _word(value))}")
        print(" ".join(parts))

    def damage(self, error: CorruptionError) -> None:
        """In JSON too, and on stderr in any case."""
        if self._is_json:
            names = ("position", "offset", "what", "got", "wanted")
            fields: Fields = {"path": error.path, **{name: getattr(error, name) for name in names}}
            self.show("damage", {**fields, "reason": error.reason.value})
        tell(f"{type(error).__name__}: {error}")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(name: str, value: object) -> object:
    return json_name(value) if name in ("path", "name", "topic") and isinstance(value, str) else value


# ---------------------------------------------------------------------------------------------------------------- files


def _parser_of(path: str) -> Callable[[str], Iterator[Fields]] | None:
    name = os.path.basename(path)
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    if name in OFFSET_CHECKPOINTS:
        return _offsets
    if name in _BY_NAME:
        return _BY_NAME[name]
    file = parse_file_name(name)
    return None if file is None else _BY_KIND.get(file.kind)


def _file_of(path: str) -> OffsetFile:
    file = parse_file_name(os.path.basename(path))
    assert file is not None
    return file


def _bytes(path: str, bytes_max: int) -> bytes:
    data = read_file(SYSTEM_DISK, path, bytes_max)
    if data is None:
        raise StorageError("open", errno=errno.ENOENT, path=path)
    return data


def _entries(path: str, entry_bytes: int) -> Iterator[bytes]:
    """The entries of an index, up to the zeros that a file has which is written to."""
    file = SYSTEM_DISK.open(path)
    try:
        position, size = 0, file.size
        zeros = 0
        while position < size:
            data = file.read(position, min(_READ_ENTRIES * entry_bytes, size - position))
            for at in range(0, len(data), entry_bytes):
                entry = data[at : at + entry_bytes]
                if len(entry) < entry_bytes:
                    raise CorruptIndex(
                        "size", reason=CorruptionReason.ENTRY_SIZE, got=size, wanted=f"a multiple of {entry_bytes}",
                        path=path, position=position + at,
                    )  # fmt: skip
                if not any(entry) and position + at:
                    zeros += 1
                    continue
                if zeros:
                    raise CorruptIndex(
                        "entry", reason=CorruptionReason.ENTRY_ORDER, got=f"{zeros} entries of zeros before it",
                        wanted="zeros only behind the last one", path=path, position=position + at,
                    )  # fmt: skip
                yield entry
            position += max(len(data), 1)
    finally:
        file.close()
    if zeros:
        tell(f"note: {zeros} entries of zeros at the end of {path}, as in an index that is written to")


def _offset_index(path: str) -> Iterator[Fields]:
    base = _file_of(path).offset
    for entry in _entries(path, 8):
        relative, position = (int.from_bytes(part, "big", signed=True) for part in (entry[:4], entry[4:]))
        yield {"offset": base + relative, "position": position}


def _time_index(path: str) -> Iterator[Fields]:
    base = _file_of(path).offset
    for entry in _entries(path, 12):
        timestamp, relative = (int.from_bytes(part, "big", signed=True) for part in (entry[:8], entry[8:]))
        yield {"timestamp": timestamp, "offset": base + relative}


def _transaction_index(path: str) -> Iterator[Fields]:
    file = _file_of(path)
    directory = os.path.dirname(path) or "."
    index = TransactionIndex(SYSTEM_DISK, directory, file.offset, suffix=file.suffix, is_writable=False)
    try:
        for entry in index:
            yield {"version": 0, **entry._asdict()}
    finally:
        index.close()


def _snapshot(path: str) -> Iterator[Fields]:
    for entry in snapshot.parse(_bytes(path, SNAPSHOT_BYTES_MAX), path):
        yield entry._asdict()


def _epochs(path: str) -> Iterator[Fields]:
    for entry in parse_epochs(_bytes(path, EPOCHS_BYTES_MAX), path):
        yield entry._asdict()


def _offsets(path: str) -> Iterator[Fields]:
    for partition, offset in parse_offsets(_bytes(path, OFFSETS_BYTES_MAX), path).items():
        yield {"topic": partition.topic, "partition": partition.partition, "offset": offset}


def _partition_metadata(path: str) -> Iterator[Fields]:
    yield {"topic_id": parse_partition_metadata(_bytes(path, SMALL_FILE_BYTES_MAX), path)}


def _meta_properties(path: str) -> Iterator[Fields]:
    yield parse_meta_properties(_bytes(path, SMALL_FILE_BYTES_MAX), path)._asdict()


def _clean_shutdown(path: str) -> Iterator[Fields]:
    yield {"broker_epoch": parse_clean_shutdown(_bytes(path, SMALL_FILE_BYTES_MAX), path)}


_BY_KIND: dict[str, Callable[[str], Iterator[Fields]]] = {
    INDEX: _offset_index,
    TIME_INDEX: _time_index,
    TXN_INDEX: _transaction_index,
    SNAPSHOT: _snapshot,
}
_BY_NAME: dict[str, Callable[[str], Iterator[Fields]]] = {
    EPOCH_CHECKPOINT: _epochs,
    PARTITION_METADATA: _partition_metadata,
    META_PROPERTIES: _meta_properties,
    CLEAN_SHUTDOWN: _clean_shutdown,
}


# ---------------------------------------------------------------------------------------------------------- directories


class _Directory:
    """A summary of a partition or of a log root. Batches are looked at only as far as the log's end needs it."""

    def __init__(self, path: str, is_json: bool) -> None:
        self._path = path
        self._directory = os.path.abspath(path)
        self._printer = _Printer(is_json)
        self._is_damaged = False

    def run(self) -> int:
        """Print it; 1 if a log cannot be read."""
        if is_partition(SYSTEM_DISK, self._directory):
            self._partition()
        elif is_root(SYSTEM_DISK, self._directory):
            self._root()
        else:
            wanted = "a partition's directory, such as orders-0, or a log root"
            raise UsageError("directory", where=self._path, got="no log", wanted=wanted)
        return EXIT_DAMAGE if self._is_damaged else 0

    def _opened(self, directory: str) -> Log | None:
        """The log, or None if there is none to open; damage is told."""
        try:
            if parse_directory(os.path.basename(directory))[1]:
                return None
            return open_log(directory, read_only=True)
        except CorruptionError as error:
            self._is_damaged = True
            self._printer.damage(error)
            return None

    def _facts(self, directory: str) -> Fields:
        log = self._opened(directory)
        if log is None:
            return {}
        with log:
            segments = log.segments
            return {
                "topic_id": log.topic_id,
                "log_start_offset": log.log_start_offset,
                "last_stable_offset": log.last_stable_offset,
                "log_end_offset": log.log_end_offset,
                "segments": len(segments),
                "size_in_bytes": sum(one.size_in_bytes for one in segments),
            }

    def _partition(self) -> None:
        self._printer.show("partition", {"path": self._path, **self._facts(self._directory)})
        for name in SYSTEM_DISK.list(self._directory):
            status = SYSTEM_DISK.status(f"{self._directory}/{name}")
            if status is not None and not status.is_directory:
                file = parse_file_name(name)
                kind = "segment" if file is not None and file.kind == LOG and not file.suffix else "file"
                fields: Fields = {"name": name, "size_in_bytes": status.size}
                if kind == "segment" and file is not None:
                    fields["base_offset"] = file.offset
                self._printer.show(kind, fields)

    def _root(self) -> None:
        names = SYSTEM_DISK.list(self._directory)
        partitions: list[tuple[Any, str]] = []
        others = []
        for name in names:
            status = SYSTEM_DISK.status(f"{self._directory}/{name}")
            try:
                found, kind = parse_directory(name)
                if status is not None and status.is_directory and not kind:
                    partitions.append((found, name))
                    continue
            except UsageError:
                pass
            if status is not None:
                others.append((name, status))
        self._printer.show(
            "root",
            {
                "path": self._path,
                "topics": len({found.topic for found, _ in partitions}),
                "partitions": len(partitions),
                "is_closed": CLEAN_SHUTDOWN in names,
            },
        )
        for _, name in sorted(partitions):
            self._printer.show("partition", {"name": name, **self._facts(f"{self._directory}/{name}")})
        for name, status in others:
            size: Fields = {} if status.is_directory else {"size_in_bytes": status.size}
            self._printer.show("directory" if status.is_directory else "file", {"name": name, **size})
