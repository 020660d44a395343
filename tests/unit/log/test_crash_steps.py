"""Every operation of each step that changes several files: the disk dies there, and all that it may leave recovers.

For each operation of the step: it does not happen, or it happens in part (a torn write, a rename or none), in both
orders in which names may become durable. Left are: all of it (the process died), the edges (nothing kept, all kept,
names without bytes, …), each choice of the names, and some drawn. What is checked: tests/crash/check.py.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from logcore.log.config import LogConfig
from tests.crash.check import check_state_of, is_beyond_telling
from tests.crash.workload import ROOT, Worker
from tests.disk.crash import EXTREMES, CrashDisk, Crashed
from tests.disk.damage import every_choice

FULL = os.environ.get("LOGCORE_FULL") == "1"
SHORT = os.environ.get("LOGCORE_SHORT") == "1"
DRAWN = 25 if FULL else 1  # of each order, at each operation
NAMES_MAX = 128 if FULL else 2
EXTREMES_MAX = 5 if FULL else 2
CHOICES_MAX = 4096 if FULL else 64  # of names, that the above are drawn from

SMALL = {"internal.segment.bytes": 600, "segment.index.bytes": 240, "index.interval.bytes": 100}
DELETE = LogConfig.of({**SMALL, "file.delete.delay.ms": 0})
PREALLOCATED = LogConfig.of({**SMALL, "preallocate": True})
COMPACT = LogConfig.of({**SMALL, "cleanup.policy": "compact", "delete.retention.ms": 0})

Step = Callable[[Worker], None]


def fill(worker: Worker) -> None:
    """A few segments, and a few records that are not flushed, of producers with open and aborted transactions."""
    for _ in range(2):
        for _ in range(2):
            worker.append()
            worker.append_transactional()
            worker.append_idempotent()
        worker.end_transaction()
        worker.flush()
        worker.end_transaction()
    worker.append()


def filled_again(worker: Worker) -> None:
    """The same, after a life that was closed: what lies before it is checkpointed."""
    fill(worker)
    worker.reopen()
    fill(worker)
    worker.checkpoint()
    worker.append()


def _cut_inside(worker: Worker) -> None:
    """To the middle of the log, some segments back."""
    worker.truncate_to(worker.log.log_end_offset // 2)


def _cut_fully(worker: Worker) -> None:
    worker.delete_before(worker.log.log_end_offset - 2)
    worker.truncate_to(1)


def _delete(worker: Worker) -> None:
    worker.delete_before(worker.log.log_end_offset - 3)


def _roll_full(worker: Worker) -> None:
    """A roll by an append, which goes into the new segment."""
    base_offset = worker.log.segments.active.base_offset
    while worker.log.segments.active.base_offset == base_offset:
        worker.append()


STEPS: dict[str, tuple[LogConfig, Step, Step]] = {
    "roll": (DELETE, filled_again, Worker.roll),
    "roll, preallocated": (PREALLOCATED, fill, Worker.roll),
    "roll by an append": (DELETE, fill, _roll_full),
    "truncate": (DELETE, filled_again, _cut_inside),
    "truncate, preallocated": (PREALLOCATED, fill, _cut_inside),
    "truncate everything": (DELETE, filled_again, _cut_fully),
    "delete records": (DELETE, filled_again, _delete),
    "compaction swap": (COMPACT, fill, Worker.compact_with),
    "snapshot, by a close": (DELETE, filled_again, Worker.close),
    "checkpoint": (DELETE, filled_again, Worker.checkpoint),
}


def _died(name: str, point: int | None, *, is_torn: bool) -> tuple[Worker, CrashDisk]:
    """The log after so many operations of the step; None for all of them."""
    config, prepare, step = STEPS[name]
    disk = CrashDisk(rng=random.Random(f"{name}.{point}") if is_torn else None)
    disk.make_directory(ROOT)
    disk.settle()
    worker = Worker(disk, random.Random(name), config)
    worker.open()
    prepare(worker)
    if point is not None:
        disk.volume.crash_after = len(disk.operations) + point
    with suppress(Crashed):
        step(worker)
    return worker, disk


def _operations(name: str) -> int:
    config, prepare, _ = STEPS[name]
    disk = CrashDisk()
    disk.make_directory(ROOT)
    disk.settle()
    worker = Worker(disk, random.Random(name), config)
    worker.open()
    prepare(worker)
    before = len(disk.operations)
    _, whole = _died(name, None, is_torn=False)
    return len(whole.operations) - before


def _left(disk: CrashDisk, rng: random.Random) -> Iterator[tuple[str, CrashDisk, bool]]:
    yield "killed", disk.killed(), True
    choices = list(itertools.islice(every_choice(disk.volume.changes, "names"), CHOICES_MAX))
    states = itertools.chain(
        (
            disk.crash_state(rng.getrandbits(48), files=files, names=names)
            for files, names in rng.sample(EXTREMES, EXTREMES_MAX)
        ),
        (
            disk.crash_state(rng.getrandbits(48), names=names)
            for names in rng.sample(choices, min(NAMES_MAX, len(choices)))
        ),
        disk.crash_states(rng, DRAWN, order="journal"),
        disk.crash_states(rng, DRAWN, order="names"),
    )
    for state in states:
        if not is_beyond_telling(state):
            yield str(state), state.disk, False


@pytest.mark.parametrize("name", STEPS)
def test_a_crash_at_any_operation_of_a_step_leaves_the_log_before_or_after_it(name: str) -> None:
    config = STEPS[name][0]
    count = _operations(name)
    assert count >= 5
    for point in range(0, count + 1, 5 if SHORT else 1):
        for is_torn in (False, True) if FULL else (point % 2 == 1,):
            worker, disk = _died(name, point, is_torn=is_torn)
            rng = random.Random(f"{name}.{point}.{is_torn}")
            for told, found, is_killed in _left(disk, rng):
                try:
                    check_state_of(
                        found, config, worker.expected, worker.attempt, worker.now_ms, rng, is_killed=is_killed
                    )
                except BaseException as error:
                    last = disk.operations[-1]
                    raise AssertionError(f"{name}, died at operation {point}, {last}: {error}\n{told}") from error
