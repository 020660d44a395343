"""A log that is only read: what opening it reads of the disk, and what it knows of the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import logcore
from logcore import encode_batch
from logcore.bench.footprint import CountingDisk
from logcore.errors import CorruptBatch
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, Disk, SystemDisk
from logcore.log.names import START_CHECKPOINT, TopicPartition
from logcore.log.readonly import LOOKUPS_MAX, ReadOnlyLog, ReadOnlySegment, StartOffsets
from logcore.log.searching import OffsetAndTimestamp, find_max_timestamp, find_timestamp
from tests.logs import NAME, Partition, batch, produced

ROOMY = {"index.interval.bytes": 4096, "segment.index.bytes": 1 << 20}


def read_only(root: Path, disk: Disk = SYSTEM_DISK, **more: object) -> ReadOnlyLog:
    return ReadOnlyLog(disk, str(root), NAME, LogConfig.of(None), now_ms=0, **more)  # type: ignore[arg-type]


def bytes_read(root: Path) -> tuple[int, ReadOnlyLog]:
    """What a read-only open reads, with the last stable offset and the record of a time."""
    disk = CountingDisk()
    log = read_only(root, disk)  # type: ignore[arg-type]
    assert log.last_stable_offset == log.view.log_end_offset
    assert find_timestamp(log.view, 15) == OffsetAndTimestamp(2, 20, 0)
    return sum(size for _, _, size in disk.read), log


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_open_reads_no_more_of_a_large_log_than_of_a_small_one(tmp_path: Path, is_clean: bool) -> None:
    found = {}
    for count in (300, 6000):
        with Partition(tmp_path / str(count), ROOMY) as one:
            for number in range(count):
                one.lead(produced(7, number, value=b"x" * 500, timestamp=10 * number))
            if is_clean:
                one.close()
            found[count], log = bytes_read(tmp_path / str(count))
            assert log.view.log_end_offset == count
            size = log.segments.size
            log.close()
            if not is_clean:
                one.close()
    if is_clean:
        assert max(found.values()) < 50_000 < size // 60  # a few intervals of the index, behind its last entry
    else:
        # Beside a writer there is no snapshot of the end: headers are read from the last one on.
        assert found[6000] < size


def test_a_batch_between_snapshot_and_end_is_known_by_its_header(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, value=b"x" * 1_000_000, is_transactional=True))
        one.lead(batch(0, value=b"y" * 1_000_000))
        disk = CountingDisk()
        log = read_only(tmp_path, disk)  # type: ignore[arg-type]
        before = len(disk.read)
        assert log.last_stable_offset == 0
        assert sum(size for _, _, size in disk.read[before:]) < 20_000
        one.end(7, commit=True)
        log.refresh()
        assert log.last_stable_offset == 3
        log.close()


def test_a_damaged_marker_is_not_believed(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, is_transactional=True))
        one.end(7, commit=True)
        one.fill(3)
        path = Path(one.active.path)
        log = read_only(tmp_path)
        data = bytearray(path.read_bytes())
        size = 12 + int.from_bytes(data[8:12], "big")
        data[size + 70] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptBatch, match="crc"):
            log.stable_offset_at(5)
        log.close()
        one.crash()


def test_the_stable_offset_of_an_earlier_end_leaves_later_markers_out(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(2)
        one.lead(produced(7, 0, 2, is_transactional=True))  # 2, 3
        one.fill(1)
        one.end(7, commit=True)  # 5
        one.fill(1)
        one.roll()  # with a snapshot of 7, that knows of no transaction
        one.fill(1)
        log = read_only(tmp_path)
        assert [log.stable_offset_at(end) for end in range(9)] == [0, 1, 2, 2, 2, 2, 6, 7, 8]
        assert log.last_stable_offset == 8
        log.close()


def test_records_of_an_aborted_transaction_are_left_out_also_where_the_writer_died_before_the_index_entry(
    tmp_path: Path,
) -> None:
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 2, is_transactional=True))  # 0, 1
        one.fill(1)
        one.end(7, commit=False)  # 3
        one.lead(produced(8, 0, 1, is_transactional=True))  # 4
        one.end(8, commit=False)  # 5
        one.fill(1)
        [path] = one.path.glob("*.txnindex")
        whole = path.read_bytes()
        for kept in (2, 1, 0):
            path.write_bytes(whole[: 34 * kept])
            with logcore.open_log(one.path, read_only=True) as log:
                assert [record.offset for record in log.read(0, isolation="read_committed")] == [2, 6]
                found = log.read_columns(0, isolation="read_committed", columns=("offset",))
                assert [offset for columns in found for offset in columns.offset] == [2, 6]
        one.crash()


def test_a_time_behind_the_last_index_entry_is_found(tmp_path: Path) -> None:
    with Partition(tmp_path, ROOMY) as one:
        one.lead(batch(0, timestamp=1000, value=b"x" * 5000))
        one.lead(batch(0, timestamp=2000, value=b"x" * 5000))
        one.lead(batch(0, timestamp=1500))
        one.lead(batch(0, timestamp=3000))
        log = read_only(tmp_path)
        assert len(log.segments.active.time_index) == 1
        assert find_timestamp(log.view, 2500) == OffsetAndTimestamp(3, 3000, 0)
        assert find_max_timestamp(log.view) == OffsetAndTimestamp(3, 3000, 0)
        one.lead(batch(0, timestamp=4000))
        log.refresh()
        assert find_max_timestamp(log.view) == OffsetAndTimestamp(4, 4000, 0)
        assert find_timestamp(log.view, 4001) is None
        log.close()


def test_an_index_that_is_asked_often_is_read_into_memory(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(50)
        disk = CountingDisk()
        log = read_only(tmp_path, disk)  # type: ignore[arg-type]
        segment = log.segments.active
        for number in range(100):
            assert segment.start_for(number) == one.active.start_for(number)
        assert disk.opened.count("00000000000000000000.index") == LOOKUPS_MAX + 1
        log.close()


@pytest.mark.parametrize("garbled", [b"\x00\x00\x00\x05\x00\x00\x00\x07", b"\xff" * 8])
def test_an_index_that_misleads_costs_time_and_nothing_else(tmp_path: Path, garbled: bytes) -> None:
    with Partition(tmp_path) as one:
        one.fill(20)
        one.close()
        path = next(one.path.glob("*.index"))
        path.write_bytes(garbled * 5)
        log = read_only(tmp_path)
        assert log.view.log_end_offset == 20
        segment = log.segments.active
        assert [segment.find(number).base_offset for number in range(20)] == list(range(20))  # type: ignore[union-attr]
        log.close()


def test_boundaries_lie_between_batches(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(1)
        one.lead(encode_batch([(b"k", b"v")] * 10))  # 1 to 10
        one.lead(encode_batch([(b"k", b"v")] * 10))  # 11 to 20
        one.fill(1)
        one.roll()
        one.fill(2)
        log = read_only(tmp_path)
        first, second = log.segments
        assert isinstance(first, ReadOnlySegment)
        assert isinstance(second, ReadOnlySegment)
        assert [first.boundary_near(offset, 0, 100) for offset in (0, 5, 8, 15, 17, 90)] == [0, 0, 11, 11, 21, 22]
        assert first.boundary_near(15, 12, 20) is None
        assert first.boundary_near(15, 12, 21) == 21
        assert second.boundary_near(15, 0, 100) == 22
        log.close()


def test_the_last_epoch_is_that_of_the_last_batch_or_of_an_entry_before_the_end(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        log = read_only(tmp_path)
        assert log.last_epoch == -1
        one.lead(batch(0), epoch=3)
        log.refresh()
        assert log.last_epoch == 3
        one.lead(batch(0), epoch=5)
        one.close()
        log.close()
        (one.path / "leader-epoch-checkpoint").write_text("0\n3\n3 0\n5 1\n9 2\n")
        log = read_only(tmp_path)
        assert log.last_epoch == 5
        log.close()


def test_start_offsets_are_read_once_for_all_logs_of_a_root_until_they_are_others(tmp_path: Path) -> None:
    path = tmp_path / START_CHECKPOINT
    disk = CountingDisk()
    starts = StartOffsets(disk, str(tmp_path))  # type: ignore[arg-type]
    assert starts.get(NAME) == 0
    path.write_text("0\n2\norders 0 5\norders 1 6\n")
    assert [starts.get(TopicPartition("orders", number)) for number in (0, 1, 2)] == [5, 6, 0]
    assert len(disk.opened) <= 2  # there was none to open, and then one
    replaced = tmp_path / "new"
    replaced.write_text("0\n1\norders 0 7\n")
    replaced.rename(path)
    assert starts.get(NAME) == 7
    path.write_text("no checkpoint")
    assert starts.get(NAME) == 0


def test_the_stable_offset_is_that_of_the_file_that_is_read_also_if_compaction_replaces_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(log: logcore.Log, keys: Iterable[int]) -> None:
        for key in keys:
            log.append([(b"%d" % key, b"x" * 500)])

    config = {"cleanup.policy": "compact", "internal.segment.bytes": 40_000}
    with logcore.open_log(tmp_path / "a-0", config=config) as log:
        put(log, range(20))
        with logcore.open_log(tmp_path / "a-0", read_only=True) as reader:
            assert reader.last_stable_offset == 20
            put(log, range(20, 50))
            log.roll()
            log.compact()
            put(log, set(range(50)) - {30})  # so that one batch of the first segment stays
            log.roll()
            open_file = SystemDisk.open

            def open_after_compaction(disk: SystemDisk, path: str, **named: bool) -> object:
                if path.endswith(f"{0:020}.log"):
                    monkeypatch.setattr(SystemDisk, "open", open_file)
                    assert log.compact() is not None
                return open_file(disk, path, **named)

            monkeypatch.setattr(SystemDisk, "open", open_after_compaction)
            assert reader.last_stable_offset == 99
            assert SystemDisk.open is open_file
