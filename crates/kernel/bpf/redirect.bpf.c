/* Packets past the stack: UDP datagrams for the server's ports go to the AF_XDP socket of the RX
 * queue that they came to, everything else goes on as it came. What is sent on is looked at again
 * in user space, checksums too; here only that it is for us, and nothing that the stack would have
 * to put together or undo first (fragments, IP options, extension headers, VLAN tags).
 *
 * An RX queue belongs to a worker: its number modulo that of the workers. A port that clients
 * choose is led past the stack only at a queue of its own worker; at others its datagrams go the
 * way of the sockets, which end at that worker. Without a socket for the queue: up the stack.
 */
#include "bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define MAP_XSKMAP 17
#define QUEUES_MAX 64
#define XDP_REDIRECT 4
#define ETH_BYTES 14
#define PROTOCOL_UDP 17

static long (*bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

/* What user space tells, once, before the program is attached. */
struct redirect {
    /* The one address that is served: IPv4 as ::ffff:a.b.c.d, in the packet's byte order. */
    u64 own[2];
    /* The interface's Ethernet address, in its lower six bytes. */
    u64 ethernet;
    /* The port that all workers share, and the first of those that clients choose; 0 for none. */
    u64 ordinary, base;
    u64 workers;
};

enum fate { LED, OTHER, UNFIT, ELSEWHERE, SOCKETLESS, FATES };

struct {
    UINT(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct redirect);
    UINT(max_entries, 1);
} redirect_control SEC(".maps");

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    TYPE(key, u32);
    TYPE(value, u64);
    UINT(max_entries, FATES);
} redirect_counts SEC(".maps");

struct {
    UINT(type, MAP_XSKMAP);
    TYPE(key, u32);
    TYPE(value, u32);
    UINT(max_entries, QUEUES_MAX);
} redirect_sockets SEC(".maps");

INLINE u64 mapped_ip4(const u8 *at) { return (u64)load32(at) << 32 | 0xffff0000; }

/* What is to become of a packet. */
INLINE int fate_of(struct xdp_md *ctx, const struct redirect *told) {
    const u8 *data = (const u8 *)(unsigned long)ctx->data;
    const u8 *end = (const u8 *)(unsigned long)ctx->data_end;
    const u8 *ip = data + ETH_BYTES, *udp;
    if (ip + 28 > end)
        return OTHER;
    u64 ethernet = load32(data) | (u64)load16(data + 4) << 32;
    if (ethernet != told->ethernet)
        return OTHER;
    if (load16(data + 12) == swap16(0x0800)) {
        if (ip[9] != PROTOCOL_UDP || told->own[0] || told->own[1] != mapped_ip4(ip + 16))
            return OTHER;
        if (ip[0] != 0x45 || load16(ip + 6) & swap16(0xbfff))
            return UNFIT;
        udp = ip + 20;
    } else if (load16(data + 12) == swap16(0x86dd)) {
        if (ip + 48 > end)
            return OTHER;
        if (ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP || told->own[0] != load64(ip + 24) ||
            told->own[1] != load64(ip + 32))
            return OTHER;
        udp = ip + 40;
    } else {
        return OTHER;
    }
    u64 port = swap16(load16(udp + 2));
    if (!port || !told->workers)
        return OTHER;
    if (port == told->ordinary)
        return LED;
    if (!told->base || port < told->base || port - told->base >= told->workers)
        return OTHER;
    return ctx->rx_queue_index % told->workers == port - told->base ? LED : ELSEWHERE;
}

SEC("xdp")
int redirect(struct xdp_md *ctx) {
    u32 key = 0;
    const struct redirect *told = bpf_map_lookup_elem(&redirect_control, &key);
    if (!told)
        return XDP_PASS;
    int fate = fate_of(ctx, told), action = XDP_PASS;
    if (fate == LED) {
        action = bpf_redirect_map(&redirect_sockets, ctx->rx_queue_index, XDP_PASS);
        if (action != XDP_REDIRECT)
            fate = SOCKETLESS;
    }
    key = fate;
    u64 *count = bpf_map_lookup_elem(&redirect_counts, &key);
    if (count)
        ++*count;
    return action;
}
