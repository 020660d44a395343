"""Magic 0 and 1: every message carries its own checksum, and a compressed set is a message whose value holds others.

     0  offset        int64   outside the CRC
     8  size          int32   bytes after this field
    12  crc           uint32  CRC-32 of byte 16 to the end
    16  magic         int8    0 or 1
    17  attributes    int8    bits 0-2 codec, 3 log append time (magic 1)
    18  timestamp     int64   magic 1 only
        key           int32 length (any negative one: null) and bytes
        value         int32 length and bytes

A message that is not compressed is a batch of one record. A compressed one ("wrapper") holds a stream of messages of
the same shape. In magic 1 the offsets inside are relative and the wrapper has the offset of the last one; in magic 0
they are absolute. The wrapper's magic decides which.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import compression
from .checksum import crc32
from .model import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    RefBatch,
    RefRecord,
    Refused,
    codec_id,
    int64,
    known_codec,
)

LOG_OVERHEAD = 12
#: The smallest message of magic 0: CRC, magic, attributes and two lengths. Magic 1 is held to the same bound.
MESSAGE_BYTES_MIN = 14


@dataclass(frozen=True)
class Message:
    """One message without its offset and size, perhaps from inside a wrapper."""

    data: bytes
    wrapper_timestamp: int = NO_TIMESTAMP
    wrapper_timestamp_type: str | None = None

    @property
    def crc(self) -> int:
        return int.from_bytes(self.data[:4], "big")

    @property
    def magic(self) -> int:
        return int.from_bytes(self.data[4:5], "big", signed=True)

    @property
    def attributes(self) -> int:
        return int.from_bytes(self.data[5:6], "big", signed=True)

    @property
    def codec_id(self) -> int:
        return self.attributes & 0x07

    @property
    def timestamp_type(self) -> str:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        if self.wrapper_timestamp_type is not None:
            return self.wrapper_timestamp_type
        return LOG_APPEND_TIME if self.attributes & 0x08 else CREATE_TIME

    @property
    def timestamp(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP
        if self.wrapper_timestamp_type == LOG_APPEND_TIME:
            return self.wrapper_timestamp
        return int.from_bytes(self.data[6:14], "big", signed=True)

    def crc_is_right(self) -> bool:
        return crc32(self.data[4:]) == self.crc

    def key_length(self) -> int:
        """The length as it stands there, negative for null, whether or not the key is."""
        at = 6 if self.magic == 0 else 14
        if len(self.data) - at < 4:
            raise Refused("RECORD_TRUNCATED", "the message ends before a length")
        return int.from_bytes(self.data[at : at + 4], "big", signed=True)

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Bytes after the value are ignored; the CRC covers them, nothing else does.

        A magic that is neither 0 nor 1 is only possible inside a wrapper, where it is read like magic 1.
        """
        key, at = self._sized(6 if self.magic == 0 else 14, "KEY_LENGTH")
        value, _ = self._sized(at, "VALUE_LENGTH")
        return key, value

    def _sized(self, at: int, reason: str) -> tuple[bytes | None, int]:
        if len(self.data) - at < 4:
            raise Refused("RECORD_TRUNCATED", "the message ends before a length")
        length = int.from_bytes(self.data[at : at + 4], "big", signed=True)
        at += 4
        if length < 0:
            return None, at
        if length > len(self.data) - at:
            raise Refused(reason, f"{length} bytes with {len(self.data) - at} left")
        return self.data[at : at + length], at + length


class LegacyBatch(RefBatch):
    """A message of magic 0 or 1 seen as a batch; `data` holds at least 26 bytes."""

    base_timestamp = None
    producer_id = -1
    producer_epoch = -1
    base_sequence = NO_SEQUENCE
    last_sequence = NO_SEQUENCE
    leader_epoch = -1
    is_transactional = False
    is_control = False
    delete_horizon_ms = None
    count = None

    def __init__(self, data: bytes, position: int, max_decompressed_bytes: int) -> None:
        super().__init__(data, position, max_decompressed_bytes)
        self.last_offset = int.from_bytes(data[:8], "big", signed=True)
        self.message = Message(data[LOG_OVERHEAD:])
        self.magic = self.message.magic
        self.crc = self.message.crc
        self.attributes = self.message.attributes
        self.timestamp_type = self.message.timestamp_type
        self.max_timestamp = self.message.timestamp

    @property
    def base_offset(self) -> int:
        try:
            return next(self.messages())[0]
        except Refused as refused:
            raise refused.at(self.position) from refused

    def check_crc(self) -> None:
        if not self.message.crc_is_right():
            raise Refused("CRC", f"got {self.crc:#010x}", self.position)

    def _iterate(self) -> Iterator[RefRecord]:
        for offset, message in self.messages():
            key, value = message.key_and_value()
            yield RefRecord(offset, message.timestamp, key, value)

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Offsets and messages, those inside if this is a wrapper. The checksums inside are not looked at."""
        if not self.is_compressed:
            yield self.last_offset, self.message
            return
        inner = self._inner_messages()
        base = self._absolute_base(inner)
        for offset, message in inner:
            if known_codec(message.codec_id) != "none":
                raise Refused("NESTED_COMPRESSION", "a compressed message inside a compressed message")
            yield int64(base + offset), message

    def _inner_messages(self) -> list[tuple[int, Message]]:
        codec = known_codec(self.codec_id)
        if codec == "zstd":
            raise Refused("UNKNOWN_CODEC", f"zstd in magic {self.magic}")
        _, value = self.message.key_and_value()
        if value is None:
            raise Refused("WRAPPER_VALUE", "a compressed message without a value")
        data = compression.decompress(codec, value, self.magic, self.max_decompressed_bytes)
        inner, position = [], 0
        while len(data) - position >= LOG_OVERHEAD:
            offset, size = struct.unpack_from(">qi", data, position)
            if size < MESSAGE_BYTES_MIN:
                raise Refused("BATCH_SIZE", f"a message of {size} bytes inside a compressed message")
            position += LOG_OVERHEAD
            if size > len(data) - position:
                break  # a message that is cut short ends the set quietly, like a cut offset and size
            message = Message(data[position : position + size])
            if message.magic == 1:
                message = Message(message.data, self.max_timestamp, self.timestamp_type)
            inner.append((offset, message))
            position += size
        if not inner:
            raise Refused("WRAPPER_EMPTY", "a compressed message without messages")
        return inner

    def _absolute_base(self, inner: list[tuple[int, Message]]) -> int:
        """What to add to the offsets inside. Some producers leave 0 in the wrapper: then the inner ones stand."""
        if self.magic == 0 or self.last_offset == 0:
            return 0
        last_inner = inner[-1][0]
        if self.last_offset < last_inner:
            raise Refused("INNER_OFFSET", f"offset {self.last_offset} over a last inner offset of {last_inner}")
        return int64(self.last_offset - last_inner)


def encode_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int,
    timestamp: int = NO_TIMESTAMP,
    timestamp_type: str = CREATE_TIME,
    compression_name: str = "none",
) -> bytes:
    """One message with its offset and size; for a wrapper `value` is already compressed."""
    attributes = codec_id(compression_name)
    if magic == 1 and timestamp_type == LOG_APPEND_TIME:
        attributes |= 0x08
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def encode_set(
    records: Iterable[RefRecord],
    *,
    magic: int,
    base_offset: int | None = None,
    compression_name: str = "none",
    level: int | None = None,
    timestamp_type: str = CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytes:
    """A message set as Kafka's builder writes it: messages one after another, or one wrapper around them."""
    records = list(records)
    if base_offset is None:
        base_offset = records[0].offset
    is_relative = magic == 1 and compression_name != "none"

    def timestamp_of(record: RefRecord) -> int:
        return log_append_time_ms if timestamp_type == LOG_APPEND_TIME else record.timestamp

    plain = b"".join(
        encode_message(
            record.offset - base_offset if is_relative else record.offset,
            record.key,
            record.value,
            magic=magic,
            timestamp=timestamp_of(record),
            timestamp_type=timestamp_type,
        )
        for record in records
    )
    if compression_name == "none":
        return plain
    return encode_message(
        records[-1].offset,
        None,
        compression.compress(compression_name, plain, magic, level),
        magic=magic,
        timestamp=max(timestamp_of(record) for record in records),
        timestamp_type=timestamp_type,
        compression_name=compression_name,
    )


def with_crc(message: bytes) -> bytes:
    """The message (with offset and size) with its checksum made right."""
    return message[:12] + crc32(message[16:]).to_bytes(4, "big") + message[16:]
