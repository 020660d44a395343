"""`logcore bench log`: a log measured on this machine.

Appends, reads, flushes, look-ups, compaction and timers in records a second; what opening touches, and the memory of
long work. `--peers` measures sqlite3, lmdb, rocksdict and the machine's limits in the same rounds, and holds the ratios
against the project's bars.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from logcore import StorageError, UsageError
from logcore.bench import footprint, log_bars
from logcore.bench.codec import size
from logcore.bench.log_sections import RECORD_BYTES, SECTIONS, Scratch
from logcore.bench.machine import machine_facts
from logcore.bench.measure import Timing, measure, pinned
from logcore.bench.operations import LOGCORE
from logcore.bench.table import Progress, Result, aligned, rate_text

REOPEN, MEMORY = "reopen", "memory"
NAMES = (*SECTIONS, REOPEN, MEMORY)
SECONDS = 0.5
MEMORY_LOG_BYTES = 512 << 20
SIZE_MAX_TEXT = "1 GiB"

GOALS = """\
goal: on an idle machine ≥ times as fast, or ≤ times as long; ! is not met here
growth: how much longer in the long log than in the short one, beside the same
of the other"""

DESCRIPTION = """\
Measure a log on this machine: rows and columns in and out, a flush for each batch, single records by offset,
compaction, opening a log of a thousand segments, timers, and the memory that long work takes.

Records have keys of 10 bytes and values of 100, in batches of 1000 where it does not say otherwise.
"""

EPILOG = """\
what is measured:
  rows       append and read of Python objects; with --peers beside sqlite3 (WAL, synchronous=OFF), lmdb (sync=False),
             rocksdict (write-ahead log, not synced): what a call returned for survives the process, not the machine
  columns    append_columns and read_columns, beside encode + write(2) and pread(2) + decode in C
  flush      append and flush of each batch, beside write(2) + fdatasync(2) of the same bytes; by the wall clock
  points     one record by its offset, at random, in a log and in one a hundred times as long; beside sqlite3, and
             beside pread(2) + CRC-32C of that one batch in C
  compact    a log of which a tenth stays, and one of which all stays, beside read_columns + append_columns
  timers     added and cancelled, beside heapq with lazy deletion
  reopen     a closed log of a thousand segments: the time, and what is opened and read
  memory     the peak of processes that read, recover and compact a log, beyond that of one that opens it

reading the table:
  records/s  by one core, of processor time; of the best slice
  spread     the median slice by the best one: how quiet the machine was
  CPU        seconds of processor by seconds of clock
  goal       what the project aims at, on an idle machine: ≥ times as fast, ≤ times as long; ! where it is not met
  growth     how much longer it takes in the long log than in the short one, beside the same of the other

exit codes:
  0  done
  2  wrong use, or a directory that cannot be written

examples:
  logcore bench log --peers
  logcore bench log --only flush points --directory /mnt/data
  logcore bench log --peers --json > log.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    add = parser.add_argument
    add("--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME", help=f"of {', '.join(NAMES)} (all)")
    add("--directory", metavar="DIR", help="where to make files, some GiB: its file system is measured (TMPDIR)")
    add("--seconds", type=float, default=SECONDS, metavar="S", help=f"to measure each operation for ({SECONDS})")
    add("--repeat", type=int, metavar="N", help="rounds to measure, instead of --seconds")
    add(
        "--memory-size", type=size, default=MEMORY_LOG_BYTES, metavar="SIZE",
        help=f"of the log whose reading takes memory, at most {SIZE_MAX_TEXT} (512M)",
    )  # fmt: skip
    add("--peers", action="store_true", help="other stores and the machine's limits too, and ratios")
    add("--json", action="store_true", help="one JSON document instead of tables")


def run(args: argparse.Namespace) -> int:
    """Measure and report. Raises LogcoreError for what the user can mend."""
    if not 0 <= args.seconds <= 3600:
        raise UsageError("--seconds", got=args.seconds, wanted="0 to 3600")
    if args.repeat is not None and args.repeat < 1:
        raise UsageError("--repeat", got=args.repeat, wanted="at least 1")
    progress = Progress()
    skipped: dict[str, None] = {}
    results: list[Result] = []
    timings: list[Timing] = []
    document: Result = {}
    names = [name for name in NAMES if name in args.only]
    with pinned() as core:
        facts = machine_facts(core)
        for number, name in enumerate(names):

            def tell(share: float, number: int = number, name: str = name) -> None:
                progress.tell((number + share) / len(names), name)

            tell(0)
            with ExitStack() as stack:
                scratch = Scratch(_directory(args.directory, stack), args.peers, skipped, stack)
                if name in SECTIONS:
                    found = measure(SECTIONS[name](scratch), seconds=args.seconds, rounds=args.repeat, tell=tell)
                    timings += found
                    results += [_result(name, timing) for timing in found]
                else:
                    document[name] = _footprint(name, scratch, args.memory_size, tell)
    progress.clear()
    bars = [_verdict(verdict) for verdict in log_bars.verdicts(timings)] if args.peers else []
    options = {name: getattr(args, name) for name in ("only", "directory", "seconds", "repeat", "memory_size", "peers")}
    document = {
        "machine": facts, "options": options, "results": results, "bars": bars, **document, "skipped": list(skipped)
    }  # fmt: skip
    if args.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        _print_report(document)
    return 0


def _directory(wanted: str | None, stack: ExitStack) -> str:
    try:
        return stack.enter_context(tempfile.TemporaryDirectory(prefix="logcore-bench-", dir=wanted))
    except OSError as error:
        raise StorageError("write", errno=error.errno or 0, path=wanted or tempfile.gettempdir()) from error


def _footprint(name: str, scratch: Scratch, memory_size: int, tell: Callable[[float], None]) -> object:
    if name == REOPEN:
        return footprint.measure_reopening(scratch)
    try:
        return footprint.measure_memory(scratch, memory_size, tell)
    except UsageError as missing:
        scratch.skipped[str(missing)] = None
        return []


def _result(section: str, timing: Timing) -> Result:
    rate = timing.records_per_second
    has_bytes = section != "timers"
    return {
        "section": section,
        "operation": timing.task.operation,
        "by": timing.task.by,
        "records_per_second": rate,
        "megabytes_per_second": rate * RECORD_BYTES / 1e6 if has_bytes else None,
        "spread": timing.spread,
        "cpu": timing.cpu,
        "rounds": len(timing.seconds_per_record),
    }


def _verdict(verdict: log_bars.LogVerdict) -> Result:
    bar = verdict.bar
    return {
        "operation": bar.ours,
        "against": bar.theirs[0],
        "against_by": bar.theirs[1],
        "than_in": bar.short,
        "ratio": verdict.ratio,
        "at_least": bar.at_least,
        "at_most": bar.at_most,
        "is_met": verdict.is_met,
    }


def _print_report(document: Result) -> None:
    facts = document["machine"]
    core = "any core" if facts["pinned_to_core"] is None else f"held on core {facts['pinned_to_core']}"
    print(f"{facts['processor']}, {facts['cores']} cores, {core}\n{facts['python']} · logcore {facts['logcore']}\n")
    if document["results"]:
        print(_results_text(document["results"]))
    if document["bars"]:
        print(f"\nlogcore beside other stores and what the machine allows\n\n{_bars_text(document['bars'])}\n\n{GOALS}")
    if REOPEN in document:
        print("\na log of {segments:,} segments opened in {seconds:.3f} s: {logs_opened} .log and {indexes_opened} "
              "index files,\n{bytes_read_of_logs} bytes of batches read".format(**document[REOPEN]))  # fmt: skip
    if document.get(MEMORY):
        print(f"\nmemory beyond an open log, MiB\n\n{_memory_text(document[MEMORY])}")
    for line in document["skipped"]:
        print(f"not measured: {line}")


def _results_text(results: Sequence[Result]) -> str:
    """An operation and below it who did it, so that a line fits a terminal; an empty line between sections."""
    headings = ("by", "records/s", "ns/record", "MB/s", "spread", "CPU")
    rows: list[Sequence[str]] = []
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["section"], result["operation"]), []).append(result)
    previous = None
    for (section, operation), group in groups.items():
        if previous not in (None, section):
            rows.append([""] * len(headings))
        previous = section
        rows.append([operation, *[""] * (len(headings) - 1)])
        for result in group:
            rate, megabytes = result["records_per_second"], result["megabytes_per_second"]
            rows.append(
                [
                    *(f"  {result['by']}", rate_text(rate), f"{1e9 / rate:,.0f}"),
                    "" if megabytes is None else f"{megabytes:,.0f}",
                    *(f"{result['spread']:.2f}", f"{result['cpu']:.2f}"),
                ]
            )
    return aligned(headings, rows, {"by"})


def _bars_text(bars: Sequence[Result]) -> str:
    rows = []
    for bar in bars:
        missed = "" if bar["is_met"] else " !"
        goal = f"≥ {bar['at_least']:g}" if bar["at_least"] is not None else f"≤ {bar['at_most']:g}"
        rows.append([bar["operation"], _beside(bar), f"{bar['ratio']:.2f}", goal + missed])
    return aligned(("logcore's", "beside", "ratio", "goal"), rows, {"logcore's", "beside", "goal"})


def _beside(bar: Result) -> str:
    """Whose: the same operation of another, or another operation of ours."""
    if bar["than_in"] is not None:
        return f"{bar['against_by']}, growth"
    return str(bar["against"] if bar["against_by"] == LOGCORE else bar["against_by"])


def _memory_text(memory: Sequence[Result]) -> str:
    rows = [
        [one["work"], *(f"{one[name] / (1 << 20):,.0f}" for name in ("log_bytes", "beyond_open_bytes", "at_most"))]
        for one in memory
    ]
    return aligned(("work", "log", "peak", "bound"), rows, {"work"})
