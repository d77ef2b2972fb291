/* Eight characters at a time, in one 64-bit word, the first of them lowest. */
#pragma once
#include "bpf.h"

#define LOW_BITS 0x0101010101010101ull
#define HIGH_BITS 0x8080808080808080ull

/* High bits where a byte is a space or below. The lowest is right, others may be a borrow's. */
INLINE u64 spaces_and_below(u64 word) { return (word - 0x21 * LOW_BITS) & ~word & HIGH_BITS; }

/* The same where a byte is DEL. */
INLINE u64 deletes(u64 word) {
    u64 differ = word ^ 0x7f * LOW_BITS;
    return (differ - LOW_BITS) & ~differ & HIGH_BITS;
}

/* The first byte that is a space or below, as its high bit; 0 where there is none. */
INLINE u64 first_end(u64 word) {
    u64 ends = spaces_and_below(word);
    return ends & -ends;
}

/* The first byte that cannot stand in a key: space, control character or DEL. */
INLINE u64 first_stop(u64 word) {
    u64 stops = spaces_and_below(word) | deletes(word);
    return stops & -stops;
}

/* Which byte a high bit is in. */
INLINE u32 byte_of(u64 high_bit) { return (high_bit >> 7) * 0x0001020304050607ull >> 56 & 7; }

/* The bytes before that one. */
INLINE u64 bytes_before(u64 high_bit) { return (high_bit >> 7) - 1; }
