"""Log: what a user of the library sees of one partition."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import logcore
from logcore.errors import (
    InvalidTimestampError,
    LockedError,
    LogTruncatedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    StorageError,
    UsageError,
)

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
        with pytest.raises(LogTruncatedError, match="truncated to 10, wanted records up to 300") as caught:
            seen += reader
        assert caught.value.offset == 10
        assert {record.value[:4] for record in seen} == {b"old-"}
        with pytest.raises(LogTruncatedError):
            list(columns)
        found = list(log.read(0))
        assert {record.value for record in found} == {b"new"}, "the batch that had offset 10 is gone, with 0 to 9"
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


def test_threads_that_flush_together_share_a_sync(path: Path) -> None:
    with small(path) as log:
        log.append(ROWS)
        log.flush()
        inside, go = threading.Event(), threading.Event()
        commit = log._commit
        begin = log._core.begin_flush

        def slow_begin() -> object:
            started = begin()
            if not inside.is_set():
                inside.set()
                go.wait()
            return started

        log._core.begin_flush = slow_begin  # type: ignore[method-assign]
        before = commit.sync_count
        log.append(ROWS)
        threads = [threading.Thread(target=log.flush)]
        threads[0].start()
        inside.wait()
        go.set()
        threads[0].join()
        assert commit.sync_count == before + 1
        assert log.flush() == log.log_end_offset
        assert commit.sync_count == before + 1, "nothing was left to sync"


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


@pytest.mark.parametrize("read_only", [False, True])
def test_a_log_of_many_segments_needs_few_descriptors(path: Path, read_only: bool) -> None:
    with small(path, max_message_bytes=1000) as log:
        log.append([(b"%d" % n, b"x" * 900, NOW + n) for n in range(1200)])
        assert len(log.segments) > 250
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 230, limits[1]))
    try:
        with logcore.open_log(path, read_only=read_only, config={"internal.segment.bytes": 4000}) as log:
            assert [record.offset for record in log.read(0)] == list(range(1200))
            assert sum(len(columns) for columns in log.read_columns(0)) == 1200
            assert [next(log.read(offset)).offset for offset in range(0, 1200, 4)] == list(range(0, 1200, 4))
            assert log.offset_for_timestamp(NOW + 1199).offset == 1199
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
