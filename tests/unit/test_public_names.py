"""What `logcore` offers by name: each is documented, and help() shows it as Python's own functions are shown."""

import inspect
import pydoc

import pytest

import logcore

FUNCTIONS = [name for name in logcore.__all__ if inspect.isroutine(getattr(logcore, name))]


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
