"""partition.metadata: its bytes, and the one id that a partition has for all its life."""

from __future__ import annotations

import errno

import pytest

from logcore.errors import (
    CorruptCheckpoint,
    CorruptionReason,
    InconsistentTopicIdError,
    InvariantError,
    StorageError,
    UsageError,
)
from logcore.log.disk import SYSTEM_DISK
from logcore.log.partition_metadata import (
    PartitionMetadata,
    format_partition_metadata,
    parse_partition_metadata,
    read_partition_metadata,
)
from logcore.log.uuids import METADATA_TOPIC_ID, ZERO_UUID, parse_topic_id
from tests.unit.log.test_checkpoints import RecordingDisk, refusal

ORDERS = parse_topic_id("G6yKAFZ_QT2Z-XISta5K6w")
OTHER = parse_topic_id("8h33-TmpQFyUOdXgLs91lQ")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "partition.metadata")


def test_the_file_has_two_lines_and_no_end_of_line():
    """LOG-135."""
    data = b"version: 0\ntopic_id: G6yKAFZ_QT2Z-XISta5K6w"
    assert format_partition_metadata(ORDERS) == data
    assert parse_partition_metadata(data, "x") == ORDERS
    assert parse_partition_metadata(format_partition_metadata(METADATA_TOPIC_ID), "x") == METADATA_TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"version: 0\r\ntopic_id: G6yKAFZ_QT2Z-XISta5K6w\r\n",
        b"version: 1\ntopic_id: G6yKAFZ_QT2Z-XISta5K6w\nof a later version: 5\n",
        b"any: +00\nwords:\t  G6yKAFZ_QT2Z-XISta5K6w",
        b"version: 0: \ntopic_id: G6yKAFZ_QT2Z-XISta5K6w==: ",
    ],
)
def test_what_kafka_reads_is_read(data):
    assert parse_partition_metadata(data, "x") == ORDERS


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (b"", "MALFORMED", "line 1 got '', wanted two lines, of version and topic id"),
        (b"version: 0", "MALFORMED", "line 2 got '', wanted two lines, of version and topic id"),
        (b"version:0\nx", "MALFORMED", "line 1 got 'version:0', wanted \"version: 0\""),
        (b"version: 0 \nx", "MALFORMED", "line 1 got 'version: 0 ', wanted \"version: 0\""),
        (b"version: -1\nx", "VERSION", "version in line 1 got -1, wanted 0 or later"),
        (b"version: 0\nx", "MALFORMED", "line 2 got 'x', wanted \"topic_id: \" and an id"),
        (
            b"version: 0\ntopic_id: AAAA",
            "MALFORMED",
            "topic id in line 2 got 'AAAA', wanted the 22 characters of 16 bytes in base64 for URLs",
        ),
        (
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "MALFORMED",
            "topic id in line 2 got 'AAAAAAAAAAAAAAAAAAAAAA', wanted another id than zero, which stands for none",
        ),
        (b"version: 0\ntopic_id: \xff", "MALFORMED", "byte 21 got 0xff, wanted UTF-8"),
    ],
)
def test_what_is_no_partition_metadata_is_refused_with_its_line(data, reason, message):
    error = refusal(parse_partition_metadata, data)
    assert (error.reason.name, str(error)) == (reason, f"checkpoint in some-checkpoint: {message}")


def test_an_id_is_written_when_the_log_says_so_and_once(path, tmp_path):
    """LOG-135: before the first record, before a rename, and on close; here each of them is a flush()."""
    metadata = PartitionMetadata.load(SYSTEM_DISK, path)
    metadata.record(ORDERS)
    assert (metadata.topic_id, metadata.is_dirty, list(tmp_path.iterdir())) == (ORDERS, True, [])
    disk = RecordingDisk()
    assert metadata.flush(disk)
    assert disk.calls[-2:] == [
        ("rename", "partition.metadata.tmp", "partition.metadata"),
        ("sync_directory", tmp_path.name),
    ]
    assert read_partition_metadata(SYSTEM_DISK, path) == ORDERS
    written = len(disk.calls)
    assert (metadata.flush(disk), metadata.is_dirty, len(disk.calls)) == (False, False, written)
    metadata.check_invariants()


def test_another_id_than_the_known_one_is_inconsistent_and_changes_nothing(path):
    """LOG-136: whether the file has it or not; the same id may be recorded again."""
    metadata = PartitionMetadata(path)
    metadata.record(ORDERS)
    metadata.record(parse_topic_id("G6yKAFZ_QT2Z-XISta5K6w=="))
    for _ in range(2):
        with pytest.raises(InconsistentTopicIdError) as caught:
            metadata.record(OTHER)
        assert str(caught.value) == f"topic id, {path}: got {OTHER}, wanted {ORDERS}"
        assert metadata.topic_id == ORDERS
        metadata.flush(SYSTEM_DISK)
        metadata.record(ORDERS)
        assert not metadata.is_dirty
    assert read_partition_metadata(SYSTEM_DISK, path) == ORDERS


def test_without_an_id_nothing_is_written(path, tmp_path):
    """LOG-136."""
    metadata = PartitionMetadata.load(SYSTEM_DISK, path)
    assert (metadata.topic_id, metadata.is_dirty) == (None, False)
    assert not metadata.flush(SYSTEM_DISK)
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_not_opened_for_another_topic_than_its_file_says(path):
    """LOG-137: the library's half of it; the log that is opened passes on what it expects."""
    PartitionMetadata.load(SYSTEM_DISK, path, ORDERS).flush(SYSTEM_DISK)
    assert PartitionMetadata.load(SYSTEM_DISK, path).topic_id == ORDERS
    again = PartitionMetadata.load(SYSTEM_DISK, path, ORDERS)
    assert (again.topic_id, again.is_dirty) == (ORDERS, False)
    with pytest.raises(InconsistentTopicIdError):
        PartitionMetadata.load(SYSTEM_DISK, path, OTHER)


def test_an_id_that_could_not_be_written_stays_to_be_written(path):
    metadata = PartitionMetadata(path)
    metadata.record(ORDERS)
    with pytest.raises(StorageError):
        metadata.flush(RecordingDisk(sync=errno.EIO))
    assert (metadata.is_dirty, read_partition_metadata(SYSTEM_DISK, path)) == (True, None)
    assert metadata.flush(SYSTEM_DISK)


def test_an_id_goes_where_the_directory_is_now(tmp_path):
    metadata = PartitionMetadata(str(tmp_path / "orders-0" / "partition.metadata"))
    metadata.record(ORDERS)
    (tmp_path / "orders-0.x-delete").mkdir()
    metadata.path = str(tmp_path / "orders-0.x-delete" / "partition.metadata")
    metadata.flush(SYSTEM_DISK)
    assert (tmp_path / "orders-0.x-delete" / "partition.metadata").exists()


def test_zero_is_no_id_to_record(path):
    metadata = PartitionMetadata(path)
    for text in (ZERO_UUID, "no id"):
        with pytest.raises(UsageError):
            metadata.record(text)
    assert metadata.topic_id is None


def test_a_file_that_is_too_long_is_refused(tmp_path):
    path = tmp_path / "partition.metadata"
    path.write_bytes(format_partition_metadata(ORDERS) + b"\n" * 70_000)
    with pytest.raises(CorruptCheckpoint, match="wanted at most 65536 bytes") as caught:
        PartitionMetadata.load(SYSTEM_DISK, str(path))
    assert caught.value.reason is CorruptionReason.MALFORMED


def test_a_state_that_cannot_be_is_found(path):
    metadata = PartitionMetadata(path)
    metadata._is_dirty = True
    with pytest.raises(InvariantError):
        metadata.check_invariants()
    metadata = PartitionMetadata(path)
    metadata._topic_id = "AAAAAAAAAAAAAAAAAAAAAf"
    with pytest.raises(InvariantError):
        metadata.check_invariants()
