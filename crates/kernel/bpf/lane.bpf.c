/* The lane in the kernel (Hippos §3): a GET of one key over UDP is answered below the socket.
 *
 * Built twice, for the tc ingress hook and, with LANE_XDP, for XDP. What it reads, user space owns:
 * buckets and records are in mapped arrays, of the layout of crates/store, and user space is their
 * only writer. So there is no second copy that could be out of date. A read is believed when the
 * bucket's version was even before and is the same afterwards; nothing of the packet is touched
 * before that. Whatever is not answered goes up to user space as it came.
 *
 * Never waits: a writer inside the bucket may be the thread that this program interrupted. */
#include "scratch.h"
/* In the order a request travels. */
#include "hook.h"
#include "sums.h"
#include "request.h"
#include "find.h"
#include "reply.h"

char _license[] SEC("license") = "Dual BSD/GPL";

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
