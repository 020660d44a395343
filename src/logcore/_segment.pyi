from collections.abc import Iterator
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from logcore._batch import BatchScan
from logcore._index import OffsetIndex, TimeIndex
from logcore._record import Batch

class BatchPosition(NamedTuple):
    base_offset: int
    last_offset: int
    position: int
    size_in_bytes: int

class RecordPosition(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int

@final
class BatchFile:
    @property
    def file(self) -> Any: ...
    def __new__(cls, file: Any) -> Self: ...
    def find(self, offset: int, position: int = 0, end: int | None = None) -> BatchPosition | None: ...
    def start_for(self, index: OffsetIndex, offset: int, end: int | None = None) -> int: ...
    def last(self, position: int = 0, end: int | None = None) -> BatchPosition | None: ...
    def max_timestamp(self, position: int = 0, end: int | None = None) -> tuple[int, int]: ...
    def has_horizon(self, now_ms: int, position: int = 0, end: int | None = None) -> bool: ...
    def find_timestamp(
        self, timestamp: int, first_offset: int, position: int = 0, end: int | None = None
    ) -> RecordPosition | None: ...
    def batches(self, position: int, end: int) -> Iterator[Batch]: ...
    def chunk(self, position: int, end: int, bytes_max: int, *, verify_crc: bool = True) -> tuple[bytes, BatchScan]: ...

@final
class Indexer:
    @property
    def bytes_since_entry(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int: ...
    def __new__(
        cls,
        offsets: OffsetIndex,
        times: TimeIndex,
        interval_bytes: int,
        *,
        log_size: int = 0,
        max_timestamp: int = -1,
        max_timestamp_offset: int | None = None,
    ) -> Self: ...
    def add(self, headers: npt.NDArray[np.void], position: int) -> None: ...
    def finish(self) -> None: ...
    def mark(self) -> tuple[int, int, int, int, int]: ...
    def back_to(self, mark: tuple[int, int, int, int, int]) -> None: ...
