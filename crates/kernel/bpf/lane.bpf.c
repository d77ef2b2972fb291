/* The lane in the kernel (Hippos §3): a GET of up to GETS_MAX keys over UDP is answered below the
 * socket, in one datagram and whole: where one key cannot be answered here, none is.
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
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!s || !control_)
        return MISS;
    s64 place = place_of(control_, s->hash);
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
    int found = look(s, control_, bucket, index);
    if (found == HIT)
        found = compose(s, control_);
    ORDER();
#ifndef LANE_UNVALIDATED /* only to show that the tests would notice */
    if (load64(&bucket->version) != before)
        return TORN;
#endif
    return found;
}

INLINE void mark_hit(struct given *given) {
    u32 element = given->element, granule = given->offset / MARK_GRANULE_BYTES;
    struct marks_element *found = bpf_map_lookup_elem(&marks, &element);
    if (!found || granule >= ITEMS_ELEMENT_BYTES / MARK_GRANULE_BYTES)
        return;
    u8 mark = found->marks[granule];
    if (mark < MARK_MAX)
        found->marks[granule] = mark + 1;
}

/* Which list an address is looked for in. */
enum list { OWN, SERVED, REFUSED };

INLINE u32 count_of(struct control *control_, u32 list) {
    return list == OWN      ? control_->own_count
           : list == SERVED ? control_->served_count
                            : control_->refused_count;
}

/* Whether an address is in a list. */
NOINLINE int listed(u32 list, u64 high, u64 low) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_)
        return 0;
    u32 count = count_of(control_, list), most = list == REFUSED ? REFUSED_MAX : LISTED_MAX;
    for (u32 i = 0; i < REFUSED_MAX; i++) {
        if (i >= count || i >= most)
            break;
        struct range *range = list == REFUSED  ? &control_->refused[i]
                              : list == SERVED ? &control_->served[i & (LISTED_MAX - 1)]
                                               : &control_->own[i & (LISTED_MAX - 1)];
        u64 differ = (range->address[0] ^ high) & range->mask[0];
        if (!(differ | ((range->address[1] ^ low) & range->mask[1])))
            return 1;
    }
    return 0;
}

/* The same of our own addresses, of which most hosts have told one. */
INLINE int is_own(struct control *control_, u64 high, u64 low) {
    struct range *first = &control_->own[0];
    u64 differ = (first->address[0] ^ high) & first->mask[0];
    differ |= (first->address[1] ^ low) & first->mask[1];
    return (control_->own_count && !differ) || listed(OWN, high, low);
}

/* 127.0.0.0/8 and ::1: nobody else's on any interface but the loopback. */
INLINE int is_loopback(u64 high, u64 low) {
    if (high)
        return 0;
    return (low & 0xffffffff) == 0xffff0000 ? (low >> 32 & 255) == 127 : low == 1ull << 56;
}

INLINE u64 mapped_ip4(const u8 *at) { return (u64)load32(at) << 32 | 0xffff0000; }

/* The Ethernet type; 0 where the packet is not UDP. Looked at where it lies, so that other packets
 * cost little. */
INLINE u16 type_of(context *ctx) {
    const u8 *data = (const u8 *)(unsigned long)ctx->data;
    const u8 *end = (const u8 *)(unsigned long)ctx->data_end;
    if (data + ETH_BYTES > end)
        return 0;
    u16 type = load16(data + 12);
    if (data + ETH_BYTES + 10 > end)
        return type;
    u8 protocol = type == swap16(0x0800) ? data[ETH_BYTES + 9] : data[ETH_BYTES + 6];
    return protocol == 17 ? type : 0;
}

/* Read a frame, as much of it as a request has at most, its UDP header to where that belongs. */
INLINE int read_frame(struct scratch *s, context *ctx, u32 bytes, u32 ip_bytes) {
    u32 most = ETH_BYTES + ip_bytes + REQUEST_BYTES_MAX;
    if (bytes < ETH_BYTES + ip_bytes + TEXT_AT)
        return -1;
    u32 some = bytes < most ? bytes : most;
    OPAQUE(some);
    if (some < ETH_BYTES)
        return -1;
    /* Both bounds in one comparison, of a difference, are lost on the verifier of Linux 6.12. */
    OPAQUE(some);
    if (some > most)
        return -1;
    return get(ctx, 0, s->request - ip_bytes - ETH_BYTES, some);
}

/* What the headers say: how long those before the UDP header are. Kind of packet in `outcome`:
 * HIT when it may be for the lane, MISS when it is nothing of ours, else why it is passed. */
INLINE u32 check_headers(struct scratch *s, struct control *control_, context *ctx, int *outcome) {
    u32 bytes = packet_bytes(ctx), ip_bytes, odd = 0;
    u64 source_high = 0, source, own_high = 0, own;
    u16 type = type_of(ctx);
    *outcome = MISS;
    if (type == swap16(0x0800)) {
        u8 *ip = s->request - 20;
        if (read_frame(s, ctx, bytes, 20) || ip[9] != 17 || ip[0] >> 4 != 4)
            return 0;
        ip_bytes = 20;
        odd = ip[0] != 0x45 || load16(ip + 6) & swap16(0xbfff);
        /* Options or a fragment, of which the first alone tells the port. Behind options the ports
         * stand further on: they are put where they stand without. */
        if (odd && (load16(ip + 6) & swap16(0x1fff) ||
                    get(ctx, ETH_BYTES + (ip[0] & 15) * 4, s->request, 4)))
            return 0;
        source = mapped_ip4(ip + 12);
        own = mapped_ip4(ip + 16);
        s->bytes = swap16(load16(ip + 2)) - 20;
        if (ip[12] == 0 || ip[12] >= 224)
            return 0;
    } else if (type == swap16(0x86dd)) {
        u8 *ip = s->request - 40;
        if (read_frame(s, ctx, bytes, 40) || ip[6] != 17 || ip[0] >> 4 != 6)
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
    u32 port = swap16(load16(s->request + 2));
    if ((port - control_->ports[0].first >= control_->ports[0].count &&
         port - control_->ports[1].first >= control_->ports[1].count) ||
        !is_own(control_, own_high, own))
        return 0;
    *outcome = FRAME;
    u32 udp_bytes = swap16(load16(s->request + 4));
    if (odd || s->bytes != udp_bytes || bytes < ETH_BYTES + ip_bytes + udp_bytes ||
        udp_bytes < TEXT_AT || !load16(s->request))
        return 0;
    /* From one host, and for this one. */
    const u8 *ethernet = s->request - ip_bytes - ETH_BYTES;
    if (ethernet[6] & 1 || !is_plain(ctx, control_, ethernet))
        return 0;
    /* The frame header: the only datagram of its message, of the kind that memcached knows. What
     * clients leave in the last number, which memcached reserves, says nothing. */
    if ((load64(s->request + UDP_BYTES) & 0x0000ffffffff0000) != 0x0000010000000000)
        return 0;
    if (ip_bytes == 20 && fold(sum_words(s->request - 20, 5)) != 0xffff) {
        *outcome = CHECKSUM;
        return 0;
    }
    *outcome = STRANGER;
    if (interface(ctx) != LOOPBACK &&
        (is_loopback(source_high, source) || is_loopback(own_high, own) ||
         listed(REFUSED, source_high, source)))
        return 0;
    if (control_->served_count && !listed(SERVED, source_high, source))
        return 0;
    *outcome = REQUEST;
    if (udp_bytes > REQUEST_BYTES_MAX)
        return 0;
    *outcome = HIT;
    return ip_bytes;
}

/* Whether the request's checksum holds. Packets of this very machine may carry the sum of the
 * pseudo header only, for a network card to complete: then a reply by the same way must carry that,
 * too. Of one in 65536 packets the whole checksum happens to be that very sum. Which of the two it
 * is cannot be told here, so a sum that is right either way goes up, where the kernel knows. */
INLINE int check_sum(struct scratch *s, u32 ip_bytes) {
    u32 bytes = s->bytes;
    OPAQUE(bytes);
    if (bytes < TEXT_AT + 1 || bytes > REQUEST_BYTES_MAX)
        return REQUEST;
    store64(s->request + bytes, 0); /* behind the last word of the sum */
    u16 pseudo = sum_pseudo(s->request, ip_bytes, bytes), said = load16(s->request + 6);
    s->partial = 0;
    if (said == 0 && ip_bytes == 20)
        return HIT;
    int whole = said && fold(sum_request(s, bytes, pseudo)) == 0xffff;
    if (said != pseudo)
        return whole ? HIT : CHECKSUM;
    s->partial = MAY_BE_PARTIAL;
    return whole && MAY_BE_PARTIAL ? CHECKSUM : HIT;
}

/* The Ethernet header of the way back. */
INLINE void copy_ethernet(u8 *to, const u8 *from) {
    *(volatile u32 *)to = load32(from + 6);
    *(volatile u16 *)(to + 4) = load16(from + 10);
    *(volatile u32 *)(to + 6) = load32(from);
    *(volatile u32 *)(to + 10) = load16(from + 4) | (u32)load16(from + 12) << 16;
}

/* Headers of the reply, out of those of the request. */
INLINE void turn_headers(struct scratch *s, u32 ip_bytes) {
    u8 *udp = s->reply, *came = s->request;
    u32 bytes = s->reply_bytes;
    if (ip_bytes == 20) {
        u8 *ip = udp - 20;
        copy_ethernet(ip - ETH_BYTES, came - 20 - ETH_BYTES);
        *(volatile u16 *)ip = 0x45;
        *(volatile u16 *)(ip + 2) = swap16(bytes + 20);
        *(volatile u32 *)(ip + 4) = 0x00400000; /* no id, do not fragment */
        *(volatile u32 *)(ip + 8) = 17 << 8 | 64;
        *(volatile u32 *)(ip + 12) = load32(came - 4);
        *(volatile u32 *)(ip + 16) = load32(came - 8);
        *(volatile u16 *)(ip + 10) = ~fold(sum_words(ip, 5));
    } else {
        u8 *ip = udp - 40;
        copy_ethernet(ip - ETH_BYTES, came - 40 - ETH_BYTES);
        store64(ip, load64(came - 40));
        *(volatile u16 *)(ip + 4) = swap16(bytes);
        ip[7] = 64;
        store64(ip + 8, load64(came - 16));
        store64(ip + 16, load64(came - 8));
        store64(ip + 24, load64(came - 32));
        store64(ip + 32, load64(came - 24));
    }
    *(volatile u16 *)udp = load16(came + 2);
    *(volatile u16 *)(udp + 2) = load16(came);
    *(volatile u16 *)(udp + 4) = swap16(bytes);
    *(volatile u16 *)(udp + 6) = 0;
    store64(udp + UDP_BYTES, load64(came + UDP_BYTES) & 0x0000ffffffffffff); /* reserved: 0 */
    u16 pseudo = sum_pseudo(udp, ip_bytes, bytes);
    u16 sum = s->partial ? pseudo : ~fold(sum_reply(s, bytes, pseudo));
    *(volatile u16 *)(udp + 6) = sum ? sum : 0xffff;
}

/* Whether so many bytes may go to the sender of the request now. Who forges a victim's address can
 * have no more than this sent there; what goes up is the stack's and the server's to judge. */
NOINLINE int is_in_rate(struct scratch *s, u32 ip_bytes, u32 bytes) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!s || !control_)
        return 0;
    u64 most = load64(&control_->period_bytes);
    if (!most)
        return 1;
    struct spent *spent = bpf_map_lookup_elem(&spents, &zero);
    if (!spent)
        return 0;
    u8 *udp = s->request;
    u64 source = ip_bytes == 20 ? load32(udp - 8) : load64(udp - 32) ^ load64(udp - 24);
    u64 *cell = &spent->cells[(source * 0x9e3779b97f4a7c15ull >> 32) & (RATE_CELLS - 1)];
    u64 period = bpf_ktime_get_boot_ns() >> RATE_PERIOD_SHIFT, before = *cell;
    u64 sum = (before >> 32 == (u32)period ? (u32)before : 0) + bytes;
    if (sum > most || sum >> 32)
        return 0;
    *cell = period << 32 | sum;
    return 1;
}

/* The packet becomes the reply. */
INLINE int reply(struct scratch *s, struct control *control_, context *ctx, u32 ip_bytes) {
    u32 bytes = s->reply_bytes;
    OPAQUE(bytes);
    if (bytes < TEXT_AT || bytes > UDP_BYTES + REPLY_BYTES_MAX ||
        bytes + ip_bytes > control_->mtu_bytes)
        return LONG;
    if (interface(ctx) != LOOPBACK && !is_in_rate(s, ip_bytes, bytes + ip_bytes))
        return RATE;
    turn_headers(s, ip_bytes);
    if (resize(ctx, ETH_BYTES + ip_bytes + bytes))
        return ROOM;
    int failed = ip_bytes == 20 ? put(ctx, 0, s->reply - 20 - ETH_BYTES, ETH_BYTES + 20 + bytes)
                                : put(ctx, 0, s->reply - 40 - ETH_BYTES, ETH_BYTES + 40 + bytes);
    return failed ? LOST : HIT;
}

#define END_BYTES 5 /* "END\r\n" */

/* The key of this number is the next: its value's head takes the place of the "END" that the one
 * before has left. */
INLINE void take_up(struct scratch *s, u32 number) {
    struct asked *asked = &s->asked[number];
    s->hash = asked->hash;
    s->key_at = asked->at;
    s->key_bytes = asked->bytes;
    s->head_at = number ? s->reply_bytes - END_BYTES : TEXT_AT;
}

/* All keys in their order, until one cannot be answered here. */
INLINE int answer(struct scratch *s, struct counters *counters) {
    int outcome = REQUEST;
#pragma nounroll
    for (u32 number = 0; number < GETS_MAX; number++) {
        if (number >= s->keys)
            break;
        take_up(s, number);
        for (u32 i = 0; i < ATTEMPTS_MAX; i++) {
            outcome = attempt(s);
            if (outcome != TORN)
                break;
            counters->retries++;
        }
        if (outcome != HIT)
            return outcome;
        struct given *given = &s->given[number];
        given->element = s->element;
        given->offset = s->offset;
        given->size_class = s->size_class;
    }
    return outcome;
}

/* The reply is on its way: so are all its keys' values. */
INLINE void count_hits(struct scratch *s, struct counters *counters) {
#pragma nounroll
    for (u32 number = 0; number < GETS_MAX; number++) {
        if (number >= s->keys)
            break;
        struct given *given = &s->given[number];
        counters->hits_of_class[given->size_class & 31]++;
        mark_hit(given);
    }
}

INLINE int serve(struct scratch *s, struct control *control_, struct counters *counters,
                 context *ctx) {
    int outcome;
    u32 ip_bytes = check_headers(s, control_, ctx, &outcome);
    if (outcome == MISS)
        return -1;
    if (outcome != HIT)
        return outcome;
    if ((outcome = check_sum(s, ip_bytes)) != HIT)
        return outcome;
    if (parse(s, control_))
        return REQUEST;
    if ((outcome = answer(s, counters)) != HIT)
        return outcome;
    if ((outcome = reply(s, control_, ctx, ip_bytes)) != HIT)
        return outcome;
    count_hits(s, counters);
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
