from typing import Any, final

from typing_extensions import Self

from logcore._record import Record

@final
class RecordReader:
    @property
    def next_offset(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...

def read_records(
    log: Any, view: Any, offset: int, end_offset: int, *, is_committed: bool = False, bytes_max: int | None = None
) -> RecordReader: ...
