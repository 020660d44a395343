"""Recovering what a crash has left, and comparing it with what was promised.

opening raises nothing
the rows are those that were appended, from the beginning on, without a hole, at least as far as was promised
checksums are right, offsets go up, indexes and leader epochs are what follows from the batches
the producers and the last stable offset are what reading the whole log gives
who recovers again, or dies while recovering and recovers then, gets the same bytes
the log can be appended to, flushed, closed and read
"""

from __future__ import annotations

import random
from contextlib import suppress

from logcore._batch import scan_batches
from logcore._reader import read_records
from logcore.log.config import LogConfig
from logcore.log.names import INDEX, LOG, TIME_INDEX
from logcore.log.partition import PartitionLog
from logcore.log.producers import ProducerState
from logcore.log.recovery import read_producers
from logcore.log.root import Root
from tests.crash.rules import Row, batches_of, epochs_of, index_entries, rows_of
from tests.crash.workload import PARTITION, ROOT, Attempt, Expected, chance_of
from tests.disk.crash import CrashDisk, Crashed, CrashState
from tests.disk.memory import MemoryDisk

DIRECTORY = f"{ROOT}/{PARTITION}"
UNCHECKED_BYTES = 16  # of a batch: base offset, length and leader epoch are in no checksum


def is_beyond_telling(state: CrashState) -> bool:
    """Whether a batch was garbled where no checksum looks, so that nobody can tell, nor can Kafka."""
    for path, damage in state.files:
        for (at, new), (verdict, where) in zip(damage.events, damage.verdicts, strict=True):
            if path.endswith(LOG) and verdict == "garbled" and new is not None:
                positions = scan_batches(new).headers["position"].tolist()
                if any(0 <= where - at - position < UNCHECKED_BYTES for position in positions):
                    return True
    return False


def opened(disk: CrashDisk, config: LogConfig, now_ms: int) -> tuple[Root, PartitionLog]:
    """The log on a disk, by another process."""
    root = Root(disk, ROOT, chance_of(random.Random(0)), now_ms)
    log, _ = root.open(PARTITION, config, now_ms=now_ms, create=True)
    log.producers.is_verification_enabled = False
    return root, log


def log_bytes(log: PartitionLog) -> dict[str, bytes]:
    """The .log files of a log, by path; an empty one is none."""
    return {segment.path: segment.file.read(0, segment.size) for segment in log.segments if segment.size}


def check_rows(
    rows: list[Row], log_start: int, expected: Expected, attempt: Attempt | None, *, is_killed: bool
) -> None:
    """The rows that were found are the first of those that were promised, and enough of them."""
    offsets = [row.offset for row in rows]
    assert offsets == sorted(set(offsets)), "offsets do not go up"
    starts = [expected.start]
    must = expected.end if is_killed else expected.flushed
    allowed = expected.rows
    if attempt is not None:
        allowed = sorted(allowed + attempt.rows)  # what a deletion has removed lies before
        if attempt.cut is not None:
            must = min(must, attempt.cut)
        if attempt.start is not None:
            starts.append(attempt.start)
    assert min(starts) <= log_start <= max(starts), f"begins at {log_start}, wanted {starts}"
    allowed = [row for row in allowed if row.offset >= log_start]
    wanted = [row for row in allowed if row.offset < must]
    if attempt is not None and attempt.is_compaction:
        check_compacted(rows, allowed, wanted)
        return
    assert rows == allowed[: len(rows)], _difference(rows, allowed)
    assert len(rows) >= len(wanted), f"lost {wanted[len(rows) :]}"


def check_compacted(rows: list[Row], allowed: list[Row], wanted: list[Row]) -> None:
    """A compaction was under way: what is missing of what is wanted has a later record of its key."""
    known = set(allowed)
    assert all(row in known for row in rows), [row for row in rows if row not in known]
    found = set(rows)
    last = {row.key: row.offset for row in rows if not row.is_control}
    for row in wanted:
        if row not in found and not row.is_control and row.value is not None:
            superseded = last.get(row.key, -1) > row.offset
            assert superseded or _may_be_aborted(row, allowed), f"lost {row}"


def _may_be_aborted(row: Row, allowed: list[Row]) -> bool:
    return any(other.is_control and other.key == b"ABORT" and other.offset > row.offset for other in allowed)


def _difference(rows: list[Row], allowed: list[Row]) -> str:
    for at, row in enumerate(rows):
        other = allowed[at] if at < len(allowed) else None
        if row != other:
            return f"row {at}: got {row}, wanted {other}; {len(rows)} rows, wanted {len(allowed)}"
    return ""


def check_files(disk: MemoryDisk, log: PartitionLog) -> None:
    """Indexes are what follows from the .log files."""
    files = disk.tree(DIRECTORY)
    for segment in log.segments:
        name = f"{segment.base_offset:020}"
        data = files[name + LOG]
        assert data is not None
        batches = batches_of(data[: segment.size])
        assert not any(data[segment.size :])
        offsets, times, last = index_entries(
            batches, segment.base_offset, log.config.index_interval_bytes, log.config.segment_index_bytes
        )
        found = files.get(name + INDEX)
        if found is not None or batches:
            assert found is not None, f"{name}: no index"
            assert found.startswith(offsets), f"{name}.index: got {found.hex(' ', 8)}, wanted {offsets.hex(' ', 8)}"
            assert not any(found[len(offsets) :]), (
                f"{name}.index: got {found.hex(' ', 8)}, wanted {offsets.hex(' ', 8)}"
            )
        found = files.get(name + TIME_INDEX)
        if found is not None or batches:
            assert found is not None, f"{name}: no time index"
            assert found.rstrip(b"\0") in (times.rstrip(b"\0"), (times + last).rstrip(b"\0")), (
                f"{name}.timeindex: got {found.hex(' ', 12)}, wanted {times.hex(' ', 12)} and {last.hex()}"
            )


def check_state(disk: CrashDisk, log: PartitionLog, *, is_compacted: bool) -> None:
    """Leader epochs, producers and aborted transactions are what follows from the batches."""
    log.segments.check_invariants()
    log.producers.check_invariants()
    log.epochs.check_invariants()
    batches = [batch for segment in log.segments for batch in batches_of(segment.file.read(0, segment.size))]
    for epoch, first_offset in epochs_of(batches):
        if first_offset >= log.log_start_offset:
            assert log.epochs.epoch_for_offset(first_offset) == epoch
    latest = log.epochs.latest_entry
    assert latest is None or latest.start_offset <= log.log_end_offset
    if log.log_start_offset or is_compacted:
        return
    fresh = ProducerState(disk, DIRECTORY, names=[], read_only=True)
    read_producers(fresh, log.view)
    fresh.on_high_watermark_updated(log.high_watermark)
    got, wanted = _producers(log.producers), _producers(fresh)
    assert got == wanted, f"producers: got {got}, wanted {wanted}"
    first = fresh.first_unstable_offset()
    assert log.last_stable_offset == (log.log_end_offset if first is None else first.offset)


def _producers(state: ProducerState) -> dict[int, tuple[int | None, ...]]:
    """What of each producer a snapshot has too: of its batches only the last."""
    return {
        producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.last_sequence,
            entry.last_data_offset,
        )
        for producer_id, entry in state.active_producers.items()
    }


def check_state_of(
    disk: CrashDisk,
    config: LogConfig,
    expected: Expected,
    attempt: Attempt | None,
    now_ms: int,
    rng: random.Random,
    *,
    is_killed: bool,
) -> Expected:
    """Recover a disk, and check everything. Returns what the next process may rely on. The disk is used up."""
    was = disk.copy()
    root, log = opened(disk, config, now_ms)
    found = log_bytes(log)
    rows = [row for data in found.values() for row in rows_of(batches_of(data)) if row.offset >= log.log_start_offset]
    check_rows(rows, log.log_start_offset, expected, attempt, is_killed=is_killed)
    check_files(disk, log)
    check_state(disk, log, is_compacted=config.is_compacted)
    _check_read(log, rows)
    flushed = min(expected.flushed, log.log_end_offset) if is_killed else log.log_end_offset
    after = Expected(rows, log.log_start_offset, flushed, True)
    if is_killed and attempt is not None:
        # What it has removed may come back with the machine's death, until somebody has opened the log.
        known = set(rows)
        gone = [row for row in expected.rows if row not in known]
        after.undone = Attempt("open", gone, start=expected.start, is_compaction=attempt.is_compaction)

    # Recovering again.
    for again in _again(was, disk, config, now_ms, rng, is_killed=is_killed):
        _, second = opened(again, config, now_ms)
        assert log_bytes(second) == found
        assert second.log_start_offset == log.log_start_offset

    # Going on.
    end = log.log_end_offset
    log.append_records([(b"new", b"value", now_ms)], now_ms=now_ms)
    log.flush(now_ms)
    more = [*rows, Row(end, b"new", b"value")]
    _check_read(log, more)
    root.close(now_ms)
    root, log = opened(disk, config, now_ms)
    _check_read(log, more)
    check_files(disk, log)
    root.close(now_ms)
    return after


def _again(
    was: CrashDisk, now: CrashDisk, config: LogConfig, now_ms: int, rng: random.Random, *, is_killed: bool
) -> list[CrashDisk]:
    """Disks on which a second recovery must find what the first one did."""
    found = [now.killed()]
    during = was.copy(rng=rng, crash_after=rng.randint(0, 20))
    with suppress(Crashed):
        opened(during, config, now_ms)
    found.append(during.killed())
    if not is_killed:  # what a killed process has left may be lost with the machine
        found.append(now.crash_state(rng.getrandbits(48)).disk)
        found.append(during.crash_state(rng.getrandbits(48)).disk)
    return [rng.choice(found)]


def _check_read(log: PartitionLog, rows: list[Row]) -> None:
    view = log.view
    read = [
        (record.offset, record.key, record.value)
        for record in read_records(log, view, view.log_start_offset, view.high_watermark)
    ]
    assert read == [(row.offset, row.key, row.value) for row in rows if not row.is_control]
