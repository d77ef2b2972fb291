/* The few names of the kernel's BPF interface that our programs use, so that no headers package is
 * needed to build them. Numbers and layouts are the stable interface of linux/bpf.h. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define NOINLINE __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))

/* A map's definition: the loader reads these members' types. */
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_REUSEPORT_SOCKARRAY 20
#define MAPPABLE (1 << 10)

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_OK 0
#define TC_ACT_SHOT 2
#define XDP_DROP 1
#define XDP_PASS 2
#define XDP_TX 3
#define SK_PASS 1
#define RECOMPUTE_CSUM 1

/* What stands before a packet at a tc hook: the members up to those we read. */
struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
    u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
    u32 data_meta, flow_keys_low, flow_keys_high, tstamp_low, tstamp_high, wire_len, gso_segs;
    u32 sk_low, sk_high, gso_size;
};
struct xdp_md {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
struct sk_reuseport_md {
    u64 data, data_end;
    u32 len, eth_protocol, ip_protocol, bind_inany, hash;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_boot_ns)(void) = (void *)125;
static long (*bpf_skb_store_bytes)(void *, u32 at, const void *, u32 len, u64 flags) = (void *)9;
static long (*bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *, u32 at, void *, u32 len) = (void *)26;
static s64 (*bpf_csum_diff)(void *, u32, void *, u32, u32 seed) = (void *)28;
static long (*bpf_skb_change_tail)(void *, u32 len, u64 flags) = (void *)38;
static long (*bpf_xdp_adjust_tail)(void *, int delta) = (void *)65;
static long (*bpf_sk_select_reuseport)(void *, void *map, void *key, u64 flags) = (void *)82;
static u64 (*bpf_xdp_get_buff_len)(void *) = (void *)188;
static long (*bpf_xdp_load_bytes)(void *, u32 at, void *, u32 len) = (void *)189;
static long (*bpf_xdp_store_bytes)(void *, u32 at, void *, u32 len) = (void *)190;

/* The compiler keeps memory accesses on their sides of this. x86 loads are never reordered with
 * loads, which is why the loader refuses other machines. */
#define ORDER() __asm__ volatile("" ::: "memory")
/* Keeps the compiler from proving a bound that it then drops and the verifier misses. What the
 * verifier is not to know either (it would go on once for each turn of a loop that may have been
 * the last) goes by way of a map's memory. */
#define OPAQUE(variable) __asm__ volatile("" : "+r"(variable))

INLINE u64 load64(const void *at) { return *(const volatile u64 *)at; }
INLINE void store64(void *at, u64 value) { *(volatile u64 *)at = value; }
INLINE u32 load32(const void *at) { return *(const volatile u32 *)at; }
INLINE u16 load16(const void *at) { return *(const volatile u16 *)at; }
INLINE u16 swap16(u16 v) { return __builtin_bswap16(v); }
