from collections.abc import Iterable
from typing import final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from logcore.errors import CorruptBatch

HEADER_DTYPE: np.dtype[np.void]

class BatchScan:
    headers: npt.NDArray[np.void]
    consumed: int
    is_partial: bool
    error: CorruptBatch | None
    def __init__(
        self, headers: npt.NDArray[np.void], consumed: int, is_partial: bool, error: CorruptBatch | None
    ) -> None: ...
    def __len__(self) -> int: ...

@final
class Prefixes: ...

def scan_batches(
    buffer: Buffer, *, position: int = 0, verify_crc: bool = True, batch_bytes_max: int | None = None
) -> BatchScan: ...
def find_batch(buffer: Buffer, *, position: int = 0, batch_bytes_max: int | None = None) -> int | None: ...
def first_batch_size(buffer: Buffer, *, batch_bytes_max: int | None = None) -> int | None: ...
def split_batches(buffer: Buffer) -> list[memoryview]: ...
def concat_batches(buffers: Iterable[Buffer]) -> bytes: ...
def assign_offsets(buffer: Buffer, base_offset: int, *, leader_epoch: int = -1) -> int: ...
def patch_batch(
    buffer: Buffer,
    *,
    position: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int | None = None,
    timestamp_type: str | None = None,
    max_timestamp: int | None = None,
) -> bool: ...
def increment_sequence(sequence: int, increment: int) -> int: ...
def decrement_sequence(sequence: int, decrement: int) -> int: ...
