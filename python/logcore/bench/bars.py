"""The ratios that the project promises, and whether they hold on this machine and these cases.

A ratio is of speeds in records a second, within the same rounds (measure.py). Bars about the record format are for
uncompressed batches; a codec's own step (framing, checks, cap) is held against its bare library on the same streams.
Encoding and decoding whole compressed batches are in the report beside them: they are that step plus the records.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from logcore.bench import limits, operations, peers
from logcore.bench.measure import Timing
from logcore.bench.workload import Case

Key = tuple[str, str]  # operation, by


@dataclass(frozen=True)
class Bar:
    """`ours` is to be at least `at_least` times as fast as `theirs`, in cases with these sizes (None: in any)."""

    ours: str
    theirs: Key
    at_least: float
    value_bytes: int | None = None
    batch_bytes: int | None = None

    def applies_to(self, case: Case) -> bool:
        """Whether `case` is one that the bar speaks of."""
        return self.value_bytes in (None, case.value_bytes) and self.batch_bytes in (None, case.batch_bytes)


@dataclass(frozen=True)
class Verdict:
    """A bar in one case."""

    case: Case
    bar: Bar
    ratio: float

    @property
    def is_met(self) -> bool:
        """Whether the ratio reaches the bar."""
        return self.ratio >= self.bar.at_least


VALIDATE_BAR = Bar(operations.VALIDATE, (operations.DECODE_EACH, operations.LOGCORE), 0.9)
FORMAT_BARS = (
    Bar(operations.DECODE_COLUMNS, (operations.DECODE_ROWS, peers.AIOKAFKA), 12, value_bytes=100),
    Bar(operations.ENCODE_COLUMNS, (operations.ENCODE_ROWS, peers.AIOKAFKA), 10, value_bytes=100),
    Bar(operations.DECODE_COLUMNS, (limits.LIMIT_DECODE, limits.C_LOOP), 0.8),
    Bar(operations.ENCODE_COLUMNS, (limits.LIMIT_ENCODE, limits.C_LOOP), 0.8),
    Bar(operations.ENCODE_ROWS, (operations.ENCODE_ROWS, peers.AIOKAFKA), 5),
    Bar(operations.DECODE_ROWS, (operations.DECODE_ROWS, peers.AIOKAFKA), 2),
    Bar(operations.SCAN, (limits.LIMIT_CRC, limits.CRC_ALONE), 0.8),
    Bar(
        operations.DECODE_VIEW_UNCHECKED,
        (operations.DECODE_COLUMNS_UNCHECKED, operations.LOGCORE),
        1.5,
        value_bytes=1024,
        batch_bytes=1 << 20,
    ),
    Bar(operations.DECODE_VIEW, (limits.LIMIT_CRC, limits.CRC_PACKAGE), 0.85, value_bytes=1024, batch_bytes=1 << 20),
    Bar(operations.DECODE_VIEW, (limits.LIMIT_CRC, limits.CRC_ALONE), 0.85, value_bytes=1024, batch_bytes=1 << 20),
    VALIDATE_BAR,
)


def bars_for(codec: str) -> tuple[Bar, ...]:
    """The bars that speak of `codec`."""
    if codec == "none":
        return FORMAT_BARS
    library = limits.LIBRARIES[codec]
    return (
        Bar(operations.COMPRESS, (limits.LIBRARY_COMPRESS, library), 0.9),
        Bar(operations.DECOMPRESS, (limits.LIBRARY_DECOMPRESS, library), 0.9),
        VALIDATE_BAR,
    )


def verdicts(case: Case, timings: Iterable[Timing]) -> Iterator[Verdict]:
    """Every bar of `case` whose two sides were measured."""
    by_key: Mapping[Key, Timing] = {(timing.task.operation, timing.task.by): timing for timing in timings}
    for bar in bars_for(case.codec):
        ours, theirs = by_key.get((bar.ours, operations.LOGCORE)), by_key.get(bar.theirs)
        if bar.applies_to(case) and ours is not None and theirs is not None:
            yield Verdict(case, bar, ours.speed_against(theirs))
