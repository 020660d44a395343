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
import statistics
import time

import pytest

from logcore._timingwheel import TimingWheel
from logcore.bench.measure import pinned
from logcore.bench.timers import FEW, MANY, STEPS, BrokersSecond, CancelledAsTheOldest, CancelledAtOnce, Heap

ROUNDS = 21

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
