"""A segment by itself: what its indexes get, what reads find, how it is cut, when it is rolled, its files."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logcore import decode_batches, encode_batch, scan_batches
from logcore.errors import CorruptBatch, CorruptIndex, CorruptionReason, StorageError, UsageError
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, SystemDisk
from logcore.log.epochs import LeaderEpochCache
from logcore.log.names import CLEANED, DELETED, LOG, SWAP
from logcore.log.producers import ProducerState
from logcore.log.recovery import SegmentRecovery, recover_segment
from logcore.log.segment import OFFSET_SPAN_MAX, TIMESTAMP_MAX, OpenSegments, Segment, SegmentOffsetOverflow
from logcore.log.splitting import copy_batches
from logcore.log.txnindex import AbortedTransaction
from tests.logs import (
    BATCH_BYTES,
    SMALL,
    FailingDisk,
    Settings,
    batch,
    entries,
    marker,
    produced,
    rebuilt_indexes,
    segment,
)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for one in made:
        one.release()
    made.clear()


made: list[Segment] = []


def new(at: Path, base_offset: int = 0, config: Settings | None = None, **more: int) -> Segment:
    made.append(segment(at, base_offset, config, **more))
    return made[-1]


def opened(at: Path, base_offset: int = 0, config: Settings | None = None, **more: int) -> Segment:
    """A segment whose files are there."""
    settings = LogConfig.of({**SMALL, **(config or {})})
    made.append(Segment(SYSTEM_DISK, str(at), base_offset, settings, created_ms=0, **more))
    return made[-1]


def append(one: Segment, *batches: bytes) -> int:
    data = b"".join(batches)
    return one.append([data], scan_batches(data).headers)


def offsets(one: Segment, offset: int) -> list[int]:
    """What a read from the batch of `offset` on gives."""
    found = one.find(offset)
    if found is None:
        return []
    return [record.offset for found in one.log.batches(found.position, one.size) for record in found]


def recovered(one: Segment, producers: ProducerState | None = None, epochs: LeaderEpochCache | None = None,
              keep_before: int = 0) -> SegmentRecovery:  # fmt: skip
    if producers is None:
        producers = ProducerState(SYSTEM_DISK, one.directory, names=[])
    return recover_segment(
        one, producers, epochs or LeaderEpochCache(""), first_offset=one.base_offset, keep_before=keep_before
    )


# ----------------------------------------------------------------------------------------------------------- appending


@pytest.mark.parametrize(
    ("base", "offset"), [(0, 2147483648), (1, 0), (100, 10), (2147483648, 0), (2147483648, 4294967296)]
)
def test_an_offset_that_does_not_fit_is_refused_and_nothing_is_written(at: Path, base: int, offset: int) -> None:
    """SEG-001."""
    one = new(at, base)
    with pytest.raises(SegmentOffsetOverflow) as caught:
        append(one, batch(offset))
    assert caught.value.segment is one
    assert str(base + OFFSET_SPAN_MAX) in str(caught.value)
    assert (one.size, Path(one.path).stat().st_size) == (0, 0)
    append(one, batch(base), batch(base + OFFSET_SPAN_MAX))
    assert entries(one.offset_index) == [(base + OFFSET_SPAN_MAX, BATCH_BYTES)]


def test_one_bad_batch_among_good_ones_keeps_all_out(at: Path) -> None:
    one = new(at)
    append(one, batch(0), batch(1))
    before = entries(one.offset_index), one.size
    for bad in ([batch(2), batch(2147483648)], [batch(5), batch(4)], [batch(1)]):
        with pytest.raises(UsageError):
            append(one, *bad)
        assert (entries(one.offset_index), one.size) == before
    append(one, batch(2))
    assert offsets(one, 0) == [0, 1, 2]


def test_no_batches_change_nothing(at: Path) -> None:
    """SEG-002: not even the indexes are made."""
    one = new(at)
    assert append(one) == 0
    assert os.listdir(at) == ["00000000000000000000.log"]


def test_entries_are_decided_batch_by_batch(at: Path) -> None:
    """SEG-003, SEG-005, SEG-006: an entry is a batch's last offset and where it begins."""
    one = new(at)
    append(one, batch(0, timestamp=0), batch(1, timestamp=1))
    append(one, batch(2, 3, timestamp=2))
    assert entries(one.offset_index) == [(1, BATCH_BYTES), (4, 2 * BATCH_BYTES)]
    assert entries(one.time_index) == [(1, 1), (2, 4)]


def test_the_interval_must_be_exceeded_not_reached(at: Path) -> None:
    """SEG-004: so the first batch never gets an entry."""
    exact = new(at, 0, {"index.interval.bytes": BATCH_BYTES})
    append(exact, *map(batch, range(5)))
    assert entries(exact.offset_index) == [(2, 2 * BATCH_BYTES), (4, 4 * BATCH_BYTES)]
    each = new(at, 100, {"index.interval.bytes": 0})
    append(each, batch(100), batch(101))
    assert entries(each.offset_index) == [(101, BATCH_BYTES)]


def test_a_batch_with_a_lower_timestamp_repeats_the_older_maximum(at: Path) -> None:
    """SEG-007."""
    one = new(at)
    for offset, timestamp in enumerate((1, 0, 2)):
        append(one, batch(offset, timestamp=timestamp))
    assert [offset for offset, _ in entries(one.offset_index)] == [1, 2]
    assert entries(one.time_index) == [(1, 0), (2, 2)]


def test_the_time_index_grows_only_with_the_timestamp(at: Path) -> None:
    """SEG-008, SEG-010: and of equal ones the first batch keeps the place."""
    one = new(at)
    for offset in range(10):
        append(one, batch(offset, timestamp=7 if offset < 8 else 9))
    assert len(one.offset_index) == 9
    assert entries(one.time_index) == [(7, 0), (9, 8)]
    assert one.max_timestamp == (9, 8)


def test_the_interval_is_counted_from_the_log_also_after_reopening_and_cutting(at: Path) -> None:
    """Unlike SEG-009: Kafka begins to count anew; ours goes on, so that the indexes follow from the log alone."""
    config = {"index.interval.bytes": 3 * BATCH_BYTES}
    one = new(at, 0, config)
    for offset in range(40):
        append(one, batch(offset, timestamp=offset))
        if offset % 3 == 1:
            one.close()
            one = opened(at, 0, config)
        if offset == 22:
            one.truncate_to(17, 0)
            append(one, *(batch(again, timestamp=again) for again in range(17, 23)))
    one.close()
    one = opened(at, 0, config)
    wanted_offsets, wanted_times = rebuilt_indexes(one)
    assert entries(one.offset_index) == wanted_offsets == [(n, n * BATCH_BYTES) for n in range(4, 40, 4)]
    assert entries(one.time_index) == wanted_times


def test_copying_batches_stops_before_the_first_that_does_not_fit(at: Path) -> None:
    """SEG-011: whole batches, a batch that is longer than a chunk too; says where it stopped."""
    source = new(at)
    large = batch(3, value=b"x" * (3 << 20))
    small = [batch(0), batch(1, 2), large, batch(4)]
    append(source, *small)
    source.file.append([batch(2147483648), batch(2147483649)])
    target = new(at, 0, suffix=CLEANED)
    assert copy_batches(source, 0, source.size, target) == sum(map(len, small)) == target.size
    assert Path(target.path).read_bytes() == b"".join(small)
    further = new(at, 2147483648, suffix=CLEANED)
    assert copy_batches(source, target.size, source.size, further) == source.size
    assert offsets(further, 0) == [2147483648, 2147483649]
    assert copy_batches(source, target.size, source.size, target) == target.size


# ------------------------------------------------------------------------------------------------------------- reading


def test_reading_nothing_gives_nothing(at: Path) -> None:
    """SEG-012: of an empty segment, or behind the last record."""
    one = new(at, 40)
    assert one.find(40) is None
    append(one, batch(50, 2))
    assert one.find(52) is None
    assert one.find(2**62) is None
    assert one.find(51) == (50, 51, 0, one.size)


def test_reading_before_the_first_record_and_in_a_gap_gives_what_follows(at: Path) -> None:
    """SEG-013, SEG-014."""
    one = new(at, 40)
    append(one, batch(50), batch(51))
    assert offsets(one, 41) == [50, 51]
    append(one, batch(60), batch(61))
    assert offsets(one, 55) == [60, 61]


def test_reading_inside_a_batch_gives_all_of_it(at: Path) -> None:
    """SEG-015: and its place is told by its base offset."""
    one = new(at, 40)
    append(one, batch(48, 2), batch(50, 4), batch(54))
    found = one.find(52)
    assert found == (50, 53, len(batch(48, 2)), len(batch(50, 4)))
    assert offsets(one, 52) == [50, 51, 52, 53, 54]


def test_what_lies_behind_the_known_end_is_not_looked_at(at: Path) -> None:
    one = new(at)
    append(one, batch(0), batch(1), batch(2))
    assert one.find(1, BATCH_BYTES) is None
    assert one.find(0, BATCH_BYTES - 1) is None
    assert one.next_offset(2 * BATCH_BYTES) == 2


@pytest.mark.parametrize("keep_indexes", [True, False])
def test_a_search_by_time_goes_through_both_indexes(at: Path, keep_indexes: bool) -> None:
    """SEG-019: records i at time 10 * i."""
    one = new(at, 40, {} if keep_indexes else {"index.interval.bytes": 1 << 20})
    for offset in range(40, 50):
        append(one, batch(offset, timestamp=10 * offset))
    assert len(one.time_index) == (9 if keep_indexes else 0)

    def found(timestamp: int) -> int | None:
        record = one.find_timestamp(timestamp, one.base_offset)
        return None if record is None else record.offset

    asked = [420, 421, 430, 431, 491, 401, 399]
    assert list(map(found, asked)) == [42, 43, 43, 44, None, 41, 40]
    one.close()
    one = opened(at, 40)
    assert list(map(found, asked)) == [42, 43, 43, 44, None, 41, 40]


def test_the_first_timestamp_is_the_largest_of_the_first_batch(at: Path) -> None:
    """SEG-020: 2^63 - 1 if there is none."""
    one = new(at)
    assert one.first_batch_timestamp == TIMESTAMP_MAX
    append(one, encode_batch([(b"k", b"v", 1000), (b"k", b"v", 3000), (b"k", b"v", 2000)], base_offset=0))
    append(one, batch(3, timestamp=9000))
    assert one.first_batch_timestamp == 3000
    one.close()
    assert opened(at).first_batch_timestamp == 3000


def test_the_next_offset_is_behind_the_last_batch(at: Path) -> None:
    """SEG-021: that of an empty segment is its base offset."""
    one = new(at, 40)
    assert one.next_offset() == 40
    append(one, encode_batch([(b"k", b"v", 1)] * 3, base_offset=50, magic=1))
    assert one.next_offset() == 53
    append(one, batch(60, 5))
    assert one.next_offset() == 65


def test_the_next_offset_is_looked_for_from_the_last_entry_on(at: Path) -> None:
    """SEG-022: what lies before it is not read: damage there is not met."""
    one = new(at)
    append(one, *map(batch, range(20)))
    one.close()
    data = bytearray(Path(one.path).read_bytes())
    data[: 19 * BATCH_BYTES] = bytes(19 * BATCH_BYTES)
    Path(one.path).write_bytes(data)
    assert opened(at).next_offset() == 20


# ---------------------------------------------------------------------------------------------------------- truncation


def test_cutting_removes_the_batch_that_has_the_offset_and_all_behind_it(at: Path) -> None:
    """SEG-023."""
    one = new(at, 40)
    append(one, batch(40, 2), batch(42, 3), batch(45))
    assert one.truncate_to(43, 0) == len(batch(42, 3)) + BATCH_BYTES
    assert offsets(one, 0) == [40, 41]
    assert one.next_offset() == 42
    append(one, batch(42))
    assert offsets(one, 0) == [40, 41, 42]


def test_cutting_in_a_gap_removes_what_follows(at: Path) -> None:
    """SEG-024."""
    one = new(at, 40)
    append(one, batch(40), batch(43))
    one.truncate_to(41, 0)
    assert offsets(one, 0) == [40]


def test_cutting_trims_all_three_indexes(at: Path) -> None:
    """SEG-025."""
    one = new(at)
    for offset in range(10):
        append(one, batch(offset, timestamp=offset))
    for last in (3, 5, 8):
        one.transactions.append(AbortedTransaction(last, last - 1, last, last))
    one.truncate_to(5, 0)
    assert entries(one.offset_index) == [(n, n * BATCH_BYTES) for n in range(1, 5)]
    assert entries(one.time_index) == [(n, n) for n in range(1, 5)]
    assert [entry.last_offset for entry in one.transactions] == [3]


@pytest.mark.parametrize("offset", [5, 10, 1000])
def test_after_a_cut_the_indexes_have_their_full_size(at: Path, offset: int) -> None:
    """SEG-026, SEG-029: also if nothing was there to be cut."""
    one = new(at, 0, {"segment.index.bytes": 80})
    append(one, *map(batch, range(10)))
    one.close()
    assert (at / "00000000000000000000.index").stat().st_size == 72
    one = opened(at, 0, {"segment.index.bytes": 96})
    size = one.size
    assert one.truncate_to(offset, 0) == max(10 - offset, 0) * BATCH_BYTES == size - one.size
    assert (one.offset_index.entries_max, one.time_index.entries_max) == (12, 8)
    assert not one.offset_index.is_full
    assert not one.should_roll(1, -1, 10, 0)


def test_after_a_cut_the_largest_timestamp_is_looked_up_in_the_log(at: Path) -> None:
    """SEG-027: of 30 records those from 41 on go, and with them every entry."""
    one = new(at, 40, {"index.interval.bytes": 2 * BATCH_BYTES - 1})
    for offset in range(40, 70):
        append(one, batch(offset, timestamp=10 * offset))
    assert one.max_timestamp == (690, 69)
    one.truncate_to(41, 0)
    assert len(one.time_index) == 0
    assert one.max_timestamp == (400, 40)
    assert one.next_offset() == 41
    one.close()
    assert opened(at, 40).max_timestamp == (400, 40)


def test_a_cut_that_empties_a_segment_lets_its_time_begin_anew(at: Path) -> None:
    """SEG-028."""
    one = new(at, 0, now_ms=1000)
    append(one, batch(0, timestamp=500))
    assert one.waited_ms(5000, 900) == 400
    one.truncate_to(0, 7000)
    assert (one.created_ms, one.waited_ms(7000, 900), one.max_timestamp) == (7000, 0, (-1, 0))
    assert one.first_batch_timestamp == TIMESTAMP_MAX


def test_cutting_an_empty_segment_keeps_it_usable(at: Path) -> None:
    """SEG-030."""
    one = new(at, 0, {"segment.ms": 100})
    one.truncate_to(0, 5000)
    assert not one.offset_index.is_full
    assert not one.time_index.is_full
    assert not one.should_roll(1000, -1, 0, 9_000_000)
    append(one, batch(0, timestamp=1))
    assert offsets(one, 0) == [0]


# ------------------------------------------------------------------------------------------------------------- rolling


def test_when_a_segment_is_full(at: Path) -> None:
    """SEG-031, SEG-034: more bytes than fit, more time, a full index, an offset too far away. Each bound is strict."""
    one = new(at, 0, {"internal.segment.bytes": 1000, "segment.ms": 100, "segment.jitter.ms": 100}, roll_jitter_ms=30)
    append(one, batch(0, timestamp=50))
    room = 1000 - BATCH_BYTES
    assert not one.should_roll(room, 50, 1, 0)
    assert one.should_roll(room + 1, 50, 1, 0)
    assert not one.should_roll(1, 120, 1, 10**9)
    assert one.should_roll(1, 121, 1, 0)
    assert not one.should_roll(1, 50, OFFSET_SPAN_MAX, 0)
    assert one.should_roll(1, 50, OFFSET_SPAN_MAX + 1, 0)


@pytest.mark.parametrize("reopen", [False, True])
def test_a_full_index_is_noticed_also_after_reopening(at: Path, reopen: bool) -> None:
    """SEG-031: by offsets where no record has a time, by times where all have."""
    for base, timestamp, room in ((0, -1, 5), (100, 1, 4)):
        config = {"segment.index.bytes": 40 if timestamp < 0 else 48}
        one = new(at, base, config)
        for n in range(room):
            assert not one.should_roll(1, -1, base + n, 0)
            append(one, batch(base + n, timestamp=n if timestamp > 0 else -1))
            if reopen:
                one.close()
                one = opened(at, base, config)
        if timestamp < 0:
            append(one, batch(base + room))
        assert one.should_roll(1, -1, base + 50, 0)


def test_an_empty_segment_rolls_for_its_offsets_only(at: Path) -> None:
    """SEG-032."""
    one = new(at, 0, {"segment.ms": 1})
    assert not one.should_roll(1, -1, 200, 10**12)
    assert not one.should_roll(1, 10**12, 200, 10**12)
    assert one.should_roll(1, -1, 2147483847, 0)


def test_time_is_told_by_the_clock_only_where_there_are_no_timestamps(at: Path) -> None:
    """SEG-033."""
    one = new(at, now_ms=1000)
    append(one, batch(0, timestamp=-1))
    assert one.waited_ms(1700, 99999) == 700
    other = new(at, 10, now_ms=1000)
    append(other, batch(10, timestamp=0))
    assert other.waited_ms(10**9, 77) == 77


def test_sealing_adds_the_largest_timestamp_and_cuts_the_indexes_to_their_entries(at: Path) -> None:
    """SEG-036: there is a place for it in a time index that counts as full."""
    one = new(at, 0, {"segment.index.bytes": 48})
    for offset in range(4):
        append(one, batch(offset, timestamp=offset))
    append(one, batch(4, timestamp=100))
    assert one.time_index.is_full
    assert entries(one.time_index) == [(1, 1), (2, 2), (3, 3)]
    one.seal()
    assert entries(one.time_index) == [(1, 1), (2, 2), (3, 3), (100, 4)]
    assert (at / "00000000000000000000.timeindex").stat().st_size == 48
    assert (at / "00000000000000000000.index").stat().st_size == 32


def test_closing_a_segment_that_was_only_read_changes_no_file(at: Path) -> None:
    """SEG-037: one that was written to gets its last entry, and its files are cut."""
    one = new(at, 0, {"index.interval.bytes": 1 << 20, "preallocate": True, "internal.segment.bytes": 5000})
    append(one, batch(0, timestamp=5), batch(1, timestamp=9), batch(2, timestamp=3))
    assert Path(one.path).stat().st_size == 5000
    one.close()
    files = {path.name: path.read_bytes() for path in at.iterdir()}
    assert len(files["00000000000000000000.log"]) == 3 * BATCH_BYTES
    assert len(files["00000000000000000000.index"]) == 0
    again = opened(at)
    assert again.max_timestamp == (9, 1)
    assert offsets(again, 0) == [0, 1, 2]
    again.close()
    again.close()
    assert {path.name: path.read_bytes() for path in at.iterdir()} == files


# ------------------------------------------------------------------------------------------------------------ recovery


def test_recovery_makes_the_indexes_that_appending_made(at: Path) -> None:
    """SEG-038, SEG-047: to the byte; the last time entry is the largest timestamp, the files end with their entries."""
    one = new(at, 0, {"index.interval.bytes": 300})
    rng = random.Random(5)
    offset = 0
    for _ in range(50):
        count = rng.randrange(1, 5)
        append(one, batch(offset, count, timestamp=rng.randrange(1000)))
        offset += count
    one.close()
    paths = [at / f"00000000000000000000{kind}" for kind in (".log", ".index", ".timeindex")]
    before = [path.read_bytes() for path in paths]
    for path in paths[1:]:
        path.unlink()
    done = recovered(opened(at, 0, {"index.interval.bytes": 300}))
    assert (done.end_offset, done.bytes_cut, done.outcome, done.error) == (offset, 0, "clean", None)
    assert [path.read_bytes() for path in paths] == before
    assert int.from_bytes(before[2][-12:-4], "big") == max(
        found.max_timestamp for found in decode_batches(before[0])
    )  # fmt: skip


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_recovery_mends_an_index_of_random_bytes(at: Path, kind: str) -> None:
    """SEG-039."""
    one = new(at)
    for offset in range(100):
        append(one, batch(offset, timestamp=10 * offset))
    one.close()
    (at / f"00000000000000000000{kind}").write_bytes(random.Random(1).randbytes(1000))
    again = opened(at)
    recovered(again)
    for offset in range(100):
        assert again.find(offset) == (offset, offset, offset * BATCH_BYTES, BATCH_BYTES)
        found = again.find_timestamp(10 * offset, 0)
        assert found is not None
        assert found.offset == offset


@pytest.mark.parametrize("seed", range(20))
def test_recovery_ends_at_the_first_batch_that_is_bad(at: Path, seed: int) -> None:
    """SEG-040: any byte of any batch; those before it stay."""
    rng = random.Random(seed)
    one = new(at)
    append(one, *(batch(offset, timestamp=offset) for offset in range(30)))
    one.close()
    position = rng.randrange(29 * BATCH_BYTES)
    data = bytearray(Path(one.path).read_bytes())
    data[position] ^= rng.randrange(1, 256)
    Path(one.path).write_bytes(data)
    again = opened(at)
    done = recovered(again)
    # No checksum covers the leader epoch, nor the offset: but that one has to be between those of its neighbours.
    bad = 30 if 12 <= position % BATCH_BYTES < 16 else position // BATCH_BYTES
    assert offsets(again, 0) == list(range(bad))
    assert (done.end_offset, done.bytes_cut) == (bad, (30 - bad) * BATCH_BYTES)
    again.check_invariants()


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (batch(3)[:-1] + b"?", CorruptionReason.CRC),
        (batch(3)[:16] + b"\x09" + batch(3)[17:], CorruptionReason.MAGIC),
        (batch(3)[:8] + b"\x00\x00\x00\x05" + batch(3)[12:], CorruptionReason.BATCH_SIZE),
        (batch(1), CorruptionReason.OFFSET_ORDER),
    ],
)
def test_recovery_says_what_was_bad(at: Path, spoiled: bytes, reason: CorruptionReason) -> None:
    """SEG-040, SEG-041: and how many bytes it cut off."""
    one = new(at)
    append(one, batch(0), batch(1), batch(2))
    one.file.append([spoiled, batch(4)])
    done = recovered(one)
    assert done.error is not None
    assert (done.error.reason, done.error.position, done.error.path) == (reason, 3 * BATCH_BYTES, one.path)
    assert (done.end_offset, done.bytes_cut) == (3, len(spoiled) + BATCH_BYTES)
    assert done.outcome == "corrupt"


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 61, BATCH_BYTES - 1])
def test_recovery_cuts_off_a_part_of_a_batch(at: Path, size: int) -> None:
    """SEG-041: without an error to the caller."""
    one = new(at)
    append(one, batch(0), batch(1))
    one.file.append([batch(2)[:size]])
    done = recovered(one)
    assert (done.end_offset, done.bytes_cut, done.outcome) == (2, size, "torn")
    assert Path(one.path).stat().st_size == 2 * BATCH_BYTES


def test_recovery_keeps_what_lies_below_the_recovery_point_or_raises(at: Path) -> None:
    """Unlike Kafka, which cuts off flushed records too if a bit has rotted."""
    one = new(at)
    append(one, batch(0), batch(1))
    one.file.append([b"garbage" * 20])
    size = one.size
    with pytest.raises(CorruptBatch):
        recovered(one, keep_before=3)
    assert one.size == size
    assert recovered(one, keep_before=2).bytes_cut == 140


def test_recovery_does_not_take_an_offset_too_far_away_for_damage(at: Path) -> None:
    """SEG-042: the segment has to be split."""
    one = new(at)
    append(one, batch(0))
    one.file.append([batch(2147483648)])
    with pytest.raises(SegmentOffsetOverflow):
        recovered(one)
    assert one.size == 2 * BATCH_BYTES


def test_recovery_takes_in_producers_and_makes_the_transaction_index(at: Path) -> None:
    """SEG-043."""
    one = new(at, 100)
    append(
        one,
        produced(10, 0, 2, offset=100, is_transactional=True),
        produced(20, 0, 2, offset=102, is_transactional=True),
        batch(104, 2),
        marker(20, commit=False, offset=106),
        marker(10, commit=True, offset=107),
    )
    one.transactions.append(AbortedTransaction(999, 100, 100, 100))
    producers = ProducerState(SYSTEM_DISK, str(at), names=[])
    recovered(one, producers)
    assert list(one.transactions) == [AbortedTransaction(20, 102, 106, 100)]
    assert producers.map_end_offset == 108
    assert {found: entry.last_sequence for found, entry in producers.active_producers.items()} == {10: 1, 20: 1}
    assert producers.first_undecided_offset() is None


def test_recovery_knows_of_a_transaction_that_began_in_an_earlier_segment(at: Path) -> None:
    """SEG-044."""
    earlier = new(at, 70)
    append(earlier, produced(20, 0, 5, offset=75, is_transactional=True))
    producers = ProducerState(SYSTEM_DISK, str(at), names=[])
    recovered(earlier, producers)
    assert list(earlier.transactions) == []
    one = new(at, 100)
    append(one, produced(20, 5, 2, offset=102, is_transactional=True), marker(20, commit=False, offset=106))
    recovered(one, producers)
    assert list(one.transactions) == [AbortedTransaction(20, 75, 106, 107)]


def test_recovery_checks_no_sequences(at: Path) -> None:
    """SEG-045: what lies in the log was accepted once."""
    one = new(at)
    append(one, produced(7, 0, offset=0), produced(7, 9, offset=1), produced(7, 3, offset=2, epoch=4))
    append(one, produced(7, 77, offset=3, epoch=2))
    producers = ProducerState(SYSTEM_DISK, str(at), names=[])
    assert recovered(one, producers).bytes_cut == 0
    entry = producers.last_entry(7)
    assert entry is not None
    assert entry.last_sequence == 77


def test_recovery_makes_the_leader_epochs(at: Path) -> None:
    """SEG-046: those that are higher than the latest known."""
    one = new(at, 100)
    for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2)):
        append(one, batch(offset, 2, leader_epoch=epoch))
    append(one, batch(112, leader_epoch=-1), batch(113, leader_epoch=1))
    epochs = LeaderEpochCache("")
    recovered(one, epochs=epochs)
    assert [tuple(entry) for entry in epochs.entries] == [(0, 104), (1, 106), (2, 110)]
    known = LeaderEpochCache("", [(1, 50)])
    recovered(one, epochs=known)
    assert [tuple(entry) for entry in known.entries] == [(1, 50), (2, 110)]


# --------------------------------------------------------------------------------------------------------------- files


def test_a_fresh_segment_has_no_index_files_and_renaming_makes_none(at: Path) -> None:
    """SEG-048."""
    one = new(at)
    assert one.find(0) is None
    one.rename(DELETED)
    assert os.listdir(at) == ["00000000000000000000.log.deleted"]
    one.rename("")
    append(one, batch(0), batch(1))
    one.rename(SWAP)
    assert sorted(os.listdir(at)) == [f"00000000000000000000{kind}.swap" for kind in (".index", ".log", ".timeindex")]
    append(one, batch(2))
    assert one.find(2) is not None
    one.rename("")
    assert offsets(one, 0) == [0, 1, 2]


def test_preallocated_space_is_never_part_of_the_log(at: Path) -> None:
    """SEG-050: the file has its full length while it is open, and what was written when it is closed."""
    config: Settings = {"preallocate": True, "segment.bytes": 512 << 20}
    one = new(at, 40, config)
    append(one, batch(50, 2), batch(52))
    assert Path(one.path).stat().st_size == 512 << 20
    assert (one.size, one.next_offset()) == (len(batch(50, 2)) + BATCH_BYTES, 53)
    assert offsets(one, 51) == [50, 51, 52]
    size = one.size
    one.close()
    assert Path(one.path).stat().st_size == size
    again = opened(at, 40, config)
    assert (again.size, again.next_offset()) == (size, 53)
    append(again, batch(53))
    assert offsets(again, 52) == [52, 53]


def test_deleting_removes_the_four_files_and_misses_none(at: Path) -> None:
    """SEG-051."""
    one = new(at)
    append(one, batch(0), batch(1))
    one.transactions.append(AbortedTransaction(1, 0, 1, 1))
    assert len(os.listdir(at)) == 4
    reader = one.log
    one.delete()
    assert os.listdir(at) == []
    one.delete()
    assert len(list(reader.batches(0, 2 * BATCH_BYTES))) == 2  # whoever still reads it can go on
    del reader


def test_a_renamed_directory_takes_its_files_along(at: Path) -> None:
    """SEG-053: appends, reads and errors go by the new names."""
    old, moved = at / "orders-0", at / "orders-0.abc-delete"
    old.mkdir()
    one = new(old)
    append(one, batch(0), batch(1))
    one.transactions.append(AbortedTransaction(1, 0, 1, 1))
    old.rename(moved)
    one.moved(str(moved))
    append(one, batch(2))
    one.transactions.append(AbortedTransaction(1, 2, 2, 2))
    assert one.file.path == one.path == str(moved / "00000000000000000000.log")
    assert one.transactions.path == str(moved / "00000000000000000000.txnindex")
    one.close()
    with pytest.raises(UsageError, match="got a call, wanted none after close"):
        offsets(one, 0)
    one = opened(moved)
    assert offsets(one, 0) == [0, 1, 2]
    assert len(list(one.transactions)) == 2
    one.delete()
    assert os.listdir(moved) == []
    with pytest.raises(StorageError, match="No such file"):
        offsets(one, 0)


def test_the_largest_timestamp_of_a_segment_without_any_is_that_of_its_file(at: Path) -> None:
    """SEG-054."""
    one = new(at)
    append(one, batch(0, timestamp=-1))
    one.set_modified(123_456)
    assert one.largest_timestamp == 123_456
    append(one, batch(1, timestamp=0))
    assert one.largest_timestamp == 0


def test_the_largest_timestamp_of_a_reopened_segment_is_read_once_and_late(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEG-055: nothing is opened before somebody asks."""
    one = new(at)
    append(one, batch(0, timestamp=7), batch(1, timestamp=9), batch(2, timestamp=8))
    one.close()
    opens: list[str] = []

    class Counting(type(SYSTEM_DISK)):  # type: ignore[misc]
        def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> object:
            opens.append(path.rpartition(".")[2])
            return super().map(path, size_in_bytes, is_writable=is_writable)

    again = opened(at)
    again.disk = Counting()
    assert opens == []
    assert [again.max_timestamp, again.largest_timestamp, again.max_timestamp] == [(9, 1), 9, (9, 1)]
    assert opens == ["timeindex"]


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [b"\x01", b"\x00" * 7, b"\x7f" * 24, bytes(range(24))])
def test_an_index_that_misleads_is_not_believed(at: Path, kind: str, damage: bytes) -> None:
    """The segment is then searched from its beginning."""
    one = new(at)
    append(one, *(batch(offset, timestamp=offset) for offset in range(10)))
    one.close()
    (at / f"00000000000000000000{kind}").write_bytes(damage)
    again = opened(at)
    assert [again.find(offset) for offset in range(10)] == [
        (offset, offset, offset * BATCH_BYTES, BATCH_BYTES) for offset in range(10)
    ]
    assert again.next_offset() == 10


def test_a_segment_without_its_log_cannot_be_opened(at: Path) -> None:
    with pytest.raises(StorageError) as caught:
        opened(at, 77).find(77)
    assert caught.value.path == str(at / "00000000000000000077.log")
    assert not (at / "00000000000000000077.log").exists()
    assert opened(at, 77).path_of(LOG) == str(at / "00000000000000000077.log")


def test_invariants_name_what_is_wrong(at: Path) -> None:
    one = new(at)
    append(one, batch(0), batch(1), batch(2))
    one.check_invariants()
    one.file.truncate(BATCH_BYTES)
    with pytest.raises(CorruptIndex):
        one.check_invariants()


@pytest.mark.parametrize("wrong", [9, 1000, 2147483647, 2147483648, 2**62])
def test_an_offset_that_leaps_over_those_behind_it_is_the_wrong_one(at: Path, wrong: int) -> None:
    """No checksum covers a batch's offset: a flipped bit of it must not cost those before it, nor pass for a gap."""
    one = new(at)
    append(one, batch(0), batch(1), batch(2))
    one.file.append([batch(wrong), batch(4), batch(5)])
    done = recovered(one)
    assert (done.end_offset, offsets(one, 0)) == (3, [0, 1, 2])
    assert done.error is not None
    assert done.error.position == 3 * BATCH_BYTES


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_sealed_segment_lets_go_of_its_files_and_is_synced_all_the_same(tmp_path: Path, kind: str) -> None:
    disk, opened = FailingDisk(), OpenSegments(1)
    config = LogConfig.of(SMALL)
    made = [Segment(disk, str(tmp_path), base, config, created_ms=0, opened=opened) for base in (0, 10)]
    for one in made:
        one.create()
        one.append([batch(one.base_offset, timestamp=5)], scan_batches(batch(one.base_offset, timestamp=5)).headers)
        one.sync_log()
        one.seal()
    assert made[0]._log is None
    assert made[1]._log is not None
    disk.fail("sync", kind)
    with pytest.raises(StorageError):
        made[0].sync()
    disk.heal()
    made[0].sync()
    assert made[0]._log is None
    assert made[0].find(0) == (0, 0, 0, made[0].size)
    assert made[1]._log is None  # only one is kept open
    for one in made:
        one.close()


def test_a_reader_that_opens_an_index_does_not_take_it_from_who_begins_to_write(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = new(at)
    append(one, batch(0), batch(1))
    one.close()
    one = opened(at)
    map_file = SystemDisk.map

    def write_meanwhile(disk: SystemDisk, path: str, size_in_bytes: int, *, is_writable: bool = False) -> Any:
        found = map_file(disk, path, size_in_bytes, is_writable=is_writable)
        monkeypatch.setattr(SystemDisk, "map", map_file)
        append(one, batch(2))
        return found

    for index in ("offset_index", "time_index"):
        monkeypatch.setattr(SystemDisk, "map", write_meanwhile)
        assert not getattr(one, index).is_writable
        assert getattr(one, index).is_writable
        one.finish()
        one.sync()
        one.release()
        assert one.next_offset() == 3
        one.truncate_to(2, 0)
        one.finish()
        one.release()
    one.close()
