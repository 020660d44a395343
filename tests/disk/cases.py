"""crash_cases(): run a workload, kill it at each of its operations, and hand out what is left.

How a test uses it:

    def workload(disk, noted):                       # the same calls each time it is run
        log = open_log(disk, "/data/orders-0")
        for n in range(3):
            noted.append(log.append([record(n)]))    # what was promised, as far as it came
            log.flush()

    for case in crash_cases(workload, seed=1):
        with case:                                   # a failure prints how to get this case again
            log = open_log(case.disk, "/data/orders-0")
            assert kept(log) >= set(case.noted)

The workload runs once to be counted, and then once for each point where it dies. Names begin to be durable with
sync_directory(), also those of the directories above: a test that is not about that begins with a `start` on which they
were made, and settle() called.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import Any

from tests.disk.crash import CrashDisk, Crashed, CrashState, Operation
from tests.disk.damage import Order

Workload = Callable[[CrashDisk, list[Any]], object]


@dataclass
class CrashCase:
    """What is left of a workload that died. As a context manager, a failure inside prints how to get here again."""

    disk: CrashDisk
    noted: list[Any]  # what the workload has put there before it died
    point: int  # the operations that happened
    number: int  # of the disks at this point, from 0
    seed: int | str
    operations: Sequence[Operation] = field(repr=False)
    state: CrashState | None  # None: only the process died

    @property
    def is_killed(self) -> bool:
        """Whether only the process died, and the machine lives."""
        return self.state is None

    def __str__(self) -> str:
        where = f"in {self.operations[-1]}" if len(self.operations) > self.point else "after the last one"
        return (
            f"crash_cases(…, seed={self.seed!r}, only=({self.point}, {self.number})): died after {self.point} "
            f"operations, {where}; {'killed' if self.state is None else self.state}"
        )

    def __enter__(self) -> CrashCase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, GeneratorExit):
            print(self, file=sys.stderr)


def crash_cases(
    workload: Workload,
    *,
    seed: int | str,
    start: CrashDisk | None = None,
    points: int | None = None,
    states: int = 4,
    extremes: bool | None = None,
    order: Order | None = None,
    garbles: bool = True,
    only: tuple[int, int] | None = None,
) -> Iterator[CrashCase]:
    """Run a workload, kill it, and hand out what is left.

    workload: is handed a disk and a list to note what it has been promised; must do the same each time
    start: the disk that it begins with, of which it gets copies; an empty one if there is none
    points: at how many of its operations it dies, drawn; None for at each one, and after the last
    states: how many disks are drawn at each point, behind that of a killed process
    extremes: whether those at the edges are there too; None for: if it dies at each operation
    only: (point, number) of a case that was printed: that one alone
    """
    start = CrashDisk() if start is None else start
    whole = start.copy()
    workload(whole, [])
    count = len(whole.operations)
    chosen: Sequence[int] = range(count + 1)
    if only is not None:
        chosen = [only[0]]
    elif points is not None:
        chosen = sorted(random.Random(f"{seed}").sample(chosen, min(points, count + 1)))
    if extremes is None:
        extremes = points is None
    for point in chosen:
        rng = random.Random(f"{seed}.{point}")
        disk = start.copy(rng=rng, crash_after=point)
        noted: list[Any] = []
        with suppress(Crashed):
            workload(disk, noted)
        if disk.is_dead != (point < count) or disk.operations != whole.operations[: point + 1]:
            raise AssertionError(f"the workload does other operations when it is run again: {disk.operations[-1:]}")
        left: Iterator[CrashState | None] = chain(
            [None],
            disk.extreme_states(rng) if extremes else [],
            disk.crash_states(rng, states, order=order, garbles=garbles),
        )
        for number, state in enumerate(left):
            if only is None or number == only[1]:
                found = disk.killed() if state is None else state.disk
                yield CrashCase(found, noted.copy(), point, number, seed, disk.operations, state)
