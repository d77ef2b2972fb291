/* The index: the key's hash, its bucket, and the record there that has it. */
#pragma once
#include "scratch.h"

INLINE u64 rotate(u64 v, u32 by) { return v << by | v >> (64 - by); }

#define ROUND(a, b, c, d)                                                                          \
    do {                                                                                           \
        a += b;                                                                                    \
        c += d;                                                                                    \
        b = rotate(b, 13) ^ a;                                                                     \
        d = rotate(d, 16) ^ c;                                                                     \
        a = rotate(a, 32) + d;                                                                     \
        c += b;                                                                                    \
        d = rotate(d, 21) ^ a;                                                                     \
        b = rotate(b, 17) ^ c;                                                                     \
        c = rotate(c, 32);                                                                         \
    } while (0)

/* SipHash-1-3 of the key, as crates/store/src/hash.rs has it. */
NOINLINE int hash_key(struct scratch *s) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!s || !control_)
        return -1;
    u64 a = control_->hash_start[0], b = control_->hash_start[1];
    u64 c = control_->hash_start[2], d = control_->hash_start[3];
    u32 words = s->key_bytes >> 3;
    u64 last = 0;
    for (u32 i = 0; i < 32; i++) {
        last = s->key[i];
        if (i >= words)
            break;
        d ^= last;
        ROUND(a, b, c, d);
        a ^= last;
    }
    last |= (u64)s->key_bytes << 56;
    d ^= last;
    ROUND(a, b, c, d);
    a ^= last;
    c ^= 0xff;
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    s->hash = a ^ b ^ c ^ d;
    return 0;
}

INLINE u32 log2_of(u64 v) {
    u32 log = 0;
    if (v >> 32) { v >>= 32; log += 32; }
    if (v >> 16) { v >>= 16; log += 16; }
    if (v >> 8) { v >>= 8; log += 8; }
    if (v >> 4) { v >>= 4; log += 4; }
    if (v >> 2) { v >>= 2; log += 2; }
    return log + (v >> 1);
}

/* The place of the hash's primary bucket, as crates/store/src/index.rs has it; -1 if nowhere. */
NOINLINE s64 place_of(u64 hash) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_)
        return -1;
    u32 partition = (hash >> 52) & (PARTITIONS - 1);
    u64 count = load64(&control_->buckets[partition]);
    if (count == 0 || count >> 31)
        return -1;
    u64 bits = (hash >> 16) & ((1ull << 36) - 1);
    u32 level = log2_of(count);
    u64 bucket = bits & ((2ull << (level & 31)) - 1);
    if (bucket >= count)
        bucket = bits & ((1ull << (level & 31)) - 1);
    return ((bucket / BUCKET_RUN) * PARTITIONS + partition) * BUCKET_RUN + bucket % BUCKET_RUN;
}

/* A slot's word, taken apart (crates/store/src/location.rs). */
#define MEDIUM(word) ((u32)((word) >> 45) & 7)
#define SIZE_CLASS(word) ((u32)((word) >> 40) & 31)
#define OFFSET(word) ((word) & ((1ull << 40) - 1))
#define MEDIUM_ARENA 0
#define MEDIUM_LINK 7

#define HAS_EXT 1
#define STALE 2
#define TOKEN_SENT 4
#define LARGE 8

/* Whether the record at a location has our key; if so what its header says is in the scratch.
 * Read without belief: the caller validates. */
NOINLINE int examine(struct scratch *s, u64 word) {
    if (!s)
        return MISS;
    if (MEDIUM(word) != MEDIUM_ARENA)
        return ELSEWHERE;
    u64 at = OFFSET(word) * 8;
    u32 element = at / ITEMS_ELEMENT_BYTES;
    u32 offset = at % ITEMS_ELEMENT_BYTES;
    if (offset > ITEMS_ELEMENT_BYTES - RECORD_BYTES_MAX)
        return ELSEWHERE;
    struct items_element *found = bpf_map_lookup_elem(&items, &element);
    if (!found)
        return ELSEWHERE;
    u8 *record = found->bytes + offset;
    u64 seq = load64(record), word_1 = load64(record + 8);
    u32 packed = word_1 >> 32;
    u32 bits = packed >> 8, header_bytes = 16, value_bytes = packed >> 18, client_flags = 0;
    if (bits & HAS_EXT) {
        u64 ext = load64(record + 16);
        client_flags = ext;
        value_bytes = ext >> 32;
        header_bytes = 24;
    }
    u32 key_bytes = s->key_bytes;
    if ((packed & 255) != key_bytes)
        return MISS;
    u8 *key = record + header_bytes;
    for (u32 i = 0; i < 32; i++) {
        if (i * 8 >= key_bytes)
            break;
        u64 mine = s->key[i], theirs = load64(key + i * 8);
        u32 left = key_bytes - i * 8;
        u64 mask = left >= 8 ? ~0ull : (1ull << (left * 8)) - 1;
        if ((mine ^ theirs) & mask)
            return MISS;
    }
    s->seq = seq;
    s->expires = word_1;
    s->client_flags = client_flags;
    s->element = element;
    s->offset = offset;
    s->value_at = offset + header_bytes + key_bytes;
    s->value_bytes = value_bytes;
    s->size_class = SIZE_CLASS(word);
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_ || bits & (STALE | TOKEN_SENT | LARGE))
        return ELSEWHERE;
    if (((packed >> 12) & 63) != load32(&control_->flush))
        return DEAD;
    return s->expires && s->expires <= s->now ? DEAD : HIT;
}

NOINLINE int look_overflow(struct scratch *s, u64 number) {
    u32 index = number;
    if (!s || number >> 32)
        return MISS;
    struct overflow *overflow = bpf_map_lookup_elem(&overflows, &index);
    if (!overflow)
        return ELSEWHERE;
    u16 tag = s->hash;
    u64 word = 0;
    s->overflow = 0;
    for (u32 i = 0; i < OVERFLOW_SLOTS; i++) {
        word = load64(&overflow->slots[i]);
        if (word >> 48 != tag || !word || MEDIUM(word) == MEDIUM_LINK)
            continue;
        int found = examine(s, word);
        if (found != MISS)
            return found;
    }
    s->overflow = MEDIUM(word) == MEDIUM_LINK ? OFFSET(word) + 1 : 0;
    return MISS;
}

/* Look the key up in a bucket and the first overflow buckets behind it. */
INLINE int look(struct scratch *s, struct bucket *bucket) {
    u16 tag = s->hash;
    u64 word = 0;
    for (u32 i = 0; i < SLOTS; i++) {
        word = load64(&bucket->slots[i]);
        if (word >> 48 != tag || !word || MEDIUM(word) == MEDIUM_LINK)
            continue;
        int found = examine(s, word);
        if (found != MISS)
            return found;
    }
    s->overflow = MEDIUM(word) == MEDIUM_LINK ? OFFSET(word) + 1 : 0;
    for (u32 i = 0; i < CHAIN_MAX; i++) {
        u64 next = s->overflow;
        if (!next)
            break;
        int found = look_overflow(s, next - 1);
        if (found != MISS)
            return found;
    }
    return s->overflow ? ELSEWHERE : MISS;
}
