/* What the coverage build (LOGCORE_COVERAGE=1) calls at every basic block, and what coverage.py asks of it.
 *
 * An edge is a pair of blocks that ran one after the other; how often it did in one case is kept as one of eight ranges,
 * as AFL does: a loop that runs 4 times instead of 3 is news, 1001 instead of 1000 is not. Edges are told by a hash of
 * their addresses in 2^20 places, which holds some ten thousand with few collisions. One thread. Built by coverage.py.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PLACE_BITS 20
#define PLACES (1u << PLACE_BITS)

static uint32_t hits[PLACES];    /* of the case at work */
static uint8_t seen[PLACES];     /* which ranges any case so far has had, a bit each */
static uint32_t touched[PLACES]; /* the places that the case at work has hit, so that none of the others is looked at */
static uint32_t touched_count, previous, edges;
static int is_on;

void __sanitizer_cov_trace_pc(void) {
    if (!is_on) return;
    uint32_t block = (uint32_t)(((uint64_t)(uintptr_t)__builtin_return_address(0) * 0x9E3779B97F4A7C15u) >> (64 - PLACE_BITS));
    uint32_t place = block ^ previous;
    previous = block >> 1;
    if (hits[place]++ == 0) touched[touched_count++] = place;
}

void trace_begin(void) {
    for (uint32_t i = 0; i < touched_count; i++) hits[touched[i]] = 0;
    touched_count = previous = 0;
    is_on = 1;
}

static uint8_t range_of(uint32_t count) {
    if (count < 4) return (uint8_t)(1u << (count - 1));
    return count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* 2: an edge that no case had before; 1: an edge as often as none had it; 0: nothing new. */
int trace_end(void) {
    int news = 0;
    is_on = 0;
    for (uint32_t i = 0; i < touched_count; i++) {
        uint8_t range = range_of(hits[touched[i]]);
        if (seen[touched[i]] & range) continue;
        if (!seen[touched[i]]) edges++, news = 2;
        else if (!news) news = 1;
        seen[touched[i]] |= range;
    }
    return news;
}

uint32_t trace_edges(void) { return edges; }

/* The edges of the last case, into room for 2^20; returns how many. */
uint32_t trace_touched(uint32_t *out) {
    memcpy(out, touched, touched_count * sizeof touched[0]);
    return touched_count;
}
