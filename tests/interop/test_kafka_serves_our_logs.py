"""A Kafka broker serves the partitions that we wrote, goes on writing them, and we go on from there.

Each test creates its topic in Kafka, writes the partition while the broker is down, and takes turns with it.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from logcore import Record, decode_batches, open_log
from tests.interop.dumping import files_of
from tests.interop.host import Broker, Consumed, told, wait_until
from tests.interop.written import CODECS, SMALL, Writer, kill_a_writer, write_mixed_log, writing

pytestmark = pytest.mark.peers

BATCH_FIELDS = (
    "base_offset", "last_offset", "count", "compression", "max_timestamp", "producer_id", "producer_epoch",
    "base_sequence", "last_sequence", "leader_epoch", "is_transactional", "is_control",
)  # fmt: skip


def create(broker: Broker, topic: str, *, partitions: int = 1, **config: str) -> str:
    """Create a topic, with the broker down before and after."""
    with broker.running():
        return broker.create(topic, partitions=partitions, config=SMALL | config)


def check_served(broker: Broker, topic: str, writers: list[Writer]) -> None:
    """Kafka's consumer sees of each partition what the model says, at both isolation levels."""
    for isolation in ("read_uncommitted", "read_committed"):
        seen = broker.consume(topic, isolation=isolation)
        for partition, writer in enumerate(writers):
            records = writer.records if isolation == "read_uncommitted" else writer.committed
            assert seen[partition].records == told(records), (topic, partition, isolation)


def check_read(writer: Writer) -> None:
    """So do we."""
    log = writer.log
    assert list(log.read(log.log_start_offset)) == writer.records
    assert list(log.read(log.log_start_offset, isolation="read_committed")) == writer.committed


def test_kafka_serves_a_log_of_any_codec_and_takes_turns_in_writing_it(broker):
    topic_id = create(broker, "codecs", partitions=len(CODECS))
    writers = []
    for partition, codec in enumerate(CODECS):
        directory = broker.root / f"codecs-{partition}"
        with writing(directory, partition) as writer:
            assert writer.log.topic_id == topic_id
            assert not writer.log.recovery
            for count in range(1, 60):
                writer.append(count % 20 + 1, compression=codec)
        assert topic_id in (directory / "partition.metadata").read_text()
        writers.append(writer)

    with broker.running():
        check_served(broker, "codecs", writers)
        for partition, writer in enumerate(writers):
            rows = writer.rows(50)
            runs = [rows[first : first + 10] for first in range(0, 50, 10)]
            properties = {"compression.type": CODECS[partition]}
            writer.note(rows, broker.produce("codecs", *runs, partition=partition, properties=properties))
        check_served(broker, "codecs", writers)

    for partition, known in enumerate(writers):
        with writing(broker.root / f"codecs-{partition}", 10 + partition, known) as writer:
            assert not writer.log.recovery
            check_read(writer)
            for count in range(1, 30):
                writer.append(count % 20 + 1)
        writers[partition] = writer

    with broker.running():
        check_served(broker, "codecs", writers)


def test_kafka_serves_our_transactions_and_we_serve_kafkas(broker):
    create(broker, "transactions")
    directory = broker.root / "transactions-0"
    with writing(directory, 3) as writer:
        writer.write_mixed(150)
    with broker.running():
        check_served(broker, "transactions", [writer])
        kept, dropped, last = writer.rows(20), writer.rows(20), writer.rows(5)
        runs = [("commit", kept), ("abort", dropped), ("commit", last)]
        offsets = broker.produce("transactions", *runs, properties={"transactional.id": "one"})
        writer.note(kept, offsets[:20])
        writer.note(dropped, offsets[20:40], is_aborted=True)
        writer.note(last, offsets[40:])
        check_served(broker, "transactions", [writer])
    with writing(directory, 4, writer) as writer:
        assert not writer.log.recovery
        check_read(writer)
        writer.write_mixed(50)
        end_offset = writer.log.log_end_offset
    with broker.running():
        check_served(broker, "transactions", [writer])
        assert broker.consume("transactions")[0][:2] == (0, end_offset)


def test_kafka_serves_a_log_whose_first_records_we_deleted_and_that_we_truncated(broker):
    create(broker, "cut")
    with writing(broker.root / "cut-0", 5) as writer:
        for _ in range(150):
            writer.append(7)
        writer.delete_records(400)
        writer.truncate_to(900)
        writer.append(30)
        end_offset = writer.log.log_end_offset
    with broker.running():
        check_served(broker, "cut", [writer])
        assert broker.consume("cut")[0][:2] == (400, end_offset)


@pytest.mark.parametrize("tail", [b"", b"\1" * 70], ids=["whole", "torn"])
def test_kafka_and_we_go_on_after_the_other_was_killed(broker, tmp_path, tail):
    topic = f"killed{len(tail)}"
    create(broker, topic)
    directory = broker.root / f"{topic}-0"
    kill_a_writer(directory, 7)
    with files_of(directory, ".log")[-1].open("ab") as log:
        log.write(tail)
    with writing(tmp_path / "whole-0", 7) as writer:
        write_mixed_log(writer)

    broker.start()
    try:
        check_served(broker, topic, [writer])
        rows = writer.rows(100)
        writer.note(rows, broker.produce(topic, *(rows[first : first + 5] for first in range(0, 100, 5))))
    finally:
        broker.kill()
    with writing(directory, 8, writer) as writer:
        assert not writer.log.recovery.was_clean
        check_read(writer)
        writer.write_mixed(20)

    with broker.running():
        check_served(broker, topic, [writer])


def latest(records: list[Record]) -> dict[bytes | None, Record]:
    """The last record of each key, tombstones too."""
    return {one.key: one for one in records}


def logs_of(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in files_of(directory, ".log", ".index", ".timeindex", ".txnindex")}


def batches_of(log: Path) -> list[tuple[Any, ...]]:
    """The batches of a file, but for when their delete horizon is."""
    return [
        (
            *(getattr(batch, name) for name in BATCH_FIELDS),
            batch.delete_horizon_ms is None,
            list(batch),
        )
        for batch in decode_batches(log.read_bytes())
    ]


def cleaned_offset(root: Path, topic: str) -> int:
    """Up to where Kafka says that it has compacted a topic of one partition."""
    for line in (root / "cleaner-offset-checkpoint").read_text().splitlines():
        if line.startswith(f"{topic} 0 "):
            return int(line.split()[2])
    return 0


def test_kafka_compacts_our_log_to_the_bytes_that_we_compact_it_to(broker, tmp_path):
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    create(broker, "ours", **policy)
    directory = broker.root / "ours-0"
    with writing(directory, 5, **policy) as writer:
        for number in range(100):
            writer.append_keyed(5, keys=40, tombstones=False)
            if number % 10 == 0:
                rows = writer.keyed_rows(2, keys=40, tombstones=False)
                writer.append_idempotent(5000 + number % 3, rows)
        writer.log.roll()
        end_offset = writer.log.log_end_offset
    copy = tmp_path / "ours-0"
    shutil.copytree(directory, copy)
    with open_log(copy, config=SMALL | policy) as log:
        assert log.compact() is not None
        left = list(log.read(0))
    assert latest(left) == latest(writer.records)

    with broker.running():
        wait_until(lambda: cleaned_offset(broker.root, "ours") == end_offset, "Kafka's compaction")
        assert broker.consume("ours")[0].records == told(left)
    assert logs_of(directory) == logs_of(copy)
    with open_log(directory, config=SMALL | policy) as log:
        assert list(log.read(0)) == left
        assert log.compact() is None


def test_kafka_compacts_our_transactions_to_the_records_and_batches_that_we_compact_them_to(broker, tmp_path):
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    create(broker, "mixed", **policy)
    directory = broker.root / "mixed-0"
    with writing(directory, 9, **policy) as writer:
        # Kafka's leader takes no record without a key for such a topic, its replicas do, and its cleaner drops them.
        for number in range(60):
            writer.append_keyed(4, keys=20)
            writer.transact(6000 + number % 3, 3, 2, commit=number % 2 == 0)
        writer.log.roll()
        end_offset = writer.log.log_end_offset
    copy = tmp_path / "mixed-0"
    shutil.copytree(directory, copy)
    with open_log(copy, config=SMALL | policy) as log:
        assert log.compact() is not None
        left, committed = list(log.read(0)), list(log.read(0, isolation="read_committed"))
    assert latest(committed) == latest([one for one in writer.committed if one.key is not None])

    with broker.running():
        wait_until(lambda: cleaned_offset(broker.root, "mixed") == end_offset, "Kafka's compaction")
        assert broker.consume("mixed")[0].records == told(left)
        assert broker.consume("mixed", isolation="read_committed")[0].records == told(committed)
    # When tombstones and markers may go was reckoned from another time: it is in the batches, and in their checksums.
    assert [batches_of(one) for one in files_of(directory, ".log")] == [
        batches_of(one) for one in files_of(copy, ".log")
    ]
    for kind in (".index", ".timeindex", ".txnindex"):
        assert [(one.name, one.read_bytes()) for one in files_of(directory, kind) if one.stat().st_size] == [
            (one.name, one.read_bytes()) for one in files_of(copy, kind) if one.stat().st_size
        ]


def test_kafka_serves_what_we_compact_of_its_log(broker):
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "0"}
    create(broker, "theirs", **policy)
    directory = broker.root / "theirs-0"
    model = Writer(None, 6)
    with broker.running():
        runs = [model.keyed_rows(5, keys=40) for _ in range(100)]
        offsets = broker.produce("theirs", *runs)
        model.note([row for run in runs for row in run], offsets)
    with open_log(directory, config=SMALL | policy) as log:
        assert list(log.read(0)) == model.records
        log.roll()
        assert log.compact() is not None
        left = list(log.read(0))
    assert len(left) < 100
    assert latest(left) == latest(model.records)
    with broker.running():
        assert broker.consume("theirs")[0] == Consumed(0, offsets[-1] + 1, told(left))
        more = model.keyed_rows(10, keys=40)
        model.note(more, broker.produce("theirs", more))
    with open_log(directory, config=SMALL | policy) as log:
        assert latest(list(log.read(0))) == latest(model.records)
        log.roll()
        log.compact()
        kept = list(log.read(0))
    with broker.running():
        assert broker.consume("theirs")[0].records == told(kept)
