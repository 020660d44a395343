"""Kafka's four codecs: streams that Kafka's readers accept, and a reader that no stream can make use much memory.

The streams, whose bytes _framing.pyx draws:

    gzip     Written: one member, without name, time or operating system, as Java's GZIPOutputStream writes it.
    snappy   Written: xerial's framing, versions 1 and 1, blocks of 32 KiB. Read: also one bare block.
    lz4      Written: FLG 60, BD 40: version 1, independent blocks of 64 KiB, no checksums, no size. The header's
             checksum HC is (xxh32(FLG to size) >> 8) & 0xff; Kafka's first writers hashed the magic too, so that broken
             value is written for magic 0, and none is compared when reading it.
    zstd     Written: one frame with its content size, no checksum.

The cap. `decompress` takes the most bytes that may come out and never hands out more. It walks the framing first, which
gives an upper bound of the output from the block headers alone; the output is allocated once, with the smaller of that
bound and the cap, so a payload of ten bytes never claims the cap for itself. Beside the output it uses

    gzip     at most 12 MiB   (one step of output in pieces and joined, one step of input)
    snappy   nothing          (blocks are decoded in place)
    lz4      at most 8 MiB    (one block and its copy; the frame format ends at 4 MiB a block, Kafka writes 64 KiB; or
                              all blocks and their copy, where both are no more than that or than the cap)
    zstd     the window the frame asks for, at most 128 MiB as in zstd's own default, and a small context

What is read is what Kafka's readers read (java.util.zip, snappy-java, Kafka's own lz4 frames, zstd-jni): further gzip
members, snappy streams and zstd frames are read on; bytes behind an lz4 end mark or the last gzip member are ignored.
Nothing is read that they refuse. Refused although they happen to read it: reserved flags of a gzip header, a snappy
header in mid-stream that is none, and a zstd frame cut off behind a whole one, which zstd-jni drops without a word when
both came in one read.

Damage in the framing is told with its byte (`at`, counted from the start of the payload); damage inside a block, which
only the library sees, with the library's words and the byte where its block begins.

Threads: every function may be called from any number of them. The libraries release the GIL while they work. zstd's
contexts are costly to make and not thread safe: they wait in pools, and a call owns the one it took.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import zlib

import cramjam
import lz4.block
import lz4.frame
import xxhash
import zstandard

from logcore._buffer cimport NewBytes, Source
from logcore._bytes cimport store32
from logcore._framing cimport (
    GZIP_CUT, GZIP_FLG_HEADER_CRC, GZIP_FLG_POSITION, LZ4_BLOCK_CHECKSUM, LZ4_BLOCK_SIZE_MAX, LZ4_BLOCK_SIZE_MIN,
    LZ4_FLG_BLOCK_CHECKSUM, LZ4_FLG_CONTENT_CHECKSUM, LZ4_FLG_CONTENT_SIZE, LZ4_HEADER_CHECKSUM, SNAPPY_EMPTY,
    XERIAL_HEADER, XERIAL_HEADER_BYTES, Damage, Lz4Block, Lz4Frame, SnappyBlock, ZstdPlan, damaged, fail,
    gzip_header_bytes, load32le, lz4_behind, lz4_block, lz4_block_bound, lz4_header, lz4_walk, snappy_block,
    snappy_framed, snappy_next, snappy_total, zstd_walk,
)
from logcore.errors import CorruptBatch, CorruptionReason, UsageError, UsageTypeError


cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

cdef tuple _names = CODECS
cdef dict _ids = {name: number for number, name in enumerate(CODECS)}

# The libraries, looked up once: a call on a batch of 16 KiB can take 3 microseconds, and a lookup 50 nanoseconds.
cdef object _zlib_compressobj = zlib.compressobj
cdef object _zlib_decompressobj = zlib.decompressobj
cdef object _zlib_error = zlib.error
cdef object _zlib_crc32 = zlib.crc32
cdef object _snappy_compress_into = cramjam.snappy.compress_raw_into
cdef object _snappy_decompress_into = cramjam.snappy.decompress_raw_into
cdef object _snappy_error = cramjam.DecompressionError
cdef object _lz4_frame_compress = lz4.frame.compress
cdef object _lz4_block_decompress = lz4.block.decompress
cdef object _lz4_block_error = lz4.block.LZ4BlockError
cdef object _lz4_context = lz4.frame.create_decompression_context
cdef object _lz4_context_reset = lz4.frame.reset_decompression_context
cdef object _lz4_frame_decompress = lz4.frame.decompress_chunk
cdef object _xxh32 = xxhash.xxh32_intdigest
cdef object _ZstdCompressor = zstandard.ZstdCompressor
cdef object _ZstdDecompressor = zstandard.ZstdDecompressor
cdef object _zstd_error = zstandard.ZstdError


# ---------------------------------------------------------------------------------------------------------- errors

cdef object refused(str what, object error, object at=None):
    """The exception for what a library refused, in its words."""
    return CorruptBatch(what, reason=CorruptionReason.DECOMPRESSION, got=str(error), wanted="a valid stream", at=at)


cdef object too_large(str codec, int64_t got, Py_ssize_t bytes_max, str least="at least "):
    """The exception for a stream with more in it than the caller allows; `got` may be only what came so far."""
    return CorruptBatch(
        f"{codec} decompressed size",
        reason=CorruptionReason.DECOMPRESSED_SIZE,
        got=f"{least}{got} bytes",
        wanted=f"at most {bytes_max}",
    )


# ----------------------------------------------------------------------------------------------------------- bytes

cdef enum:
    POOL_MAX = 8       # idle contexts of one kind


cdef inline object view_of(const uint8_t* data, Py_ssize_t size):
    """A read-only view to hand to a library for one call; nobody may keep it."""
    return PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ)


cdef inline object room_at(char* data, Py_ssize_t size):
    """A writable view to hand to a library for one call; nobody may keep it."""
    return PyMemoryView_FromMemory(data, size, PyBUF_WRITE)


# ------------------------------------------------------------------------------------------------------------ gzip

cdef enum:
    GZIP_WBITS = 31                  # a window of 2^15, in a gzip member
    GZIP_MEMBER_REST_MIN = 19        # Java looks for a further member only behind this many bytes
    GZIP_EXPANSION_MAX = 1032        # a match of 258 bytes costs at least two bits
    GZIP_INPUT_STEP = 4194304        # what zlib may copy as unconsumed
    GZIP_MEMBER_STEP = 2048          # doubled from here on for a further member
    GZIP_OUTPUT_STEP = 4194304       # what zlib collects in pieces and then joins
    GZIP_CAPACITY_STEP = 67108864    # more than one output step, and doubled while that is not enough


cdef bytes gzip_compress(const uint8_t* data, Py_ssize_t size, int level):
    deflate = _zlib_compressobj(level, zlib.DEFLATED, GZIP_WBITS)
    head = deflate.compress(view_of(data, size))
    cdef bytes stream = head + deflate.flush()
    # zlib notes the level and the operating system in the header, Java neither. These bytes are new, and ours alone.
    cdef char* header = PyBytes_AS_STRING(stream)
    header[8] = 0
    header[9] = <char>0xFF
    return stream


cdef bint gzip_member_follows(const uint8_t* data, Py_ssize_t size):
    """Whether Java's GZIPInputStream goes on here, behind a member, or takes what is left as padding."""
    cdef Py_ssize_t header_bytes
    if size < GZIP_MEMBER_REST_MIN:
        return False
    header_bytes = gzip_header_bytes(data, size)
    if header_bytes == 0:
        return False
    if data[GZIP_FLG_POSITION] & GZIP_FLG_HEADER_CRC:
        if 2 > size - header_bytes:
            return False
        stored = data[header_bytes] | <uint32_t>data[header_bytes + 1] << 8
        return stored == _zlib_crc32(view_of(data, header_bytes)) & 0xFFFF
    return True


cdef bytes gzip_decompress(const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max):
    cdef Py_ssize_t pos = min(size, <Py_ssize_t>GZIP_INPUT_STEP)
    cdef Py_ssize_t room = min(bytes_max, <Py_ssize_t>GZIP_OUTPUT_STEP - 1) + 1
    inflate = _zlib_decompressobj(GZIP_WBITS)
    try:
        # One byte more than allowed tells a stream that ends at the cap from one that goes on.
        piece = inflate.decompress(view_of(data, pos), room)
        if not inflate.eof or inflate.unused_data or pos < size:
            return gzip_decompress_on(data, size, bytes_max, inflate, piece, pos, room)
    except _zlib_error as error:
        raise refused("gzip stream", error) from None
    if len(piece) > bytes_max:
        raise too_large("gzip", len(piece), bytes_max)
    return piece


cdef bytes gzip_decompress_on(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, object inflate, bytes piece, Py_ssize_t pos,
    Py_ssize_t room,
):
    """The rest of a stream that one call did not finish: it is large, has several members, or is cut.

    `pos` bytes were given to `inflate`, which may give some back; `piece` came out, of at most `room` bytes.
    """
    cdef Py_ssize_t bound = bytes_max if size > bytes_max // GZIP_EXPANSION_MAX else size * GZIP_EXPANSION_MAX
    # Pages that are never written cost nothing, and from this size on growing moves pages, not bytes.
    cdef NewBytes out = NewBytes.new(min(bound, <Py_ssize_t>GZIP_CAPACITY_STEP))
    cdef Py_ssize_t taken, step = GZIP_INPUT_STEP
    cdef Damage damage
    while True:
        if len(piece) > bound - out.used:
            raise too_large("gzip", out.used + len(piece), bytes_max)
        if len(piece) > out.capacity - out.used:
            out.resize(bound if out.capacity > bound // 2 else 2 * out.capacity)
        memcpy(out.data + out.used, PyBytes_AS_STRING(piece), <size_t>len(piece))
        out.used += len(piece)
        if inflate.eof:
            pos -= len(inflate.unused_data)
            if not gzip_member_follows(data + pos, size - pos):
                return out.finish()
            inflate = _zlib_decompressobj(GZIP_WBITS)
            # zlib copies what lies behind a member. Small steps first, or many small members would cost the square.
            step = GZIP_MEMBER_STEP
        else:
            pos -= len(inflate.unconsumed_tail)
            # zlib may hold output back when it filled the room exactly; only less than that means it starves.
            if pos == size and len(piece) < room:
                fail(&damage, GZIP_CUT, size, size, 0)
                raise damaged(&damage)
        step = min(2 * step, <Py_ssize_t>GZIP_INPUT_STEP)
        taken = min(size - pos, step)
        room = min(bytes_max - out.used, <Py_ssize_t>GZIP_OUTPUT_STEP - 1) + 1
        piece = inflate.decompress(view_of(data + pos, taken), room)
        pos += taken


# ---------------------------------------------------------------------------------------------------------- snappy

cdef enum:
    XERIAL_BLOCK_BYTES = 32768    # SnappyOutputStream's default, which Kafka keeps


cdef inline Py_ssize_t snappy_bytes_max(Py_ssize_t size) noexcept nogil:
    """The most that raw snappy makes of `size` bytes; cramjam wants that much room."""
    return 32 + size + size // 6


cdef bytes snappy_compress(const uint8_t* data, Py_ssize_t size):
    cdef Py_ssize_t block_count = (size + XERIAL_BLOCK_BYTES - 1) // XERIAL_BLOCK_BYTES
    cdef Py_ssize_t pos = 0, step, block_bytes
    cdef NewBytes out = NewBytes.new(XERIAL_HEADER_BYTES + size + size // 6 + 1 + 37 * block_count)
    cdef uint8_t* block
    memcpy(out.data, XERIAL_HEADER, XERIAL_HEADER_BYTES)
    out.used = XERIAL_HEADER_BYTES
    while pos < size:
        step = min(size - pos, <Py_ssize_t>XERIAL_BLOCK_BYTES)
        block = out.data + out.used
        block_bytes = _snappy_compress_into(
            view_of(data + pos, step), room_at(<char*>block + 4, snappy_bytes_max(step))
        )
        store32(block, <int32_t>block_bytes)
        out.used += 4 + block_bytes
        pos += step
    return out.finish()


cdef bytes snappy_decompress(const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max):
    cdef const uint8_t* pos = data
    cdef const uint8_t* end = data + size
    cdef bint framed = snappy_framed(data, size)
    cdef SnappyBlock block
    cdef Damage damage
    cdef int64_t total = 0
    cdef Py_ssize_t done = 0, plain_bytes
    cdef bytes out
    cdef char* plain
    if size == 0:
        fail(&damage, SNAPPY_EMPTY, 0, 0, 1)
        raise damaged(&damage)
    if framed:
        if snappy_total(data, size, bytes_max, &total, &damage):
            raise damaged(&damage)
        pos += XERIAL_HEADER_BYTES
    else:
        if snappy_block(data, data, size, &block, &damage):
            raise damaged(&damage)
        total = block.plain_bytes
    if total > bytes_max:
        raise too_large("snappy", total, bytes_max)
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
    plain = PyBytes_AS_STRING(out)
    while True:
        if framed:
            # Read again with the same checks: the caller's bytes may be writable, and change under us.
            if snappy_next(data, pos, end, &block, &damage):
                raise damaged(&damage)
            if block.data == NULL:
                break
        if block.plain_bytes > total - done:
            raise too_large("snappy", done + block.plain_bytes, <Py_ssize_t>total)
        try:
            plain_bytes = _snappy_decompress_into(
                view_of(block.data, block.size), room_at(plain + done, block.plain_bytes)
            )
        except _snappy_error as error:
            raise refused("snappy block", error, block.data - data) from None
        done += plain_bytes
        pos = block.data + block.size
        if not framed:
            break
    if done != total:
        raise refused("snappy stream", f"{done} bytes where its blocks said {total}")
    return out


# ------------------------------------------------------------------------------------------------------------- lz4

cdef enum:
    LZ4_CHECKSUM_POSITION = 6        # of the header checksum, without a content size
    LZ4_BLOCK_BYTES = 65536
    LZ4_FRAME_COPY_BYTES_MAX = 8388608   # a whole frame may be decoded at once and copied up to this size

# Kafka's level -> liblz4's frame level. Kafka's default, 9, is lz4-java's fast compressor (0 here); every other level
# is its high compressor at that level. liblz4's frames have that from 3 up (1 and 2 would be the same search, a little
# shallower), and nothing is above 12: lz4-java, too, does the same for 12 and 17.
cdef int* LZ4_LEVELS = [0, 3, 3, 3, 4, 5, 6, 7, 8, 0, 10, 11, 12, 12, 12, 12, 12, 12]

cdef list _lz4_contexts = []     # idle, and reset

cdef dict _lz4_frame_options = {
    level: {
        "compression_level": level,
        "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,
        "content_checksum": False,
        "block_checksum": False,
        "store_size": False,
    }
    for level in [LZ4_LEVELS[i] for i in range(18)]
}


cdef int lz4_header_checksum(const uint8_t* descriptor, Py_ssize_t size) except -1:
    cdef uint32_t digest = _xxh32(view_of(descriptor, size))
    return <int>(digest >> 8 & 0xFF)


# The header checksum of every descriptor without a content size, by FLG's bits 2 to 4 and BD: worked out once.
cdef uint8_t[32] LZ4_HEADER_CHECKSUMS

cdef inline int lz4_descriptor_index(uint8_t flags, uint8_t descriptor) noexcept nogil:
    return (flags >> 2 & 7) << 2 | (descriptor >> 4 & 3)

cdef _fill_lz4_header_checksums():
    cdef uint8_t[2] descriptor
    cdef int flags, size
    for flags in range(0x60, 0x80, 4):
        for size in range(LZ4_BLOCK_SIZE_MIN, LZ4_BLOCK_SIZE_MAX + 1):
            descriptor[0] = <uint8_t>flags
            descriptor[1] = <uint8_t>(size << 4)
            LZ4_HEADER_CHECKSUMS[lz4_descriptor_index(descriptor[0], descriptor[1])] = <uint8_t>lz4_header_checksum(
                descriptor, 2
            )

_fill_lz4_header_checksums()

# The one wrong byte of Kafka's first lz4 writers: hashed over the magic as well.
cdef int LZ4_HEADER_CHECKSUM_BROKEN = lz4_header_checksum(b"\x04\x22\x4d\x18\x60\x40", 6)


cdef bytes lz4_compress(const uint8_t* data, Py_ssize_t size, int level, int magic):
    cdef bytes frame = _lz4_frame_compress(view_of(data, size), **<dict>_lz4_frame_options[LZ4_LEVELS[level]])
    if magic == 0:
        # These bytes are new, and ours alone.
        PyBytes_AS_STRING(frame)[LZ4_CHECKSUM_POSITION] = <char>LZ4_HEADER_CHECKSUM_BROKEN
    return frame


cdef bytes lz4_decompress(const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, int magic):
    cdef Lz4Frame frame
    cdef Damage damage
    cdef int checksum
    cdef bytes plain
    if lz4_header(data, size, &frame, &damage):
        raise damaged(&damage)
    if frame.flags & LZ4_FLG_CONTENT_SIZE:
        checksum = lz4_header_checksum(data + 4, frame.header_bytes - 4)
    else:
        checksum = LZ4_HEADER_CHECKSUMS[lz4_descriptor_index(frame.flags, data[5])]
    if data[frame.header_bytes] != checksum and magic != 0:
        fail(&damage, LZ4_HEADER_CHECKSUM, frame.header_bytes, data[frame.header_bytes], checksum)
        raise damaged(&damage)
    if lz4_walk(data, size, &frame, &damage):
        raise damaged(&damage)
    # The library's frame reader saves a copy a block, but holds all of them twice. It is also stricter than Kafka's: it
    # compares what Kafka skips, the content's size and checksum and an old client's header checksum.
    if (
        frame.block_count > 1
        and frame.block_bytes_max == LZ4_BLOCK_BYTES
        and not frame.flags & (LZ4_FLG_CONTENT_SIZE | LZ4_FLG_CONTENT_CHECKSUM)
        and data[frame.header_bytes] == checksum
        and frame.bound <= bytes_max
        and frame.bound <= max(<int64_t>LZ4_FRAME_COPY_BYTES_MAX, bytes_max // 2)
    ):
        plain = lz4_decompress_whole(data, frame.header_bytes + 1 + frame.blocks_bytes, <Py_ssize_t>frame.bound)
        if plain is not None:
            return plain
    return lz4_decompress_blocks(data, size, bytes_max, &frame)


cdef bytes lz4_decompress_whole(const uint8_t* data, Py_ssize_t size, Py_ssize_t bound):
    """A walked frame of blocks of 64 KiB in one call; None if the library refuses it, without saying where."""
    try:
        context = _lz4_contexts.pop()
    except IndexError:
        context = _lz4_context()
    try:
        # A byte of room to spare: with none left, the library stops before it has seen the end mark.
        plain, _, ended = _lz4_frame_decompress(context, view_of(data, size), bound + 1)
    except RuntimeError:
        return None
    if not ended or len(plain) > bound:
        return None
    _lz4_context_reset(context)
    if len(_lz4_contexts) < POOL_MAX:
        _lz4_contexts.append(context)
    return plain


cdef bytes lz4_decompress_blocks(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, const Lz4Frame* frame
):
    """A walked frame, block by block."""
    cdef Lz4Block block
    cdef Damage damage
    cdef uint32_t digest
    cdef const uint8_t* pos = data + frame.header_bytes + 1
    cdef NewBytes out = None
    cdef Py_ssize_t done = 0, capacity = <Py_ssize_t>min(frame.bound, <int64_t>bytes_max)
    cdef bytes piece
    while True:
        # Checked again although the walk did: the caller's bytes may be writable, and change under us.
        if lz4_block(data, pos, data + size, frame, &block, &damage):
            raise damaged(&damage)
        if block.size == 0:
            break
        if frame.flags & LZ4_FLG_BLOCK_CHECKSUM:
            digest = _xxh32(view_of(block.data, block.size))
            if digest != load32le(block.data + block.size):
                fail(&damage, LZ4_BLOCK_CHECKSUM, pos - data, digest, load32le(block.data + block.size))
                raise damaged(&damage)
        if block.stored:
            piece = PyBytes_FromStringAndSize(<const char*>block.data, block.size)
        else:
            # All the room that the frame allows a block, whatever is left below the cap: so a failure is damage.
            try:
                piece = _lz4_block_decompress(view_of(block.data, block.size), lz4_block_bound(frame, &block))
            except _lz4_block_error as error:
                raise refused("lz4 block", error, block.data - data) from None
        if len(piece) > capacity - done:
            raise too_large("lz4", done + len(piece), bytes_max)
        if frame.block_count == 1:
            return piece
        if out is None:
            out = NewBytes.new(capacity)
        memcpy(out.data + done, PyBytes_AS_STRING(piece), <size_t>len(piece))
        done = out.used = done + len(piece)
        pos = lz4_behind(frame, &block)
    return b"" if out is None else out.finish()


# ------------------------------------------------------------------------------------------------------------ zstd

cdef enum:
    POOL_LEVELS_MAX = 8
    POOL_WINDOW_BYTES_MAX = 8388608    # a context that held a larger window, or input, is let go

cdef list _zstd_decompressors = []
cdef dict _zstd_compressors = {}       # level -> idle compressors


cdef bytes zstd_compress(const uint8_t* data, Py_ssize_t size, int level):
    cdef list idle = _zstd_compressors.get(level)
    if idle is None:
        if len(_zstd_compressors) >= POOL_LEVELS_MAX:
            _zstd_compressors.clear()
        idle = _zstd_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = _ZstdCompressor(level=level, write_content_size=True, write_checksum=False, write_dict_id=False)
    cdef bytes frame = compressor.compress(view_of(data, size))
    if len(idle) < POOL_MAX and size <= POOL_WINDOW_BYTES_MAX:
        idle.append(compressor)
    return frame


cdef bytes zstd_decompress(const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max):
    cdef ZstdPlan plan
    cdef Damage damage
    cdef bytes plain
    if zstd_walk(data, size, &plan, &damage):
        raise damaged(&damage)
    if plan.frame_count == 0:
        # zstd-jni reads a payload without a frame as an empty one.
        return b""
    if plan.sized_bytes > <uint64_t>bytes_max:
        raise too_large("zstd", <int64_t>min(plan.sized_bytes, <uint64_t>INT64_MAX), bytes_max)
    try:
        decompressor = _zstd_decompressors.pop()
    except IndexError:
        decompressor = _ZstdDecompressor()
    try:
        # A frame that says it is empty is taken at its word by `decompress`; it must be read to be believed.
        if plan.frame_count == 1 and plan.bound <= <uint64_t>bytes_max and not plan.empty:
            plain = decompressor.decompress(view_of(plan.frame, plan.frame_bytes), plan.bound or 1)
        else:
            plain = zstd_decompress_stream(data, size, bytes_max, decompressor, plan.bound)
    except _zstd_error as error:
        if "not enough memory" in str(error):
            raise MemoryError(f"zstd: {plan.window} bytes for a window") from error
        raise refused("zstd frame", error) from None
    if len(_zstd_decompressors) < POOL_MAX and plan.window <= POOL_WINDOW_BYTES_MAX:
        _zstd_decompressors.append(decompressor)
    return plain


cdef bytes zstd_decompress_stream(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, object decompressor, uint64_t bound
):
    """Several frames, or blocks that may hold more than the cap: read until the cap or the end."""
    cdef NewBytes out = NewBytes.new(<Py_ssize_t>min(bound, <uint64_t>bytes_max))
    cdef Py_ssize_t step
    reader = decompressor.stream_reader(view_of(data, size), read_across_frames=True)
    while out.used < out.capacity:
        step = reader.readinto(room_at(<char*>out.data + out.used, out.capacity - out.used))
        if step == 0:
            break
        out.used += step
    # To the end of the input in any case: only there the last frame's checksum is compared.
    if reader.read(1):
        raise too_large("zstd", out.used + 1, bytes_max)
    return out.finish()


# ---------------------------------------------------------------------------------------------------------- levels

cdef tuple _level_defaults = (None, -1, None, 9, 3)
cdef tuple _level_ranges = (None, "-1 or 1 to 9", None, "1 to 17", "-131072 to 22")
cdef int* LEVEL_MIN = [0, 1, 0, 1, -131072]
cdef int* LEVEL_MAX = [0, 9, 0, 17, 22]


cdef object integer(object value, str what, str where, str wanted):
    """`value` as an int; True and 3.0 are no integers here."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not PyIndex_Check(value):
        raise UsageTypeError(what, where=where, got=type(value).__name__, wanted=wanted)
    return PyNumber_Index(value)


cdef int codec_number(object codec) except -1:
    number = integer(codec, "codec", None, "an int")
    if not 0 <= number < CODEC_COUNT:
        raise UsageError("codec", got=number, wanted="0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")
    return number


cpdef int codec_id(object name) except -1:
    """The id that a batch's attributes hold for a codec.

    >>> codec_id("zstd")
    4
    """
    if not isinstance(name, str):
        raise UsageTypeError("compression", got=type(name).__name__, wanted="str")
    number = _ids.get(name)
    if number is None:
        raise UsageError("compression", got=repr(name), wanted="none, gzip, snappy, lz4 or zstd")
    return number


cpdef str codec_name(object codec):
    """The name of a codec id; one that Kafka does not have is "unknown-" and its number, for whoever prints a header.

    >>> codec_name(2), codec_name(5)
    ('snappy', 'unknown-5')
    """
    number = integer(codec, "codec", None, "an int")
    return _names[number] if 0 <= number < CODEC_COUNT else f"unknown-{number}"


cdef int level_for(int codec, object level) except? -1:
    """The level to compress with: `level` if the codec has it, its default for None, LEVEL_NONE if it has none."""
    if level is None:
        return LEVEL_NONE if _level_defaults[codec] is None else _level_defaults[codec]
    where = _names[codec]
    if _level_defaults[codec] is None:
        got = level if isinstance(level, int) else type(level).__name__
        raise UsageError("compression level", where=where, got=got, wanted="None, for it has no levels")
    wanted = _level_ranges[codec]
    number = integer(level, "compression level", where, f"an int, {wanted}")
    if not LEVEL_MIN[codec] <= number <= LEVEL_MAX[codec] and not (codec == CODEC_GZIP and number == -1):
        raise UsageError("compression level", where=where, got=number, wanted=wanted)
    return number


def check_level(codec, level):
    """The level that `compress` uses for this codec id: the one given, its default for None; None for none and snappy.

    gzip has -1 (zlib's default) and 1 to 9, lz4 has 1 to 17 (default 9), zstd has -131072 to 22 (default 3). In lz4,
    as in Kafka, 9 is the fast compressor and every other level the high one, so 1 compresses better than 9. Anything
    else raises UsageError, a level that is no integer UsageTypeError.

    >>> check_level(3, None), check_level(4, -5), check_level(2, None)
    (9, -5, None)
    """
    cdef int number = codec_number(codec)
    cdef int checked = level_for(number, level)
    return None if _level_defaults[number] is None else checked


# ----------------------------------------------------------------------------------------------------------- edges

# An empty buffer may have no address; the libraries and C want one.
cdef const uint8_t* NO_BYTES = b""


cdef bytes compress_span(int codec, const uint8_t* data, Py_ssize_t size, int level, int magic):
    if data == NULL:
        data = NO_BYTES
    if codec == CODEC_LZ4:
        return lz4_compress(data, size, level, magic)
    if codec == CODEC_ZSTD:
        return zstd_compress(data, size, level)
    if codec == CODEC_SNAPPY:
        return snappy_compress(data, size)
    if codec == CODEC_GZIP:
        return gzip_compress(data, size, level)
    if codec == CODEC_NONE:
        return PyBytes_FromStringAndSize(<const char*>data, size)
    raise UsageError("codec", got=codec, wanted="0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")


cdef bytes decompress_span(int codec, const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, int magic):
    if data == NULL:
        data = NO_BYTES
    if codec == CODEC_LZ4:
        return lz4_decompress(data, size, bytes_max, magic)
    if codec == CODEC_ZSTD:
        return zstd_decompress(data, size, bytes_max)
    if codec == CODEC_SNAPPY:
        return snappy_decompress(data, size, bytes_max)
    if codec == CODEC_GZIP:
        return gzip_decompress(data, size, bytes_max)
    if codec == CODEC_NONE:
        if size > bytes_max:
            raise too_large("none", size, bytes_max, "")
        return PyBytes_FromStringAndSize(<const char*>data, size)
    raise CorruptBatch("codec", reason=CorruptionReason.UNKNOWN_CODEC, got=codec, wanted="0 to 4")


cdef int magic_number(object magic) except -1:
    number = integer(magic, "magic", None, "an int")
    if not 0 <= number <= 2:
        raise UsageError("magic", got=number, wanted="0, 1 or 2")
    return number


def compress(codec, data, level=None, *, magic=2):
    """Compress a contiguous buffer with a codec id, to a stream as Kafka writes it for batches of `magic`.

    The same bytes and level give the same stream. The GIL is released. Raises UsageError for an unknown codec or
    level, and UsageTypeError for what is no buffer.

    >>> decompress(3, compress(3, b"orders" * 3), 100)
    b'ordersordersorders'
    """
    cdef int number = codec_number(codec)
    cdef int checked = level_for(number, level)
    cdef int version = magic_number(magic)
    cdef Source source = Source(data, "data")
    return compress_span(number, source.data, source.size, checked, version)


def decompress(codec, data, bytes_max, *, magic=2):
    """Decompress a batch's payload; at most `bytes_max` bytes come out, and memory is bounded by that while at it.

    Raises CorruptBatch and nothing else, whatever the bytes: reason DECOMPRESSED_SIZE if there is more in them than
    `bytes_max`, UNKNOWN_CODEC for a codec id that Kafka does not have, DECOMPRESSION for everything that is wrong with
    the stream; `at` is the byte of the payload where its framing is broken. Bytes behind the end are ignored where
    Kafka's reader ignores them (gzip, lz4). For `magic` 0 the header checksum of an lz4 frame is not looked at.

    >>> from logcore.errors import CorruptBatch
    >>> try:
    ...     decompress(2, b"\\x80\\x80\\x80\\x40 is a claim of 128 MiB", 1 << 30)
    ... except CorruptBatch as error:
    ...     print(error)
    batch, byte 0: snappy length before the block got 134217728, wanted at most 484, all that its bytes can expand to
    """
    number = integer(codec, "codec", None, "an int")
    limit = integer(bytes_max, "bytes_max", None, "an int")
    if not 0 <= limit <= PY_SSIZE_T_MAX:
        raise UsageError("bytes_max", got=limit, wanted=f"0 to {PY_SSIZE_T_MAX}")
    if not 0 <= number < CODEC_COUNT:
        raise CorruptBatch("codec", reason=CorruptionReason.UNKNOWN_CODEC, got=number, wanted="0 to 4")
    cdef int version = magic_number(magic)
    cdef Source source = Source(data, "data")
    return decompress_span(number, source.data, source.size, limit, version)
