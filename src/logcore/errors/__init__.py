"""Kafka's error table and the exception tree.

    tree.py     the tree: CorruptionError and its reasons, UsageError, PeerError, StorageError, InvariantError
    kafka.py    KafkaError, Kafka's table of error codes, and one class for each row: InvalidRecordError, …

It lies below everything: it imports nothing else of logcore, and everything else may import it.
"""

from . import kafka as _kafka
from .kafka import ERROR_TABLE, ErrorRow, KafkaError, LogTruncatedError, error_for_code, error_for_name, kafka_error
from .tree import (
    CorruptBatch,
    CorruptCheckpoint,
    CorruptIndex,
    CorruptionError,
    CorruptionReason,
    CorruptSnapshot,
    InvariantError,
    LockedError,
    LogcoreError,
    PeerError,
    RecordError,
    StorageError,
    UsageError,
    UsageTypeError,
)

__all__ = [
    "ERROR_TABLE",
    "CorruptBatch",
    "CorruptCheckpoint",
    "CorruptIndex",
    "CorruptSnapshot",
    "CorruptionError",
    "CorruptionReason",
    "ErrorRow",
    "InvariantError",
    "KafkaError",
    "LockedError",
    "LogTruncatedError",
    "LogcoreError",
    "PeerError",
    "RecordError",
    "StorageError",
    "UsageError",
    "UsageTypeError",
    "error_for_code",
    "error_for_name",
    "kafka_error",
]

globals().update(_kafka.CLASSES)

# Tracebacks and pickles name the classes where users find them, not the file they happen to stand in.
for _class in [value for value in globals().values() if isinstance(value, type)]:
    _class.__module__ = __name__


def __getattr__(name: str) -> type[KafkaError]:
    # Tells type checkers what the generated names are. At run time those are found before this is asked.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and Kafka no error of that name")
