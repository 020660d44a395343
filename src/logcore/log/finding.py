"""What verify finds in the files of a log: damage, or something worth a note.

damage   bytes that no writer leaves, whatever happens to it. Something is lost, or wrong, or will mislead a reader
note     what a crash, a kill or a writer at work leaves. Nothing flushed is lost; the text says what becomes of it
         when the log is opened next
"""

from typing import Literal, NamedTuple

from logcore.errors import CorruptionError, CorruptionReason

Severity = Literal["damage", "note"]

SHOWN_MAX = 20  # findings of one kind in one file; behind them they are only counted


class Finding(NamedTuple):
    """One thing that was found. `reason` is for programs: a CorruptionReason's value, or one of a note's."""

    severity: Severity
    path: str
    reason: str
    text: str  # what it is, without the place
    position: int | None = None  # in the file
    offset: int | None = None

    @property
    def is_damage(self) -> bool:
        """Whether it is more than a note."""
        return self.severity == "damage"

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path}, position {self.position}"
        return f"{place}: {self.text}"


def damage(
    path: str, reason: CorruptionReason, text: str, position: int | None = None, offset: int | None = None
) -> Finding:
    """Damage that a check has found."""
    return Finding("damage", path, reason.value, text, position, offset)


def note(path: str, reason: str, text: str, position: int | None = None, offset: int | None = None) -> Finding:
    """Something that is no damage."""
    return Finding("note", path, reason, text, position, offset)


def of_error(error: CorruptionError, path: str) -> Finding:
    """The damage that a parser of ours has raised.

    >>> from logcore.errors import CorruptBatch
    >>> print(of_error(CorruptBatch("crc", reason=CorruptionReason.CRC, got="0x1", wanted="0x2", position=70), "0.log"))
    0.log, position 70: crc got 0x1, wanted 0x2
    """
    text = error.what
    if error.got is not None:
        text += f" got {error.got}"
    if error.wanted is not None:
        text += f", wanted {error.wanted}"
    if error.record_index is not None:
        text = f"record {error.record_index}: {text}"
    return Finding("damage", path, error.reason.value, text, error.position, error.offset)
