"""docs/spark.md: its examples run in the session of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark_logcore.options import _NAMES
from tests.unit.test_examples import run_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.usefixtures("spark")
def test_the_examples_of_the_guide_run(tmp_path: Path, spark: SparkSession) -> None:
    # Spark's planning and tasks run in other processes, which take relative paths to be where the JVM was started.
    text = (
        DOCUMENT.read_text("utf-8")
        .replace('"data"', repr(str(tmp_path / "data")))
        .replace("'data'", repr(str(tmp_path / "data")))
    )
    assert run_document(text, str(DOCUMENT)) == 4


def test_the_guide_has_each_option() -> None:
    text = DOCUMENT.read_text("utf-8").lower()
    assert {name for name in _NAMES if f"`{name}`" not in text} == {"paths"}  # load([...])
