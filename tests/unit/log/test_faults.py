"""Disks that fail under a log: each a typed error that says what and where, or the right result.

Nothing that was flushed is lost, nothing of an append that raised is there, and when the disk works again, so does the
log; but for a failed sync, which ends it.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import logcore
from logcore._reader import read_records
from logcore.errors import CorruptBatch, LockedError, LogcoreError, LogTruncatedError, StorageError, UsageError
from logcore.library.reading import read_columns
from logcore.log import compaction, retention, truncation
from logcore.log.config import LogConfig
from logcore.log.loader import Recovery
from logcore.log.partition import PartitionLog
from logcore.log.readonly import ReadOnlyLog
from logcore.log.root import Root
from tests.crash.workload import NOW_MS, PARTITION, ROOT, chance_of, compact
from tests.disk.crash import CrashDisk
from tests.disk.faulty import FaultyDisk

DIRECTORY = f"{ROOT}/{PARTITION}"
SETTINGS: dict[str, str | int] = {
    "internal.segment.bytes": 1000,
    "index.interval.bytes": 100,
    "segment.index.bytes": 240,
}
CONFIG = LogConfig.of(SETTINGS)
Disks = tuple[FaultyDisk, CrashDisk]


def opened(disk: FaultyDisk | CrashDisk, config: LogConfig = CONFIG) -> tuple[Root, PartitionLog, Recovery]:
    root = Root(disk, ROOT, chance_of(random.Random(0)), NOW_MS)
    log, recovery = root.open(PARTITION, config, now_ms=NOW_MS, create=True)
    log.producers.is_verification_enabled = False
    return root, log, recovery


def put(log: PartitionLog, count: int = 1) -> None:
    """Records of 68 bytes a batch or so, each in a batch of its own; what they hold tells where they were put."""
    for _ in range(count):
        offset = log.log_end_offset
        log.append_records([(b"k%d" % (offset % 3), b"v%d" % offset, NOW_MS + offset)], now_ms=NOW_MS)


def held(log: PartitionLog | ReadOnlyLog) -> list[int]:
    """The offsets that can be read; that they are the right records is looked at."""
    view = log.view
    found = []
    for record in read_records(log, view, view.log_start_offset, view.high_watermark):
        assert record.value == b"v%d" % record.offset
        found.append(record.offset)
    return found


@pytest.fixture
def inner() -> CrashDisk:
    disk = CrashDisk(clock=lambda: NOW_MS)
    disk.make_directory(ROOT)
    disk.settle()
    return disk


@pytest.fixture
def disk(inner: CrashDisk) -> FaultyDisk:
    return FaultyDisk(inner)


# ------------------------------------------------------------------------------------------------------------- syncing


@pytest.mark.parametrize("what", ["*.log", "*/orders-0"])
def test_a_failed_sync_ends_the_log_and_what_was_flushed_is_there_after_it(
    disk: FaultyDisk, inner: CrashDisk, what: str
) -> None:
    root, log, _ = opened(disk)
    put(log, 5)
    log.flush(NOW_MS)
    put(log, 3)
    log.is_directory_dirty = True
    disk.fail(["sync", "sync_directory"], what, errno=errno.EIO, unsynced="forgotten" if what == "*.log" else "kept")
    with pytest.raises(StorageError, match="sync") as caught:
        log.flush(NOW_MS)
    assert caught.value.errno == errno.EIO
    calls: list[Callable[[], object]] = [
        lambda: put(log),
        lambda: log.flush(NOW_MS),
        lambda: log.roll(NOW_MS),
        lambda: log.tick(NOW_MS),
        lambda: truncation.truncate_to(log, 1, NOW_MS),
        lambda: retention.delete_records(log, 1, NOW_MS),
        lambda: retention.retain(log, NOW_MS),
        lambda: root.checkpoint(NOW_MS),
        lambda: log.close(NOW_MS),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="orders-0 after a failed sync"):
            call()
    with pytest.raises(StorageError):
        root.close(NOW_MS)
    for seed in range(30):
        left = inner.crash_state(seed).disk
        root, log, recovery = opened(left)
        assert not recovery.was_clean
        assert held(log)[:5] == [0, 1, 2, 3, 4]
        assert held(log) == list(range(log.log_end_offset))
        root.close(NOW_MS)


def test_a_failed_sync_in_a_roll_ends_the_log(disk: FaultyDisk) -> None:
    _, log, _ = opened(disk)
    put(log, 3)
    disk.fail("sync", "*.log", errno=errno.EIO)
    with pytest.raises(StorageError):
        log.roll(NOW_MS)
    with pytest.raises(StorageError, match="after a failed sync"):
        put(log)


# ------------------------------------------------------------------------------------------------------ no space, short


FULL_DISKS: dict[str, tuple[str, str]] = {
    "append": ("append", "*.log"),
    "index": ("write", "*.index"),
    "time index": ("write", "*.timeindex"),
    "making an index": ("create", "*.index"),
    "longer index": ("resize", "*.index"),
    "roll": ("create", "*.log"),
    "roll, index": ("create", "*.timeindex"),
    "snapshot": ("append", "*.snapshot.tmp"),
    "making a snapshot": ("create", "*.snapshot.tmp"),
    "renaming a snapshot": ("rename", "*.snapshot.tmp"),
}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", FULL_DISKS)
def test_an_append_on_a_disk_that_refuses_leaves_nothing_and_goes_on_when_it_does_not(
    disk: FaultyDisk, inner: CrashDisk, name: str, code: int
) -> None:
    kind, pattern = FULL_DISKS[name]
    root, log, _ = opened(disk)
    put(log, 10)
    log.flush(NOW_MS)
    done = refused = 0
    for skip in range(3):
        disk.fail(kind, pattern, errno=code, skip=skip, times=2)
        for _ in range(40):
            end = log.log_end_offset
            try:
                put(log)
                done += 1
            except StorageError as error:
                refused += 1
                assert error.errno == code
                assert error.path is not None
                assert error.path.startswith(DIRECTORY)
                assert log.log_end_offset == end
                assert held(log) == list(range(end))
        disk.heal()
    assert refused >= 3
    assert done > 60
    log.segments.check_invariants()
    log.producers.check_invariants()
    count = log.log_end_offset
    left = inner.killed()
    root.close(NOW_MS)
    for again in (inner, left):
        root, log, recovery = opened(again)
        assert recovery.was_clean == (again is inner)
        assert held(log) == list(range(count))
        put(log)
        root.close(NOW_MS)


@pytest.mark.parametrize("short", [0, 1, 30, 61])
@pytest.mark.parametrize("is_mended", [True, False])
def test_a_short_append_leaves_nothing(disk: FaultyDisk, inner: CrashDisk, short: int, is_mended: bool) -> None:
    root, log, _ = opened(disk)
    put(log, 4)
    disk.fail("append", "*.log", errno=errno.ENOSPC, short=short, is_mended=is_mended)
    with pytest.raises(StorageError, match="No space left"):
        put(log)
    killed = inner.killed()
    assert held(log) == [0, 1, 2, 3]
    put(log, 2)
    root.close(NOW_MS)
    for again, count in ((inner, 6), (killed, 4)):
        root, log, recovery = opened(again)
        assert recovery.outcome in ("clean", "torn")
        assert held(log) == list(range(count))
        root.close(NOW_MS)


def test_an_append_over_several_segments_that_fails_in_the_last_leaves_nothing(disk: FaultyDisk) -> None:
    root, log, _ = opened(disk, LogConfig.of({**SETTINGS, "max.message.bytes": 400}))
    put(log, 3)
    disk.fail("append", "*.log", errno=errno.ENOSPC, skip=2)
    with pytest.raises(StorageError):
        log.append_records([(b"k", bytes(300))] * 8, now_ms=NOW_MS)
    assert (held(log), log.log_end_offset) == ([0, 1, 2], 3)
    put(log)
    root.close(NOW_MS)
    _, log, _ = opened(disk)
    assert held(log) == [0, 1, 2, 3]


def test_a_leader_epoch_that_cannot_be_written_keeps_its_first_batch_out(disk: FaultyDisk) -> None:
    root, log, _ = opened(disk)
    put(log, 3)
    truncation.truncate_to(log, 2, NOW_MS)
    disk.fail(["create", "append"], "*leader-epoch-checkpoint*", errno=errno.ENOSPC)
    with pytest.raises(StorageError):
        put(log)
    assert held(log) == [0, 1]
    put(log)
    assert held(log) == [0, 1, 2]
    root.close(NOW_MS)
    _, log, _ = opened(disk)
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 2]


@pytest.mark.parametrize("kind", ["create", "append", "sync", "rename", "sync_directory"])
def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_is_written_the_next_time(
    disk: FaultyDisk, inner: CrashDisk, kind: str
) -> None:
    root, log, _ = opened(disk)
    put(log, 20)
    log.flush(NOW_MS)
    root.checkpoint(NOW_MS)
    put(log, 20)
    log.flush(NOW_MS)
    pattern = ROOT if kind == "sync_directory" else "*-checkpoint.tmp"
    disk.fail(kind, pattern, errno=errno.ENOSPC)
    with pytest.raises(StorageError, match=r"-checkpoint|/data"):
        root.checkpoint(NOW_MS)
    _, other, _ = opened(inner.killed())
    assert held(other) == list(range(40))
    root.checkpoint(NOW_MS)
    put(log)
    root.close(NOW_MS)
    root, log, recovery = opened(disk)
    assert recovery.was_clean
    assert held(log) == list(range(41))


@pytest.mark.parametrize(
    "kind", ["rename", "truncate", "sync", "sync_directory", "resize", "create", "unlink", "append"]
)
@pytest.mark.parametrize("step", ["truncate", "delete_records", "compact", "retain", "close"])
def test_a_step_that_fails_in_the_middle_is_told_and_the_next_open_recovers(
    disk: FaultyDisk, inner: CrashDisk, kind: str, step: str
) -> None:
    """The log goes on or is ended, but nobody ever reads anything wrong, and nothing that was flushed is lost."""
    config = LogConfig.of({**SETTINGS, "cleanup.policy": "compact,delete", "retention.bytes": 1500})
    for skip in range(6):
        whole = inner.copy()
        faulty = FaultyDisk(whole)
        root, log, _ = opened(faulty, config)
        put(log, 60)
        log.flush(NOW_MS)
        root.checkpoint(NOW_MS)
        put(log, 3)
        steps: dict[str, Callable[[], object]] = {
            "truncate": lambda log=log: truncation.truncate_to(log, 20, NOW_MS),  # type: ignore[misc]
            "delete_records": lambda log=log: retention.delete_records(log, 30, NOW_MS),  # type: ignore[misc]
            "compact": lambda root=root, log=log: compact(root, log, NOW_MS, bytes(16)),  # type: ignore[misc]
            "retain": lambda log=log: retention.retain(log, NOW_MS),  # type: ignore[misc]
            "close": lambda root=root: root.close(NOW_MS),  # type: ignore[misc]
        }
        faulty.fail(kind, errno=errno.EIO, skip=skip)
        failed = False
        try:
            steps[step]()
        except StorageError as error:
            failed = True
            assert error.errno == errno.EIO
        killed = whole.killed()
        faulty.heal()
        if failed and step != "close":
            try:
                assert held(log) == sorted(held(log))
                put(log, 2)
                log.flush(NOW_MS)
            except (StorageError, LogTruncatedError):
                with pytest.raises(StorageError, match="after a failed"):
                    put(log)
            else:
                killed = whole.killed()
                assert held(log)[-2:] == [log.log_end_offset - 2, log.log_end_offset - 1]
        root, log, _ = opened(killed, config)
        offsets = held(log)
        if step == "truncate":
            assert set(range(20)) <= set(offsets)
        elif step == "compact":
            assert {57, 58, 59} <= set(offsets)
        elif step == "delete_records":
            assert set(range(30, 60)) <= set(offsets)
        elif step == "close":
            assert offsets == list(range(63))
        put(log)
        root.close(NOW_MS)


# ---------------------------------------------------------------------------------------------------------- bad reading


def test_a_read_that_fails_says_where_and_works_again_when_the_disk_does(disk: FaultyDisk) -> None:
    _, log, _ = opened(disk)
    put(log, 20)
    disk.fail("read", "*.log", errno=errno.EIO, times=None)
    with pytest.raises(StorageError, match=r"read, .*\.log") as caught:
        held(log)
    assert caught.value.errno == errno.EIO
    disk.heal()
    assert held(log) == list(range(20))


@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_flipped_bit_in_a_sealed_segment_is_found_by_who_reads_it_and_never_served(
    disk: FaultyDisk, inner: CrashDisk, is_read_only: bool
) -> None:
    root, log, _ = opened(disk)
    put(log, 40)
    sealed = log.segments.first
    batches = list(sealed.log.batches(0, sealed.size))
    root.close(NOW_MS)
    for position in range(0, sealed.size, 13):
        faulty = FaultyDisk(inner.copy())
        faulty.flip(sealed.path, position, mask=1 << position % 8)
        batch = next(one for one in batches if one.position <= position < one.position + one.size_in_bytes)
        found: PartitionLog | ReadOnlyLog
        if is_read_only:
            found = ReadOnlyLog(faulty, ROOT, PARTITION, CONFIG, now_ms=NOW_MS)
        else:
            root, found, _ = opened(faulty)
        served = []
        # A base offset and a leader epoch are in no checksum: Kafka's format leaves them out.
        relative = position - batch.position
        try:
            for record in read_records(found, found.view, 0, found.view.log_end_offset):
                if relative >= 16:
                    assert record.value == b"v%d" % record.offset
                served.append(record.offset)
        except CorruptBatch as error:
            assert error.path == sealed.path
            assert error.position == batch.position
            assert served == list(range(batch.base_offset))
        else:
            assert relative < 16
        columns: list[int] = []
        with suppress(CorruptBatch):
            for part in read_columns(
                found,
                found.view,
                0,
                found.view.log_end_offset,
                columns=None,
                layout="binary",
                is_committed=False,
                bytes_max=None,
            ):
                columns += part.offset.tolist()
        if relative >= 16:
            assert columns == list(range(len(columns)))
            assert len(columns) <= batch.base_offset
        if not is_read_only:
            root.close(NOW_MS)


def test_segments_under_each_others_names_are_refused(inner: CrashDisk) -> None:
    root, log, _ = opened(inner)
    put(log, 40)
    first, second, *_ = (segment.path for segment in log.segments)
    root.close(NOW_MS)
    inner.rename(first, first + ".x")
    inner.rename(second, first)
    inner.rename(first + ".x", second)
    _, log, _ = opened(inner)
    view = log.view
    with pytest.raises(CorruptBatch, match="offset") as caught:
        list(read_records(log, view, 0, view.log_end_offset))
    assert caught.value.path == second
    with pytest.raises(CorruptBatch, match="offset"):
        list(
            read_columns(
                log, view, 0, view.log_end_offset, columns=None, layout="binary", is_committed=False, bytes_max=None
            )
        )


# --------------------------------------------------------------------------------------- missing, stale, garbled files


def _damages(data: bytes) -> list[bytes | None]:
    half = len(data) // 2
    return [None, b"", data[:half], bytes(len(data)), b"\xff" * len(data), data[half:] + data[:half], data + b"x" * 9]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "-offset-checkpoint"]
)
def test_what_is_made_from_the_log_may_be_missing_or_stale_or_garbled(
    inner: CrashDisk, suffix: str, is_clean: bool
) -> None:
    root, log, _ = opened(inner)
    put(log, 50)
    root.checkpoint(NOW_MS)
    if is_clean:
        root.close(NOW_MS)
    source = inner.killed()
    for path, data in source.tree(ROOT).items():
        if not path.endswith(suffix) or data is None:
            continue
        for damage in _damages(data):
            disk = source.copy()
            disk.unlink(f"{ROOT}/{path}")
            if damage is not None:
                file = disk.open(f"{ROOT}/{path}", is_writable=True, create=True)
                file.append([damage])
                file.close()
            try:
                root, log, _ = opened(disk)
            except LogcoreError as error:
                assert path in str(error), (path, damage)
                assert "checkpoint" in path
                continue
            assert held(log) == list(range(50)), (path, damage)
            for offset in range(50):
                found = next(read_records(log, log.view, offset, log.log_end_offset))
                assert found.offset == offset
            put(log)
            root.close(NOW_MS)


# ---------------------------------------------------------------------------------------------------- what is not a log


def test_a_directory_that_is_not_a_log_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="got 'photos'"):
        logcore.open_log(tmp_path / "photos")
    with pytest.raises(StorageError, match="No such file"):
        logcore.open_log(tmp_path / "orders-0", read_only=True)


def test_a_file_where_a_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders-0").write_bytes(b"")
    for read_only in (False, True):
        with pytest.raises(StorageError, match="orders-0") as caught:
            logcore.open_log(tmp_path / "orders-0", read_only=read_only)
        assert caught.value.errno in (errno.ENOTDIR, errno.EEXIST)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        logcore.open_log(tmp_path / "file" / "orders-0")


def test_a_directory_where_a_file_should_be_is_named(inner: CrashDisk) -> None:
    inner.make_directory(f"{DIRECTORY}/00000000000000000000.log")
    with pytest.raises(LogcoreError, match=r"00000000000000000000\.log"):
        opened(inner)


def test_a_root_that_another_process_has_is_refused_with_its_lock_and_its_number(tmp_path: Path) -> None:
    code = "import logcore, sys; log = logcore.open_log(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "orders-0")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(LockedError) as caught:
            logcore.open_log(tmp_path / "orders-0")
        assert str(tmp_path / ".lock") in str(caught.value)
        assert str(other.pid) in str(caught.value)
        with logcore.open_log(tmp_path / "orders-0", read_only=True) as log:
            assert len(log) == 0
        other.stdin.close()
    with logcore.open_log(tmp_path / "orders-0") as log:
        assert len(log) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="data") as caught:
        logcore.open_log(tmp_path / "data" / "orders-0")
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize("kind", ["list", "open", "lock", "map"])
def test_what_may_not_be_opened_is_named(disk: FaultyDisk, inner: CrashDisk, kind: str) -> None:
    root, log, _ = opened(disk)
    put(log, 30)
    root.close(NOW_MS)
    disk.fail(kind, errno=errno.EACCES, skip=1 if kind == "open" else 0, times=None)
    try:
        _, log, _ = opened(disk)
        held(log)
        pytest.fail("nothing was said")
    except StorageError as error:
        assert error.errno == errno.EACCES
        assert error.path is not None
        assert error.path.startswith(ROOT)
    disk.heal()
    _, log, _ = opened(inner.as_process(2) if kind == "lock" else disk)
    assert held(log) == list(range(30))


# ----------------------------------------------------------------------------------------------------------------- time


def test_time_may_go_backwards(inner: CrashDisk) -> None:
    root, log, _ = opened(
        inner, LogConfig.of({**SETTINGS, "flush.ms": 1000, "segment.ms": 5000, "retention.ms": 60_000})
    )
    times = [NOW_MS, NOW_MS - 10_000_000, 0, NOW_MS + 5, NOW_MS - 1, 5]
    for now_ms in times * 3:
        offset = log.log_end_offset
        log.append_records([(b"k", b"v%d" % offset)], now_ms=now_ms)
        log.tick(now_ms)
        log.maybe_roll_by_time(now_ms)
        root.tick(now_ms)
    assert held(log) == list(range(18))
    assert compaction.cleanable(log, None, 0).first_dirty_offset == 0
    log.producers.remove_expired(0)
    root.close(0)
    _, log, _ = opened(inner)
    assert held(log) == list(range(18))
