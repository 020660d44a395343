"""SipHash-2-4 with 128 bits out: a keyed hash of short keys, inline, without the GIL.

Who does not know the 16 bytes of the seed cannot make two keys of one digest, nor choose where a digest lands in a
table: that is what a keyed pseudorandom function is for, and what MD5, murmur2 and xxHash are not. Aumasson and
Bernstein, "SipHash: a fast short-input PRF" (2012); the 128-bit variant is that of the authors' own implementation.
"""

from libc.stdint cimport uint8_t, uint64_t


cdef extern from * nogil:
    """
    typedef struct { uint64_t low; uint64_t high; } lc_digest;

    static inline uint64_t lc_word64(const uint8_t *pos) { uint64_t word; memcpy(&word, pos, 8); return word; }
    static inline uint64_t lc_word32(const uint8_t *pos) { uint32_t word; memcpy(&word, pos, 4); return word; }

    /* The bytes after the last whole word, 0 to 7 of them, without a loop: what is read twice falls on itself. */
    static inline uint64_t lc_last_word(const uint8_t *data, size_t size) {
        size_t left = size & 7u;
        const uint8_t *pos = data + (size - left);
        if (left == 0) return 0;
        if (size >= 8) return lc_word64(data + size - 8) >> (8 * (8 - left));
        if (left >= 4) return lc_word32(pos) | lc_word32(pos + left - 4) << (8 * (left - 4));
        return pos[0] | (uint64_t)pos[left / 2] << (8 * (left / 2)) | (uint64_t)pos[left - 1] << (8 * (left - 1));
    }

    #define LC_ROTATE(x, n) (((x) << (n)) | ((x) >> (64 - (n))))
    #define LC_SIP_ROUND \\
        v0 += v1; v2 += v3; v1 = LC_ROTATE(v1, 13); v3 = LC_ROTATE(v3, 16); \\
        v1 ^= v0; v3 ^= v2; v0 = LC_ROTATE(v0, 32); \\
        v2 += v1; v0 += v3; v1 = LC_ROTATE(v1, 17); v3 = LC_ROTATE(v3, 21); \\
        v1 ^= v2; v3 ^= v0; v2 = LC_ROTATE(v2, 32);

    static inline lc_digest lc_siphash128(uint64_t seed_low, uint64_t seed_high, const uint8_t *data, size_t size) {
        uint64_t v0 = seed_low ^ 0x736f6d6570736575u, v1 = seed_high ^ 0x646f72616e646f6du ^ 0xeeu;
        uint64_t v2 = seed_low ^ 0x6c7967656e657261u, v3 = seed_high ^ 0x7465646279746573u;
        const uint8_t *stop = data + (size - (size & 7u));
        uint64_t last = (uint64_t)size << 56 | lc_last_word(data, size);
        lc_digest digest;
        for (const uint8_t *pos = data; pos != stop; pos += 8) {
            uint64_t word = lc_word64(pos);
            v3 ^= word;
            LC_SIP_ROUND LC_SIP_ROUND
            v0 ^= word;
        }
        v3 ^= last;
        LC_SIP_ROUND LC_SIP_ROUND
        v0 ^= last;
        v2 ^= 0xeeu;
        LC_SIP_ROUND LC_SIP_ROUND LC_SIP_ROUND LC_SIP_ROUND
        digest.low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xddu;
        LC_SIP_ROUND LC_SIP_ROUND LC_SIP_ROUND LC_SIP_ROUND
        digest.high = v0 ^ v1 ^ v2 ^ v3;
        return digest;
    }
    """
    ctypedef struct Digest "lc_digest":
        uint64_t low
        uint64_t high

    Digest siphash128_of "lc_siphash128"(uint64_t seed_low, uint64_t seed_high, const uint8_t* data, size_t size)
