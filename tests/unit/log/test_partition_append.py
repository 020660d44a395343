"""Appending to a log: as a leader that numbers and checks, as a follower that keeps what it is given."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore import decode_batches, encode_batch
from logcore.errors import (
    CorruptBatch,
    InvalidProducerEpochError,
    InvalidRecordError,
    LogcoreError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    StorageError,
    UsageError,
)
from tests.helpers import CODECS_BY_MAGIC
from tests.logs import BATCH_BYTES, FailingDisk, Partition, Settings, batch, entries, produced

# ------------------------------------------------------------------------------------------------------------- leaders


def test_a_leader_numbers_batches_and_stamps_its_epoch(tmp_path: Path) -> None:
    """LOG-001: the offsets of the result are right also where a roll came before."""
    with Partition(tmp_path, {"internal.segment.bytes": 150}) as one:
        for n in range(5):
            result = one.lead(batch(0, 2, leader_epoch=3), epoch=72)
            assert (result.first_offset, result.last_offset, result.leader_epoch) == (2 * n, 2 * n + 1, 72)
        assert len(one.bases) == 5
        assert one.epochs == [(72, 0)]
        stored = b"".join(Path(segment.path).read_bytes() for segment in one.log.segments)
        assert {found.leader_epoch for found in decode_batches(stored)} == {72}
        assert one.offsets(0) == list(range(10))


def test_checks_come_in_kafkas_order(tmp_path: Path) -> None:
    """LOG-002: an epoch is noted and a segment rolled before a producer's sequence is refused; sizes before either.

    (Kafka notes the epoch also of a set that is too large for a segment.)
    """
    with Partition(tmp_path, {"internal.segment.bytes": 300, "max.message.bytes": 250}) as one:
        assert (one.path / "partition.metadata").exists()
        one.lead(produced(7, 0, 3))
        with pytest.raises(MessageTooLargeError):
            one.lead(batch(0, value=bytes(300)), epoch=3)
        with pytest.raises(RecordListTooLargeError):
            one.lead(*[batch(0, value=bytes(90))] * 3, epoch=3)
        assert (one.epochs, one.bases) == ([(0, 0)], [0])
        with pytest.raises(OutOfOrderSequenceNumberError):
            one.lead(produced(7, 9, 12), epoch=4)
        assert (one.epochs, one.bases, one.log.log_end_offset) == ([(0, 0), (4, 3)], [0, 3], 3)


def test_a_clients_batch_begins_with_offset_0(tmp_path: Path) -> None:
    """LOG-003."""
    with Partition(tmp_path) as one:
        with pytest.raises(InvalidRecordError):
            one.lead(batch(1))
        assert one.log.size == 0


def test_a_wrong_checksum_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """LOG-004: of any batch of the buffer."""
    with Partition(tmp_path) as one:
        with pytest.raises(CorruptBatch):
            one.lead(batch(0), batch(0)[:-1] + b"?")
        assert (one.log.size, one.log.log_end_offset, one.epochs) == (0, 0, [])


@pytest.mark.parametrize("limit", [BATCH_BYTES, BATCH_BYTES - 1])
def test_the_size_of_a_batch_is_limited(tmp_path: Path, limit: int) -> None:
    """LOG-005: its header counts; exactly the limit is accepted. What grows by being compressed anew counts too."""
    with Partition(tmp_path, {"max.message.bytes": limit}) as one:
        if limit == BATCH_BYTES:
            assert one.lead(batch(0)).last_offset == 0
        else:
            with pytest.raises(MessageTooLargeError):
                one.lead(batch(0))
    value = bytes(5000)
    small = batch(0, value=value, compression="gzip")
    with Partition(tmp_path / "other", {"max.message.bytes": 1000, "compression.type": "uncompressed"}) as one:
        assert len(small) < 1000
        with pytest.raises(MessageTooLargeError):
            one.lead(small)
        assert one.log.log_end_offset == 0


def test_what_can_never_fit_a_segment_is_refused(tmp_path: Path) -> None:
    """LOG-006."""
    with Partition(tmp_path, {"internal.segment.bytes": 2 * BATCH_BYTES}) as one:
        assert one.lead(batch(0), batch(0)).last_offset == 1
        with pytest.raises(RecordListTooLargeError):
            one.lead(batch(0), batch(0), batch(0))
        with pytest.raises(RecordListTooLargeError):
            one.follow(batch(2), batch(3), batch(4))
        assert (one.log.log_end_offset, one.bases) == (2, [0])


def test_a_part_of_a_batch_at_the_end_is_left_out(tmp_path: Path) -> None:
    """LOG-007."""
    with Partition(tmp_path) as one:
        assert one.lead(batch(0), batch(0), batch(0)[:-1]).last_offset == 1
        assert one.follow(batch(2), batch(3)[:70]).last_offset == 2
        assert (one.log.size, one.log.log_end_offset) == (3 * BATCH_BYTES, 3)


def test_appending_nothing_changes_nothing(tmp_path: Path) -> None:
    """LOG-008: nor is a segment rolled whose time has come."""
    with Partition(tmp_path, {"segment.ms": 10}) as one:
        one.lead(batch(0))
        one.now_ms = 10**6
        for data in (b"", batch(0)[:50]):
            for origin in ("leader", "follower", "coordinator"):
                assert one.log.append_batches(data, leader_epoch=9, now_ms=one.now_ms, origin=origin) is None
        assert (one.bases, one.log.size, one.epochs) == ([0], BATCH_BYTES, [(0, 0)])


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_compacted_log_wants_keys(tmp_path: Path, codec: str) -> None:
    """LOG-009: the error tells which records have none."""
    with Partition(tmp_path, {"cleanup.policy": "compact"}) as one:
        records = [(b"k", b"v", 1), (None, b"v", 1), (b"k", None, 1)]
        with pytest.raises(InvalidRecordError) as caught:
            one.lead(encode_batch(records, compression=codec))
        assert [found.index for found in caught.value.record_errors] == [1]
        with pytest.raises(InvalidRecordError):
            one.log.append_records(records, now_ms=0, compression=codec)
        assert one.log.size == 0
        one.lead(encode_batch([records[0], records[2]], compression=codec))


def test_nulls_and_missing_times_are_kept(tmp_path: Path) -> None:
    """LOG-010."""
    with Partition(tmp_path) as one:
        one.lead(encode_batch([(None, None, -1), (b"", b"", 5)]))
        assert [(row.key, row.value, row.timestamp) for row in one.read(0)] == [(None, None, -1), (b"", b"", 5)]


def test_a_raft_leader_numbers_for_itself(tmp_path: Path) -> None:
    """LOG-011: from the log's end on, under its own epoch."""
    with Partition(tmp_path) as one:
        assert one.lead(batch(0, 3, leader_epoch=5), epoch=5, origin="raft_leader").last_offset == 2
        for offset in (2, 4):
            with pytest.raises(UsageError):
                one.lead(batch(offset, leader_epoch=5), epoch=5, origin="raft_leader")
        for epoch in (4, 6):
            with pytest.raises(InvalidRecordError):
                one.lead(batch(3, leader_epoch=epoch), epoch=5, origin="raft_leader")
        assert one.log.log_end_offset == 3


def test_a_duplicate_is_answered_with_the_offsets_it_has(tmp_path: Path) -> None:
    """LOG-012: any of the last five; with the log start offset of now."""
    with Partition(tmp_path) as one:
        for n in range(6):
            one.lead(produced(7, 2 * n, 2, timestamp=100 + n))
        one.delete_records(3)
        size = one.log.size
        for n in range(1, 6):
            result = one.lead(produced(7, 2 * n, 2, timestamp=100 + n))
            assert (result.is_duplicate, result.first_offset, result.last_offset) == (True, 2 * n, 2 * n + 1)
            assert (result.log_append_time_ms, result.log_start_offset) == (100 + n, 3)
        assert (one.log.size, one.log.log_end_offset) == (size, 12)


def test_sequences_must_follow_each_other(tmp_path: Path) -> None:
    """LOG-013, LOG-015: an overlap, a duplicate that is too old, a gap: each is refused, nothing is written."""
    with Partition(tmp_path) as one:
        for n in range(6):
            one.lead(produced(7, 2 * n, 2))
        size = one.log.size
        for sequence, count in ((11, 2), (0, 2), (13, 1), (10, 1), (8, 4)):
            with pytest.raises(OutOfOrderSequenceNumberError):
                one.lead(produced(7, sequence, count))
        one.lead(produced(8, 0))
        with pytest.raises(OutOfOrderSequenceNumberError):
            one.lead(produced(8, 2))
        assert one.log.size == size + BATCH_BYTES
        one.lead(produced(7, 12))


def test_an_old_producer_epoch_is_fenced(tmp_path: Path) -> None:
    """LOG-014."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, epoch=3))
        with pytest.raises(InvalidProducerEpochError):
            one.lead(produced(7, 1, epoch=2))
        assert one.log.log_end_offset == 1


def test_an_append_flushes_after_so_many_records(tmp_path: Path) -> None:
    """LOG-016."""
    with Partition(tmp_path, {"flush.messages": 5}) as one:
        one.lead(batch(0, 4))
        assert one.log.recovery_point == 0
        one.lead(batch(0, 1))
        assert one.log.recovery_point == 5
        one.lead(batch(0, 4))
        assert one.log.recovery_point == 5


@pytest.mark.parametrize("roll", [False, True])
@pytest.mark.parametrize("call", ["open", "append"])
def test_an_append_whose_transaction_index_fails_is_taken_back(tmp_path: Path, call: str, roll: bool) -> None:
    """Unlike LOG-017: nothing of it is there, the log goes on, and the marker may be sent again."""
    disk = FailingDisk()
    with Partition(tmp_path, disk=disk) as one:
        one.lead(produced(7, 0, 10, is_transactional=True))
        if roll:
            one.roll()
        disk.fail(call, ".txnindex")
        with pytest.raises(StorageError):
            one.end(7, commit=False)
        assert (one.log.log_end_offset, one.log.last_stable_offset, one.log.failure) == (10, 0, None)
        one.log.producers.check_invariants()
        disk.heal()
        one.end(7, commit=False)
        assert (one.log.log_end_offset, one.log.last_stable_offset) == (11, 11)
        assert [entry.first_offset for entry in one.active.transactions] == [0]
        assert one.offsets(0, "read_committed") == []
        one.reopen(clean=False)
        assert [entry.first_offset for entry in one.active.transactions] == [0]


@pytest.mark.parametrize("after", range(4))
def test_rows_of_several_segments_are_all_there_or_none(tmp_path: Path, after: int) -> None:
    """And readers who have seen a part of them are told."""
    disk = FailingDisk()
    with Partition(tmp_path, {"internal.segment.bytes": 400, "max.message.bytes": 300}, disk=disk) as one:
        one.fill(2)
        disk.fail("append", ".log", after=after)
        rows = [(b"k", bytes(100), 1)] * 8
        with pytest.raises(StorageError):
            one.log.append_records(rows, now_ms=0)
        assert (one.log.log_end_offset, one.offsets(0)) == (2, [0, 1])
        assert one.log.generation == (after > 0)
        disk.heal()
        assert one.log.append_records(rows, now_ms=0).first_offset == 2
        one.reopen(clean=False)
        assert one.offsets(0) == list(range(10))


# ----------------------------------------------------------------------------------------------------------- followers


def test_a_follower_keeps_offsets_epochs_and_times(tmp_path: Path) -> None:
    """LOG-018: gaps too; last offsets must increase."""
    with Partition(tmp_path) as one:
        data = [batch(3, 2, timestamp=7, leader_epoch=4), batch(10, timestamp=3, leader_epoch=5)]
        result = one.follow(*data)
        assert (result.first_offset, result.last_offset) == (3, 10)
        assert Path(one.active.path).read_bytes() == b"".join(data)
        with pytest.raises(UsageError):
            one.follow(*(batch(11 + n) for n in (0, 1, 3, 2, 4)))
        assert (one.log.log_end_offset, one.offsets(0)) == (11, [3, 4, 10])


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_follower_refuses_what_lies_before_its_end(tmp_path: Path, magic: int, codec: str) -> None:
    """LOG-019, LOG-020: messages of magic 0 and 1 are told by their last offset."""
    with Partition(tmp_path) as one:
        one.truncate_fully(7)
        more: dict[str, Any] = {"magic": magic, "compression": codec}
        with pytest.raises(UsageError) as caught:
            one.follow(batch(4, 3, **more))
        assert "4 to 6" in str(caught.value) or magic < 2
        assert one.log.log_end_offset == 7
        if magic < 2 and codec != "none":
            one.follow(batch(6, 3, **more))
        else:
            one.follow(batch(7, 3, **more))
        assert one.log.log_end_offset == (9 if magic < 2 and codec != "none" else 10)


def test_a_follower_checks_neither_size_nor_sequence(tmp_path: Path) -> None:
    """LOG-021: its leader did."""
    with Partition(tmp_path, {"max.message.bytes": 80}) as one:
        one.follow(produced(7, 0, offset=0), produced(7, 0, offset=1), produced(7, 9, 5, offset=2))
        assert one.log.log_end_offset == 7


def test_a_follower_takes_batches_of_several_producers(tmp_path: Path) -> None:
    """LOG-022."""
    with Partition(tmp_path) as one:
        one.follow(produced(1, 5, offset=0), produced(2, 8, 2, offset=1), produced(1, 6, offset=3), batch(4))
        found = one.log.producers.active_producers
        assert {key: entry.last_sequence for key, entry in found.items()} == {1: 6, 2: 9}


def test_a_follower_leaves_out_batches_of_a_later_leader(tmp_path: Path) -> None:
    """LOG-023: from the first of them on."""
    with Partition(tmp_path) as one:
        epochs = [1, 2, 4, 3]
        one.follow(*(batch(n, leader_epoch=epoch) for n, epoch in enumerate(epochs)), epoch=3)
        assert (one.log.log_end_offset, one.log.epochs.latest_epoch) == (2, 2)
        data = batch(2, leader_epoch=9)
        assert one.log.append_batches(data, leader_epoch=3, now_ms=0, origin="follower") is None


def test_a_follower_notes_epochs_and_forgets_them_with_an_old_format(tmp_path: Path) -> None:
    """LOG-024."""
    with Partition(tmp_path) as one:
        one.follow(batch(0, leader_epoch=1), batch(1, leader_epoch=1), batch(2, leader_epoch=5))
        assert one.epochs == [(1, 0), (5, 2)]
        one.follow(batch(3, magic=1))
        assert one.epochs == []


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_are_damage_or_nothing(tmp_path: Path, seed: int) -> None:
    """LOG-025."""
    rng = random.Random(seed)
    data = bytearray(rng.randbytes(rng.randrange(1, 400)))
    if seed % 2:
        data[8:12] = (len(data) - 12).to_bytes(4, "big", signed=True)
        data[16:17] = bytes([rng.randrange(4)])
    with Partition(tmp_path) as one:
        try:
            result = one.log.append_batches(bytes(data), leader_epoch=9, now_ms=0, origin="follower")
            assert result is None
        except LogcoreError as error:
            assert isinstance(error, CorruptBatch)
        assert (one.log.log_end_offset, one.log.size) == (0, 0)


def test_an_offset_that_does_not_fit_begins_a_segment(tmp_path: Path) -> None:
    """LOG-026: at the batch's first offset; at the lowest that it fits, where the format does not tell the first."""
    far = 2147483649
    with Partition(tmp_path) as one:
        one.follow(batch(0))
        one.follow(batch(far, 2))
        assert (one.bases, one.offsets(0)) == ([0, far], [0, far, far + 1])
    with Partition(tmp_path / "old") as one:
        one.follow(batch(0, magic=1))
        one.follow(batch(far + 5, magic=1))
        assert one.bases == [0, far + 5 - 2147483647]
    with Partition(tmp_path / "older") as one:
        one.truncate_fully(10)
        one.follow(batch(10, magic=1))
        one.follow(batch(2147483658, magic=1))
        assert one.bases == [10, 11]


def test_a_follower_makes_time_indexes_too(tmp_path: Path) -> None:
    """LOG-027."""
    with Partition(tmp_path, {"segment.index.bytes": 10_000}) as one:
        for n in range(100):
            one.follow(batch(n, timestamp=n + 10))
        assert len(one.active.time_index) == 99
        assert entries(one.active.time_index)[-1] == (109, 99)


def test_the_library_appends_in_the_same_way(tmp_path: Path) -> None:
    config: Settings = {"internal.segment.bytes": 500}
    with logcore.open_log(tmp_path / "orders-0", config=config, clock=lambda: 5) as log:
        result = log.append_batches(batch(0, 3), leader_epoch=2)
        assert result is not None
        assert (result.first_offset, result.last_offset, result.leader_epoch) == (0, 2, 2)
        again = log.append([(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        same = log.append([(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        assert (same.is_duplicate, same.first_offset) == (True, again.first_offset)
        assert [row.offset for row in log.read(0)] == [0, 1, 2, 3]
