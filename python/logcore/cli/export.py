"""`logcore export DIR --to FILE`: a log as a Parquet, Arrow or JSON-lines file, written in bounded memory."""

import argparse
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

from logcore import Columns, Log, StorageError, UsageError
from logcore.cli._logs import (
    add_partition,
    add_reading,
    first_offset,
    open_to_read,
    print_fields,
    print_json,
    record_fields,
    to_json,
)
from logcore.cli._progress import Progress

DESCRIPTION = """\
Write the records of a partition to a file whose name says its format: .parquet, .arrow (the Arrow IPC file
format) or .jsonl (as `logcore cat --json` prints them).

The log is only read, and another process may write to it meanwhile: what is there when the command begins is
exported. The file appears whole or not at all.
"""

EPILOG = """\
columns:
  offset (int64), timestamp (ms, UTC), timestamp_type, key, value (binary), headers (list of name and value).
  --columns takes some of them, in the order you say.

memory:
  A row group of about 64 MiB at a time, whatever the log's size.

exit codes:
  0  the file was written
  1  the log is damaged; no file was written
  2  wrong use, or a file that cannot be read or written

examples:
  logcore export data/orders-0 --to orders.parquet
  logcore export data/orders-0 --to orders.arrow --columns offset,timestamp,value --from 1000000
  logcore export data/orders-0 --to orders.jsonl --isolation read_committed
  duckdb -c "select count(*) from 'orders.parquet'"
"""

ROW_GROUP_BYTES = 64 << 20
COMPRESSIONS = ("none", "snappy", "gzip", "zstd")

Write = Callable[[list[Any]], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore export`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add_partition(parser)
    add = parser.add_argument
    add("--to", required=True, metavar="FILE", help="the file to write: .parquet, .arrow or .jsonl")
    add("--columns", type=lambda text: text.split(","), metavar="NAMES", help="with commas between (default: all)")
    add("--compression", choices=COMPRESSIONS, default="zstd", metavar="CODEC", help="of Parquet pages (zstd)")
    add("--json", action="store_true", help="print the result as JSON")
    add_reading(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    kind = os.path.splitext(args.to)[1]
    if kind not in FORMATS:
        raise UsageError("--to", where=args.to, got=f"the ending {kind!r}", wanted=", ".join(FORMATS))
    with open_to_read(args.directory) as log, whole_file(args.to) as temporary:
        rows = FORMATS[kind](log, args, temporary)
    fields: dict[str, object] = {"rows": rows, "size_in_bytes": os.path.getsize(args.to)}
    if args.json:
        print_json({"type": "exported", **fields})
    else:
        print_fields("exported", fields)
    return 0


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Where to write what becomes `path` at the end, synced; if anything fails, it is removed."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        try:
            with open(temporary, "xb"):
                pass
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError("write", errno=error.errno or errno.EIO, path=path) from error


def _chunks(log: Log, args: argparse.Namespace) -> Iterator[Columns]:
    """The records asked for, as columns; draws the bar."""
    offset = first_offset(log, args)
    end = log.log_end_offset
    left: int | None = args.count
    begin, progress = offset, Progress(max(end - offset, 1), unit="records")
    try:
        columns = None if args.columns is None else list(dict.fromkeys([*args.columns, "offset"]))
        for chunk in log.read_columns(offset, isolation=args.isolation, columns=columns):
            progress.update(int(chunk.offset[-1]) - begin)
            if left is not None and len(chunk) >= left:
                stop = int(chunk.offset[left - 1]) + 1
                first = int(chunk.offset[0])
                yield from log.read_columns(first, isolation=args.isolation, columns=columns, end_offset=stop)
                return
            if left is not None:
                left -= len(chunk)
            yield chunk
    finally:
        progress.clear()


def _tables(log: Log, args: argparse.Namespace) -> Iterator[Any]:
    """Arrow tables of about a row group each."""
    pyarrow = _pyarrow()
    held: list[Any] = []
    size = 0
    for chunk in _chunks(log, args):
        table = chunk.to_arrow()
        table = table if isinstance(table, pyarrow.Table) else pyarrow.Table.from_batches([table])
        held.append(table if args.columns is None else table.select(args.columns))
        size += chunk.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pyarrow.concat_tables(held)
            held, size = [], 0
    if held:
        yield pyarrow.concat_tables(held)


def _empty(log: Log, args: argparse.Namespace) -> Any:
    """A table without rows, for its columns."""
    return log.read_columns(log.log_end_offset, columns=args.columns).to_arrow()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UsageError(
            "pyarrow", got="none installed", wanted="it, for .parquet and .arrow: pip install pyarrow"
        ) from None
    return pyarrow


def _to_parquet(log: Log, args: argparse.Namespace, path: str) -> int:
    _pyarrow()
    from pyarrow import parquet

    with parquet.ParquetWriter(path, _empty(log, args).schema, compression=args.compression.upper()) as writer:
        rows = 0
        for table in _tables(log, args):
            writer.write_table(table, row_group_size=max(len(table), 1))
            rows += len(table)
    return rows


def _to_arrow(log: Log, args: argparse.Namespace, path: str) -> int:
    pyarrow = _pyarrow()
    rows = 0
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_file(sink, _empty(log, args).schema) as writer:
        for table in _tables(log, args):
            writer.write_table(table)
            rows += len(table)
    return rows


def _to_json_lines(log: Log, args: argparse.Namespace, path: str) -> int:
    if args.columns is not None:
        raise UsageError("--columns", got=",".join(args.columns), wanted="a .parquet or .arrow file for them")
    rows = 0
    with open(path, "w", encoding="ascii") as out:
        for chunk in _chunks(log, args):
            for record in chunk:
                out.write(to_json(record_fields(record)) + "\n")
            rows += len(chunk)
    return rows


FORMATS = {".parquet": _to_parquet, ".arrow": _to_arrow, ".jsonl": _to_json_lines}
