/* The reply's text, composed in the scratch. */
#pragma once
#include "scratch.h"

/* A number as decimal text at `at` of the reply; where it ends. */
NOINLINE u32 put_number(struct scratch *s, u32 at, u64 number) {
    u32 digits = 1;
    u64 rest = number;
    if (!s || at > HEAD_BYTES_MAX)
        return 0;
    for (u32 i = 0; i < 19; i++) {
        rest /= 10;
        if (!rest)
            break;
        digits++;
    }
    for (u32 i = 0; i < 20; i++) {
        if (i >= digits)
            break;
        u32 to = at + digits - 1 - i;
        if (to >= HEAD_BYTES_MAX + 64)
            break;
        s->reply[to] = '0' + number % 10;
        number /= 10;
    }
    return at + digits;
}

/* `bytes` bytes of the request at `at` of the reply; where they end. */
NOINLINE u32 put_request(struct scratch *s, u32 at, u32 from, u32 bytes) {
    if (!s || at > HEAD_BYTES_MAX || from > REQUEST_BYTES_MAX)
        return 0;
    for (u32 i = 0; i < 256; i += 8) {
        if (i >= bytes)
            break;
        store64(s->reply + at + i, load64(s->request + from + i));
    }
    return at + bytes;
}

NOINLINE u32 put_byte(struct scratch *s, u32 at, u32 byte) {
    if (s && at <= HEAD_BYTES_MAX)
        s->reply[at] = byte;
    return at + 1;
}

/* What a meta hit returns, in the order asked for. */
NOINLINE u32 put_flags(struct scratch *s, u32 at) {
    if (!s)
        return 0;
    for (u32 i = 0; i < FLAGS_MAX; i++) {
        if (i >= s->flags_count)
            break;
        u8 flag = s->flags[i];
        if (flag == 'v' || flag == 'q')
            continue;
        at = put_byte(s, at, ' ');
        if (flag == 'O') {
            at = put_request(s, at, s->opaque_at, s->opaque_bytes);
            continue;
        }
        at = put_byte(s, at, flag);
        if (flag == 'k') {
            at = put_request(s, at, s->key_at, s->key_bytes);
        } else if (flag == 't' && !s->expires) {
            at = put_byte(s, at, '-');
            at = put_byte(s, at, '1');
        } else {
            at = put_number(s, at,
                            flag == 'f'   ? s->client_flags
                            : flag == 's' ? s->value_bytes
                            : flag == 'c' ? s->seq
                                          : s->expires - s->now);
        }
    }
    return at;
}

/* The value, copied by words behind `at`. Read without belief. */
NOINLINE int put_value(struct scratch *s, u32 at) {
    if (!s || at > HEAD_BYTES_MAX)
        return -1;
    u32 from = s->value_at, bytes = s->value_bytes, element = s->element;
    struct items_element *found = bpf_map_lookup_elem(&items, &element);
    /* A key of 250 and a header may stand before the value; the copy ends inside in any case. */
    if (!found || bytes > REPLY_BYTES_MAX || from > ITEMS_ELEMENT_BYTES - RECORD_BYTES_MAX + 280)
        return -1;
    for (u32 i = 0; i < REPLY_BYTES_MAX; i += 8) {
        if (i >= bytes)
            break;
        store64(s->reply + at + i, load64(found->bytes + from + i));
    }
    return 0;
}

/* Head, value and end of the reply, behind the UDP and frame headers. */
NOINLINE int compose(struct scratch *s) {
    if (!s)
        return LONG;
    u32 at = TEXT_AT;
    if (s->meta) {
        store64(s->reply + at, 0x204156); /* "VA " */
        at = put_number(s, at + 3, s->value_bytes);
        at = put_flags(s, at);
    } else {
        store64(s->reply + at, 0x2045554c4156); /* "VALUE " */
        at = put_request(s, at + 6, s->key_at, s->key_bytes);
        at = put_byte(s, at, ' ');
        at = put_number(s, at, s->client_flags);
        at = put_byte(s, at, ' ');
        at = put_number(s, at, s->value_bytes);
    }
    at = put_byte(s, at, '\r');
    at = put_byte(s, at, '\n');
    u32 zero = 0, value_bytes = s->value_bytes;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!control_ || value_bytes > REPLY_BYTES_MAX)
        return LONG;
    u32 bytes = at + value_bytes + (s->meta ? 2 : 7) - UDP_BYTES;
    if (bytes > load32(&control_->payload_bytes_max) || bytes > REPLY_BYTES_MAX)
        return LONG;
    if (put_value(s, at))
        return LONG;
    at += value_bytes;
    if (at > UDP_BYTES + REPLY_BYTES_MAX)
        return LONG;
    /* "\r\nEND\r\n" and zeros behind it, as sums are made of whole words. */
    store64(s->reply + at, s->meta ? 0x0a0d : 0x000a0d444e450a0d);
    store64(s->reply + at + 8, 0);
    s->reply_bytes = bytes + UDP_BYTES;
    return HIT;
}
