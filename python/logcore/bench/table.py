"""Results as text, and the progress bar.

Results are the plain dictionaries of `--json`: the table shows nothing that the document does not have.
"""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from logcore.bench.workload import size_text

Result = dict[str, Any]

_HEADINGS = ("codec", "level", "batch", "value", "operation", "by", "records/s", "MB/s", "B/record", "ratio", "CPU")
_LEFT = {"codec", "operation", "by"}
_RATIO_HEADINGS = ("codec", "batch", "value", "logcore's", "beside", "times as fast", "goal")
_RATIO_LEFT = {"codec", "logcore's", "beside"}


def results_text(results: Sequence[Result]) -> str:
    """The table of measurements, an empty line between cases."""
    rows: list[Sequence[str]] = []
    previous = None
    for result in results:
        case = _case_cells(result)
        if previous not in (None, case):
            rows.append([""] * len(_HEADINGS))
        previous = case
        rows.append(
            [
                *case,
                result["operation"],
                result["by"],
                rate_text(result["records_per_second"]),
                f"{result['megabytes_per_second']:,.0f}",
                f"{result['bytes_per_record']:.1f}",
                f"{result['compression_ratio']:.2f}",
                f"{result['cpu']:.2f}",
            ]
        )
    return aligned(_HEADINGS, rows, _LEFT)


def ratios_text(bars: Sequence[Result]) -> str:
    """The table of ratios to peers and limits, each with what the project aims at."""
    rows = [
        [
            bar["codec"],
            size_text(bar["batch_bytes"]),
            _value_text(bar["value_bytes"]),
            bar["operation"],
            f"{bar['against_by']}: {bar['against']}",
            f"{bar['ratio']:.2f}",
            f"{bar['at_least']:g}",
        ]
        for bar in bars
    ]
    return aligned(_RATIO_HEADINGS, rows, _RATIO_LEFT)


def rate_text(rate: float) -> str:
    """A rate with its magnitude: 12345678 is "12.35 M"."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= unit:
            return f"{rate / unit:.4g} {name}"
    return f"{rate:.4g}  "


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], left: set[str]) -> str:
    """Columns under headings, numbers to the right, those of `left` to the left."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.ljust(width) if heading in left else cell.rjust(width)
            for heading, cell, width in zip(headings, cells, widths, strict=True)
        )
        return "  ".join(placed).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *map(line, rows)])


def _case_cells(result: Result) -> list[str]:
    level = "" if result["level"] is None else str(result["level"])
    return [result["codec"], level, size_text(result["batch_bytes"]), _value_text(result["value_bytes"])]


def _value_text(value_bytes: int | None) -> str:
    return "file" if value_bytes is None else size_text(value_bytes)


class Progress:
    """A bar on a terminal's last line; nothing at all where the stream is no terminal."""

    WIDTH = 30

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._last = ""

    def tell(self, share: float, text: str) -> None:
        """Show that `share` (0 to 1) is done, and what is going on."""
        if not self._is_shown:
            return
        filled = round(share * self.WIDTH)
        line = f"[{'#' * filled}{'.' * (self.WIDTH - filled)}] {share:4.0%}  {text}"
        if line != self._last:
            self._stream.write(f"\r{line.ljust(len(self._last))}")
            self._stream.flush()
            self._last = line

    def clear(self) -> None:
        """Take the bar away."""
        if self._last:
            self._stream.write(f"\r{' ' * len(self._last)}\r")
            self._stream.flush()
            self._last = ""
