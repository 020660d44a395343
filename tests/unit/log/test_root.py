"""A log root: which partitions it has, its lock, its checkpoints, and whether it was closed in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logcore
from logcore.errors import LockedError, StorageError, UnknownTopicOrPartitionError, UsageError
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import TopicPartition
from logcore.log.root import CHECKPOINT_INTERVAL_MS, Root
from tests.logs import NAME, FailingDisk, Partition, batch, chance

OTHER = TopicPartition("orders", 1)
CLEAN = ".kafka_cleanshutdown"


def opened(tmp_path: Path, now_ms: int = 0) -> Root:
    return Root(SYSTEM_DISK, str(tmp_path), chance(), now_ms)


def test_a_deleted_partition_is_gone(tmp_path: Path) -> None:
    """LOG-131: with all its files and its entries in the checkpoints; a new one of its name begins anew."""
    with Partition(tmp_path, {"retention.ms": -1}) as one:
        one.fill(10)
        one.delete_records(5)
        one.root.close_log(one.log, 0)
        assert NAME in one.root.log_starts.offsets
        one.root.delete(NAME)
        assert not one.path.exists()
        assert [path.name for path in tmp_path.iterdir() if "orders" in path.name] == []
        assert NAME not in one.root.log_starts.offsets
        assert NAME not in one.root.recovery_points.offsets
        with pytest.raises(UnknownTopicOrPartitionError):
            one.root.delete(NAME)
        one.log, _ = one.root.open(NAME, one.config, now_ms=0, create=True)
        assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 0)


def test_an_open_log_is_not_deleted(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        with pytest.raises(UsageError):
            one.root.delete(NAME)
        assert one.path.exists()


def test_directories_on_their_way(tmp_path: Path) -> None:
    """LOG-132: what is to be deleted is removed when the root is opened; strays and futures are no partitions."""
    hexes = "0123456789abcdef" * 2
    for suffix in ("-delete", "-stray", "-future"):
        directory = tmp_path / f"orders-0.{hexes}{suffix}"
        directory.mkdir()
        (directory / "00000000000000000000.log").write_bytes(batch(0))
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "not a partition").mkdir()
    root = opened(tmp_path)
    assert root.partitions() == [OTHER]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "not a partition", f"orders-0.{hexes}-future", f"orders-0.{hexes}-stray", "orders-1",
    ]  # fmt: skip
    root.close(0)


def test_two_directories_of_one_partition_are_an_error_that_names_both(tmp_path: Path) -> None:
    """LOG-134."""
    for name in ("orders-0", "orders-00"):
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError) as caught:
        opened(tmp_path)
    assert "orders-0 and orders-00" in str(caught.value)
    (tmp_path / "orders-00").rmdir()
    opened(tmp_path).close(0)


def test_checkpoints_are_the_roots(tmp_path: Path) -> None:
    """LOG-142: one file for all its partitions, and for no others."""
    for root in ("a", "b"):
        with logcore.open_root(tmp_path / root) as logs:
            for number in range(2):
                logs.log(f"{root}-topic", number, create=True).append([(b"k", b"v")])
    for root in ("a", "b"):
        text = (tmp_path / root / "recovery-point-offset-checkpoint").read_text()
        assert text == f"0\n2\n{root}-topic 0 1\n{root}-topic 1 1\n"


def test_a_root_is_clean_if_all_its_logs_were_closed_in_order(tmp_path: Path) -> None:
    """LOG-144: one that was not stays so until each partition has been opened and closed."""
    config = LogConfig()
    root = opened(tmp_path)
    for partition in (NAME, OTHER):
        root.open(partition, config, now_ms=0, create=True)
    root.close(0)
    assert (tmp_path / CLEAN).exists()

    root = opened(tmp_path)
    assert not (tmp_path / CLEAN).exists()
    root.abandon()

    root = opened(tmp_path)
    _, recovery = root.open(NAME, config, now_ms=0, create=False)
    assert not recovery.was_clean
    root.close(0)
    assert not (tmp_path / CLEAN).exists()

    root = opened(tmp_path)
    for partition in (NAME, OTHER):
        root.open(partition, config, now_ms=0, create=False)
    root.close(0)
    assert (tmp_path / CLEAN).exists()


def test_a_log_that_cannot_be_closed_leaves_its_root_unclean(tmp_path: Path) -> None:
    """LOG-144: the others are closed all the same, and the lock goes."""
    disk = FailingDisk()
    root = Root(disk, str(tmp_path), chance(), 0)
    logs = [root.open(partition, LogConfig(), now_ms=0, create=True)[0] for partition in (NAME, OTHER)]
    for log in logs:
        log.append_records([(b"k", b"v", 1)], now_ms=0)
    disk.fail("sync", "orders-0/00000000000000000000.log")
    with pytest.raises(StorageError):
        root.close(0)
    disk.heal()
    assert not (tmp_path / CLEAN).exists()
    assert not (tmp_path / ".lock").exists()
    root = opened(tmp_path)
    assert root.recovery_points.offsets == {OTHER: 1}
    for partition in (NAME, OTHER):
        log, recovery = root.open(partition, LogConfig(), now_ms=0, create=False)
        assert (recovery.was_clean, log.log_end_offset) == (False, 1)
    root.close(0)


def test_one_process_writes_to_a_root(tmp_path: Path) -> None:
    """LOG-147: the lock file goes when it is closed."""
    code = f"import logcore; logcore.open_log({str(tmp_path / 'orders-0')!r}).close()"
    with logcore.open_log(tmp_path / "orders-0") as log:
        assert (tmp_path / ".lock").exists()
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert found.returncode
        assert "LockedError" in found.stderr
        log.append([(b"k", b"v")])
    assert not (tmp_path / ".lock").exists()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    assert issubclass(LockedError, StorageError)


def test_checkpoints_are_written_from_time_to_time_and_logs_flushed(tmp_path: Path) -> None:
    """LOG-155: recovery points and log start offsets; flush.ms after the last flush."""
    with Partition(tmp_path, {"flush.ms": 1000, "retention.ms": -1}) as one:
        one.fill(10)
        one.root.tick(999)
        assert one.log.recovery_point == 0
        one.root.tick(1000)
        assert one.log.recovery_point == 10
        one.log.log_start_offset = 3
        assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
        one.root.tick(CHECKPOINT_INTERVAL_MS)
        assert "orders 0 10" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
        assert "orders 0 3" in (tmp_path / "log-start-offset-checkpoint").read_text()
        one.fill(1)
        one.close()
        assert "orders 0 11" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
        one.open()


def test_a_partition_is_opened_once(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        with pytest.raises(UsageError):
            one.root.open(NAME, one.config, now_ms=0, create=True)
        with pytest.raises(UnknownTopicOrPartitionError):
            one.root.open(OTHER, one.config, now_ms=0, create=False)
        assert not (tmp_path / "orders-1").exists()


def test_retention_of_a_compacted_log_is_the_compactions(tmp_path: Path) -> None:
    """Unlike LOG-153: retain() may be called for every log, and looks at the policy itself."""
    with Partition(tmp_path, {"cleanup.policy": "compact", "retention.ms": 1}) as one:
        one.fill(3)
        one.roll()
        one.now_ms = 10**9
        assert one.retain() == 0
        one.configure({"cleanup.policy": "delete"})
        assert one.retain() == 1
