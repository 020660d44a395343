"""`logcore bench NAME`: measures something on this machine.

Benchmarks are found by the entry-point group `logcore.bench`, so that a package above this one adds its own without
being known here:

    [project.entry-points."logcore.bench"]
    codec = "logcore.bench.codec"

The entry point names an object (a module will do) that is a `Benchmark`. It is imported only when its NAME is asked
for. It prints results to stdout and progress to stderr, raises LogcoreError for what the user can mend, and has
`--json`.
"""

import argparse
import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from logcore import UsageError

GROUP = "logcore.bench"
SUMMARIES = {
    "codec": "encode, decode, scan and validate record batches, in every codec",
    "log": "append to, read, flush, compact and reopen a log, beside other stores",
}

DESCRIPTION = """\
Measure something on this machine. Each benchmark has flags of its own: `logcore bench NAME --help`.

Results go to standard output, as tables or, with --json, as one document to keep and compare.
"""

EPILOG = """\
examples:
  logcore bench codec                                     every codec, small and large batches; about a minute
  logcore bench codec --codec none zstd --record-size 1K  two codecs, values of 1 KiB
  logcore bench codec --file 00000000000000000000.log     your own records
  logcore bench codec --peers                             beside other Python clients and the machine's limits
  logcore bench log --peers                               beside sqlite3, lmdb, rocksdict and the machine's limits
"""


class Benchmark(Protocol):
    """What an entry point of the group offers."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the flags; may set `parser.description` and `parser.epilog`, which are shown as they are written."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Measure; the result is the exit code."""


def find_benchmarks() -> dict[str, EntryPoint]:
    """Every installed benchmark by its name, in order."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def load_benchmark(entry: EntryPoint) -> Benchmark:
    """The benchmark behind `entry`; raises UsageError for one that cannot be imported or is none."""
    where = f"{entry.name} = {entry.value}"
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError("benchmark", where=where, got=reason, wanted="what can be imported") from error
    missing = [name for name in ("add_arguments", "run") if not callable(getattr(found, name, None))]
    if missing:
        raise UsageError("benchmark", where=where, got=f"no {' and no '.join(missing)}", wanted="both")
    benchmark: Benchmark = found
    return benchmark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand a benchmark."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    names = parser.add_subparsers(metavar="NAME", required=True)
    for name, entry in find_benchmarks().items():
        # A benchmark is not imported for its name to be listed, so one of another package is told by that package.
        summary = SUMMARIES.get(name) or f"a benchmark of {entry.module.partition('.')[0]}"
        names.add_parser(name, help=summary, declare=functools.partial(_declare_benchmark, entry))


def _declare_benchmark(entry: EntryPoint, parser: argparse.ArgumentParser) -> None:
    benchmark = load_benchmark(entry)
    benchmark.add_arguments(parser)
    parser.set_defaults(run=benchmark.run)
