"""After a crash of either, Kafka and we recover the same log: its end, its bytes, its indexes, its producers."""

import shutil
from pathlib import Path

import pytest

from logcore import open_log
from tests.interop.dumping import check_dump, dump, files_of
from tests.interop.host import Broker, Consumed, Host, told
from tests.interop.written import SMALL, Writer, kill_a_writer, write_mixed_log, writing

pytestmark = pytest.mark.peers

TAILS = {
    "whole": b"",
    "zeros": b"\0" * 3000,
    "torn": b"\0\0\0\0\0\0\x27\x10\0\0\x04\0garbage",
}


def tear(directory: Path, tail: bytes) -> None:
    """Put `tail` behind the last batch."""
    with files_of(directory, ".log")[-1].open("ab") as log:
        log.write(tail)


def segments_of(directory: Path) -> dict[str, bytes]:
    """The files of the segments. An empty .txnindex says the same as none."""
    files = files_of(directory, ".log", ".index", ".timeindex", ".txnindex")
    return {one.name: one.read_bytes() for one in files if one.suffix != ".txnindex" or one.stat().st_size}


def check_equal(tools: Host, ours: Path, theirs: Path) -> None:
    """The same segments and indexes to the byte; the same producers in the last snapshot, in any order."""
    assert segments_of(ours) == segments_of(theirs)
    last = files_of(ours, ".snapshot")[-1].name
    assert files_of(theirs, ".snapshot")[-1].name == last
    snapshots = [dump(tools, directory).rows[last] for directory in (ours, theirs)]
    assert sorted(map(str, snapshots[0])) == sorted(map(str, snapshots[1]))
    epochs = [(directory / "leader-epoch-checkpoint").read_text() for directory in (ours, theirs)]
    # Kafka begins a new epoch when it starts: the entries before are the same.
    assert set(epochs[0].splitlines()[2:]) <= set(epochs[1].splitlines()[2:])


def recover_here(root: Path, topic: str) -> int:
    """Open, and close, a partition of a root that was left in disorder; returns its log end offset."""
    with open_log(root / f"{topic}-0", config=SMALL) as log:
        assert not log.recovery.was_clean
        return log.log_end_offset


def recover_there(broker: Broker, topic: str) -> Consumed:
    """Have Kafka do it."""
    with broker.running():
        return broker.consume(topic)[0]


@pytest.mark.parametrize("tail", TAILS)
def test_kafka_recovers_what_we_left_as_we_do(broker, tools, tmp_path, tail):
    topic = f"ours-{tail}"
    with broker.running():
        broker.create(topic, config=SMALL)
    kill_a_writer(broker.root / f"{topic}-0", 11)
    tear(broker.root / f"{topic}-0", TAILS[tail])
    copy = tmp_path / "root"
    shutil.copytree(broker.root, copy)
    with writing(tmp_path / "whole-0", 11) as writer:
        write_mixed_log(writer)

    end_offset = recover_here(copy, topic)
    seen = recover_there(broker, topic)
    assert seen == Consumed(0, end_offset, told(writer.records))
    check_equal(tools, copy / f"{topic}-0", broker.root / f"{topic}-0")
    check_dump(tools, copy / f"{topic}-0")


@pytest.mark.parametrize("tail", TAILS)
def test_we_recover_what_kafka_left_as_kafka_does(broker, tools, tmp_path, tail):
    topic = f"theirs-{tail}"
    model = Writer(None, 12)
    broker.start()
    try:
        broker.create(topic, config=SMALL)
        runs = [model.rows(10) for _ in range(60)]
        model.note([row for run in runs for row in run], broker.produce(topic, *runs))
        kept, dropped = model.rows(10), model.rows(10)
        sent = [("commit", kept), ("abort", dropped)]
        offsets = broker.produce(topic, *sent, properties={"transactional.id": topic})
        model.note(kept + dropped, offsets)
    finally:
        broker.kill()
    tear(broker.root / f"{topic}-0", TAILS[tail])
    copy = tmp_path / "root"
    shutil.copytree(broker.root, copy)

    end_offset = recover_here(copy, topic)
    seen = recover_there(broker, topic)
    assert seen == Consumed(0, end_offset, told(model.records))
    check_equal(tools, copy / f"{topic}-0", broker.root / f"{topic}-0")
    check_dump(tools, copy / f"{topic}-0")
