"""Spark finds the source without being told, from a wheel and from an editable install: a fresh process looks."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

ROOT = Path(__file__).parents[2]

# What pyspark/sql/worker/lookup_data_sources.py does.
LOOK = """
from importlib import import_module
from pkgutil import iter_modules
from pyspark.sql.datasource import DataSource
for one in iter_modules():
    if one.name.startswith("pyspark_"):
        module = import_module(one.name)
        if hasattr(module, "DefaultSource") and issubclass(module.DefaultSource, DataSource):
            print(module.DefaultSource.name(), module.__file__)
"""


def found(*command: str) -> list[str]:
    # Outside of the checkout, whose directories are no help to anybody who installs.
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_spark_finds_the_source_of_the_install_that_is_tested() -> None:
    name, path = found("-W", "ignore", "-c", LOOK)
    assert name == "logcore"
    assert Path(path).read_bytes() == (ROOT / "spark" / "pyspark_logcore" / "__init__.py").read_bytes()


def test_spark_finds_the_source_of_a_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    # Without site, so that the .pth file of the editable install is not looked at.
    paths = [str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    name, path = found("-S", "-W", "ignore", "-c", f"import sys\nsys.path[:0] = {paths!r}\n{LOOK}")
    assert (name, path) == ("logcore", str(installed / "pyspark_logcore" / "__init__.py"))
