from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


# What a walker found wrong. The order is that of the table in _framing.pyx.
cdef enum:
    DAMAGE_NONE
    LZ4_CUT
    LZ4_MAGIC
    LZ4_RESERVED
    LZ4_LINKED
    LZ4_VERSION
    LZ4_DESCRIPTOR
    LZ4_HEADER_CHECKSUM
    LZ4_BLOCK_SIZE
    LZ4_BLOCK_CHECKSUM
    LZ4_EMPTY_BLOCK
    SNAPPY_EMPTY
    SNAPPY_CUT
    SNAPPY_MAGIC
    SNAPPY_VERSION
    SNAPPY_BLOCK_SIZE
    SNAPPY_LENGTH
    SNAPPY_EXPANSION
    ZSTD_CUT
    ZSTD_MAGIC
    ZSTD_RESERVED
    ZSTD_WINDOW
    ZSTD_BLOCK_TYPE
    ZSTD_BLOCK_SIZE
    ZSTD_CONTENT_SIZE
    GZIP_CUT
    DAMAGE_KIND_COUNT


cdef struct Damage:
    int kind
    int64_t at       # byte inside the payload
    int64_t got
    int64_t wanted


cdef inline int fail(Damage* damage, int kind, int64_t at, int64_t got, int64_t wanted) noexcept nogil:
    damage.kind = kind
    damage.at = at
    damage.got = got
    damage.wanted = wanted
    return kind


cdef inline uint32_t load32le(const uint8_t* pos) noexcept nogil:
    return <uint32_t>pos[0] | <uint32_t>pos[1] << 8 | <uint32_t>pos[2] << 16 | <uint32_t>pos[3] << 24


cdef extern from * nogil:
    """
    /* magic, version 1, compatible with 1 */
    static const uint8_t LC_XERIAL_HEADER[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    """
    const uint8_t* XERIAL_HEADER "LC_XERIAL_HEADER"


cdef enum:
    GZIP_FLG_POSITION = 3
    GZIP_FLG_HEADER_CRC = 2

    XERIAL_MAGIC_BYTES = 8
    XERIAL_HEADER_BYTES = 16

    LZ4_FLG_CONTENT_CHECKSUM = 0x04
    LZ4_FLG_CONTENT_SIZE = 0x08
    LZ4_FLG_BLOCK_CHECKSUM = 0x10
    LZ4_BLOCK_SIZE_MIN = 4           # BD's number for 64 KiB; 5, 6 and 7 are 256 KiB, 1 MiB and 4 MiB
    LZ4_BLOCK_SIZE_MAX = 7
    LZ4_EXPANSION_MAX = 255          # a byte of a length adds at most 255 bytes
    LZ4_EXPANSION_EXTRA = 64


cdef struct SnappyBlock:
    const uint8_t* data      # NULL: the stream ended
    Py_ssize_t size
    Py_ssize_t plain_bytes   # what it says it decompresses to


cdef struct Lz4Frame:
    uint8_t flags
    Py_ssize_t header_bytes
    Py_ssize_t block_bytes_max
    int64_t block_count
    Py_ssize_t blocks_bytes      # from the header to behind the end mark
    int64_t bound                # no more than this can come out of its blocks


cdef struct Lz4Block:
    const uint8_t* data
    Py_ssize_t size              # 0: the end mark
    bint stored


cdef struct ZstdPlan:
    int64_t frame_count       # without skippable ones
    const uint8_t* frame      # the last of them
    Py_ssize_t frame_bytes
    bint empty                # it says that its content is empty
    uint64_t window           # the largest
    uint64_t sized_bytes      # what the frames that tell their content size say
    uint64_t bound            # no more than this can come out of all frames


cdef inline Py_ssize_t lz4_block_bound(const Lz4Frame* frame, const Lz4Block* block) noexcept nogil:
    if block.stored:
        return block.size
    return min(frame.block_bytes_max, block.size * LZ4_EXPANSION_MAX + LZ4_EXPANSION_EXTRA)


cdef inline const uint8_t* lz4_behind(const Lz4Frame* frame, const Lz4Block* block) noexcept nogil:
    return block.data + block.size + (4 if frame.flags & LZ4_FLG_BLOCK_CHECKSUM else 0)


# In all of these `base` is the first byte of the payload, from which `at` is counted; each returns damage.kind.
cdef object damaged(const Damage* damage)

cdef Py_ssize_t gzip_header_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil

cdef bint snappy_framed(const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef int snappy_block(
    const uint8_t* base, const uint8_t* pos, Py_ssize_t size, SnappyBlock* block, Damage* damage
) noexcept nogil
cdef int snappy_next(
    const uint8_t* base, const uint8_t* pos, const uint8_t* end, SnappyBlock* block, Damage* damage
) noexcept nogil
cdef int snappy_total(
    const uint8_t* base, Py_ssize_t size, int64_t bytes_max, int64_t* total, Damage* damage
) noexcept nogil

cdef int lz4_header(const uint8_t* base, Py_ssize_t size, Lz4Frame* frame, Damage* damage) noexcept nogil
cdef int lz4_block(
    const uint8_t* base, const uint8_t* pos, const uint8_t* end, const Lz4Frame* frame, Lz4Block* block, Damage* damage
) noexcept nogil
cdef int lz4_walk(const uint8_t* base, Py_ssize_t size, Lz4Frame* frame, Damage* damage) noexcept nogil

cdef int zstd_walk(const uint8_t* base, Py_ssize_t size, ZstdPlan* plan, Damage* damage) noexcept nogil
