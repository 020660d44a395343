"""The exception tree: who broke what, told in one order.

    LogcoreError
    ├─ KafkaError         an error of Kafka's protocol, with its code (kafka.py)
    ├─ CorruptionError    bytes that are not what they claim: CorruptBatch, CorruptIndex, CorruptSnapshot,
    │                     CorruptCheckpoint
    ├─ UsageError         our caller broke a rule (UsageTypeError: with an object of the wrong type)
    ├─ PeerError          the other side of a connection broke a rule
    ├─ StorageError       the operating system refused; also an OSError, with errno and path
    │                     (LockedError: because another process has the lock)
    └─ InvariantError     a bug of ours; whoever meets one stops, and never "handles" it

Each message says what, where, got, wanted, and each part is an attribute too, so that no one has to parse a text.
`got` and `wanted` are small facts (an int, a few words), never the damaged bytes or the caller's object: an error may
outlive both, and it must travel between processes. Every class here survives `pickle` with all its attributes.
"""

import errno as errno_codes
import os
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .kafka import KafkaError

_Error = TypeVar("_Error", bound="LogcoreError")
_Corruption = TypeVar("_Corruption", bound="CorruptionError")


def _restore(cls: type[_Error], args: tuple[Any, ...], state: Mapping[str, Any]) -> _Error:
    error = cls.__new__(cls)
    error.args = args
    error.__setstate__(dict(state))
    return error


def _shown(fact: object) -> object:
    # Python refuses to write out an int of some thousands of digits.
    return f"an int of {fact.bit_length()} bits" if isinstance(fact, int) and fact.bit_length() > 1024 else fact


def _got_wanted(got: object, wanted: object) -> str:
    return ", ".join(f"{word} {_shown(fact)}" for word, fact in (("got", got), ("wanted", wanted)) if fact is not None)


class LogcoreError(Exception):
    """Every error that logcore raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way calls cls(*args), which keyword-only arguments refuse.
        return _restore, (type(self), self.args, self.__dict__)


class InvariantError(LogcoreError):
    """A rule that only logcore itself can break was broken: a bug here, not in what the caller or a peer did."""


class _BrokenRule(LogcoreError):
    """The one check behind UsageError and PeerError; which of the two it is, the edge decides."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: int | str | None = None,
        wanted: int | str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.got = got
        self.wanted = wanted

    def __str__(self) -> str:
        head = self.what if self.where is None else f"{self.what}, {self.where}"
        tail = _got_wanted(self.got, self.wanted)
        return f"{head}: {tail}" if tail else head


class UsageError(_BrokenRule, ValueError):
    """The caller broke a rule of the API.

    >>> print(UsageError("compression level", where="gzip", got=12, wanted="1 to 9"))
    compression level, gzip: got 12, wanted 1 to 9
    """


class UsageTypeError(UsageError, TypeError):
    """The caller handed in an object of the wrong type.

    >>> print(UsageTypeError("key", where="record 3", got="str", wanted="bytes or None"))
    key, record 3: got str, wanted bytes or None
    """


class PeerError(_BrokenRule):
    """The other side of a connection broke a rule of the protocol."""


class StorageError(LogcoreError, OSError):
    """The operating system refused a file operation. `errno` and `path` are kept, and `filename` as in any OSError.

    >>> import errno
    >>> print(StorageError("append", errno=errno.ENOSPC, path="orders-0/0.log"))
    append, orders-0/0.log: got errno 28 (No space left on device)
    """

    def __init__(self, what: str, *, errno: int, path: str | bytes | os.PathLike[str]) -> None:
        super().__init__(errno, os.strerror(errno), os.fsdecode(path))
        self.what = what

    @property
    def path(self) -> str:
        """The file the operation was about."""
        return str(self.filename)

    def __str__(self) -> str:
        return f"{self.what}, {self.path}: got errno {self.errno} ({self.strerror})"

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError keeps these three outside of __dict__.
        fields = {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return _restore, (type(self), self.args, self.__dict__ | fields)


class LockedError(StorageError):
    """Somebody else holds the lock of a log root. `holder` is the process's id, None where it cannot be told.

    >>> print(LockedError("data/.lock", holder=4711))
    lock, data/.lock: got a lock of process 4711, wanted none: one process at a time writes to a log root
    """

    def __init__(self, path: str | os.PathLike[str], *, holder: int | None) -> None:
        super().__init__("lock", errno=errno_codes.EAGAIN, path=path)
        self.holder = holder

    def __str__(self) -> str:
        whose = "another process" if self.holder is None else f"process {self.holder}"
        return f"lock, {self.path}: got a lock of {whose}, wanted none: one process at a time writes to a log root"


class CorruptionReason(Enum):
    """Why bytes are not what they claim to be. A batch, its records, the sets of v0 and v1, then the other files."""

    BATCH_SIZE = "batch_size"  # the size field allows no batch, or exceeds the limit
    MAGIC = "magic"  # not 0, 1 or 2
    CRC = "crc"
    TRUNCATED = "truncated"  # bytes end inside the batch where no cut is allowed
    UNKNOWN_CODEC = "unknown_codec"
    DECOMPRESSION = "decompression"  # the codec refuses its bytes
    DECOMPRESSED_SIZE = "decompressed_size"  # more than the cap
    OFFSET_ORDER = "offset_order"  # offsets go back, or beyond the batch's last

    RECORD_COUNT = "record_count"  # negative, or not what follows
    RECORD_LENGTH = "record_length"
    RECORD_TRUNCATED = "record_truncated"  # the record needs more bytes than there are
    VARINT = "varint"  # too long or without end
    KEY_LENGTH = "key_length"
    VALUE_LENGTH = "value_length"
    HEADER_COUNT = "header_count"
    HEADER_KEY = "header_key"
    HEADER_VALUE = "header_value"
    TRAILING_BYTES = "trailing_bytes"  # left over behind a record or behind the last one
    CONTROL_RECORD = "control_record"  # a key or value that no control record has

    WRAPPER_VALUE = "wrapper_value"  # a compressed message without a value
    WRAPPER_EMPTY = "wrapper_empty"  # a compressed message around nothing
    INNER_OFFSET = "inner_offset"
    INNER_MAGIC = "inner_magic"
    NESTED_COMPRESSION = "nested_compression"  # a compressed message inside a compressed one

    ENTRY_SIZE = "entry_size"  # an index that does not end with a whole entry
    ENTRY_ORDER = "entry_order"  # an entry of an index before one that must come before it

    VERSION = "version"  # of a snapshot or checkpoint, that nobody knows
    ENTRY_COUNT = "entry_count"  # not as many entries as the file says
    MALFORMED = "malformed"  # a line or field that cannot be read, or says what cannot be


# Kafka tells damage on the way, where sending again helps (CORRUPT_MESSAGE is retriable), from bytes that were
# written wrongly and will be wrong again (INVALID_RECORD is not).
_DAMAGED_ON_THE_WAY = frozenset(
    {
        CorruptionReason.BATCH_SIZE,
        CorruptionReason.MAGIC,
        CorruptionReason.CRC,
        CorruptionReason.TRUNCATED,
        CorruptionReason.DECOMPRESSION,
        CorruptionReason.DECOMPRESSED_SIZE,
    }
)


class CorruptionError(LogcoreError):
    """Bytes are not what they claim to be.

    position      byte position of the damaged thing in the buffer, or in the file `path`
    offset        logical offset of the damaged thing, where it is known
    record_index  index of the record inside the batch, from 0
    at            byte inside the thing (inside its decompressed records, if it is compressed) where it went wrong

    >>> print(CorruptBatch("value length", reason=CorruptionReason.VALUE_LENGTH, got=99999, wanted="at most 102",
    ...                    path="0.log", position=4096, record_index=17, at=2210))
    batch at position 4096 of 0.log, record 17 at byte 2210: value length got 99999, wanted at most 102
    """

    noun: ClassVar[str] = "data"

    def __init__(
        self,
        what: str,
        *,
        reason: CorruptionReason,
        got: int | str | None = None,
        wanted: int | str | None = None,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
        offset: int | None = None,
        record_index: int | None = None,
        at: int | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.reason = reason
        self.got = got
        self.wanted = wanted
        self.path = None if path is None else os.fspath(path)
        self.position = position
        self.offset = offset
        self.record_index = record_index
        self.at = at

    @property
    def kafka_error(self) -> type["KafkaError"]:
        """What a broker answers for this damage: CorruptMessageError or InvalidRecordError."""
        from .kafka import error_for_name  # kafka.py builds on this file

        return error_for_name("CORRUPT_MESSAGE" if self.reason in _DAMAGED_ON_THE_WAY else "INVALID_RECORD")

    @property
    def where(self) -> str:
        """The place in words: "batch at position 4096 of 0.log, record 17 at byte 2210"."""
        place = self.noun
        if self.position is not None:
            place += f" at position {self.position}"
        if self.path is not None:
            place += f" {'in' if self.position is None else 'of'} {self.path}"
        if self.offset is not None:
            place += f", offset {self.offset}"
        if self.record_index is not None:
            place += f", record {self.record_index}"
        if self.at is not None:
            place += f"{',' if self.record_index is None else ' at'} byte {self.at}"
        return place

    def at_path(self: _Corruption, path: str | os.PathLike[str], position_offset: int) -> _Corruption:
        """A copy for the reader of a file, whose buffer began at `position_offset` of `path`.

        The copy keeps traceback and cause, so `raise error.at_path(…) from None` still shows where it came from. A
        position that was not known stays unknown.
        """
        copy = _restore(type(self), self.args, self.__dict__)
        copy.path = os.fspath(path)
        copy.position = None if self.position is None else self.position + position_offset
        copy.__cause__ = self.__cause__
        return copy.with_traceback(self.__traceback__)

    def __str__(self) -> str:
        return f"{self.where}: {self.what} {_got_wanted(self.got, self.wanted)}".rstrip()


class CorruptBatch(CorruptionError):
    """A record batch, or a message set of v0 or v1, is damaged."""

    noun = "batch"


class CorruptIndex(CorruptionError):
    """An offset, time or transaction index is damaged; all can be rebuilt from the log."""

    noun = "index"


class CorruptSnapshot(CorruptionError):
    """A producer-state or metadata snapshot is damaged."""

    noun = "snapshot"


class CorruptCheckpoint(CorruptionError):
    """A checkpoint, or another small file of text that belongs to a log, is damaged."""

    noun = "checkpoint"


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch, as a Produce response lists it."""

    index: int  # type: ignore[assignment]  # Kafka's word; it hides tuple.index, which nobody asks of a record error
    message: str
