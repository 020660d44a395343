"""A thread that does what time drives, once a second."""

import threading
from collections.abc import Callable

from logcore.errors import LogcoreError

INTERVAL_SECONDS = 1.0


class Background:
    """Calls `work` once a second until stop(). A failure of a log is that log's own, and is raised by its next call."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._stopped = threading.Event()
        self.last_error: LogcoreError | None = None
        self._thread = threading.Thread(target=self._run, name="logcore-background", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            try:
                self._work()
            except LogcoreError as error:
                self.last_error = error

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
