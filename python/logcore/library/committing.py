"""Group commit: however many threads ask for a flush, one sync is under way, and one more waits for all who came
meanwhile.

The lock of the log is not held while the disk works, so others append in the meantime; what they append is made durable
by the next sync, together with what everybody else has appended until then.
"""

import threading
from collections.abc import Callable

from logcore.errors import StorageError
from logcore.log.partition import PartitionLog


class GroupCommit:
    """The flushes of one log. `lock` is the one that whoever changes the log holds."""

    def __init__(self, log: PartitionLog, lock: threading.RLock, clock: Callable[[], int]) -> None:
        self._log = log
        self._lock = lock
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._is_running = False
        self.sync_count = 0  # how many flushes went to the disk

    def flush(self) -> int:
        """Return when all that was appended before the call is durable: the recovery point."""
        wanted = self._log.log_end_offset
        while True:
            with self._changed:
                if self._log.failure is None and self._log.recovery_point >= wanted and not self._is_dirty():
                    return self._log.recovery_point
                if self._is_running:
                    self._changed.wait()
                    continue
                self._is_running = True
            try:
                return self._run()
            finally:
                with self._changed:
                    self._is_running = False
                    self._changed.notify_all()

    def _is_dirty(self) -> bool:
        log = self._log
        return log.is_directory_dirty or log.is_parent_dirty or log.segments.active.is_log_dirty

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
