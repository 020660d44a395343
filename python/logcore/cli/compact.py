"""`logcore compact DIR`: of each key only the latest record stays."""

import argparse
from dataclasses import asdict

from logcore.cli._logs import (
    add_partition,
    add_settings,
    check_directory,
    clock_of,
    open_to_write,
    print_fields,
    print_json,
)
from logcore.cli._progress import Progress
from logcore.cli.command import count_from, tell

DESCRIPTION = """\
Compact a partition: of each key only the latest record stays. A record with a key and no value deletes the key;
it goes itself delete.retention.ms after the compaction that met it first. Records keep their offsets.
RECORDS WITHOUT A KEY ARE DELETED, as Kafka's cleaner does: records_without_key says how many.

The active segment, open transactions and what is younger than min.compaction.lag.ms are not touched. The log root is
locked meanwhile. A crash leaves the log as it was, or compacted.
"""

EPILOG = """\
exit codes:
  0  done, or there was nothing to do
  1  the log is damaged
  2  wrong use, or a file that cannot be read or written

examples:
  logcore compact data/orders-0
  logcore compact data/orders-0 --roll                              also what lies in the active segment
  logcore compact data/orders-0 --if-due --set min.cleanable.dirty.ratio=0.3
  logcore compact data/orders-0 --set delete.retention.ms=0 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore compact`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add_partition(parser)
    add = parser.add_argument
    add("--json", action="store_true", help="print the result as JSON")
    add("--roll", action="store_true", help="begin a new segment first, so that everything before it is compacted")
    add("--if-due", action="store_true", help="only if the settings say that it is time")
    add("--memory-bytes", type=count_from(1), metavar="N", help="of the map of keys; with less it takes more passes")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Compact `args.directory`."""
    directory = check_directory(args.directory)
    progress = Progress(None)
    config = {"cleanup.policy": "compact", **dict(args.set)}
    with open_to_write(directory, config, clock_of(args)) as log:
        before = log.size_in_bytes
        if args.roll:
            log.roll()

        def advance(done: int, total: int) -> None:
            progress.total = total
            progress.update(done)

        try:
            result = log.compact(args.now_ms, only_if_due=args.if_due, memory_bytes=args.memory_bytes, progress=advance)
        finally:
            progress.clear()
        fields: dict[str, object] = {"is_done": False} if result is None else {"is_done": True, **asdict(result)}
        fields |= {"size_before_bytes": before, "size_in_bytes": log.size_in_bytes}
        is_in_active = result is None and not args.if_due and log.segments[-1].size_in_bytes > 0
    if args.json:
        print_json({"type": "compacted", **fields})
    elif result is None:
        print_fields("nothing to compact", {"size_in_bytes": before})
    else:
        del fields["is_done"]
        print_fields("compacted", fields)
    if is_in_active:
        tell("note: the active segment is not compacted; --roll begins a new one first")
    return 0
