"""What the commands on logs share: settings, offsets and times on the command line, and records as JSON."""

import argparse
import base64
import binascii
import errno
import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from logcore import Log, LogcoreError, OffsetAndTimestamp, Record, StorageError, UsageError, open_log
from logcore.cli._printers import json_bytes, json_name
from logcore.cli._progress import Progress
from logcore.library.directories import partition_of
from logcore.log.checkpoints import read_offsets
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import LOG, RECOVERY_CHECKPOINT, file_name, parse_directory, parse_file_name

ISOLATIONS = ("read_uncommitted", "read_committed")
EARLIEST, LATEST = "earliest", "latest"

to_json = json.JSONEncoder(separators=(",", ":")).encode


def print_json(fields: dict[str, object]) -> None:
    """One object, one line, in ASCII."""
    sys.stdout.write(to_json(fields) + "\n")


def print_fields(head: str, fields: dict[str, object]) -> None:
    """The same for people: a word, and name=value."""
    sys.stdout.write(" ".join([head, *(f"{name}={value}" for name, value in fields.items())]) + "\n")


# ------------------------------------------------------------------------------------------------------------ arguments


def add_partition(
    parser: argparse.ArgumentParser, help: str = "a partition's directory, such as data/orders-0"
) -> None:
    """The directory."""
    parser.add_argument("directory", metavar="DIR", help=help)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """--set, and the clock of tests."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting_from,
        metavar="NAME=VALUE",
        help="a topic setting by Kafka's name, as segment.bytes=1048576; may be given again",
    )
    parser.add_argument("--now-ms", type=int, metavar="MS", help="take this for the present time, in ms since 1970")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Where to begin, and what to leave out."""
    add = parser.add_argument
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        dest="begin",
        type=offset_from,
        default=EARLIEST,
        metavar="OFFSET",
        help="begin at this offset, or at `earliest` (default) or `latest`",
    )
    begin.add_argument(
        "--from-time",
        type=time_from,
        metavar="TIME",
        help="begin at the first record that is not older: ISO 8601 (UTC unless told) or ms since 1970",
    )
    add("--count", type=_count, metavar="N", help="stop after N records")
    add(
        "--isolation",
        choices=ISOLATIONS,
        default=ISOLATIONS[0],
        metavar="LEVEL",
        help="read_committed leaves out aborted and open transactions (default: %(default)s)",
    )


def _count(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text) and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number from 1 on")


def setting_from(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted NAME=VALUE")
    return name, value


def offset_from(text: str) -> int | str:
    """An offset, earliest or latest."""
    if text in (EARLIEST, LATEST):
        return text
    if re.fullmatch("[0-9]{1,19}", text) and int(text) < 1 << 63:
        return int(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, wanted an offset, {EARLIEST} or {LATEST}")


def time_from(text: str) -> int:
    """Milliseconds since 1970 from a number or from ISO 8601.

    >>> time_from("1700000000123"), time_from("2023-11-14T22:13:20.123"), time_from("2023-11-14T23:13:20+01:00")
    (1700000000123, 1700000000123, 1700000000000)
    """
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    try:
        # Python before 3.11 does not know the Z.
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, wanted a time such as 2026-01-31T12:00:00, or ms since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


# ----------------------------------------------------------------------------------------------------------------- logs


def clock_of(args: argparse.Namespace) -> Callable[[], int]:
    """The system's, or the moment of --now-ms."""
    if args.now_ms is not None:
        return functools.partial(int, args.now_ms)
    return _system_clock


def _system_clock() -> int:
    return time.time_ns() // 1_000_000


def check_exists(path: str) -> str:
    """`path` from the root of the file system, if it is a directory."""
    directory = os.path.abspath(path)
    status = SYSTEM_DISK.status(directory)
    if status is None or not status.is_directory:
        raise StorageError("open", errno=errno.ENOENT if status is None else errno.ENOTDIR, path=path)
    return directory


def check_directory(path: str) -> str:
    """The same for a partition's directory: a command that is to find a log must not make one."""
    directory = check_exists(path)
    partition_of(directory)
    return directory


def open_to_write(path: str, config: Mapping[str, str], clock: Callable[[], int]) -> Log:
    """A log, under its root's lock. Recovery after a crash reads segments, and draws how far it has come."""
    progress = Progress(_bytes_to_recover(os.path.abspath(path)))
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress.update(done)

    try:
        return open_log(path, config=config, clock=clock, progress=advance)
    finally:
        progress.clear()


def _bytes_to_recover(directory: str) -> int | None:
    """About how much recovery reads: the segments from that of the recovery point on."""
    root, name = os.path.split(directory)
    try:
        point = read_offsets(SYSTEM_DISK, f"{root}/{RECOVERY_CHECKPOINT}").get(parse_directory(name)[0], 0)
        files = [file for file in map(parse_file_name, SYSTEM_DISK.list(directory)) if file and file.kind == LOG]
    except LogcoreError:
        return None  # There is no log yet. What else may be wrong, opening it says.
    bases = [file.offset for file in files if not file.suffix]
    first = max((base for base in bases if base < point), default=0)
    found = [SYSTEM_DISK.status(f"{directory}/{file_name(base, LOG)}") for base in bases if base >= first]
    return sum(status.size for status in found if status is not None)


def open_to_read(path: str) -> Log:
    """A log, beside whoever writes to it."""
    return open_log(check_directory(path), read_only=True)


def first_offset(log: Log, args: argparse.Namespace) -> int:
    """Where `--from` and `--from-time` say to begin."""
    if args.from_time is not None:
        found: OffsetAndTimestamp | None = log.offset_for_timestamp(args.from_time)
        return log.log_end_offset if found is None else found.offset
    if args.begin == EARLIEST:
        return log.log_start_offset
    if args.begin == LATEST:
        return log.log_end_offset
    offset: int = args.begin
    return offset


# -------------------------------------------------------------------------------------------------------------- records


def record_fields(record: Record) -> dict[str, object]:
    """A record as JSON, without loss."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[json_name(name), json_bytes(value)] for name, value in record.headers],
    }


def record_from(
    text: bytes, where: str
) -> tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]:
    """(key, value, timestamp, headers) of a JSON line such as record_fields() makes; its offset does not count."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        got = (
            f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
        )
        raise UsageError("record", where=where, got=got, wanted="JSON") from None
    if not isinstance(given, dict):
        raise UsageError("record", where=where, got=type(given).__name__, wanted='an object, as {"key": …, "value": …}')
    unknown = sorted(set(given) - {"type", "offset", "timestamp", "key", "value", "headers"})
    if unknown:
        wanted = "key, value, timestamp, headers"
        raise UsageError("record", where=where, got=f"the field {unknown[0]!r}", wanted=wanted)
    timestamp = given.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
        raise UsageError("timestamp", where=where, got=type(timestamp).__name__, wanted="ms since 1970, or null")
    headers = given.get("headers", [])
    if not isinstance(headers, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in headers):
        raise UsageError("headers", where=where, got="something else", wanted='a list of ["name", "value"]')
    return (
        _bytes_from(given.get("key"), f"key, {where}"),
        _bytes_from(given.get("value"), f"value, {where}"),
        timestamp,
        [(_name_from(name, where), _bytes_from(value, f"header, {where}")) for name, value in headers],
    )


def _bytes_from(given: Any, where: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return given.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(where, got="half a character", wanted='text, or {"base64": "…"}') from None
    if isinstance(given, dict) and set(given) == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(where, got="no base64", wanted='{"base64": "…"}') from None
    raise UsageError(where, got=type(given).__name__, wanted='a string, {"base64": "…"} or null')


def _name_from(given: Any, where: str) -> str:
    name = _bytes_from(given, f"header name, {where}")
    if name is None:
        raise UsageError("header name", where=where, got="null", wanted='a string or {"base64": "…"}')
    return name.decode("utf-8", "surrogateescape")
