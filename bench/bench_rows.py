"""How fast are rows, one Python object a record, against the other Python clients?

The limit is CPython's. A decoded record is a Record and two bytes objects: three allocations of some 10 ns and as many
releases, two copies, the loop's own 10 ns: 50 ns, or 20 million records a second. An encoded one is a tuple to take
apart: 20 ns for its checks, 10 ns of varints, copies and checksum: 30 million. The bars are 2 times (decode) and 5
times (encode) aiokafka's compiled records.
"""

import pytest

from logcore.bench.operations import DECODE_ROWS, ENCODE_ROWS, LOGCORE, logcore_tasks
from logcore.bench.peers import AIOKAFKA, KAFKA_PYTHON, Peer


@pytest.mark.parametrize("operation", [ENCODE_ROWS, DECODE_ROWS])
def test_logcore(clock, workload, named, operation):
    clock(lambda: named(logcore_tasks(workload), operation, LOGCORE), workload, operation)


@pytest.mark.parametrize("operation", [ENCODE_ROWS, DECODE_ROWS])
@pytest.mark.parametrize("peer", [AIOKAFKA, KAFKA_PYTHON])
def test_peer(clock, workload, named, peer, operation):
    clock(lambda: named(Peer(peer).tasks(workload), operation, peer), workload, operation)
