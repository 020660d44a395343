from collections.abc import Sequence

from typing_extensions import Buffer

from logcore._columns import Columns

def decode_columns(
    buffer: Buffer,
    *,
    columns: Sequence[str] | None = None,
    layout: str = "binary",
    verify_crc: bool = True,
    max_decompressed_bytes: int | None = None,
    batch_bytes_max: int | None = None,
    base_position: int = 0,
    include_control: bool = True,
    chunk_bytes_max: int | None = None,
    first_offset: int | None = None,
    end_offset: int | None = None,
) -> Columns: ...
