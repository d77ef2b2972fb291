/* The request: one `get` or `mg` of one key, out of the packet's text. */
#pragma once
#include "scratch.h"

/* One character of the flags. What was seen so far is kept in the scratch, whose content the
 * verifier does not follow: it would try every combination of flags. */
NOINLINE int parse_flag(struct scratch *s, u32 at) {
    if (!s || at >= REQUEST_BYTES_MAX)
        return -1;
    u8 c = s->request[at], before = s->request[(at - 1) & (REQUEST_BYTES_MAX - 1)];
    if (c < ' ' || c >= 127)
        return -1;
    if (c == ' ') {
        s->in_opaque = 0;
        return before == ' ' && s->flags_count ? -1 : 0;
    }
    if (s->in_opaque) {
        s->opaque_bytes++;
        return 0;
    }
    u32 bit = c == 'v'   ? 1
              : c == 'f' ? 2
              : c == 's' ? 4
              : c == 'k' ? 8
              : c == 't' ? 16
              : c == 'c' ? 32
              : c == 'q' ? 64
              : c == 'O' ? 128
                         : 0;
    u32 count = s->flags_count;
    if (before != ' ' || !bit || s->flags_seen & bit || count >= FLAGS_MAX)
        return -1;
    s->flags_seen |= bit;
    s->flags[count] = c;
    s->flags_count = count + 1;
    if (c == 'O') {
        s->in_opaque = 1;
        s->opaque_at = at;
        s->opaque_bytes = 1;
    }
    return 0;
}

/* The flags of `mg` from `at`, each of them a space and a letter; only those the lane knows. */
NOINLINE int parse_flags(struct scratch *s, u32 at, u32 end) {
    if (!s || end - at > FLAG_BYTES_MAX)
        return -1;
    s->flags_seen = 0;
    s->in_opaque = 0;
    for (u32 i = 0; i < FLAG_BYTES_MAX; i++) {
        if (at + i >= end)
            break;
        if (parse_flag(s, at + i))
            return -1;
    }
    /* 32 bytes of opaque, its letter included. */
    return s->flags_seen & 1 && s->opaque_bytes <= 32 ? 0 : -1;
}

/* One `get KEY\r\n` or `mg KEY FLAGS\r\n`, with single spaces. Everything else is user space's. */
NOINLINE int parse(struct scratch *s) {
    if (!s)
        return -1;
    u32 bytes = s->bytes;
    if (bytes < TEXT_AT + 6 || bytes > REQUEST_BYTES_MAX)
        return -1;
    u32 end = bytes - 2; /* where "\r\n" stands */
    if (end >= REQUEST_BYTES_MAX || s->request[end] != '\r' || s->request[end + 1] != '\n')
        return -1;
    u32 key_at = TEXT_AT + 3;
    s->meta = s->request[TEXT_AT] == 'm';
    if (s->meta) {
        if (s->request[TEXT_AT + 1] != 'g' || s->request[TEXT_AT + 2] != ' ')
            return -1;
    } else {
        if ((load32(s->request + TEXT_AT)) != 0x20746567) /* "get " */
            return -1;
        key_at++;
    }
    u32 key_bytes = 0;
    for (u32 i = 0; i <= KEY_BYTES_MAX; i++) {
        u8 c = s->request[key_at + i];
        if (key_at + i >= end || c == ' ')
            break;
        if (c < ' ' || c == 127)
            return -1;
        key_bytes++;
    }
    if (key_bytes == 0 || key_bytes > KEY_BYTES_MAX)
        return -1;
    s->key_at = key_at;
    s->key_bytes = key_bytes;
    s->flags_count = 0;
    s->opaque_bytes = 0;
    if (s->meta)
        return parse_flags(s, key_at + key_bytes, end);
    return key_at + key_bytes == end ? 0 : -1;
}
