import sys

import pytest

from logcore import UsageError, decode_batches
from logcore.bench import peers
from logcore.bench.data import synthetic_rows
from logcore.bench.operations import DECODE_ROWS, ENCODE_ROWS
from logcore.bench.peers import AIOKAFKA, KAFKA_PYTHON, Peer
from logcore.bench.workload import Case, Workload

PACKAGES = {AIOKAFKA: "aiokafka", KAFKA_PYTHON: "kafka"}


@pytest.fixture(params=PACKAGES)
def peer(request):
    try:
        return Peer(request.param)
    except UsageError as missing:
        pytest.skip(str(missing))


def _workload(codec="none"):
    rows = [*synthetic_rows(50, plain_bytes=20_000), (None, None, 1_700_000_000_000, (("h", b"x"), ("n", None)))]
    return Workload(Case(codec, None, 2048, 50), rows)


def test_a_peer_writes_the_records_that_it_was_given(peer):
    for fetch in _workload().fetches:
        written = peer.encode(peers._listed(fetch.rows), codec=0, batch_bytes=2048)
        read = [
            [(record.key, record.value, record.timestamp, record.headers) for record in batch]
            for buffer in written
            for batch in decode_batches(buffer)
        ]
        assert read == fetch.rows


def test_a_peer_reads_every_batch_and_finds_its_checksum_right(peer):
    for fetch in _workload().fetches:
        assert peer.decode(fetch.stored) == len(fetch.rows)


def test_a_peer_is_timed_at_both(peer):
    workload = _workload("gzip")
    tasks = peer.tasks(workload)
    assert [(task.operation, task.by) for task in tasks] == [(ENCODE_ROWS, peer.name), (DECODE_ROWS, peer.name)]
    assert all(sum(task.records) == workload.records for task in tasks)


def test_a_codec_that_a_peer_cannot_do_is_told_in_one_line(peer, monkeypatch):
    def refuse(buffer):
        raise AssertionError("no such library\nand more")

    monkeypatch.setattr(peer, "decode", refuse)
    with pytest.raises(UsageError) as caught:
        peer.tasks(_workload("snappy"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_that_is_not_installed_is_told_in_one_line(name, monkeypatch):
    for module in [PACKAGES[name], *(loaded for loaded in sys.modules if loaded.startswith(f"{PACKAGES[name]}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"wanted pip install 'logcore\[bench\]'"):
        Peer(name)


def test_aiokafka_counts_only_with_its_compiled_records(monkeypatch):
    pytest.importorskip("aiokafka", reason="aiokafka is not installed (pip install 'logcore[bench]')")
    module = sys.modules.get("aiokafka.record.default_records") or __import__(
        "aiokafka.record.default_records", fromlist=["DefaultRecordBatchBuilder"]
    )
    monkeypatch.setattr(module, "DefaultRecordBatchBuilder", module._DefaultRecordBatchBuilderPy)
    with pytest.raises(UsageError, match="got its pure Python records, wanted its compiled ones"):
        Peer(AIOKAFKA)
