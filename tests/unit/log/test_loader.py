"""Opening a log: after a shutdown, after a crash, in the midst of a swap, with files missing, damaged or too many."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from logcore import scan_batches
from logcore.errors import CorruptBatch, CorruptionReason, UsageError
from logcore.log.disk import SYSTEM_DISK
from logcore.log.segments import Segments
from logcore.log.splitting import split_segment
from logcore.log.txnindex import AbortedTransaction
from tests.logs import BATCH_BYTES, NAME, Partition, batch, entries, marker, produced, rebuilt_indexes, segment

KINDS = (".log", ".index", ".timeindex")
FAR = 2147483648


def name(offset: int, kind: str) -> str:
    return f"{offset:020}{kind}"


def three(one: Partition) -> None:
    """Three segments: at 0, 5 and 10, five records each; nothing is flushed."""
    for n in range(3):
        one.fill(5)
        if n < 2:
            one.roll()


def spoil(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


# ------------------------------------------------------------------------------------------------------------ recovery


def test_after_a_shutdown_no_segment_is_read(tmp_path: Path) -> None:
    """LOG-102: whatever the checkpoint says; the recovery point is the log's end."""
    with Partition(tmp_path) as one:
        three(one)
        one.close()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        one.open()
        assert (one.recovery.was_clean, one.recovery.segments_read, one.recovery.bytes_read) == (True, 0, 0)
        assert not one.recovery
        assert one.log.recovery_point == one.log.log_end_offset == 15


@pytest.mark.parametrize(("point", "read"), [(0, 3), (4, 3), (5, 3), (7, 2), (10, 2), (15, 1)])
def test_after_a_crash_segments_are_read_from_the_recovery_point_on(tmp_path: Path, point: int, read: int) -> None:
    """LOG-103, LOG-104: and the recovery point does not move by it."""
    with Partition(tmp_path) as one:
        three(one)
        one.log.recovery_point = point
        one.checkpoint()
        one.reopen(clean=False)
        assert (one.recovery.was_clean, one.recovery.segments_read) == (False, read)
        assert (one.log.recovery_point, one.log.log_end_offset) == (point, 15)
        one.flush()
        assert one.log.recovery_point == 15


def test_a_recovery_point_above_the_log_comes_down(tmp_path: Path) -> None:
    """LOG-104."""
    with Partition(tmp_path) as one:
        three(one)
        one.log.recovery_point = 15
        one.checkpoint()
        one.crash()
        for kind in KINDS:
            (one.path / name(10, kind)).unlink(missing_ok=True)
        one.open()
        assert (one.log.recovery_point, one.log.log_end_offset) == (10, 10)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_lies_behind_a_cut_goes(tmp_path: Path, number: int) -> None:
    """LOG-105: it would be behind a hole."""
    with Partition(tmp_path) as one:
        three(one)
        one.crash()
        spoil(one.path / name(5 * number, ".log"), 3 * BATCH_BYTES + 40)
        one.open()
        end = 5 * number + 3
        assert (one.log.log_end_offset, one.offsets(0)) == (end, list(range(end)))
        assert one.bases == [0, 5, 10][: number + 1]
        assert one.recovery.segments_deleted == 2 - number
        assert (one.recovery.outcome, one.recovery.bytes_cut) == ("corrupt", (15 - end) * BATCH_BYTES)
        assert one.recovery.error is not None
        assert one.recovery.error.reason is CorruptionReason.CRC
        one.fill(3)
        one.reopen()
        assert one.offsets(0) == list(range(end + 3))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_below_the_recovery_point_is_raised_unless_it_is_to_be_repaired(tmp_path: Path, number: int) -> None:
    """Kafka cuts it off, and what was flushed behind it too."""
    with Partition(tmp_path) as one:
        three(one)
        one.flush()
        one.log.recovery_point = 14
        one.root.recovery_points.set(NAME, 14)
        one.root.write(0)
        one.crash()
        path = one.path / name(10, ".log")
        spoil(path, number * BATCH_BYTES + 40)
        before = path.read_bytes()
        with pytest.raises(CorruptBatch) as caught:
            one.open()
        assert (caught.value.path, caught.value.position) == (str(path), number * BATCH_BYTES)
        assert path.read_bytes() == before
        one.open(repair=True)
        assert one.offsets(0) == list(range(10 + number))


@pytest.mark.parametrize("seed", range(10))
def test_garbage_behind_the_log_and_its_index_goes(tmp_path: Path, seed: int) -> None:
    """LOG-106: records and times are as before."""
    rng = random.Random(seed)
    with Partition(tmp_path) as one:
        three(one)
        before = one.read(0)
        one.crash()
        for kind in (".log", ".index", ".timeindex"):
            with (one.path / name(10, kind)).open("ab") as file:
                file.write(rng.randbytes(rng.randrange(1, 500)))
        one.open()
        assert one.read(0) == before
        assert one.recovery.outcome == "torn"
        one.fill(3)
        assert one.offsets(12) == [12, 13, 14, 15, 16, 17]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [None, b"", b"\x01"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_missing_and_damaged_indexes_are_made_again(
    tmp_path: Path, kind: str, damage: bytes | None, clean: bool
) -> None:
    """LOG-107: missing ones also after a shutdown. (A damaged one of a sealed segment is not used then.)"""
    with Partition(tmp_path) as one:
        three(one)
        if clean:
            one.close()
        else:
            one.crash()
        for path in one.path.glob(f"*{kind}"):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
        one.open()
        assert one.offsets(0) == list(range(15))
        found = [(entries(segment.offset_index), entries(segment.time_index)) for segment in one.log.segments]
        wanted = [rebuilt_indexes(segment) for segment in one.log.segments]
        if not clean or damage is None:
            assert found == wanted
        elif damage:
            assert found[-1] == wanted[-1]
        if clean and damage is None:
            assert one.recovery.indexes_rebuilt == 3
        one.fill(5)
        assert one.offsets(0) == list(range(20))


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", [b"\x7f" * 36, bytes(range(72)), b"\x01\x02\x03\x04" * 51])
def test_a_damaged_index_of_the_active_segment_is_made_again_after_a_shutdown(
    tmp_path: Path, kind: str, damage: bytes
) -> None:
    """LOG-107, SEG-056: it is written on, so it has to be right."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 3, is_transactional=True))
        one.end(7, commit=False)
        one.fill(5)
        one.close()
        before = one.indexes()
        (one.path / name(0, kind)).write_bytes(damage)
        one.open()
        one.fill(4)
        assert one.offsets(0, "read_committed") == list(range(4, 13))
        one.close()
        after = one.indexes()
        assert after[name(0, ".txnindex")] == before[name(0, ".txnindex")]
        one.open()
        assert (entries(one.active.offset_index), entries(one.active.time_index)) == rebuilt_indexes(one.active)


def test_recovery_makes_the_same_indexes(tmp_path: Path) -> None:
    """LOG-108."""
    with Partition(tmp_path, {"index.interval.bytes": 200}) as one:
        three(one)
        one.close()
        before = one.indexes()
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        one.open()
        assert one.recovery.segments_read == 3
        assert [(one.active.max_timestamp), one.log.log_end_offset] == [(140, 14), 15]
        one.close()
        assert one.indexes() == before
        one.open()


def test_indexes_without_a_log_go(tmp_path: Path) -> None:
    """LOG-109."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.close()
        for offset in (1, 7):
            for kind in (".index", ".timeindex", ".txnindex"):
                (one.path / name(offset, kind)).write_bytes(b"x" * 24)
        one.open()
        assert [name for name in one.files if name.startswith(("00000000000000000001.", "00000000000000000007."))] == []
        assert one.recovery.files_removed == 6
        assert one.bases == [0]


@pytest.mark.parametrize("start", [0, 500])
@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_directory_gets_a_segment(tmp_path: Path, start: int, clean: bool) -> None:
    """LOG-110: where the log begins."""
    with Partition(tmp_path) as one:
        if start:
            one.root.write_log_start_offset(NAME, start)
        if clean:
            one.root.close(0)
        else:
            one.crash()
        shutil.rmtree(one.path)
        one.path.mkdir()
        if start and clean:
            (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
        one.open()
        assert (one.bases, one.log.log_start_offset, one.log.log_end_offset) == ([start], start, start)
        one.fill(1)
        assert one.offsets(start) == [start]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_it_begins_is_made_anew(tmp_path: Path, clean: bool) -> None:
    """LOG-111: somebody has removed its segments."""
    with Partition(tmp_path) as one:
        three(one)
        one.delete_records(12)
        if clean:
            one.close()
        else:
            one.crash()
        shutil.move(one.path / name(10, ".log"), one.path / name(2, ".log"))
        with (one.path / name(2, ".log")).open("wb") as file:
            file.write(batch(2) + batch(3))
        one.open()
        assert (one.bases, one.log.log_start_offset, one.log.log_end_offset, one.epochs) == ([12], 12, 12, [])
        one.fill(1)
        assert one.offsets(12) == [12]


def test_a_log_begins_where_the_checkpoint_says_or_its_first_segment(tmp_path: Path) -> None:
    """LOG-112: whichever is later."""
    with Partition(tmp_path, {"retention.ms": -1}) as one:
        three(one)
        one.delete_records(7)
        one.reopen()
        assert (one.bases, one.log.log_start_offset) == ([5, 10], 7)
        one.close()
        for kind in KINDS:
            (one.path / name(5, kind)).unlink()
        one.open()
        assert (one.bases, one.log.log_start_offset) == ([10], 10)


def test_epochs_are_brought_in_line_with_the_log(tmp_path: Path) -> None:
    """LOG-113: those that begin behind its end go, those below its start are moved."""
    with Partition(tmp_path, {"retention.ms": -1}) as one:
        for epoch in range(3):
            one.lead(batch(0, 5), epoch=epoch)
        one.delete_records(7)
        one.crash()
        (one.path / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n1 5\n2 10\n7 15\n9 40\n")
        one.open()
        assert one.epochs == [(1, 7), (2, 10)]
        one.close()
        (one.path / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n1 5\n2 10\n7 15\n9 40\n")
        one.open()
        # Closed in order, an epoch may begin where the log ends: its leader has not written yet.
        assert one.epochs == [(1, 7), (2, 10), (7, 15)]


@pytest.mark.parametrize("text", [None, "0\n0\n", "0\n1\n0 0\n"])
def test_epochs_are_made_again_from_the_batches(tmp_path: Path, text: str | None) -> None:
    """LOG-114."""
    with Partition(tmp_path) as one:
        for epoch in (0, 1, 1, 4):
            one.lead(batch(0, 5), epoch=epoch)
        one.crash()
        path = one.path / "leader-epoch-checkpoint"
        path.unlink()
        if text is not None:
            path.write_text(text)
        one.open()
        assert one.epochs == [(0, 0), (1, 5), (4, 15)]


@pytest.mark.parametrize("snapshots", ["all", "none"])
@pytest.mark.parametrize("which", ["all", "last"])
def test_transaction_indexes_are_made_again(tmp_path: Path, which: str, snapshots: str) -> None:
    """LOG-115."""
    with Partition(tmp_path) as one:
        for n in range(3):
            one.lead(produced(1, 3 * n, 3, is_transactional=True))
            one.roll()
            one.lead(produced(2, n, 1, is_transactional=True))
            one.end(1, commit=False)
            one.end(2, commit=n != 1)
        wanted = [list(segment.transactions) for segment in one.log.segments]
        assert wanted[-1] == [AbortedTransaction(1, 12, 16, 15)]
        assert sum(map(len, wanted)) == 4
        if which == "last":
            one.log.recovery_point = one.active.base_offset
            one.checkpoint()
        one.crash()
        paths = sorted(one.path.glob("*.txnindex"))
        for path in paths if which == "all" else paths[-1:]:
            path.unlink()
        if snapshots == "none":
            for path in one.path.glob("*.snapshot"):
                path.unlink()
        one.open()
        assert [list(segment.transactions) for segment in one.log.segments] == wanted
        # The segment before too: it was perhaps active when the recovery point was written down.
        assert one.recovery.segments_read == (len(wanted) if which == "all" else 2)
        assert one.offsets(0, "read_committed") == [3, 15]


def test_a_coordinator_epoch_may_go_back_in_the_log(tmp_path: Path) -> None:
    """LOG-116: the last one counts."""
    with Partition(tmp_path) as one:
        one.follow(
            produced(7, 0, offset=0, is_transactional=True),
            marker(7, commit=True, offset=1, coordinator_epoch=5),
            produced(7, 1, offset=2, is_transactional=True),
            marker(7, commit=True, offset=3, coordinator_epoch=3),
        )
        one.reopen(clean=False)
        entry = one.log.producers.last_entry(7)
        assert entry is not None
        assert entry.coordinator_epoch == 3


def test_a_snapshot_is_taken_after_each_segment_that_was_read(tmp_path: Path) -> None:
    """LOG-117: so a second crash has less to do."""
    with Partition(tmp_path) as one:
        for n in range(4):
            one.lead(produced(7, n))
            one.roll()
        one.crash()
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.open()
        assert {2, 3, 4} <= set(one.snapshots)


def test_after_a_shutdown_without_snapshots_those_of_the_end_are_made(tmp_path: Path) -> None:
    """LOG-118: without reading: a log from a time before there were any has no producers."""
    with Partition(tmp_path) as one:
        for _ in range(5):
            one.fill(2)
            one.roll()
        one.fill(1)
        one.close()
        for path in one.path.glob("*.snapshot"):
            path.unlink()
        one.open()
        assert (one.snapshots, one.recovery.bytes_read) == ([8, 10, 11], 0)


@pytest.mark.parametrize("clean", [True, False])
def test_snapshots_of_no_segment_go(tmp_path: Path, clean: bool) -> None:
    """LOG-119: but for the highest, unless it is above the log's end."""
    with Partition(tmp_path) as one:
        three(one)
        one.close()
        data = (one.path / name(5, ".snapshot")).read_bytes()
        for offset in (1, 7, 12, 99):
            (one.path / name(offset, ".snapshot")).write_bytes(data)
        if not clean:
            (tmp_path / ".kafka_cleanshutdown").unlink()
        one.open()
        assert set(one.snapshots) <= {5, 10, 15}
        assert 10 in one.snapshots


def test_an_active_segment_without_indexes_is_fine(tmp_path: Path) -> None:
    """LOG-120: it was rolled, and never written to."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.roll()
        one.flush()
        one.crash()
        assert not (one.path / name(3, ".index")).exists()
        one.open()
        one.fill(1)
        assert one.offsets(0) == [0, 1, 2, 3]
        one.roll()
        one.close()
        (one.path / name(4, ".index")).unlink(missing_ok=True)
        one.open()
        assert (one.recovery.indexes_rebuilt, one.bases) == (0, [0, 3, 4])


# ---------------------------------------------------------------------------------------------------------- swap files


def test_what_was_not_finished_is_undone(tmp_path: Path) -> None:
    """LOG-121: .deleted and .cleaned files go, and .swap files from the first .cleaned on."""
    with Partition(tmp_path) as one:
        three(one)
        one.close()
        log = (one.path / name(0, ".log")).read_bytes()
        for left in ("00000000000000000003.log.deleted", "00000000000000000003.snapshot.deleted"):
            (one.path / left).write_bytes(b"x")
        for kind in KINDS:
            (one.path / (name(5, kind) + ".cleaned")).write_bytes(b"")
            (one.path / (name(10, kind) + ".swap")).write_bytes(b"")
        (one.path / (name(5, ".log") + ".swap")).write_bytes(log)
        one.open()
        assert [found for found in one.files if found.endswith((".swap", ".cleaned", ".deleted"))] == []
        assert (one.recovery.swaps_completed, one.bases, one.offsets(0)) == (0, [0, 5, 10], list(range(15)))


def test_what_was_finished_takes_its_place(tmp_path: Path) -> None:
    """LOG-122: of all segments that it was made of. It may be done again, however far it came."""
    with Partition(tmp_path) as one:
        three(one)
        one.close()
        cleaned = segment(tmp_path, 0)
        data = batch(1, timestamp=10) + batch(4, timestamp=40) + batch(8, timestamp=80)
        cleaned.append([data], scan_batches(data).headers)
        cleaned.close()
        for kind in KINDS:
            shutil.move(tmp_path / name(0, kind), one.path / (name(0, kind) + ".swap"))
        saved = tmp_path / "saved"
        shutil.copytree(tmp_path, saved, ignore=shutil.ignore_patterns("saved"))
        one.open()
        assert (one.bases, one.offsets(0)) == ([0, 10], [1, 4, 8, 10, 11, 12, 13, 14])
        assert one.recovery.swaps_completed == 1
        assert [found for found in one.files if "swap" in found] == []
    for done in range(4):
        again = tmp_path / f"again{done}"
        shutil.copytree(saved, again)
        directory = again / str(NAME)
        for found in sorted(directory.glob("*.swap"), key=lambda path: ".log" in path.name)[:done]:
            found.rename(str(found).removesuffix(".swap"))
        if done == 3:  # the old ones are gone before the .log gets its name
            for kind in KINDS:
                (directory / name(5, kind)).unlink()
        with Partition(again) as one:
            assert (one.bases, one.offsets(0)) == ([0, 10], [1, 4, 8, 10, 11, 12, 13, 14])
            assert (entries(one.log.segments.first.offset_index), entries(one.log.segments.first.time_index)) == (
                rebuilt_indexes(one.log.segments.first)
            )


def overflowing(directory: Path) -> None:
    """A log whose first segment has offsets that do not fit it, and one behind."""
    directory.mkdir(parents=True)
    (directory / name(0, ".log")).write_bytes(batch(0) + batch(1) + batch(FAR) + batch(FAR + 1))
    (directory / name(FAR + 10, ".log")).write_bytes(batch(FAR + 10))


EXPECTED = [0, 1, FAR, FAR + 1, FAR + 10]


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_whose_offsets_do_not_fit_is_split(tmp_path: Path, clean: bool) -> None:
    """LOG-124."""
    overflowing(tmp_path / str(NAME))
    if clean:
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    with Partition(tmp_path) as one:
        assert (one.bases, one.recovery.segments_split) == ([0, FAR, FAR + 10], 1)
        assert one.offsets(0) == EXPECTED
        for segment in one.log.segments:
            assert (entries(segment.offset_index), entries(segment.time_index)) == rebuilt_indexes(segment)
        one.reopen(clean=False)
        assert (one.offsets(0), one.recovery.segments_split) == (EXPECTED, 0)


def test_a_segment_of_which_nothing_fits_becomes_one(tmp_path: Path) -> None:
    """LOG-124: that begins with its first batch. One that is in order is not split."""
    directory = tmp_path / str(NAME)
    directory.mkdir()
    (directory / name(0, ".log")).write_bytes(batch(FAR) + batch(FAR + 1))
    with Partition(tmp_path) as one:
        assert (one.bases, one.offsets(FAR)) == ([FAR], [FAR, FAR + 1])
        with pytest.raises(UsageError):
            split_segment(SYSTEM_DISK, str(one.path), one.log.segments, one.active, 0)
        assert [found for found in one.files if found.endswith(".cleaned")] == []


def test_a_bad_end_of_what_was_split_costs_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / str(NAME)
    directory.mkdir()
    good = batch(0) + batch(FAR + 5) + batch(FAR + 6)
    (directory / name(0, ".log")).write_bytes(good + batch(FAR + 5))
    with Partition(tmp_path, {"index.interval.bytes": 4096}) as one:
        assert one.offsets(0) == [0, FAR + 5, FAR + 6]
        assert one.recovery.bytes_cut == BATCH_BYTES


@pytest.mark.parametrize("step", range(5))
def test_a_crash_while_a_segment_is_split(tmp_path: Path, step: int) -> None:
    """LOG-123: at any of five points all records are there, in one more segment than before."""
    directory = tmp_path / str(NAME)
    overflowing(directory)
    parts = {0: batch(0) + batch(1), FAR: batch(FAR) + batch(FAR + 1)}
    suffixes = [(".cleaned", ".cleaned"), (".cleaned", ".swap"), (".swap", ".swap"), (".swap", ".swap"), ("", ".swap")]
    for (offset, data), suffix in zip(parts.items(), suffixes[step], strict=True):
        (directory / (name(offset, ".log") + suffix)).write_bytes(data)
    if step == 3:
        (directory / name(0, ".log")).rename(directory / (name(0, ".log") + ".deleted"))
    with Partition(tmp_path) as one:
        assert (one.bases, one.offsets(0)) == ([0, FAR, FAR + 10], EXPECTED)
        assert [found for found in one.files if found.endswith((".swap", ".cleaned", ".deleted"))] == []


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """LOG-125, LOG-126: raft's snapshots on their way out, and what has no offset for a name."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.close()
        others = ["00000000000000000000-0000000000.checkpoint.deleted", "notes.log", "README", "x.index", "abc.deleted"]
        for other in others:
            (one.path / other).write_bytes(b"mine")
        (one.path / "folder").mkdir()
        one.open()
        assert set(others) < set(one.files)
        assert (one.bases, one.offsets(0)) == ([0], [0, 1, 2])


def test_opening_twice_is_opening_once(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        three(one)
        one.crash()
        spoil(one.path / name(5, ".log"), 2 * BATCH_BYTES + 30)
        one.open()
        first = one.read(0)
        one.reopen(clean=False)
        assert one.read(0) == first
        assert not one.recovery
        assert isinstance(one.log.segments, Segments)
