"""`logcore cat DIR`: the records of a log, as lines or as JSON lines."""

import argparse
import sys
from collections.abc import Callable, Iterator

from logcore import Log, Record
from logcore.cli._logs import add_partition, add_reading, first_offset, open_to_read, record_fields, to_json
from logcore.cli._printers import text_bytes

DESCRIPTION = """\
Print the records of a partition: their values, a line each, or with --json everything there is to a record.

Nothing is written, and another process may write to the log meanwhile.
"""

EPILOG = r"""lines:
  The bytes of the value, and a line feed; null is an empty line. With --key-separator the key comes first.
  What comes out is what was put in, unless a value has line feeds in it: then use --json. On a terminal
  what is not printable is shown escaped.

json:
  An object a line, in ASCII: offset, timestamp (ms since 1970), key, value, headers (a list of [name, value]).
  Bytes are a string if they are valid UTF-8, and {"base64": "…"} if not; null is null. No byte is lost:
  `logcore cat A --json | logcore append B --json` copies a log's records.

exit codes:
  0  all there was (or --count) was printed
  1  damage: what lies before it was printed
  2  wrong use, an offset that is not in the log, or a file that cannot be read
  141  whoever read the output went away

examples:
  logcore cat data/orders-0
  logcore cat data/orders-0 --from 1000 --count 10 --json
  logcore cat data/orders-0 --from-time 2026-01-31T12:00:00 --key-separator :
  logcore cat data/orders-0 --from latest --follow
  logcore cat data/orders-0 --json --isolation read_committed | jq .value
"""

FLUSH_SECONDS = 0.05  # a follower prints what it has when nothing more comes for so long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore cat`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add_partition(parser)
    add_reading(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, lossless (see below)")
    parser.add_argument("--key-separator", metavar="TEXT", help="print the key and this text before the value")
    parser.add_argument("--follow", action="store_true", help="wait for more records at the end, until interrupted")


def run(args: argparse.Namespace) -> int:
    """Print the records."""
    with open_to_read(args.directory) as log:
        offset = first_offset(log, args)
        show = _shower(args)
        left: int | None = args.count
        for record in _following(log, offset, args) if args.follow else log.read(offset, isolation=args.isolation):
            show(record)
            if left is not None:
                left -= 1
                if not left:
                    break
    return 0


def _following(log: Log, offset: int, args: argparse.Namespace) -> Iterator[Record]:
    """As follow(), but what was printed is flushed before it waits."""
    while True:
        for record in log.follow(offset, isolation=args.isolation, timeout=FLUSH_SECONDS):
            offset = record.offset + 1
            yield record
        sys.stdout.flush()


def _shower(args: argparse.Namespace) -> Callable[[Record], None]:
    """What prints a record."""
    out = sys.stdout
    if args.json:
        return lambda record: void(out.write(to_json(record_fields(record)) + "\n"))
    separator = args.key_separator
    if out.isatty():

        def show(record: Record) -> None:
            parts = [] if separator is None else [text_bytes(record.key or b"")[1:-1], separator]
            out.write("".join([*parts, text_bytes(record.value or b"")[1:-1], "\n"]))

        return show
    raw, between = out.buffer, None if separator is None else separator.encode("utf-8", "surrogateescape")
    out.flush()

    def put(record: Record) -> None:
        if between is not None:
            raw.write((record.key or b"") + between)
        raw.write((record.value or b"") + b"\n")

    return put


def void(_: object) -> None:
    """A function's result, thrown away."""
