"""`logcore retain DIR`: delete what retention lets go."""

import argparse

from logcore.cli._logs import (
    add_partition,
    add_settings,
    check_directory,
    clock_of,
    open_to_write,
    print_fields,
    print_json,
)

DESCRIPTION = """\
Delete the segments of a partition that its retention lets go: those older than retention.ms, those beyond
retention.bytes, and those before the log start offset. Whole segments go, oldest first; the log root is locked.
"""

EPILOG = """\
settings:
  Nobody writes a topic's settings down in its directory, so they have to be given. Without --set they are
  Kafka's own: retention.ms is a week, retention.bytes has no limit.

exit codes:
  0  done, or there was nothing to do
  1  the log is damaged
  2  wrong use, or a file that cannot be read or written

examples:
  logcore retain data/orders-0
  logcore retain data/orders-0 --set retention.ms=86400000
  logcore retain data/orders-0 --set retention.bytes=1073741824 --set retention.ms=-1 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore retain`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add_partition(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Apply retention to `args.directory`."""
    directory = check_directory(args.directory)
    with open_to_write(directory, dict(args.set), clock_of(args)) as log:
        before, start = log.size_in_bytes, log.log_start_offset
        deleted = log.retain(args.now_ms)
        fields: dict[str, object] = {
            "segments_deleted": deleted,
            "bytes_deleted": before - log.size_in_bytes,
            "log_start_offset_before": start,
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "size_in_bytes": log.size_in_bytes,
        }
    if args.json:
        print_json({"type": "retained", **fields})
    else:
        print_fields("retained", fields)
    return 0
