"""How fast can a buffer's headers be read and its checksums verified?

The limit is the checksum. The crc32 instruction takes 8 bytes a cycle if three streams hide its latency: 24 GB/s at 3
GHz, as long as memory keeps up (one core reads 20 to 30 GB/s from the last cache). A header is 61 bytes and some 20 ns
of checks: 3 % of a 16-KiB batch, nothing of a 1-MiB one. The bar is 0.8 of the checksum alone. memcpy shows what the
memory gives when every byte is written again as well.
"""

from functools import partial

from logcore import scan_batches
from logcore.bench.limits import CRC_ALONE, LIMIT_COPY, LIMIT_CRC, MEMCPY, limit_tasks
from logcore.bench.operations import LOGCORE, SCAN, task


def test_logcore(clock, workload):
    clock(lambda: task(workload, SCAN, LOGCORE, lambda fetch: partial(scan_batches, fetch.stored)), workload)


def test_logcore_headers_only(clock, workload):
    scan = partial(scan_batches, verify_crc=False)
    clock(lambda: task(workload, SCAN, LOGCORE, lambda fetch: partial(scan, fetch.stored)), workload)


def test_the_checksum_alone(clock, workload, named):
    clock(lambda: named(limit_tasks(workload), LIMIT_CRC, CRC_ALONE), workload)


def test_memcpy(clock, workload, named):
    clock(lambda: named(limit_tasks(workload), LIMIT_COPY, MEMCPY), workload)
