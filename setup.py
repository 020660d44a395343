"""Lists what is compiled and joins the two roots into the one package `logcore`.

`src/logcore` is the engine (deterministic, compiled), `python/logcore` the system around it; the arrows between
them are in docs/internals/ARCHITECTURE.md. Everything static lives in pyproject.toml.

Three builds, chosen by environment variable:

    (none)               release: -O3
    LOGCORE_DEBUG=1      invariant walks and live-object counters in the core, -O1, C assertions
    LOGCORE_SANITIZE=1   AddressSanitizer + UndefinedBehaviorSanitizer; run with tools/sanitize.sh
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("LOGCORE_DEBUG") == "1"
SANITIZE = os.environ.get("LOGCORE_SANITIZE") == "1"

ROOT = Path(__file__).parent
ENGINE = Path("src/logcore")

# -Wconversion and -Wsign-compare are for our leaves: a silently narrowed length is how a parser reads past its end.
WARNINGS = ["-Wall", "-Wconversion", "-Wsign-compare", "-Wno-unused-function"]
if SANITIZE:
    FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    LINK = ["-fsanitize=address,undefined"]
elif DEBUG:
    FLAGS, LINK = ["-O1", "-g", "-UNDEBUG"], []
else:
    FLAGS, LINK = ["-O3", "-g0"], []


def extensions() -> list[Extension]:
    """One extension a `.pyx`, so that one edit recompiles one file."""
    headers = [str(path) for path in sorted(ENGINE.glob("*.h"))]
    return [
        Extension(
            f"logcore.{source.stem}",
            [str(source)],
            include_dirs=["src/logcore"],
            depends=headers,
            define_macros=[("LOGCORE_DEBUG", "1" if DEBUG or SANITIZE else "0")],
            extra_compile_args=FLAGS + WARNINGS,
            extra_link_args=LINK,
        )
        for source in sorted(ENGINE.glob("*.pyx"))
    ]


def packages() -> dict[str, str]:
    """The two roots as one package: name -> directory, found by their `__init__.py`."""
    found = {}
    for root in (Path("python/logcore"), ENGINE):
        for init in sorted((ROOT / root).rglob("__init__.py")):
            directory = init.parent.relative_to(ROOT)
            name = ".".join(("logcore", *directory.relative_to(root).parts))
            found[name] = str(directory)
    return found


setup(
    packages=list(packages()),
    package_dir=packages(),
    ext_modules=cythonize(
        extensions(),
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG or SANITIZE,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "embedsignature.format": "python",
        },
        annotate=DEBUG,
    ),
)
