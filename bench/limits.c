/* The physical limits that bench/ and `logcore bench` hold codec and log against: what this machine does when nothing
 * but the work itself is done. Plain C at -O3, compiled on the spot, loaded with ctypes.
 *
 *   lc_limit_memcpy   bytes from one buffer to another
 *   lc_limit_crc      CRC-32C of each batch, the same routine as the core's (src/logcore/checksum.h)
 *   lc_limit_decode   v2 batches -> columns: checksum, offsets, timestamps, keys and values copied end to end, int32
 *                     ends, validity bits. It trusts its input: no bounds, no nulls beyond a test, no headers.
 *   lc_limit_encode   columns -> v2 batches: the reverse, checksum included.
 *
 * The same with a file, for the log:
 *
 *   lc_limit_write    bytes to a file
 *   lc_limit_read     bytes from a file, a piece at a time
 *   lc_limit_append   columns -> v2 batches -> a file
 *   lc_limit_fetch    v2 batches of a file -> columns, a piece at a time into the same memory
 *   lc_limit_points   a batch of a file and its checksum, at each of many positions
 *
 * Output memory is given by the caller and reused from call to call, as a loop in C would have it.
 */
#include <sys/types.h>
#include <unistd.h>

#include "checksum.h"

#define EXPORT __attribute__((visibility("default")))

static inline uint32_t be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t be64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline void put32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void put64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

static inline const uint8_t *varint(const uint8_t *p, int64_t *out) {
    uint64_t bits = 0;
    int shift = 0;
    while (*p & 0x80) {
        bits |= (uint64_t)(*p++ & 0x7F) << shift;
        shift += 7;
    }
    bits |= (uint64_t)*p++ << shift;
    *out = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
    return p;
}

static inline uint64_t zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }

static inline int varint_size(uint64_t bits) { return ((64 - __builtin_clzll(bits | 1)) * 9 + 64) / 64; }

static inline uint8_t *put_varint(uint8_t *p, uint64_t bits) {
    while (bits >= 0x80) {
        *p++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *p++ = (uint8_t)bits;
    return p;
}

EXPORT void lc_limit_init(void) { lc_checksum_init(); }

EXPORT void lc_limit_memcpy(uint8_t *to, const uint8_t *from, size_t size) { memcpy(to, from, size); }

/* Checksum of every batch; returns how many were right. */
EXPORT int64_t lc_limit_crc(const uint8_t *p, size_t size) {
    const uint8_t *end = p + size;
    int64_t right = 0;
    while (p < end) {
        size_t batch = be32(p + 8) + 12;
        right += lc_crc32c(0, p + 21, batch - 21) == be32(p + 17);
        p += batch;
    }
    return right;
}

/* Returns the number of records, or -1 for a wrong checksum. */
EXPORT int64_t lc_limit_decode(const uint8_t *p, size_t size, int64_t *offsets, int64_t *timestamps, uint8_t *keys,
                               int32_t *key_ends, uint8_t *key_valid, uint8_t *values, int32_t *value_ends,
                               uint8_t *value_valid) {
    const uint8_t *end = p + size;
    int64_t row = 0;
    int32_t key_used = 0, value_used = 0;
    key_ends[0] = value_ends[0] = 0;
    while (p < end) {
        size_t batch = be32(p + 8) + 12;
        int64_t base_offset = (int64_t)be64(p), base_timestamp = (int64_t)be64(p + 27);
        int64_t stop = row + be32(p + 57);
        if (lc_crc32c(0, p + 21, batch - 21) != be32(p + 17)) return -1;
        const uint8_t *at = p + 61;
        for (; row < stop; row++) {
            int64_t length, delta, key, value;
            at = varint(at, &length);
            const uint8_t *next = at + length;
            at = varint(at + 1, &delta);
            timestamps[row] = base_timestamp + delta;
            at = varint(at, &delta);
            offsets[row] = base_offset + delta;
            at = varint(at, &key);
            if (key >= 0) {
                memcpy(keys + key_used, at, (size_t)key);
                key_used += (int32_t)key;
                at += key;
            } else {
                key_valid[row >> 3] &= (uint8_t)~(1 << (row & 7));
            }
            key_ends[row + 1] = key_used;
            at = varint(at, &value);
            if (value >= 0) {
                memcpy(values + value_used, at, (size_t)value);
                value_used += (int32_t)value;
            } else {
                value_valid[row >> 3] &= (uint8_t)~(1 << (row & 7));
            }
            value_ends[row + 1] = value_used;
            at = next;
        }
        p += batch;
    }
    return row;
}

/* Returns the bytes written. `out` has room for the worst case. */
EXPORT int64_t lc_limit_encode(uint8_t *out, int64_t rows, int64_t batch_bytes_max, const int64_t *timestamps,
                               const uint8_t *keys, const int32_t *key_ends, const uint8_t *values,
                               const int32_t *value_ends) {
    uint8_t *start = out;
    int64_t row = 0;
    while (row < rows) {
        uint8_t *batch = out, *p = out + 61;
        int64_t first = row, base_timestamp = timestamps[row], max_timestamp = base_timestamp;
        for (; row < rows; row++) {
            int64_t key = key_ends[row + 1] - key_ends[row], value = value_ends[row + 1] - value_ends[row];
            uint64_t stamp = zigzag(timestamps[row] - base_timestamp), delta = zigzag(row - first);
            int64_t body = 2 + varint_size(stamp) + varint_size(delta) + varint_size(zigzag(key)) + key +
                           varint_size(zigzag(value)) + value;
            if (p - batch + varint_size(zigzag(body)) + body > batch_bytes_max && row > first) break;
            p = put_varint(p, zigzag(body));
            *p++ = 0;
            p = put_varint(p, stamp);
            p = put_varint(p, delta);
            p = put_varint(p, zigzag(key));
            memcpy(p, keys + key_ends[row], (size_t)key);
            p = put_varint(p + key, zigzag(value));
            memcpy(p, values + value_ends[row], (size_t)value);
            p += value;
            *p++ = 0;
            if (timestamps[row] > max_timestamp) max_timestamp = timestamps[row];
        }
        size_t size = (size_t)(p - batch);
        put64(batch, (uint64_t)first);
        put32(batch + 8, (uint32_t)(size - 12));
        put32(batch + 12, 0xFFFFFFFFu);
        batch[16] = 2;
        batch[21] = batch[22] = 0;
        put32(batch + 23, (uint32_t)(row - first - 1));
        put64(batch + 27, (uint64_t)base_timestamp);
        put64(batch + 35, (uint64_t)max_timestamp);
        memset(batch + 43, 0xFF, 14);
        put32(batch + 57, (uint32_t)(row - first));
        put32(batch + 17, lc_crc32c(0, batch + 21, size - 21));
        out = p;
    }
    return out - start;
}

/* Returns how many bytes were written; fewer than `size` after a failure. */
EXPORT int64_t lc_limit_write(int fd, const uint8_t *from, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t more = write(fd, from + done, size - done);
        if (more <= 0) break;
        done += (size_t)more;
    }
    return (int64_t)done;
}

/* Returns how many bytes were read: up to `room`, fewer where the file ends. */
static size_t read_at(int fd, uint8_t *into, size_t room, int64_t position) {
    size_t done = 0;
    while (done < room) {
        ssize_t more = pread(fd, into + done, room - done, (off_t)(position + (int64_t)done));
        if (more <= 0) break;
        done += (size_t)more;
    }
    return done;
}

/* Returns how many bytes the file has. */
EXPORT int64_t lc_limit_read(int fd, uint8_t *into, size_t room) {
    int64_t position = 0;
    size_t got;
    while ((got = read_at(fd, into, room, position)) > 0) position += (int64_t)got;
    return position;
}

/* Returns the bytes written. */
EXPORT int64_t lc_limit_append(int fd, uint8_t *out, int64_t rows, int64_t batch_bytes_max, const int64_t *timestamps,
                               const uint8_t *keys, const int32_t *key_ends, const uint8_t *values,
                               const int32_t *value_ends) {
    int64_t size = lc_limit_encode(out, rows, batch_bytes_max, timestamps, keys, key_ends, values, value_ends);
    return lc_limit_write(fd, out, (size_t)size);
}

/* Returns the number of records of the file, or -1 for a wrong checksum. `room` is enough for the largest batch. */
EXPORT int64_t lc_limit_fetch(int fd, uint8_t *buffer, size_t room, int64_t *offsets, int64_t *timestamps,
                              uint8_t *keys, int32_t *key_ends, uint8_t *key_valid, uint8_t *values,
                              int32_t *value_ends, uint8_t *value_valid) {
    int64_t position = 0, rows = 0;
    for (;;) {
        size_t got = read_at(fd, buffer, room, position), whole = 0;
        while (got - whole >= 12 && got - whole >= (size_t)be32(buffer + whole + 8) + 12)
            whole += (size_t)be32(buffer + whole + 8) + 12;
        if (whole == 0) return rows;
        int64_t more = lc_limit_decode(buffer, whole, offsets, timestamps, keys, key_ends, key_valid, values,
                                       value_ends, value_valid);
        if (more < 0) return -1;
        rows += more;
        position += (int64_t)whole;
    }
}

/* Returns how many of the batches had the right checksum. */
EXPORT int64_t lc_limit_points(int fd, uint8_t *buffer, int64_t count, const int64_t *positions,
                               const int64_t *sizes) {
    int64_t right = 0;
    for (int64_t i = 0; i < count; i++)
        if (read_at(fd, buffer, (size_t)sizes[i], positions[i]) == (size_t)sizes[i])
            right += lc_limit_crc(buffer, (size_t)sizes[i]);
    return right;
}
