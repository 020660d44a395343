"""Lists what is compiled, joins two roots into the one package `logcore`, and adds `pyspark_logcore` from a third.

`src/logcore` is the engine (deterministic, compiled), `python/logcore` the system around it, `spark/pyspark_logcore`
the source for Spark; the arrows between them are in docs/internals/ARCHITECTURE.md. Everything static lives in
pyproject.toml.

Three builds, chosen by environment variable, and one for a fuzzer:

    (none)               release: -O3
    LOGCORE_DEBUG=1      invariant walks and live-object counters in the core, -O1, C assertions
    LOGCORE_SANITIZE=1   AddressSanitizer + UndefinedBehaviorSanitizer; run with tools/sanitize.sh
    LOGCORE_COVERAGE=1   the sanitize build, and every basic block calls the tracer of tests/fuzz/coverage.py

Everything generated lies in build/, one directory a build, so that they never mix and no `.c` appears beside its
`.pyx`:

    build/<release|debug|sanitize|…>/cython/  the generated C (and, in the debug build, Cython's annotated HTML)
    build/<…>/<platform>/                    object files, and the last built extension modules

The last built modules are kept because pip and setuptools hand every build a new temporary directory: without them
each `pip install -e .` would compile everything again.
"""

import os
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

DEBUG = os.environ.get("LOGCORE_DEBUG") == "1"
COVERAGE = os.environ.get("LOGCORE_COVERAGE") == "1"
SANITIZE = COVERAGE or os.environ.get("LOGCORE_SANITIZE") == "1"
FLAVOUR = "coverage" if COVERAGE else "sanitize" if SANITIZE else "debug" if DEBUG else "release"

ROOT = Path(__file__).parent
ENGINE = Path("src/logcore")
SYSTEM = Path("python/logcore")
SPARK = Path("spark/pyspark_logcore")
BUILD = Path("build") / FLAVOUR

# -Wconversion and -Wsign-compare are for our leaves: a silently narrowed length is how a parser reads past its end.
WARNINGS = ["-Wall", "-Wconversion", "-Wsign-compare", "-Wno-unused-function"]
if SANITIZE:
    LINK = ["-fsanitize=address,undefined"]
    # Python's own flags define signed overflow (-fwrapv), which would hide it from the sanitizer.
    FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-wrapv", *LINK, "-fno-sanitize-recover=undefined"]
    FLAGS += ["-fsanitize-coverage=trace-pc"] if COVERAGE else []
elif DEBUG:
    FLAGS, LINK = ["-O1", "-g", "-UNDEBUG"], []
else:
    # Nothing here relies on signed overflow (the sanitize build would stop at it), so it need not be defined.
    FLAGS, LINK = ["-O3", "-g0", "-fno-wrapv"], []

# `cdef inline` means it: the record parser is written once and inlined into each hot loop, where its fields must stay
# in registers; left to itself the compiler finds it too large. Not for the other builds, whose stacks people read.
INLINE = [] if DEBUG or SANITIZE else [("CYTHON_INLINE", "__inline__ __attribute__((always_inline))")]


def extensions() -> list[Extension]:
    """One extension a `.pyx`, so that one edit recompiles one file."""
    headers = [str(path) for path in sorted(ENGINE.glob("*.h"))]
    return [
        Extension(
            f"logcore.{source.stem}",
            [str(source)],
            include_dirs=[str(ENGINE)],
            depends=headers,
            define_macros=[("LOGCORE_DEBUG", "1" if DEBUG or SANITIZE else "0"), *INLINE],
            extra_compile_args=FLAGS + WARNINGS,
            extra_link_args=LINK,
        )
        for source in sorted(ENGINE.glob("*.pyx"))
    ]


def packages() -> dict[str, str]:
    """The roots as packages, two of them as one: name -> directory, found by their `__init__.py`."""
    found = {}
    for root in (SYSTEM, ENGINE, SPARK):
        for init in sorted((ROOT / root).rglob("__init__.py")):
            directory = init.parent.relative_to(ROOT)
            name = ".".join((root.name, *directory.relative_to(root).parts))
            found[name] = str(directory)
    return found


class BuildModules(build_py):
    """Adds what lies outside its package's directory: the stubs of the compiled modules, and the benchmark's C."""

    def run(self) -> None:
        # A module that was renamed or deleted must not ride along from the build before.
        for package in (SYSTEM, SPARK):
            shutil.rmtree(Path(self.build_lib) / package.name, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for built, source in self._added():
                self.copy_file(source, built)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return super().get_outputs(include_bytecode) + [built for built, _ in self._added()]

    def get_output_mapping(self) -> dict[str, str]:
        return super().get_output_mapping() | dict(self._added())

    def get_source_files(self) -> list[str]:
        return super().get_source_files() + [source for _, source in self._added()]

    def _added(self) -> Iterator[tuple[str, str]]:
        package = Path(self.build_lib) / "logcore"
        for stub in sorted(ENGINE.glob("*.pyi")):
            yield str(package / stub.name), str(stub)
        # `logcore bench codec --peers` compiles these on the user's machine.
        for source in (Path("bench/limits.c"), ENGINE / "checksum.h"):
            yield str(package / "bench" / source.name), str(source)


class BuildExtensions(build_ext):
    """Translates and compiles in parallel, outside the source tree, and only what changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1
        self._kept = BUILD / f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        self.build_temp = str(self._kept / "objects")

    def build_extensions(self) -> None:
        self._require_toolchain()
        self._translate()
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        # The module built last goes back to its place with its time stamp; distutils then compares it with its
        # sources and compiles only if one of them is newer.
        built = Path(self.get_ext_fullpath(ext.name))
        kept = self._kept / built.name
        built.parent.mkdir(parents=True, exist_ok=True)
        built.unlink(missing_ok=True)
        if kept.exists():
            shutil.copy2(kept, built)
        super().build_extension(ext)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, kept)

    def _translate(self) -> None:
        """Replaces each `.pyx` by its generated C."""
        from Cython.Build import cythonize  # Not needed to make an sdist, only to compile.

        changed = Path(__file__).stat().st_mtime  # This file holds the directives, which Cython does not compare.
        translated = cythonize(
            self.extensions,
            build_dir=str(BUILD / "cython"),
            force=any(made.stat().st_mtime < changed for made in (BUILD / "cython").rglob("*.c")),
            include_path=["src"],
            nthreads=self.parallel,
            annotate=DEBUG,
            compiler_directives={
                "language_level": 3,
                "boundscheck": DEBUG or SANITIZE,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
                "auto_pickle": False,  # it would take a pointer for a string
                "embedsignature": False,  # inspect finds it without; help() would show it twice
            },
        )
        sources = {ext.name: ext.sources for ext in translated}
        for ext in self.extensions:
            ext.sources = sources[ext.name]
            ext.depends = [*ext.depends, "setup.py"]  # This file holds the flags.

    def _require_toolchain(self) -> None:
        """Names what is missing in one line, instead of a page of compiler output."""
        compiler = getattr(self.compiler, "compiler_so", None)  # Absent for compilers that are not Unix-like.
        if compiler and not shutil.which(compiler[0]):
            raise SystemExit(
                f"logcore: no C compiler: {compiler[0]!r} is not on PATH (Debian: apt install gcc; or set CC)"
            )
        include = Path(sysconfig.get_path("include"))
        if not any((Path(place) / "Python.h").exists() for place in (include, *self.include_dirs)):
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise SystemExit(
                f"logcore: no Python.h in {include} (Debian: apt install python{version}-dev; Fedora: python3-devel)"
            )


# A dozen lines that only say that an editable install needs build/, at each install.
warnings.filterwarnings("ignore", message="Editable installation")

# Guarded because Cython's worker processes may import this file.
if __name__ == "__main__":
    BUILD.mkdir(parents=True, exist_ok=True)
    setup(
        packages=list(packages()),
        package_dir=packages(),
        ext_modules=extensions(),
        cmdclass={"build_py": BuildModules, "build_ext": BuildExtensions},
        options={
            # One directory of links that has the shape of the installed packages, put on sys.path by a .pth file. The
            # default, an import hook, hides the second root and the stubs from type checkers and editors, and
            # pyspark_logcore from Spark, which lists the modules of the directories on sys.path.
            "editable_wheel": {"mode": "strict"},
            # Not in the root directory, where a stale one would pass for the installed package's metadata.
            "egg_info": {"egg_base": str(BUILD)},
        },
    )
