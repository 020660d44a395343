"""How fast do batches become columns?

The limit. A record of a 100-byte value and a 10-byte key is 121 bytes. Reading it once for the checksum costs 6 ns (20
GB/s on one core), writing its 110 bytes, two ends, offset and timestamp (134 bytes) another 4 ns, and five varints with
their branches some 4 ns: 14 ns, or 70 million records a second. With 1-KiB values it is 50 ns of checksum and 40 ns of
copying: 11 million. The loop in plain C does exactly that work and checks nothing, so the bar is 0.8 of it. Rows cost
two or three Python objects a record, 150 ns in the best client: the bar is 12 times that.
"""

from functools import partial

from logcore import decode_columns
from logcore.bench.limits import C_LOOP, CLoop
from logcore.bench.operations import DECODE_COLUMNS, DECODE_ROWS, LOGCORE, task
from logcore.bench.peers import AIOKAFKA, Peer


def test_logcore(clock, workload):
    clock(
        lambda: task(workload, DECODE_COLUMNS, LOGCORE, lambda fetch: partial(decode_columns, fetch.stored)), workload
    )


def test_logcore_only_offset_and_value(clock, workload):
    decode = partial(decode_columns, columns=("offset", "value"))
    clock(lambda: task(workload, DECODE_COLUMNS, LOGCORE, lambda fetch: partial(decode, fetch.stored)), workload)


def test_the_loop_in_plain_c(clock, workload):
    clock(lambda: task(workload, DECODE_COLUMNS, C_LOOP, CLoop(workload).decode_call), workload)


def test_aiokafka_rows(clock, workload, named):
    clock(lambda: named(Peer(AIOKAFKA).tasks(workload), DECODE_ROWS, AIOKAFKA), workload)
