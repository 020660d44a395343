"""How fast are a broker's checks of what a producer sent?

The limit is decoding. Validating walks the same varints and the same checksum, 10 of the 14 ns that a record of a
100-byte value takes, keeps four numbers instead of writing columns, and so can be faster than decoding; 1-KiB values
leave little more than the checksum. A compressed batch has to be decompressed by both. The bar is 0.9 of decoding,
batch by batch, because a producer sends one batch at a time to a partition.
"""

import pytest

from logcore.bench.data import synthetic_rows
from logcore.bench.operations import decode_each_task, validate_task
from logcore.bench.workload import Case, Workload, workload_bytes


@pytest.fixture(scope="module")
def compressed():
    return Workload(Case("zstd", None, 1 << 20, 100), synthetic_rows(100, plain_bytes=workload_bytes(1 << 20)))


def test_validate(clock, workload):
    clock(lambda: validate_task(workload), workload)


def test_decode(clock, workload):
    clock(lambda: decode_each_task(workload), workload)


def test_validate_zstd(clock, compressed):
    clock(lambda: validate_task(compressed), compressed)


def test_decode_zstd(clock, compressed):
    clock(lambda: decode_each_task(compressed), compressed)
