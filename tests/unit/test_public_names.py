"""What `logcore` offers by name: each is documented, and help() shows it as Python's own functions are shown."""

import enum
import inspect
import pydoc
import re
from pathlib import Path

import pytest

import logcore

FUNCTIONS = [name for name in logcore.__all__ if inspect.isroutine(getattr(logcore, name))]
CLASSES = [name for name in logcore.__all__ if inspect.isclass(getattr(logcore, name))]
DOCS = Path(__file__).parents[2] / "docs"
GUIDE = "\n".join((DOCS / name).read_text("utf-8") for name in ("codec.md", "library.md"))
# What stands in code: between backticks, or in a block.
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"```.*?```|`[^`]+`", GUIDE, re.DOTALL))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_shows_the_signature_of_a_function_once(name):
    function = getattr(logcore, name)
    assert inspect.signature(function).parameters
    first, second = pydoc.plaintext.document(function).splitlines()[:2]
    assert first.startswith(f"{name}(")
    assert not second.lstrip().startswith(f"{name}(")


def test_help_shows_how_a_record_is_made():
    assert str(inspect.signature(logcore.Record)) == "(offset=-1, timestamp=-1, key=None, value=None, headers=())"
    assert inspect.getdoc(logcore.Record).startswith("One record.")


@pytest.mark.parametrize("name", logcore.__all__)
def test_each_public_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(logcore, name))


@pytest.mark.parametrize("name", logcore.__all__)
def test_the_guide_has_each_public_name(name):
    assert name in WORDS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_guide_has_each_option(name):
    assert set(inspect.signature(getattr(logcore, name)).parameters) <= WORDS


@pytest.mark.parametrize("name", CLASSES)
def test_the_guide_has_each_method_and_attribute(name):
    cls = getattr(logcore, name)
    if not issubclass(cls, enum.Enum):  # its members are many, and in its docstring
        assert {member for member in vars(cls) if not member.startswith("_")} - {"noun"} <= WORDS
