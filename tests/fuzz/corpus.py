"""The kept cases of the coverage-guided fuzzer: a zip of small files, each a buffer and the turn it was tried with."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

KEPT = Path(__file__).parent / "corpus.zip"
ENTRIES_MAX = 300
BYTES_MAX = 300_000


class Entry(NamedTuple):
    """A buffer, and the number that chooses among the targets' options."""

    turn: int
    buffer: bytes

    @property
    def name(self) -> str:
        return f"{hashlib.sha256(self.buffer).hexdigest()[:12]}-{self.turn}"


def load(path: Path = KEPT) -> list[Entry]:
    with zipfile.ZipFile(path) as archive:
        return [Entry(int(name.rpartition("-")[2]), archive.read(name)) for name in sorted(archive.namelist())]


def save(entries: Iterable[Entry], path: Path) -> None:
    """The same entries give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            archive.writestr(zipfile.ZipInfo(entry.name), entry.buffer, zipfile.ZIP_DEFLATED, 9)
