/* What the lane's program and user space share: the layouts of the mapped arrays. The Rust side is
 * src/layout.rs; a test compares the sizes and offsets of both. */
#pragma once
#include "bpf.h"

/* One element of `items`: an element's last RECORD_BYTES_MAX hold no record's beginning that the
 * lane would serve, so that every read ends inside. */
#define ITEMS_ELEMENT_BYTES (1 << 20)
#define RECORD_BYTES_MAX 2048
/* One mark a granule: records begin at least 24 bytes apart. */
#define MARK_GRANULE_BYTES 16
#define MARK_MAX 3

#define PARTITIONS 64
#define BUCKET_RUN 64
#define SLOTS 7
#define OVERFLOW_SLOTS 4
/* Overflow buckets that a lookup follows. */
#define CHAIN_MAX 2
#define LISTED_MAX 8
/* Each own address, and the broadcast address of its network. */
#define REFUSED_MAX (2 * LISTED_MAX)
#define PORTS_MAX 2
/* The number of the loopback in every network namespace. */
#define LOOPBACK 1

/* Attempts at one lookup: the first and four more. */
#define ATTEMPTS_MAX 5

struct bucket {
    u64 version;
    u64 slots[SLOTS];
};
struct overflow {
    u64 slots[OVERFLOW_SLOTS];
};
/* An address range, IPv4 as ::ffff:a.b.c.d, in the packet's byte order. */
struct range {
    u64 address[2];
    u64 mask[2];
};
/* An interface: its number, and its Ethernet address in the lower six bytes. */
struct place {
    u64 interface, ethernet;
};
/* UDP ports: so many from the first on. */
struct ports {
    u32 first, count;
};
struct control {
    /* SipHash's four words after its key was mixed in. */
    u64 hash_start[4];
    /* Wall clock minus the time since boot, so that time goes on while user space stands still. */
    s64 unix_minus_boot_ns;
    /* The flush generation that live records carry, modulo 64. */
    u32 flush;
    /* 0 = serve nothing. */
    u32 open;
    /* Longest UDP payload, and longest IP packet, of a reply. */
    u32 payload_bytes_max;
    u32 mtu_bytes;
    /* Own addresses: how many of `own`; a packet to another is not ours. */
    u32 own_count;
    /* Who is served: how many of `served`; 0 = everybody. */
    u32 served_count;
    /* Sources that are nobody's but ours: how many of `refused`. Not asked at the loopback. */
    u32 refused_count;
    /* Interfaces: how many of `places`. Only the XDP program asks: tc is told by the kernel. */
    u32 place_count;
    /* Bytes of replies to one address in one period of RATE_PERIOD_SHIFT, on one CPU, elsewhere
     * than at the loopback; 0 = no limit. */
    u64 period_bytes;
    struct ports ports[PORTS_MAX];
    struct range own[LISTED_MAX];
    struct range served[LISTED_MAX];
    struct range refused[REFUSED_MAX];
    struct place places[LISTED_MAX];
    /* Primary buckets of each partition. */
    u64 buckets[PARTITIONS];
};

/* What became of a packet addressed to the lane's port. */
enum outcome {
    HIT,
    /* Of several keys the first one that is not answered decides. */
    MISS,        /* no such key, as far as the lane looked */
    DEAD,        /* expired or flushed */
    ELSEWHERE,   /* bucket or bytes are not in the lane's memory */
    WRITING,     /* a writer is inside the bucket, perhaps interrupted on this very CPU */
    TORN,        /* changed under us in every attempt */
    LONG,        /* the reply would not fit */
    REQUEST,     /* not one plain get or mg, or of too many keys */
    FRAME,       /* first fragments, options, VLAN, several datagrams, lengths that disagree,
                  * another host's Ethernet address */
    CHECKSUM,    /* wrong */
    STRANGER,    /* not from an address that is served, or from one of our own */
    ROOM,        /* the packet could not grow */
    LOST,        /* could not be written after it had grown: dropped */
    RATE,        /* its sender's address was sent as much as it may be for now */
    OUTCOMES
};
struct counters {
    u64 outcome[OUTCOMES];
    u64 retries;
    /* Keys answered, by floor log2 of key + value bytes. */
    u64 hits_of_class[32];
};

/* Replies to one address are counted by periods of 2^24 ns, in the cell that its hash names. */
#define RATE_PERIOD_SHIFT 24
#define RATE_CELLS 1024
/* The period in the upper half, bytes in the lower. */
struct spent {
    u64 cells[RATE_CELLS];
};

/* Steering. */
#define STEER_SLOTS 4096
/* A slot that leads to any of the sockets that receive. */
#define STEER_ANYONE 0xffffffffu
#define SKETCH_ROWS 4
#define SKETCH_COLUMNS 4096
#define HOT_MAX 64
struct steer {
    u64 seed;
    /* The present timeslot of the sketch; its low 16 bits stamp the cells. */
    u32 stamp;
    /* A key is reported once its count reaches this; 0 = no sketch. */
    u32 hot_requests;
    /* Sockets that receive: the first so many; 0 = the kernel knows. */
    u32 receivers;
    /* Always 0, which the verifier does not know. */
    u32 zero;
    /* Reports so far in this timeslot; the first HOT_MAX are kept. */
    u64 hot_count;
    u64 hot[HOT_MAX];
    /* Index of the socket of each slot of the hash, which its 12 highest bits name. */
    u32 socket[STEER_SLOTS];
    u32 cells[SKETCH_ROWS * SKETCH_COLUMNS];
};
struct steer_counters {
    u64 steered;
    /* No key found in the datagram: the kernel's own choice. */
    u64 unsteered;
    /* The slot's socket is gone: the kernel's own choice. */
    u64 socketless;
};
