"""Golden transcripts: each *.txt beside this file is a session with the `logcore` command, and what it printed.

A file is a run of blocks, each in the same directory, which is empty at first:

    # What this shows.
    python
    write("a.log", encode_batch([(b"k", b"v")]))
    ----

    logcore dump a.log
    ----
    file "a.log" size_in_bytes=70
    …
    exit 0

Above `----` stand a command and comments, below it what was printed, stdout and stderr as they came, up to an empty
line. `python` runs the lines below it with logcore's names and those of `_Session.names`; `logcore … < FILE` gives
FILE as standard input. `pytest tests/scenario --rewrite` writes what is printed now; read the diff before you keep it.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import logcore
from logcore.cli import main

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


class _Session:
    """Runs the commands of one scenario in the current directory."""

    def __init__(self) -> None:
        self.names = {
            **{name: getattr(logcore, name) for name in logcore.__all__},
            "write": lambda name, *parts: Path(name).write_bytes(b"".join(parts)),
            "flip": _flip,
            "with_crc": _with_crc,
        }

    def run(self, command: list[str]) -> str:
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if command[0] == "python":
                exec(compile("\n".join(command[1:]), "scenario", "exec"), self.names)
            else:
                [line] = command
                program, *arguments = shlex.split(line)
                assert program == "logcore", f"unknown command {program!r}"
                with _stdin(arguments):
                    print("exit", main(arguments))
        return printed.buffer.getvalue().decode("utf-8")


@contextlib.contextmanager
def _stdin(arguments: list[str]) -> Iterator[None]:
    """Take `< FILE` from the end of `arguments` and make it the process's standard input."""
    if "<" not in arguments:
        yield
        return
    _, name = arguments[-2:]
    del arguments[-2:]
    saved = os.dup(0)
    with open(name, "rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def _flip(name: str, position: int, bits: int = 0x01) -> None:
    """Damage one byte of a file."""
    data = bytearray(Path(name).read_bytes())
    data[position] ^= bits
    Path(name).write_bytes(data)


def _with_crc(batch: bytes, position: int, new: bytes) -> bytes:
    """A batch with some bytes replaced and the checksum made right again: a writer's mistake, not the disk's."""
    changed = batch[:position] + new + batch[position + len(new) :]
    return changed[:17] + logcore.crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]


def replay(text: str) -> str:
    """`text` with what its commands print now."""
    session = _Session()
    blocks = []
    for block in re.split(r"\n{2,}", text.strip("\n")):
        above = block.partition("\n----")[0]
        command = [line for line in above.splitlines() if not line.startswith("#")]
        printed = session.run(command)
        assert "\n\n" not in printed, "a transcript cannot hold an empty line"
        blocks.append(f"{above}\n----\n{printed}")
    return "\n".join(blocks)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenario_prints_what_its_transcript_says(path, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    written = path.read_text("utf-8")
    printed = replay(written)
    if request.config.getoption("--rewrite"):
        path.write_text(printed, "utf-8")
    else:
        assert printed == written, "if this is what it should print: pytest tests/scenario --rewrite"


def test_a_wrong_transcript_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    right = 'python\nwrite("a", b"")\n----\n\nlogcore dump a\n----\nfile "a" size_in_bytes=0\nexit 0\n'
    assert replay(right) == right
    assert replay(right.replace("exit 0", "exit 1")) == right
