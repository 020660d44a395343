from collections.abc import Callable, Mapping
from typing import Literal, final

from typing_extensions import Buffer

from logcore._offsetmap import OffsetMap
from logcore._record import Batch, Record

_Retention = Literal["delete", "delete_empty", "retain_empty"]

@final
class LastRecords:
    def __init__(self, last_records: Mapping[int, tuple[int | None, int]]) -> None: ...
    def __len__(self) -> int: ...

class FilterResult:
    output: bytes
    consumed: int
    messages_read: int
    messages_retained: int
    invalid_messages_read: int
    max_offset: int
    max_timestamp: int
    shallow_offset_of_max_timestamp: int
    def __init__(
        self,
        output: bytes,
        consumed: int,
        messages_read: int,
        messages_retained: int,
        invalid_messages_read: int,
        max_offset: int,
        max_timestamp: int,
        shallow_offset_of_max_timestamp: int,
    ) -> None: ...

def filter_batches(
    buffer: Buffer,
    offset_map: OffsetMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    should_discard_batch: Callable[[Batch], bool] | None = None,
    last_records: LastRecords | Mapping[int, tuple[int | None, int]] | None = None,
    retain_legacy_deletes: bool = True,
    upper_bound_offset: int | None = None,
    output_bytes_max: int | None = None,
    base_position: int = 0,
    max_decompressed_bytes: int | None = None,
) -> FilterResult: ...
def filter_batches_by(
    buffer: Buffer,
    check_batch_retention: Callable[[Batch], _Retention | tuple[_Retention, bool]],
    should_retain_record: Callable[[Batch, Record], bool],
    *,
    now_ms: int = 0,
    delete_retention_ms: int = 0,
    output_bytes_max: int | None = None,
    base_position: int = 0,
    max_decompressed_bytes: int | None = None,
) -> FilterResult: ...
