"""The `logcore` command: a view of the API, nothing more.

Reading order:

    command.py    main(): the parser, the exit codes, and how an error becomes one line
    dump.py       `logcore dump FILE`: batches and records of a log segment or any file of batches
    bench.py      `logcore bench NAME`: finds benchmarks by entry point; what a benchmark must offer
    _reader.py    a file as a run of batches, in bounded memory; damage, partial ends and zeros told apart
    _printers.py  what `dump` found, as text for people or as JSON lines for programs
    _progress.py  the progress bar

A subcommand is one module with `add_arguments(parser)`, which also sets the parser's default `run`: a function that
takes the parsed arguments and returns the exit code.
"""

from logcore.cli.command import main

__all__ = ["main"]
