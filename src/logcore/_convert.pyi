from typing_extensions import Buffer

def convert_batches(
    buffer: Buffer,
    magic: int,
    *,
    compression: str | None = None,
    level: int | None = None,
    first_offset: int | None = None,
    verify_crc: bool = True,
    max_decompressed_bytes: int | None = None,
    batch_bytes_max: int | None = None,
) -> bytes: ...
