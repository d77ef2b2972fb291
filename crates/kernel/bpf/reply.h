/* The reply's text, composed in the scratch. */
#pragma once
#include "scratch.h"

/* Bytes of a value that are copied at a time. */
#define COPY_BYTES 32

/* A number as decimal text at `at` of the reply; where it ends. */
NOINLINE u32 put_number(struct scratch *s, u32 at, u64 number) {
    u32 digits = 1;
    u64 rest = number;
    if (!s || at > HEAD_BYTES_MAX)
        return HEAD_BYTES_MAX + 1;
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

/* A number below 10000 as decimal text, the first digit lowest; `bytes` of them. */
INLINE u64 digits_of(u32 number, u32 *bytes) {
    /* n / 10, right for all that are this small. */
    u32 tens = number * 52429 >> 19, hundreds = tens * 52429 >> 19;
    u32 thousands = hundreds * 52429 >> 19;
    u64 digits = thousands | (hundreds - thousands * 10) << 8 | (tens - hundreds * 10) << 16 |
                 (u64)(number - tens * 10) << 24;
    *bytes = 1 + (number > 9) + (number > 99) + (number > 999);
    return (digits | 0x30303030) >> (4 - *bytes) * 8;
}

/* A number as decimal text; where it ends. */
INLINE u32 put_short(struct scratch *s, u32 at, u32 number) {
    if (number > 9999)
        return put_number(s, at, number);
    if (at > HEAD_BYTES_MAX)
        return at;
    u32 bytes;
    store64(s->reply + at, digits_of(number, &bytes));
    return hide(s, at + bytes);
}

/* `VALUE KEY FLAGS BYTES`; where it ends. */
INLINE u32 put_head(struct scratch *s) {
    u32 from = s->key_at, bytes = s->key_bytes, at = s->head_at;
    OPAQUE(from);
    OPAQUE(bytes);
    OPAQUE(at);
    if (from > REQUEST_BYTES_MAX || bytes > KEY_BYTES_MAX || at > UDP_BYTES + REPLY_BYTES_MAX)
        return HEAD_BYTES_MAX + 1;
    store64(s->reply + at, 0x2045554c4156); /* "VALUE " */
    at += 6;
#pragma nounroll
    for (u32 i = 0; i < KEY_BYTES_MAX; i += 8) {
        if (i >= bytes)
            break;
        store64(s->reply + at + i, load64(s->request + from + i));
    }
    at = hide(s, at + bytes);
    if (at > HEAD_BYTES_MAX)
        return at;
    s->reply[at] = ' ';
    at = put_short(s, at + 1, s->client_flags);
    if (at > HEAD_BYTES_MAX)
        return at;
    s->reply[at] = ' ';
    return put_short(s, at + 1, s->value_bytes);
}

/* Head and value, behind what stands in the reply, and the end of all. The value is copied by words
 * and read without belief. */
INLINE int compose(struct scratch *s, struct control *control_) {
    u32 at, element = s->element, from = s->value_at, value_bytes = s->value_bytes;
    if (s->meta) {
        store64(s->reply + TEXT_AT, 0x204156); /* "VA " */
        at = put_short(s, TEXT_AT + 3, value_bytes);
        at = put_flags(s, at);
    } else {
        at = put_head(s);
    }
    OPAQUE(at);
    OPAQUE(value_bytes);
    if (at > HEAD_BYTES_MAX || value_bytes > REPLY_BYTES_MAX)
        return LONG;
    *(volatile u16 *)(s->reply + at) = 0x0a0d; /* "\r\n" */
    at += 2;
    u32 bytes = at + value_bytes + (s->meta ? 2 : 7) - UDP_BYTES;
    if (bytes > load32(&control_->payload_bytes_max) || bytes > REPLY_BYTES_MAX)
        return LONG;
    struct items_element *found = bpf_map_lookup_elem(&items, &element);
    /* A key of 250 and a header may stand before the value; the copy ends inside in any case. */
    if (!found || from > ITEMS_ELEMENT_BYTES - RECORD_BYTES_MAX + 280)
        return LONG;
    u8 *value = found->bytes + from, *to = s->reply + at;
#pragma nounroll
    for (u32 i = 0; i < REPLY_BYTES_MAX; i += COPY_BYTES) {
        if (i >= value_bytes)
            break;
#pragma unroll
        for (u32 j = 0; j < COPY_BYTES; j += 8)
            store64(to + i + j, load64(value + i + j));
    }
    at += value_bytes;
    if (at > UDP_BYTES + REPLY_BYTES_MAX)
        return LONG;
    /* "\r\nEND\r\n" and zeros behind it, as sums are made of whole words. */
    store64(s->reply + at, s->meta ? 0x0a0d : 0x000a0d444e450a0d);
    store64(s->reply + at + 8, 0);
    s->reply_bytes = bytes + UDP_BYTES;
    return HIT;
}
