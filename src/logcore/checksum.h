/* CRC-32C and CRC-32 for callers that hold no GIL.
 *
 * The `crc32c` package is the reference (tests compare with it) but is a Python call; the core checks a batch between
 * two reads of it, so it needs a C routine. There are three for CRC-32C, and the best that the machine has is chosen at
 * run time:
 *
 *   tables    eight bytes a step, on any machine; CRC-32 is computed this way too
 *   streams   x86-64 with SSE4.2 and PCLMULQDQ: three independent streams of the crc32 instruction (latency 3,
 *             throughput 1), joined by carry-less multiplication
 *   folding   x86-64 with AVX-512 and VPCLMULQDQ: 256 bytes of the message are folded onto the next 256 by carry-less
 *             multiplication, twice as fast; what is left in the end goes through the crc32 instruction
 *
 * Tables and constants are computed at import by lc_checksum_init(): nothing here is a magic list.
 */
#ifndef LOGCORE_CHECKSUM_H
#define LOGCORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "logcore's core assumes a little-endian machine"
#endif

#define LC_POLY_CRC32C 0x82F63B78u /* Castagnoli, bit-reversed */
#define LC_POLY_CRC32 0xEDB88320u  /* ISO-HDLC (zlib's), bit-reversed */

/* How many 8-byte words each stream of a three-way round takes; below the lesser, one stream does. */
#define LC_STRIDE_WORDS_MIN 8u
#define LC_STRIDE_WORDS_MAX 512u

/* Folding a shorter message costs more in the end than it saves. */
#define LC_FOLDING_BYTES_MIN 512u

typedef uint32_t lc_crc_table[8][256];

static lc_crc_table lc_table_crc32c;
static lc_crc_table lc_table_crc32;

/* One way to compute CRC-32C, without the inversions at both ends. */
typedef struct {
    const char *name;
    uint32_t (*extend)(uint32_t crc, const uint8_t *p, size_t n);
} lc_crc_routine;

static const lc_crc_routine *lc_crc32c_routine;

static inline uint64_t lc_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static void lc_fill_table(uint32_t poly, lc_crc_table table) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1u) ? poly : 0u);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xFFu];
}

static uint32_t lc_crc_by_table(lc_crc_table table, uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint64_t v = lc_load64(p) ^ crc;
        crc = table[7][v & 0xFF] ^ table[6][(v >> 8) & 0xFF] ^ table[5][(v >> 16) & 0xFF] ^ table[4][(v >> 24) & 0xFF] ^
              table[3][(v >> 32) & 0xFF] ^ table[2][(v >> 40) & 0xFF] ^ table[1][(v >> 48) & 0xFF] ^ table[0][v >> 56];
        p += 8;
        n -= 8;
    }
    while (n--) crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xFFu];
    return crc;
}

static uint32_t lc_extend_by_tables(uint32_t crc, const uint8_t *p, size_t n) {
    return lc_crc_by_table(lc_table_crc32c, crc, p, n);
}

static const lc_crc_routine lc_tables = {"tables", lc_extend_by_tables};

#if defined(__x86_64__) && defined(__GNUC__)
#define LC_HAVE_X86_CRC 1
#include <immintrin.h>

#define LC_STREAMS __attribute__((target("sse4.2,pclmul")))
/* Older compilers know these instructions not at all, or not how to ask the processor for them. */
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 9
#define LC_HAVE_FOLDING 1
#define LC_FOLDING __attribute__((target("sse4.2,pclmul,avx512f,avx512dq,vpclmulqdq")))
#endif

/* x^n modulo the polynomial, bit-reversed. */
static uint32_t lc_power(unsigned n) {
    uint32_t power = 0x80000000u;
    while (n--) power = (power >> 1) ^ ((power & 1u) ? LC_POLY_CRC32C : 0u);
    return power;
}

/* lc_skip[k] advances a CRC over 8k bytes of zeros. Reflected carry-less multiplication yields the product times x, and
 * the crc32 that folds its 64 bits down to 32 shifts by another 32; so it is x^(64k - 33) modulo the polynomial. */
static uint64_t lc_skip[2 * LC_STRIDE_WORDS_MAX + 1];

static void lc_fill_skip(void) {
    uint32_t power = lc_power(64 - 33);
    for (size_t k = 1; k <= 2 * LC_STRIDE_WORDS_MAX; k++) {
        lc_skip[k] = power;
        for (int bit = 0; bit < 64; bit++) power = (power >> 1) ^ ((power & 1u) ? LC_POLY_CRC32C : 0u);
    }
}

LC_STREAMS static inline uint64_t lc_advance(uint64_t crc, uint64_t multiplier) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)multiplier), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

LC_STREAMS static uint32_t lc_extend_by_words(uint64_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) crc = _mm_crc32_u64(crc, lc_load64(p));
    for (; n; n--) crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return (uint32_t)crc;
}

LC_STREAMS static uint32_t lc_extend_by_streams(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t a = crc;
    /* A third of what is left to each stream, whatever that is: a table holds the multiplier for every length, so that
     * short pieces run at full speed too. */
    while (n >= 3 * 8 * LC_STRIDE_WORDS_MIN) {
        size_t words = n / 24 < LC_STRIDE_WORDS_MAX ? n / 24 : LC_STRIDE_WORDS_MAX, stride = 8 * words;
        uint64_t b = 0, c = 0;
        const uint8_t *stop = p + stride;
        do {
            a = _mm_crc32_u64(a, lc_load64(p));
            b = _mm_crc32_u64(b, lc_load64(p + stride));
            c = _mm_crc32_u64(c, lc_load64(p + 2 * stride));
            p += 8;
        } while (p < stop);
        a = lc_advance(a, lc_skip[2 * words]) ^ lc_advance(b, lc_skip[words]) ^ c;
        p += 2 * stride;
        n -= 3 * stride;
    }
    return lc_extend_by_words(a, p, n);
}

static const lc_crc_routine lc_streams = {"streams", lc_extend_by_streams};

#ifdef LC_HAVE_FOLDING
/* Sixteen bytes of message at distance d before others may be replaced by their product with x^d, added to those: the
 * first eight by x^(d + 64), the last eight by x^d. The product of bit-reversed numbers is one bit short, and each
 * multiplier of 32 bits sits 32 bits lower than its eight bytes; hence the 32s and the shift. */
typedef uint64_t lc_multiplier[2];

static lc_multiplier lc_fold_2048, lc_fold_512, lc_fold_lanes[4];

static void lc_fill_multiplier(lc_multiplier multiplier, unsigned distance) {
    multiplier[0] = (uint64_t)lc_power(distance + 32) << 1;
    multiplier[1] = (uint64_t)lc_power(distance - 32) << 1;
}

static void lc_fill_fold(void) {
    lc_fill_multiplier(lc_fold_2048, 2048);
    lc_fill_multiplier(lc_fold_512, 512);
    for (unsigned lane = 0; lane < 3; lane++) lc_fill_multiplier(lc_fold_lanes[lane], 128 * (3 - lane));
}

LC_FOLDING static inline __m512i lc_fold(__m512i from, __m512i multiplier, __m512i onto) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(from, multiplier, 0x00),
                                     _mm512_clmulepi64_epi128(from, multiplier, 0x11), onto, 0x96 /* a ^ b ^ c */);
}

LC_FOLDING static inline __m512i lc_everywhere(const lc_multiplier multiplier) {
    return _mm512_broadcast_i64x2(_mm_loadu_si128((const __m128i *)multiplier));
}

LC_FOLDING static uint32_t lc_extend_by_folding(uint32_t crc, const uint8_t *p, size_t n) {
    if (n < LC_FOLDING_BYTES_MIN) return lc_extend_by_streams(crc, p, n);
    const __m512i by_2048 = lc_everywhere(lc_fold_2048), by_512 = lc_everywhere(lc_fold_512);
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128),
            d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_maskz_set1_epi32(1, (int)crc));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = lc_fold(a, by_2048, _mm512_loadu_si512(p));
        b = lc_fold(b, by_2048, _mm512_loadu_si512(p + 64));
        c = lc_fold(c, by_2048, _mm512_loadu_si512(p + 128));
        d = lc_fold(d, by_2048, _mm512_loadu_si512(p + 192));
    }
    a = lc_fold(lc_fold(lc_fold(a, by_512, b), by_512, c), by_512, d);
    for (; n >= 64; p += 64, n -= 64) a = lc_fold(a, by_512, _mm512_loadu_si512(p));
    /* Three lanes onto the fourth, whose own multiplier is 0. */
    a = lc_fold(a, _mm512_loadu_si512(lc_fold_lanes), _mm512_maskz_mov_epi64(0xC0, a));
    const __m128i left = _mm_xor_si128(_mm_xor_si128(_mm512_extracti64x2_epi64(a, 0), _mm512_extracti64x2_epi64(a, 1)),
                                       _mm_xor_si128(_mm512_extracti64x2_epi64(a, 2), _mm512_extracti64x2_epi64(a, 3)));
    const uint64_t half = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(left));
    return lc_extend_by_words(_mm_crc32_u64(half, (uint64_t)_mm_extract_epi64(left, 1)), p, n);
}

static const lc_crc_routine lc_folding = {"folding", lc_extend_by_folding};
#endif
#endif

/* The product of two polynomials modulo `poly`, all bit-reversed: x^0 is the highest bit. */
static uint32_t lc_times(uint32_t poly, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0u - (a >> 31)); /* masks, because no branch here could be predicted */
        b = (b >> 1) ^ (poly & (0u - (b & 1u)));
    }
    return product;
}

/* [k][i] is x^(8 i 256^k): what i 256^k zero bytes multiply a raw CRC (no inversions) by. */
typedef uint32_t lc_crc_powers[4][256];

static lc_crc_powers lc_powers_crc32c;
static lc_crc_powers lc_powers_crc32;

static void lc_fill_powers(uint32_t poly, lc_crc_powers powers) {
    uint32_t step = 0x00800000u; /* x^8 */
    for (int k = 0; k < 4; k++) {
        powers[k][0] = 0x80000000u; /* x^0 */
        for (int i = 1; i < 256; i++) powers[k][i] = lc_times(poly, powers[k][i - 1], step);
        step = lc_times(poly, powers[k][255], step);
    }
}

static uint32_t lc_shift(uint32_t poly, lc_crc_powers powers, uint32_t crc, uint32_t n) {
    for (int k = 0; n; k++, n >>= 8)
        if (n & 0xFFu) crc = lc_times(poly, powers[k][n & 0xFFu], crc);
    return crc;
}

/* What a raw CRC becomes over `n` zero bytes. */
static uint32_t lc_crc32c_shift(uint32_t crc, uint32_t n) { return lc_shift(LC_POLY_CRC32C, lc_powers_crc32c, crc, n); }

static uint32_t lc_crc32_shift(uint32_t crc, uint32_t n) { return lc_shift(LC_POLY_CRC32, lc_powers_crc32, crc, n); }

/* The routines that this machine has, the best one last; returns how many. */
static size_t lc_crc32c_routines(const lc_crc_routine *routines[3]) {
    size_t count = 0;
    routines[count++] = &lc_tables;
#ifdef LC_HAVE_X86_CRC
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        routines[count++] = &lc_streams;
#ifdef LC_HAVE_FOLDING
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("vpclmulqdq"))
            routines[count++] = &lc_folding;
#endif
    }
#endif
    return count;
}

static void lc_checksum_init(void) {
    const lc_crc_routine *routines[3];
    lc_fill_table(LC_POLY_CRC32C, lc_table_crc32c);
    lc_fill_table(LC_POLY_CRC32, lc_table_crc32);
    lc_fill_powers(LC_POLY_CRC32C, lc_powers_crc32c);
    lc_fill_powers(LC_POLY_CRC32, lc_powers_crc32);
#ifdef LC_HAVE_X86_CRC
    lc_fill_skip();
#endif
#ifdef LC_HAVE_FOLDING
    lc_fill_fold();
#endif
    lc_crc32c_routine = routines[lc_crc32c_routines(routines) - 1];
}

static uint32_t lc_crc32c(uint32_t crc, const uint8_t *p, size_t n) { return ~lc_crc32c_routine->extend(~crc, p, n); }

static uint32_t lc_crc32(uint32_t crc, const uint8_t *p, size_t n) {
    return ~lc_crc_by_table(lc_table_crc32, ~crc, p, n);
}

#endif
