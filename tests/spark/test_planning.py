"""What a read is of: offsets of the partitions, found without reading them."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore.bench.footprint import CountingDisk
from logcore.errors import StorageError, UsageError
from logcore.log.names import REPLICATION_CHECKPOINT, START_CHECKPOINT
from pyspark_logcore.errors import DataLossError
from tests.logs import NAME, Partition, batch, produced
from tests.spark.layouts import bytes_read, expected_of, numbered, planned, ranges, unpacked, write


def only(root: Path | str, **options: str) -> tuple[int, int]:
    """The range of the one partition."""
    [(_, start, end)] = planned(root, **options)
    return start, end


# --- earliest and latest ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_brokers_root_is_read_from_start_to_end_and_not_written_to(tmp_path: Path, kind: str, isolation: str) -> None:
    root = unpacked(kind, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    expected = [
        (f"{one['topic']}-{one['partition']}", one["start"], one["end"])
        for one in expected_of(isolation)
        if one["start"] < one["end"]
    ]
    assert planned(root, **{"isolation.level": isolation}) == sorted(expected)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_read_starts_where_the_log_does(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(20)
        one.delete_records(7)
    assert only(tmp_path) == (7, 20)
    (tmp_path / START_CHECKPOINT).write_text("damaged")
    assert only(tmp_path) == (0, 20)


def test_committed_reads_end_before_the_first_open_transaction(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(3)
        one.lead(produced(7, 0, 2, is_transactional=True))
        one.fill(2)
        assert only(tmp_path) == (0, 3)
        assert only(tmp_path, **{"isolation.level": "read_uncommitted"}) == (0, 7)
        one.end(7, commit=False)
        assert only(tmp_path) == (0, 8)


def test_a_torn_batch_at_the_end_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(20, size=1))
    last = max((tmp_path / "orders-0").glob("*.log"))
    with last.open("ab") as file:
        file.write(batch(20)[:50])
    assert only(tmp_path) == (0, 20)


def test_with_bound_high_watermark_a_read_ends_where_the_root_says(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(2)
        one.lead(produced(7, 0, 2, is_transactional=True))  # 2, 3
        one.fill(1)
        one.end(7, commit=True)  # 5
        one.fill(4)
    path = tmp_path / REPLICATION_CHECKPOINT

    def ends(high_watermark: int) -> tuple[int, int]:
        path.write_text(f"0\n1\norders 0 {high_watermark}\n")
        uncommitted = ranges(tmp_path, bound="high_watermark", **{"isolation.level": "read_uncommitted"})
        committed = ranges(tmp_path, bound="high_watermark")
        return sum(one.end for one in uncommitted), sum(one.end for one in committed)

    # The marker at 5 is not committed before the high watermark is 6.
    assert [ends(number) for number in (0, 2, 4, 5, 6, 9, 99)] == [
        *((0, 0), (2, 2), (4, 2), (5, 2)),
        *((6, 6), (9, 9), (10, 10)),
    ]
    path.unlink()
    assert planned(tmp_path, bound="high_watermark") == []  # nothing is known to be committed


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_are_taken_as_given_with_latest_and_earliest_among_them(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path, f"orders-{number}", numbered(30))
    found = planned(
        tmp_path,
        startingOffsets='{"orders": {"0": 12, "1": -2}}',
        endingOffsets='{"orders": {"0": -1, "1": 13}}',
    )
    assert found == [("orders-0", 12, 30), ("orders-1", 0, 13)]


def test_an_empty_range_is_no_split(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(30))
    write(tmp_path, "empty-0", [])
    assert planned(tmp_path) == [("orders-0", 0, 30)]
    assert planned(tmp_path, subscribe="orders", startingOffsets='{"orders": {"0": 30}}') == []


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"orders": {"0": 5}}', "got no orders-1, wanted exactly the partitions that are read"),
        ('{"orders": {"0": 5, "1": 5, "2": 5}}', "got also orders-2, wanted exactly"),
        ('{"orders": {"0": 5}, "other": {"1": 5}}', "got no orders-1 and also other-1, wanted exactly"),
    ],
)
def test_offsets_have_to_be_given_for_each_partition_that_is_read(
    tmp_path: Path, option: str, given: str, expected: str
) -> None:
    for number in (0, 1):
        write(tmp_path, f"orders-{number}", numbered(10))
    with pytest.raises(UsageError, match=f"option {option}: {expected}"):
        planned(tmp_path, **{option: given})


def test_a_start_behind_the_end_is_told(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(10))
    for more in ({}, {"failOnDataLoss": "false"}, {"minPartitions": "3"}):
        with pytest.raises(UsageError, match=r"option endingOffsets: got 10 for orders-0, wanted 11 or more"):
            planned(tmp_path, startingOffsets='{"orders": {"0": 11}}', **more)


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [(2, 9, [(5, 9)]), (2, 99, [(5, 10)]), (7, 99, [(7, 10)]), (1, 4, []), (50, 99, [])],
)
def test_offsets_that_are_not_there_are_a_loss_or_left_out(
    tmp_path: Path, start: int, end: int, left: list[tuple[int, int]]
) -> None:
    with Partition(tmp_path) as one:
        one.fill(10)
        one.delete_records(5)
    given = {"startingOffsets": f'{{"orders": {{"0": {start}}}}}', "endingOffsets": f'{{"orders": {{"0": {end}}}}}'}
    with pytest.raises(DataLossError, match=rf"got offsets 5 to 10, wanted {start} to {end} \(failOnDataLoss=false"):
        planned(tmp_path, **given)
    assert [found[1:] for found in planned(tmp_path, failOnDataLoss="false", **given)] == left


# --- timestamps -------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Two partitions of several segments; record n has the time 10 n."""
    write(tmp_path, "orders-0", numbered(300))
    return write(tmp_path, "orders-1", numbered(100))


def test_a_time_for_all_partitions(timed: Path) -> None:
    assert planned(timed, startingTimestamp="555", endingTimestamp="801") == [
        ("orders-0", 56, 81),
        ("orders-1", 56, 81),
    ]


def test_times_of_partitions(timed: Path) -> None:
    assert planned(
        timed,
        startingOffsetsByTimestamp='{"orders": {"0": 2345, "1": 0}}',
        endingOffsetsByTimestamp='{"orders": {"0": 2400, "1": 99999}}',
    ) == [("orders-0", 235, 240), ("orders-1", 0, 100)]


def test_a_time_behind_all_records_is_an_error_at_the_start_and_the_end_at_the_end(timed: Path) -> None:
    with pytest.raises(UsageError, match="option startingTimestamp: got a time behind all records of orders-1"):
        planned(timed, startingTimestamp="2000")
    assert planned(timed, startingTimestamp="2000", startingOffsetsByTimestampStrategy="Latest") == [
        ("orders-0", 200, 300)
    ]
    assert planned(timed, endingTimestamp="2000") == [("orders-0", 0, 200), ("orders-1", 0, 100)]


def test_a_time_in_an_open_transaction_is_no_match(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(3, timestamp=100)
        one.lead(produced(7, 0, 2, is_transactional=True, timestamp=200))
        one.fill(2, timestamp=300)
        with pytest.raises(UsageError, match="got a time behind all records of orders-0"):
            planned(tmp_path, startingTimestamp="150")
        assert planned(tmp_path, startingTimestamp="150", startingOffsetsByTimestampStrategy="latest") == []
        assert planned(tmp_path, endingTimestamp="250") == [("orders-0", 0, 3)]


def test_a_time_at_the_start_that_comes_after_the_one_at_the_end_is_told(timed: Path) -> None:
    with pytest.raises(UsageError, match=r"option endingTimestamp: got 50 for orders-0, wanted 60 or more"):
        planned(timed, startingTimestamp="600", endingTimestamp="500")


# --- what is read of the disk -----------------------------------------------------------------------------------------


def read_of(root: Path, **options: str) -> int:
    disk = CountingDisk()
    planned(root, disk=disk, **options)
    assert not disk.mapped
    return bytes_read(disk)


def grown(root: Path, count: int, partitions: int = 1) -> Path:
    """Partitions of `count` KB, closed in order, in segments of 1 MB with the usual indexes."""
    for number in range(partitions):
        with logcore.open_log(root / f"orders-{number}", config={"segment.bytes": 1 << 20}) as log:
            for at in range(0, count, 10):
                log.append([(b"k", b"x" * 1000, 10 * offset) for offset in range(at, at + 10)])
    return root


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolation.level": "read_uncommitted"},
        {"bound": "high_watermark"},
        {"startingTimestamp": "1000"},
        {"startingOffsets": '{"orders": {"0": 100}}', "minPartitions": "4"},
    ],
    ids=["committed", "uncommitted", "high_watermark", "timestamp", "split"],
)
def test_on_a_closed_root_planning_reads_as_much_of_a_large_log_as_of_a_small_one(
    tmp_path: Path, options: dict[str, str]
) -> None:
    small, large = grown(tmp_path / "small", 500), grown(tmp_path / "large", 8000)
    found = [read_of(root, **options) for root in (small, large)]
    # Some windows of headers, a batch of 10 KB for a time, some twenty entries an index that is looked into.
    assert max(found) < 150_000
    assert found[1] < found[0] + 30_000


def test_on_a_closed_root_what_planning_reads_grows_with_the_partitions(tmp_path: Path) -> None:
    one, many = grown(tmp_path / "one", 500), grown(tmp_path / "many", 500, partitions=12)
    assert read_of(many) < 13 * read_of(one)


def test_beside_a_writer_planning_reads_headers_and_no_records(tmp_path: Path) -> None:
    root = tmp_path / "live"
    with logcore.open_log(root / "orders-0") as log:
        for _ in range(60):
            log.append([(b"k", b"x" * 100_000)])
        found = read_of(root)
        assert found < log.size_in_bytes // 10


def test_only_partitions_that_are_read_are_opened(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(10))
    write(tmp_path, "payments-0", numbered(10))
    shutil.rmtree(tmp_path / "payments-0")
    (tmp_path / "payments-0").mkdir()
    (tmp_path / "payments-0" / "00000000000000000000.log").mkdir()  # whoever opens it fails
    assert planned(tmp_path, subscribe="orders") == [("orders-0", 0, 10)]


def test_planning_hundreds_of_partitions_keeps_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    write(tmp_path, "orders-0", numbered(3))
    for number in range(1, 300):
        shutil.copytree(tmp_path / "orders-0", tmp_path / f"orders-{number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 128), hard))
    try:
        assert len(planned(tmp_path, minPartitions="400")) >= 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class VanishingDisk(CountingDisk):
    """Loses a directory when its first segment is opened, or lets that fail as if the file was being replaced."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__()
        self.directory = directory
        self.failures = 1

    def open(self, path: str, **more: Any) -> Any:
        if path.endswith("/00000000000000000000.log") and self.failures:
            self.failures -= 1
            if self.directory is not None:
                shutil.rmtree(self.directory)
            raise StorageError("open", errno=errno.EIO if self.failures else errno.ENOENT, path=path)
        return super().open(path, **more)


def test_a_file_that_vanishes_while_a_read_is_planned_is_looked_for_again(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(200))
    assert planned(tmp_path, disk=VanishingDisk(None), startingTimestamp="50") == [("orders-0", 5, 200)]


def test_a_partition_that_vanishes_while_a_read_is_planned_is_lost_or_left_out(tmp_path: Path) -> None:
    for fail in ("true", "false"):
        path = write(tmp_path / fail, "orders-0", numbered(200)) / "orders-0"
        given = {"startingTimestamp": "50", "failOnDataLoss": fail}
        if fail == "true":
            with pytest.raises(DataLossError, match=r"read of orders-0: got no .*orders-0"):
                planned(tmp_path / fail, disk=VanishingDisk(path), **given)
        else:
            assert planned(tmp_path / fail, disk=VanishingDisk(path), **given) == []


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(200))
    disk = VanishingDisk(None)
    disk.failures = 2
    with pytest.raises(StorageError, match="Input/output error"):
        planned(tmp_path, disk=disk, startingTimestamp="50")


def test_a_split_knows_the_topic_it_is_of(tmp_path: Path) -> None:
    write(tmp_path, str(NAME), numbered(3))
    [found] = ranges(tmp_path)
    with logcore.open_log(tmp_path / str(NAME), read_only=True) as log:
        assert found.topic_id == log.topic_id is not None
    assert (found.root, found.latest, found.size) == (str(tmp_path), 3, 3)


def test_a_damaged_checkpoint_of_high_watermarks_is_told(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(3))
    (tmp_path / REPLICATION_CHECKPOINT).write_text("0\nmany\n")
    with pytest.raises(logcore.CorruptionError, match=REPLICATION_CHECKPOINT):
        planned(tmp_path, bound="high_watermark")


def test_the_planner_takes_what_it_is_given(tmp_path: Path) -> None:
    given: dict[str, Any] = {"minPartitions": "2", "maxRecordsPerPartition": "4"}
    write(tmp_path, "orders-0", numbered(10))
    assert all(end - start <= 4 for _, start, end in planned(tmp_path, **given))
