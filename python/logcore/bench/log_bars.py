"""The ratios that the project promises of its log, and whether they hold on this machine.

Ratios are medians over rounds, each of times within one round (measure.py). `at_least` is of speeds: how many times as
fast as another; `at_most` of times: how many times as long.

A record of a long log lies in memory that no cache of the processor holds, where a short log may lie in one. The bytes
cost more then, whoever reads them. So "no dearer in a log a hundred times as long" is held against pread(2) and CRC of
the same batches: our time may grow by a quarter more than that does.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from logcore.bench import log_sections as log
from logcore.bench import stores
from logcore.bench.measure import Timing
from logcore.bench.operations import LOGCORE

Key = tuple[str, str]  # operation, by
Timings = Mapping[Key, Timing]


@dataclass(frozen=True)
class LogBar:
    """Ours beside theirs. With `short`, what each takes is divided by what it takes there: how much it has grown."""

    ours: str
    theirs: Key
    at_least: float | None = None
    at_most: float | None = None
    short: str | None = None

    def ratio(self, timings: Timings) -> float | None:
        """Of speeds or of times, as the bar has it; None if a side was not measured."""
        pairs = [((self.ours, LOGCORE), self.theirs)]
        if self.short is not None:
            pairs.append(((self.short, LOGCORE), (self.short, self.theirs[1])))
        if not all(key in timings for pair in pairs for key in pair):
            return None
        times = [
            [
                ours / theirs
                for ours, theirs in zip(
                    timings[pair[0]].seconds_per_record, timings[pair[1]].seconds_per_record, strict=True
                )
            ]
            for pair in pairs
        ]
        quotients = times[0] if self.short is None else [a / b for a, b in zip(*times, strict=True)]
        return statistics.median(1 / one if self.at_least is not None else one for one in quotients)


@dataclass(frozen=True)
class LogVerdict:
    """A bar, and what was found."""

    bar: LogBar
    ratio: float

    @property
    def is_met(self) -> bool:
        """Whether the ratio is what the bar asks for."""
        if self.bar.at_least is not None:
            return self.ratio >= self.bar.at_least
        return self.bar.at_most is not None and self.ratio <= self.bar.at_most


BARS = (
    LogBar(log.APPEND_ROWS, (log.APPEND_ROWS, stores.SQLITE3), at_least=8),
    LogBar(log.APPEND_ROWS, (log.APPEND_ROWS, stores.LMDB), at_least=3),
    LogBar(log.READ_ROWS, (log.READ_ROWS, stores.SQLITE3), at_least=4),
    LogBar(log.APPEND_COLUMNS, (log.APPEND_COLUMNS, log.C_LOOP), at_least=0.7),
    LogBar(log.READ_COLUMNS, (log.READ_COLUMNS, log.C_LOOP), at_least=0.7),
    LogBar(log.APPEND_AND_FLUSH, (log.APPEND_AND_FLUSH, log.SYSTEM), at_most=1.2),
    LogBar(log.SMALL_POINT, (log.SMALL_POINT, stores.SQLITE3), at_least=1),
    LogBar(log.SMALL_POINT_LONG, (log.SMALL_POINT_LONG, log.C_LOOP), at_most=1.25, short=log.SMALL_POINT),
    LogBar(log.POINT, (log.POINT, log.C_LOOP), at_most=1.5),
    LogBar(log.POINT_LONG, (log.POINT_LONG, log.C_LOOP), at_most=1.5),
    LogBar(log.POINT_LONG, (log.POINT_LONG, log.C_LOOP), at_most=1.25, short=log.POINT),
    LogBar(log.COMPACT, (log.COPY, LOGCORE), at_least=0.5),
    LogBar(log.COMPACT_DISTINCT, (log.COPY, LOGCORE), at_least=0.5),
    LogBar(log.TIMERS, (log.TIMERS, log.HEAPQ), at_least=3),
    LogBar(log.TIMER_MANY, (log.TIMER_FEW, LOGCORE), at_most=1.5),
)


def verdicts(timings: Iterable[Timing]) -> Iterator[LogVerdict]:
    """Every bar whose sides were measured."""
    by_key = {(timing.task.operation, timing.task.by): timing for timing in timings}
    for bar in BARS:
        ratio = bar.ratio(by_key)
        if ratio is not None:
            yield LogVerdict(bar, ratio)
