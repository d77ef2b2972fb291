/* The request: one `get` of up to GETS_MAX keys, or one `mg`, out of the packet's text. */
#pragma once
#include "hash.h"
#include "scratch.h"
#include "words.h"

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
        return before == ' ' ? -1 : 0;
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

#define VERB_GET 0x20746567     /* "get " */
#define VERB_META_GET 0x20676d  /* "mg " */

/* The key at `at` of the request, hashed eight characters at a time. Where it ends; 0 if none
 * stands there. */
INLINE u32 parse_key(struct scratch *s, struct control *control_, struct asked *asked, u32 at) {
    struct sip state = { control_->hash_start[0], control_->hash_start[1], control_->hash_start[2],
                         control_->hash_start[3] };
    u64 word = 0, stop = 0;
    u32 words = 0;
#pragma nounroll
    for (; words <= KEY_BYTES_MAX / 8; words++) {
        word = load64(s->request + at + words * 8);
        stop = first_stop(word);
        if (stop)
            break;
        sip_absorb(&state, word);
    }
    u32 bytes = hide(s, words) * 8 + byte_of(stop);
    if (!stop || bytes == 0 || bytes > KEY_BYTES_MAX)
        return 0;
    asked->hash = sip_end(&state, (word & bytes_before(stop)) | (u64)bytes << 56);
    asked->at = at;
    asked->bytes = bytes;
    return at + bytes;
}

/* The same of a key behind the first, whose number it has. */
NOINLINE u32 parse_next_key(struct scratch *s, u32 number, u32 at) {
    u32 zero = 0;
    struct control *control_ = bpf_map_lookup_elem(&control, &zero);
    if (!s || !control_ || number >= GETS_MAX || at > REQUEST_BYTES_MAX)
        return 0;
    return parse_key(s, control_, &s->asked[number], at);
}

/* The keys behind the first, from where that ends: each behind one space. Not one if there are too
 * many. */
NOINLINE int parse_further(struct scratch *s, u32 at, u32 end) {
    if (!s)
        return -1;
#pragma nounroll
    for (u32 number = 1; number < GETS_MAX; number++) {
        if (at == 0 || at >= REQUEST_BYTES_MAX || s->request[at] != ' ')
            return -1;
        at = parse_next_key(s, number, at + 1);
        if (at == end) {
            s->keys = number + 1;
            return 0;
        }
    }
    return -1;
}

/* One `get KEY ...\r\n` or `mg KEY FLAGS\r\n`, with single spaces. Everything else is user
 * space's. */
INLINE int parse(struct scratch *s, struct control *control_) {
    u32 bytes = s->bytes;
    OPAQUE(bytes);
    if (bytes < TEXT_AT + 6 || bytes > REQUEST_BYTES_MAX)
        return -1;
    u32 end = bytes - 2, verb = load32(s->request + TEXT_AT), key_at = TEXT_AT + 4;
    if (load16(s->request + end) != 0x0a0d) /* "\r\n" */
        return -1;
    s->meta = verb != VERB_GET;
    if (s->meta) {
        if ((verb & 0xffffff) != VERB_META_GET)
            return -1;
        key_at--;
    }
    u32 next = parse_key(s, control_, &s->asked[0], key_at);
    if (!next)
        return -1;
    s->keys = 1;
    s->flags_count = 0;
    s->opaque_bytes = 0;
    if (s->meta)
        return parse_flags(s, next, end);
    return next == end ? 0 : parse_further(s, next, end);
}
