"""Every example runs: the Python blocks of README.md and docs/, and the docstrings of every module, compiled or not."""

import doctest
import importlib
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest

import logcore

ROOT = Path(__file__).parents[2]
WITH_SPARK = ROOT / "docs" / "spark.md"  # tests/spark runs it, in its session
DOCUMENTS = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - {WITH_SPARK})]
MODULES = ["logcore", *sorted(found.name for found in pkgutil.walk_packages(logcore.__path__, "logcore."))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


def run_document(text: str, name: str) -> int:
    """Run the ```python blocks of a document in one namespace, as a reader would paste them; return how many.

    A block with prompts is compared with what it shows, one without is run.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = list(BLOCK.finditer(text))
    for match in blocks:
        line = text.count("\n", 0, match.start("code"))
        code = textwrap.dedent(match["code"])
        if ">>> " in code:
            example = doctest.DocTestParser().get_doctest(code, namespace, name, name, line)
            example.globs = namespace  # The parser copies; later blocks use the names of earlier ones.
            _run_doctest(example)
        else:
            exec(compile("\n" * line + code, name, "exec"), namespace)
    return len(blocks)


def _run_doctest(example: doctest.DocTest) -> None:
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=printed.append, clear_globs=False)
    assert result.failed == 0, "".join(printed)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_document_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_document(document.read_text("utf-8"), str(document))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    # Cython lists the docstrings of a compiled module in its __test__, where doctest looks too.
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        if example.examples:
            _run_doctest(example)


def test_a_document_with_a_wrong_example_fails():
    right = "```python\nx = 1\n```\ntext\n```python\n>>> x + 1\n2\n```\n"
    assert run_document(right, "right.md") == 2
    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        run_document(right.replace("2\n", "3\n"), "wrong.md")
    with pytest.raises(ZeroDivisionError):
        run_document("```python\n1 / 0\n```\n", "wrong.md")


def test_a_compiled_module_shows_its_examples_to_doctest():
    found = doctest.DocTestFinder().find(importlib.import_module("logcore._checksum"))
    assert any("crc32c" in example.name and example.examples for example in found)
