"""What the coverage-guided fuzzer kept, into every target again: it reaches what the golden batches do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import corpus, targets
from tests.fuzz.corpus import Entry


def test_the_corpus_is_small() -> None:
    entries = corpus.load()
    assert 50 <= len(entries) <= corpus.ENTRIES_MAX
    assert sum(len(entry.buffer) for entry in entries) <= corpus.BYTES_MAX


@pytest.mark.parametrize("entry", corpus.load(), ids=lambda entry: entry.name)
def test_a_kept_case_ends_in_a_typed_error_or_a_right_result(entry: Entry) -> None:
    for turn in (entry.turn, entry.turn + 1, entry.turn + 6):
        targets.check(entry.buffer, turn)


def test_entries_survive_saving(tmp_path: Path) -> None:
    path = tmp_path / "corpus.zip"
    entries = [Entry(3, b"abc"), Entry(0, b"")]
    corpus.save(entries, path)
    assert sorted(corpus.load(path)) == sorted(entries)
    first = path.read_bytes()
    corpus.save(reversed(entries), path)
    assert path.read_bytes() == first
