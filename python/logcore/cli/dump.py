"""`logcore dump PATH`: the batches and records of a log segment, or of any file of batches.

Every other file of a log is told by its name, and directories too: see _files.py.

It reads and never writes. Damage found is exit code 1; a file that merely ends in a part of a batch or in zeros, as
crashes and preallocation leave it, is clean.
"""

import argparse
from collections.abc import Iterator

from logcore import Batch, ControlRecord, CorruptBatch, Record, UsageError
from logcore.cli._files import dump_other, is_other_file
from logcore.cli._printers import TEXT_BYTES_MAX, JsonPrinter, Printer, TextPrinter, batch_fields
from logcore.cli._progress import Progress
from logcore.cli._reader import (
    BATCH_BYTES_LARGEST,
    BATCH_BYTES_MAX,
    SEARCH_BATCH_BYTES,
    BatchReader,
    Damage,
    open_source,
)
from logcore.cli.command import EXIT_DAMAGE, count_from, tell

EXIT_CLEAN = 0

DESCRIPTION = """\
Print what is in a file of a log, told by its name: a .log (or any other file of Kafka record batches, magic 0, 1
and 2), .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, partition.metadata; of a log root its
checkpoints, meta.properties and .kafka_cleanshutdown. A suffix .deleted, .cleaned or .swap does not matter. Of a
directory, a partition's or a root's, a summary is printed: offsets, segments, files, sizes.

Each checksum is verified. Without --salvage the dump of a .log stops at the first damage; with it, it goes on at
the next batch whose checksum is right.
"""

EPILOG = rf"""text:
  Printable UTF-8 is shown as it is, between quotes. \xNN is a byte that is no text, \uNNNN a character that is
  not printable, \n \r \t \" \\ as usual; null is no key or value. Times are UTC.

json:
  An object a line, in ASCII. "type" is one of
    file     path, size_in_bytes; of batches also base_offset (what the file's name says, or null)
    entry    of all other files, with the fields that Kafka's own dump names: offset, position, timestamp,
             producer_id, first_offset, last_stable_offset, epoch, start_offset, topic, …
    root, partition, segment, directory      of a directory
    batch    every header field; count is null for magic 0 and 1
    record   offset, timestamp, key, value, headers (a list of [name, value]); in a control batch also control
    damage   position (of the batch, in the file), record_index, at (byte inside the batch, or inside its
             decompressed records), reason, what, got, wanted, kafka_error; stderr has it too, as a line
    skipped  with --salvage: position and size_in_bytes of what lies between the damage and the next batch
    partial  the file ends inside a batch: position, size_in_bytes, batch_bytes (its whole size, if known)
    zeros    the file ends in zero bytes: position, size_in_bytes
  Bytes (keys, values, header values, header names, the path) are a string if they are valid UTF-8, and
  {{"base64": "…"}} if not; null is null. So no byte is lost, and nothing is ambiguous.

limits:
  A batch of more than --batch-bytes-max, or whose records decompress to more than --max-decompressed-bytes,
  is reported as damage. The search of --salvage finds batches of up to {SEARCH_BATCH_BYTES >> 20} MiB.

exit codes:
  0  clean; a partial last batch, or zeros at the end, are told and are no damage
  1  damage was found
  2  wrong use, or a file that cannot be read
  141  whoever read the output went away (as `| head` does)

examples:
  logcore dump data                                         a log root: its topics, partitions, files
  logcore dump data/orders-0                                a partition: its offsets, segments, files
  logcore dump data/orders-0/00000000000000000170.timeindex
  logcore dump 00000000000000000000.log                     everything, for reading
  logcore dump --batches-only 00000000000000000000.log      headers only, which is fast
  logcore dump --offset 1234 --limit 10 FILE                ten records from offset 1234 on
  logcore dump --position 4096 --limit 1 FILE               what an error at position 4096 is about
  logcore dump --json FILE | jq -c 'select(.type == "record") | .value'
  logcore dump --salvage --json FILE > all-that-can-be-read.jsonl
  zcat FILE.gz | logcore dump -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore dump`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add = parser.add_argument
    number, count = count_from(0), count_from(1)
    add("file", metavar="PATH", help="a file of a log, a directory, or any file of batches; - is standard input")
    add("--json", action="store_true", help="one JSON object a line, lossless (see below)")
    add("--batches-only", action="store_true", help="headers of batches, no records")
    add("--offset", type=number, metavar="N", help="start at the batch that holds offset N, and at that record in it")
    add("--position", type=number, metavar="N", default=0, help="start at byte N, where a batch must begin")
    add(
        "--limit",
        type=count,
        metavar="N",
        help="stop after N records, or entries (after N batches with --batches-only)",
    )
    add("--salvage", action="store_true", help="report damage and go on at the next whole batch")
    add("--full", action="store_true", help=f"in text, do not cut keys and values after {TEXT_BYTES_MAX} bytes")
    add(
        "--batch-bytes-max",
        type=count_from(14, BATCH_BYTES_LARGEST),
        metavar="BYTES",
        default=BATCH_BYTES_MAX,
        help="refuse larger batches (default: %(default)s)",
    )
    add(
        "--max-decompressed-bytes",
        type=count,
        metavar="BYTES",
        default=BATCH_BYTES_MAX,
        help="refuse batches whose records decompress to more (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Dump `args.file`; 1 if damage was found, else 0."""
    if args.file != "-" and is_other_file(args.file):
        for name in ("offset", "position", "salvage", "batches_only", "full"):
            if getattr(args, name) not in (None, 0, False):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(flag, where=args.file, got="another file", wanted="one of batches, such as a .log")
        return dump_other(args.file, is_json=args.json, limit=args.limit)
    with open_source(args.file, args.position) as source:
        progress = Progress(source.size_in_bytes, beside_output=True)
        printer: Printer
        if args.json:
            printer = JsonPrinter(before_tell=progress.clear)
        else:
            printer = TextPrinter(source.path, is_full=args.full, before_tell=progress.clear)
        reader = BatchReader(
            source,
            position=args.position,
            salvage=args.salvage,
            batch_bytes_max=args.batch_bytes_max,
            max_decompressed_bytes=args.max_decompressed_bytes,
        )
        try:
            printer.file(source)
            return EXIT_DAMAGE if Dump(args, source.path, printer).run(reader, progress) else EXIT_CLEAN
        finally:
            progress.clear()


class Dump:
    """One run: what was asked for, and how much of it is left to do."""

    def __init__(self, args: argparse.Namespace, path: str, printer: Printer) -> None:
        self._args = args
        self._path = path
        self._printer = printer
        self._left: int | None = args.limit  # None: no limit
        self._offset: int | None = args.offset  # None: reached, or not asked for

    def run(self, reader: BatchReader, progress: Progress) -> bool:
        """Print what `reader` gives; whether damage was found."""
        is_damaged = False
        for event in reader:
            if isinstance(event, Damage):
                is_damaged = True
                self._printer.damage(event.error)
            elif isinstance(event, Batch):
                progress.update(event.position)
                if self._offset is not None and event.last_offset < self._offset:
                    continue
                error = self._print_batch(event)
                self._offset = None
                if error is not None:
                    is_damaged = True
                    self._printer.damage(error.at_path(self._path, 0))
                    if not self._args.salvage:
                        break
                if self._left == 0:
                    break
            else:
                self._printer.end(event)
        if self._offset is not None:
            progress.clear()
            is_cut_off = is_damaged and not self._args.salvage
            tell(
                f"note: no whole batch of {self._path}{' before the damage' if is_cut_off else ''} holds offset "
                f"{self._offset} or a later one{'; --salvage looks behind it' if is_cut_off else ''}"
            )
        return is_damaged

    def _print_batch(self, batch: Batch) -> CorruptBatch | None:
        """Print one batch as far as it can be read; returns what is damaged in it."""
        fields, error = batch_fields(batch)
        self._printer.batch(fields)
        if self._args.batches_only:
            self._count()
            return error
        try:
            for record, control in records_of(batch):
                if self._offset is not None and record.offset < self._offset:
                    continue
                self._printer.record(record, control)
                self._count()
                if self._left == 0:
                    break
        except CorruptBatch as damage:
            return damage
        return None

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1


def records_of(batch: Batch) -> Iterator[tuple[Record, ControlRecord | None]]:
    """The records of `batch`, with their meaning if it is a control batch. Raises CorruptBatch behind the last good."""
    if not batch.is_control:
        for record in batch:
            yield record, None
        return
    decoded: list[ControlRecord] = []
    error = None
    try:
        decoded = batch.control_records()
    except CorruptBatch as damage:
        error = damage
    for index, record in enumerate(batch):  # a record that cannot be parsed raises here too
        yield record, decoded[index] if decoded else None
    if error is not None:
        raise error
