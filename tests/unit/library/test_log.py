"""Log: what a user of the library sees of one partition."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore.errors import (
    CorruptBatch,
    InconsistentTopicIdError,
    InvalidTimestampError,
    LockedError,
    LogTruncatedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    StorageError,
    UsageError,
)
from logcore.log.disk import SystemDisk

NOW = 1_700_000_000_000
ROWS = [(b"k%d" % n, b"v%d" % n, NOW + n) for n in range(100)]


def small(path: Path, **settings: object) -> logcore.Log:
    config = {"internal.segment.bytes": 4000, "index.interval.bytes": 200} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    return logcore.open_log(path, config=config, clock=lambda: NOW)


def values(records: object) -> list[bytes]:
    return [record.value for record in records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def test_what_is_appended_is_read_by_rows_and_by_columns(path: Path) -> None:
    with small(path) as log:
        first = log.append(ROWS)
        assert (first.first_offset, first.last_offset, first.record_count) == (0, 99, 100)
        second = log.append([logcore.Record(7, NOW, b"a", b"b", [("h", b"1")]), (None, None)])
        assert (second.first_offset, second.last_offset) == (100, 101)
        assert [record.offset for record in log.read(0)] == list(range(102))
        assert next(log.read(100)).headers == (("h", b"1"),)
        assert next(log.read(101)) == logcore.Record(101, NOW, None, None)
        assert list(log.read(102)) == []
        assert len(log) == 102
        assert [offset for columns in log.read_columns(33) for offset in columns.offset.tolist()] == list(
            range(33, 102)
        )
        assert next(log.read_columns(50, columns=("value",), end_offset=52)).value[1] == b"v51"


def test_a_closed_log_is_what_it_was_when_it_is_opened_again(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS)
        assert log.recovery.was_clean
    with small(path) as log:
        assert not log.recovery
        assert values(log.read(0)) == [row[1] for row in ROWS]
    with pytest.raises(UsageError, match="got a call, wanted none after close"):
        log.append(ROWS)
    with pytest.raises(UsageError, match="wanted none after close"):
        log.read(0)
    log.close()
    assert repr(log) == f"Log({str(path)!r}, closed)"


def test_an_append_larger_than_a_segment_is_cut_at_batches_and_rolls(path: Path) -> None:
    with small(path, max_message_bytes=1000) as log:
        log.append([(None, b"x" * 90)] * 500)
        assert len(log.segments) > 10
        assert all(one.size_in_bytes <= 4000 for one in log.segments)
        assert [record.offset for record in log.read(0)] == list(range(500))
        log.append(ROWS)
        assert values(log.read(500)) == [row[1] for row in ROWS]


def test_an_append_that_raises_leaves_nothing_of_itself(path: Path) -> None:
    def rows() -> object:
        yield from ROWS
        raise RuntimeError("the source broke")

    with small(path, max_message_bytes=500) as log:
        log.append(ROWS[:3])
        with pytest.raises(RuntimeError, match="the source broke"):
            log.append(rows())
        with pytest.raises(MessageTooLargeError, match=r"wanted at most 500 \(max.message.bytes\)"):
            log.append([(b"k", b"v"), (b"k", b"v" * 600)])
        with pytest.raises(InvalidTimestampError):
            log.append([(b"k", b"v", NOW + 3_600_001)])
        with pytest.raises(UsageError, match="at least one"):
            log.append([])
        assert log.log_end_offset == 3
        assert log.append([(b"k", b"v")]).first_offset == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_comes_from_the_call_or_from_the_config(path: Path, codec: str) -> None:
    with small(path, compression_type="zstd") as log:
        log.append(ROWS, compression=codec)
        log.append(ROWS)
    data = (path / "00000000000000000000.log").read_bytes()
    assert [batch.compression for batch in logcore.decode_batches(data)] == [codec, "zstd"]


def test_log_append_time_is_the_clocks(path: Path) -> None:
    with small(path, message_timestamp_type="LogAppendTime") as log:
        result = log.append([(b"k", b"v", 5)])
        assert result.log_append_time_ms == NOW
        log.append([(b"k", b"v", 5)], timestamp_type="create_time")
        assert [record.timestamp for record in log.read(0)] == [NOW, 5]
    with small(path) as log:
        assert log.append([(b"k", b"v")]).log_append_time_ms == -1
        assert next(log.read(2)).timestamp == NOW


def test_a_record_without_a_timestamp_gets_the_clocks_however_it_is_made(path: Path) -> None:
    with small(path) as log:
        log.append([(b"k", b"v"), (b"k", b"v", None), logcore.Record(key=b"k", value=b"v"), (b"k", b"v", -1)])
        assert [record.timestamp for record in log.read(0)] == [NOW, NOW, NOW, -1], "-1 in a tuple is meant"


def test_a_retried_batch_is_answered_with_its_offsets_and_a_gap_is_refused(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS[:5])
        first = log.append(ROWS[:3], producer_id=9, producer_epoch=0, base_sequence=0)
        again = log.append(ROWS[:3], producer_id=9, producer_epoch=0, base_sequence=0)
        assert (first.first_offset, first.is_duplicate) == (5, False)
        assert (again.first_offset, again.last_offset, again.is_duplicate) == (5, 7, True)
        assert log.log_end_offset == 8
        with pytest.raises(OutOfOrderSequenceNumberError):
            log.append(ROWS[:1], producer_id=9, producer_epoch=0, base_sequence=5)
        log.append(ROWS[:1], producer_id=9, producer_epoch=0, base_sequence=3)
    with small(path) as log:
        assert log.append(ROWS[:1], producer_id=9, producer_epoch=0, base_sequence=3).is_duplicate


def test_committed_readers_see_no_aborted_records_and_stop_before_open_ones(path: Path) -> None:
    def batch(producer: int, sequence: int) -> bytes:
        return logcore.encode_batch(
            [(b"k", b"%d-%d" % (producer, sequence), NOW)],
            base_offset=0,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def marker(producer: int, commit: bool) -> bytes:
        return logcore.encode_transaction_marker(producer, 1, commit=commit, coordinator_epoch=0, timestamp=NOW)

    with small(path) as log:
        log.append([(b"k", b"plain")])
        log.append_batches(batch(1, 0), leader_epoch=0, origin="coordinator")
        log.append_batches(batch(2, 0), leader_epoch=0, origin="coordinator")
        assert log.last_stable_offset == 1
        log.append_batches(marker(1, False), leader_epoch=0, origin="coordinator")
        assert log.last_stable_offset == 2
        assert values(log.read(0, isolation="read_committed")) == [b"plain"]
        log.append_batches(marker(2, True), leader_epoch=0, origin="coordinator")
        log.append_batches(batch(3, 0), leader_epoch=0, origin="coordinator")
        for reader in (log, logcore.open_log(path, read_only=True)):
            assert values(reader.read(0)) == [b"plain", b"1-0", b"2-0", b"3-0"]
            assert values(reader.read(0, isolation="read_committed")) == [b"plain", b"2-0"]
            columns = reader.read_columns(0, isolation="read_committed")
            assert [one for made in columns for one in (made.value[n] for n in range(len(made)))] == [b"plain", b"2-0"]
            assert reader.last_stable_offset == 5
            reader.close() if reader.read_only else None
    with small(path) as log, pytest.raises(UsageError, match="isolation: got 'committed'"):
        log.read(0, isolation="committed")  # type: ignore[arg-type]


def test_offsets_out_of_range_are_refused_with_the_range(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS)
        log.delete_records(40)
        for offset in (0, 39, 101):
            with pytest.raises(OffsetOutOfRangeError, match=f"got offset {offset}, wanted 40 to 100"):
                log.read(offset)
            with pytest.raises(OffsetOutOfRangeError):
                log.read_columns(offset)
            with pytest.raises(OffsetOutOfRangeError):
                log.follow(offset)
        assert values(log.read(40)) == [b"v%d" % n for n in range(40, 100)]
        assert log.delete_records(-1) == 100
        assert len(log.segments) == 1


def test_a_read_begins_at_the_log_start_unless_told(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS)
        log.delete_records(7)
        assert [record.offset for record in log.read()] == list(range(7, 100))
        assert [offset for columns in log.read_columns() for offset in columns.offset.tolist()] == list(range(7, 100))


def test_records_are_found_by_time(path: Path) -> None:
    with small(path, max_message_bytes=300) as log:
        log.append(ROWS)
        log.append(ROWS)
        assert log.offset_for_timestamp(NOW + 50) == (50, NOW + 50, 0)
        assert log.offset_for_timestamp(0) == (0, NOW, 0)
        assert log.offset_for_timestamp(NOW + 100) is None
        assert log.offset_of_max_timestamp() == (99, NOW + 99, 0)
    with small(path.with_name("empty-0")) as log:
        assert log.offset_for_timestamp(0) is None
        assert log.offset_of_max_timestamp() is None


def test_readers_of_a_log_that_is_cut_get_an_error_and_never_a_mix(path: Path) -> None:
    with small(path, max_message_bytes=300) as log:
        log.append([(None, b"old-%d" % n) for n in range(300)])
        reader, columns = log.read(0), log.read_columns(0)
        seen = [next(reader) for _ in range(20)]
        log.truncate_to(10)
        log.append([(None, b"new")] * 300)
        with pytest.raises(LogTruncatedError, match="truncated to 0, wanted records up to 300") as caught:
            seen += reader
        assert caught.value.offset == 0, "the batch that had offset 10 is gone, with 0 to 9"
        assert {record.value[:4] for record in seen} == {b"old-"}
        with pytest.raises(LogTruncatedError):
            list(columns)
        found = list(log.read(0))
        assert {record.value for record in found} == {b"new"}
        assert found[0].offset == 10


def test_a_read_only_log_writes_nothing_and_sees_what_a_writer_adds(path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        logcore.open_log(path, read_only=True)
    assert not path.exists()
    with small(path, max_message_bytes=300) as log, logcore.open_log(path, read_only=True) as reader:
        assert (reader.read_only, len(reader), reader.topic_id) == (True, 0, log.topic_id)
        for _ in range(3):
            log.append(ROWS)
            assert values(reader.read(0)) == values(log.read(0))
            assert reader.log_end_offset == log.log_end_offset
        log.delete_records(150)
        assert reader.log_start_offset == 150
        log.truncate_to(200)
        assert reader.log_end_offset == 200
        for use in (
            lambda: reader.append(ROWS),
            reader.flush,
            reader.roll,
            lambda: reader.truncate_to(0),
            reader.retain,
        ):
            with pytest.raises(UsageError, match="got a write, wanted a log that was not opened with read_only"):
                use()
        assert "read only" in repr(reader)


def test_another_process_is_told_who_has_the_lock(path: Path) -> None:
    code = "import logcore, sys; logcore.open_log(sys.argv[1])"
    with small(path), small(path.with_name("orders-1")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(path.with_name("orders-2"))], capture_output=True, text=True
        )
        assert f"got a lock of process {os.getpid()}, wanted none" in done.stderr
        assert "LockedError" in done.stderr
    assert subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True).returncode == 0
    assert issubclass(LockedError, StorageError)


def test_a_log_is_open_for_writing_once_a_process(path: Path) -> None:
    with small(path), pytest.raises(UsageError, match="got a second open, wanted one at a time"):
        small(path)
    with small(path) as log:
        log.append(ROWS)


def test_a_forked_child_cannot_write_and_takes_nothing_away(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS)
        child = os.fork()
        if not child:
            try:
                log.append(ROWS)
            except UsageError as error:
                os._exit(0 if "which opened it" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert log.append(ROWS).first_offset == 100
        done = subprocess.run(
            [sys.executable, "-c", "import logcore, sys; logcore.open_log(sys.argv[1])", str(path)], capture_output=True
        )
        assert b"LockedError" in done.stderr


def test_an_append_that_returned_survives_the_death_of_the_process(path: Path) -> None:
    code = """if True:
        import logcore, os, signal, sys
        log = logcore.open_log(sys.argv[1], config={"internal.segment.bytes": 4000})
        for n in range(50):
            log.append([(b"k", b"%d-%d" % (n, m)) for m in range(20)])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", code, str(path)])
    assert done.returncode == -signal.SIGKILL
    with small(path) as log:
        assert not log.recovery.was_clean
        assert (log.recovery.outcome, log.recovery.bytes_cut) == ("clean", 0)
        assert values(log.read(0)) == [b"%d-%d" % (n, m) for n in range(50) for m in range(20)]


def test_threads_append_and_read_at_once_without_loss(path: Path) -> None:
    failures: list[BaseException] = []
    with small(path) as log:

        def write(number: int) -> None:
            for n in range(100):
                log.append([(b"%d" % number, b"%d" % n)])

        def read() -> None:
            try:
                for _ in range(30):
                    offsets = [record.offset for record in log.read(0)]
                    assert offsets == list(range(len(offsets)))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        found = [(int(record.key), int(record.value)) for record in log.read(0)]
        assert sorted(found) == [(number, n) for number in range(4) for n in range(100)]
        for number in range(4):
            assert [n for who, n in found if who == number] == list(range(100))


def test_threads_that_read_may_take_each_others_segments(path: Path) -> None:
    """Few segments are kept open, so each of these threads lets go of files that the others are just using."""
    with small(path, internal_segment_bytes=400, index_interval_bytes=0) as log:
        for n in range(60):
            log.append([(b"k", b"%d" % n * 50, NOW + n)])
        assert len(log.segments) > 20
    interval = sys.getswitchinterval()
    with small(path, internal_segment_bytes=400, index_interval_bytes=0) as log:
        log._core.opened._count_max = 1
        failures: list[BaseException] = []

        def read(number: int) -> None:
            try:
                for offset in random.Random(number).sample(range(60), 30):
                    found = [record.offset for record in log.read(offset, isolation="read_committed")]
                    assert found == list(range(offset, 60))
                    assert sum(map(len, log.read_columns(offset, isolation="read_committed"))) == 60 - offset
                    assert log.offset_for_timestamp(NOW + offset).offset == offset
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert not failures


def test_threads_that_flush_together_share_a_sync(path: Path) -> None:
    """While one sync is under way, all who come wait for one more: it makes durable what any of them has appended."""
    count = 16
    with logcore.open_log(path) as log:
        log.append(ROWS)
        log.flush()
        commit, core = log._commit, log._core
        assert commit is not None
        before = commit.sync_count
        is_under_way, go_on, have_come = threading.Event(), threading.Event(), threading.Semaphore(0)
        begin, wait = core.begin_flush, commit._changed.wait
        durable: list[bool] = []
        held: list[object] = []

        def noted_wait(timeout: float | None = None) -> bool:
            have_come.release()
            return wait(timeout)

        def append_and_flush() -> None:
            end = log.append(ROWS).last_offset + 1
            durable.append(log.flush() >= end)

        class Held:
            """A flush whose sync waits, without the log's lock, as a slow disk lets it."""

            def __init__(self, started: object) -> None:
                self._started = started
                self.end_offset = started.end_offset  # type: ignore[attr-defined]

            def run(self) -> None:
                is_under_way.set()
                assert go_on.wait(60)
                self._started.run()  # type: ignore[attr-defined]

        def held_flush() -> object:
            started = begin()
            if held:
                return started
            held.append(started)
            return Held(started)

        core.begin_flush = held_flush  # type: ignore[method-assign]
        commit._changed.wait = noted_wait  # type: ignore[method-assign]
        first = threading.Thread(target=append_and_flush)
        first.start()
        assert is_under_way.wait(60)
        threads = [threading.Thread(target=append_and_flush) for _ in range(count)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert have_come.acquire(timeout=60)
        go_on.set()
        for thread in (first, *threads):
            thread.join()
        assert durable == [True] * (count + 1)
        assert commit.sync_count == before + 2
        assert log.flush() == log.log_end_offset
        assert commit.sync_count == before + 2, "nothing was left to sync"


def test_compaction_keeps_the_latest_of_each_key(path: Path) -> None:
    with small(path, cleanup_policy="compact", max_message_bytes=400) as log:
        for n in range(40):
            log.append([(b"k%d" % (m % 7), b"%d-%d" % (n, m)) for m in range(10)])
        expected = {record.key: record.value for record in log.read(0)}
        log.roll()
        before = log.size_in_bytes
        assert log.dirty_ratio == 1.0
        done = log.compact()
        assert done is not None
        assert done.records_written < done.records_read
        assert log.size_in_bytes < before / 5
        assert {record.key: record.value for record in log.read(0)} == expected
        assert log.dirty_ratio == 0.0
        assert log.compact() is None
        assert log.compact(only_if_due=True) is None
        end = log.log_end_offset
    with small(path, cleanup_policy="compact") as log:
        assert log.log_end_offset == end
        assert {record.key: record.value for record in log.read(0)} == expected
    with small(path) as log, pytest.raises(UsageError, match=r"cleanup\.policy=delete, wanted compact"):
        log.compact()


def test_tombstones_go_in_a_second_compaction_after_their_time(path: Path) -> None:
    with small(path, cleanup_policy="compact", delete_retention_ms=1000) as log:
        log.append([(b"a", b"1"), (b"b", b"2")])
        log.append([(b"a", None)])
        log.roll()
        log.append([(b"z", b"9")])
        log.compact(NOW)
        assert [(record.key, record.value) for record in log.read(0)] == [(b"b", b"2"), (b"a", None), (b"z", b"9")]
        assert log.compact(NOW + 999) is None
        log.compact(NOW + 1000)
        assert [(record.key, record.value) for record in log.read(0)] == [(b"b", b"2"), (b"z", b"9")]


def test_retention_deletes_what_is_too_old_and_too_much(path: Path) -> None:
    with small(path, max_message_bytes=300, retention_ms=1000) as log:
        log.append(ROWS * 3)
        assert log.retain(NOW + 1000) == 0
        assert log.retain(NOW + 1100) > 0
        assert log.log_start_offset == log.log_end_offset == 300
        assert log.append(ROWS).first_offset == 300
    with small(path.with_name("other-0"), max_message_bytes=300, retention_bytes=3000) as log:
        for _ in range(5):
            log.append(ROWS)
        size = log.size_in_bytes
        assert log.retain() > 0
        assert 3000 <= log.size_in_bytes < size


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Let this process have only so many more open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_log_of_many_segments_needs_few_descriptors(path: Path, read_only: bool) -> None:
    with small(path, max_message_bytes=1000) as log:
        log.append([(b"%d" % n, b"x" * 900, NOW + n) for n in range(1200)])
        assert len(log.segments) > 250
    with (
        few_descriptors(230),
        logcore.open_log(path, read_only=read_only, config={"internal.segment.bytes": 4000}) as log,
    ):
        assert [record.offset for record in log.read(0)] == list(range(1200))
        assert sum(len(columns) for columns in log.read_columns(0)) == 1200
        assert [next(log.read(offset)).offset for offset in range(0, 1200, 4)] == list(range(0, 1200, 4))
        assert log.offset_for_timestamp(NOW + 1199).offset == 1199


KEYED_WRITER = """if True:
    import logcore, os, sys
    log = logcore.open_log(sys.argv[1], config={"internal.segment.bytes": 200})
    for n in range(300):
        log.append([(b"%d" % n, b"x" * 100)])
    os._exit(0)
"""


def test_writing_recovering_and_compacting_many_segments_needs_few_descriptors(path: Path) -> None:
    """A segment that is rolled, read by recovery or written by compaction does not stay open."""
    config = {"internal.segment.bytes": 200, "cleanup.policy": "compact"}
    with few_descriptors(230):
        subprocess.run([sys.executable, "-c", KEYED_WRITER, str(path)], check=True)
        with logcore.open_log(path, config=config) as log:
            assert log.recovery.segments_read == len(log.segments) == 300
            log.flush()
            for n in range(300):
                log.append([(b"%d" % (n % 290), b"y" * 100)])
            assert log.compact() is not None
            assert sum(1 for _ in log.read(0)) == 300 + 1  # the last record was in the active segment
            assert log.compact() is None
        with logcore.open_log(path, config=config) as log:
            assert not log.recovery
            assert sum(1 for _ in log.read(0)) == 301


def test_an_append_that_fails_between_two_indexes_leaves_none_that_seems_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logcore.open_log(path, config={"segment.index.bytes": 1200}) as log:
        map_file = SystemDisk.map

        def refuse(disk: SystemDisk, path: str, *args: Any, **named: Any) -> Any:
            if path.endswith(".timeindex"):
                raise StorageError("map", errno=errno.EMFILE, path=path)
            return map_file(disk, path, *args, **named)

        with monkeypatch.context() as patched:
            patched.setattr(SystemDisk, "map", refuse)
            with pytest.raises(StorageError, match="Too many open files"):
                log.append(ROWS)
        for _ in range(3):
            log.append(ROWS)
        assert len(log.segments) == 1


def test_a_file_that_cannot_be_removed_is_told_before_anything_is_appended(path: Path) -> None:
    now_ms = NOW
    with logcore.open_log(path, config={"file.delete.delay.ms": 10}, clock=lambda: now_ms) as log:
        log.append(ROWS)
        log.roll()
        log.delete_records(100)
        deleted = path / "00000000000000000000.log.deleted"
        deleted.unlink()
        deleted.mkdir()
        now_ms += 10
        with pytest.raises(StorageError, match="Is a directory"):
            log.append(ROWS)
        assert log.log_end_offset == 100
        assert log.append(ROWS).first_offset == 100
        deleted.rmdir()


def test_an_iterator_does_not_outlive_its_log_and_read_what_has_its_name_then(tmp_path: Path) -> None:
    with logcore.open_root(tmp_path, config={"internal.segment.bytes": 200}) as root:
        root.create_topic("orders")
        for _ in range(10):
            root.append("orders", [(b"k", b"old" * 20)])
        rows, columns = root.log("orders").read(0), iter(root.log("orders").read_columns(0))
        next(rows)
        next(columns)
        root.delete_topic("orders")
        root.create_topic("orders")
        for _ in range(10):
            root.append("orders", [(b"k", b"new" * 20)])
        for iterator in (rows, columns):
            with pytest.raises(UsageError, match="wanted none after close"):
                list(iterator)


def test_a_reader_of_a_topic_that_was_made_anew_is_told_and_sees_none_of_it(tmp_path: Path) -> None:
    with logcore.open_root(tmp_path, config={"internal.segment.bytes": 200}) as root:
        root.create_topic("orders")
        for _ in range(10):
            root.append("orders", [(b"k", b"old" * 20)])
        with logcore.open_log(tmp_path / "orders-0", read_only=True) as reader:
            rows, follower = reader.read(0), reader.follow(0, timeout=0)
            assert next(rows).value == next(follower).value == b"old" * 20
            root.delete_topic("orders")
            root.create_topic("orders")
            for _ in range(20):
                root.append("orders", [(b"k", b"new" * 20)])
            for iterator in (rows, follower):
                with pytest.raises(InconsistentTopicIdError, match="another one has its name"):
                    list(iterator)
            with pytest.raises(InconsistentTopicIdError):
                reader.read(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.read("0"),
        lambda log: log.read(0.5),
        lambda log: log.read(0, max_bytes=b""),
        lambda log: log.read_columns("0"),
        lambda log: log.read_columns(0, end_offset="9"),
        lambda log: log.follow([]),
        lambda log: log.follow(0, timeout="1"),
        lambda log: log.follow(0, timeout=float("nan")),
        lambda log: log.follow_async(0, timeout=1e300),
        lambda log: log.offset_for_timestamp("now"),
        lambda log: log.append(ROWS, producer_id=None),
        lambda log: log.truncate_to(50.5),
        lambda log: log.delete_records("5"),
        lambda log: log.retain("now"),
        lambda log: log.tick(1.5),
        lambda log: log.compact(0, memory_bytes=0.5),
    ],
)
def test_what_is_no_number_is_told_and_changes_nothing(path: Path, call: Callable[[logcore.Log], object]) -> None:
    with logcore.open_log(path, config={"cleanup.policy": "compact"}) as log:
        log.append(ROWS)
        with pytest.raises(UsageError, match="wanted"):
            call(log)
        assert log.append(ROWS).first_offset == len(ROWS)
        assert log.log_start_offset == 0


def test_no_record_gets_the_last_offset_there_is_as_the_log_ends_behind_its_last(path: Path) -> None:
    last = 2**63 - 1

    def batch(offset: int) -> bytes:
        return logcore.encode_batch([(b"k", b"v", NOW)], base_offset=offset)

    with logcore.open_log(path) as log:
        log.append_batches(batch(last - 2), leader_epoch=0, origin="follower")
        assert log.append([(b"k", b"v")]).last_offset == last - 1
        for refused in (
            lambda: log.append([(b"k", b"v")]),
            lambda: log.append_batches(batch(last), leader_epoch=0, origin="follower"),
            lambda: log.append_batches(batch(0), leader_epoch=0),
        ):
            with pytest.raises(UsageError, match=f"got {last}, wanted"):
                refused()
        assert log.log_end_offset == last
        file = Path(log.segments[-1].path)
    with file.open("ab") as segment:
        segment.write(batch(last))
    with logcore.open_log(path, read_only=True) as log:
        assert [record.offset for record in log.read(last - 2)] == [last - 2, last - 1]
    with pytest.raises(CorruptBatch, match=f"last offset got {last}, wanted less than {last}"):
        logcore.open_log(path)
    (path.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with logcore.open_log(path) as log:
        assert log.recovery.bytes_cut == len(batch(last))
        assert log.log_end_offset == last
