"""The command itself: one parser, one table of subcommands, one way for an error to reach the user.

A subcommand raises LogcoreError for what the user or the operating system did wrong; it becomes one line on stderr,
with the error's class, and exit code 2. What a subcommand *found* (damage) is its own to print and to return.
"""

import argparse
import contextlib
import errno
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import logcore
from logcore import LogcoreError, StorageError, UsageError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + 2  # as a shell reports SIGINT
EXIT_BROKEN_PIPE = 128 + 13  # and SIGPIPE: neither clean nor damaged, the reader just went away

# name -> one line for `logcore --help`; the module logcore.cli.<name> is imported when it is asked for
COMMANDS = {
    "dump": "print the batches and records of a .log file, find damage in it",
    "bench": "measure the codec on this machine, and on your data",
}

EPILOG = """\
exit codes: 0 done, 1 damage was found, 2 wrong use or a file that cannot be read

examples:
  logcore dump 00000000000000000000.log
  logcore bench codec --codec none zstd
  logcore dump --help
"""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError, and that declares its arguments only when it is used.

    Late declaration keeps `logcore dump` from importing what only a benchmark needs.
    """

    def __init__(
        self, *args: Any, declare: Callable[[argparse.ArgumentParser], None] | None = None, **options: Any
    ) -> None:
        # No abbreviations: a flag added later must not change what a script's shortened flag means.
        options = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options}
        super().__init__(*args, **options)
        self._declare = declare

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in the base class, after the arguments were declared; but what a subcommand does not know, it refuses.

        Left to argparse the parser above it would, and point to its own help.
        """
        if self._declare is not None:
            declare, self._declare = self._declare, None
            declare(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments, in one line."""
        raise UsageError(f"{message} ({self.prog} --help tells more)")


def count_from(least: int, most: int = (1 << 63) - 1) -> Callable[[str], int]:
    """An argument type: a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if re.fullmatch("[0-9]{1,19}", text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number from {least} to {most}")

    return parse


def one_line(text: str) -> str:
    """`text` with everything escaped that would break the line or move the terminal's cursor, as a file name may."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def tell(text: str) -> None:
    """One line to stderr, after everything that was printed before it."""
    sys.stdout.flush()
    print(one_line(f"logcore: {text}"), file=sys.stderr, flush=True)


def build_parser() -> Parser:
    """The parser of `logcore`, with every subcommand in it."""
    parser = Parser(prog="logcore", description="Apache Kafka's log, as a library and a command.", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"logcore {logcore.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, declare=functools.partial(_declare_command, name))
    return parser


def _declare_command(name: str, parser: argparse.ArgumentParser) -> None:
    importlib.import_module(f"logcore.cli.{name}").add_arguments(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `logcore` with `argv` (default: the process's own arguments) and return its exit code."""
    try:
        args = build_parser().parse_args(argv)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except LogcoreError as error:
        return _refuse(error)
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:  # files are read under StorageError, so this was stdout
        _abandon_stdout()
        return _refuse(StorageError("write", errno=error.errno or errno.EIO, path="standard output"))


def _refuse(error: LogcoreError) -> int:
    tell(f"{type(error).__name__}: {error}")
    return EXIT_USAGE


def _abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere: it would fail once more, with a traceback."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)
