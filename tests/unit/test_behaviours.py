"""Every behaviour on the golden lists is shown by a test, or has its reason in docs/internals/behaviours.md.

A list is tests/golden/behaviours-<area>.tsv, its ids are letters and a number (REC-015). A test shows what its
docstring begins with: `REC-015: …`, or several, `REC-118, REC-119: …`.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
REASONS = TESTS.parent / "docs" / "internals" / "behaviours.md"
LISTS = sorted((TESTS / "golden").glob("behaviours-*.tsv"))

ID = re.compile(r"\b([A-Z]{3})-([0-9]{3})\b")
CITED = re.compile(r"(?:[A-Z]{3}-[0-9]{3})(?:, [A-Z]{3}-[0-9]{3})*(?=[:.])")
ROW = re.compile(r"\| *([A-Z]{3}-[0-9]{3}[^|]*?) *\| *(.*?) *\|")

# A test of the slow reference shows nothing about logcore.
NOT_ABOUT_LOGCORE = {"test_reference.py"}


def listed(path: Path) -> list[str]:
    with path.open(newline="") as lines:
        return [row["id"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def ids_in(text: str) -> list[str]:
    return ["-".join(pair) for pair in ID.findall(text)]


def docstrings() -> Iterator[tuple[str, str]]:
    """The name and docstring of every test function that has one."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(TESTS)}::{node.name}", ast.get_docstring(node) or ""


def cited(docstring: str) -> list[str]:
    found = CITED.match(docstring)
    return ids_in(found[0]) if found else []


def expanded(cell: str) -> list[str]:
    """REC-001; REC-001, REC-003; or REC-001 to REC-003, which is all three."""
    found = ids_in(cell)
    if " to " not in cell:
        return found
    first, last = (ID.fullmatch(one) for one in found)
    assert first[1] == last[1]
    return [f"{first[1]}-{number:03}" for number in range(int(first[2]), int(last[2]) + 1)]


def reasons() -> list[tuple[str, str]]:
    rows = [ROW.match(line) for line in REASONS.read_text().splitlines()]
    return [(one, row[2]) for row in rows if row for one in expanded(row[1])]


@pytest.fixture(scope="module")
def shown() -> dict[str, list[str]]:
    """The tests that show each behaviour."""
    found: dict[str, list[str]] = {}
    for name, docstring in docstrings():
        if name.partition("::")[0].rpartition("/")[2] not in NOT_ABOUT_LOGCORE:
            for one in cited(docstring):
                found.setdefault(one, []).append(name)
    return found


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_behaviour_is_either_shown_by_a_test_or_has_a_reason(path: Path, shown: dict[str, list[str]]) -> None:
    ids, excused = listed(path), {one for one, _ in reasons()}
    assert len(ids) == len(set(ids)) > 0
    assert [one for one in ids if one not in shown and one not in excused] == [], "neither a test nor a reason"
    assert [one for one in ids if one in shown and one in excused] == [], "both a test and a reason"


def test_there_is_a_list_and_no_id_that_is_on_none() -> None:
    areas = ("cleaner", "log", "producers", "records", "segments-indexes", "timers")
    assert [path.stem for path in LISTS] == [f"behaviours-{area}" for area in areas]
    known = {one for path in LISTS for one in listed(path)}
    prefixes = {one.partition("-")[0] for one in known}
    for name, docstring in docstrings():
        mentioned = [one for one in ids_in(docstring) if one.partition("-")[0] in prefixes]
        assert [one for one in mentioned if one not in known] == [], name
    assert [one for one in ids_in(REASONS.read_text()) if one not in known] == []


def test_every_reason_is_given_once_and_in_words() -> None:
    given = [one for one, _ in reasons()]
    assert len(given) == len(set(given)) > 0
    assert [one for one, reason in reasons() if len(reason) < 20] == []


def test_a_citation_is_what_a_docstring_begins_with() -> None:
    assert cited("REC-001: a fact.") == ["REC-001"]
    assert cited("REC-001, REC-002.") == ["REC-001", "REC-002"]
    assert cited("Unlike REC-001: something else.") == []
    assert expanded("REC-008 to REC-010") == ["REC-008", "REC-009", "REC-010"]
    assert expanded("REC-008, REC-010") == ["REC-008", "REC-010"]
