"""The four codecs, read as leniently and as strictly as Kafka's own readers, and never beyond a cap.

What those readers do with odd streams (Kafka 4.3 with the libraries it ships):

    gzip    accepted: several members; anything after a member that does not begin another one; any reserved flag
            refused: a wrong CRC or length in a trailer, a member cut short, a wrong CRC of a header
    snappy  accepted: the xerial framing, several in a row; a bare block; up to 3 bytes after the last chunk
            refused: an empty stream, a chunk cut short, a chunk of 0 bytes
    lz4     accepted: one frame; anything after its end mark; a wrong content checksum or content size; in magic 0 a
            wrong header checksum
            refused: linked blocks, a reserved bit, a dictionary, a block over the frame's maximum, a wrong block
            checksum, a missing end mark
    zstd    accepted: several frames, skippable ones too; nothing at all; a cut anywhere after the first whole frame
            refused: a first frame cut short, bytes that are no frame, a window over 128 MiB

The cap counts decompressed bytes; the stream that passes it is refused while it is being decompressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import cramjam
import lz4.block
import zstandard

from .checksum import crc32, xxhash32
from .model import Refused

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_CHUNK = 32 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = 64 * 1024


def decompress(codec: str, data: bytes, magic: int, bytes_max: int) -> bytes:
    """All bytes of the stream; Refused with DECOMPRESSION, or DECOMPRESSED_SIZE past `bytes_max`."""
    pieces = {
        "none": lambda: iter([data]),
        "gzip": lambda: _gunzip(data, bytes_max),
        "snappy": lambda: _unsnappy(data, bytes_max),
        "lz4": lambda: _unlz4(data, magic),
        "zstd": lambda: _unzstd(data),
    }[codec]()
    out = bytearray()
    for piece in pieces:
        out += piece
        if len(out) > bytes_max:
            raise Refused("DECOMPRESSED_SIZE", f"more than {bytes_max} bytes")
    return bytes(out)


def compress(codec: str, data: bytes, magic: int = 2, level: int | None = None) -> bytes:
    """A stream that Kafka's readers accept; the bytes themselves depend on the library and its version."""
    if codec == "none":
        return data
    if codec == "gzip":
        deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -15)
        trailer = crc32(data).to_bytes(4, "little") + (len(data) % 2**32).to_bytes(4, "little")
        return b"\x1f\x8b\x08" + bytes(7) + deflate.compress(data) + deflate.flush() + trailer
    if codec == "snappy":
        chunks = [bytes(cramjam.snappy.compress_raw(piece)) for piece in _split(data, _XERIAL_CHUNK)]
        return _XERIAL_HEADER + b"".join(len(chunk).to_bytes(4, "big") + chunk for chunk in chunks)
    if codec == "lz4":
        return _lz4_frame(data, magic, level)
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise AssertionError(f"no such codec: {codec}")


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _need(data: bytes, position: int, count: int, what: str) -> bytes:
    if count > len(data) - position:
        raise Refused("DECOMPRESSION", f"the stream ends inside {what}")
    return data[position : position + count]


# --- gzip (RFC 1952, read as java.util.zip.GZIPInputStream does) ---------------------------------------------------

_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16
# A member's trailer and the shortest header and trailer of another one; a rest below that is not looked at.
_GZIP_REST_MIN = 18


def _gzip_header_end(data: bytes, start: int) -> int:
    fixed = _need(data, start, 10, "a gzip header")
    if fixed[:3] != b"\x1f\x8b\x08":
        raise Refused("DECOMPRESSION", "not a gzip header")
    flags, end = fixed[3], start + 10
    if flags & _FEXTRA:
        extra = int.from_bytes(_need(data, end, 2, "a gzip header"), "little")
        _need(data, end + 2, extra, "a gzip header")
        end += 2 + extra
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            zero = data.find(b"\x00", end)
            if zero < 0:
                raise Refused("DECOMPRESSION", "the stream ends inside a gzip header")
            end = zero + 1
    if flags & _FHCRC:
        if int.from_bytes(_need(data, end, 2, "a gzip header"), "little") != crc32(data[start:end]) & 0xFFFF:
            raise Refused("DECOMPRESSION", "wrong CRC of a gzip header")
        end += 2
    return end


def _gunzip(data: bytes, bytes_max: int) -> Iterator[bytes]:
    position = _gzip_header_end(data, 0)
    while True:
        inflate = zlib.decompressobj(-15)
        try:
            content = inflate.decompress(data[position:], bytes_max + 1)
        except zlib.error as error:
            raise Refused("DECOMPRESSION", str(error)) from error
        yield content
        if not inflate.eof:
            raise Refused("DECOMPRESSION", "the stream ends inside a gzip member")
        position = len(data) - len(inflate.unused_data)
        trailer = _need(data, position, 8, "a gzip trailer")
        if trailer != crc32(content).to_bytes(4, "little") + (len(content) % 2**32).to_bytes(4, "little"):
            raise Refused("DECOMPRESSION", "wrong gzip trailer")
        position += 8
        if len(data) - position <= _GZIP_REST_MIN:
            return
        try:
            position = _gzip_header_end(data, position)
        except Refused:
            return  # whatever follows a member without being one is ignored


# --- snappy (read as xerial's SnappyInputStream does) --------------------------------------------------------------


def _snappy_block(block: bytes, bytes_max: int) -> bytes:
    """One bare block; its declared length is checked before anything is allocated."""
    declared = 0
    for index in range(5):
        byte = _need(block, index, 1, "a snappy length")[0]
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise Refused("DECOMPRESSION", "a snappy length has no end")
    if declared >= 2**31:
        raise Refused("DECOMPRESSION", f"a snappy length of {declared}")
    if declared > bytes_max:
        raise Refused("DECOMPRESSED_SIZE", f"a snappy block of {declared} bytes")
    try:
        out = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Refused("DECOMPRESSION", str(error)) from error
    if len(out) != declared:
        raise Refused("DECOMPRESSION", f"a snappy block of {len(out)} bytes that says {declared}")
    return out


def _unsnappy(data: bytes, bytes_max: int) -> Iterator[bytes]:
    if not data:
        raise Refused("DECOMPRESSION", "an empty snappy stream")
    if len(data) < len(_XERIAL_HEADER) or not data.startswith(_XERIAL_MAGIC):
        yield _snappy_block(data, bytes_max)
        return
    position = len(_XERIAL_HEADER)  # the versions in the first header are not looked at
    while len(data) - position >= 4:
        word = data[position : position + 4]
        if word == _XERIAL_MAGIC[:4]:
            header = _need(data, position, len(_XERIAL_HEADER), "a snappy header")
            # Another stream's header, or anything that begins like one: skipped either way.
            if header.startswith(_XERIAL_MAGIC) and int.from_bytes(header[8:12], "big", signed=True) < 1:
                raise Refused("DECOMPRESSION", "an incompatible snappy version")
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(word, "big", signed=True)
        if size < 0:
            raise Refused("DECOMPRESSION", f"a snappy chunk of {size} bytes")
        yield _snappy_block(_need(data, position + 4, size, "a snappy chunk"), bytes_max)
        position += 4 + size


# --- lz4 (the frame format as Kafka's Lz4BlockInputStream reads it) ------------------------------------------------


def _unlz4(data: bytes, magic: int) -> Iterator[bytes]:
    head = _need(data, 0, 6, "an lz4 header")
    if head[:4] != _LZ4_MAGIC:
        raise Refused("DECOMPRESSION", "not an lz4 frame")
    flags, descriptor = head[4], head[5]
    if flags >> 6 != 1 or flags & 0b11:
        raise Refused("DECOMPRESSION", f"lz4 flags {flags:#04x}: another version, or a reserved bit")
    if not flags & 0x20:
        raise Refused("DECOMPRESSION", "lz4 blocks that depend on each other")
    if descriptor & 0x8F or descriptor >> 4 < 4:
        raise Refused("DECOMPRESSION", f"lz4 block descriptor {descriptor:#04x}")
    block_bytes_max = 1 << (2 * (descriptor >> 4) + 8)
    position = 6
    if flags & 0x08:  # a content size, skipped
        _need(data, position, 8, "an lz4 content size")
        position += 8
    checksum = _need(data, position, 1, "an lz4 header")[0]
    # Old clients hashed the frame's magic too, so the byte proves nothing in messages of magic 0.
    if magic != 0 and checksum != xxhash32(data[4:position]) >> 8 & 0xFF:
        raise Refused("DECOMPRESSION", "wrong checksum of an lz4 header")
    position += 1
    while True:
        word = int.from_bytes(_need(data, position, 4, "an lz4 block size"), "little")
        position += 4
        size, stored = word & 0x7FFFFFFF, word >> 31
        if size == 0:  # the end mark, even with the "stored" bit
            if flags & 0x04:
                _need(data, position, 4, "an lz4 content checksum")  # must be there, may be wrong
            return
        if size > block_bytes_max:
            raise Refused("DECOMPRESSION", f"an lz4 block of {size} bytes in a frame of {block_bytes_max}")
        block = _need(data, position, size, "an lz4 block")
        position += size
        if flags & 0x10:
            if int.from_bytes(_need(data, position, 4, "an lz4 block checksum"), "little") != xxhash32(block):
                raise Refused("DECOMPRESSION", "wrong checksum of an lz4 block")
            position += 4
        content = block if stored else _lz4_block(block, block_bytes_max)
        if not content:
            return  # a block that holds nothing reads like the end of the stream
        yield content


def _lz4_block(block: bytes, bytes_max: int) -> bytes:
    try:
        return bytes(lz4.block.decompress(block, uncompressed_size=bytes_max))
    except lz4.block.LZ4BlockError as error:
        raise Refused("DECOMPRESSION", str(error)) from error


def _lz4_frame(data: bytes, magic: int, level: int | None) -> bytes:
    out = bytearray(_LZ4_MAGIC + b"\x60\x40")  # version 1, independent blocks; blocks of 64 KiB
    out.append(xxhash32(bytes(out) if magic == 0 else bytes(out[4:])) >> 8 & 0xFF)
    for piece in _split(data, _LZ4_BLOCK_BYTES):
        if level is None:
            block = lz4.block.compress(piece, store_size=False)
        else:
            block = lz4.block.compress(piece, mode="high_compression", compression=level, store_size=False)
        if len(block) < len(piece):
            out += len(block).to_bytes(4, "little") + block
        else:
            out += (len(piece) | 1 << 31).to_bytes(4, "little") + piece
    return bytes(out + bytes(4))


# --- zstd (read as zstd-jni's ZstdInputStream does) ----------------------------------------------------------------

# Fed in small pieces, so that a small stream that grows huge meets the cap early.
_ZSTD_FEED_BYTES = 256
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE_MAGICS = tuple(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))


def _unzstd(data: bytes) -> Iterator[bytes]:
    position, frames = 0, 0
    while position < len(data):
        # Asked here because older libraries wait for a whole magic before they refuse a wrong one.
        begin = data[position : position + 4]
        if not any(magic.startswith(begin) for magic in (_ZSTD_MAGIC, *_ZSTD_SKIPPABLE_MAGICS)):
            raise Refused("DECOMPRESSION", "bytes that begin no zstd frame")
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            while position < len(data) and not frame.eof:
                piece = data[position : position + _ZSTD_FEED_BYTES]
                content = frame.decompress(piece)
                position += len(piece) - len(frame.unused_data)
                yield content
        except zstandard.ZstdError as error:
            raise Refused("DECOMPRESSION", str(error)) from error
        if not frame.eof and frames == 0:
            raise Refused("DECOMPRESSION", "the stream ends inside its first zstd frame")
        frames += 1
