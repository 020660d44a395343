from typing import Literal, final

from typing_extensions import Buffer

_TimestampType = Literal["create_time", "log_append_time"]
_CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
_Origin = Literal["client", "coordinator", "raft_leader", "replication"]

@final
class ValidationResult:
    @property
    def record_count(self) -> int | None: ...
    @property
    def batch_count(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def consumed(self) -> int: ...

@final
class AppendBatch:
    @property
    def data(self) -> Buffer: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def record_count(self) -> int | None: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def converted(self) -> bool: ...
    @property
    def converted_count(self) -> int | None: ...
    @property
    def temporary_bytes(self) -> int: ...

def validate(
    buffer: Buffer,
    *,
    now_ms: int,
    timestamp_type: _TimestampType = "create_time",
    timestamp_before_max_ms: int = ...,
    timestamp_after_max_ms: int = 3600000,
    compacted: bool = False,
    compression: _CompressionType = "producer",
    level: int | None = None,
    origin: _Origin = "client",
    magic: int = 2,
    leader_epoch: int = -1,
    batch_bytes_max: int | None = None,
    max_decompressed_bytes: int | None = None,
    verify_crc: bool = True,
    check_base_offset: bool = True,
) -> ValidationResult: ...
def validate_and_assign(
    buffer: Buffer,
    *,
    first_offset: int,
    now_ms: int,
    timestamp_type: _TimestampType = "create_time",
    timestamp_before_max_ms: int = ...,
    timestamp_after_max_ms: int = 3600000,
    compacted: bool = False,
    compression: _CompressionType = "producer",
    level: int | None = None,
    origin: _Origin = "client",
    magic: int = 2,
    leader_epoch: int = -1,
    batch_bytes_max: int | None = None,
    max_decompressed_bytes: int | None = None,
    verify_crc: bool = True,
    check_base_offset: bool = True,
) -> AppendBatch: ...
