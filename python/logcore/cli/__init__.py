"""The `logcore` command: a view of the API, nothing more.

Reading order:

    command.py    main(): the parser, the exit codes, and how an error becomes one line
    dump.py       `logcore dump PATH`: batches and records of a log segment or any file of batches; by name also
    _files.py     every other file of a log or a log root, and directories
    verify.py     `logcore verify DIR`: damage, and its repair; what it prints is found by logcore.log.verify
    cat.py        `logcore cat DIR`: records out
    append.py     `logcore append DIR`: records in
    compact.py    `logcore compact DIR`
    retain.py     `logcore retain DIR`
    export.py     `logcore export DIR --to FILE`: Parquet, Arrow, JSON lines
    _logs.py      what the commands on logs share: settings, offsets, times, records as JSON
    bench.py      `logcore bench NAME`: finds benchmarks by entry point; what a benchmark must offer
    _reader.py    a file as a run of batches, in bounded memory; damage, partial ends and zeros told apart
    _printers.py  what `dump` found, as text for people or as JSON lines for programs
    _progress.py  the progress bar

A subcommand is one module with `add_arguments(parser)`, which also sets the parser's default `run`: a function that
takes the parsed arguments and returns the exit code.
"""

from logcore.cli.command import main

__all__ = ["main"]
