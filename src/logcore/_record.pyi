from collections.abc import Iterable, Iterator
from typing import ClassVar, SupportsIndex, TypeAlias, final

from typing_extensions import Buffer, Self

_Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]
_RecordLike: TypeAlias = (
    Record
    | tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, SupportsIndex | None]
    | tuple[Buffer | None, Buffer | None, SupportsIndex | None, _Headers | None]
)

@final
class Record:
    def __init__(
        self,
        offset: int = -1,
        timestamp: int = -1,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: _Headers | None = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    def __iter__(self) -> Iterator[object]: ...
    def __hash__(self) -> int: ...

@final
class Batch:
    @property
    def position(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def size_in_bytes(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def compression(self) -> str: ...
    @property
    def is_compressed(self) -> bool: ...
    @property
    def timestamp_type(self) -> str: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def count(self) -> int | None: ...
    @property
    def data(self) -> memoryview: ...
    def records(self, *, stored_timestamps: bool = False, first_offset: int | None = None) -> Iterator[Record]: ...
    def control_records(self) -> list[ControlRecord]: ...
    def __iter__(self) -> Iterator[Record]: ...

@final
class RecordIterator:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...
    def __length_hint__(self) -> int: ...

@final
class BatchIterator:
    @property
    def consumed(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...

CONTROL_TYPES: tuple[str, ...]

class ControlRecord:
    offset: int
    timestamp: int
    type: str
    type_id: int
    version: int
    value: bytes | None
    coordinator_epoch: int | None
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __init__(
        self,
        offset: int,
        timestamp: int,
        type: str,
        type_id: int,
        version: int,
        value: bytes | None,
        coordinator_epoch: int | None,
    ) -> None: ...
    def __eq__(self, other: object) -> bool: ...

def decode_batches(
    buffer: Buffer,
    *,
    verify_crc: bool = True,
    max_decompressed_bytes: int | None = None,
    batch_bytes_max: int | None = None,
    base_position: int = 0,
) -> BatchIterator: ...
def encode_batch(
    records: Iterable[_RecordLike],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: str | None = "none",
    level: int | None = None,
    timestamp_type: str = "create_time",
    log_append_time_ms: int | None = None,
    now_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    magic: int = 2,
    batch_bytes_max: int | None = None,
) -> bytes: ...
def encode_batches(
    records: Iterable[_RecordLike],
    *,
    batch_bytes: int = 1048576,
    base_offset: int = 0,
    compression: str | None = "none",
    level: int | None = None,
    timestamp_type: str = "create_time",
    log_append_time_ms: int | None = None,
    now_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes: ...
def encode_empty_batch(
    base_offset: int,
    last_offset: int,
    *,
    max_timestamp: int = -1,
    timestamp_type: str = "create_time",
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes: ...
def encode_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    offset: int = 0,
    timestamp: int = -1,
    leader_epoch: int = -1,
) -> bytes: ...
