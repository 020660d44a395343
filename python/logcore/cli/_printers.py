"""What `dump` found, as text for people or as JSON lines for programs.

Text may come from anyone's records and ends up on terminals: nothing but printable characters leaves this module
unescaped. JSON is ASCII, one object a line, and loses no byte: see `json_bytes`.
"""

import base64
import functools
import json
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from logcore import Batch, ControlRecord, CorruptBatch, Record
from logcore.cli._reader import Partial, Skipped, Source, Zeros
from logcore.cli.command import tell

TEXT_BYTES_MAX = 200  # of a key, value or header, before it is cut in text

_EPOCH = datetime(1970, 1, 1)
_TIMESTAMP_MAX = 253402300799999  # the last millisecond of the year 9999
_TO_ESCAPE = re.compile(r'["\\]|[^ -~]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def text_bytes(data: bytes | None, bytes_max: int | None = None) -> str:
    r"""Bytes as one readable line: printable UTF-8 as it is, everything else escaped, null for None.

    An escape \xNN is a byte, \uNNNN a character that is not printable. At most `bytes_max` bytes are shown.

    >>> print(text_bytes(b'caf\xc3\xa9 "\xff"\n'), text_bytes(None), text_bytes(b"0123456789", 4))
    "café \"\xff\"\n" null "0123"...(10 bytes)
    """
    if data is None:
        return "null"
    shown = data
    if bytes_max is not None and len(data) > bytes_max:
        end = bytes_max
        while end > max(0, bytes_max - 3) and data[end] & 0xC0 == 0x80:  # not in the middle of a character
            end -= 1
        shown = data[:end]
    text = shown.decode("utf-8", "surrogateescape")
    if text.isprintable():
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    else:
        text = _TO_ESCAPE.sub(_escape, text)
    return f'"{text}"' if shown is data else f'"{text}"...({len(data)} bytes)'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def text_name(name: str, bytes_max: int | None = None) -> str:
    """A header's or a file's name, which may have surrogate escapes in it, as text_bytes."""
    return text_bytes(name.encode("utf-8", "surrogateescape"), bytes_max)


def text_time(timestamp: int | None) -> str:
    """A timestamp in UTC, or the number where that is no date.

    >>> text_time(1700000000123), text_time(-1), text_time(None)
    ('2023-11-14T22:13:20.123Z', '-1', 'none')
    """
    if timestamp is None:
        return "none"
    if not 0 <= timestamp <= _TIMESTAMP_MAX:
        return str(timestamp)
    seconds, milliseconds = divmod(timestamp, 1000)
    return f"{_text_seconds(seconds)}.{milliseconds:03d}Z"


@functools.lru_cache(maxsize=256)  # neighbours share their second
def _text_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def json_bytes(data: bytes | None) -> object:
    """Bytes as JSON, without loss: a string if they are UTF-8, else {"base64": …}; null for None.

    >>> json_bytes(b"text"), json_bytes(b"\\xff\\xfe"), json_bytes(None)
    ('text', {'base64': '//4='}, None)
    """
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_name(name: str) -> object:
    """A header's or a file's name, which may have surrogate escapes in it, as json_bytes."""
    return json_bytes(name.encode("utf-8", "surrogateescape"))


def batch_fields(batch: Batch) -> tuple[dict[str, object], CorruptBatch | None]:
    """Every header field of `batch`, and the damage that was met on the way.

    Only one field can meet any: the base offset of a compressed set of magic 0 or 1 lies inside it.
    """
    base_offset, error = None, None
    try:
        base_offset = batch.base_offset
    except CorruptBatch as damage:
        error = damage
    fields: dict[str, object] = {
        "position": batch.position,
        "size_in_bytes": batch.size_in_bytes,
        "base_offset": base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "magic": batch.magic,
        "compression": batch.compression,
        "crc": batch.crc,
        "attributes": batch.attributes,
        "timestamp_type": batch.timestamp_type,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
    }
    return fields, error


class Printer(Protocol):
    """One method for each thing there is to tell."""

    def file(self, source: Source) -> None:
        """What is read."""

    def batch(self, fields: dict[str, object]) -> None:
        """A batch's header, as batch_fields() gives it."""

    def record(self, record: Record, control: ControlRecord | None) -> None:
        """A record of the batch before; `control`: what it means, in a control batch."""

    def damage(self, error: CorruptBatch) -> None:
        """Damage, which is told on stderr in any case."""

    def end(self, event: Skipped | Partial | Zeros) -> None:
        """Bytes that are no batch, and no damage either."""


class TextPrinter:
    """For people. Batches and records on stdout, everything else on stderr."""

    def __init__(self, path: str, *, is_full: bool, before_tell: Callable[[], None]) -> None:
        self._path = path
        self._bytes_max = None if is_full else TEXT_BYTES_MAX
        self._before_tell = before_tell

    def file(self, source: Source) -> None:
        """What is read."""
        line = f"file {text_name(source.path)}"
        if source.size_in_bytes is not None:
            line += f" size_in_bytes={source.size_in_bytes}"
        if source.base_offset is not None:
            line += f" base_offset={source.base_offset}"
        sys.stdout.write(line + "\n")

    def batch(self, fields: dict[str, object]) -> None:
        """Three lines: the batch, its times, its producer."""
        flags = ",".join(flag for flag in ("transactional", "control") if fields[f"is_{flag}"]) or "none"
        shown = {name: "unknown" if value is None else str(value) for name, value in fields.items()}
        for name in ("base_timestamp", "max_timestamp", "delete_horizon_ms"):
            value = fields[name]
            shown[name] = text_time(value if isinstance(value, int) else None)
        shown["crc"] = f"0x{fields['crc']:08x}"
        shown["attributes"] = f"0x{fields['attributes']:02x}"
        sys.stdout.write(
            "batch position={position} size_in_bytes={size_in_bytes} base_offset={base_offset}"
            " last_offset={last_offset} count={count} magic={magic} compression={compression}\n"
            "  timestamp_type={timestamp_type} base_timestamp={base_timestamp} max_timestamp={max_timestamp}"
            " delete_horizon={delete_horizon_ms}\n"
            "  producer_id={producer_id} producer_epoch={producer_epoch} base_sequence={base_sequence}"
            " last_sequence={last_sequence} leader_epoch={leader_epoch} crc={crc} attributes={attributes}"
            " flags={flags}\n".format(flags=flags, **shown)
        )

    def record(self, record: Record, control: ControlRecord | None) -> None:
        """One line."""
        limit = self._bytes_max
        line = f"  record offset={record.offset} timestamp={text_time(record.timestamp)}"
        if control is not None:
            line += f" control={control.type} type_id={control.type_id} version={control.version}"
            if control.coordinator_epoch is not None:
                line += f" coordinator_epoch={control.coordinator_epoch}"
        line += f" key={text_bytes(record.key, limit)} value={text_bytes(record.value, limit)}"
        if record.headers:
            pairs = (f"{text_name(name, limit)}={text_bytes(value, limit)}" for name, value in record.headers)
            line += f" headers=[{', '.join(pairs)}]"
        sys.stdout.write(line + "\n")

    def damage(self, error: CorruptBatch) -> None:
        """One line on stderr."""
        self._before_tell()
        tell(f"{type(error).__name__}: {error}")

    def end(self, event: Skipped | Partial | Zeros) -> None:
        """One line on stderr."""
        place = f"position {event.position} of {self._path}"
        if isinstance(event, Skipped):
            after = "no batch follows" if event.is_end else f"goes on at {event.position + event.size_in_bytes}"
            text = f"skipped {event.size_in_bytes} bytes at {place}: {after}"
        elif isinstance(event, Partial):
            whole = "" if event.batch_bytes is None else f" of its {event.batch_bytes}"
            text = f"partial batch at {place}, the end of the file: {event.size_in_bytes} bytes{whole}"
        else:
            text = f"only zeros from {place} on: {event.size_in_bytes} bytes, as in a file allocated ahead"
        self._before_tell()
        tell(f"note: {text}")


class JsonPrinter:
    """For programs: an object a line, told apart by its "type"."""

    def __init__(self, *, before_tell: Callable[[], None]) -> None:
        self._before_tell = before_tell
        self._encode = json.JSONEncoder(separators=(",", ":")).encode

    def _print(self, kind: str, fields: dict[str, object]) -> None:
        sys.stdout.write(self._encode({"type": kind, **fields}) + "\n")

    def file(self, source: Source) -> None:
        """{"type": "file", …}."""
        fields = {"size_in_bytes": source.size_in_bytes, "base_offset": source.base_offset}
        self._print("file", {"path": json_name(source.path), **fields})

    def batch(self, fields: dict[str, object]) -> None:
        """{"type": "batch", …}."""
        self._print("batch", fields)

    def record(self, record: Record, control: ControlRecord | None) -> None:
        """{"type": "record", …}, with "control" in a control batch."""
        fields: dict[str, object] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": [[json_name(name), json_bytes(value)] for name, value in record.headers],
        }
        if control is not None:
            names = ("type", "type_id", "version", "coordinator_epoch")
            fields["control"] = {name: getattr(control, name) for name in names}
        self._print("record", fields)

    def damage(self, error: CorruptBatch) -> None:
        """{"type": "damage", …}; and a line on stderr, which a pipe does not swallow."""
        self._print(
            "damage",
            {
                "position": error.position,
                "offset": error.offset,
                "record_index": error.record_index,
                "at": error.at,
                "reason": error.reason.value,
                "what": error.what,
                "got": error.got,
                "wanted": error.wanted,
                "kafka_error": error.kafka_error.name,
            },
        )
        self._before_tell()
        tell(f"{type(error).__name__}: {error}")

    def end(self, event: Skipped | Partial | Zeros) -> None:
        """{"type": "skipped" | "partial" | "zeros", …}."""
        fields: dict[str, object] = {"position": event.position, "size_in_bytes": event.size_in_bytes}
        if isinstance(event, Partial):
            fields["batch_bytes"] = event.batch_bytes
        self._print(type(event).__name__.lower(), fields)
