/* Drops UDP datagrams over IPv4 for memcached's port, and looks at nothing else: what a packet
 * costs that ends here, for the study of where a GET is best met (Hippos, "Locating a Place to
 * Hook"). No server loads it. Built for both hooks. */
#include "hook.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define PORT 11211
#define IP_AT 14
#define UDP_AT (IP_AT + 20)
/* Up to the end of the port. */
#define HEAD_BYTES (UDP_AT + 4)

#ifdef LANE_XDP
SEC("xdp")
#else
SEC("classifier")
#endif
int drop_requests(context *ctx) {
    u64 words[5] = {};
    u8 *head = (u8 *)words;
    if (get(ctx, 0, head, HEAD_BYTES))
        return PASS;
    if (load16(head + IP_AT - 2) != swap16(0x0800) || head[IP_AT] != 0x45 ||
        head[IP_AT + 9] != 17 || load16(head + UDP_AT + 2) != swap16(PORT))
        return PASS;
    return DROP;
}
