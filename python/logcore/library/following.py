"""Waiting for more records: within the process one is woken by the append, from another process one looks often.

A follower holds no lock. It reads what there is, from a view, and then waits until the log's end has moved, the log was
closed, or its time is over.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

from logcore._reader import read_records
from logcore._record import Record
from logcore.errors import LogTruncatedError, UsageError
from logcore.log.readonly import ReadOnlyLog
from logcore.log.view import Isolation

from .reading import AnyLog

POLL_SECONDS_MIN = 0.001  # between two looks at what another process writes, at first,
POLL_SECONDS_MAX = 0.020  # and when there is nothing for a while


class Growth:
    """Tells followers that the log has grown or was closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its own thread gets in again: a signal handler that appends
        self._listeners: list[Callable[[], None]] = []
        self.is_closed = False

    def tell(self, *, is_closed: bool = False) -> None:
        """Wake everybody."""
        with self._changed:
            self.is_closed |= is_closed
            self._changed.notify_all()
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def wait(self, has_grown: Callable[[], bool], seconds: float | None) -> bool:
        """Sleep until `has_grown`, the log is closed, or the time is over. Says whether it has grown."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or has_grown(), seconds)
        return has_grown()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, whenever something changes; returns what ends that."""
        with self._changed:
            self._listeners.append(listener)

        def stop() -> None:
            with self._changed:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop


class Follower:
    """Where a follower is, and what there is for it."""

    def __init__(self, log: AnyLog, offset: int, isolation: Isolation) -> None:
        self._log = log
        self._isolation = isolation
        self.next_offset = offset
        self._generation = log.view.generation
        log.view.check_offset(offset)

    def has_more(self) -> bool:
        """Whether there is something to read, or to fail with. Looks at the disk, if another process writes."""
        log = self._log
        if isinstance(log, ReadOnlyLog):
            log.refresh()
        return log.generation != self._generation or log.bounded(self._isolation)[1] > self.next_offset

    def records(self) -> Iterator[Record]:
        """What there is now. Each record moves `next_offset`."""
        while True:
            try:
                yield from self._records_of_view()
                return
            except LogTruncatedError as error:
                # The view has more than is left. That is no matter as long as nothing of it was read.
                if error.offset < self.next_offset or self._log.generation == self._generation:
                    raise

    def _records_of_view(self) -> Iterator[Record]:
        log = self._log
        view, end_offset = log.bounded(self._isolation)
        if log.generation != self._generation:
            log.check_cut(self._generation, self.next_offset)
            self._generation = log.generation
        if isinstance(log, ReadOnlyLog):
            log.check_next(self.next_offset)
        elif self.next_offset < view.log_start_offset:
            view.check_offset(self.next_offset)
        is_committed = self._isolation == "read_committed"
        reader = read_records(log, view, self.next_offset, end_offset, is_committed=is_committed)
        for record in reader:
            self.next_offset = record.offset + 1
            yield record
        # What was left out lies behind us too: control records, aborted ones, gaps.
        self.next_offset = max(self.next_offset, end_offset)


def follow(log: AnyLog, growth: Growth, offset: int, isolation: Isolation, timeout: float | None) -> Iterator[Record]:
    """Records from `offset` on, waiting for more. Ends `timeout` seconds after the last one, or when the log is
    closed.
    """
    follower = Follower(log, offset, isolation)

    def run() -> Iterator[Record]:
        try:
            while not growth.is_closed:
                yield from follower.records()
                if not _wait(log, growth, follower, timeout):
                    return
        except UsageError:
            if not growth.is_closed:  # otherwise the files were closed while we read
                raise

    return run()


def _wait(log: AnyLog, growth: Growth, follower: Follower, timeout: float | None) -> bool:
    if not isinstance(log, ReadOnlyLog):
        return growth.wait(follower.has_more, timeout) and not growth.is_closed
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = POLL_SECONDS_MIN
    while not growth.is_closed:
        if follower.has_more():
            return True
        left = pause if deadline is None else min(pause, deadline - time.monotonic())
        if left <= 0:
            return False
        growth.wait(lambda: False, left)
        pause = min(2 * pause, POLL_SECONDS_MAX)
    return False


def follow_async(
    log: AnyLog, growth: Growth, offset: int, isolation: Isolation, timeout: float | None
) -> AsyncIterator[Record]:
    """The same for asyncio: waiting does not hold up the event loop."""
    import asyncio  # which takes a while to import, and few need it

    follower = Follower(log, offset, isolation)

    async def run() -> AsyncIterator[Record]:
        loop = asyncio.get_running_loop()
        grown = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(grown.set)
            except RuntimeError:
                stop()  # The loop was closed with us in it: whoever appends has nothing to do with that.

        stop = growth.listen(wake)
        pause = POLL_SECONDS_MIN
        try:
            while not growth.is_closed:
                deadline = None if timeout is None else loop.time() + timeout
                for record in follower.records():
                    yield record
                    pause = POLL_SECONDS_MIN
                    deadline = None if timeout is None else loop.time() + timeout
                while not growth.is_closed:
                    grown.clear()
                    if follower.has_more():
                        break
                    left = None if deadline is None else deadline - loop.time()
                    if isinstance(log, ReadOnlyLog):
                        left = pause if left is None else min(pause, left)
                        pause = min(2 * pause, POLL_SECONDS_MAX)
                    if left is not None and left <= 0:
                        return
                    try:
                        await asyncio.wait_for(grown.wait(), left)
                    except (TimeoutError, asyncio.TimeoutError):
                        continue
        except UsageError:
            if not growth.is_closed:
                raise
        finally:
            stop()

    return run()
