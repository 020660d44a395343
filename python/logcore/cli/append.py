"""`logcore append DIR [FILE]`: lines, or JSON lines, become records."""

import argparse
import select
import sys
from collections.abc import Iterator
from typing import Any

from logcore import AppendResult, Log, UsageError
from logcore.cli._logs import (
    add_partition,
    add_settings,
    clock_of,
    open_to_write,
    print_fields,
    print_json,
    record_from,
)
from logcore.cli._progress import Progress
from logcore.cli._reader import Source, open_source
from logcore.cli.command import count_from

DESCRIPTION = """\
Append records to a partition: each line of FILE, or of standard input, is a record's value; with --json
each line is a record. The directory is made if it is missing.

The log root around it is locked meanwhile: one process at a time writes.
"""

EPILOG = """\
records:
  A line's end is not part of it. With --key-separator what lies before its first occurrence is the key.
  JSON lines are what `logcore cat --json` prints: key, value, timestamp, headers; all may be left out. The
  offset does not count: records get the next ones. A record without a timestamp gets the present time.

batches:
  Up to --batch-records lines make one append. Less, when the input has no more ready: what comes slowly is
  appended as it comes. A line that cannot be a record ends the command; what was appended before it stays.

durability:
  What was appended survives the death of the process at once, and of the machine when the command has ended;
  with --flush also after each batch.

exit codes:
  0  everything was appended
  1  the log is damaged
  2  wrong use, a line that is no record, or a file that cannot be read or written

examples:
  seq 1000 | logcore append data/numbers-0
  logcore append data/orders-0 orders.txt --key-separator : --compression zstd
  logcore cat data/orders-0 --json | logcore append copy/orders-0 --json
  logcore append data/orders-0 --set segment.bytes=1048576 --set cleanup.policy=compact < lines
"""

READ_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 28  # beyond anything that a batch can hold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore append`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add_partition(parser)
    add = parser.add_argument
    add("file", metavar="FILE", nargs="?", default="-", help="where the lines are (default: standard input)")
    add("--json", action="store_true", help="lines are JSON, and so is what is printed")
    add("--key-separator", metavar="TEXT", help="a line is a key, this text, and a value")
    add(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        metavar="CODEC",
        help="none, gzip, snappy, lz4 or zstd (default: the setting compression.type)",
    )
    add("--batch-records", type=count_from(1, 1_000_000), default=1000, metavar="N", help="lines of one append (1000)")
    add("--flush", action="store_true", help="make each batch durable before the next is read")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Append the lines, and print what was appended."""
    if args.json and args.key_separator is not None:
        raise UsageError("--key-separator", got="--json too", wanted="one of them: JSON has keys")
    if args.key_separator == "":
        raise UsageError("--key-separator", got="nothing", wanted="a text")
    with (
        open_source(args.file) as source,
        open_to_write(args.directory, dict(args.set), clock_of(args)) as log,
    ):
        appender = Appender(log, args)
        # Who types the lines needs no bar.
        progress = Progress(source.size_in_bytes, beside_output=source.size_in_bytes is None)
        try:
            for records, done in batches(source, args):
                appender.append(records)
                progress.update(done)
        finally:
            progress.clear()
            appender.tell()
    return 0


class Appender:
    """Appends, and counts."""

    def __init__(self, log: Log, args: argparse.Namespace) -> None:
        self._log = log
        self._args = args
        self._first: AppendResult | None = None
        self._last: AppendResult | None = None
        self._count = 0
        self._bytes = 0

    def append(self, records: list[Any]) -> None:
        """One append."""
        result = self._log.append(records, compression=self._args.compression)
        self._first, self._last = self._first or result, result
        self._count += result.record_count or 0
        self._bytes += result.size_in_bytes
        if self._args.flush:
            self._log.flush()

    def tell(self) -> None:
        """What was appended; also when an error ends it."""
        fields: dict[str, object] = {
            "records": self._count,
            "first_offset": None if self._first is None else self._first.first_offset,
            "last_offset": None if self._last is None else self._last.last_offset,
            "size_in_bytes": self._bytes,
            "log_end_offset": self._log.log_end_offset,
        }
        if self._args.json:
            print_json({"type": "appended", **fields})
        else:
            print_fields("appended", {name: "none" if value is None else value for name, value in fields.items()})
        sys.stdout.flush()


def batches(source: Source, args: argparse.Namespace) -> Iterator[tuple[list[Any], int]]:
    """The records of the input, as many at a time as belong together; and how far the input was read."""
    records: list[Any] = []
    separator = None if args.key_separator is None else args.key_separator.encode("utf-8", "surrogateescape")
    done = 0
    for number, (line, is_last_ready) in enumerate(_lines(source, is_stdin=args.file == "-"), 1):
        done += len(line) + 1
        where = f"line {number} of {source.path}"
        if args.json:
            if line.strip():
                records.append(record_from(line, where))
        elif separator is None:
            records.append((None, line))
        else:
            key, found, value = line.partition(separator)
            if not found:
                if records:
                    yield records, done
                raise UsageError("line", where=where, got="no separator", wanted=f"a key and {args.key_separator!r}")
            records.append((key, value))
        if len(records) >= args.batch_records or (is_last_ready and records):
            yield records, done
            records = []
    if records:
        yield records, done


def _lines(source: Source, *, is_stdin: bool) -> Iterator[tuple[bytes, bool]]:
    """The lines, without their ends; and whether the input has no more ready behind this one."""
    rest = b""
    while part := source.read(READ_BYTES):
        lines = (rest + part).split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise UsageError("line", where=source.path, got=f"{len(rest)} bytes", wanted=f"at most {LINE_BYTES_MAX}")
        is_idle = is_stdin and bool(lines) and not _is_ready()
        for number, line in enumerate(lines, 1):
            yield line, is_idle and number == len(lines)
    if rest:
        yield rest, False


def _is_ready() -> bool:
    """Whether standard input has more, or has ended."""
    try:
        return bool(select.select([0], [], [], 0)[0])
    except (OSError, ValueError):
        return True
