"""A log that another process writes, looked at by many threads of this one.

ReadOnlyLog notes how far it has looked; two that look at once would both count the same batches. So they take turns.
What they find is a view, and reading that needs no lock.
"""

import threading
from typing import Any

from logcore.log.readonly import ReadOnlyLog
from logcore.log.view import Isolation, LogView


class SharedReadOnlyLog(ReadOnlyLog):
    """A ReadOnlyLog for any number of threads."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._turn = threading.RLock()
        super().__init__(*args, **named)

    def refresh(self) -> bool:
        """See ReadOnlyLog."""
        with self._turn:
            return super().refresh()

    def bounded(self, isolation: Isolation) -> tuple[LogView, int]:
        """See ReadOnlyLog."""
        with self._turn:
            return super().bounded(isolation)

    @property
    def last_stable_offset(self) -> int:
        """See ReadOnlyLog."""
        with self._turn:
            return super().last_stable_offset

    def check_cut(self, generation: int, end_offset: int) -> None:
        """See ReadOnlyLog."""
        with self._turn:
            super().check_cut(generation, end_offset)

    def check_epoch(self, last_epoch: int, epoch: int, offset: int) -> None:
        """See ReadOnlyLog."""
        with self._turn:
            super().check_epoch(last_epoch, epoch, offset)

    def close(self) -> None:
        """See ReadOnlyLog."""
        with self._turn:
            super().close()
