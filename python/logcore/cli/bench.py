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
    parser.description = "Measure something on this machine. `logcore bench NAME --help` tells what and how."
    names = parser.add_subparsers(metavar="NAME", required=True)
    for name, entry in find_benchmarks().items():
        names.add_parser(name, help=f"({entry.value})", declare=functools.partial(_declare_benchmark, entry))


def _declare_benchmark(entry: EntryPoint, parser: argparse.ArgumentParser) -> None:
    benchmark = load_benchmark(entry)
    benchmark.add_arguments(parser)
    parser.set_defaults(run=benchmark.run)
