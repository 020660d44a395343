"""Signal handlers that raise in the middle of a call, wherever that is."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from logcore import Log, open_log
from logcore.errors import StorageError
from tests.logs import Partition, batch

ROWS = [(b"k%d" % number, b"v") for number in range(3)]
SETTINGS = {"internal.segment.bytes": 400, "index.interval.bytes": 100, "segment.index.bytes": 1200}


class Interrupt(BaseException):
    """What a signal handler raises."""


def interrupted(work: Callable[[], object], number: int) -> bool:
    """Do `work`, and raise Interrupt at the `number`-th line of the engine. Says whether it came that far."""
    lines = itertools.count(1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if f"{os.sep}log{os.sep}" not in path or path.endswith("disk.py"):
            return None

        def trace_line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and next(lines) == number:
                raise Interrupt
            return trace_line

        return trace_line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def offsets(log: Log) -> list[int]:
    return [record.offset for record in log.read(log.log_start_offset)]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda log: log.append(ROWS), {3, 6}),
        (lambda log: log.append(ROWS, producer_id=1, producer_epoch=0, base_sequence=0), {3, 6}),
        (lambda log: log.append([(b"k", b"v" * 300)] * 3), {3, 6}),
        (lambda log: log.roll(), {3}),
        (lambda log: log.flush(), {3}),
        (lambda log: log.truncate_to(1), {0, 3}),
    ],
    ids=["append", "idempotent", "rolls", "roll", "flush", "truncate"],
)
def test_a_change_that_is_interrupted_is_done_or_not_or_ends_the_log(
    tmp_path: Path, change: Callable[[Log], object], left: set[int]
) -> None:
    for number in itertools.count(1, 13):  # every line was tried once; it takes a minute
        path = tmp_path / str(number) / "orders-0"
        log = open_log(path, config=SETTINGS)
        log.append(ROWS)
        was_interrupted = interrupted(lambda log=log: change(log), number)  # type: ignore[misc]
        try:
            result = log.append(ROWS)
        except StorageError as error:
            assert "after a failed" in str(error)
            with pytest.raises(StorageError):
                log.close()
        else:
            found = offsets(log)
            assert found[-3:] == list(range(result.first_offset, result.last_offset + 1))
            assert len(found) - 3 in left
            log.close()
            with open_log(path, config=SETTINGS) as log:
                assert not log.recovery
                assert offsets(log) == found
        with open_log(path, config=SETTINGS) as log:
            assert offsets(log) == sorted(set(offsets(log)))
        if not was_interrupted:
            break


def test_a_flush_that_did_not_end_is_done_again_by_the_next(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    log = partition.log
    log.append_batches(batch(0), leader_epoch=0, now_ms=0)
    begun = log.begin_flush()
    again = log.begin_flush()
    assert begun.files
    assert begun.directories
    assert (again.files, again.directories) == (begun.files, begun.directories)
    assert log.is_dirty
    log.end_flush(again, 0)
    assert not log.is_dirty
    done = log.begin_flush()
    assert (done.files, done.directories) == ([], [])
    log.end_flush(begun, 0)
    log.end_flush(done, 0)
    assert log.recovery_point == 1
    partition.close()
