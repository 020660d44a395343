"""Draws the README's chart, docs/images/codec.png, from what `logcore bench codec --peers --json` printed.

    python tools/make_chart.py                   measures, then draws
    python tools/make_chart.py codec.json        draws an earlier run

One case, uncompressed: 100-byte values with 10-byte keys in 16-KiB batches. All bars start at zero, on one scale.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
CHART = ROOT / "docs" / "images" / "codec.png"
CASE = {"codec": "none", "batch_bytes": 16 << 10, "value_bytes": 100}
FLAGS = "bench codec --codec none --record-size 100 --batch-size 16K --seconds 1 --peers --json"
# operation, by, label, colour; from top to bottom
GROUPS = {
    "encode": (
        ("encode rows", "kafka-python", "kafka-python, rows", "#b7b7b7"),
        ("encode rows", "aiokafka", "aiokafka, rows", "#8d8d8d"),
        ("encode rows", "logcore", "logcore, rows", "#6fa8dc"),
        ("encode columns", "logcore", "logcore, columns", "#0b5394"),
        ("encode columns", "C loop", "the loop in plain C, no checks", "#e6b34d"),
    ),
    "decode": (
        ("decode rows", "kafka-python", "kafka-python, rows", "#b7b7b7"),
        ("decode rows", "aiokafka", "aiokafka, rows", "#8d8d8d"),
        ("decode rows", "logcore", "logcore, rows", "#6fa8dc"),
        ("decode columns", "logcore", "logcore, columns", "#0b5394"),
        ("decode columns", "C loop", "the loop in plain C, no checks", "#e6b34d"),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure if no document is given, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("document", nargs="?", type=Path, help="what --json printed; without it, measure now")
    parser.add_argument("--out", type=Path, default=CHART, help="a .png or .svg (docs/images/codec.png)")
    args = parser.parse_args(arguments)
    if args.document is None:
        command = [sys.executable, "-m", "logcore", *FLAGS.split()]
        document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    else:
        document = json.loads(args.document.read_bytes())
    draw(document, args.out)
    print(args.out)
    return 0


def draw(document: dict[str, Any], path: Path) -> None:
    """The chart of `document`; what was not measured is left out."""
    rates = {
        (result["operation"], result["by"]): result["records_per_second"] / 1e6
        for result in document["results"]
        if all(result[name] == value for name, value in CASE.items())
    }
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, (title, bars) in zip(panels, GROUPS.items(), strict=True):
        shown = [bar for bar in bars if bar[:2] in rates]
        lengths = [rates[bar[:2]] for bar in shown]
        drawn = axes.barh([bar[2] for bar in shown], lengths, color=[bar[3] for bar in shown])
        axes.bar_label(drawn, [f"{length:.2g}" if length < 10 else f"{length:.0f}" for length in lengths], padding=3)
        axes.invert_yaxis()
        axes.set_title(title, loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.08)
    panels[-1].set_xlabel("million records a second on one core")
    figure.suptitle(
        "Kafka record batches: 100-byte values, 10-byte keys, 16 KiB a batch, CRC included", fontsize="medium"
    )
    machine = document["machine"]
    versions = ", ".join(f"{name} {machine['packages'][name]}" for name in ("aiokafka", "kafka-python"))
    figure.supxlabel(
        f"logcore {FLAGS}\n{machine['processor']}, {machine['python']}, {versions}",
        fontsize="x-small",
        color="#555555",
        family="monospace",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
