"""How fast do columns become batches?

The limit. A record of a 100-byte value and a 10-byte key is 121 bytes written: 4 ns of copying, 6 ns of checksum (20
GB/s on one core), and five varints whose sizes must be known before the first byte is written, some 6 ns: 16 ns, or 60
million records a second. With 1-KiB values it is 40 ns of copying and 50 ns of checksum: 11 million. The loop in plain
C does that work for columns without nulls in memory it used before; the bar is 0.8 of it. The best client's rows take
200 ns a record: the bar is 10 times that.
"""

from functools import partial

from logcore.bench.limits import C_LOOP, CLoop
from logcore.bench.operations import ENCODE_COLUMNS, ENCODE_ROWS, LOGCORE, task
from logcore.bench.peers import AIOKAFKA, Peer


def test_logcore(clock, workload):
    clock(
        lambda: task(workload, ENCODE_COLUMNS, LOGCORE, lambda fetch: partial(workload.encode, fetch.columns)), workload
    )


def test_the_loop_in_plain_c(clock, workload):
    clock(lambda: task(workload, ENCODE_COLUMNS, C_LOOP, CLoop(workload).encode_call), workload)


def test_aiokafka_rows(clock, workload, named):
    clock(lambda: named(Peer(AIOKAFKA).tasks(workload), ENCODE_ROWS, AIOKAFKA), workload)
