"""What goes from the beginning of a log: by age, by size, below its start."""

from __future__ import annotations

from pathlib import Path

import pytest

import logcore
from logcore.errors import OffsetOutOfRangeError
from tests.logs import BATCH_BYTES, Partition, Settings, produced

FOREVER: Settings = {"retention.ms": -1}


def segments(one: Partition, count: int, *, each: int = 5, timestamp: int | None = None) -> None:
    """So many segments of five records each; the last one is active."""
    for n in range(count):
        one.fill(each, timestamp=timestamp)
        if n < count - 1:
            one.roll()


def test_retention_ends_at_the_first_segment_that_stays(tmp_path: Path) -> None:
    """LOG-067: also if later ones are older."""
    with Partition(tmp_path, {"retention.ms": 100}) as one:
        for timestamp in (10, 500, 20, 30):
            segments(one, 1, timestamp=timestamp)
            one.roll()
        one.now_ms = 200
        assert one.retain() == 1
        assert one.bases == [5, 10, 15, 20]


@pytest.mark.parametrize(("limit", "left"), [(-1, 4), (20, 4), (16, 4), (15, 3), (10, 2), (9, 2), (5, 1), (1, 1)])
def test_the_log_never_gets_smaller_than_its_limit(tmp_path: Path, limit: int, left: int) -> None:
    """LOG-068."""
    size = limit * BATCH_BYTES if limit > 0 else -1
    with Partition(tmp_path, {"retention.bytes": size, "retention.ms": -1}) as one:
        segments(one, 4)
        assert one.retain() == 4 - left
        assert len(one.bases) == left
        assert one.log.size >= size


def test_age_is_told_by_the_largest_timestamp(tmp_path: Path) -> None:
    """LOG-069: more than retention.ms, strictly; of the file where there is none. A future one keeps all behind it."""
    with Partition(tmp_path, {"retention.ms": 100}) as one:
        segments(one, 2, timestamp=50)
        one.now_ms = 150
        assert one.retain() == 0
        one.now_ms = 151
        assert one.retain() == 2
    with Partition(tmp_path / "untimed", {"retention.ms": 100}) as one:
        segments(one, 2, timestamp=-1)
        for segment in one.log.segments:
            segment.set_modified(1000)
        one.now_ms = 1100
        assert one.retain() == 0
        one.now_ms = 1101
        assert one.retain() == 2
    with Partition(tmp_path / "future", {"retention.ms": 100}) as one:
        segments(one, 1, timestamp=10**6)
        one.roll()
        segments(one, 2, timestamp=0)
        one.now_ms = 5000
        assert one.retain() == 0
    with Partition(tmp_path / "forever", FOREVER) as one:
        segments(one, 2, timestamp=0)
        one.now_ms = 2**60
        assert one.retain() == 0


def test_what_lies_below_the_start_goes(tmp_path: Path) -> None:
    """LOG-070, LOG-080: whole segments; at the log's end one segment is left."""
    with Partition(tmp_path, FOREVER) as one:
        segments(one, 3)
        for offset, bases in ((1, [0, 5, 10]), (6, [5, 10]), (15, [10])):
            assert one.delete_records(offset) == offset
            assert (one.bases, one.log.log_start_offset) == (bases, offset)
            assert one.offsets(offset) == list(range(offset, 15))


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact", ""])
def test_which_rules_a_policy_has(tmp_path: Path, policy: str) -> None:
    """LOG-071, LOG-075: the start always counts; size and age where "delete" is. One pass: each begins where the last
    one ended.
    """
    with Partition(
        tmp_path, {"cleanup.policy": policy, "retention.ms": 100, "retention.bytes": 12 * BATCH_BYTES}
    ) as one:
        for timestamp in (10**6, 5, 5, 10**6):
            segments(one, 1, timestamp=timestamp)
            one.roll()
        one.now_ms = 1000
        one.log.log_start_offset = 5
        deleted = one.retain()
        # 0..4 are below the start; then 5..9 are over the age, which the first segment had kept.
        assert (deleted, one.bases[0]) == ((3, 15) if "delete" in policy else (1, 5))
        assert one.retain() == 0


def test_what_is_not_committed_stays(tmp_path: Path) -> None:
    """LOG-072."""
    with Partition(tmp_path, {"retention.ms": 0}) as one:
        one.log.set_high_watermark(0)
        segments(one, 4)
        one.now_ms = 10**9
        for watermark, left in ((0, 4), (4, 4), (5, 3), (12, 2), (14, 2), (15, 1), (19, 1)):
            one.log.set_high_watermark(watermark)
            one.retain()
            assert len(one.bases) == left
        one.log.set_high_watermark(20)
        assert one.retain() == 1
        assert one.bases == [20]


def test_one_segment_always_remains(tmp_path: Path) -> None:
    """LOG-073, LOG-074, LOG-075, LOG-076: a new one, empty, which is never deleted; the log's end stays."""
    with Partition(tmp_path, {"retention.ms": 0}) as one:
        segments(one, 3)
        one.now_ms = 10**9
        assert one.retain() == 3
        assert (one.bases, one.log.log_start_offset, one.log.log_end_offset) == ([15], 15, 15)
        assert one.retain() == 0
        one.fill(1)
        assert one.offsets(15) == [15]


def test_files_are_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    """LOG-077: their snapshots too."""
    with Partition(tmp_path, {"file.delete.delay.ms": 100, "retention.ms": -1}) as one:
        segments(one, 3)
        one.delete_records(10)
        deleted = [name for name in one.files if name.endswith(".deleted")]
        assert sorted(name.split(".", 1)[1] for name in deleted) == [
            "index.deleted", "index.deleted", "log.deleted", "log.deleted", "snapshot.deleted", "timeindex.deleted",
            "timeindex.deleted",
        ]  # fmt: skip
        assert one.snapshots == [10]
        with pytest.raises(OffsetOutOfRangeError):
            one.offsets(5)
        one.log.tick(99)
        assert [name for name in one.files if name.endswith(".deleted")] == deleted
        one.log.tick(100)
        assert [name for name in one.files if name.endswith(".deleted")] == []


@pytest.mark.parametrize("is_open", [True, False])
def test_a_reader_that_was_there_before_goes_on_or_is_told(tmp_path: Path, is_open: bool) -> None:
    """With what it has open; a segment that is gone before it came there is out of range, never skipped."""
    config: Settings = {"internal.segment.bytes": 300, "file.delete.delay.ms": 0, "retention.ms": -1}
    with logcore.open_log(tmp_path / "orders-0", config=config) as log:
        for n in range(9):
            log.append([(b"k", b"%d" % n)])
    with logcore.open_log(tmp_path / "orders-0", config=config) as log:
        rows, columns = log.read(0), log.read_columns(0)
        if is_open:
            assert next(rows).offset == 0
            assert next(columns).offset.tolist() == [0, 1, 2, 3]
        log.delete_records(8)
        log.tick()
        assert not list((tmp_path / "orders-0").glob("*.deleted"))
        if is_open:
            assert [next(rows).offset for _ in range(3)] == [1, 2, 3]
        with pytest.raises(OffsetOutOfRangeError):
            next(rows)
        with pytest.raises(OffsetOutOfRangeError):
            next(columns)


def test_producers_stay_known_in_memory(tmp_path: Path) -> None:
    """LOG-079, LOG-083: after reopening they are what the rest of the log and its snapshots tell."""
    with Partition(tmp_path, {"retention.ms": -1, "file.delete.delay.ms": 0}) as one:
        one.lead(produced(1, 0))
        one.roll()
        one.lead(produced(2, 0))
        one.roll()
        one.lead(produced(3, 0))
        one.delete_records(2)
        assert set(one.log.producers.active_producers) == {1, 2, 3}
        assert one.snapshots == [2]
        one.reopen()
        assert set(one.log.producers.active_producers) == {1, 2, 3}
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.crash()
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.open()
        assert set(one.log.producers.active_producers) == {3}


def test_the_start_never_moves_back(tmp_path: Path) -> None:
    """LOG-081."""
    with Partition(tmp_path, FOREVER) as one:
        segments(one, 2)
        assert [one.delete_records(offset) for offset in (7, 3, 0, 7)] == [7, 7, 7, 7]
        for clean in (True, False):
            one.reopen(clean=clean)
            assert one.log.log_start_offset == 7


def test_a_start_is_checkpointed_only_where_the_first_segment_does_not_tell_it(tmp_path: Path) -> None:
    """LOG-082."""
    with Partition(tmp_path, FOREVER) as one:
        segments(one, 3)
        one.checkpoint()
        assert one.root.log_starts.offsets == {}
        one.delete_records(7)
        one.checkpoint()
        assert one.root.log_starts.offsets == {one.log.partition: 7}
        assert "orders 0 7" in (tmp_path / "log-start-offset-checkpoint").read_text()
        one.delete_records(10)
        one.checkpoint()
        assert one.root.log_starts.offsets == {}
        assert "orders" not in (tmp_path / "log-start-offset-checkpoint").read_text()


def test_a_crash_after_deleting_what_was_not_flushed(tmp_path: Path) -> None:
    """The recovery point does not pass what is not on the disk, or a torn tail would count as damage."""
    with Partition(tmp_path, FOREVER) as one:
        one.fill(10)
        one.delete_records(8)
        one.checkpoint()
        assert one.log.recovery_point == 0
        path = Path(one.active.path)
        one.crash()
        path.write_bytes(path.read_bytes()[: 5 * BATCH_BYTES + 9])
        one.open()
        assert (one.log.log_start_offset, one.log.log_end_offset, one.bases) == (8, 8, [8])


def test_the_library_retains_too(tmp_path: Path) -> None:
    now = [1000]
    config: Settings = {"segment.ms": 10, "retention.ms": 100, "file.delete.delay.ms": 0}
    with logcore.open_log(tmp_path / "orders-0", config=config, clock=lambda: now[0]) as log:
        log.append([(b"k", b"v")])
        now[0] = 1050
        log.append([(b"k", b"v")])
        assert [segment.base_offset for segment in log.segments] == [0, 1]
        now[0] = 1101
        assert log.retain() == 1
        assert (log.log_start_offset, [row.offset for row in log.read(1)]) == (1, [1])
