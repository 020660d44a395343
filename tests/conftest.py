"""What every test run shares: proof that the compiled modules are there, how many examples to try, and a leak check.

How much is tried, by environment variable:

    (none)             quick: seeded, so that two runs of one commit try the same examples
    LOGCORE_SHORT=1    fewer, for the slow builds in `make test`
    LOGCORE_FULL=1     the full counts with fresh examples, and the tests marked `full` (make test-all)

A failing example is printed with the line that replays it (`@reproduce_failure`).
"""

import gc
import importlib
import importlib.machinery
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

FULL = os.environ.get("LOGCORE_FULL") == "1"
SHORT = os.environ.get("LOGCORE_SHORT") == "1"
KAFKA_JARS = os.environ.get("LOGCORE_KAFKA_JARS")

# No deadline and no database: what passes must not depend on the machine's speed or on earlier runs.
_common = {"deadline": None, "database": None, "print_blob": True}
hypothesis.settings.register_profile("short", derandomize=True, max_examples=25, **_common)
hypothesis.settings.register_profile("quick", derandomize=True, max_examples=150, **_common)
hypothesis.settings.register_profile("full", max_examples=5000, **_common)
PROFILE = "full" if FULL else "short" if SHORT else "quick"
hypothesis.settings.load_profile(PROFILE)


def compiled_modules() -> list[str]:
    """The compiled modules of the installed package, told by their stubs."""
    import logcore

    return sorted(f"logcore.{stub.stem}" for stub in Path(logcore.__file__).parent.glob("_*.pyi"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what the scenarios print into their files")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run on anything but the compiled modules: a green run without them would mean nothing."""
    try:
        names = compiled_modules()
        for name in names:
            loaded = importlib.import_module(name).__file__ or ""
            if not loaded.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
                pytest.exit(f"{name} was loaded from {loaded}, which is not compiled", returncode=3)
    except ImportError as error:
        pytest.exit(f"logcore's compiled modules did not load: {error} (make test builds them)", returncode=3)
    if not names:
        pytest.exit("the installed logcore has no compiled modules (make test builds them)", returncode=3)


def pytest_report_header(config: pytest.Config) -> str:
    import logcore

    return f"logcore: {Path(logcore.__file__).parent}, {PROFILE} counts"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("full") and not FULL:
            item.add_marker(pytest.mark.skip(reason="runs with LOGCORE_FULL=1 (make test-all)"))
        if item.get_closest_marker("peers") and not KAFKA_JARS:
            item.add_marker(pytest.mark.skip(reason="needs Kafka's jars in LOGCORE_KAFKA_JARS (make test-peers)"))


def _open_files() -> dict[int, str]:
    """Open descriptors of files, directories and sockets. Pipes and the like belong to libraries' thread pools."""
    found = {}
    for name in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # The descriptor that listed the directory.
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            found[int(name)] = f"descriptor {name}, inode {status.st_ino}"
    return found


@pytest.fixture(autouse=True)
def _no_leaked_descriptors() -> Iterator[None]:
    before = _open_files()
    yield
    leaked = _open_files().items() - before.items()
    if leaked:
        gc.collect()  # What only a reference cycle keeps open is late, not leaked.
        leaked = _open_files().items() - before.items()
    assert not leaked, f"the test left open: {sorted(text for _, text in leaked)}"
