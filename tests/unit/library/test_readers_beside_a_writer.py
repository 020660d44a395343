"""Four processes follow a log while another one appends, rolls, deletes, compacts or truncates: a minute with
LOGCORE_FULL=1.

A reader process checks as it goes and prints what it saw as its last line. Values tell what they are: key, the number
of the append, and the offset they were given, so that a torn batch, a wrong offset or an old value is seen at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import logcore
from logcore.log.readonly import ReadOnlyLog
from tests.conftest import FULL, SHORT

SECONDS = 60.0 if FULL else 1.0 if SHORT else 2.0
READERS = 4

READER = """if True:
    import hashlib, json, sys, logcore
    from logcore.errors import LogTruncatedError, OffsetOutOfRangeError
    path, isolation = sys.argv[1:3]
    seen, last, gaps, restarts, truncated = 0, -1, [], 0, 0
    latest, kept = {}, []
    with logcore.open_log(path, read_only=True) as log:
        print("open", flush=True)
        offset = 0
        while True:
            try:
                for record in log.follow(offset, isolation=isolation, timeout=20):
                    assert record.offset > last, (record.offset, last)
                    generation, written = record.value.split(b":")
                    assert int(written) == record.offset, record
                    if record.offset != last + 1:
                        gaps.append((last + 1, record.offset))
                    last, offset = record.offset, record.offset + 1
                    seen += 1
                    if record.key == b"end":
                        break
                    latest[record.key.decode()] = record.offset
                    kept.append((record.offset, int(generation), record.key))
                else:
                    sys.exit("no end")
                break
            except LogTruncatedError as error:
                truncated += 1
                offset, last = error.offset, error.offset - 1
                while kept and kept[-1][0] >= offset:
                    kept.pop()
            except OffsetOutOfRangeError:
                restarts += 1
                offset = max(log.log_start_offset, offset)
                last = offset - 1
    digest = hashlib.sha256(repr(kept).encode()).hexdigest()
    found = {"seen": seen, "gaps": gaps, "latest": latest, "restarts": restarts, "truncated": truncated}
    print(json.dumps(found | {"digest": digest, "kept": len(kept)}))
"""


def readers(path: Path) -> list[subprocess.Popen[str]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(path), "read_committed" if n % 2 else "read_uncommitted"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(READERS)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "open\n"
    return started


def results(started: list[subprocess.Popen[str]]) -> list[dict[str, object]]:
    found = []
    for one in started:
        out, errors = one.communicate(timeout=120)
        assert one.returncode == 0, out + errors
        found.append(json.loads(out.splitlines()[-1]))
    return found


def append(log: logcore.Log, rng: random.Random, generation: int) -> None:
    first = log.log_end_offset
    count = rng.choice((1, 3, 50, 400))
    rows = [(b"k%d" % rng.randrange(30), b"%d:%d" % (generation, first + n)) for n in range(count)]
    assert log.append(rows, compression=rng.choice(("none", "none", "lz4", "zstd"))).first_offset == first


def finish(log: logcore.Log) -> None:
    log.append([(b"end", b"0:%d" % log.log_end_offset)])
    log.flush()


def opened(path: Path, **settings: object) -> logcore.Log:
    return logcore.open_log(path, config={"internal.segment.bytes": 30_000, "file.delete.delay.ms": 50, **settings})


def test_a_log_that_is_appended_to_and_rolled_is_read_without_a_gap(tmp_path: Path) -> None:
    rng = random.Random(1)
    with opened(tmp_path / "orders-0") as log:
        started = readers(tmp_path / "orders-0")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            append(log, rng, 0)
            if rng.random() < 0.02:
                log.roll()
        finish(log)
        for found in results(started):
            assert found["gaps"] == []
            assert found["seen"] == log.log_end_offset
            assert (found["restarts"], found["truncated"]) == (0, 0)


def test_what_is_missing_beside_deletion_was_deleted(tmp_path: Path) -> None:
    rng = random.Random(2)
    with opened(tmp_path / "orders-0") as log:
        started = readers(tmp_path / "orders-0")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            append(log, rng, 0)
            if rng.random() < 0.05:
                log.delete_records(rng.randrange(log.log_start_offset, log.log_end_offset + 1))
        finish(log)
        for found in results(started):
            assert found["gaps"] == []
            assert found["truncated"] == 0


def test_beside_compaction_the_last_value_of_every_key_is_seen(tmp_path: Path) -> None:
    rng = random.Random(3)
    with opened(tmp_path / "orders-0", **{"cleanup.policy": "compact"}) as log:
        started = readers(tmp_path / "orders-0")
        until = time.monotonic() + SECONDS
        compactions = 0
        while time.monotonic() < until:
            append(log, rng, 0)
            if rng.random() < 0.03:
                log.roll()
                compactions += log.compact() is not None
        finish(log)
        assert compactions > 0
        latest = {record.key.decode(): record.offset for record in log.read(0) if record.key != b"end"}
        for found in results(started):
            # A reader that was told to begin again somewhere may have been; it has seen the last value all the same.
            assert found["latest"] == latest


def test_beside_appends_rolls_deletions_and_compactions_what_remains_was_seen(tmp_path: Path) -> None:
    rng = random.Random(5)
    with opened(tmp_path / "orders-0", **{"cleanup.policy": "compact"}) as log:
        started = readers(tmp_path / "orders-0")
        until = time.monotonic() + SECONDS
        compactions = deletions = 0
        while time.monotonic() < until:
            append(log, rng, 0)
            if rng.random() < 0.02:
                log.delete_records(rng.randrange(log.log_start_offset, log.log_end_offset + 1))
                deletions += 1
            if rng.random() < 0.03:
                log.roll()
                compactions += log.compact() is not None
        finish(log)
        assert compactions > 0
        assert deletions > 0
        latest = {record.key.decode(): record.offset for record in log.read() if record.key != b"end"}
        for found in results(started):
            seen = found["latest"]
            assert isinstance(seen, dict)
            assert {key: seen.get(key) for key in latest} == latest
            assert found["truncated"] == 0


def test_beside_truncation_there_is_an_error_and_never_a_mix(tmp_path: Path) -> None:
    rng = random.Random(4)
    with opened(tmp_path / "orders-0") as log:
        started = readers(tmp_path / "orders-0")
        until = time.monotonic() + SECONDS
        generation = 0
        while time.monotonic() < until:
            append(log, rng, generation)
            if rng.random() < 0.03:
                log.truncate_to(max(log.log_end_offset - rng.randrange(600), 0))
                generation += 1
        finish(log)
        found = results(started)
        assert generation > 0
        # Who forgets what it was told is gone has just what the log has: nothing old among the new, and nothing twice.
        kept = [(one.offset, int((one.value or b"").split(b":")[0]), one.key) for one in log.read(0)][:-1]
        for one in found:
            assert one["kept"] == len(kept)
            assert one["digest"] == hashlib.sha256(repr(kept).encode()).hexdigest()


def test_threads_that_share_a_reader_look_at_the_disk_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, met = threading.Semaphore(1), []
    find_end = ReadOnlyLog._find_end

    def look(log: ReadOnlyLog) -> None:
        if not inside.acquire(blocking=False):
            met.append(log)
            return
        try:
            find_end(log)
            os.sched_yield()
        finally:
            inside.release()

    with (
        logcore.open_log(tmp_path / "orders-0") as log,
        logcore.open_log(tmp_path / "orders-0", read_only=True) as reader,
    ):
        log.append([(b"k", b"v")])
        monkeypatch.setattr(ReadOnlyLog, "_find_end", look)
        readers = [threading.Thread(target=lambda: [list(reader.read(0)) for _ in range(50)]) for _ in range(4)]
        for one in readers:
            one.start()
        for one in readers:
            one.join()
    assert not met
