"""Reading and writing Kafka's integers: big-endian fixed width, and zig-zag varints. Inline, no state, no objects.

Every reader takes `end` and says by a NULL that the bytes are not there; comparisons are `n > end - pos`, never
`pos + n > end`, which can overflow on a hostile length.
"""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from * nogil:
    """
    #define LC_LIKELY(x) ((int)__builtin_expect(!!(x), 1))
    #define LC_UNLIKELY(x) ((int)__builtin_expect(!!(x), 0))

    /* A varint as read: its bits before zig-zag, and the byte after it (NULL: no whole varint here).
       Two words, so it travels in registers and no out-parameter escapes into memory. */
    typedef struct { uint64_t bits; const uint8_t *next; } lc_varint;

    static inline lc_varint lc_varint_made(uint64_t bits, const uint8_t *next) {
        lc_varint made = {bits, next};
        return made;
    }

    /* Three bytes and more, or close to the end. As Kafka reads them: bits past the type's width are dropped, and a
       continuation bit on the last possible byte is an error. */
    static __attribute__((noinline)) lc_varint lc_varint_slow(const uint8_t *pos, const uint8_t *end, int bytes_max) {
        uint64_t bits = 0;
        for (int i = 0; i < bytes_max && pos < end; i++) {
            uint8_t byte = *pos++;
            bits |= (uint64_t)(byte & 0x7Fu) << (7 * i);
            if (byte < 0x80u) return lc_varint_made(bytes_max == 5 ? (uint32_t)bits : bits, pos);
        }
        return lc_varint_made(0, NULL);
    }

    /* As lc_varint_fast, where three bytes are known to be there. */
    static inline __attribute__((always_inline))
    lc_varint lc_varint_there(const uint8_t *pos, const uint8_t *end, int bytes_max) {
        uint32_t first = pos[0];
        if (first < 0x80u) return lc_varint_made(first, pos + 1);
        uint32_t second = pos[1];
        if (second < 0x80u) return lc_varint_made((first & 0x7Fu) | second << 7, pos + 2);
        uint32_t third = pos[2];
        if (third < 0x80u)
            return lc_varint_made((first & 0x7Fu) | (second & 0x7Fu) << 7 | third << 14, pos + 3);
        return lc_varint_slow(pos, end, bytes_max);
    }

    static inline __attribute__((always_inline))
    lc_varint lc_varint_fast(const uint8_t *pos, const uint8_t *end, int bytes_max) {
        if (LC_LIKELY(end - pos >= 3)) return lc_varint_there(pos, end, bytes_max);
        return lc_varint_slow(pos, end, bytes_max);
    }

    static inline uint8_t *lc_varint_put(uint8_t *out, uint64_t bits) {
        if (LC_LIKELY(bits < 0x80u)) { *out = (uint8_t)bits; return out + 1; }
        if (LC_LIKELY(bits < 0x4000u)) {
            out[0] = (uint8_t)(bits | 0x80u);
            out[1] = (uint8_t)(bits >> 7);
            return out + 2;
        }
        while (bits >= 0x80u) { *out++ = (uint8_t)(bits | 0x80u); bits >>= 7; }
        *out = (uint8_t)bits;
        return out + 1;
    }

    /* Seven bits a byte: (bit length + 6) / 7, with a zero counted as one bit; 9 / 64 is 1 / 7 for these. Sizes repeat
       from record to record, so the branches cost less than counting bits does on many processors. */
    static inline int lc_varint_bytes(uint64_t bits) {
        if (bits < 0x80u) return 1;
        if (bits < 0x4000u) return 2;
        return ((64 - __builtin_clzll(bits | 1u)) * 9 + 64) / 64;
    }

    /* Copy `n` bytes where the 32-byte steps may run over: `src_room` bytes may be read at src, and the caller has
       COPY_SLACK bytes to spare behind dst. Keys and values are short: this beats a call of memcpy. */
    #define LC_COPY_SLACK 32
    static inline __attribute__((always_inline))
    void lc_copy(uint8_t *dst, const uint8_t *src, size_t n, ptrdiff_t src_room) {
        if (LC_LIKELY(n <= 256 && src_room >= 288)) {
            size_t done = 0;
            do { memcpy(dst + done, src + done, 32); done += 32; } while (done < n);
        } else {
            memcpy(dst, src, n);
        }
    }
    """
    bint likely "LC_LIKELY"(bint)
    bint unlikely "LC_UNLIKELY"(bint)
    void prefetch "__builtin_prefetch"(const void* address)

    ctypedef struct Varint "lc_varint":
        uint64_t bits
        const uint8_t* next

    Varint read_varint "lc_varint_fast"(const uint8_t* pos, const uint8_t* end, int bytes_max)
    Varint read_varint_there "lc_varint_there"(const uint8_t* pos, const uint8_t* end, int bytes_max)
    uint8_t* put_varint "lc_varint_put"(uint8_t* out, uint64_t bits)
    int varint_bytes "lc_varint_bytes"(uint64_t bits)
    void copy_short "lc_copy"(uint8_t* dst, const uint8_t* src, size_t n, ptrdiff_t src_room)
    enum:
        COPY_SLACK "LC_COPY_SLACK"

    uint16_t bswap16 "__builtin_bswap16"(uint16_t)
    uint32_t bswap32 "__builtin_bswap32"(uint32_t)
    uint64_t bswap64 "__builtin_bswap64"(uint64_t)


cdef enum:
    CACHE_LINE_BYTES = 64
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10


cdef inline int64_t unzigzag(uint64_t bits) noexcept nogil:
    """The signed value of a varint's bits, of either width: those of a five-byte varint were cut to 32."""
    return <int64_t>((bits >> 1) ^ (0 - (bits & 1)))


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int16_t load16(const uint8_t* pos) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, pos, 2)
    return <int16_t>bswap16(raw)


cdef inline int32_t load32(const uint8_t* pos) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, pos, 4)
    return <int32_t>bswap32(raw)


cdef inline int64_t load64(const uint8_t* pos) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, pos, 8)
    return <int64_t>bswap64(raw)


cdef inline void store16(uint8_t* pos, int16_t value) noexcept nogil:
    cdef uint16_t raw = bswap16(<uint16_t>value)
    memcpy(pos, &raw, 2)


cdef inline void store32(uint8_t* pos, int32_t value) noexcept nogil:
    cdef uint32_t raw = bswap32(<uint32_t>value)
    memcpy(pos, &raw, 4)


cdef inline void store64(uint8_t* pos, int64_t value) noexcept nogil:
    cdef uint64_t raw = bswap64(<uint64_t>value)
    memcpy(pos, &raw, 8)


cdef inline int64_t add64(int64_t a, int64_t b) noexcept nogil:
    """Addition that wraps like Java's, where C's signed overflow would be undefined."""
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t sub64(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)
