"""Arrows point down only: reads every import and cimport under src/, python/ and spark/, compiles and runs nothing."""

import ast
import graphlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From top to bottom; a module may import its own layer and those below. CORE are the compiled modules. FACE is
# `logcore` itself, the public names: what lies below it must import from where a thing is defined.
CORE = "logcore._*"
FACE = "logcore"
LAYERS = (
    "pyspark_logcore",
    "logcore.cli",
    "logcore.bench",
    FACE,
    "logcore.library",
    "logcore.client",
    "logcore.broker",
    "logcore.coordinator",
    "logcore.metadata",
    "logcore.tiered",
    "logcore.raft",
    "logcore.replication",
    "logcore.log",
    "logcore.protocol",
    CORE,
    "logcore.errors",
)

# What the Spark source may use: the public names, the errors, and the engine's log. The library around it has a face.
USED_BY_SPARK = ("pyspark_logcore", FACE, "logcore.log", "logcore.errors")

# The engine is handed its time, randomness, peers and threads. `datetime` reads the clock too; `importlib` would hide
# an arrow from this test.
FORBIDDEN_IN_ENGINE = {
    *("time", "datetime", "random", "secrets", "uuid"),
    *("threading", "_thread", "multiprocessing", "concurrent", "subprocess", "asyncio", "signal", "sched"),
    *("socket", "socketserver", "ssl", "select", "selectors", "http", "urllib"),
    *("importlib", "os.urandom", "os.getrandom", "os.times", "os.fork", "numpy.random"),
    *("libc.time", "posix.time", "posix.select", "posix.signal", "cpython.pythread", "cython.parallel", "openmp"),
    *("time.h", "sys/time.h", "sys/random.h", "sys/socket.h", "sys/epoll.h", "sys/select.h", "poll.h"),
    *("pthread.h", "threads.h", "signal.h", "netinet/in.h"),
}
# (module, name that it may import all the same): why. A name covers what lies below it.
EXCEPTIONS = {
    ("logcore._reactor", "socket"): "the compiled edge: the one module of the engine that has sockets",
    ("logcore._reactor", "sys/socket.h"): "likewise",
    ("logcore._reactor", "sys/epoll.h"): "likewise",
}


@dataclass(frozen=True)
class Source:
    """One file: the module it belongs to, and where it lies."""

    module: str
    path: str
    text: str
    is_package: bool
    in_engine: bool


def sources() -> list[Source]:
    """Every source file of ours, under the module name it is imported by."""
    found = []
    for root, in_engine in (("src", True), ("python", False), ("spark", False)):
        for path in sorted((ROOT / root).rglob("*")):
            if path.suffix not in {".py", ".pyx", ".pxd", ".pyi", ".pxi", ".h"}:
                continue
            relative = path.relative_to(ROOT / root).with_suffix("")
            is_package = relative.name == "__init__"
            module = ".".join(relative.parent.parts if is_package else relative.parts)
            if path.suffix == ".h":  # A header has no module name of its own; it counts as a compiled module.
                module = f"logcore._{path.name}"
            found.append(Source(module, str(path.relative_to(ROOT)), path.read_text("utf-8"), is_package, in_engine))
    return found


def imported_names(source: Source) -> Iterator[str]:
    """Dotted names that `source` imports: modules, `module.name` for `from module import name`, C headers.

    A module imported whole also gives `module.attribute` for each attribute that is used of it.
    """
    if source.path.endswith((".py", ".pyi")):
        statements = list(_python_imports(source.text))
        code = source.text
    else:
        code = _without_comments_and_strings(source.text)
        statements = list(_cython_imports(code))
        yield from re.findall(r'^\s*cdef\s+extern\s+from\s+[<"]([^>"]+)[>"]', source.text, re.MULTILINE)
        yield from re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', source.text, re.MULTILINE)
    package = source.module if source.is_package else source.module.rpartition(".")[0]
    for level, module, name, alias in statements:
        if level:
            base = package.split(".")[: len(package.split(".")) - level + 1]
            module = ".".join([*base, module] if module else base)
        if name is not None:
            yield f"{module}.{name}"
            continue
        yield module
        called = re.escape(alias or module)
        for attribute in re.findall(rf"(?<![\w.]){called}\.([A-Za-z_]\w*)", code):
            yield f"{module}.{attribute}"


_Statement = tuple[int, str, str | None, str | None]  # level of a relative import, module, name, alias


def _python_imports(text: str) -> Iterator[_Statement]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, None, alias.asname
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, node.module or "", alias.name, alias.asname


def _cython_imports(code: str) -> Iterator[_Statement]:
    joined = re.sub(r"\([^()]*\)", lambda match: match.group().replace("\n", " "), code).replace("\\\n", " ")
    for line in re.split(r"[\n;]", joined):
        if match := re.match(r"\s*from\s+(\.*)\s*([\w.]*)\s+c?import\s+(.+)", line):
            dots, module, names = match.groups()
            for name, alias in _names(names.strip(" ()")):
                yield len(dots), module, name, alias
        elif match := re.match(r"\s*c?import\s+(.+)", line):
            for module, alias in _names(match.group(1)):
                yield 0, module, None, alias


def _names(text: str) -> Iterator[tuple[str, str | None]]:
    for part in text.split(","):
        if words := part.split():
            yield words[0], words[2] if len(words) == 3 else None


def _without_comments_and_strings(text: str) -> str:
    pattern = r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
    return re.sub(pattern, lambda match: "" if match.group().startswith("#") else '""', text)


def layer_of(module: str) -> str | None:
    """The layer that `module` lies in; None if it has none."""
    parts = module.split(".")
    if parts[0] not in {"logcore", "pyspark_logcore"}:
        return None
    if module == "logcore.__main__":  # the command, where `python -m` looks for it
        return "logcore.cli"
    if parts[0] == "pyspark_logcore" or len(parts) == 1:
        return parts[0]
    name = CORE if parts[1].startswith("_") else ".".join(parts[:2])
    return name if name in LAYERS else None


def target_of(name: str, modules: set[str]) -> str:
    """The module that an imported dotted name belongs to: the longest of `modules` that it begins with."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def faults(tree: list[Source]) -> list[str]:
    """What breaks a rule, one line each."""
    modules = {source.module for source in tree}
    found = []
    for source in tree:
        layer = layer_of(source.module)
        if layer is None:
            found.append(f"{source.path}: {source.module} lies in no layer; add it to LAYERS")
            continue
        for name in imported_names(source):
            if name.split(".")[0] in {"logcore", "pyspark_logcore"}:
                target = target_of(name, modules)
                target_layer = layer_of(target)
                if target_layer is None:
                    found.append(f"{source.path}: imports {name}, which lies in no layer")
                elif layer == "pyspark_logcore" and target_layer not in USED_BY_SPARK:
                    found.append(f"{source.path}: imports {name}; of {target_layer} only {FACE} has public names")
                elif LAYERS.index(target_layer) < LAYERS.index(layer):
                    found.append(f"{source.path}: imports {name} of {target_layer}, above {layer}")
            elif source.in_engine and _is_forbidden(source.module, name):
                found.append(f"{source.path}: the engine imports {name}")
    return found


def _is_forbidden(module: str, name: str) -> bool:
    """Whether the engine's `module` may not import `name`.

    Where only `threading.local` is excepted, `import threading` is fine, and its other attributes are not.
    """
    excepted = [allowed for who, allowed in EXCEPTIONS if who == module]
    if any(_covers(allowed, name) or _covers(name, allowed) for allowed in excepted):
        return False
    return any(_covers(forbidden, name) for forbidden in FORBIDDEN_IN_ENGINE)


def _covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")


def test_arrows_point_down_and_the_engine_is_handed_its_time_randomness_and_peers():
    assert faults(sources()) == []


def test_the_tree_that_is_read_is_the_whole_tree():
    read = {source.module for source in sources()}
    assert {"logcore", "logcore.errors", "logcore.errors.tree", "logcore._buffer", "logcore._checksum"} <= read


def test_an_exception_for_one_name_of_a_module_is_not_one_for_the_others(monkeypatch):
    monkeypatch.setitem(EXCEPTIONS, ("logcore._record", "threading.local"), "for this test")
    text = "import threading\nkept = threading.local()\nlock = threading.Lock()"
    assert faults([*_sound_tree(), _source("src/logcore/_record.pyx", text)]) == [
        "src/logcore/_record.pyx: the engine imports threading.Lock"
    ]


def test_compiled_modules_do_not_import_each_other_in_a_circle():
    tree = [source for source in sources() if layer_of(source.module) == CORE]
    modules = {source.module for source in tree}
    graph: dict[str, set[str]] = {}
    for source in tree:
        targets = {target_of(name, modules) for name in imported_names(source)} & modules
        graph.setdefault(source.module, set()).update(targets - {source.module})
    graphlib.TopologicalSorter(graph).prepare()  # Raises CycleError, which names the circle.


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/logcore/_record.pyx", "from logcore.log.segment import Segment"),
        ("src/logcore/_record.pyx", "from logcore.log.segment cimport (\n    Segment,\n)"),
        ("src/logcore/_record.pxd", "cimport logcore.log.segment"),
        ("src/logcore/_record.pyx", "def late():\n    import os, logcore.log.segment as segment"),
        ("src/logcore/_record.pyx", "from logcore import Record"),
        ("src/logcore/_record.pyi", "from logcore.log.segment import Segment"),
        ("src/logcore/errors/tree.py", "from .. import log"),
        ("src/logcore/errors/tree.py", "from ..log.segment import Segment"),
        ("src/logcore/errors/tree.py", "from logcore._record import Record"),
        ("src/logcore/log/segment.py", "def late():\n    from logcore.cli import main"),
        ("src/logcore/_record.pyx", "import time"),
        ("src/logcore/_record.pyx", "x = 1; from time import monotonic"),
        ("src/logcore/_record.pyx", "import os\nseed = os.urandom(8)"),
        ("src/logcore/_record.pyx", "import numpy as np\nrng = np.random.default_rng()"),
        ("src/logcore/_record.pyx", "from libc.time cimport time"),
        ("src/logcore/_record.pyx", 'cdef extern from "sys/time.h" nogil:\n    pass'),
        ("src/logcore/checksum.h", "#include <pthread.h>"),
        ("src/logcore/log/segment.py", "from threading import Lock"),
        ("src/logcore/_reactor.pyx", "import socket, threading"),
        ("python/logcore/client/producer.py", "from logcore import cli"),
        ("python/logcore/elsewhere.py", ""),
        ("python/logcore/cli/spark.py", "import pyspark_logcore"),
        ("spark/pyspark_logcore/source.py", "from logcore.cli import main"),
        ("spark/pyspark_logcore/source.py", "from logcore._record import Record"),
    ],
)
def test_a_planted_fault_is_found(path, text):
    assert len(faults([*_sound_tree(), _source(path, text)])) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/logcore/_record.pyx", '"""import time"""  # import logcore.log\nfrom logcore.errors import tree'),
        ("src/logcore/_record.pyx", "from . cimport _bytes\nimport os\nsize = os.sysconf(1)"),
        ("src/logcore/_reactor.pyx", 'from socket import socketpair\ncdef extern from "sys/epoll.h":\n    pass'),
        ("src/logcore/log/segment.py", "from logcore import _record, errors"),
        ("python/logcore/cli/dump.py", "import time\nfrom logcore import Record"),
        (
            "spark/pyspark_logcore/source.py",
            "import pyspark, time\nfrom logcore import log\nfrom logcore.log import segment",
        ),
    ],
)
def test_what_is_allowed_is_not_a_fault(path, text):
    assert faults([*_sound_tree(), _source(path, text)]) == []


def _sound_tree() -> list[Source]:
    paths = ("src/logcore/errors/tree.py", "src/logcore/log/segment.py", "python/logcore/cli/main.py")
    packages = ("python/logcore", "src/logcore/errors", "src/logcore/log", "python/logcore/cli")
    compiled = ("src/logcore/_record.pxd", "src/logcore/_bytes.pxd")
    return [_source(path, "") for path in (*paths, *compiled, *(f"{package}/__init__.py" for package in packages))]


def _source(path: str, text: str) -> Source:
    root, _, rest = path.partition("/")
    module = "logcore._header" if rest.endswith(".h") else rest.rpartition(".")[0].replace("/", ".")
    return Source(module.removesuffix(".__init__"), path, text, is_package="__init__" in path, in_engine=root == "src")
