"""What does pointing at values save, against copying them?

The limit. With the checksum verified before, a view of a 1-KiB value reads the dozen bytes around it and writes 16: the
parser's 10 ns, or 100 million records a second, where copying adds 25 ns at 40 GB/s. So views can be some 2 to 3 times
as fast as the binary layout on 1-KiB values (the bar is 1.5 in 1-MiB batches), and gain little on 100-byte ones. With
the checksum to verify as well, that is most of what there is to do: the bar is 0.85 of it. At 27 GB/s (streams of the
crc32 instruction) the checksum takes 38 ns; at 57 GB/s (folding) 18 ns, and then the parser is a third of the work:
views go at 1.3 times the speed of the first alone, and at 0.65 of the second.
"""

from functools import partial

import pytest

from logcore import decode_columns
from logcore.bench.limits import CRC_ALONE, CRC_PACKAGE, LIMIT_CRC, limit_tasks
from logcore.bench.operations import DECODE_VIEW, LOGCORE, task


@pytest.mark.parametrize("verify_crc", [True, False], ids=["crc", "no-crc"])
@pytest.mark.parametrize("layout", ["binary", "view"])
def test_logcore(clock, workload, layout, verify_crc):
    decode = partial(decode_columns, layout=layout, verify_crc=verify_crc)
    clock(lambda: task(workload, DECODE_VIEW, LOGCORE, lambda fetch: partial(decode, fetch.stored)), workload)


def test_the_checksum_alone(clock, workload, named):
    clock(lambda: named(limit_tasks(workload), LIMIT_CRC, CRC_ALONE), workload)


def test_the_checksum_alone_by_the_package(clock, workload, named):
    clock(lambda: named(limit_tasks(workload), LIMIT_CRC, CRC_PACKAGE), workload)
