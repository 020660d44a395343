"""What does a timer cost that is cancelled before it is due, and does it matter how many others are pending?

Nearly all timers of a broker are such: a request is answered long before its timeout. The limit is CPython's: two
method calls of 12 ns, an object made and freed for 10 ns, and a dozen loads and stores, most of them in the cache: 40
ns. Python's own way is heapq with lazy deletion: push an entry, and mark it to cancel it; whoever pops it later drops
it. That is a list of three objects and a sift of two or three comparisons of 40 ns, 200 ns in all, and at the end a pop
of log2(n) levels through memory that is in no cache: microseconds. The bars: a third of heapq's time, and at 1,000,000
pending at most 1.5 times the time of one at 10,000.

`cancelled at once` and `cancelled as the oldest` have a clock that stands still, so heapq never pays for its pops. The
oldest of all pending has left the caches, with its neighbours: some 40 ns more, which do not depend on how many are
pending either. In `a broker's second`, 10,000 requests a second are answered after one second, with timeouts of up to a
minute; the clock goes on, and what was marked is popped when its time comes. That is the comparison that counts.

    python -m pytest bench/bench_timers.py          each by itself
    python bench/bench_timers.py                    all in turn, medians and the ratios asked for; for noisy machines
"""

import gc
import heapq
import random
import statistics
import time
from collections import deque
from itertools import count

import pytest

from logcore._timingwheel import TimingWheel
from logcore.bench.measure import pinned

TIMEOUT_MS_MAX = 60_000
STEPS = 10_000  # timers of one measurement, at most as many as are pending
FEW, MANY = 10_000, 1_000_000
ROUNDS = 21

rng = random.Random(7)
DELAYS = [rng.randrange(1, TIMEOUT_MS_MAX) for _ in range(STEPS)]


class Heap:
    """Timers by heapq with lazy deletion, as its documentation recommends."""

    def __init__(self, start_ms: int) -> None:
        self.heap: list[list] = []
        self.number = count()

    def add(self, deadline_ms: int, payload: object) -> list:
        entry = [deadline_ms, next(self.number), payload]
        heapq.heappush(self.heap, entry)
        return entry

    @staticmethod
    def cancel(entry: list) -> None:
        entry[2] = None

    def advance(self, now_ms: int) -> list:
        due, heap = [], self.heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            if entry[2] is not None:
                due.append(entry[2])
        return due


class CancelledAtOnce:
    """A timer is added and cancelled, beside `pending` others."""

    def __init__(self, kind: type, pending: int) -> None:
        self.timers = kind(0)
        # A deque, because a list of a million would be copied when it grows, in the midst of a measurement.
        self.held = deque(self.timers.add(rng.randrange(1, TIMEOUT_MS_MAX), "payload") for _ in range(pending))

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

    def __init__(self, kind: type, pending: int) -> None:
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


QUESTIONS = {
    "cancelled at once": CancelledAtOnce,
    "cancelled as the oldest": CancelledAsTheOldest,
    "a broker's second": BrokersSecond,
}
CASES = [(question, pending) for question in QUESTIONS for pending in (FEW, MANY)]
CASES.pop()  # Nobody asks for a million requests a second.


@pytest.mark.parametrize("kind", [TimingWheel, Heap], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("question", "pending"), CASES)
def test_timers(benchmark, question, pending, kind):
    work = QUESTIONS[question](kind, pending)
    benchmark.group = f"timers: {question}, {pending} pending, {STEPS} timers"
    with pinned():
        benchmark.pedantic(work.run, setup=work.rest, rounds=ROUNDS)
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["nanoseconds_per_timer"] = benchmark.stats.stats.median / STEPS * 1e9


def measured(works: list) -> list[float]:
    """Nanoseconds a timer: the median of rounds in which each takes its turn."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, times in zip(works, taken, strict=True):
            work.rest()
            start = time.process_time()
            work.run()
            times.append((time.process_time() - start) / STEPS * 1e9)
    return [statistics.median(times) for times in taken]


def main() -> None:
    gc.disable()  # as in the other benchmarks; its walks over the lists of a heap would only make that slower
    print(f"{'':26}{'pending':>10}{'wheel':>10}{'heapq':>10}{'heapq/wheel':>14}")
    with pinned():
        for question, make in QUESTIONS.items():
            sizes = [pending for asked, pending in CASES if asked == question]
            found = measured([make(kind, pending) for pending in sizes for kind in (TimingWheel, Heap)])
            for pending, wheel, heap in zip(sizes, found[::2], found[1::2], strict=True):
                print(f"{question:26}{pending:>10}{wheel:>7.0f} ns{heap:>7.0f} ns{heap / wheel:>14.1f}")
            if len(sizes) == 2:
                print(f"{'':26}{'':>10}{found[2] / found[0]:>8.2f} x{found[3] / found[1]:>8.2f} x")


if __name__ == "__main__":
    main()
