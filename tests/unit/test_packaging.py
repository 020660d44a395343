"""What is packaged: versions, stubs and bounds agree with the sources; sdist and wheel install and pass the tests."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import logcore

ROOT = Path(__file__).parents[2]
INSTALLED = Path(logcore.__file__).parent
COMPILED = sorted(path.stem for path in (ROOT / "src/logcore").glob("*.pyx"))


def _requirements() -> list[Requirement]:
    return [Requirement(text) for text in metadata.requires("logcore") or ()]


def test_the_version_is_the_same_in_the_module_the_metadata_and_the_project_file():
    written = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert written is not None
    assert logcore.__version__ == metadata.version("logcore") == written[1]


def test_the_package_says_that_it_is_typed():
    assert (INSTALLED / "py.typed").is_file()


@pytest.mark.parametrize("name", COMPILED)
def test_each_compiled_module_has_a_stub_in_the_sources_and_in_the_package(name):
    assert (ROOT / f"src/logcore/{name}.pyi").read_bytes() == (INSTALLED / f"{name}.pyi").read_bytes()


def test_each_module_of_both_roots_is_in_the_package():
    for root in (ROOT / "src/logcore", ROOT / "python/logcore"):
        for path in root.rglob("*.py"):
            assert (INSTALLED / path.relative_to(root)).read_bytes() == path.read_bytes()


def test_each_module_of_the_spark_source_is_installed_beside_the_package():
    root = ROOT / "spark/pyspark_logcore"
    for path in (*root.rglob("*.py"), root / "py.typed"):
        installed = INSTALLED.parent / "pyspark_logcore" / path.relative_to(root)
        assert installed.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("inside", ["-c", "-Ic"])
def test_spark_finds_its_source_in_a_directory_on_the_path(inside):
    # As pyspark/sql/worker/lookup_data_sources.py looks for it: no import hook tells what it could find.
    code = "import pkgutil; print(*(one.name for one in pkgutil.iter_modules() if one.name.startswith('pyspark_')))"
    assert _run(sys.executable, inside, code).split() == ["pyspark_logcore"]


def test_each_stub_describes_a_compiled_module():
    assert sorted(path.stem for path in (ROOT / "src/logcore").glob("*.pyi")) == COMPILED


def test_no_generated_file_lies_among_the_sources():
    assert [path for path in (ROOT / "src").rglob("*") if path.suffix in {".c", ".cpp", ".so", ".html"}] == []


def test_the_lowest_versions_that_are_tested_are_the_lowest_that_are_allowed():
    pinned = {}
    for line in (ROOT / "tests/lowest-requirements.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker and requirement.marker.evaluate({"python_version": "3.10"}):
                pinned[requirement.name] = str(requirement.specifier).removeprefix("==")
    assert {requirement.name for requirement in _requirements() if requirement.marker is None} <= pinned.keys()
    for requirement in _requirements():
        if requirement.name in pinned:
            assert str(requirement.specifier).removeprefix(">=") == pinned[requirement.name], requirement


def test_each_requirement_has_a_lower_bound_and_no_upper_one():
    for requirement in _requirements():
        assert [clause.operator for clause in requirement.specifier] == [">="], requirement


def test_each_extra_is_in_the_readme():
    extras = set(metadata.metadata("logcore").get_all("Provides-Extra"))
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(listed) == extras


@pytest.mark.full
def test_the_wheel_made_from_the_sdist_installs_and_passes_the_tests(tmp_path):
    dist = tmp_path / "dist"
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    [sdist] = dist.glob("*.tar.gz")
    [wheel] = dist.glob("*.whl")

    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "Makefile", "setup.py", "tests/conftest.py", "src/logcore/__init__.pxd"} <= packed
    for name in COMPILED:
        assert {f"src/logcore/{name}.pyx", f"src/logcore/{name}.pyi"} <= packed
    assert [name for name in packed if re.match(r"build/.*\.(c|o|html)$|.*\.(so|pyc)$", name)] == []

    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    assert {"logcore/py.typed", "pyspark_logcore/py.typed", *(f"logcore/{name}.pyi" for name in COMPILED)} <= shipped
    for root in (ROOT / "src", ROOT / "python", ROOT / "spark"):
        assert {str(path.relative_to(root)) for path in root.rglob("*.py")} <= shipped
    assert [name for name in shipped if name.endswith((".pyx", ".pxd"))] == []
    assert shipped.isdisjoint(f"logcore/{name}.c" for name in COMPILED)

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    _run(python, "-m", "pip", "--quiet", "install", f"{wheel}[spark,test]")
    # The unpacked sdist has no importable logcore at its root: what the tests import is the wheel.
    _run("tar", "-xzf", sdist, "-C", tmp_path)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOGCORE_")}
    where = _run(python, "-c", "import logcore; print(logcore.__file__)", cwd=unpacked, env=environment)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    # What builds a wheel again needs a compiled tree.
    tests = ("tests/unit", "tests/spark", "--ignore", "tests/spark/test_installing.py")
    _run(python, "-m", "pytest", "-q", *tests, cwd=unpacked, env=environment)


def _run(*command: str | Path, **options: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
