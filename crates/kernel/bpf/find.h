/* The index: the bucket of the key's hash, and the record there that has the key. */
#pragma once
#include "scratch.h"

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
INLINE s64 place_of(struct control *control_, u64 hash) {
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
#define LARGE 8 /* with HAS_EXT; without it the record is bare: its key begins where an end would */

/* Whether a slot may lead to our key. */
INLINE int is_alike(u64 word, u16 tag) {
    return word >> 48 == tag && word && MEDIUM(word) != MEDIUM_LINK;
}

/* Read the record's hit mark, which lies elsewhere, before the record: the processor waits for both
 * at once, which far from its caches is as long as all the rest of a hit. */
INLINE void touch_mark(u32 element, u32 offset) {
    struct marks_element *found = bpf_map_lookup_elem(&marks, &element);
    u32 granule = offset / MARK_GRANULE_BYTES % (ITEMS_ELEMENT_BYTES / MARK_GRANULE_BYTES);
    if (found)
        (void)*(volatile u8 *)&found->marks[granule];
}

/* Whether the record at a location has our key; if so what its header says is in the scratch.
 * Read without belief: the caller validates. */
INLINE int examine(struct scratch *s, struct control *control_, u64 word) {
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
    touch_mark(element, offset);
    u8 *record = found->bytes + offset;
    u64 seq = load64(record), word_1 = load64(record + 8);
    u32 packed = word_1;
    u32 bits = packed >> 8, value_bytes = packed >> 18, client_flags = 0, millis = 0;
    /* Without a branch, which would be one more path for the verifier. */
    u32 is_bare = (bits >> 3) & ~bits & 1;
    u32 header_bytes = 16 - 4 * is_bare, expires = (u32)(word_1 >> 32) & (is_bare - 1);
    if (bits & HAS_EXT) {
        u64 ext = load64(record + 16);
        client_flags = ext;
        millis = value_bytes & 1023;
        value_bytes = ext >> 32;
        header_bytes = 24;
    }
    u32 key_bytes = s->key_bytes, key_at = s->key_at, key_place = hide(s, offset + header_bytes);
    OPAQUE(key_at);
    OPAQUE(key_place);
    if ((packed & 255) != key_bytes || key_at > REQUEST_BYTES_MAX ||
        key_place > ITEMS_ELEMENT_BYTES - RECORD_BYTES_MAX + 24)
        return MISS;
    s->seq = seq;
    s->expires = expires;
    s->client_flags = client_flags;
    s->element = element;
    s->offset = offset;
    s->value_at = key_place + key_bytes;
    s->value_bytes = value_bytes;
    s->size_class = SIZE_CLASS(word);
    u8 *key = found->bytes + key_place, *asked = s->request + key_at;
#pragma nounroll
    for (u32 i = 0; i < KEY_BYTES_MAX; i += 8) {
        if (i >= key_bytes)
            break;
        u64 mine = load64(asked + i), theirs = load64(key + i);
        u32 left = key_bytes - i;
        u64 mask = left >= 8 ? ~0ull : (1ull << (left * 8)) - 1;
        if ((mine ^ theirs) & mask)
            return MISS;
    }
    /* Marked, or in pieces: one condition, for the same reason. */
    if ((bits & (STALE | TOKEN_SENT)) | (bits & (bits >> 3) & HAS_EXT))
        return ELSEWHERE;
    if (((packed >> 12) & 63) != load32(&control_->flush))
        return DEAD;
    if (!s->expires && !millis)
        return HIT; /* without looking at the clock */
    s->now = (bpf_ktime_get_boot_ns() + (u64)control_->unix_minus_boot_ns) / 1000000000;
    if (!millis)
        return s->expires <= s->now ? DEAD : HIT;
    /* The clock here ticks in seconds: the last one of an end with milliseconds is for the server
     * to look at. */
    if (s->expires <= s->now)
        return s->expires < s->now ? DEAD : ELSEWHERE;
    s->expires++; /* what is told is the first full second that is not before it */
    return HIT;
}

/* For who looks at more than one. */
NOINLINE int examine_next(struct scratch *s, u64 word) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    return s && control_ ? examine(s, control_, word) : MISS;
}

/* Look the key up in so many slots, behind the last of which an overflow bucket may be. */
INLINE int look_slots(struct scratch *s, u64 *slots, u32 count) {
    u16 tag = s->hash;
    u64 word = 0;
    for (u32 i = 0; i < count; i++) {
        word = load64(&slots[i]);
        if (!is_alike(word, tag))
            continue;
        int found = examine_next(s, word);
        if (found != MISS)
            return found;
    }
    s->overflow = MEDIUM(word) == MEDIUM_LINK ? OFFSET(word) + 1 : 0;
    return MISS;
}

NOINLINE int look_overflow(struct scratch *s, u64 number) {
    u32 index = number;
    if (!s || number >> 32)
        return MISS;
    struct overflow *overflow = bpf_map_lookup_elem(&overflows, &index);
    if (!overflow)
        return ELSEWHERE;
    s->overflow = 0;
    return look_slots(s, overflow->slots, OVERFLOW_SLOTS);
}

/* Look the key up in all slots of a bucket and the first overflow buckets behind it. */
NOINLINE int look_further(struct scratch *s, u32 index) {
    struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
    if (!s || !bucket)
        return MISS;
    int found = look_slots(s, bucket->slots, SLOTS);
    if (found != MISS)
        return found;
    for (u32 i = 0; i < CHAIN_MAX; i++) {
        u64 next = s->overflow;
        if (!next)
            break;
        found = look_overflow(s, next - 1);
        if (found != MISS)
            return found;
    }
    return s->overflow ? ELSEWHERE : MISS;
}

/* The same by way of the first slot that is like the key's, which nearly always is the key's. */
INLINE int look(struct scratch *s, struct control *control_, struct bucket *bucket, u32 index) {
    u16 tag = s->hash;
    u64 word = 0, first = 0;
#pragma nounroll
    for (u32 i = 0; i < SLOTS; i++) {
        word = load64(&bucket->slots[i]);
        if (is_alike(word, tag)) {
            first = word;
            break;
        }
    }
    if (!first && MEDIUM(word) != MEDIUM_LINK)
        return MISS;
    int found = first ? examine(s, control_, first) : MISS;
    return found == MISS ? look_further(s, index) : found;
}
