import gc
import os
import sys

import pytest

from logcore import InvariantError
from logcore.bench import measure as module
from logcore.bench.measure import Task, Timing, measure, pinned


def _logging_task(name, log, calls=3):
    return Task(name, "test", [lambda index=index: log.append((name, index)) for index in range(calls)], [10] * calls)


def test_rounds_are_interleaved_and_calls_taken_in_turn(monkeypatch):
    monkeypatch.setattr(module, "SLICE_SECONDS", 0)  # one call a slice
    log = []
    measure([_logging_task("a", log), _logging_task("b", log)], seconds=0, rounds=4)
    warm_up, rounds = log[:4], log[4:]
    assert warm_up == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert rounds == [(name, index % 3) for index in (2, 3, 4, 5) for name in ("a", "b")]


def test_each_round_gives_one_reading_a_task():
    timings = measure([_logging_task("a", []), _logging_task("b", [])], seconds=0, rounds=5)
    assert [timing.task.operation for timing in timings] == ["a", "b"]
    assert [len(timing.seconds_per_record) for timing in timings] == [5, 5]
    assert all(seconds > 0 for timing in timings for seconds in timing.seconds_per_record)
    assert all(timing.cpu > 0 for timing in timings)


def test_without_a_number_of_rounds_there_are_a_few_however_short_the_time():
    [timing] = measure([_logging_task("a", [])], seconds=0)
    assert len(timing.seconds_per_record) == module.ROUNDS_MIN


def test_the_share_that_is_done_is_told_up_to_the_whole():
    for options in ({"seconds": 0, "rounds": 4}, {"seconds": 0.001}):
        shares = []
        measure([_logging_task("a", [])], tell=shares.append, **options)
        assert shares == sorted(shares)
        assert shares[-1] == 1


def test_the_rate_is_that_of_the_best_round():
    timing = Timing(_logging_task("a", []), [0.5, 0.25, 0.75])
    assert timing.records_per_second == 4


def test_a_ratio_is_the_median_of_the_rounds_so_one_disturbed_round_does_not_count():
    task = _logging_task("a", [])
    ours, theirs = Timing(task, [1.0, 1.0, 50.0]), Timing(task, [3.0, 3.0, 3.0])
    assert ours.speed_against(theirs) == 3


def test_the_collector_rests_while_tasks_run_and_not_afterwards():
    seen = []
    measure([Task("a", "test", [lambda: seen.append(gc.isenabled())], [1])], seconds=0, rounds=2)
    assert not any(seen[2:])
    assert gc.isenabled()


def test_a_task_that_raises_leaves_the_collector_on():
    runs = iter(range(10))

    def third_time_fails():
        if next(runs) == 2:
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        measure([Task("a", "test", [third_time_fails], [1])], seconds=0, rounds=2)
    assert gc.isenabled()


@pytest.mark.parametrize(("calls", "records"), [([], []), ([print], [])])
def test_a_task_needs_a_count_for_each_call(calls, records):
    with pytest.raises(InvariantError):
        Task("a", "test", calls, records)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sched_setaffinity")
def test_the_process_stays_on_one_core_inside_the_block_only():
    before = os.sched_getaffinity(0)
    with pinned() as core:
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sched_setaffinity")
def test_a_system_that_refuses_to_pin_is_measured_unpinned(monkeypatch):
    def refuse(pid, cores):
        raise OSError("planted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with pinned() as core:
        assert core is None


def test_what_prepares_comes_before_each_slice_of_one_call():
    log = []
    task = Task("a", "test", [lambda: log.append("call")], [10], prepare=lambda: log.append("prepare"))
    [timing] = measure([task], seconds=0, rounds=4)
    assert log == ["prepare", "call"] * (2 + 4)  # two to warm up
    assert len(timing.seconds_per_record) == 4


def test_what_waits_is_told_by_the_wall_clock(monkeypatch):
    ticks = iter(range(0, 1000, 7))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(module.time, "process_time", lambda: 0.0)
    [timing] = measure([Task("a", "test", [lambda: None], [7], prepare=lambda: None, waits=True)], seconds=0, rounds=2)
    assert timing.seconds_per_record == [1, 1]


def test_the_spread_is_the_median_by_the_best():
    assert Timing(_logging_task("a", []), [0.5, 0.25, 0.75]).spread == 2
