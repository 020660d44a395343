"""Small files of text, read as Java reads them and replaced as a whole: what checkpoints and their kin share.

Java and Python disagree on what a line, a number and white space are, and these files are Java's:

    line          ends at \\n, \\r or \\r\\n and at nothing else; the last one need not end
    number        a sign, if any, and digits; no blanks, no underscores
    white space   the six of ASCII

A file that cannot be read is a CorruptCheckpoint that names it, and the line in words. Sizes are bounded before a file
is read, since nobody knows who wrote it.
"""

import errno
import os
import re

from logcore.errors import CorruptCheckpoint, CorruptionReason, StorageError, UsageError, UsageTypeError

from .disk import Disk, read_file, write_file

SMALL_FILE_BYTES_MAX = 1 << 16  # of a file with a few fields; Kafka's own have some hundred bytes

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_SHOWN_CHARACTERS_MAX = 80
_INTEGER_DIGITS_MAX = 19  # of a long


def read_bytes(disk: Disk, path: str, bytes_max: int) -> bytes | None:
    """The whole file, None if there is none. One that is too long to be what it should is a CorruptCheckpoint."""
    try:
        return read_file(disk, path, bytes_max)
    except StorageError as error:
        if error.errno != errno.EFBIG:
            raise
        raise CorruptCheckpoint(
            "size",
            reason=CorruptionReason.MALFORMED,
            got="a longer file",
            wanted=f"at most {bytes_max} bytes",
            path=path,
        ) from None


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` in place of the file, for good: afterwards it survives the death of the machine.

    As Kafka does: written beside it, synced, renamed, and the directory synced. If this fails, the file is the old or
    the new one.
    """
    write_file(disk, path, data)
    disk.sync_directory(os.path.dirname(path) or ".")


def text_of(data: bytes, path: str) -> str:
    """The text of a file in UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"0x{data[error.start]:02x}"
        raise CorruptCheckpoint(
            f"byte {error.start}", reason=CorruptionReason.MALFORMED, got=got, wanted="UTF-8", path=path
        ) from None


def lines_of(text: str) -> list[str]:
    """The lines of a text, without their ends. An empty text has none.

    >>> lines_of("0\\r\\n1\\n\\nx")
    ['0', '1', '', 'x']
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def fields_of(separator: "re.Pattern[str]", line: str) -> list[str]:
    """What lies between separators, as Java splits: empty fields at the end do not count, those before do.

    >>> fields_of(re.compile(r"\\s+", re.ASCII), " orders 0 ")
    ['', 'orders', '0']
    """
    fields = separator.split(line)
    while fields and not fields[-1]:
        fields.pop()
    return fields


def integer_of(text: str, limit: int) -> int | None:
    """The number that `text` is, from -`limit` - 1 to `limit`; None if it is none.

    As Java's parseInt and parseLong, but that those know the digits of all scripts: nobody writes these.

    >>> [integer_of(text, INT_MAX) for text in ("170", "+007", "-1", "", "1_0", " 1", "2147483648")]
    [170, 7, -1, None, None, None, None]
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0")
    if len(significant) > _INTEGER_DIGITS_MAX:
        return None
    value = int(significant or "0")
    if text[0] == "-":
        value = -value
    return value if -limit - 1 <= value <= limit else None


def shown(text: str) -> str:
    """What a message shows of a text that somebody else wrote."""
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return ascii(text)
    return f"{text[:_SHOWN_CHARACTERS_MAX]!a}… ({len(text)} characters)"


def malformed(what: str, got: str, wanted: str, path: str) -> CorruptCheckpoint:
    """The error of a line or field that cannot be read."""
    return CorruptCheckpoint(what, reason=CorruptionReason.MALFORMED, got=shown(got), wanted=wanted, path=path)


def check_integer(what: str, value: object, low: int, high: int) -> int:
    """`value` if it is an int from `low` to `high`: what a caller wants to have written."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageTypeError(what, got=type(value).__name__, wanted="an int")
    if not low <= value <= high:
        raise UsageError(what, got=value, wanted=f"{low} to {high}")
    return value
