"""The timing wheel: what Kafka's wheels do, and where ours promise more: never early, in order, freed at once."""

import gc
import pickle
import random
import sys
import tracemalloc
import weakref

import pytest

from logcore import UsageError, UsageTypeError
from logcore._timingwheel import Timer, TimingWheel

MS_MAX = (1 << 63) - 1


class Payload:
    """Something that can be seen to go away."""


@pytest.fixture
def wheel():
    made = TimingWheel(0)
    yield made
    made.check_invariants()


# ------------------------------------------------------------------------------------------------ wheels and buckets


def test_a_wheel_begins_at_its_start_rounded_down_to_a_tick():
    """TMR-001: the interval of a wheel is its tick times its size, which is the tick of the wheel above."""
    wheel = TimingWheel(1_234, tick_ms=10, wheel_size=3)
    wheel.add(2_000, "far")
    assert [(tick_ms, current_ms) for tick_ms, current_ms, _ in wheel.wheels()[:3]] == [
        (10, 1_230),
        (30, 1_230),
        (90, 1_170),
    ]
    assert (wheel.now_ms, wheel.tick_ms, wheel.wheel_size) == (1_234, 10, 3)


def test_a_deadline_that_has_passed_is_in_no_bucket_and_one_in_the_running_tick_waits_for_the_next():
    """TMR-002: with start 1000 and tick 10, 999 is due already. Kafka takes 1005 for due as well, and so runs it up to
    a tick early; here it is handed out at 1010.
    """
    wheel = TimingWheel(1_000, tick_ms=10, wheel_size=3)
    wheel.add(999, "past")
    assert wheel.wheels() == [(10, 1_000, {})]
    wheel.add(1_005, "running tick")
    assert wheel.advance(1_000) == ["past"]
    assert wheel.advance(1_009) == []
    assert wheel.advance(1_010) == ["running tick"]


def test_a_timer_goes_to_the_bucket_of_its_tick():
    """TMR-003: bucket (deadline / tick) mod size; a cancelled timer is in none."""
    wheel = TimingWheel(990, tick_ms=10, wheel_size=20)
    for tick in range(100, 120):
        wheel.add(tick * 10, tick)
    wheel.advance(1_000)
    wheel.add(1_190, "again").cancel()
    [(_, _, counts), *_] = wheel.wheels()
    assert counts == {tick % 20: 1 for tick in range(101, 120)}


def test_a_timer_beyond_the_round_goes_to_an_overflow_wheel_that_is_made_once():
    """TMR-004: of the same size, with the interval as its tick, from the current time on. Where Kafka's interval slides
    with the clock, ours is the running round: 1020 to 1050 at a clock of 1040.
    """
    wheel = TimingWheel(1_040, tick_ms=10, wheel_size=3)
    assert len(wheel.wheels()) == 1
    wheel.add(1_040 + 10, "next round")
    assert wheel.wheels() == [(10, 1_040, {}), (30, 1_020, {2: 1})]
    wheel.add(1_060, "next round")
    assert wheel.wheels() == [(10, 1_040, {}), (30, 1_020, {2: 2})]


def test_the_clock_moves_by_whole_ticks_of_each_wheel():
    """TMR-005: 1060 is 1060 for the wheel of 10 ms, and 1050 for the one of 30 ms; inside a tick nothing moves."""
    wheel = TimingWheel(1_000, tick_ms=10, wheel_size=3)
    wheel.add(1_085, "far")
    before = wheel.wheels()
    wheel.advance(1_009)
    assert wheel.wheels() == before
    wheel.advance(1_010)
    assert wheel.wheels()[0][:2] == (10, 1_010)
    wheel.advance(1_060)
    assert [shown[:2] for shown in wheel.wheels()[:2]] == [(10, 1_060), (30, 1_050)]


def test_a_bucket_is_opened_once_a_round_however_many_timers_it_holds(wheel):
    """TMR-006: there is no queue of buckets but a bit for each, which is set while the bucket holds timers."""
    timers = [wheel.add(5, n) for n in range(100)]
    assert wheel.next_deadline_ms() == 5
    for timer in timers[1:]:
        timer.cancel()
    assert wheel.next_deadline_ms() == 5
    assert wheel.advance(5) == [0]
    assert wheel.next_deadline_ms() is None
    wheel.add(25, "the same bucket, a round later")
    assert wheel.next_deadline_ms() == 20
    assert wheel.advance(24) == []
    assert wheel.advance(25) == ["the same bucket, a round later"]


def test_the_defaults_are_kafkas(wheel):
    """TMR-007: ticks of 1 ms, 20 slots a wheel: 20 ms, 400 ms, 8 s."""
    wheel.add(100_000, None)
    assert [tick_ms for tick_ms, _, _ in wheel.wheels()] == [1, 20, 400, 8_000]
    assert (wheel.tick_ms, wheel.wheel_size) == (1, 20)


# -------------------------------------------------------------------------------------------------------------- timers


@pytest.mark.parametrize("deadline_ms", [1_000, 999, 0, -1, -(1 << 63)])
@pytest.mark.parametrize("tick_ms", [1, 7, 1_000_000])
def test_a_timer_without_delay_is_handed_out_by_the_next_advance(deadline_ms, tick_ms):
    """TMR-008: Kafka runs it on submission. Here advance() is the one place where timers come out, so add() only makes
    the deadline now; the next advance() has it, even to an earlier time.
    """
    wheel = TimingWheel(1_000, tick_ms=tick_ms)
    wheel.add(deadline_ms, "now")
    assert wheel.next_deadline_ms() == 1_000
    assert wheel.advance(3) == ["now"]
    assert wheel.next_deadline_ms() is None


def test_each_timer_is_handed_out_once_and_none_early():
    """TMR-009: 0 to 4, 10 to 99 twice and 100 to 499 ms, on wheels of three slots."""
    delays = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    wheel = TimingWheel(0, wheel_size=3)
    for delay in delays:
        wheel.add(delay, delay)
    handed_out = []
    for now_ms in range(0, 600, 3):
        found = wheel.advance(now_ms)
        assert all(now_ms - 3 < delay <= now_ms for delay in found)
        handed_out += found
    assert handed_out == sorted(delays)
    assert len(wheel) == 0


def test_a_timer_of_a_coarse_wheel_goes_down_wheel_by_wheel_until_it_is_due(wheel):
    """TMR-010: the wheel does not wait: it says until when a loop may, and advance() to then moves the timer down."""
    wheel.add(123_456, "far")
    seen = []
    while len(wheel):
        next_ms = wheel.next_deadline_ms()
        assert next_ms <= 123_456
        seen.append((next_ms, wheel.advance(next_ms)))
    assert seen == [(120_000, []), (123_200, []), (123_440, []), (123_456, ["far"])]


def test_an_advance_that_finds_nothing_is_false(wheel):
    """TMR-011."""
    wheel.add(10, "later")
    assert not wheel.advance(9)
    assert wheel.advance(10)
    assert not wheel.advance(11)


def test_the_length_counts_each_pending_timer_once_wherever_it_lies(wheel):
    """TMR-012: not twice when it moves between wheels, and not after it was handed out or cancelled."""
    timers = [wheel.add(delay, delay) for delay in (0, 5, 50, 500, 5_000, 50_000)]
    assert len(wheel) == 6
    for now_ms in (4, 20, 49):
        wheel.advance(now_ms)
        assert len(wheel) == sum(timer.is_pending for timer in timers)
    timers[-1].cancel()
    assert len(wheel) == 3
    wheel.advance(50_000)
    assert len(wheel) == 0


def test_a_rescheduled_timer_leaves_its_old_bucket_and_counts_once(wheel):
    """TMR-013."""
    timer = wheel.add(5, "moved")
    for deadline_ms in (5, 50, 7, 0, 12_345, 30):
        assert timer.reschedule(deadline_ms)
        assert (len(wheel), timer.deadline_ms) == (1, deadline_ms)
        wheel.check_invariants()
    assert wheel.advance(29) == []
    assert wheel.advance(30) == ["moved"]
    assert wheel.advance(100_000) == []


def test_a_cancelled_timer_is_gone_at_once_and_its_empty_bucket_is_harmless(wheel):
    """TMR-014."""
    held = Payload()
    seen = weakref.ref(held)
    timer = wheel.add(7, held)
    del held
    assert seen() is not None
    assert timer.cancel()
    assert seen() is None
    assert len(wheel) == 0
    assert wheel.next_deadline_ms() is None
    assert wheel.advance(100) == []


def test_a_timer_that_was_cancelled_or_handed_out_cannot_be_moved_or_cancelled_again(wheel):
    """TMR-015: Kafka compares task and entry; here both are the Timer, which knows whether it is pending."""
    cancelled, handed_out = wheel.add(5, "a"), wheel.add(5, "b")
    cancelled.cancel()
    assert wheel.advance(5) == ["b"]
    for timer in (cancelled, handed_out):
        assert not timer.is_pending
        assert not timer.cancel()
        assert not timer.reschedule(10)
    assert wheel.advance(20) == []


# ---------------------------------------------------------------------------------------------------------------- order


def test_what_is_due_comes_by_deadline_and_then_in_the_order_of_arming():
    for tick_ms, wheel_size in [(1, 20), (1, 2), (10, 3), (1_000, 64)]:
        wheel = TimingWheel(0, tick_ms=tick_ms, wheel_size=wheel_size)
        rng = random.Random(tick_ms)
        armed = []
        for number in range(500):
            deadline_ms = rng.randrange(-5, 3_000)
            armed.append((deadline_ms, number))
            wheel.add(deadline_ms, (deadline_ms, number))
        assert wheel.advance(10_000) == sorted(armed)


def test_rescheduling_counts_as_arming(wheel):
    first = wheel.add(50, "first")
    wheel.add(50, "second")
    first.reschedule(50)
    assert wheel.advance(50) == ["second", "first"]


def test_timers_armed_at_different_times_for_one_deadline_keep_their_order(wheel):
    wheel.add(425, "from far")
    wheel.advance(395)
    wheel.add(425, "from near")
    wheel.advance(410)
    wheel.add(425, "from the same round")
    assert wheel.advance(425) == ["from far", "from near", "from the same round"]


# ----------------------------------------------------------------------------------------------------------------- time


def test_time_that_goes_back_changes_nothing(wheel):
    wheel.advance(1_000)
    wheel.add(1_010, "later")
    for now_ms in (999, 0, -1, -(1 << 63)):
        assert wheel.advance(now_ms) == []
        assert wheel.now_ms == 1_000
    wheel.add(1_000, "now")
    assert wheel.advance(5) == ["now"]
    assert wheel.advance(1_010) == ["later"]


def test_a_long_sleep_costs_no_more_than_its_timers(wheel):
    wheel.add(10, "near")
    wheel.add(1 << 62, "far")
    assert wheel.advance((1 << 62) - 1) == ["near"]
    assert wheel.advance(1 << 62) == ["far"]


@pytest.mark.parametrize("wheel_size", [2, 3, 20, 63, 64])
@pytest.mark.parametrize("tick_ms", [1, 2, 1_000_003, MS_MAX])
@pytest.mark.parametrize("start_ms", [0, 12_345, MS_MAX - 1, MS_MAX])
def test_the_ends_of_time_are_in_reach(start_ms, tick_ms, wheel_size):
    wheel = TimingWheel(start_ms, tick_ms=tick_ms, wheel_size=wheel_size)
    timers = [wheel.add(deadline_ms, deadline_ms) for deadline_ms in (MS_MAX, -MS_MAX - 1, MS_MAX - 1, 0)]
    wheel.check_invariants()
    assert wheel.next_deadline_ms() == start_ms
    found = wheel.advance(MS_MAX)
    wheel.check_invariants()
    # The last tick may end after the last millisecond that there is; a timer in it is never due.
    last_tick_ms = MS_MAX // tick_ms * tick_ms
    assert found == sorted(due for due in (MS_MAX, -MS_MAX - 1, MS_MAX - 1, 0) if due <= max(last_tick_ms, start_ms))
    assert wheel.next_deadline_ms() == (MS_MAX if len(found) < 4 else None)
    assert len(wheel) == 4 - len(found) == sum(timer.is_pending for timer in timers)


# ------------------------------------------------------------------------------------------------------------ ownership


def test_a_timer_is_small():
    assert sys.getsizeof(TimingWheel(0).add(1, None)) <= 64


def test_a_hundred_thousand_timers_take_64_bytes_each_and_are_freed_when_cancelled():
    wheel = TimingWheel(0)
    wheel.add(1 << 40, None)  # so that all wheels are there
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100_000):
            wheel.add(number, None)
        assert (tracemalloc.get_traced_memory()[0] - before) / 100_000 <= 64
        wheel.clear()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()


def test_a_wheel_that_goes_away_cancels_its_timers():
    held = Payload()
    seen = weakref.ref(held)
    wheel = TimingWheel(0)
    timers = [wheel.add(deadline_ms, held) for deadline_ms in (0, 10, 10_000)]
    del held, wheel
    assert seen() is None
    for timer in timers:
        assert not timer.is_pending
        assert not timer.cancel()
        assert not timer.reschedule(5)


def test_the_garbage_collector_finds_a_wheel_that_only_its_payloads_hold():
    wheel = TimingWheel(0)
    seen = []
    for deadline_ms in (0, 10, 10_000):
        held = Payload()
        held.wheel, held.timer = wheel, wheel.add(deadline_ms, held)
        seen.append(weakref.ref(held))
    del held
    gc.collect()
    assert all(one() is not None for one in seen)
    assert set(gc.get_referents(wheel)) == {one() for one in seen}
    del wheel
    gc.collect()
    assert all(one() is None for one in seen)


def test_a_payload_that_runs_code_when_it_goes_away_finds_a_whole_wheel():
    class Rearms:
        def __init__(self, wheel):
            self.wheel = wheel

        def __del__(self):
            self.wheel.check_invariants()
            self.wheel.add(0, "from the grave")
            others.pop().cancel() if others else None

    wheel = TimingWheel(0)
    others = [wheel.add(30, None) for _ in range(3)]
    wheel.add(10, Rearms(wheel)).cancel()
    assert wheel.advance(0) == ["from the grave"]
    for deadline_ms in (0, 10, 1_000):
        wheel.add(deadline_ms, Rearms(wheel))
    wheel.clear()
    assert wheel.advance(0) == ["from the grave"] * 3
    assert len(wheel) == 0


def test_an_advance_survives_code_that_the_garbage_collector_runs():
    wheel = TimingWheel(0)
    timers = [wheel.add(n, n) for n in range(100)]

    def meddle(phase, info):
        if timers:
            timers.pop().cancel()
            wheel.add(0, "late")

    gc.callbacks.append(meddle)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        found = wheel.advance(100)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(meddle)
    wheel.check_invariants()
    found += wheel.advance(100)
    assert [n for n in found if n != "late"] == list(range(len(timers)))
    assert found.count("late") == 100 - len(timers)


def test_payloads_keep_their_reference_counts():
    held = Payload()
    before = sys.getrefcount(held)
    wheel = TimingWheel(0)
    wheel.add(5, held)
    timer = wheel.add(50, held)
    timer.reschedule(60)
    wheel.add(70, held)
    assert sys.getrefcount(held) == before + 3
    wheel.advance(5)
    timer.cancel()
    wheel.clear()
    assert sys.getrefcount(held) == before


# ------------------------------------------------------------------------------------------------------------- bad use


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_ms": -1}, "start_ms: got -1, wanted 0 to 9223372036854775807"),
        ({"start_ms": 1 << 63}, "start_ms: got 9223372036854775808, wanted 0 to 9223372036854775807"),
        ({"start_ms": 0, "tick_ms": 0}, "tick_ms: got 0, wanted 1 to 9223372036854775807"),
        ({"start_ms": 0, "wheel_size": 1}, "wheel_size: got 1, wanted 2 to 64"),
        ({"start_ms": 0, "wheel_size": 65}, "wheel_size: got 65, wanted 2 to 64"),
        ({"start_ms": 1.5}, "start_ms: got float, wanted an int"),
        ({"start_ms": 0, "tick_ms": True}, "tick_ms: got bool, wanted an int"),
    ],
)
def test_a_wheel_that_cannot_be_is_refused(options, message):
    with pytest.raises(UsageError, match=f"^{message}$"):
        TimingWheel(**options)


@pytest.mark.parametrize("bad", [1.0, "5", None, True, b"5"])
def test_a_time_that_is_no_int_is_refused_and_changes_nothing(wheel, bad):
    timer = wheel.add(10, "x")
    for call in (lambda: wheel.add(bad, "y"), lambda: timer.reschedule(bad), lambda: wheel.advance(bad)):
        with pytest.raises(UsageTypeError, match=f"_ms: got {type(bad).__name__}, wanted an int"):
            call()
    assert (len(wheel), wheel.now_ms, timer.deadline_ms) == (1, 0, 10)


@pytest.mark.parametrize("bad", [1 << 63, -(1 << 63) - 1, 1 << 5000])
def test_a_time_of_more_than_64_bits_is_refused(wheel, bad):
    timer = wheel.add(10, "x")
    for call in (lambda: wheel.add(bad, "y"), lambda: timer.reschedule(bad), lambda: wheel.advance(bad)):
        with pytest.raises(UsageError, match=r"_ms: got .*, wanted -9223372036854775808 to 9223372036854775807"):
            call()
    assert (len(wheel), wheel.now_ms, timer.deadline_ms) == (1, 0, 10)


def test_what_counts_as_an_int_elsewhere_counts_as_a_time(wheel):
    np = pytest.importorskip("numpy")
    wheel.add(np.int64(5), "five")
    assert wheel.advance(np.int32(5)) == ["five"]


def test_timers_are_shown_and_not_copied(wheel):
    timer = wheel.add(10, "x")
    assert repr(timer) == "Timer(deadline_ms=10, pending)"
    assert repr(wheel) == "TimingWheel(1 pending, now_ms=0)"
    timer.cancel()
    assert repr(timer) == "Timer(deadline_ms=10, not pending)"
    for made in (wheel, timer):
        with pytest.raises(TypeError):
            pickle.dumps(made)
    with pytest.raises(UsageTypeError, match=r"^Timer: got a call, wanted one that TimingWheel.add\(\) has made$"):
        Timer()
