"""Ranges become splits: as many as the Kafka connector makes, cut between batches, and together exactly the range."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logcore
from logcore.log.names import TopicPartition
from pyspark_logcore.bounds import Range
from pyspark_logcore.dividing import Divided, divide
from tests.conftest import FULL, SHORT
from tests.spark.layouts import SMALL, numbered, planned, write


def no_boundary(offset: int, low: int, high: int) -> None:
    return None


def ranges(*edges: tuple[int, int]) -> list[Divided]:
    return [
        Divided(Range(TopicPartition("t", number), "/", None, start, end, end), no_boundary)
        for number, (start, end) in enumerate(edges)
    ]


# The numbers are those of the connector's own tests (KafkaOffsetRangeCalculatorSuite of Spark 4.2): without boundaries
# to move to, cuts lie where its lie. A range is written as its edges.
@pytest.mark.parametrize(
    ("given", "min_partitions", "max_records", "expected"),
    [
        ([(1, 2)], None, None, [(1, 2)]),
        ([(1, 2), (1, 1)], None, None, [(1, 2), ()]),
        ([(1, 2), (1, 2), (1, 2)], 3, None, [(1, 2), (1, 2), (1, 2)]),
        ([(1, 5)], 4, None, [(1, 2, 3, 4, 5)]),
        ([(1, 5), (1, 21)], 4, None, [(1, 5), (1, 7, 14, 21)]),
        ([(1, 1), (1, 21)], 4, None, [(), (1, 6, 11, 16, 21)]),
        ([(1, 2), (1, 1001)], 4, None, [(1, 2), (1, 334, 667, 1001)]),
        ([(1, 5), (1, 21)], 1, None, [(1, 5), (1, 21)]),
        ([(1, 11)], 3, None, [(1, 4, 7, 11)]),
        ([(0, 10), (0, 10), (0, 1)], 6, None, [(0, 3, 6, 10), (0, 3, 6, 10), (0, 1)]),
        (
            [(0, 10000), (0, 15000), (0, 20000)],
            9,
            None,
            [(0, 5000, 10000), (0, 5000, 10000, 15000), (0, 5000, 10000, 15000, 20000)],
        ),
        ([(0, 500), (0, 12000), (0, 15001)], 6, None, [(0, 500), (0, 6000, 12000), (0, 5000, 10000, 15001)]),
        ([(0, 1), (0, 1), (0, 10000)], 6, None, [(0, 1), (0, 1), (0, 2500, 5000, 7500, 10000)]),
        ([(1, 5)], None, 4, [(1, 5)]),
        ([(1, 6)], None, 4, [(1, 3, 6)]),
        ([(1, 40), (1, 50), (1, 60)], None, 20, [(1, 20, 40), (1, 17, 33, 50), (1, 20, 40, 60)]),
        ([(1, 40)], 1, 20, [(1, 20, 40)]),
        ([(1, 40)], 4, 20, [(1, 10, 20, 30, 40)]),
        ([(0, 3)], 100, None, [(0, 1, 2, 3)]),
    ],
)
def test_as_many_splits_as_the_connector_makes(
    given: list[tuple[int, int]],
    min_partitions: int | None,
    max_records: int | None,
    expected: list[tuple[int, ...]],
) -> None:
    found = [
        (one.partition.partition, one.start, one.end) for one in divide(ranges(*given), min_partitions, max_records)
    ]
    assert found == [
        (number, start, end) for number, edges in enumerate(expected) for start, end in itertools.pairwise(edges)
    ]


def test_partitions_with_more_records_are_split_more(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(20))
    write(tmp_path, "orders-1", numbered(400))
    found = planned(tmp_path, minPartitions="8")
    assert [one[0] for one in found] == ["orders-0", *["orders-1"] * 7]


def test_cuts_lie_between_batches(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(400, per_batch=7))
    cuts = [end for _, _, end in planned(tmp_path, minPartitions="9")][:-1]
    assert len(cuts) == 8
    assert [cut % 7 for cut in cuts] == [0] * 8
    assert max(abs(cut - 400 * number // 9) for number, cut in enumerate(cuts, 1)) <= 7


def test_where_no_index_tells_a_boundary_the_cut_lies_inside_of_a_batch(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(30, per_batch=30))
    assert [one[1:] for one in planned(tmp_path, minPartitions="3")] == [(0, 10), (10, 20), (20, 30)]


def test_no_split_is_longer_than_asked_for_and_cuts_lie_between_batches_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(400, per_batch=7))
    found = [(start, end) for _, start, end in planned(tmp_path, maxRecordsPerPartition="50")]
    assert max(end - start for start, end in found) <= 50
    assert all(end % 7 == 0 for _, end in found[:-1])
    assert len(found) <= 11


def test_both_together(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(100))
    write(tmp_path, "orders-1", numbered(400))
    found = planned(tmp_path, maxRecordsPerPartition="200", minPartitions="12")
    assert len(found) >= 10
    assert max(end - start for _, start, end in found) <= 200


@settings(max_examples=200 if FULL else 10 if SHORT else 30)
@given(
    batches=st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=40),
    interval=st.sampled_from([1, 300, 4096]),
    start=st.integers(0, 100),
    length=st.integers(0, 2500),
    min_partitions=st.none() | st.integers(1, 70),
    max_records=st.none() | st.integers(1, 500),
)
def test_splits_partition_the_range_exactly(
    batches: list[tuple[int, bool]],
    interval: int,
    start: int,
    length: int,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with logcore.open_log(f"{directory}/orders-0", config={**SMALL, "index.interval.bytes": interval}) as log:
            for count, is_last in batches:
                log.append([(b"key", b"some value")] * count)
                if is_last:
                    log.roll()
            end_offset = log.log_end_offset
        first, last = min(start, end_offset), min(start + length, end_offset)
        options = {
            "startingOffsets": f'{{"orders": {{"0": {first}}}}}',
            "endingOffsets": f'{{"orders": {{"0": {last}}}}}',
        }
        if min_partitions is not None:
            options["minPartitions"] = str(min_partitions)
        if max_records is not None:
            options["maxRecordsPerPartition"] = str(max_records)
        found = [(one[1], one[2]) for one in planned(directory, **options)]
    assert [offset for split in found for offset in range(*split)] == list(range(first, last))
    assert all(low < high for low, high in found)
    if max_records is not None:
        assert all(high - low <= max_records for low, high in found)
    elif min_partitions is not None and last > first:
        assert len(found) == min(min_partitions, last - first)
