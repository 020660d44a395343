"""How callers' programs with timers look to a type checker: checked by mypy --strict, never run."""

from typing_extensions import assert_type

from logcore._timingwheel import Timer, TimingWheel
from logcore.replication import DelayedOperation, Purgatory

wheel: TimingWheel[str] = TimingWheel(start_ms=0, tick_ms=10, wheel_size=64)
assert_type(wheel.add(1_000, "session 7"), Timer)
assert_type(wheel.advance(1_000), list[str])
assert_type(wheel.next_deadline_ms(), int | None)
wheel.add(1_000, 7)  # type: ignore[arg-type]  # A wheel of texts holds texts.
wheel.add(0.5, "seconds")  # type: ignore[arg-type]  # Times are whole milliseconds.


class Fetch(DelayedOperation):
    """An operation as a broker has it."""

    def can_complete(self, now_ms: int) -> bool:
        return now_ms > 5

    def on_complete(self, now_ms: int) -> None:
        pass


purgatory: Purgatory[Fetch] = Purgatory(0)
assert_type(purgatory.try_complete_else_watch(Fetch(), [("orders", 0)], deadline_ms=500, now_ms=0), bool)
assert_type(purgatory.cancel_for_key(("orders", 0)), list[Fetch])
DelayedOperation()  # type: ignore[abstract]  # It has to be derived from.
