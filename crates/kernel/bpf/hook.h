/* The two hooks, tc ingress and XDP, behind one set of names. */
#pragma once
#include "lane.h"

#ifdef LANE_XDP
typedef struct xdp_md context;
#define PASS XDP_PASS
#define DROP XDP_DROP
INLINE u32 packet_bytes(context *ctx) { return bpf_xdp_get_buff_len(ctx); }
INLINE u32 interface(context *ctx) { return ctx->ingress_ifindex; }
/* For this host, by its Ethernet address. Nobody has compared that yet, and a card that takes all
 * packets in has others' among them. A tag that the card has taken off is not seen: user space
 * refuses to attach where cards do that. */
INLINE int is_plain(context *ctx, struct control *control_, const u8 *ethernet) {
    u64 to = load32(ethernet) | (u64)load16(ethernet + 4) << 32;
    for (u32 i = 0; i < LISTED_MAX; i++) {
        if (i >= control_->place_count)
            break;
        if (control_->places[i].interface == interface(ctx))
            return control_->places[i].ethernet == to;
    }
    return 0;
}
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
#define MAY_BE_PARTIAL 0
#else
typedef struct __sk_buff context;
#define PASS TC_ACT_UNSPEC
#define DROP TC_ACT_SHOT
INLINE u32 packet_bytes(context *ctx) { return ctx->len; }
INLINE u32 interface(context *ctx) { return ctx->ifindex; }
/* For this host, without a VLAN tag, and not several datagrams in one. */
INLINE int is_plain(context *ctx, struct control *control_, const u8 *ethernet) {
    return ctx->pkt_type == 0 && !ctx->vlan_present && !ctx->gso_size;
}
INLINE int get(context *ctx, u32 at, void *to, u32 len) {
    return bpf_skb_load_bytes(ctx, at, to, len);
}
INLINE int put(context *ctx, u32 at, void *from, u32 len) {
    return bpf_skb_store_bytes(ctx, at, from, len, RECOMPUTE_CSUM);
}
INLINE int resize(context *ctx, u32 bytes) { return bpf_skb_change_tail(ctx, bytes, 0); }
/* On the loopback the client is on this side, too, and the route that came with the request leads
 * to this host: the reply goes on up in the request's packet, to the socket that its ports name.
 * Elsewhere it is sent by the interface that it came by. */
INLINE int send(context *ctx) {
    return ctx->ifindex == LOOPBACK ? TC_ACT_OK : bpf_redirect(ctx->ifindex, 0);
}
#define MAY_BE_PARTIAL 1
#endif
