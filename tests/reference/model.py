"""What reading gives and what refusing raises, and the Java integers that both depend on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

NO_TIMESTAMP = -1
NO_SEQUENCE = -1
INT32_MAX = 2**31 - 1
CREATE_TIME = "create_time"
LOG_APPEND_TIME = "log_append_time"
NO_TIMESTAMP_TYPE = "none"
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

#: Reasons that mean "these bytes are not what was written"; the others mean "nobody should have written this".
_CORRUPT = {"BATCH_SIZE", "MAGIC", "CRC", "TRUNCATED", "DECOMPRESSION", "DECOMPRESSED_SIZE"}
_INVALID = {
    "RECORD_COUNT",  # the header's count is negative
    "RECORD_LENGTH",  # a record's length is negative or larger than what is left
    "RECORD_TRUNCATED",  # the bytes end where a record, or a field of one, should be
    "VARINT",  # no end after 5 bytes, or 10 for a timestamp delta
    "KEY_LENGTH",
    "VALUE_LENGTH",
    "HEADER_COUNT",
    "HEADER_KEY",
    "HEADER_VALUE",
    "TRAILING_BYTES",  # bytes left inside a record after its headers, or after the last record
    "UNKNOWN_CODEC",  # codec 5, 6 or 7; zstd before magic 2
    "CONTROL_RECORD",
    "WRAPPER_VALUE",  # a compressed v0/v1 message with a null value
    "WRAPPER_EMPTY",  # ... without a message inside
    "INNER_OFFSET",  # ... whose offset is smaller than the last relative one inside
    "NESTED_COMPRESSION",
}


class Refused(Exception):
    """The bytes cannot be read; `reason` says why and `kafka` is the error a broker would answer with."""

    def __init__(self, reason: str, detail: str = "", batch_position: int = -1) -> None:
        if reason not in _CORRUPT | _INVALID:
            raise AssertionError(f"no such reason: {reason}")
        super().__init__(f"{reason} in the batch at {batch_position}: {detail}")
        self.reason = reason
        self.detail = detail
        self.batch_position = batch_position

    @property
    def kafka(self) -> str:
        return "CORRUPT_MESSAGE" if self.reason in _CORRUPT else "INVALID_RECORD"

    def at(self, batch_position: int) -> Refused:
        """The same refusal, told by someone who knows where the batch begins."""
        return Refused(self.reason, self.detail, batch_position)


class RefKafkaError(Exception):
    """A leader's answer to a buffer it will not append.

    `record_errors` holds `(index, error name)` for each record at fault, and is empty when the batch itself is.
    """

    def __init__(self, name: str, detail: str = "", record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
        self.record_errors = record_errors


@dataclass(frozen=True)
class RefRecord:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    sequence: int = NO_SEQUENCE


class RefBatch(ABC):
    """One batch: its header fields as attributes, its records on demand.

    The header is there even if the records are not readable. For magic 0 and 1 `base_offset` needs the first record
    of a compressed set, so reading that one attribute may raise Refused.
    """

    HEADER_FIELDS = (
        "position", "magic", "base_offset", "last_offset", "size_in_bytes", "crc", "compression", "timestamp_type",
        "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "last_sequence",
        "leader_epoch", "is_transactional", "is_control", "is_compressed", "delete_horizon_ms", "attributes", "count",
    )  # fmt: skip

    position: int
    data: bytes
    attributes: int

    def __init__(self, data: bytes, position: int, max_decompressed_bytes: int) -> None:
        self.data = data
        self.position = position
        self.max_decompressed_bytes = max_decompressed_bytes

    @property
    def size_in_bytes(self) -> int:
        return len(self.data)

    @property
    def codec_id(self) -> int:
        return self.attributes & 0x07

    @property
    def compression(self) -> str:
        return CODEC_NAMES[self.codec_id] if self.codec_id < len(CODEC_NAMES) else f"unknown-{self.codec_id}"

    @property
    def is_compressed(self) -> bool:
        return self.codec_id != 0

    @abstractmethod
    def check_crc(self) -> None:
        """Raise Refused unless the stored checksum is right."""

    @abstractmethod
    def _iterate(self) -> Iterator[RefRecord]:
        """The records one by one, raising Refused without a position."""

    def records(self) -> list[RefRecord]:
        """All records, or Refused: a batch is read whole or not at all."""
        return list(self.iterate())

    def iterate(self) -> Iterator[RefRecord]:
        """The records up to the first that is damaged, then Refused."""
        try:
            yield from self._iterate()
        except Refused as refused:
            raise refused.at(self.position) from refused

    def header(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.HEADER_FIELDS}


def codec_id(name: str) -> int:
    return CODEC_NAMES.index(name)


def known_codec(batch_codec_id: int) -> str:
    if batch_codec_id >= len(CODEC_NAMES):
        raise Refused("UNKNOWN_CODEC", f"codec {batch_codec_id}")
    return CODEC_NAMES[batch_codec_id]


def int32(value: int) -> int:
    """`value` as Java's int holds it."""
    return (value + 2**31) % 2**32 - 2**31


def int64(value: int) -> int:
    """`value` as Java's long holds it."""
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences go on from 2**31 - 1 to 0.

    The comparison itself overflows for a negative increment, which a record whose offset delta is negative brings:
    its sequence is then a large negative number. Readers show it as it is.
    """
    if sequence > int32(INT32_MAX - increment):
        return int32(increment - (INT32_MAX - sequence) - 1)
    return int32(sequence + increment)
