/* Steering of keys to sockets (MICA §4.1.2 and KeySched §2, in software): of the sockets that share
 * a port, the one of the key's owner receives the datagram, so that ordinary clients need to know
 * nothing of owners. The hash is that of crates/policy/src/owner.rs, of which the 12 highest bits
 * name a slot of a table that user space rewrites.
 *
 * The same program counts how often each key is asked for in a timeslot, by the count-min sketch of
 * crates/policy/src/hot/sketch.rs, and reports keys that pass a threshold. CPUs count into the same
 * cells without locks: a count may be too small by what two of them did in the same moment. */
#include "lane.h"
#include "words.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define UDP_BYTES 8
#define TEXT_AT 16
#define WINDOW_BYTES 384
#define KEY_BYTES_MAX 250
#define SOCKETS_MAX 256
/* Longer datagrams are read the slow way. A power of two less one, as it masks, too. */
#define DATAGRAM_BYTES_MAX 32767

struct window {
    u64 key[34];
    u8 bytes[WINDOW_BYTES + 64];
    u32 words_before, in_word, key_at, key_bytes;
};

struct {
    UINT(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct steer);
    UINT(max_entries, 1);
    UINT(map_flags, MAPPABLE);
} steer SEC(".maps");

struct {
    UINT(type, MAP_REUSEPORT_SOCKARRAY);
    TYPE(key, u32);
    TYPE(value, u32);
    UINT(max_entries, SOCKETS_MAX);
} sockets SEC(".maps");

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct window);
    UINT(max_entries, 1);
} windows SEC(".maps");

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct steer_counters);
    UINT(max_entries, 1);
} steer_counts SEC(".maps");

/* A request of several datagrams names its key in the first only, and what is no request names
 * none. */
INLINE int is_whole_request(const u8 *datagram) {
    return load32(datagram + UDP_BYTES + 2) == 0x01000000 && !load16(datagram + UDP_BYTES + 6);
}

/* One character of the line; whether the key has ended. What was seen so far is kept in the window,
 * whose content the verifier does not follow: it would try every place of the key. */
NOINLINE int step(struct window *w, u32 at) {
    if (!w || at >= WINDOW_BYTES)
        return 1;
    u8 c = w->bytes[at];
    if (c == ' ') {
        if (w->key_at)
            return 1;
        if (w->in_word && w->words_before)
            w->words_before--;
        w->in_word = 0;
        return 0;
    }
    if (c == '\r' || c == '\n')
        return 1;
    w->in_word = 1;
    if (w->words_before)
        return 0;
    if (!w->key_at)
        w->key_at = at;
    w->key_bytes++;
    return 0;
}

/* Whether a line begins with `gat` or `gats`, which name a time before the key. */
INLINE int has_time(u64 head) { return (u32)head == 0x20746167 || (u32)head == 0x73746167; }

/* Find the first key of the line: the second word, or the third of `gat` and `gats`, which name a
 * time first. */
NOINLINE int find_key(struct window *w, u32 end) {
    if (!w || end > WINDOW_BYTES)
        return 0;
    w->words_before = has_time(load64(w->bytes + TEXT_AT)) ? 2 : 1;
    w->in_word = 0;
    w->key_at = 0;
    w->key_bytes = 0;
    for (u32 i = TEXT_AT; i < WINDOW_BYTES; i++) {
        if (i >= end || step(w, i))
            break;
    }
    return 0;
}

INLINE u64 stir(u64 state, u64 multiplier) {
    state *= multiplier;
    return state ^ state >> 32;
}

#define MULTIPLIER 0x243f6a8885a308d3ull
#define MULTIPLIER_LAST 0xb7e151628aed2a6bull

NOINLINE u64 owner_hash(struct window *w, u64 seed, u32 bytes) {
    if (!w)
        return 0;
    u64 state = seed ^ bytes * MULTIPLIER;
    for (u32 i = 0; i < 32; i++) {
        if (i * 8 >= bytes)
            break;
        state = stir(state ^ w->key[i], MULTIPLIER);
    }
    return stir(stir(state, MULTIPLIER_LAST), MULTIPLIER_LAST);
}

/* The hash of the key of a line as most are: a verb of at most seven letters, one space, the key;
 * the datagram in one piece. Read where it lies, eight characters at a time, and nothing is called:
 * a return costs 10 ns and more where the processor may not guess where it leads. Whether it is
 * such a line; of the others some have a key, too. */
INLINE int hash_near(struct sk_reuseport_md *ctx, struct steer *s, u64 *hash) {
    const u8 *data = (const u8 *)ctx->data, *end = (const u8 *)ctx->data_end;
    u64 bytes = end - data;
    if (data + TEXT_AT + 8 > end || bytes != ctx->len || bytes > DATAGRAM_BYTES_MAX)
        return 0;
    if (!is_whole_request(data))
        return 0;
    u64 head = load64(data + TEXT_AT), verb_end = first_end(head);
    u32 verb_bytes = byte_of(verb_end);
    if (!verb_end || verb_bytes == 0 || (head >> verb_bytes * 8 & 255) != ' ' || has_time(head))
        return 0;
    u64 key_at = TEXT_AT + 1 + verb_bytes, word = 0, ends = 0;
    const u8 *key = data + key_at;
    u32 words = 0;
#pragma nounroll
    for (; words <= KEY_BYTES_MAX / 8; words++) {
        const u8 *at = key + words * 8;
        if (at + 8 > end)
            break;
        word = load64(at);
        ends = first_end(word);
        if (ends)
            break;
    }
    words += load32(&s->zero); /* or the verifier would go on once for each number of words */
    if (!ends) {
        /* The last word: by the eight bytes that end with the datagram. Behind it are zeros, which
         * end a key, too. */
        u64 over = key_at + words * 8 + 8 - bytes;
        const u8 *last = data + ((bytes - 8) & DATAGRAM_BYTES_MAX);
        if (over == 0 || over > 8 || last + 8 > end)
            return 0;
        word = over < 8 ? load64(last) >> over * 8 : 0;
        ends = first_end(word);
    }
    u32 key_bytes = words * 8 + byte_of(ends);
    u8 c = word >> byte_of(ends) * 8;
    if (!ends || key_bytes == 0 || key_bytes > KEY_BYTES_MAX ||
        (c != ' ' && c != '\r' && c != '\n' && key_at + key_bytes < bytes))
        return 0;
    u64 state = s->seed ^ key_bytes * MULTIPLIER;
#pragma nounroll
    for (u32 i = 0; i <= KEY_BYTES_MAX / 8; i++) {
        const u8 *at = key + i * 8;
        if (i >= words || at + 8 > end)
            break;
        state = stir(state ^ load64(at), MULTIPLIER);
    }
    if (bytes_before(ends))
        state = stir(state ^ (word & bytes_before(ends)), MULTIPLIER);
    *hash = stir(stir(state, MULTIPLIER_LAST), MULTIPLIER_LAST);
    return 1;
}

/* The same of any line and datagram, read into memory of ours, character by character. */
INLINE int hash_far(struct sk_reuseport_md *ctx, u64 seed, u64 *hash) {
    u32 zero = 0;
    struct window *w = bpf_map_lookup_elem(&windows, &zero);
    u32 bytes = ctx->len < WINDOW_BYTES ? ctx->len : WINDOW_BYTES;
    OPAQUE(bytes);
    if (!w || bytes <= TEXT_AT || bytes > WINDOW_BYTES ||
        bpf_skb_load_bytes(ctx, 0, w->bytes, bytes) || !is_whole_request(w->bytes))
        return 0;
    find_key(w, bytes);
    u32 key_at = w->key_at, key_bytes = w->key_bytes;
    OPAQUE(key_bytes);
    if (key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return 0;
    w->key[key_bytes >> 3] = 0;
    if (bpf_skb_load_bytes(ctx, key_at, w->key, key_bytes))
        return 0;
    *hash = owner_hash(w, seed, key_bytes);
    return 1;
}

/* Count one request; once the key's smallest cell reaches the threshold, report it. */
INLINE void count(struct steer *s, u64 hash, u32 hot_requests) {
    u32 place[SKETCH_ROWS], lowest = 0xffff;
    u16 seen[SKETCH_ROWS];
    u64 step = hash >> 32 | 1, row_hash = hash;
    u32 stamp = s->stamp << 16;
#pragma unroll
    for (u32 row = 0; row < SKETCH_ROWS; row++) {
        place[row] = row * SKETCH_COLUMNS + (row_hash & (SKETCH_COLUMNS - 1));
        u32 cell = s->cells[place[row] & (SKETCH_ROWS * SKETCH_COLUMNS - 1)];
        seen[row] = (cell ^ stamp) >> 16 ? 0 : cell;
        if (seen[row] < lowest)
            lowest = seen[row];
        row_hash += step;
    }
    u32 next = lowest < 0xffff ? lowest + 1 : lowest;
#pragma unroll
    for (u32 row = 0; row < SKETCH_ROWS; row++)
        if (seen[row] == lowest)
            s->cells[place[row] & (SKETCH_ROWS * SKETCH_COLUMNS - 1)] = stamp | next;
    if (next == hot_requests && lowest != next) {
        u64 at = __sync_fetch_and_add(&s->hot_count, 1);
        if (at < HOT_MAX)
            s->hot[at] = hash;
    }
}

SEC("sk_reuseport")
int steer_keys(struct sk_reuseport_md *ctx) {
    u32 zero = 0;
    u64 hash;
    struct steer *s = bpf_map_lookup_elem(&steer, &zero);
    struct steer_counters *counters = bpf_map_lookup_elem(&steer_counts, &zero);
    if (!s || !counters)
        return SK_PASS;
    u32 receivers = s->receivers;
    if (!hash_near(ctx, s, &hash) && !hash_far(ctx, s->seed, &hash)) {
        counters->unsteered++;
        if (receivers) {
            u32 any = ctx->hash % receivers;
            bpf_sk_select_reuseport(ctx, &sockets, &any, 0);
        }
        return SK_PASS;
    }
    if (s->hot_requests)
        count(s, hash, s->hot_requests);
    u32 socket = s->socket[hash >> 52 & (STEER_SLOTS - 1)];
    if (socket == STEER_ANYONE && receivers)
        socket = ctx->hash % receivers;
    if (bpf_sk_select_reuseport(ctx, &sockets, &socket, 0))
        counters->socketless++;
    else
        counters->steered++;
    return SK_PASS;
}
