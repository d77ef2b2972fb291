/* One packet's working memory in the lane, its limits, and the mapped arrays it reads. */
#pragma once
#include "lane.h"

#define ETH_BYTES 14
#define UDP_BYTES 8
#define FRAME_BYTES 8
#define TEXT_AT (UDP_BYTES + FRAME_BYTES)
/* UDP header included. As many keys' names again stand in the reply, which has no more than one
 * datagram's room. */
#define REQUEST_BYTES_MAX 1024
/* Keys of one `get`. */
#define GETS_MAX 16
#define KEY_BYTES_MAX 250
#define FLAG_BYTES_MAX 64
#define FLAGS_MAX 8
#define REPLY_BYTES_MAX 1472
/* Where the head of a value ends at most: what stands before it, verb, key, numbers, flags. */
#define HEAD_BYTES_MAX 2048

/* Room for the Ethernet and IP headers of either family, right before a UDP header. */
#define HEAD_ROOM 56

/* One packet's working memory. Programs of one CPU do not interrupt each other where softirqs are
 * not preempted: the loader refuses kernels of PREEMPT_RT, on which they are. */
struct asked {
    u64 hash;
    u32 at, bytes; /* of the request */
};
/* What is known of its item once its value stands in the reply. */
struct given {
    u32 element, offset, size_class;
};
struct scratch {
    u8 request_head[HEAD_ROOM];
    u8 request[REQUEST_BYTES_MAX + 264]; /* copies overrun by less */
    u8 reply_head[HEAD_ROOM];
    u8 reply[4096];
    /* Filled by `parse`. */
    struct asked asked[GETS_MAX];
    u32 bytes; /* from the UDP header on */
    u32 keys;
    u32 meta, flags_count;
    u8 flags[FLAGS_MAX];
    u32 opaque_at, opaque_bytes, in_opaque, flags_seen;
    /* Filled by `take_up`: the key that is looked up now, and where its value's head begins. */
    u64 hash;
    u32 key_at, key_bytes, head_at;
    /* Filled by `examine`. */
    u64 seq;
    u32 element, offset, expires, client_flags, value_at, value_bytes, size_class;
    struct given given[GETS_MAX];
    /* Filled by `attempt`. */
    u32 prefix_bytes, reply_bytes;
    u64 now, overflow;
    u32 hidden;
    /* Filled by `check_sum`: the request's sum is unfinished. */
    u32 partial;
};

/* A number by way of memory that the verifier does not follow. */
INLINE u32 hide(struct scratch *s, u32 number) {
    *(volatile u32 *)&s->hidden = number;
    return load32(&s->hidden);
}

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
ARRAY(spents, struct spent, 1, MAP_PERCPU_ARRAY, 0);
