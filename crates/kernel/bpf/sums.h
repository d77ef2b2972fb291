/* Internet checksums of a packet in the scratch. */
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

/* Of the pseudo header: both addresses, protocol, length. */
INLINE u32 sum_pseudo(u8 *addresses, u32 bytes, u32 udp_bytes) {
    u32 sum = bpf_csum_diff(0, 0, addresses, bytes, 0);
    u32 rest[2] = { swap16(udp_bytes), swap16(17) };
    return bpf_csum_diff(0, 0, rest, sizeof(rest), sum);
}
