"""A writer process that is killed: an append that it was told to have happened is there afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import logcore

FULL = os.environ.get("LOGCORE_FULL") == "1"
SHORT = os.environ.get("LOGCORE_SHORT") == "1"
KILLS = 500 if FULL else 3 if SHORT else 20
KILLS_A_LOG = 10  # then it begins with an empty one

CONFIG = {"internal.segment.bytes": 20_000, "index.interval.bytes": 500, "segment.index.bytes": 1200}

# Appends as fast as it can, and writes the last offset of each append to its standard output when it has returned.
WRITER = """
import os, random, sys
import logcore
path, seed, config = sys.argv[1], sys.argv[2], eval(sys.argv[3])
rng = random.Random(seed)
with logcore.open_log(path, config=config) as log:
    while True:
        first = log.log_end_offset
        count = rng.choice([1, 1, 3, 40])
        records = [(b"%d" % offset, b"v%d" % offset * rng.choice([1, 50])) for offset in range(first, first + count)]
        result = log.append(records, compression=rng.choice(["none", "zstd"]))
        os.write(1, b"%d\\n" % result.last_offset)
        lot = rng.random()
        if lot < 0.02:
            log.flush()
        elif lot < 0.04:
            log.roll()
"""


def _kill_one(path: Path, seed: int) -> int:
    """Start a writer, kill it after a drawn number of appends; returns the last offset that it has reported, or -1."""
    command = [sys.executable, "-c", WRITER, str(path), str(seed), repr(CONFIG)]
    wanted = random.Random(seed).choice([1, 5, 50, 300])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        told = b""
        while told.count(b"\n") < wanted:
            more = os.read(writer.stdout.fileno(), 65536)
            assert more, "the writer ended by itself"
            told += more
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read()
    assert writer.returncode == -signal.SIGKILL
    whole = told[: told.rfind(b"\n")].split(b"\n")
    return int(whole[-1])


def test_an_append_that_returned_is_there_after_its_process_was_killed(tmp_path: Path) -> None:
    for number in range(KILLS):
        path = tmp_path / f"log{number // KILLS_A_LOG}" / "orders-0"
        last = _kill_one(path, number)
        with logcore.open_log(path, config=CONFIG) as log:
            assert not log.recovery.was_clean
            assert log.recovery.outcome in ("clean", "torn"), (number, log.recovery)
            assert log.log_end_offset > last, (number, log.recovery)
            offset = -1
            for offset, record in enumerate(log.read(0)):
                assert (record.offset, record.key) == (offset, b"%d" % offset)
                assert record.value is not None
                assert record.value.startswith(b"v%d" % offset)
            assert offset + 1 == log.log_end_offset
