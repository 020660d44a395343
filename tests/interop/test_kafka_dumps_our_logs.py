"""Kafka's DumpLogSegments accepts every kind of log that we write, and says of it what we wrote."""

from pathlib import Path

import pytest

from logcore import open_log
from tests.interop.dumping import Dumped, check_dump, files_of
from tests.interop.host import Host
from tests.interop.written import CODECS, SMALL, Writer, kill_a_writer, write_mixed_log, writing

pytestmark = pytest.mark.peers


def offsets_of(dumped: Dumped) -> list[int]:
    """The offsets of all records, control records left out."""
    found = []
    for name, batches in dumped.batches.items():
        control = [(int(one["baseOffset"]), int(one["lastOffset"])) for one in batches if one["isControl"] == "true"]
        for record in dumped.records[name]:
            offset = int(record["offset"])
            if not any(first <= offset <= last for first, last in control):
                found.append(offset)
    return found


def check(tools: Host, writer: Writer) -> Dumped:
    """Dump a closed log; its records are those of the model."""
    dumped = check_dump(tools, Path(writer.log.path))
    offsets = {one.offset for one in writer.records}
    # What lies before the log start offset is in the file still.
    assert [offset for offset in offsets_of(dumped) if offset >= min(offsets)] == sorted(offsets)
    with open_log(writer.log.path, read_only=True, config=SMALL) as log:
        assert list(log.read(log.log_start_offset)) == writer.records
        assert list(log.read(log.log_start_offset, isolation="read_committed")) == writer.committed
    return dumped


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_accepts_a_log_of_any_codec(tools, tmp_path, codec):
    with writing(tmp_path / "orders-0", **{"compression.type": "producer" if codec == "none" else codec}) as writer:
        for count in range(1, 80):
            writer.append(count % 30 + 1)
    dumped = check(tools, writer)
    assert len(dumped.batches) > 3
    assert {one["compresscodec"] for batches in dumped.batches.values() for one in batches} == {codec}
    assert sum(len(rows) for name, rows in dumped.rows.items() if name.endswith(".index")) > 40


def test_kafka_accepts_a_log_that_was_reopened_all_the_time(tools, tmp_path):
    writer = None
    for seed in range(40):
        with writing(tmp_path / "orders-0", seed, writer) as writer:
            writer.append(seed % 7 + 1)
            writer.append(3)
    assert writer is not None
    assert len(check(tools, writer).batches) > 1


def test_kafka_accepts_a_log_that_was_truncated_and_written_again(tools, tmp_path):
    with writing(tmp_path / "orders-0") as writer:
        for offset in (900, 500, 333, 332, 100, 1):
            while writer.log.log_end_offset < 1000:
                writer.append(7)
            writer.truncate_to(offset)
            writer.append(5)
        writer.append(200)
    check(tools, writer)
    with writing(tmp_path / "orders-0", 1, writer) as writer:
        writer.truncate_to(50)
    check(tools, writer)


def test_kafka_accepts_a_log_whose_first_records_were_deleted(tools, tmp_path):
    with writing(tmp_path / "orders-0") as writer:
        for _ in range(150):
            writer.append(7)
        writer.delete_records(500)
    assert files_of(tmp_path / "orders-0", ".log")[0].name != "00000000000000000000.log"
    check(tools, writer)


def test_kafka_accepts_our_producers_and_says_their_sequences(tools, tmp_path):
    with writing(tmp_path / "orders-0") as writer:
        for count in range(1, 60):
            writer.append_idempotent(count % 3, writer.rows(count % 5 + 1))
    dumped = check(tools, writer)
    last_snapshot = dumped.rows[files_of(tmp_path / "orders-0", ".snapshot")[-1].name]
    assert {int(row["producerId"]) for row in last_snapshot} == {0, 1, 2}
    for row in last_snapshot:
        (last,) = [
            one
            for one in [one for batches in dumped.batches.values() for one in batches][-3:]
            if one["producerId"] == row["producerId"]
        ]
        assert row["lastSequence"] == last["lastSequence"]
        assert row["lastOffset"] == last["lastOffset"]
        assert row["producerEpoch"] == "0"
        assert row["timestamp"] == last["CreateTime"]


def test_kafka_accepts_our_transactions_and_lists_those_that_were_aborted(tools, tmp_path):
    aborted = []
    with writing(tmp_path / "orders-0") as writer:
        for number in range(40):
            commit = number % 3 != 0
            first = writer.log.log_end_offset + 1  # transact() begins with a record outside of it
            writer.transact(number % 4 + 100, 3, 2, commit=commit, between=number % 3)
            if not commit:
                aborted.append((number % 4 + 100, first, writer.log.log_end_offset - 1))
    dumped = check(tools, writer)
    listed = [row for name, rows in dumped.rows.items() if name.endswith(".txnindex") for row in rows]
    assert [(int(row["producerId"]), int(row["firstOffset"]), int(row["lastOffset"])) for row in listed] == aborted
    assert len(listed) > 10
    kinds = [one["endTxnMarker"] for records in dumped.records.values() for one in records if "endTxnMarker" in one]
    assert kinds == ["COMMIT" if number % 3 else "ABORT" for number in range(40)]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_kafka_accepts_a_compacted_log(tools, tmp_path, policy):
    config = {"cleanup.policy": policy, "delete.retention.ms": "0"}
    with writing(tmp_path / "orders-0", **config) as writer:
        for number in range(120):
            writer.append_keyed(5, keys=30)
            if number == 60:
                writer.log.compact()
        writer.log.roll()
        size = writer.log.size_in_bytes
        assert writer.log.compact() is not None
        assert writer.log.size_in_bytes < size / 2
        left = list(writer.log.read(0))
        latest = {one.key: one for one in writer.records}
        assert {one.key: one for one in left} == latest
        assert all(one in writer.records for one in left)
        writer.records[:] = left
    check(tools, writer)


def test_kafka_accepts_a_compacted_log_of_transactions(tools, tmp_path):
    with writing(tmp_path / "orders-0", **{"cleanup.policy": "compact"}) as writer:
        for number in range(40):
            writer.append_keyed(4, keys=10)
            writer.transact(number % 3, 4, commit=number % 2 == 0)
        writer.log.roll()
        committed = [one for one in writer.committed if one.key is not None]
        assert writer.log.compact() is not None
        left = list(writer.log.read(0))
        seen = list(writer.log.read(0, isolation="read_committed"))
        assert {one.key: one for one in seen} == {one.key: one for one in committed}
        writer.records[:] = left
    dumped = check_dump(tools, tmp_path / "orders-0")
    assert offsets_of(dumped) == [one.offset for one in left]


@pytest.mark.parametrize("tail", [b"", b"\0" * 1000, b"\1" * 70], ids=["whole", "zeros", "torn"])
def test_kafka_accepts_what_we_recover_after_a_kill(tools, tmp_path, tail):
    kill_a_writer(tmp_path / "killed" / "orders-0", 7)
    with writing(tmp_path / "whole" / "orders-0", 7) as writer:
        write_mixed_log(writer)
    killed = tmp_path / "killed" / "orders-0"
    with files_of(killed, ".log")[-1].open("ab") as log:
        log.write(tail)
    with writing(killed, 8, writer) as recovered:
        assert recovered.log.recovery.bytes_cut == len(tail)
        check_records = list(recovered.log.read(0))
        assert check_records == writer.records
        recovered.write_mixed(10)
    check(tools, recovered)
