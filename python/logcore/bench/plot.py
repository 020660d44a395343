"""Results as a picture: one panel a batch and value size, a group of bars a codec, a bar an operation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from logcore import StorageError, UsageError
from logcore.bench import operations, peers
from logcore.bench.table import Result
from logcore.bench.workload import size_text

SUFFIXES = (".png", ".svg", ".pdf")

# operation, by: colour. One hue a contender, the darker shade encodes.
BARS = {
    (operations.ENCODE_COLUMNS, operations.LOGCORE): "#0b5394",
    (operations.DECODE_COLUMNS, operations.LOGCORE): "#6fa8dc",
    (operations.ENCODE_ROWS, operations.LOGCORE): "#38761d",
    (operations.DECODE_ROWS, operations.LOGCORE): "#93c47d",
    (operations.ENCODE_ROWS, peers.AIOKAFKA): "#b45f06",
    (operations.DECODE_ROWS, peers.AIOKAFKA): "#f6b26b",
}


def require_matplotlib() -> Any:
    """matplotlib's Figure class; raises UsageError if it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'logcore[plot]'") from None
    return Figure


def check_path(path: str) -> None:
    """Raise UsageError for an ending that is none of SUFFIXES, StorageError for a file that cannot be written.

    A file that exists is left as it is, and one that does not is not made.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise UsageError("--plot", where=path, got=f"the ending {suffix!r}", wanted="a .png, .svg or .pdf")
    try:
        is_new = not Path(path).exists()
        with open(path, "ab"):
            pass
        if is_new:
            Path(path).unlink()
    except OSError as error:
        raise StorageError("write", errno=error.errno or 0, path=path) from error


def plot(results: Sequence[Result], path: str, title: str) -> None:
    """Draw `results` into the file `path`, which check_path() has passed."""
    figure_class = require_matplotlib()
    panels = list(dict.fromkeys((result["batch_bytes"], result["value_bytes"]) for result in results))
    codecs = list(dict.fromkeys((result["codec"], result["level"]) for result in results))
    drawn = [key for key in BARS if any((result["operation"], result["by"]) == key for result in results)]
    rates = {
        (
            result["batch_bytes"],
            result["value_bytes"],
            result["codec"],
            result["level"],
            result["operation"],
            result["by"],
        ): result["records_per_second"] / 1e6
        for result in results
    }
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = figure_class(figsize=(max(7.0, 1.1 * columns * len(codecs) + 3), 0.8 + 3.2 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    width = 0.85 / len(drawn)
    for axes, panel in zip(grid.flat, panels, strict=False):
        for place, key in enumerate(drawn):
            heights = [rates.get((*panel, *codec, *key), 0.0) for codec in codecs]
            at = [group + (place - (len(drawn) - 1) / 2) * width for group in range(len(codecs))]
            axes.bar(at, heights, width, color=BARS[key], label=f"{key[1]}: {key[0]}")
        batch, value = panel
        axes.set_title(f"{size_text(batch)} batches, {'file' if value is None else f'{size_text(value)} values'}")
        axes.set_xticks(range(len(codecs)), [codec if level is None else f"{codec} {level}" for codec, level in codecs])
        axes.set_ylabel("million records a second")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(drawn)), frameon=False)
    figure.suptitle(title)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise StorageError("write", errno=error.errno or 0, path=path) from error
