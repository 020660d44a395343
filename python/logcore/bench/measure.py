"""The clock: tasks in interleaved rounds, on one core.

A round gives every task one short slice of time, A B C A B C …, so that what disturbs the machine for a while disturbs
all of them alike. Two readings come out of the rounds:

    rate    from the task's best slice: what disturbs can only slow down
    ratio   of two tasks: the median over the rounds of their quotient within one round

Time is the processor time of the process. Nearly everything here is one thread that never waits, so on a quiet machine
that is wall time; on a busy one it is what wall time would be without the neighbours, and `cpu` tells how far the two
were apart. What waits for a disk is told by the wall clock. The garbage collector rests meanwhile, and the process
stays on one core where the system allows that.
"""

import contextlib
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from logcore import InvariantError

SLICE_SECONDS = 0.004
ROUNDS_MIN = 3


@dataclass(frozen=True)
class Task:
    """Something to time: `calls` in turn, of which call i treats `records[i]` records.

    prepare: called before each slice, off the clock; a slice is then one call, so that all who append to something have
        appended the same
    waits: for a disk, so that time is that of the wall clock
    """

    operation: str
    by: str
    calls: Sequence[Callable[[], object]]
    records: Sequence[int]
    prepare: Callable[[], object] | None = None
    waits: bool = False

    def __post_init__(self) -> None:
        if not self.calls or len(self.calls) != len(self.records):
            raise InvariantError(f"{self.operation}: {len(self.calls)} calls, {len(self.records)} counts of records")


@dataclass
class Timing:
    """What the rounds gave for one task."""

    task: Task
    seconds_per_record: list[float] = field(default_factory=list)  # one a round
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def records_per_second(self) -> float:
        """The rate of the best slice."""
        return 1 / min(self.seconds_per_record)

    @property
    def cpu(self) -> float:
        """Processor time by wall time; below one, something else had the core."""
        return self.cpu_seconds / self.wall_seconds

    @property
    def spread(self) -> float:
        """The median slice by the best one: 1 on a machine that nothing disturbs."""
        return statistics.median(self.seconds_per_record) / min(self.seconds_per_record)

    def speed_against(self, other: "Timing") -> float:
        """How many times as fast as `other`, which was timed in the same rounds."""
        pairs = zip(other.seconds_per_record, self.seconds_per_record, strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def measure(
    tasks: Sequence[Task],
    *,
    seconds: float,
    rounds: int | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> list[Timing]:
    """Time `tasks` for about `seconds` each, or for exactly `rounds` rounds; `tell` hears which share is done."""
    timings = [Timing(task) for task in tasks]
    slices = [_Slice(timing) for timing in timings]
    start = time.perf_counter()
    deadline = start + seconds * len(tasks)
    done = 0
    with _collector_resting():
        while True:
            for one in slices:
                one.run()
            done += 1
            now = time.perf_counter()
            if rounds is not None:
                tell(done / rounds)
                if done >= rounds:
                    return timings
            else:
                tell(min(1.0, (now - start) / (deadline - start) if deadline > start else 1.0))
                if done >= ROUNDS_MIN and now >= deadline:
                    return timings


class _Slice:
    """The place of a task in each round: how many calls fill a slice, and which comes next."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._next = 0
        self._count = 1
        self._turn()  # the first calls pay for pages, caches and lazy imports
        _, elapsed, _ = self._turn()
        if timing.task.prepare is None:
            self._count = max(1, round(SLICE_SECONDS / elapsed))

    def run(self) -> None:
        wall, cpu, records = self._turn()
        self._timing.wall_seconds += wall
        self._timing.cpu_seconds += cpu
        self._timing.seconds_per_record.append((wall if self._timing.task.waits else cpu) / records)

    def _turn(self) -> tuple[float, float, int]:
        task = self._timing.task
        turn = [(self._next + step) % len(task.calls) for step in range(self._count)]
        calls = [task.calls[index] for index in turn]
        self._next = (turn[-1] + 1) % len(task.calls)
        if task.prepare is not None:
            task.prepare()
        cpu = time.process_time()
        start = time.perf_counter()
        for call in calls:
            call()
        wall = time.perf_counter() - start
        cpu = time.process_time() - cpu
        # A clock may be coarser than a call on a tiny input.
        return max(wall, 1e-9), max(cpu, 1e-9), sum(task.records[index] for index in turn)


@contextlib.contextmanager
def _collector_resting() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def pinned() -> Iterator[int | None]:
    """Stay on one core until the end of the block; gives its number, or None where that cannot be had."""
    if sys.platform != "linux":
        yield None
        return
    allowed = os.sched_getaffinity(0)
    core = max(allowed)  # interrupts tend to land on the first
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        yield None
        return
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)
