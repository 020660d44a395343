from collections.abc import Callable
from typing import final

from typing_extensions import Buffer, Self

from logcore._record import Batch

def siphash128(data: Buffer, *, seed: bytes) -> bytes: ...

@final
class OffsetMap:
    latest_offset: int
    def __new__(cls, memory_bytes: int, *, seed: bytes, first_offset: int | None = None) -> Self: ...
    @property
    def slots(self) -> int: ...
    @property
    def utilization(self) -> float: ...
    def put(self, key: Buffer, offset: int) -> None: ...
    def get(self, key: Buffer) -> int: ...
    def update_latest_offset(self, offset: int) -> None: ...
    def clear(self) -> None: ...
    def check_invariants(self) -> None: ...
    def __len__(self) -> int: ...

class MapResult:
    consumed: int
    is_full: bool
    messages_read: int
    def __init__(self, consumed: int, is_full: bool, messages_read: int) -> None: ...

def map_keys(
    buffer: Buffer,
    offset_map: OffsetMap,
    *,
    first_offset: int,
    limit: int | None = None,
    should_discard_batch: Callable[[Batch], bool] | None = None,
    base_position: int = 0,
    max_decompressed_bytes: int | None = None,
) -> MapResult: ...
