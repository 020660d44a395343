"""Waiting for records: in this process, from another one, and in an event loop."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import logcore
from logcore.errors import LogTruncatedError, OffsetOutOfRangeError
from logcore.library import following

ROWS = [(b"k%d" % number, b"v") for number in range(100)]

WRITER = """if True:
    import logcore, sys
    log = logcore.open_log(sys.argv[1], config={"internal.segment.bytes": 20000})
    print("open", flush=True)
    for line in sys.stdin:
        count = int(line)
        log.append([(None, b"%d" % n) for n in range(log.log_end_offset, log.log_end_offset + count)])
        print(log.log_end_offset, flush=True)
    log.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def test_a_follower_gets_what_is_there_and_what_comes(path: Path) -> None:
    with logcore.open_log(path) as log:
        log.append([(None, b"%d" % n) for n in range(10)])
        found: list[int] = []
        done = threading.Event()

        def follow() -> None:
            for record in log.follow(3):
                found.append(int(record.value))
                if record.offset == 29:
                    done.set()

        thread = threading.Thread(target=follow)
        thread.start()
        for n in range(10, 30):
            log.append([(None, b"%d" % n)])
        assert done.wait(30)
        log.close()
        thread.join(30)
        assert not thread.is_alive()
        assert found == list(range(3, 30))


def test_a_follower_ends_after_its_timeout_and_begins_at_the_end_unless_told(path: Path) -> None:
    with logcore.open_log(path) as log:
        log.append([(None, b"old")])
        assert list(log.follow(timeout=0.01)) == []
        assert [record.value for record in log.follow(0, timeout=0.01)] == [b"old"]
    with logcore.open_log(path, read_only=True) as log:
        assert [record.value for record in log.follow(0, timeout=0.01)] == [b"old"]


def test_a_follower_of_committed_records_waits_for_the_end_of_the_transaction(path: Path) -> None:
    batch = logcore.encode_batch(
        [(None, b"1")], base_offset=0, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    with logcore.open_log(path) as log:
        log.append_batches(batch, leader_epoch=0, origin="coordinator")
        assert list(log.follow(0, isolation="read_committed", timeout=0.01)) == []
        assert len(list(log.follow(0, timeout=0.01))) == 1
        marker = logcore.encode_transaction_marker(1, 1, commit=True, coordinator_epoch=0)
        log.append_batches(marker, leader_epoch=0, origin="coordinator")
        assert len(list(log.follow(0, isolation="read_committed", timeout=0.01))) == 1


@pytest.mark.parametrize("read_only", [False, True])
def test_a_follower_that_has_read_what_is_cut_is_told_and_one_before_it_goes_on(path: Path, read_only: bool) -> None:
    with logcore.open_log(path) as log, ExitStack() as stack:
        for n in range(100):
            log.append([(None, b"%d" % n + b"x" * 50_000)] * 2)
        reader = stack.enter_context(logcore.open_log(path, read_only=True)) if read_only else log
        ahead, behind = reader.follow(0, timeout=0.01), reader.follow(0, timeout=0.01)
        assert [next(ahead).offset for _ in range(200)] == list(range(200))
        assert [next(behind).offset for _ in range(2)] == [0, 1]
        log.truncate_to(151)  # in the middle of a batch, which goes whole
        log.append([(None, b"new")] * 3)
        with pytest.raises(LogTruncatedError) as caught:
            next(ahead)
        assert caught.value.offset == 150
        assert [record.offset for record in behind] == [*range(2, 150), 151, 152, 153]
        fresh = reader.follow(150, timeout=0.01)
        assert [record.value for record in fresh] == [b"new"] * 3


def test_a_follower_behind_deleted_records_is_out_of_range(path: Path) -> None:
    with logcore.open_log(path) as log:
        log.append([(None, b"x")] * 10)
        follower = log.follow(0, timeout=0.01)
        log.delete_records(5)
        with pytest.raises(OffsetOutOfRangeError):
            list(follower)


def test_followers_in_other_processes_see_every_record(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline() == "open\n"
        with logcore.open_log(path, read_only=True) as log:
            follower = log.follow(0, timeout=30)
            total = 0
            for count in (1, 500, 3, 4000, 1):
                writer.stdin.write(f"{count}\n")
                writer.stdin.flush()
                total += count
                for record in itertools.islice(follower, count):
                    assert int(record.value) == record.offset
                assert record.offset == total - 1
            assert len(log.segments) > 1
        writer.stdin.close()
        assert writer.wait() == 0


def test_a_follower_is_woken_by_an_append_and_does_not_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the process: without a timeout it would sleep for ever."""
    with logcore.open_log(path) as log:
        waiting, waits = threading.Event(), []
        wait = following.Growth.wait

        def noted(growth: following.Growth, has_grown: Callable[[], bool], seconds: float | None) -> bool:
            waits.append(seconds)
            waiting.set()
            return wait(growth, has_grown, seconds)

        monkeypatch.setattr(following.Growth, "wait", noted)
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.extend(itertools.islice((r.offset for r in log.follow(0)), 3)))
        thread.start()
        for _ in range(3):
            assert waiting.wait(30)
            waiting.clear()
            log.append([(None, b"x")])
        thread.join(30)
        assert found == [0, 1, 2]
        assert waits == [None] * 3


def test_a_follower_in_another_process_looks_often(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a millisecond, and never after more than 20: that is how late it can be."""
    pauses: list[float] = []
    count = 12

    def noted(growth: following.Growth, has_grown: Callable[[], bool], seconds: float | None) -> bool:
        assert seconds is not None
        pauses.append(seconds)
        if len(pauses) % count == 0:
            log.append([(None, b"x")])
        return False

    with logcore.open_log(path) as log, logcore.open_log(path, read_only=True) as reader:
        monkeypatch.setattr(following.Growth, "wait", noted)
        assert [record.offset for record in itertools.islice(reader.follow(0), 2)] == [0, 1]
    assert pauses[:count] == pauses[count:]
    assert pauses[0] == 0.001
    assert max(pauses) == 0.020
    assert sum(pauses[:6]) < 0.06


@pytest.mark.parametrize("read_only", [False, True])
def test_the_asynchronous_form_does_not_hold_up_the_loop(path: Path, read_only: bool) -> None:
    async def run() -> tuple[list[int], int]:
        ticks = 0
        with logcore.open_log(path) as log:
            reader = logcore.open_log(path, read_only=True) if read_only else log

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            async def write() -> None:
                for n in range(20):
                    log.append([(None, b"%d" % n)])
                    await asyncio.sleep(0)

            async def read() -> list[int]:
                found = []
                async for record in reader.follow_async(0):
                    found.append(int(record.value))
                    if len(found) == 20:
                        return found
                return found

            ticker = asyncio.create_task(tick())
            found, _ = await asyncio.gather(read(), write())
            ticker.cancel()
            assert [int(record.value) async for record in reader.follow_async(18, timeout=0.01)] == [18, 19]
            if read_only:
                reader.close()
        return found, ticks

    found, ticks = asyncio.run(run())
    assert found == list(range(20))
    assert ticks > 5


def test_a_loop_that_was_closed_with_a_follower_in_it_does_not_concern_who_appends(path: Path) -> None:
    log = logcore.open_log(path)
    log.append(ROWS)
    loop = asyncio.new_event_loop()
    follower = log.follow_async(0)
    assert loop.run_until_complete(anext(follower)).offset == 0
    loop.close()
    assert log.append(ROWS).first_offset == len(ROWS)
    log.close()


def test_a_follower_ends_quietly_when_the_log_is_closed_in_the_middle_of_what_there_is(path: Path) -> None:
    with logcore.open_log(path) as log:
        for _ in range(3):
            log.append(ROWS)
        follower = log.follow(0)
        next(follower)
    assert len(list(follower)) < 3 * len(ROWS)
