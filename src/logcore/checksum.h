/* CRC-32C and CRC-32 for callers that hold no GIL.
 *
 * The `crc32c` package is the reference (tests compare with it) but is a Python call; the core checks a batch between
 * two reads of it, so it needs a C routine. Both polynomials share one table-driven routine (eight bytes a step);
 * on x86-64 with SSE4.2 and PCLMULQDQ, found at run time, CRC-32C runs three independent streams of the crc32
 * instruction (latency 3, throughput 1) and joins them by carry-less multiplication.
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

typedef uint32_t lc_crc_table[8][256];

static lc_crc_table lc_table_crc32c;
static lc_crc_table lc_table_crc32;
static uint32_t (*lc_crc32c_raw)(uint32_t, const uint8_t *, size_t);

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

static uint32_t lc_crc32c_table(uint32_t crc, const uint8_t *p, size_t n) {
    return lc_crc_by_table(lc_table_crc32c, crc, p, n);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define LC_HAVE_X86_CRC 1
#include <immintrin.h>

/* lc_skip[k] advances a CRC over 8k bytes of zeros. Reflected carry-less multiplication yields the product times x, and
 * the crc32 that folds its 64 bits down to 32 shifts by another 32; so it is x^(64k - 33) modulo the polynomial. */
static uint64_t lc_skip[2 * LC_STRIDE_WORDS_MAX + 1];

static void lc_fill_skip(void) {
    uint32_t power = 0x80000000u; /* x^0, bit-reversed */
    for (int bit = 0; bit < 64 - 33; bit++) power = (power >> 1) ^ ((power & 1u) ? LC_POLY_CRC32C : 0u);
    for (size_t k = 1; k <= 2 * LC_STRIDE_WORDS_MAX; k++) {
        lc_skip[k] = power;
        for (int bit = 0; bit < 64; bit++) power = (power >> 1) ^ ((power & 1u) ? LC_POLY_CRC32C : 0u);
    }
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t lc_advance(uint64_t crc, uint64_t multiplier) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)multiplier), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t lc_crc32c_x86(uint32_t crc, const uint8_t *p, size_t n) {
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
    while (n >= 8) {
        a = _mm_crc32_u64(a, lc_load64(p));
        p += 8;
        n -= 8;
    }
    crc = (uint32_t)a;
    while (n--) crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
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

static void lc_checksum_init(void) {
    lc_fill_table(LC_POLY_CRC32C, lc_table_crc32c);
    lc_fill_table(LC_POLY_CRC32, lc_table_crc32);
    lc_fill_powers(LC_POLY_CRC32C, lc_powers_crc32c);
    lc_fill_powers(LC_POLY_CRC32, lc_powers_crc32);
    lc_crc32c_raw = lc_crc32c_table;
#ifdef LC_HAVE_X86_CRC
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        lc_fill_skip();
        lc_crc32c_raw = lc_crc32c_x86;
    }
#endif
}

static uint32_t lc_crc32c(uint32_t crc, const uint8_t *p, size_t n) { return ~lc_crc32c_raw(~crc, p, n); }

static uint32_t lc_crc32(uint32_t crc, const uint8_t *p, size_t n) {
    return ~lc_crc_by_table(lc_table_crc32, ~crc, p, n);
}

#endif
