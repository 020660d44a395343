"""Checks of what callers hand in, before anything is done with it: a log that is half-way through a change must not
stumble over a float. What is out of range is told by whoever knows the range.
"""

import operator
import threading
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeAlias

from typing_extensions import Buffer

from logcore._record import Record
from logcore.errors import UsageError, UsageTypeError

from .clock import Clock

Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]
Row: TypeAlias = (
    Record
    | tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, SupportsIndex | None]
    | tuple[Buffer | None, Buffer | None, SupportsIndex | None, Headers | None]
)


def whole(what: str, given: Any, wanted: str = "an int") -> int:
    """The int that `given` is: numpy's are ones, a bool is none."""
    if type(given) is int:
        return given
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise UsageTypeError(what, got=type(given).__name__, wanted=wanted) from None


def moment(what: str, given: Any) -> int:
    """The same for a time."""
    return whole(what, given, "an int, milliseconds since 1970")


def moment_or_now(given: int | None, clock: Clock) -> int:
    """A caller's `now_ms`, or what the clock says."""
    return clock() if given is None else moment("now_ms", given)


def seconds(given: Any) -> float | None:
    """A timeout, or None."""
    if given is None:
        return None
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise UsageTypeError(
            "timeout", got=type(given).__name__, wanted="a number of seconds, or None to wait for ever"
        )
    if not given <= threading.TIMEOUT_MAX:  # nan is not
        raise UsageError("timeout", got=str(given)[:40], wanted=f"at most {threading.TIMEOUT_MAX} seconds, or None")
    return given


def check_clock(clock: Callable[[], Any]) -> None:
    """`clock` is asked once: time.time, which counts seconds, is told when it is given, not at the first append."""
    if not callable(clock):
        raise UsageTypeError("clock", got=type(clock).__name__, wanted="a function: milliseconds since 1970, an int")
    moment("what clock() returns", clock())


def key_of(record: Any, index: int) -> Any:
    """The key of what is to be a record, number `index` of an append."""
    if isinstance(record, Record):
        return record.key
    if isinstance(record, tuple) and 2 <= len(record) <= 4:
        return record[0]
    got = f"tuple of {len(record)}" if isinstance(record, tuple) else type(record).__name__
    wanted = "a Record, or a tuple (key, value[, timestamp[, headers]])"
    raise UsageTypeError("record", where=f"record {index}", got=got, wanted=wanted)
