"""`logcore bench codec`: the record format measured on this machine.

codec × level × batch size × value size -> records/s, MB/s, bytes a record, compression ratio, CPU, for every operation
of the codec, on synthetic rows or on the user's own. `--peers` measures aiokafka, kafka-python and the machine's limits
in the same rounds, and holds the ratios against the project's bars.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence

from logcore import UsageError
from logcore._compression import CODECS, check_level, codec_id
from logcore.bench import bars, limits, peers, plot
from logcore.bench.data import Row, file_rows, synthetic_rows
from logcore.bench.machine import machine_facts
from logcore.bench.measure import Task, Timing, measure, pinned
from logcore.bench.operations import bar_tasks, logcore_tasks
from logcore.bench.table import Progress, Result, ratios_text, results_text
from logcore.bench.workload import Case, Workload, workload_bytes

BATCH_BYTES = (16 << 10, 1 << 20)
VALUE_BYTES = (100, 1 << 10)
SIZE_MAX = 1 << 30
SECONDS = 0.25

DESCRIPTION = """\
Measure Kafka's record batches on this machine: how fast they are encoded and decoded, as rows (a Python object a
record) and as Arrow columns (none), scanned and validated, and how small they become.

Each codec, level, batch size and value size that you name is measured with each of the others. The rows are made
up, events in JSON that compress as such events do, or your own: --file.
"""

EPILOG = """\
reading the table:
  records/s  by one core that does nothing else
  MB/s       of uncompressed batches, so that codecs compare
  B/record   as stored, with its share of the batch's header
  ratio      uncompressed bytes by stored bytes
  CPU        seconds of processor by seconds of clock; much less than 1: something else was running

with --peers:
  C loop     a plain loop in C over the same bytes, which does nothing else: what the machine allows
  CRC-32C    the checksum alone; crc32c package: the same as other Python programs have it
  zlib, …    the bare compression library
  goal       the least that the project aims at, on an idle machine

files:
  .jsonl     a line is a value; of an object of "value" and nothing but key, timestamp, headers and offset
             beside it, these are taken
  .parquet   --value-column, and where they exist --key-column and timestamp; needs pyarrow
  all else   record batches, such as a .log of Kafka's or what encode_batch() writes
  The first 64 MiB of rows are used.

exit codes:
  0  done
  1  the file of --file is damaged
  2  wrong use, or a file that cannot be read or written

examples:
  logcore bench codec --codec none zstd --level 1 3 9
  logcore bench codec --file sample.jsonl --batch-size 64K 1M
  logcore bench codec --file 00000000000000000000.log --codec gzip lz4 zstd --plot codecs.png
  logcore bench codec --peers --json > codec.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    add = parser.add_argument
    add(
        "--codec", nargs="+", choices=CODECS, default=list(CODECS), metavar="NAME", help=f"of {', '.join(CODECS)} (all)"
    )
    add("--level", nargs="+", type=int, metavar="N", help="compression levels (each codec's default)")
    add(
        "--batch-size",
        nargs="+",
        type=size,
        default=list(BATCH_BYTES),
        metavar="SIZE",
        help="bytes a batch before compression, such as 16384, 16K or 1M (16K 1M)",
    )
    add("--record-size", nargs="+", type=size, metavar="SIZE", help="bytes a value of the synthetic rows (100 1K)")
    add("--key-size", type=int, metavar="N", help="bytes a key of the synthetic rows; 0 for none (10)")
    add("--file", metavar="FILE", help="your own rows: .jsonl, .parquet, or a file of batches such as a .log")
    add("--value-column", default="value", metavar="NAME", help="of a .parquet (value)")
    add("--key-column", default="key", metavar="NAME", help="of a .parquet (key, if there is one)")
    add("--seconds", type=float, default=SECONDS, metavar="S", help=f"to measure each operation for ({SECONDS})")
    add("--repeat", type=int, metavar="N", help="rounds to measure, instead of --seconds")
    add("--peers", action="store_true", help="aiokafka, kafka-python and the machine's limits too, and ratios")
    add("--json", action="store_true", help="one JSON document instead of tables")
    add("--plot", metavar="FILE", help="draw the results into a .png, .svg or .pdf")


def size(text: str) -> int:
    """An argument type: bytes, or KiB with K, MiB with M."""
    number, unit = text.lower().removesuffix("ib"), 1
    if number[-1:] in {"k", "m"}:
        unit = 1 << {"k": 10, "m": 20}[number[-1]]
        number = number[:-1]
    if number.isdecimal() and 0 < int(number) * unit <= SIZE_MAX:
        return int(number) * unit
    raise argparse.ArgumentTypeError(f"got {text!r}, wanted a size up to 1 GiB such as 16384, 16K or 1M")


def run(args: argparse.Namespace) -> int:
    """Measure and report. Raises LogcoreError for what the user can mend."""
    _check(args)
    if args.plot is not None:  # now, not after minutes of measuring
        plot.check_path(args.plot)
        plot.require_matplotlib()
    progress = Progress()
    skipped: dict[str, None] = {}  # in order, each once
    results: list[Result] = []
    verdicts: list[Result] = []
    rows_of = _rows_source(args)
    cases = list(_cases(args))
    with pinned() as core:
        facts = machine_facts(core)
        for number, case in enumerate(cases):
            progress.tell(number / len(cases), f"{case}: preparing")
            workload = Workload(case, rows_of(case))
            tasks = _tasks(workload, args.peers, skipped)

            def tell(share: float, number: int = number, case: Case = case) -> None:
                progress.tell((number + share) / len(cases), str(case))

            timings = measure(tasks, seconds=args.seconds, rounds=args.repeat, tell=tell)
            results.extend(_result(workload, timing) for timing in timings)
            if args.peers:
                verdicts.extend(_verdict(verdict) for verdict in bars.verdicts(case, timings))
    progress.clear()
    if args.json:
        json.dump(
            {
                "machine": facts,
                "options": _options(args),
                "results": results,
                "bars": verdicts,
                "skipped": list(skipped),
            },
            sys.stdout,
            indent=1,
        )
        print()
    else:
        _print_report(facts, results, verdicts, list(skipped))
    if args.plot is not None:
        plot.plot(results, args.plot, f"logcore bench codec · {facts['processor']}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.file is not None and (args.record_size is not None or args.key_size is not None):
        raise UsageError("--file", got="--record-size or --key-size beside it", wanted="one: a file has its own rows")
    if args.key_size is not None and not 0 <= args.key_size <= 1000:
        raise UsageError("--key-size", got=args.key_size, wanted="0 to 1000")
    if not 0 <= args.seconds <= 3600:
        raise UsageError("--seconds", got=args.seconds, wanted="0 to 3600")
    if args.repeat is not None and args.repeat < 1:
        raise UsageError("--repeat", got=args.repeat, wanted="at least 1")


def _cases(args: argparse.Namespace) -> Iterator[Case]:
    values: Sequence[int | None] = [None] if args.file is not None else args.record_size or VALUE_BYTES
    for codec in args.codec:
        # None for a codec without levels, whatever levels were asked of the others.
        default = check_level(codec_id(codec), None)
        levels = [None] if default is None else args.level or [default]
        for level in levels:
            check_level(codec_id(codec), level)
            for value_bytes in values:
                for batch_bytes in args.batch_size:
                    yield Case(codec, level, batch_bytes, value_bytes)


def _rows_source(args: argparse.Namespace) -> Callable[[Case], Sequence[Row]]:
    """Where a case gets its rows; synthetic ones are made once a size."""
    if args.file is not None:
        rows = file_rows(args.file, value_column=args.value_column, key_column=args.key_column)
        return lambda case: rows
    key_bytes = 10 if args.key_size is None else args.key_size
    plain_bytes = max(map(workload_bytes, args.batch_size))
    made: dict[int, Sequence[Row]] = {}

    def synthetic(case: Case) -> Sequence[Row]:
        value_bytes = case.value_bytes or 0
        if value_bytes not in made:
            # Twice a record in a batch that is smaller than one would be nothing to measure by.
            made[value_bytes] = synthetic_rows(value_bytes, key_bytes, plain_bytes=max(plain_bytes, 2 * value_bytes))
        return made[value_bytes]

    return synthetic


def _tasks(workload: Workload, with_peers: bool, skipped: dict[str, None]) -> list[Task]:
    tasks = logcore_tasks(workload)
    if not with_peers:
        return tasks

    def add(make: Callable[[], list[Task]]) -> None:
        try:
            tasks.extend(make())
        except UsageError as missing:
            skipped[str(missing)] = None

    for name in (peers.AIOKAFKA, peers.KAFKA_PYTHON):
        add(lambda name=name: peers.Peer(name).tasks(workload))  # type: ignore[misc]
    add(lambda: limits.limit_tasks(workload))
    tasks += bar_tasks(workload)
    if workload.case.codec != "none":
        tasks += limits.library_tasks(workload)
    return tasks


def _result(workload: Workload, timing: Timing) -> Result:
    rate = timing.records_per_second
    return {
        **_case_fields(workload.case),
        "operation": timing.task.operation,
        "by": timing.task.by,
        "records_per_second": rate,
        "megabytes_per_second": rate * workload.plain_bytes / workload.records / 1e6,
        "bytes_per_record": workload.stored_bytes / workload.records,
        "compression_ratio": workload.plain_bytes / workload.stored_bytes,
        "cpu": timing.cpu,
        "rounds": len(timing.seconds_per_record),
    }


def _verdict(verdict: bars.Verdict) -> Result:
    bar = verdict.bar
    return {
        **_case_fields(verdict.case),
        "operation": bar.ours,
        "against": bar.theirs[0],
        "against_by": bar.theirs[1],
        "ratio": verdict.ratio,
        "at_least": bar.at_least,
        "is_met": verdict.is_met,
    }


def _case_fields(case: Case) -> Result:
    return {
        "codec": case.codec,
        "level": case.level,
        "batch_bytes": case.batch_bytes,
        "value_bytes": case.value_bytes,
    }


def _options(args: argparse.Namespace) -> Result:
    names = ("codec", "level", "batch_size", "record_size", "key_size", "file", "seconds", "repeat", "peers")
    return {name: getattr(args, name) for name in names}


def _print_report(facts: Result, results: Sequence[Result], verdicts: Sequence[Result], skipped: Sequence[str]) -> None:
    core = "any core" if facts["pinned_to_core"] is None else f"held on core {facts['pinned_to_core']}"
    print(f"{facts['processor']}, {facts['cores']} cores, {core} · {facts['python']} · logcore {facts['logcore']}\n")
    print(results_text(results))
    if verdicts:
        print(f"\nlogcore beside other clients and what the machine allows\n\n{ratios_text(verdicts)}")
    for line in skipped:
        print(f"not measured: {line}")
