"""The timing wheel against a heap: the same calls, the same timers handed out, in the same order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from logcore._timingwheel import Timer, TimingWheel

MS_MAX = (1 << 63) - 1


@dataclass
class Model:
    """What the wheel promises, in the plainest form: a heap of (due_ms, deadline_ms, number of arming, name)."""

    now_ms: int
    tick_ms: int
    heap: list[tuple[int, int, int, int]] = field(default_factory=list)
    armed: int = 0

    def arm(self, deadline_ms: int, name: int) -> None:
        self.armed += 1
        due_ms = deadline_ms if deadline_ms <= self.now_ms else -(-deadline_ms // self.tick_ms) * self.tick_ms
        heapq.heappush(self.heap, (due_ms, deadline_ms, self.armed, name))

    def disarm(self, name: int) -> bool:
        kept = [entry for entry in self.heap if entry[3] != name]
        found = len(kept) < len(self.heap)
        self.heap = kept
        heapq.heapify(self.heap)
        return found

    def advance(self, now_ms: int) -> list[int]:
        self.now_ms = max(self.now_ms, now_ms)
        due = []
        while self.heap and self.heap[0][0] <= self.now_ms:
            due.append(heapq.heappop(self.heap)[1:])
        return [name for _, _, name in sorted(due)]


settings_of_wheels = st.tuples(
    st.one_of(st.just(0), st.integers(0, 10_000), st.integers(MS_MAX - 1000, MS_MAX)),
    st.sampled_from([1, 1, 2, 7, 10, 1000, 1 << 40]),
    st.sampled_from([2, 3, 4, 20, 64]),
)
delays = st.one_of(st.integers(-3, 50), st.integers(-100, 20_000), st.integers(-MS_MAX, MS_MAX))
which = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), delays),
        st.tuples(st.just("add"), delays),
        st.tuples(st.just("cancel"), which),
        st.tuples(st.just("reschedule"), which, delays),
        st.tuples(st.just("advance"), st.one_of(st.integers(-5, 30), st.integers(-1000, 10_000), delays)),
        st.tuples(st.just("sleep")),
    ),
    max_size=80,
)


@given(settings_of_wheels, steps)
@example((0, 1, 20), [("add", 25), ("advance", 10), ("add", 15), ("advance", 15)])
@example((5, 10, 3), [("add", 3), ("advance", 4), ("add", -1), ("advance", 0), ("advance", 1)])
def test_the_wheel_hands_out_what_a_heap_would(setting: tuple[int, int, int], steps: list[tuple]) -> None:
    start_ms, tick_ms, wheel_size = setting
    wheel: TimingWheel[int] = TimingWheel(start_ms, tick_ms=tick_ms, wheel_size=wheel_size)
    model = Model(start_ms, tick_ms)
    timers: list[Timer] = []
    clock_ms = start_ms  # as the caller sees it; it may go back

    def at(delay_ms: int) -> int:
        return max(-MS_MAX, min(clock_ms + delay_ms, MS_MAX))

    for step in steps:
        if step[0] == "add":
            timers.append(wheel.add(at(step[1]), len(timers)))
            model.arm(at(step[1]), len(timers) - 1)
        elif step[0] == "advance":
            clock_ms = at(step[1])
            assert wheel.advance(clock_ms) == model.advance(clock_ms)
        elif step[0] == "sleep":
            next_ms = wheel.next_deadline_ms()
            assert (next_ms is None) is (not model.heap)
            if next_ms is not None:
                # Never after the first timer is due, never in the past, and so each sleep comes closer.
                assert wheel.now_ms <= next_ms <= max(wheel.now_ms, min(model.heap[0][0], MS_MAX))
                clock_ms = next_ms
                assert wheel.advance(clock_ms) == model.advance(clock_ms)
        elif timers:
            name = step[1] % len(timers)
            was_pending = model.disarm(name)
            assert timers[name].is_pending is was_pending
            if step[0] == "cancel":
                assert timers[name].cancel() is was_pending
            else:
                assert timers[name].reschedule(at(step[2])) is was_pending
                if was_pending:
                    model.arm(at(step[2]), name)
        wheel.check_invariants()
        assert len(wheel) == len(model.heap)
        assert wheel.now_ms == model.now_ms
    assert wheel.advance(MS_MAX) == model.advance(MS_MAX)
    wheel.check_invariants()


@given(settings_of_wheels, st.lists(delays, max_size=30))
def test_a_loop_that_sleeps_as_told_hands_out_each_timer_in_the_tick_of_its_deadline(setting, delays) -> None:
    start_ms, tick_ms, wheel_size = setting
    wheel: TimingWheel[int] = TimingWheel(start_ms, tick_ms=tick_ms, wheel_size=wheel_size)
    deadlines = [min(start_ms + delay, MS_MAX - MS_MAX % tick_ms) for delay in delays if start_ms + delay > -MS_MAX]
    for deadline_ms in deadlines:
        wheel.add(deadline_ms, deadline_ms)
    handed_out, wakes = [], 0
    while (next_ms := wheel.next_deadline_ms()) is not None:
        found = wheel.advance(next_ms)
        assert all(
            max(deadline_ms, start_ms) <= next_ms < max(deadline_ms, start_ms) + tick_ms for deadline_ms in found
        )
        handed_out += found
        wakes += 1
    assert handed_out == sorted(deadlines)
    assert wakes <= 64 * (len(deadlines) + 1)
