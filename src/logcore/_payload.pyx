"""The compressed part of a batch as plain bytes: the one place where reading meets decompression."""

from libc.stdint cimport int64_t

from logcore._arguments cimport check_optional
from logcore._batch cimport CODEC_MASK, Header
from logcore._buffer cimport Source
from logcore._compression cimport CODEC_COUNT, codec_name, decompress_span

from logcore.errors import CorruptBatch, CorruptionReason


cdef int64_t decompressed_limit(object max_decompressed_bytes) except -1:
    max_decompressed_bytes = check_optional("max_decompressed_bytes", max_decompressed_bytes, 1, 0x7FFFFFFFFFFFFFFF)
    return DECOMPRESSED_BYTES_MAX if max_decompressed_bytes is None else max_decompressed_bytes


cdef Source decompressed(Source source, const Header* header, Py_ssize_t skip, Py_ssize_t size, int64_t bytes_max, int64_t shift):
    """Decompress `size` bytes that lie `skip` bytes into the batch of `header`, to at most `bytes_max`.

    `shift` is where the source begins in what the caller reads, for positions in errors.
    """
    cdef int codec = header.attributes & CODEC_MASK
    cdef Py_ssize_t begin = header.position + skip
    if codec >= CODEC_COUNT:
        raise CorruptBatch("codec", reason=CorruptionReason.UNKNOWN_CODEC, got=codec_name(codec),
                           wanted="none, gzip, snappy, lz4 or zstd", position=header.position + shift,
                           offset=header.base_offset)
    try:
        return Source(decompress_span(codec, source.data + begin, size, bytes_max, header.magic))
    except CorruptBatch as error:
        raise CorruptBatch(error.what, reason=error.reason, got=error.got, wanted=error.wanted,
                           position=header.position + shift, offset=header.base_offset,
                           at=None if error.at is None else error.at + skip) from None
