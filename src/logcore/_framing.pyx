"""The framing of compressed streams, walked before anything is decompressed.

    gzip     1f 8b 08 | FLG | u32 time | XFL | OS [| u16 length, extra] [| name, 0] [| comment, 0] [| u16 crc]
             | deflate | u32 crc | u32 size
    snappy   82 'SNAPPY' 00 | int32 version | int32 compatible | { int32 length | raw snappy block }*        (xerial)
    lz4      04 22 4d 18 | FLG | BD [| u64 content size] | HC | { u32 length | block [| u32 xxh32] }*
             | u32 0 [| u32 xxh32]
             FLG: version 2 bits, independent, block checksum, content size, content checksum, 2 reserved bits
             BD: reserved bit, block size 3 bits, 4 reserved bits; the top bit of a length says that the block is stored
    zstd     28 b5 2f fd | descriptor [| window] [| dictionary] [| content size] | { u24 header | block }*
             [| u32 checksum]
             descriptor: size flag 2 bits, single segment, unused, reserved, checksum, dictionary flag 2 bits
             block header: length 21 bits, type 2 bits (raw, rle, compressed), last

A walk tells two things: that the stream is whole, and how much can come out of it at most, so that its reader allocates
once and neither for a lie nor for a bomb. What is accepted is what Kafka's readers accept; where that is surprising, a
comment says so. These are leaves: no object, no allocation, no GIL; each fills a Damage and returns its kind, and
`damaged` finds the words. Whoever lets go of the GIL between two walks checks everything again in the second: the bytes
may be writable, and change meanwhile.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from logcore._bytes cimport load32
from logcore.errors import CorruptBatch, CorruptionReason


# what, how `got` and `wanted` read
cdef tuple _DAMAGE_WORDS = (
    (None, None, None),
    ("lz4 frame", "{} bytes left", "at least {}"),
    ("lz4 frame magic", "0x{:08x}", "0x{:08x}"),
    ("lz4 reserved bits of the frame's flags", "{}", "{}"),
    ("lz4 block mode", "linked blocks", "independent blocks"),
    ("lz4 frame version", "{}", "{}"),
    ("lz4 block descriptor", "0x{:02x}", "0x40, 0x50, 0x60 or 0x70"),
    ("lz4 header checksum", "0x{:02x}", "0x{:02x}"),
    ("lz4 block size", "{}", "at most {}"),
    ("lz4 block checksum", "0x{:08x}", "0x{:08x}"),
    ("lz4 block", "one of {} bytes", "at least {}: Kafka's reader takes an empty block for the end"),
    ("snappy stream", "{} bytes", "at least {}"),
    ("snappy stream", "{} bytes left", "at least {}"),
    ("snappy header of a further stream", "another magic", "82 'SNAPPY' 00"),
    ("snappy stream version", "{}", "at least {}"),
    ("snappy block size", "{}", "0 to {}"),
    ("snappy length before the block", "no end within {} bytes", "a varint of at most {} bytes"),
    ("snappy length before the block", "{}", "at most {}, all that its bytes can expand to"),
    ("zstd frame", "{} bytes left", "at least {}"),
    ("zstd frame magic", "0x{:08x}", "0x{:08x}"),
    ("zstd reserved bit of the frame header", "{}", "{}"),
    ("zstd window", "{} bytes", "at most {}"),
    ("zstd block type", "{}", "0 to {}"),
    ("zstd block size", "{}", "at most {}"),
    ("zstd content size", "{}", "at most {}, all that its blocks can hold"),
    ("gzip stream", "an end after {} bytes", "a whole member"),
)
if len(_DAMAGE_WORDS) != DAMAGE_KIND_COUNT:
    raise ImportError(f"damage table has {len(_DAMAGE_WORDS)} rows, the enum {DAMAGE_KIND_COUNT}")


cdef object damaged(const Damage* damage):
    """The exception for what a walker found."""
    what, got, wanted = _DAMAGE_WORDS[damage.kind]
    return CorruptBatch(
        what,
        reason=CorruptionReason.DECOMPRESSION,
        got=got.format(damage.got),
        wanted=wanted.format(damage.wanted),
        at=damage.at,
    )


# ---------------------------------------------------------------------------------------------------------------- gzip

cdef enum:
    GZIP_HEADER_BYTES = 10
    GZIP_FLG_EXTRA = 4
    GZIP_FLG_NAME = 8
    GZIP_FLG_COMMENT = 16


cdef Py_ssize_t gzip_header_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Length of the member header that begins here, without its optional checksum's value; 0: there is no whole one."""
    cdef Py_ssize_t pos = GZIP_HEADER_BYTES, extra
    cdef uint8_t flags
    cdef int text
    if size < GZIP_HEADER_BYTES or data[0] != 0x1F or data[1] != 0x8B or data[2] != 8:
        return 0
    flags = data[GZIP_FLG_POSITION]
    if flags & GZIP_FLG_EXTRA:
        if 2 > size - pos:
            return 0
        extra = data[pos] | <Py_ssize_t>data[pos + 1] << 8
        pos += 2
        if extra > size - pos:
            return 0
        pos += extra
    for text in range(2):
        if flags & (GZIP_FLG_NAME if text == 0 else GZIP_FLG_COMMENT):
            while True:
                if 1 > size - pos:
                    return 0
                pos += 1
                if data[pos - 1] == 0:
                    break
    return pos


# -------------------------------------------------------------------------------------------------------------- snappy

cdef enum:
    XERIAL_CHUNK_BYTES_MAX = 536870912   # SnappyInputStream refuses more
    SNAPPY_VARINT_BYTES_MAX = 5
    # The densest element is a copy of 64 bytes in 3, that is 21 1/3 bytes out of one: 22 is never reached.
    SNAPPY_EXPANSION_MAX = 22


cdef bint snappy_framed(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Whether this is xerial's framing; all else is taken for one bare block, as SnappyInputStream does."""
    return size >= XERIAL_HEADER_BYTES and memcmp(data, XERIAL_HEADER, XERIAL_MAGIC_BYTES) == 0


cdef int snappy_block(
    const uint8_t* base, const uint8_t* pos, Py_ssize_t size, SnappyBlock* block, Damage* damage
) noexcept nogil:
    """Read the length that leads a raw block of `size` bytes, and disbelieve one that the bytes cannot hold."""
    cdef uint64_t plain = 0
    cdef Py_ssize_t i
    for i in range(min(size, <Py_ssize_t>SNAPPY_VARINT_BYTES_MAX)):
        plain |= <uint64_t>(pos[i] & 0x7F) << (7 * i)
        if pos[i] < 0x80:
            if plain > <uint64_t>(size - i - 1) * SNAPPY_EXPANSION_MAX:
                return fail(damage, SNAPPY_EXPANSION, pos - base, <int64_t>plain, (size - i - 1) * SNAPPY_EXPANSION_MAX)
            block.data = pos
            block.size = size
            block.plain_bytes = <Py_ssize_t>plain
            return DAMAGE_NONE
    return fail(damage, SNAPPY_LENGTH, pos - base, size, SNAPPY_VARINT_BYTES_MAX)


cdef int snappy_next(
    const uint8_t* base, const uint8_t* pos, const uint8_t* end, SnappyBlock* block, Damage* damage
) noexcept nogil:
    """The block behind `pos`, which is behind a header or a block of the framing."""
    cdef int32_t size
    while True:
        if 4 > end - pos:
            # SnappyInputStream takes one to three bytes that are left as the end, too.
            block.data = NULL
            return DAMAGE_NONE
        size = load32(pos)
        if size != load32(XERIAL_HEADER):
            break
        if XERIAL_HEADER_BYTES > end - pos:
            return fail(damage, SNAPPY_CUT, pos - base, end - pos, XERIAL_HEADER_BYTES)
        if memcmp(pos, XERIAL_HEADER, XERIAL_MAGIC_BYTES) != 0:
            return fail(damage, SNAPPY_MAGIC, pos - base, 0, 0)
        if load32(pos + XERIAL_MAGIC_BYTES) < 1:
            return fail(damage, SNAPPY_VERSION, pos - base + XERIAL_MAGIC_BYTES, load32(pos + XERIAL_MAGIC_BYTES), 1)
        pos += XERIAL_HEADER_BYTES
    if size < 0 or size > XERIAL_CHUNK_BYTES_MAX:
        return fail(damage, SNAPPY_BLOCK_SIZE, pos - base, size, XERIAL_CHUNK_BYTES_MAX)
    pos += 4
    if size > end - pos:
        return fail(damage, SNAPPY_CUT, pos - base, end - pos, size)
    return snappy_block(base, pos, size, block, damage)


cdef int snappy_total(
    const uint8_t* base, Py_ssize_t size, int64_t bytes_max, int64_t* total, Damage* damage
) noexcept nogil:
    """What all blocks of the framing say they decompress to; the walk ends early once that is more than `bytes_max`."""
    cdef SnappyBlock block
    cdef const uint8_t* pos = base + XERIAL_HEADER_BYTES
    total[0] = 0
    while total[0] <= bytes_max:
        if snappy_next(base, pos, base + size, &block, damage):
            return damage.kind
        if block.data == NULL:
            break
        total[0] += block.plain_bytes
        pos = block.data + block.size
    return DAMAGE_NONE


# ----------------------------------------------------------------------------------------------------------------- lz4

cdef enum:
    LZ4_FRAME_MAGIC = 0x184D2204
    LZ4_HEADER_BYTES_MIN = 6
    LZ4_FLG_RESERVED = 0x03
    LZ4_FLG_INDEPENDENT = 0x20
    LZ4_VERSION_ONE = 1
    LZ4_BD_RESERVED = 0x8F

cdef uint32_t LZ4_STORED = 0x80000000


cdef int lz4_header(const uint8_t* base, Py_ssize_t size, Lz4Frame* frame, Damage* damage) noexcept nogil:
    """Read a frame's header up to, not into, its checksum, with Kafka's rules in Kafka's order."""
    cdef uint8_t flags, descriptor
    if LZ4_HEADER_BYTES_MIN > size:
        return fail(damage, LZ4_CUT, 0, size, LZ4_HEADER_BYTES_MIN)
    if load32le(base) != LZ4_FRAME_MAGIC:
        return fail(damage, LZ4_MAGIC, 0, load32le(base), LZ4_FRAME_MAGIC)
    flags = base[4]
    descriptor = base[5]
    if flags & LZ4_FLG_RESERVED:
        return fail(damage, LZ4_RESERVED, 4, flags & LZ4_FLG_RESERVED, 0)
    if not flags & LZ4_FLG_INDEPENDENT:
        return fail(damage, LZ4_LINKED, 4, 0, 0)
    if flags >> 6 != LZ4_VERSION_ONE:
        return fail(damage, LZ4_VERSION, 4, flags >> 6, LZ4_VERSION_ONE)
    if descriptor & LZ4_BD_RESERVED or descriptor >> 4 < LZ4_BLOCK_SIZE_MIN:
        return fail(damage, LZ4_DESCRIPTOR, 5, descriptor, 0)
    frame.flags = flags
    frame.block_bytes_max = <Py_ssize_t>1 << (2 * (descriptor >> 4) + 8)
    frame.header_bytes = LZ4_HEADER_BYTES_MIN + (8 if flags & LZ4_FLG_CONTENT_SIZE else 0)
    if 1 > size - frame.header_bytes:
        return fail(damage, LZ4_CUT, LZ4_HEADER_BYTES_MIN, size - LZ4_HEADER_BYTES_MIN,
                    frame.header_bytes + 1 - LZ4_HEADER_BYTES_MIN)
    return DAMAGE_NONE


cdef int lz4_block(
    const uint8_t* base, const uint8_t* pos, const uint8_t* end, const Lz4Frame* frame, Lz4Block* block, Damage* damage
) noexcept nogil:
    """Read the block whose length stands at `pos`; behind it lies its checksum, if the frame has them."""
    cdef uint32_t length
    cdef Py_ssize_t checksum_bytes = 4 if frame.flags & LZ4_FLG_BLOCK_CHECKSUM else 0
    if 4 > end - pos:
        return fail(damage, LZ4_CUT, pos - base, end - pos, 4)
    length = load32le(pos)
    block.data = pos + 4
    block.size = <Py_ssize_t>(length & ~LZ4_STORED)
    block.stored = length & LZ4_STORED != 0
    if block.size == 0:
        if frame.flags & LZ4_FLG_CONTENT_CHECKSUM and 4 > end - block.data:
            return fail(damage, LZ4_CUT, block.data - base, end - block.data, 4)
        return DAMAGE_NONE
    if block.size > frame.block_bytes_max:
        return fail(damage, LZ4_BLOCK_SIZE, pos - base, block.size, frame.block_bytes_max)
    if block.size + checksum_bytes > end - block.data:
        return fail(damage, LZ4_CUT, block.data - base, end - block.data, block.size + checksum_bytes)
    if block.size == 1 and not block.stored and block.data[0] == 0:
        return fail(damage, LZ4_EMPTY_BLOCK, pos - base, 0, 1)
    return DAMAGE_NONE


cdef int lz4_walk(const uint8_t* base, Py_ssize_t size, Lz4Frame* frame, Damage* damage) noexcept nogil:
    """Walk the blocks to the end mark, whatever lies behind that."""
    cdef const uint8_t* pos = base + frame.header_bytes + 1
    cdef Lz4Block block
    frame.bound = 0
    frame.block_count = 0
    while True:
        if lz4_block(base, pos, base + size, frame, &block, damage):
            return damage.kind
        if block.size == 0:
            frame.blocks_bytes = block.data - base - frame.header_bytes - 1
            return DAMAGE_NONE
        frame.bound += lz4_block_bound(frame, &block)
        frame.block_count += 1
        pos = lz4_behind(frame, &block)


# ---------------------------------------------------------------------------------------------------------------- zstd

cdef enum:
    ZSTD_SKIPPABLE_HEADER_BYTES = 8
    ZSTD_BLOCK_HEADER_BYTES = 3
    ZSTD_BLOCK_BYTES_MAX = 131072
    ZSTD_BLOCK_RAW = 0
    ZSTD_BLOCK_RLE = 1
    ZSTD_BLOCK_COMPRESSED = 2
    ZSTD_WINDOW_BYTES_MAX = 134217729    # 2^27 and one: the limit of zstd's streaming readers unless told otherwise

cdef uint32_t ZSTD_FRAME_MAGIC = 0xFD2FB528
cdef uint32_t ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
cdef uint32_t ZSTD_SKIPPABLE_MASK = 0xFFFFFFF0


cdef int zstd_frame(
    const uint8_t* base, const uint8_t* pos, const uint8_t* end, ZstdPlan* plan, Damage* damage
) noexcept nogil:
    """Walk the frame at `pos`, behind whose magic there is at least one byte, to behind its checksum."""
    cdef const uint8_t* begin = pos
    cdef uint8_t descriptor = pos[4]
    cdef bint single = (descriptor >> 5 & 1) != 0
    cdef int size_flag = descriptor >> 6
    cdef Py_ssize_t dictionary_bytes = (1 << (descriptor & 3)) >> 1
    cdef Py_ssize_t size_bytes = (1 if single else 0) if size_flag == 0 else 1 << size_flag
    cdef Py_ssize_t header_bytes = 5 + (0 if single else 1) + dictionary_bytes + size_bytes, i, length, content
    cdef uint64_t window = 0, content_size = 0, blocks_bound = 0, block_max
    cdef uint32_t header
    cdef int block_type
    if descriptor & 8:
        return fail(damage, ZSTD_RESERVED, pos - base + 4, 1, 0)
    if header_bytes > end - pos:
        return fail(damage, ZSTD_CUT, pos - base, end - pos, header_bytes)
    for i in range(size_bytes):
        content_size |= <uint64_t>pos[header_bytes - size_bytes + i] << (8 * i)
    if size_flag == 1:
        content_size += 256
    if single:
        window = content_size
    else:
        window = <uint64_t>1 << (10 + (pos[5] >> 3))
        window += (window >> 3) * (pos[5] & 7)
    if window > ZSTD_WINDOW_BYTES_MAX:
        return fail(damage, ZSTD_WINDOW, pos - base + 5, <int64_t>min(window, <uint64_t>INT64_MAX),
                    ZSTD_WINDOW_BYTES_MAX)
    block_max = min(window, <uint64_t>ZSTD_BLOCK_BYTES_MAX)
    pos += header_bytes
    while True:
        if ZSTD_BLOCK_HEADER_BYTES > end - pos:
            return fail(damage, ZSTD_CUT, pos - base, end - pos, ZSTD_BLOCK_HEADER_BYTES)
        header = <uint32_t>pos[0] | <uint32_t>pos[1] << 8 | <uint32_t>pos[2] << 16
        block_type = header >> 1 & 3
        length = <Py_ssize_t>(header >> 3)
        content = length
        if block_type == ZSTD_BLOCK_RLE:
            content = 1
            blocks_bound += <uint64_t>length
        elif block_type > ZSTD_BLOCK_COMPRESSED:
            return fail(damage, ZSTD_BLOCK_TYPE, pos - base, block_type, ZSTD_BLOCK_COMPRESSED)
        elif <uint64_t>length > block_max:
            return fail(damage, ZSTD_BLOCK_SIZE, pos - base, length, <int64_t>block_max)
        else:
            blocks_bound += <uint64_t>length if block_type == ZSTD_BLOCK_RAW else block_max
        pos += ZSTD_BLOCK_HEADER_BYTES
        if content > end - pos:
            return fail(damage, ZSTD_CUT, pos - base, end - pos, content)
        pos += content
        if header & 1:
            break
    if descriptor & 4:
        if 4 > end - pos:
            return fail(damage, ZSTD_CUT, pos - base, end - pos, 4)
        pos += 4
    if size_bytes:
        if content_size > blocks_bound:
            return fail(damage, ZSTD_CONTENT_SIZE, begin - base + header_bytes - size_bytes,
                        <int64_t>min(content_size, <uint64_t>INT64_MAX), <int64_t>blocks_bound)
        plan.sized_bytes += content_size
        plan.bound += content_size
    else:
        plan.bound += blocks_bound
    plan.empty = size_bytes != 0 and content_size == 0
    plan.window = max(plan.window, window)
    plan.frame = begin
    plan.frame_bytes = pos - begin
    plan.frame_count += 1
    return DAMAGE_NONE


cdef int zstd_walk(const uint8_t* base, Py_ssize_t size, ZstdPlan* plan, Damage* damage) noexcept nogil:
    """Walk all frames, one behind the other, to the end of the payload; between them may lie skippable ones."""
    cdef const uint8_t* pos = base
    cdef const uint8_t* end = base + size
    cdef uint32_t magic
    plan.frame_count = 0
    plan.frame = base
    plan.frame_bytes = 0
    plan.empty = False
    plan.window = 0
    plan.sized_bytes = 0
    plan.bound = 0
    while pos != end:
        if 5 > end - pos:
            return fail(damage, ZSTD_CUT, pos - base, end - pos, 5)
        magic = load32le(pos)
        if magic == ZSTD_FRAME_MAGIC:
            if zstd_frame(base, pos, end, plan, damage):
                return damage.kind
            pos = plan.frame + plan.frame_bytes
        elif magic & ZSTD_SKIPPABLE_MASK == ZSTD_SKIPPABLE_MAGIC:
            if ZSTD_SKIPPABLE_HEADER_BYTES > end - pos:
                return fail(damage, ZSTD_CUT, pos - base, end - pos, ZSTD_SKIPPABLE_HEADER_BYTES)
            magic = load32le(pos + 4)
            pos += ZSTD_SKIPPABLE_HEADER_BYTES
            if <Py_ssize_t>magic > end - pos:
                return fail(damage, ZSTD_CUT, pos - base, end - pos, magic)
            pos += magic
        else:
            return fail(damage, ZSTD_MAGIC, pos - base, magic, ZSTD_FRAME_MAGIC)
    return DAMAGE_NONE
