"""Changes of one log that meet: out of one another, from two threads, from a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logcore import Log, open_log, open_root
from logcore.errors import StorageError, UsageError
from logcore.log.disk import SystemDisk
from logcore.log.partition import PartitionLog

ROWS = [(b"k%d" % number, b"v%d" % number) for number in range(5)]
COMPACTED = {"cleanup.policy": "compact"}
SECONDS_MAX = 60.0  # that a thread may take, before it is said to hang


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in log.read(log.log_start_offset)}


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.append(ROWS),
        lambda log: log.truncate_to(1),
        lambda log: log.roll(),
        lambda log: log.flush(),
        lambda log: log.delete_records(2),
        lambda log: log.close(),
    ],
    ids=["append", "truncate", "roll", "flush", "delete", "close"],
)
def test_a_change_out_of_the_iterable_of_an_append_is_refused(tmp_path: Path, change: Callable[[Log], object]) -> None:
    with open_log(tmp_path / "orders-0") as log:
        log.append(ROWS)

        def rows() -> Iterator[tuple[bytes, bytes]]:
            yield ROWS[0]
            change(log)
            yield ROWS[1]

        with pytest.raises(UsageError, match="got a change out of the midst of another one, wanted one after the"):
            log.append(rows())
        assert log.append(ROWS).first_offset == 5
        assert [record.offset for record in log.read(0)] == list(range(10))
    with open_log(tmp_path / "orders-0") as log:
        assert not log.recovery
        assert log.log_end_offset == 10


def test_the_iterable_of_an_append_may_read_the_log(tmp_path: Path) -> None:
    with open_log(tmp_path / "orders-0") as log:
        log.append(ROWS)
        assert log.append(log.read(0)).last_offset == 9


def test_two_compactions_take_turns(tmp_path: Path) -> None:
    with open_log(tmp_path / "orders-0", config=COMPACTED) as log:
        log.append(ROWS)
        log.roll()
        second = threading.Thread(target=log.compact)
        met: list[UsageError] = []

        def in_between(done: int, size: int) -> None:
            if done > size // 2 and not met:
                with pytest.raises(UsageError, match="got a call out of its progress") as refused:
                    log.compact()
                met.append(refused.value)
                log.append([(key, b"new") for key, _ in ROWS[:2]])
                log.roll()
                second.start()

        assert log.compact(progress=in_between) is not None
        second.join(SECONDS_MAX)
        assert not second.is_alive()
        assert values(log) == dict(ROWS) | {b"k0": b"new", b"k1": b"new"}
        assert not [name for name in os.listdir(log.path) if name.endswith((".cleaned", ".swap"))]


def test_closing_ends_a_compaction_that_leaves_nothing_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", config=COMPACTED)
    log.append(ROWS)
    log.roll()
    closer = threading.Thread(target=log.close)

    def close_meanwhile(done: int, size: int) -> None:
        if done > size // 2:
            closer.start()
            while not log.closed:
                pass

    with pytest.raises(UsageError, match="wanted none after close"):
        log.compact(progress=close_meanwhile)
    closer.join(SECONDS_MAX)
    assert not closer.is_alive()
    assert not [name for name in os.listdir(log.path) if name.endswith(".cleaned")]
    with open_log(tmp_path / "orders-0") as log:
        assert not log.recovery
        assert values(log) == dict(ROWS)


def test_a_log_may_be_closed_while_its_topic_is_deleted(tmp_path: Path) -> None:
    with open_root(tmp_path) as root:

        def run() -> None:
            for _ in range(30):
                root.create_topic("orders")
                closer = threading.Thread(target=root.log("orders").close)
                closer.start()
                root.delete_topic("orders")
                closer.join()

        runner = threading.Thread(target=run, daemon=True)
        runner.start()
        runner.join(SECONDS_MAX)
        assert not runner.is_alive()
        assert root.topics() == []


def test_a_log_that_is_just_being_closed_is_opened_again_when_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, done = threading.Event(), threading.Event()
    close = PartitionLog.close

    def slow(log: PartitionLog, now_ms: int) -> None:
        inside.set()
        done.wait(SECONDS_MAX)
        close(log, now_ms)

    with open_root(tmp_path) as root:
        root.create_topic("orders")
        monkeypatch.setattr(PartitionLog, "close", slow)
        first = root.log("orders")
        closer = threading.Thread(target=first.close)
        closer.start()
        inside.wait(SECONDS_MAX)
        threading.Timer(0.01, done.set).start()
        second = root.log("orders")
        assert first.closed
        assert second is not first
        assert second.append(ROWS).first_offset == 0
        closer.join(SECONDS_MAX)
        assert root.log("orders") is second


def test_a_log_that_failed_keeps_no_other_from_its_tick_and_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 0
    root = open_root(tmp_path, clock=lambda: now_ms, config={"flush.ms": 10})
    for topic in ("a", "b"):
        root.create_topic(topic)
        root.append(topic, ROWS)

    def fail(log: PartitionLog, _: int) -> int:
        raise log.fail(StorageError("sync", errno=5, path=log.directory))

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "flush", fail)
        with pytest.raises(StorageError):
            root.log("a").roll()
    now_ms = 60_000
    with pytest.raises(StorageError, match="a-0"):
        root.tick()
    assert "b 0 5" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    with pytest.raises(StorageError, match="a-0"):
        root.close()


def test_a_forked_child_is_refused_also_if_another_thread_had_the_lock(tmp_path: Path) -> None:
    with open_log(tmp_path / "orders-0") as log:
        inside, done = threading.Event(), threading.Event()

        def rows() -> Iterator[tuple[bytes, bytes]]:
            yield ROWS[0]
            inside.set()
            done.wait(SECONDS_MAX)

        appender = threading.Thread(target=log.append, args=(rows(),))
        appender.start()
        inside.wait(SECONDS_MAX)
        child = os.fork()
        if not child:
            refused = 0
            for change in (lambda: log.append(ROWS), log.flush, log.compact, log.close):
                try:
                    change()
                except UsageError:
                    refused += 1
            os._exit(refused)
        done.set()
        appender.join(SECONDS_MAX)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        assert log.log_end_offset == 1


def test_a_forked_child_opens_another_root_also_if_a_thread_was_just_opening_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, done = threading.Event(), threading.Event()
    lock = SystemDisk.lock

    def slow(disk: SystemDisk, path: str) -> object:
        inside.set()
        done.wait(SECONDS_MAX)
        return lock(disk, path)

    with monkeypatch.context() as patched:
        patched.setattr(SystemDisk, "lock", slow)
        opener = threading.Thread(target=lambda: open_log(tmp_path / "one" / "orders-0").close())
        opener.start()
        inside.wait(SECONDS_MAX)
        child = os.fork()
        if not child:
            SystemDisk.lock = lock  # type: ignore[method-assign]
            try:
                open_log(tmp_path / "two" / "orders-0").close()
            finally:
                os._exit(0)
        done.set()
        opener.join(SECONDS_MAX)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()
