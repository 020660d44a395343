"""A progress bar on stderr, for work whose output goes somewhere else."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

_SECONDS_BEFORE_FIRST = 1.0  # what is over sooner needs no bar
_SECONDS_BETWEEN = 0.1
_WIDTH = 30


class Progress:
    """How far one has come in `total` bytes, or records (None: not known). Draws nothing where nobody would see it.

    It is shown if stderr is a terminal.

    beside_output: the output comes as the work goes on. On the same terminal it is the progress itself, and nothing
        else is shown
    """

    def __init__(
        self,
        total: int | None,
        *,
        out: TextIO | None = None,
        is_shown: bool | None = None,
        unit: str = "bytes",
        beside_output: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self._unit = unit
        self._out = sys.stderr if out is None else out
        if is_shown is None:
            is_shown = sys.stderr.isatty() and not (beside_output and sys.stdout.isatty())
        self._is_shown = is_shown
        self._clock = clock
        self._next = clock() + _SECONDS_BEFORE_FIRST
        self._is_drawn = False

    def update(self, done: int) -> None:
        """Draw that `done` bytes are behind us, if it is time to."""
        if not self._is_shown or self._clock() < self._next:
            return
        self._next = self._clock() + _SECONDS_BETWEEN
        text = self._amount(done)
        if self.total:
            part = min(done / self.total, 1.0)
            bar = "#" * round(part * _WIDTH)
            text = f"{part:4.0%} [{bar:.<{_WIDTH}}] {text} of {self._amount(self.total)}"
        self._out.write(f"\r\x1b[K{text}")
        self._out.flush()
        self._is_drawn = True

    def _amount(self, count: int) -> str:
        return f"{count / 1e6:.1f} MB" if self._unit == "bytes" else f"{count} {self._unit}"

    def clear(self) -> None:
        """Take the bar away, before another line is written and at the end."""
        if self._is_drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._is_drawn = False
