"""Cutting off the end of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logcore import encode_batch, encode_empty_batch
from logcore.errors import CorruptBatch, LogTruncatedError, UsageError
from logcore.log import snapshot, truncation
from logcore.log.epochs import UNDEFINED_END_OFFSET, EpochEndOffset
from tests.logs import BATCH_BYTES, Partition, batch, entries, produced


def last_sequence(one: Partition, producer_id: int) -> int | None:
    entry = one.log.producers.last_entry(producer_id)
    return None if entry is None else entry.last_sequence


def test_cutting_at_the_end_or_behind_it_drops_epochs_only(tmp_path: Path) -> None:
    """LOG-084: those that have no record."""
    with Partition(tmp_path) as one:
        one.fill(5)
        one.log.epochs.assign(4, 5)
        assert not one.truncate_to(9)
        assert (one.log.log_end_offset, one.epochs, one.log.generation) == (5, [(0, 0)], 0)
        one.log.epochs.assign(5, 5)
        assert not one.truncate_to(5)
        assert (one.log.size, one.epochs) == (5 * BATCH_BYTES, [(0, 0)])
        with pytest.raises(UsageError):
            one.truncate_to(-1)


def test_cutting_in_the_middle_and_before_the_beginning(tmp_path: Path) -> None:
    """LOG-085: below the first segment the log is empty, and goes on at the target."""
    with Partition(tmp_path, {"retention.ms": -1}) as one:
        for _ in range(4):
            one.fill(5)
            one.roll()
        assert one.truncate_to(12)
        assert (one.bases, one.log.log_end_offset, one.offsets(0)) == ([0, 5, 10], 12, list(range(12)))
        one.delete_records(11)
        assert one.truncate_to(3)
        assert (one.bases, one.log.log_start_offset, one.log.log_end_offset, one.log.size) == ([3], 3, 3, 0)
        one.fill(2)
        assert one.offsets(3) == [3, 4]


def test_a_follower_is_cut_to_where_an_epoch_ends(tmp_path: Path) -> None:
    """KIP-101, KIP-279: in both logs, and again as long as the leader names an epoch that is not known here."""

    def cut(told: EpochEndOffset) -> tuple[bool, int]:
        return truncation.truncate_to_epoch_end(one.log, told, 0), one.log.log_end_offset

    def begin() -> None:
        one.truncate_to(0)
        one.log.epochs.clear()
        one.follow(batch(0, 6, leader_epoch=0))
        one.follow(batch(6, leader_epoch=3), batch(7, leader_epoch=3), batch(8, leader_epoch=3))

    with Partition(tmp_path) as one:
        begin()
        assert [one.log.end_offset_for_epoch(epoch) for epoch in (0, 1, 3, 4, -1)] == [
            (0, 6), (0, 6), (3, 9), (-1, -1), (-1, -1),
        ]  # fmt: skip
        assert cut(EpochEndOffset(3, 20)) == (True, 9)
        assert cut(EpochEndOffset(3, 8)) == (True, 8)
        assert cut(EpochEndOffset(2, 20)) == (False, 6)
        assert one.epochs == [(0, 0)]
        assert cut(EpochEndOffset(0, 8)) == (True, 6)
        begin()
        assert cut(EpochEndOffset(-1, 7)) == (True, 7)  # a leader that tells an offset only
        assert cut(EpochEndOffset(0, 3)) == (True, 3)
        assert one.offsets(0) == []  # in the middle of a batch, which goes whole
        begin()
        one.log.set_high_watermark(8)
        assert cut(UNDEFINED_END_OFFSET) == (True, 8)


def test_after_a_cut_the_indexes_have_their_full_size(tmp_path: Path) -> None:
    """LOG-086: of the segment that is active now, which had been sealed."""
    with Partition(tmp_path) as one:
        one.fill(5)
        one.roll()
        one.fill(5)
        one.truncate_to(3)
        assert one.bases == [0]
        assert (one.active.offset_index.entries_max, one.active.time_index.entries_max) == (150, 100)
        one.fill(6)
        assert len(entries(one.active.offset_index)) == 8


def test_a_cut_takes_epochs_recovery_point_and_producers_along(tmp_path: Path) -> None:
    """LOG-087."""
    with Partition(tmp_path) as one:
        for n in range(4):
            one.lead(produced(7, 2 * n, 2), epoch=n)
            one.roll()
        one.flush()
        one.checkpoint()
        assert one.epochs == [(0, 0), (1, 2), (2, 4), (3, 6)]
        one.truncate_to(4)
        assert one.epochs == [(0, 0), (1, 2)]
        assert (one.log.recovery_point, one.root.recovery_points.get(one.log.partition)) == (4, 4)
        assert (last_sequence(one, 7), one.log.producers.map_end_offset) == (3, 4)
        assert one.snapshots == [2, 4]
        assert one.lead(produced(7, 4), epoch=9).first_offset == 4
        one.reopen(clean=False)
        assert (last_sequence(one, 7), one.epochs) == (4, [(0, 0), (1, 2), (9, 4)])


def test_cutting_everything(tmp_path: Path) -> None:
    """LOG-088, LOG-089: with a start of its own, or with the target as start."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 5))
        one.roll()
        one.truncate_fully(2, 1)
        assert (one.log.log_start_offset, one.log.log_end_offset, one.bases) == (1, 2, [2])
        assert (one.epochs, dict(one.log.producers.active_producers)) == ([], {})
        # Of the old snapshots none is left; that of the new end is taken at once, and is one of no producers.
        assert one.snapshots == [2]
        assert snapshot.parse((one.path / "00000000000000000002.snapshot").read_bytes()) == []
        assert one.log.producers.map_end_offset == 2
        one.truncate_fully(9)
        assert (one.log.log_start_offset, one.log.log_end_offset, one.log.high_watermark) == (9, 9, 9)
        one.fill(1)
        one.reopen(clean=False)
        assert (one.log.log_start_offset, one.offsets(9)) == (9, [9])


def test_producers_are_read_from_the_log_where_snapshots_are_missing(tmp_path: Path) -> None:
    """LOG-090."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0))
        one.roll()
        one.lead(produced(7, 1))
        one.roll()
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.truncate_to(1)
        assert last_sequence(one, 7) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_sequence_is_told_by_the_header_of_a_compacted_batch(tmp_path: Path, clean: bool) -> None:
    """LOG-091: by its last offset, not by the records it still has; also if it has none."""
    with Partition(tmp_path) as one:
        more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        one.follow(encode_batch([(b"k", b"v", 1)] * 2, base_offset=0, last_offset=3, **more))
        one.follow(encode_empty_batch(4, 5, producer_id=8, producer_epoch=0, base_sequence=0))
        one.roll()
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.reopen(clean=clean)
        if not clean:
            assert (last_sequence(one, 7), last_sequence(one, 8)) == (3, 1)
        one.fill(1)
        one.log.producers.map_end_offset = 0
        one.truncate_to(6)
        assert one.offsets(0) == [0, 1]


def test_readers_are_told(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(5)
        generation = one.log.generation
        one.log.check_cut(generation, 5)
        one.truncate_to(3)
        one.log.check_cut(generation, 3)
        with pytest.raises(LogTruncatedError) as caught:
            one.log.check_cut(generation, 4)
        assert caught.value.offset == 3


def test_what_comes_after_a_cut_has_an_epoch_that_was_never_used(tmp_path: Path) -> None:
    """Or a reader in another process could not tell it from what it has read."""
    with Partition(tmp_path) as one:

        def append() -> int:
            return one.log.append_records([(b"k", b"v", 1)] * 5, now_ms=0).leader_epoch

        used = [append(), append()]
        for cut in (8, 5, 3, 0):
            one.truncate_to(cut)
            used.append(append())
        one.truncate_fully(0)
        used.append(append())
        assert used == [0, 0, 1, 2, 3, 4, 5]


def test_a_crash_after_a_cut_below_the_start_hides_nothing_that_was_flushed(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(10)
        one.delete_records(5)
        one.checkpoint()
        one.truncate_to(3)
        one.fill(4)
        one.flush()
        one.reopen(clean=False)
        assert (one.log.log_start_offset, one.offsets(3)) == (3, [3, 4, 5, 6])


def test_a_torn_tail_behind_a_cut_inside_a_batch_is_no_damage(tmp_path: Path) -> None:
    """The recovery point does not lie in the gap that such a cut leaves."""
    with Partition(tmp_path) as one:
        one.lead(batch(0, 5))
        one.lead(batch(0, 5))
        one.flush()
        one.checkpoint()
        one.truncate_to(8)
        one.flush()
        one.checkpoint()
        assert (one.log.recovery_point, one.root.recovery_points.get(one.log.partition)) == (5, 5)
        one.fill(1)
        assert one.offsets(5) == [8]
        path = Path(one.active.path)
        one.crash()
        path.write_bytes(path.read_bytes()[:-1])
        one.open()
        assert (one.recovery.outcome, one.log.log_end_offset) == ("torn", 5)
        one.flush()
        one.checkpoint()
        one.crash()
        data = path.read_bytes()
        path.write_bytes(data[:30] + b"?" + data[31:])
        with pytest.raises(CorruptBatch):
            one.open()
