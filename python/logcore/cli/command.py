"""The command itself: one parser, one table of subcommands, one way for an error to reach the user.

A subcommand raises LogcoreError for what the user or the operating system did wrong; it becomes one line on stderr,
with the error's class, and exit code 2; or 1 for damage that it cannot go on behind. What else a subcommand *found* is
its own to print and to return. Output that cannot be written is exit code 2 too, however little of it there was.
"""

import argparse
import contextlib
import errno
import functools
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TextIO

import logcore
from logcore import CorruptionError, LogcoreError, StorageError, UsageError

EXIT_DAMAGE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + 2  # as a shell reports SIGINT
EXIT_BROKEN_PIPE = 128 + 13  # and SIGPIPE: neither clean nor damaged, the reader just went away

# name -> one line for `logcore --help`; the module logcore.cli.<name> is imported when it is asked for
COMMANDS = {
    "dump": "print what is in any file of a log or a log root, or sum up a directory",
    "verify": "find every damage in a partition or a log root; mend what can be mended",
    "cat": "print the records of a partition, as lines or JSON; follow it",
    "append": "append lines or JSON to a partition",
    "compact": "keep of each key only the latest record",
    "retain": "delete what retention lets go",
    "export": "write a partition to a Parquet, Arrow or JSON-lines file",
    "bench": "measure logs and the codec on this machine, and on your data",
}

EPILOG = """\
exit codes: 0 done, 1 damage was found, 2 wrong use or a file that cannot be read

examples:
  logcore append data/numbers-0 < lines
  logcore cat data/numbers-0 --from 990
  logcore verify data
  logcore dump data/numbers-0/00000000000000000000.log
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

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse swallows the OSError of a full disk, and would end in success.
        (file or sys.stdout).write(message)


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
    """One line to stderr, after everything that was printed before it. Where it cannot be written it is lost."""
    sys.stdout.flush()
    try:
        print(one_line(f"logcore: {text}"), file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


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
    with _standard_streams():
        try:
            try:
                status = _run(argv)
            except LogcoreError as error:
                tell(f"{type(error).__name__}: {error}")
                status = EXIT_DAMAGE if isinstance(error, CorruptionError) else EXIT_USAGE
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            _abandon(sys.stdout)
            return EXIT_BROKEN_PIPE
        except OSError as error:  # files are read under StorageError, so this was stdout
            _abandon(sys.stdout)
            refused = StorageError("write", errno=error.errno or errno.EIO, path="standard output")
            tell(f"{type(refused).__name__}: {refused}")
            return EXIT_USAGE
        except MemoryError as error:
            tell(f"MemoryError: {error}" if str(error) else "MemoryError")
            return EXIT_USAGE


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
    except SystemExit:  # argparse, after --help and --version
        return 0
    status: int = args.run(args)
    return status


@contextlib.contextmanager
def _standard_streams() -> Iterator[None]:
    """Make the streams such that whoever prints need not think of them.

    Python has None in place of one that was closed before it began. A closed stderr becomes one that keeps nothing; a
    closed stdout one whose first write fails. é in a record is no reason to fail on an ASCII terminal.
    """
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:
            stack.enter_context(contextlib.redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        if sys.stdout is None:
            stack.enter_context(contextlib.redirect_stdout(_Closed()))
        elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(_buffered(sys.stdout))))
        elif hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield


@contextlib.contextmanager
def _buffered(stream: TextIO) -> Iterator[TextIO]:
    """`stream` with a buffer, that PYTHONUNBUFFERED took from it, as many a container's image does.

    A write for each record is slow, and what reads them from a pipe as they come makes a batch of each.
    """
    buffering = 1 if stream.isatty() else -1
    at = stream.fileno()  # a copy of it might become standard input, where that was closed
    with open(at, "w", buffering, encoding=stream.encoding, errors="backslashreplace", closefd=False) as out:
        try:
            yield out
        finally:
            try:
                out.flush()
            except OSError:  # an interrupt left something in it, and nobody reads that any more
                _abandon(out)


class _Closed(io.TextIOBase):
    """A stdout that was closed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _abandon(stream: TextIO) -> None:
    """Let the interpreter's last flush of `stream` go nowhere: it would fail once more, with a traceback."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)
