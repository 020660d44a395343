"""Finding records by their time."""

from __future__ import annotations

from pathlib import Path

import pytest

import logcore
from logcore import encode_batch
from logcore.log.searching import OffsetAndTimestamp, find_max_timestamp, find_timestamp
from tests.logs import Partition, batch


def times(*found: int) -> bytes:
    return encode_batch([(b"k", b"v", time) for time in found])


def test_the_record_with_the_largest_timestamp(tmp_path: Path) -> None:
    """LOG-039: the first of the batch; of the first segment, if several have it."""
    with Partition(tmp_path) as one:
        assert find_max_timestamp(one.log.view) is None
        one.lead(times(5, 6, 5), epoch=3)
        assert find_max_timestamp(one.log.view) == OffsetAndTimestamp(1, 6, 3)
        one.roll()
        one.lead(times(4, 9, 9), epoch=3)
        one.roll()
        one.lead(times(9, 1), epoch=4)
        assert find_max_timestamp(one.log.view) == OffsetAndTimestamp(4, 9, 3)
        one.reopen()
        assert find_max_timestamp(one.log.view) == OffsetAndTimestamp(4, 9, 3)


def test_the_largest_timestamp_is_of_what_can_be_read(tmp_path: Path) -> None:
    """Unlike Kafka, which tells a record below the log start offset; but like it, none that is not committed."""
    with Partition(tmp_path) as one:
        one.lead(times(90, 50, 70, 60))
        one.lead(times(40))
        one.lead(times(70))
        one.roll()
        one.lead(times(70, 30))
        for start, wanted in ((1, (2, 70)), (3, (5, 70)), (6, (6, 70)), (7, (7, 30))):
            one.delete_records(start)
            found = find_max_timestamp(one.log.view)
            assert found is not None
            assert found[:2] == wanted
        one.delete_records(8)
        assert find_max_timestamp(one.log.view) is None
    with Partition(tmp_path / "other") as one:
        one.log.set_high_watermark(0)
        one.lead(times(10))
        one.lead(times(20))
        one.log.set_high_watermark(1)
        assert find_max_timestamp(one.log.view) is None
        one.log.set_high_watermark(2)
        assert find_max_timestamp(one.log.view) == OffsetAndTimestamp(1, 20, 0)


def test_a_record_that_comes_after_the_view_does_not_hide_those_in_it(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.lead(times(10, 30, 20))
        view = one.log.view
        one.lead(times(99))
        assert find_max_timestamp(view) == OffsetAndTimestamp(1, 30, 0)
        assert find_max_timestamp(one.log.view) == OffsetAndTimestamp(3, 99, 0)


def test_the_first_record_that_is_not_older(tmp_path: Path) -> None:
    """LOG-041: with its leader epoch."""
    with Partition(tmp_path) as one:
        assert find_timestamp(one.log.view, 0) is None
        one.lead(times(10), epoch=0)
        one.lead(times(20, 15), epoch=1)
        one.lead(batch(0, timestamp=30), epoch=2)
        assert find_timestamp(one.log.view, 0) == OffsetAndTimestamp(0, 10, 0)
        assert find_timestamp(one.log.view, 11) == OffsetAndTimestamp(1, 20, 1)
        assert find_timestamp(one.log.view, 30) == OffsetAndTimestamp(3, 30, 2)
        assert find_timestamp(one.log.view, 31) is None


def test_one_segment_is_searched_and_no_other(tmp_path: Path) -> None:
    """LOG-043: nor what lies below the log start offset."""
    with Partition(tmp_path) as one:
        one.lead(times(50))
        one.lead(times(10))
        one.roll()
        one.lead(times(60))
        one.delete_records(1)
        assert find_timestamp(one.log.view, 5) == OffsetAndTimestamp(1, 10, 0)
        assert find_timestamp(one.log.view, 40) is None  # the first segment reaches it, and has lost it
        assert find_timestamp(one.log.view, 55) == OffsetAndTimestamp(2, 60, 0)


def test_what_is_not_committed_is_not_found(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.log.set_high_watermark(0)
        one.lead(times(10))
        one.lead(times(20))
        one.log.set_high_watermark(1)
        assert find_timestamp(one.log.view, 10) == OffsetAndTimestamp(0, 10, 0)
        assert find_timestamp(one.log.view, 20) is None


@pytest.mark.parametrize("read_only", [False, True])
def test_the_library_finds_them_too(tmp_path: Path, read_only: bool) -> None:
    with logcore.open_log(tmp_path / "orders-0", clock=lambda: 100) as log:
        for time in (10, 30, 20):
            log.append([(b"k", b"v", time)])
        if read_only:
            log.close()
    with logcore.open_log(tmp_path / "orders-0", read_only=read_only) as log:
        assert log.offset_for_timestamp(15) == (1, 30, 0)
        assert log.offset_of_max_timestamp() == (1, 30, 0)
