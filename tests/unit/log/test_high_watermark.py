"""High watermark and last stable offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from logcore.errors import OffsetOutOfRangeError, UsageError
from logcore.log.txnindex import AbortedTransaction
from tests.logs import Partition, batch, marker, produced


def replica(tmp_path: Path) -> Partition:
    one = Partition(tmp_path)
    one.log.set_high_watermark(0)
    return one


def test_a_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    """LOG-054: appends do not move it, once somebody knows of other replicas."""
    with replica(tmp_path) as one:
        one.fill(10)
        assert one.log.high_watermark == 0
        assert one.log.set_high_watermark(4) == 4
        assert one.log.set_high_watermark(99) == 10
        assert one.log.set_high_watermark(-5) == 0
        one.log.set_high_watermark(8)
        one.delete_records(3)
        assert one.log.set_high_watermark(1) == 3


def test_a_leader_moves_it_up_only(tmp_path: Path) -> None:
    """LOG-055."""
    with replica(tmp_path) as one:
        one.fill(10)
        assert one.log.maybe_increment_high_watermark(5)
        for offset in (5, 4):
            assert not one.log.maybe_increment_high_watermark(offset)
        with pytest.raises(UsageError):
            one.log.maybe_increment_high_watermark(11)
        assert one.log.high_watermark == 5


def test_a_follower_moves_it_up_and_down(tmp_path: Path) -> None:
    """LOG-056: the caller compares what it was with what it is."""
    with replica(tmp_path) as one:
        one.follow(*map(batch, range(10)))
        assert [one.log.set_high_watermark(offset) for offset in (7, 3, 3, 8)] == [7, 3, 3, 8]
        assert one.log.view.high_watermark == 8


def test_a_cut_takes_it_along(tmp_path: Path) -> None:
    """LOG-057."""
    with replica(tmp_path) as one:
        one.fill(10)
        one.log.set_high_watermark(8)
        one.truncate_to(9)
        assert one.log.high_watermark == 8
        one.truncate_to(3)
        assert one.log.high_watermark == 3
        one.truncate_fully(4)
        assert (one.log.log_start_offset, one.log.high_watermark, one.log.log_end_offset) == (4, 4, 4)


def test_the_log_start_offset_does_not_pass_it(tmp_path: Path) -> None:
    """LOG-059."""
    with replica(tmp_path) as one:
        one.fill(30)
        one.log.set_high_watermark(25)
        with pytest.raises(OffsetOutOfRangeError):
            one.delete_records(26)
        assert one.log.log_start_offset == 0
        assert one.delete_records(-1) == 25


def test_the_first_unstable_offset_is_that_of_the_earliest_open_transaction(tmp_path: Path) -> None:
    """LOG-060, LOG-062."""
    with Partition(tmp_path) as one:
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (None, 0)
        one.lead(produced(1, 0, 6, is_transactional=True))
        one.lead(produced(2, 0, 2, is_transactional=True))
        one.lead(batch(0))
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (0, 0)
        one.end(1, commit=True)
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (6, 6)
        one.end(2, commit=False)
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (None, 11)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_counts_once_the_high_watermark_has_passed_it(tmp_path: Path, commit: bool) -> None:
    """LOG-061."""
    with replica(tmp_path) as one:
        one.lead(produced(1, 0, 3, is_transactional=True))
        one.end(1, commit=commit)
        one.fill(2)
        for watermark in (0, 2, 3):
            one.log.set_high_watermark(watermark)
            assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (0, 0)
        one.log.set_high_watermark(4)
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (None, 4)


def interleaved() -> list[bytes]:
    """Producer 1 writes 0..29, producer 2 8..74, others in between; their last stable offsets are 8 and 36."""
    return [
        produced(1, 0, 5, offset=0, is_transactional=True),
        batch(5, 3),
        produced(2, 0, 2, offset=8, is_transactional=True),
        produced(1, 5, 15, offset=10, is_transactional=True),
        batch(25, 4),
        marker(1, commit=False, offset=29),
        batch(30, 6),
        produced(3, 0, 10, offset=36, is_transactional=True),
        produced(2, 2, 20, offset=46, is_transactional=True),
        batch(66, 8),
        marker(2, commit=False, offset=74),
    ]


def test_an_aborted_transaction_is_noted_with_the_last_stable_offset_of_then(tmp_path: Path) -> None:
    """LOG-063: by leader, follower and recovery alike."""
    wanted = [AbortedTransaction(1, 0, 29, 8), AbortedTransaction(2, 8, 74, 36)]
    with Partition(tmp_path / "follower") as one:
        one.follow(*interleaved())
        assert list(one.active.transactions) == wanted
        one.reopen(clean=False)
        assert list(one.active.transactions) == wanted
    with Partition(tmp_path / "leader") as one:
        for data in interleaved():
            is_marker = len(data) < 100 and data[22] & 0x20
            one.lead(bytes(8) + data[8:], origin="coordinator" if is_marker else "leader", transaction_version=1)
        assert one.log.log_end_offset == 75
        assert list(one.active.transactions) == wanted


def test_the_first_unstable_offset_is_not_below_the_log_start_offset(tmp_path: Path) -> None:
    """LOG-064."""
    with Partition(tmp_path) as one:
        one.lead(produced(1, 0, 10, is_transactional=True))
        one.delete_records(5)
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (5, 5)


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_known_after_reopening(tmp_path: Path, clean: bool) -> None:
    """LOG-065: a cut below it drops it."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.lead(produced(1, 0, 10, is_transactional=True))
        one.roll()
        one.fill(2)
        one.reopen(clean=clean)
        assert (one.log.first_unstable_offset, one.offsets(0, "read_committed")) == (3, [0, 1, 2])
        one.truncate_to(13)
        assert one.log.first_unstable_offset == 3
        one.truncate_to(3)
        assert (one.log.first_unstable_offset, one.log.last_stable_offset) == (None, 3)


def test_committed_reads_beside_a_moving_high_watermark(tmp_path: Path) -> None:
    """LOG-066: at no step are records seen that are open, or aborted."""
    with replica(tmp_path) as one:
        seen: set[int] = set()
        for round_ in range(6):
            one.lead(produced(1, 2 * round_, 2, is_transactional=True))
            one.lead(batch(0))
            one.end(1, commit=round_ % 2 == 0)
            for watermark in range(4 * round_, one.log.log_end_offset + 1):
                one.log.set_high_watermark(watermark)
                found = one.offsets(0, "read_committed")
                assert all(offset < one.log.last_stable_offset for offset in found)
                assert not [offset for offset in found if offset // 4 % 2 and offset % 4 < 2]
                seen.update(found)
        assert seen == {n for n in range(24) if n % 4 != 3 and not (n // 4 % 2 and n % 4 < 2)}
