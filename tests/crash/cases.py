"""One seed: a log that is used, dies, is recovered and checked, and used and killed again, up to three lives."""

from __future__ import annotations

import random
import sys
from contextlib import suppress

from tests.crash.check import check_state_of, is_beyond_telling
from tests.crash.workload import NOW_MS, ROOT, Expected, Worker, config_of
from tests.disk.crash import CrashDisk, Crashed, CrashState

STEPS_MAX = 60  # of one life
STATES = 4  # disks of each death: that of a killed process, and three of a dead machine


def run_seed(seed: int) -> int:
    """Returns how many disks were recovered and checked. A failure says where it was on its way."""
    rng = random.Random(seed)
    config = config_of(rng)
    disk = CrashDisk()
    if rng.random() < 0.5:
        disk.make_directory(ROOT)
        disk.settle()
    expected, now_ms, count = Expected(), NOW_MS, 0
    for life in range(rng.choice([1, 2, 3])):
        disk = disk.copy(rng=rng)
        worker = Worker(disk, rng, config, expected, now_ms)
        _live(worker, disk)
        left = []
        for number in range(STATES):
            state = _drawn(disk, rng) if number else None
            found = disk.killed() if state is None else state.disk
            kept = found.copy()
            try:
                after = check_state_of(
                    found, config, worker.expected, worker.attempt, worker.now_ms, rng, is_killed=state is None
                )
            except BaseException:
                _tell(worker, disk, life, number, state)
                raise
            left.append((kept, after))
            count += 1
        disk, expected = rng.choice(left)
        now_ms = worker.now_ms
    return count


def _drawn(disk: CrashDisk, rng: random.Random) -> CrashState:
    while True:
        state = disk.crash_state(rng.getrandbits(48))
        if not is_beyond_telling(state):
            return state


def _live(worker: Worker, disk: CrashDisk) -> None:
    """Open the log and work, and die in one of the next operations of a drawn step, or of opening, or not at all."""
    rng = worker.rng
    last = rng.choice([0, rng.randint(1, STEPS_MAX)])
    with suppress(Crashed):
        if not last:
            disk.volume.crash_after = rng.randint(0, 30)
        worker.open()
        for number in range(STEPS_MAX):
            if number == last:
                disk.volume.crash_after = len(disk.operations) + rng.randint(0, 10)
            worker.step()


def _tell(worker: Worker, disk: CrashDisk, life: int, number: int, state: CrashState | None) -> None:
    print(f"life {life}, disk {number}: {'killed' if state is None else state}", file=sys.stderr)
    print(f"did {', '.join(worker.done[-12:])}; died in {worker.attempt}", file=sys.stderr)
    print(f"last operations: {'; '.join(map(str, disk.operations[-12:]))}", file=sys.stderr)
    print(f"flushed to {worker.expected.flushed}, of {worker.expected.start} to {worker.expected.end}", file=sys.stderr)
