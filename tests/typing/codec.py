"""How callers' programs look to a type checker: checked by mypy --strict, never run."""

from typing_extensions import assert_type

from logcore._checksum import crc32c, murmur2, partition_for_key
from logcore.errors import CorruptBatch, CorruptionReason, InvalidRecordError, KafkaError, error_for_code

assert_type(crc32c(b"bytes"), int)
assert_type(crc32c(memoryview(b"bytes"), crc=17), int)
assert_type(murmur2(bytearray(b"key")), int)
partition_for_key("key", 6)  # type: ignore[arg-type]  # A str has no bytes until its encoding is chosen.


def position_of(error: CorruptBatch) -> int | None:
    assert_type(error.reason, CorruptionReason)
    assert_type(error.kafka_error, type[KafkaError])
    return error.position


assert_type(error_for_code(87), type[KafkaError])
refused: type[KafkaError] = InvalidRecordError
