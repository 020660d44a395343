"""What the suites share: workloads, and the clock that turns a task into a benchmark.

    make bench                                                     everything
    python -m pytest bench/bench_scan.py                           one question
    python -m pytest bench --benchmark-json=out.json               for machines; extra_info has records a second

A group is one workload, so that within a group the figures in parentheses are the ratios asked for. A benchmark is one
call on one fetch (about 1 MiB of batches), four fetches in turn; `logcore bench codec` measures the same tasks in
interleaved rounds, which is steadier where the machine is not quiet.
"""

import functools
import itertools
import time
from collections.abc import Callable

import pytest

from logcore import UsageError
from logcore.bench.data import Row, synthetic_rows
from logcore.bench.measure import Task, pinned
from logcore.bench.workload import Case, Workload, workload_bytes

SIZES = [(16 << 10, 100), (1 << 20, 100), (16 << 10, 1024), (1 << 20, 1024)]  # bytes a batch, bytes a value
KEY_BYTES = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("benchmark") is None:
            # One thread that never waits: processor time is wall time without the neighbours.
            item.add_marker(pytest.mark.benchmark(disable_gc=True, timer=time.process_time, max_time=0.5, min_rounds=5))


@functools.cache
def rows_of(value_bytes: int) -> list[Row]:
    """Synthetic rows, enough for the largest batches."""
    plain_bytes = max(workload_bytes(batch_bytes) for batch_bytes, _ in SIZES)
    return synthetic_rows(value_bytes, KEY_BYTES, plain_bytes=plain_bytes)


@functools.lru_cache(maxsize=4)
def workload_of(case: Case) -> Workload:
    """The workload of `case`; kept, because a suite times several contenders on each."""
    return Workload(case, rows_of(case.value_bytes or 0))


@pytest.fixture(params=SIZES, ids=lambda sizes: f"{sizes[0]}-{sizes[1]}")
def workload(request: pytest.FixtureRequest) -> Workload:
    """An uncompressed workload, one for each of SIZES."""
    batch_bytes, value_bytes = request.param
    return workload_of(Case("none", None, batch_bytes, value_bytes))


@pytest.fixture
def clock(benchmark, request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function that benchmarks the task it is given the making of, or skips it with the reason why there is none.

    Tasks are grouped by file and workload, and by `direction` where a file has two.
    """

    def run(make_task: Callable[[], Task], workload: Workload, direction: str = "") -> None:
        try:
            task = make_task()
        except UsageError as missing:
            pytest.skip(str(missing))
        calls = itertools.cycle(task.calls)
        question = request.path.stem.removeprefix("bench_").replace("_", " ")
        benchmark.group = f"{question}: {f'{direction}, ' if direction else ''}{workload.case}"
        with pinned():
            benchmark(lambda: next(calls)())
        if benchmark.stats is not None:  # None with --benchmark-disable
            per_call = sum(task.records) / len(task.records)
            benchmark.extra_info["million_records_per_second"] = per_call / benchmark.stats.stats.min / 1e6
            benchmark.extra_info["bytes_per_record"] = workload.stored_bytes / workload.records

    return run


def named(tasks: list[Task], operation: str, by: str) -> Task:
    """The one task of that name."""
    [found] = [task for task in tasks if (task.operation, task.by) == (operation, by)]
    return found


@pytest.fixture(name="named")
def _named() -> Callable[[list[Task], str, str], Task]:
    return named
