"""Do two threads decode and encode twice as much? Only if the GIL is released while they do.

The limit is 2 on two cores that nobody else uses, less what they share: the last cache, the memory behind it, and the
GIL for the few microseconds around each call of 100 to 300. Compare the two rows of a group: the same fetches, by one
thread and by two. Wall time, and not held on one core; a busy machine shows less. Rows are absent on purpose: they are
Python objects, and making those takes the GIL.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from logcore.bench.data import synthetic_rows
from logcore.bench.operations import DECODE_COLUMNS, ENCODE_COLUMNS, LOGCORE, logcore_tasks
from logcore.bench.workload import Case, Workload, workload_bytes

pytestmark = [
    pytest.mark.benchmark(disable_gc=True, timer=time.perf_counter, max_time=1.0, min_rounds=10),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores"),
]
REPEATS = 8  # calls of each fetch in one measurement, so that handing out the work does not count


@pytest.fixture(scope="module", params=["none", "zstd"])
def whole(request):
    return Workload(Case(request.param, None, 1 << 20, 100), synthetic_rows(100, plain_bytes=workload_bytes(1 << 20)))


@pytest.mark.parametrize("operation", [DECODE_COLUMNS, ENCODE_COLUMNS])
@pytest.mark.parametrize("threads", [1, 2])
def test_logcore(benchmark, whole, named, operation, threads):
    calls = list(named(logcore_tasks(whole), operation, LOGCORE).calls) * REPEATS
    benchmark.group = f"{operation}: {whole.case}"

    def work(share):
        for call in share:
            call()

    shares = [calls[place::threads] for place in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        benchmark(lambda: list(pool.map(work, shares)))
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["million_records_per_second"] = whole.records * REPEATS / benchmark.stats.stats.min / 1e6
