"""Timers that are cancelled before they are due, beside Python's own way: heapq with lazy deletion.

The cases of bench/bench_timers.py, which says what they are and what the limit is. `rest()` comes before each `run()`,
off the clock.
"""

import heapq
import random
from collections import deque
from itertools import count
from typing import Any

from logcore._timingwheel import TimingWheel

TIMEOUT_MS_MAX = 60_000
STEPS = 10_000  # timers of one measurement, at most as many as are pending
FEW, MANY = 10_000, 1_000_000

rng = random.Random(7)
DELAYS = [rng.randrange(1, TIMEOUT_MS_MAX) for _ in range(STEPS)]


class Heap:
    """Timers by heapq with lazy deletion, as its documentation recommends."""

    def __init__(self, start_ms: int) -> None:
        self.heap: list[list[Any]] = []
        self.number = count()

    def add(self, deadline_ms: int, payload: object) -> list[Any]:
        entry = [deadline_ms, next(self.number), payload]
        heapq.heappush(self.heap, entry)
        return entry

    @staticmethod
    def cancel(entry: list[Any]) -> None:
        entry[2] = None

    def advance(self, now_ms: int) -> list[Any]:
        due, heap = [], self.heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            if entry[2] is not None:
                due.append(entry[2])
        return due


class CancelledAtOnce:
    """A timer is added and cancelled, beside `pending` others."""

    def __init__(self, kind: "type[TimingWheel[str]] | type[Heap]", pending: int) -> None:
        self.timers: Any = kind(0)
        # A deque, because a list of a million would be copied when it grows, in the midst of a measurement.
        self.held: deque[Any] = deque(
            self.timers.add(rng.randrange(1, TIMEOUT_MS_MAX), "payload") for _ in range(pending)
        )

    def run(self) -> None:
        add = self.timers.add
        if isinstance(self.timers, Heap):
            for delay in DELAYS:
                add(delay, "payload")[2] = None
        else:
            for delay in DELAYS:
                add(delay, "payload").cancel()

    def rest(self) -> None:
        """What a heap has kept of the measurement goes, or the next one would find another heap."""
        if isinstance(self.timers, Heap):
            self.timers.heap = [entry for entry in self.timers.heap if entry[2] is not None]
            heapq.heapify(self.timers.heap)


class CancelledAsTheOldest(CancelledAtOnce):
    """A timer is added, and the oldest of `pending` is cancelled."""

    def rest(self) -> None:
        super().rest()
        self.oldest = [self.held.popleft() for _ in range(STEPS)]

    def run(self) -> None:
        add, keep = self.timers.add, self.held.append
        if isinstance(self.timers, Heap):
            for entry, delay in zip(self.oldest, DELAYS, strict=True):
                entry[2] = None
                keep(add(delay, "payload"))
        else:
            for timer, delay in zip(self.oldest, DELAYS, strict=True):
                timer.cancel()
                keep(add(delay, "payload"))


class BrokersSecond(CancelledAtOnce):
    """`pending` requests a second, each answered after one second; the clock goes on every ten milliseconds."""

    now_ms = 0

    def __init__(self, kind: "type[TimingWheel[str]] | type[Heap]", pending: int) -> None:
        super().__init__(kind, pending)
        while self.now_ms < TIMEOUT_MS_MAX:  # until as much is popped as is marked
            self.rest()
            self.run()

    def rest(self) -> None:
        self.oldest = [self.held.popleft() for _ in range(STEPS)]

    def run(self) -> None:
        timers, keep, each = self.timers, self.held.append, (len(self.held) + STEPS) // 100
        add, is_heap = timers.add, isinstance(timers, Heap)
        for first in range(0, STEPS, each):
            self.now_ms += 10
            now_ms = self.now_ms
            timers.advance(now_ms)
            for old, delay in zip(self.oldest[first : first + each], DELAYS[first : first + each], strict=True):
                if is_heap:
                    old[2] = None
                else:
                    old.cancel()
                keep(add(now_ms + delay, "payload"))
