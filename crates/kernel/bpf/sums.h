/* Internet checksums of a packet in the scratch. Words are taken as this machine has them: the sum
 * of swapped words is the swapped sum (RFC 1071 §2). */
#pragma once
#include "scratch.h"

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

/* Of a few words, at places that are known. */
INLINE u64 sum_words(const u8 *from, u32 words) {
    u64 sum = 0;
#pragma unroll
    for (u32 i = 0; i < words; i++)
        sum += load32(from + i * 4);
    return sum;
}

/* Of the pseudo header: both addresses before a UDP header, protocol, length. Folded. */
INLINE u16 sum_pseudo(const u8 *udp, u32 ip_bytes, u32 udp_bytes) {
    u64 sum = ip_bytes == 20 ? sum_words(udp - 8, 2) : sum_words(udp - 32, 8);
    return fold(sum + swap16(udp_bytes) + swap16(17));
}
