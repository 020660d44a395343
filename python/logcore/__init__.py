"""Apache Kafka's log as a library: logs in your process, and the codec alone, Kafka's record batches in bytes of yours.

logs      open_log -> Log: append, read, follow, flush, retain, compact; columns in and out
roots     open_root -> LogRoot: many topics and partitions
rows      encode_batch, decode_batches -> Batch -> Record
columns   decode_columns -> Columns, encode_columns
buffers   scan_batches, split_batches, concat_batches, find_batch, patch_batch, assign_offsets
errors    LogcoreError and its tree (logcore.errors)
"""

from logcore._batch import (
    BatchScan,
    assign_offsets,
    concat_batches,
    decrement_sequence,
    find_batch,
    first_batch_size,
    increment_sequence,
    patch_batch,
    scan_batches,
    split_batches,
)
from logcore._checksum import crc32c, murmur2, partition_for_key
from logcore._columns import BinaryColumn, Columns, ColumnsStream, HeadersColumn, ViewColumn
from logcore._convert import convert_batches
from logcore._decode import decode_columns
from logcore._encode import encode_columns
from logcore._record import (
    Batch,
    BatchIterator,
    ControlRecord,
    Record,
    decode_batches,
    encode_batch,
    encode_batches,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._validate import AppendBatch, ValidationResult, validate, validate_and_assign
from logcore.errors import (
    CorruptBatch,
    CorruptionError,
    CorruptionReason,
    InvariantError,
    KafkaError,
    LogcoreError,
    PeerError,
    StorageError,
    UsageError,
    UsageTypeError,
)
from logcore.library.log import Log, open_log
from logcore.library.log_root import LogRoot, open_root
from logcore.log.appending import AppendResult
from logcore.log.compaction import CompactionResult
from logcore.log.loader import Recovery
from logcore.log.searching import OffsetAndTimestamp

__version__ = "0.1.0"

__all__ = [
    "AppendBatch",
    "AppendResult",
    "Batch",
    "BatchIterator",
    "BatchScan",
    "BinaryColumn",
    "Columns",
    "ColumnsStream",
    "CompactionResult",
    "ControlRecord",
    "CorruptBatch",
    "CorruptionError",
    "CorruptionReason",
    "HeadersColumn",
    "InvariantError",
    "KafkaError",
    "Log",
    "LogRoot",
    "LogcoreError",
    "OffsetAndTimestamp",
    "PeerError",
    "Record",
    "Recovery",
    "StorageError",
    "UsageError",
    "UsageTypeError",
    "ValidationResult",
    "ViewColumn",
    "assign_offsets",
    "concat_batches",
    "convert_batches",
    "crc32c",
    "decode_batches",
    "decode_columns",
    "decrement_sequence",
    "encode_batch",
    "encode_batches",
    "encode_columns",
    "encode_empty_batch",
    "encode_transaction_marker",
    "find_batch",
    "first_batch_size",
    "increment_sequence",
    "murmur2",
    "open_log",
    "open_root",
    "partition_for_key",
    "patch_batch",
    "scan_batches",
    "split_batches",
    "validate",
    "validate_and_assign",
]
