/* The lane in the kernel (Hippos §3): a GET of one key over UDP is answered below the socket.
 *
 * Built twice, for the tc ingress hook and, with LANE_XDP, for XDP. What it reads, user space owns:
 * buckets and records are in mapped arrays, of the layout of crates/store, and user space is their
 * only writer. So there is no second copy that could be out of date. A read is believed when the
 * bucket's version was even before and is the same afterwards; nothing of the packet is touched
 * before that. Whatever is not answered goes up to user space as it came.
 *
 * Never waits: a writer inside the bucket may be the thread that this program interrupted. */
#include "lane.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define ETH_BYTES 14
#define UDP_BYTES 8
#define FRAME_BYTES 8
#define TEXT_AT (UDP_BYTES + FRAME_BYTES)
#define REQUEST_BYTES_MAX 512
#define KEY_BYTES_MAX 250
#define FLAG_BYTES_MAX 64
#define FLAGS_MAX 8
#define REPLY_BYTES_MAX 1472
/* Head of a reply at most: frame headers, verb, key, numbers, flags. */
#define HEAD_BYTES_MAX 1024

/* One packet's working memory; programs of one CPU do not interrupt each other. */
struct scratch {
    u64 key[34];
    u8 request[REQUEST_BYTES_MAX + 264]; /* copies overrun by less */
    u8 reply[4096];
    u8 head[64]; /* Ethernet and IP headers */
    u64 hash;
    /* Filled by `parse`. */
    u32 bytes; /* from the UDP header on */
    u32 key_at, key_bytes;
    u32 meta, flags_count;
    u8 flags[FLAGS_MAX];
    u32 opaque_at, opaque_bytes, in_opaque, flags_seen;
    /* Filled by `examine`. */
    u64 seq;
    u32 element, offset, expires, client_flags, value_at, value_bytes, size_class;
    /* Filled by `attempt`. */
    u32 prefix_bytes, reply_bytes;
    u64 now, overflow;
};

#define ARRAY(name_, value_, entries_, type_, flags_)                                              \
    struct {                                                                                       \
        UINT(type, type_);                                                                         \
        TYPE(key, u32);                                                                            \
        TYPE(value, value_);                                                                       \
        UINT(max_entries, entries_);                                                               \
        UINT(map_flags, flags_);                                                                   \
    } name_ SEC(".maps")

struct items_element {
    u8 bytes[ITEMS_ELEMENT_BYTES];
};
struct marks_element {
    u8 marks[ITEMS_ELEMENT_BYTES / MARK_GRANULE_BYTES];
};

ARRAY(control, struct control, 1, MAP_ARRAY, MAPPABLE);
ARRAY(buckets, struct bucket, 1, MAP_ARRAY, MAPPABLE);
ARRAY(overflows, struct overflow, 1, MAP_ARRAY, MAPPABLE);
ARRAY(items, struct items_element, 1, MAP_ARRAY, MAPPABLE);
ARRAY(marks, struct marks_element, 1, MAP_ARRAY, MAPPABLE);
ARRAY(counts, struct counters, 1, MAP_PERCPU_ARRAY, 0);
ARRAY(scratches, struct scratch, 1, MAP_PERCPU_ARRAY, 0);

/* ---- the two hooks ---- */

#ifdef LANE_XDP
typedef struct xdp_md context;
#define PASS XDP_PASS
#define DROP XDP_DROP
INLINE u32 packet_bytes(context *ctx) { return bpf_xdp_get_buff_len(ctx); }
INLINE u32 interface(context *ctx) { return ctx->ingress_ifindex; }
INLINE int is_plain(context *ctx) { return 1; }
INLINE int get(context *ctx, u32 at, void *to, u32 len) {
    return bpf_xdp_load_bytes(ctx, at, to, len);
}
INLINE int put(context *ctx, u32 at, void *from, u32 len) {
    return bpf_xdp_store_bytes(ctx, at, from, len);
}
INLINE int resize(context *ctx, u32 bytes) {
    return bpf_xdp_adjust_tail(ctx, (int)bytes - (int)packet_bytes(ctx));
}
INLINE int send(context *ctx) { return XDP_TX; }
/* What leaves from here was never a socket buffer: nobody completes its sum. */
#define PARTIAL_OF(partial) 0
#else
typedef struct __sk_buff context;
#define PASS TC_ACT_UNSPEC
#define DROP TC_ACT_SHOT
INLINE u32 packet_bytes(context *ctx) { return ctx->len; }
INLINE u32 interface(context *ctx) { return ctx->ifindex; }
/* For this host, without a VLAN tag, and not several datagrams in one. */
INLINE int is_plain(context *ctx) {
    return ctx->pkt_type == 0 && !ctx->vlan_present && !ctx->gso_size;
}
INLINE int get(context *ctx, u32 at, void *to, u32 len) {
    return bpf_skb_load_bytes(ctx, at, to, len);
}
INLINE int put(context *ctx, u32 at, void *from, u32 len) {
    return bpf_skb_store_bytes(ctx, at, from, len, RECOMPUTE_CSUM);
}
INLINE int resize(context *ctx, u32 bytes) { return bpf_skb_change_tail(ctx, bytes, 0); }
INLINE int send(context *ctx) { return bpf_redirect(ctx->ifindex, 0); }
#define PARTIAL_OF(partial) (partial)
#endif

/* ---- sums ---- */

INLINE u16 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* The ones' complement sum of `bytes` bytes from `from`, which zeros follow, added to `sum`. */
INLINE u32 sum_of(u8 *from, u32 bytes, u32 bytes_max, u32 sum) {
    for (u32 at = 0; at < bytes_max; at += 512) {
        if (at >= bytes)
            break;
        u32 part = bytes - at;
        if (part > 512)
            part = 512;
        part = (part + 3) & ~3u;
        OPAQUE(part);
        if (part > 512)
            break;
        s64 next = bpf_csum_diff(0, 0, from + at, part, sum);
        if (next < 0)
            break;
        sum = next;
    }
    return sum;
}

NOINLINE u32 sum_request(struct scratch *s, u32 bytes, u32 sum) {
    if (!s || bytes > REQUEST_BYTES_MAX)
        return 0;
    return sum_of(s->request, bytes, REQUEST_BYTES_MAX, sum);
}

NOINLINE u32 sum_reply(struct scratch *s, u32 bytes, u32 sum) {
    if (!s || bytes > UDP_BYTES + REPLY_BYTES_MAX)
        return 0;
    return sum_of(s->reply, bytes, UDP_BYTES + REPLY_BYTES_MAX, sum);
}

/* Of the pseudo header: both addresses, protocol, length. */
INLINE u32 sum_pseudo(u8 *addresses, u32 bytes, u32 udp_bytes) {
    u32 sum = bpf_csum_diff(0, 0, addresses, bytes, 0);
    u32 rest[2] = { swap16(udp_bytes), swap16(17) };
    return bpf_csum_diff(0, 0, rest, sizeof(rest), sum);
}

/* ---- the request ---- */

/* One character of the flags. What was seen so far is kept in the scratch, whose content the
 * verifier does not follow: it would try every combination of flags. */
NOINLINE int parse_flag(struct scratch *s, u32 at) {
    if (!s || at >= REQUEST_BYTES_MAX)
        return -1;
    u8 c = s->request[at], before = s->request[(at - 1) & (REQUEST_BYTES_MAX - 1)];
    if (c < ' ' || c >= 127)
        return -1;
    if (c == ' ') {
        s->in_opaque = 0;
        return before == ' ' && s->flags_count ? -1 : 0;
    }
    if (s->in_opaque) {
        s->opaque_bytes++;
        return 0;
    }
    u32 bit = c == 'v'   ? 1
              : c == 'f' ? 2
              : c == 's' ? 4
              : c == 'k' ? 8
              : c == 't' ? 16
              : c == 'c' ? 32
              : c == 'q' ? 64
              : c == 'O' ? 128
                         : 0;
    u32 count = s->flags_count;
    if (before != ' ' || !bit || s->flags_seen & bit || count >= FLAGS_MAX)
        return -1;
    s->flags_seen |= bit;
    s->flags[count] = c;
    s->flags_count = count + 1;
    if (c == 'O') {
        s->in_opaque = 1;
        s->opaque_at = at;
        s->opaque_bytes = 1;
    }
    return 0;
}

/* The flags of `mg` from `at`, each of them a space and a letter; only those the lane knows. */
NOINLINE int parse_flags(struct scratch *s, u32 at, u32 end) {
    if (!s || end - at > FLAG_BYTES_MAX)
        return -1;
    s->flags_seen = 0;
    s->in_opaque = 0;
    for (u32 i = 0; i < FLAG_BYTES_MAX; i++) {
        if (at + i >= end)
            break;
        if (parse_flag(s, at + i))
            return -1;
    }
    /* 32 bytes of opaque, its letter included. */
    return s->flags_seen & 1 && s->opaque_bytes <= 32 ? 0 : -1;
}

/* One `get KEY\r\n` or `mg KEY FLAGS\r\n`, with single spaces. Everything else is user space's. */
NOINLINE int parse(struct scratch *s) {
    if (!s)
        return -1;
    u32 bytes = s->bytes;
    if (bytes < TEXT_AT + 6 || bytes > REQUEST_BYTES_MAX)
        return -1;
    u32 end = bytes - 2; /* where "\r\n" stands */
    if (end >= REQUEST_BYTES_MAX || s->request[end] != '\r' || s->request[end + 1] != '\n')
        return -1;
    u32 key_at = TEXT_AT + 3;
    s->meta = s->request[TEXT_AT] == 'm';
    if (s->meta) {
        if (s->request[TEXT_AT + 1] != 'g' || s->request[TEXT_AT + 2] != ' ')
            return -1;
    } else {
        if ((load32(s->request + TEXT_AT)) != 0x20746567) /* "get " */
            return -1;
        key_at++;
    }
    u32 key_bytes = 0;
    for (u32 i = 0; i <= KEY_BYTES_MAX; i++) {
        u8 c = s->request[key_at + i];
        if (key_at + i >= end || c == ' ')
            break;
        if (c < ' ' || c == 127)
            return -1;
        key_bytes++;
    }
    if (key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return -1;
    s->key_at = key_at;
    s->key_bytes = key_bytes;
    s->flags_count = 0;
    s->opaque_bytes = 0;
    if (s->meta)
        return parse_flags(s, key_at + key_bytes, end);
    return key_at + key_bytes == end ? 0 : -1;
}

/* ---- the index ---- */

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

/* ---- the reply ---- */

/* A number as decimal text at `at` of the reply; where it ends. */
NOINLINE u32 put_number(struct scratch *s, u32 at, u64 number) {
    u32 digits = 1;
    u64 rest = number;
    if (!s || at > HEAD_BYTES_MAX)
        return 0;
    for (u32 i = 0; i < 19; i++) {
        rest /= 10;
        if (!rest)
            break;
        digits++;
    }
    for (u32 i = 0; i < 20; i++) {
        if (i >= digits)
            break;
        u32 to = at + digits - 1 - i;
        if (to >= HEAD_BYTES_MAX + 64)
            break;
        s->reply[to] = '0' + number % 10;
        number /= 10;
    }
    return at + digits;
}

/* `bytes` bytes of the request at `at` of the reply; where they end. */
NOINLINE u32 put_request(struct scratch *s, u32 at, u32 from, u32 bytes) {
    if (!s || at > HEAD_BYTES_MAX || from > REQUEST_BYTES_MAX)
        return 0;
    for (u32 i = 0; i < 256; i += 8) {
        if (i >= bytes)
            break;
        store64(s->reply + at + i, load64(s->request + from + i));
    }
    return at + bytes;
}

NOINLINE u32 put_byte(struct scratch *s, u32 at, u32 byte) {
    if (s && at <= HEAD_BYTES_MAX)
        s->reply[at] = byte;
    return at + 1;
}

/* What a meta hit returns, in the order asked for. */
NOINLINE u32 put_flags(struct scratch *s, u32 at) {
    if (!s)
        return 0;
    for (u32 i = 0; i < FLAGS_MAX; i++) {
        if (i >= s->flags_count)
            break;
        u8 flag = s->flags[i];
        if (flag == 'v' || flag == 'q')
            continue;
        at = put_byte(s, at, ' ');
        if (flag == 'O') {
            at = put_request(s, at, s->opaque_at, s->opaque_bytes);
            continue;
        }
        at = put_byte(s, at, flag);
        if (flag == 'k') {
            at = put_request(s, at, s->key_at, s->key_bytes);
        } else if (flag == 't' && !s->expires) {
            at = put_byte(s, at, '-');
            at = put_byte(s, at, '1');
        } else {
            at = put_number(s, at,
                            flag == 'f'   ? s->client_flags
                            : flag == 's' ? s->value_bytes
                            : flag == 'c' ? s->seq
                                          : s->expires - s->now);
        }
    }
    return at;
}

/* The value, copied by words behind `at`. Read without belief. */
NOINLINE int put_value(struct scratch *s, u32 at) {
    if (!s || at > HEAD_BYTES_MAX)
        return -1;
    u32 from = s->value_at, bytes = s->value_bytes, element = s->element;
    struct items_element *found = bpf_map_lookup_elem(&items, &element);
    /* A key of 250 and a header may stand before the value; the copy ends inside in any case. */
    if (!found || bytes > REPLY_BYTES_MAX || from > ITEMS_ELEMENT_BYTES - RECORD_BYTES_MAX + 280)
        return -1;
    for (u32 i = 0; i < REPLY_BYTES_MAX; i += 8) {
        if (i >= bytes)
            break;
        store64(s->reply + at + i, load64(found->bytes + from + i));
    }
    return 0;
}

/* Head, value and end of the reply, behind the UDP and frame headers. */
NOINLINE int compose(struct scratch *s) {
    if (!s)
        return LONG;
    u32 at = TEXT_AT;
    if (s->meta) {
        store64(s->reply + at, 0x204156); /* "VA " */
        at = put_number(s, at + 3, s->value_bytes);
        at = put_flags(s, at);
    } else {
        store64(s->reply + at, 0x2045554c4156); /* "VALUE " */
        at = put_request(s, at + 6, s->key_at, s->key_bytes);
        at = put_byte(s, at, ' ');
        at = put_number(s, at, s->client_flags);
        at = put_byte(s, at, ' ');
        at = put_number(s, at, s->value_bytes);
    }
    at = put_byte(s, at, '\r');
    at = put_byte(s, at, '\n');
    u32 zero = 0, value_bytes = s->value_bytes;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_ || value_bytes > REPLY_BYTES_MAX)
        return LONG;
    u32 bytes = at + value_bytes + (s->meta ? 2 : 7) - UDP_BYTES;
    if (bytes > load32(&control_->payload_bytes_max) || bytes > REPLY_BYTES_MAX)
        return LONG;
    if (put_value(s, at))
        return LONG;
    at += value_bytes;
    if (at > UDP_BYTES + REPLY_BYTES_MAX)
        return LONG;
    /* "\r\nEND\r\n" and zeros behind it, as sums are made of whole words. */
    store64(s->reply + at, s->meta ? 0x0a0d : 0x000a0d444e450a0d);
    store64(s->reply + at + 8, 0);
    s->reply_bytes = bytes + UDP_BYTES;
    return HIT;
}

/* One optimistic look at the key, its reply composed. */
NOINLINE int attempt(struct scratch *s) {
    if (!s)
        return MISS;
    s64 place = place_of(s->hash);
    if (place < 0 || place >> 31)
        return ELSEWHERE;
    u32 index = place;
    struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
    if (!bucket)
        return ELSEWHERE;
    u64 before = load64(&bucket->version);
    if (before & 1)
        return WRITING;
    ORDER();
    int found = look(s, bucket);
    if (found == HIT)
        found = compose(s);
    ORDER();
#ifndef LANE_UNVALIDATED /* only to show that the tests would notice */
    if (load64(&bucket->version) != before)
        return TORN;
#endif
    return found;
}

/* ---- the packet ---- */

INLINE void mark_hit(struct scratch *s) {
    u32 element = s->element, granule = s->offset / MARK_GRANULE_BYTES;
    struct marks_element *found = bpf_map_lookup_elem(&marks, &element);
    if (!found || granule >= ITEMS_ELEMENT_BYTES / MARK_GRANULE_BYTES)
        return;
    u8 mark = found->marks[granule];
    if (mark < MARK_MAX)
        found->marks[granule] = mark + 1;
}

/* Whether an address is one of our own, or one that is served. */
NOINLINE int listed(u32 served, u64 high, u64 low) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_)
        return 0;
    u32 count = served ? control_->served_count : control_->own_count;
    for (u32 i = 0; i < LISTED_MAX; i++) {
        if (i >= count)
            break;
        struct range *range = served ? &control_->served[i] : &control_->own[i];
        u64 differ = (range->address[0] ^ high) & range->mask[0];
        if (!(differ | ((range->address[1] ^ low) & range->mask[1])))
            return 1;
    }
    return 0;
}

/* 127.0.0.0/8 and ::1: nobody else's on any interface but the loopback, whose number is 1 in every
 * network namespace. */
#define LOOPBACK 1
INLINE int is_loopback(u64 high, u64 low) {
    if (high)
        return 0;
    return (low & 0xffffffff) == 0xffff0000 ? (low >> 32 & 255) == 127 : low == 1ull << 56;
}

INLINE u64 mapped_ip4(const u8 *at) { return (u64)load32(at) << 32 | 0xffff0000; }

/* What the headers say: how long those before the UDP header are. Kind of packet in `outcome`:
 * HIT when it may be for the lane, MISS when it is nothing of ours, else why it is passed. */
INLINE u32 check_headers(struct scratch *s, struct control *control_, context *ctx, int *outcome) {
    u8 *ip = s->head + ETH_BYTES;
    u32 bytes = packet_bytes(ctx), ip_bytes;
    u64 source_high = 0, source, own_high = 0, own;
    *outcome = MISS;
    if (bytes < ETH_BYTES + 20 + TEXT_AT || get(ctx, 0, s->head, ETH_BYTES + 20))
        return 0;
    if (load16(s->head + 12) == swap16(0x0800)) {
        if (ip[9] != 17 || ip[0] >> 4 != 4)
            return 0;
        ip_bytes = 20;
        if (ip[0] != 0x45 || load16(ip + 6) & swap16(0xbfff)) {
            /* Options or a fragment. Whether it is for our port only the stack can tell. */
            *outcome = FRAME;
            return 0;
        }
        source = mapped_ip4(ip + 12);
        own = mapped_ip4(ip + 16);
        s->bytes = swap16(load16(ip + 2)) - 20;
        if (ip[12] == 0 || ip[12] >= 224)
            return 0;
    } else if (load16(s->head + 12) == swap16(0x86dd)) {
        if (bytes < ETH_BYTES + 40 + TEXT_AT || get(ctx, ETH_BYTES + 20, ip + 20, 20))
            return 0;
        if (ip[6] != 17 || ip[0] >> 4 != 6)
            return 0;
        ip_bytes = 40;
        source_high = load64(ip + 8);
        source = load64(ip + 16);
        own_high = load64(ip + 24);
        own = load64(ip + 32);
        s->bytes = swap16(load16(ip + 4));
        if (ip[8] == 0xff || !(source_high | source))
            return 0;
    } else {
        return 0;
    }
    if (get(ctx, ETH_BYTES + ip_bytes, s->request, TEXT_AT))
        return 0;
    u32 port = swap16(load16(s->request + 2));
    if ((port - control_->ports[0].first >= control_->ports[0].count &&
         port - control_->ports[1].first >= control_->ports[1].count) ||
        !listed(0, own_high, own))
        return 0;
    *outcome = FRAME;
    u32 udp_bytes = swap16(load16(s->request + 4));
    if (s->bytes != udp_bytes || bytes < ETH_BYTES + ip_bytes + udp_bytes || udp_bytes < TEXT_AT ||
        !is_plain(ctx) || !load16(s->request))
        return 0;
    /* The frame header: the only datagram of its message, of the kind that memcached knows. */
    if ((load64(s->request + UDP_BYTES) & ~0xffffull) != 0x0000010000000000)
        return 0;
    if (ip_bytes == 20 && fold(bpf_csum_diff(0, 0, ip, 20, 0)) != 0xffff) {
        *outcome = CHECKSUM;
        return 0;
    }
    *outcome = STRANGER;
    if (interface(ctx) != LOOPBACK &&
        (is_loopback(source_high, source) || is_loopback(own_high, own)))
        return 0;
    if (control_->served_count && !listed(1, source_high, source))
        return 0;
    *outcome = REQUEST;
    if (udp_bytes > REQUEST_BYTES_MAX)
        return 0;
    *outcome = HIT;
    return ip_bytes;
}

/* Read the request; whether its checksum holds. Packets of this very machine may carry the sum of
 * the pseudo header only, for a network card to complete: then a reply by the same way must carry
 * that, too. */
INLINE int read_request(struct scratch *s, context *ctx, u32 ip_bytes, u32 *partial) {
    u32 bytes = s->bytes;
    OPAQUE(bytes);
    if (bytes < TEXT_AT + 1 || bytes > REQUEST_BYTES_MAX)
        return REQUEST;
    if (get(ctx, ETH_BYTES + ip_bytes, s->request, bytes))
        return FRAME;
    store64(s->request + bytes, 0);
    u32 pseudo = ip_bytes == 20 ? sum_pseudo(s->head + ETH_BYTES + 12, 8, bytes)
                                : sum_pseudo(s->head + ETH_BYTES + 8, 32, bytes);
    u16 said = load16(s->request + 6);
    *partial = said == fold(pseudo);
    if (said == 0 && ip_bytes == 20)
        return HIT;
    if (*partial || (said && fold(sum_request(s, bytes, pseudo)) == 0xffff))
        return HIT;
    return CHECKSUM;
}

/* The key, with zeros behind it, for hashing and comparing by words. */
INLINE int read_key(struct scratch *s, context *ctx, u32 ip_bytes) {
    u32 key_bytes = s->key_bytes, key_at = s->key_at;
    OPAQUE(key_bytes);
    if (key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return REQUEST;
    s->key[key_bytes >> 3] = 0;
    return get(ctx, ETH_BYTES + ip_bytes + key_at, s->key, key_bytes) ? FRAME : HIT;
}

INLINE void swap_bytes(u8 *a, u8 *b, u32 bytes) {
#pragma unroll
    for (u32 i = 0; i < bytes; i += 2) {
        u16 kept = load16(a + i);
        *(volatile u16 *)(a + i) = load16(b + i);
        *(volatile u16 *)(b + i) = kept;
    }
}

/* Headers of the reply, out of those of the request. */
INLINE void turn_headers(struct scratch *s, u32 ip_bytes, u32 partial) {
    u8 *ip = s->head + ETH_BYTES;
    u32 bytes = s->reply_bytes;
    swap_bytes(s->head, s->head + 6, 6);
    if (ip_bytes == 20) {
        swap_bytes(ip + 12, ip + 16, 4);
        ip[1] = 0;
        *(volatile u16 *)(ip + 2) = swap16(bytes + 20);
        *(volatile u32 *)(ip + 4) = 0x00400000; /* no id, do not fragment */
        ip[8] = 64;
        *(volatile u16 *)(ip + 10) = 0;
        *(volatile u16 *)(ip + 10) = ~fold(bpf_csum_diff(0, 0, ip, 20, 0));
    } else {
        swap_bytes(ip + 8, ip + 24, 16);
        *(volatile u16 *)(ip + 4) = swap16(bytes);
        ip[7] = 64;
    }
    *(volatile u16 *)(s->reply) = load16(s->request + 2);
    *(volatile u16 *)(s->reply + 2) = load16(s->request);
    *(volatile u16 *)(s->reply + 4) = swap16(bytes);
    *(volatile u16 *)(s->reply + 6) = 0;
    store64(s->reply + UDP_BYTES, load64(s->request + UDP_BYTES));
    u32 pseudo = ip_bytes == 20 ? sum_pseudo(ip + 12, 8, bytes) : sum_pseudo(ip + 8, 32, bytes);
    u16 sum = partial ? fold(pseudo) : ~fold(sum_reply(s, bytes, pseudo));
    *(volatile u16 *)(s->reply + 6) = sum ? sum : 0xffff;
}

/* The packet becomes the reply. */
INLINE int reply(struct scratch *s, struct control *control_, context *ctx, u32 ip_bytes,
                 u32 partial) {
    u32 bytes = s->reply_bytes;
    OPAQUE(bytes);
    if (bytes < TEXT_AT || bytes > UDP_BYTES + REPLY_BYTES_MAX ||
        bytes + ip_bytes > control_->mtu_bytes)
        return LONG;
    turn_headers(s, ip_bytes, PARTIAL_OF(partial));
    if (resize(ctx, ETH_BYTES + ip_bytes + bytes))
        return ROOM;
    if (ip_bytes == 20 ? put(ctx, 0, s->head, ETH_BYTES + 20)
                       : put(ctx, 0, s->head, ETH_BYTES + 40))
        return LOST;
    return put(ctx, ETH_BYTES + ip_bytes, s->reply, bytes) ? LOST : HIT;
}

INLINE int serve(struct scratch *s, struct control *control_, struct counters *counters,
                 context *ctx) {
    int outcome;
    u32 partial = 0;
    u32 ip_bytes = check_headers(s, control_, ctx, &outcome);
    if (outcome == MISS)
        return -1;
    if (outcome != HIT)
        return outcome;
    if ((outcome = read_request(s, ctx, ip_bytes, &partial)) != HIT)
        return outcome;
    if (parse(s))
        return REQUEST;
    if ((outcome = read_key(s, ctx, ip_bytes)) != HIT)
        return outcome;
    hash_key(s);
    s->now = (bpf_ktime_get_boot_ns() + (u64)control_->unix_minus_boot_ns) / 1000000000;
    outcome = TORN;
    for (u32 i = 0; i < ATTEMPTS_MAX; i++) {
        outcome = attempt(s);
        if (outcome != TORN)
            break;
        counters->retries++;
    }
    if (outcome != HIT)
        return outcome;
    if ((outcome = reply(s, control_, ctx, ip_bytes, partial)) != HIT)
        return outcome;
    counters->hits_of_class[s->size_class & 31]++;
    mark_hit(s);
    return HIT;
}

#ifdef LANE_XDP
SEC("xdp")
#else
SEC("classifier")
#endif
int lane(context *ctx) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);
    struct counters *counters = bpf_map_lookup_elem(&counts, &zero);
    if (!control_ || !s || !counters || !control_->open)
        return PASS;
    int outcome = serve(s, control_, counters, ctx);
    if (outcome < 0 || outcome >= OUTCOMES)
        return PASS;
    counters->outcome[outcome]++;
    if (outcome == HIT)
        return send(ctx);
    return outcome == LOST ? DROP : PASS;
}
