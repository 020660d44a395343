"""Group commit: however many threads ask for a flush, one sync is under way, and one more waits for all who came
meanwhile.

The lock of the log is not held while the disk works, so others append in the meantime; what they append is made durable
by the next sync, together with what everybody else has appended until then.
"""

import threading
from collections.abc import Callable

from logcore.errors import StorageError, UsageError
from logcore.log.partition import PartitionLog


class GroupCommit:
    """The flushes of one log. `lock` is the one that whoever changes the log holds."""

    def __init__(self, log: PartitionLog, lock: threading.RLock, clock: Callable[[], int]) -> None:
        self._log = log
        self._lock = lock
        self._clock = clock
        self._changed = threading.Condition()  # its own thread gets in again, and is told so
        self._runner: int | None = None  # the thread that is at it
        self.sync_count = 0  # how many flushes went to the disk

    def flush(self) -> int:
        """Return when all that was appended before the call is durable: the recovery point."""
        wanted = self._log.log_end_offset
        me = threading.get_ident()
        while True:
            with self._changed:
                if self._log.failure is None and self._log.recovery_point >= wanted and not self._log.is_dirty:
                    return self._log.recovery_point
                if self._runner == me:
                    raise UsageError(
                        "flush", where=self._log.directory, got="a call out of the midst of another one",
                        wanted="one after the other",
                    )  # fmt: skip
                if self._runner is not None:
                    self._changed.wait()
                    continue
            try:
                if self._take(me):
                    return self._run()
            finally:
                self._give_back(me)

    def _take(self, me: int) -> bool:
        with self._changed:
            if self._runner is None:
                self._runner = me
            return self._runner == me

    def _give_back(self, me: int) -> None:
        with self._changed:
            if self._runner == me:
                self._runner = None
                self._changed.notify_all()

    def _run(self) -> int:
        with self._lock:
            started = self._log.begin_flush()
        self.sync_count += 1
        try:
            started.run()
        except StorageError as error:
            with self._lock:
                raise self._log.fail(error) from None
        with self._lock:
            return self._log.end_flush(started, self._clock())
