"""When a log begins a new segment, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import logcore
from logcore.errors import InvariantError, StorageError, UsageError
from logcore.log import snapshot
from tests.logs import BATCH_BYTES, FailingDisk, Partition, batch, produced


def test_rolling_an_empty_segment_changes_nothing(tmp_path: Path) -> None:
    """Unlike LOG-044: Kafka makes a new one of the same name."""
    with Partition(tmp_path) as one:
        active = one.active
        assert one.roll() is active
        one.fill(1)
        rolled = one.roll()
        files = one.files
        assert one.roll() is rolled
        assert (one.files, one.bases) == (files, [0, 1])


def test_rolling_to_before_the_active_segment_is_a_bug(tmp_path: Path) -> None:
    """LOG-045."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.log.roll(0, 10)
        with pytest.raises(InvariantError):
            one.log.roll(0, 5)
        assert one.bases == [0, 10]


def test_a_new_segment_begins_at_the_end_or_behind_it(tmp_path: Path) -> None:
    """LOG-046."""
    with Partition(tmp_path) as one:
        one.fill(3)
        assert one.log.roll(0, 1).base_offset == 3
        one.fill(1)
        assert one.log.roll(0, 40).base_offset == 40
        assert one.log.log_end_offset == 4
        one.follow(batch(40))
        assert one.offsets(0) == [0, 1, 2, 3, 40]


def test_rolling_takes_a_snapshot_and_flushes_what_lies_before(tmp_path: Path) -> None:
    """LOG-047: at once and not beside the appends; the recovery point is written down with the next checkpoint."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 2))
        one.roll()
        one.lead(produced(7, 2, 2))
        one.roll()
        assert one.snapshots == [2, 4]
        data = (one.path / "00000000000000000002.snapshot").read_bytes()
        assert [(entry.producer_id, entry.last_sequence) for entry in snapshot.parse(data)] == [(7, 1)]
        assert (one.log.recovery_point, one.root.recovery_points.get(one.log.partition)) == (4, None)
        one.checkpoint()
        assert (one.log.recovery_point, one.root.recovery_points.get(one.log.partition)) == (4, 4)


def test_a_snapshot_that_cannot_be_synced_moves_no_recovery_point(tmp_path: Path) -> None:
    """LOG-048: that on the disk; and the log ends, as after any sync that fails."""
    disk = FailingDisk()
    with Partition(tmp_path, disk=disk) as one:
        one.lead(produced(7, 0, 2))
        one.roll()
        one.flush()
        disk.fail("sync", ".snapshot")
        with pytest.raises(StorageError):
            one.checkpoint()
        assert one.root.recovery_points.get(one.log.partition) is None
        disk.heal()
        with pytest.raises(StorageError):
            one.fill(1)
        one.crash()
        one.open()
        assert one.offsets(0) == [0, 1]


def test_segments_are_rolled_by_the_clock_only_without_timestamps(tmp_path: Path) -> None:
    """LOG-049."""
    with Partition(tmp_path, {"segment.ms": 100}, now_ms=10**6) as one:
        one.lead(batch(0))
        one.now_ms += 100
        one.lead(batch(0))
        assert one.bases == [0]
        one.now_ms += 1
        one.lead(batch(0))
        assert one.bases == [0, 2]
        one.roll()
        one.lead(batch(0, timestamp=500))
        one.now_ms += 10**6
        one.lead(batch(0, timestamp=600))
        assert one.bases == [0, 2, 3]
        one.lead(batch(0, timestamp=601))
        assert one.bases == [0, 2, 3, 5]


def test_jitter_lets_a_segment_roll_earlier(tmp_path: Path) -> None:
    """LOG-050, SEG-035: drawn once a segment, here half of what it may be."""
    with Partition(tmp_path, {"segment.ms": 1000, "segment.jitter.ms": 400}) as one:
        assert one.active.roll_jitter_ms == 200
        for timestamp in (0, 800, 801):
            one.lead(batch(0, timestamp=timestamp))
        assert one.bases == [0, 2]
    with Partition(tmp_path / "other", {"segment.ms": 1000}) as one:
        assert one.active.roll_jitter_ms == 0


def test_a_log_that_gets_nothing_is_rolled_by_the_clock(tmp_path: Path) -> None:
    """So that retention and compaction get at what it has."""
    with Partition(tmp_path, {"segment.ms": 100}) as one:
        assert not one.log.maybe_roll_by_time(10**6)
        one.lead(batch(0, timestamp=5))
        assert not one.log.maybe_roll_by_time(100)
        assert one.log.maybe_roll_by_time(101)
        assert one.bases == [0, 1]


def test_a_read_at_the_high_watermark_after_a_roll(tmp_path: Path) -> None:
    """LOG-051: finds what is appended to the new segment."""
    with Partition(tmp_path) as one:
        one.log.set_high_watermark(0)
        one.fill(3)
        one.log.set_high_watermark(3)
        one.roll()
        one.fill(2)
        assert one.offsets(3) == []
        one.log.set_high_watermark(5)
        assert one.offsets(3) == [3, 4]


def test_a_flush_makes_no_index_files(tmp_path: Path) -> None:
    """LOG-052: of an empty segment. There is no other kind of flush here."""
    with Partition(tmp_path) as one:
        one.fill(1)
        one.roll()
        one.flush()
        assert "00000000000000000001.index" not in one.files


def test_a_closed_log_cannot_be_rolled(tmp_path: Path) -> None:
    """LOG-053: a UsageError here, since it is the caller's fault."""
    log = logcore.open_log(tmp_path / "orders-0")
    log.append([(b"k", b"v")])
    log.close()
    before = sorted(path.name for path in (tmp_path / "orders-0").iterdir())
    with pytest.raises(UsageError):
        log.roll()
    assert sorted(path.name for path in (tmp_path / "orders-0").iterdir()) == before


def test_segments_are_as_large_as_they_may_be(tmp_path: Path) -> None:
    with Partition(tmp_path, {"internal.segment.bytes": 3 * BATCH_BYTES}) as one:
        one.fill(7)
        assert one.bases == [0, 3, 6]
