/* SipHash-1-3, as crates/store/src/hash.rs has it, word by word. */
#pragma once
#include "bpf.h"

INLINE u64 rotate(u64 v, u32 by) { return v << by | v >> (64 - by); }

struct sip {
    u64 a, b, c, d;
};

INLINE void sip_round(struct sip *v) {
    v->a += v->b;
    v->c += v->d;
    v->b = rotate(v->b, 13) ^ v->a;
    v->d = rotate(v->d, 16) ^ v->c;
    v->a = rotate(v->a, 32) + v->d;
    v->c += v->b;
    v->d = rotate(v->d, 21) ^ v->a;
    v->b = rotate(v->b, 17) ^ v->c;
    v->c = rotate(v->c, 32);
}

INLINE void sip_absorb(struct sip *v, u64 word) {
    v->d ^= word;
    sip_round(v);
    v->a ^= word;
}

/* `last` has the bytes behind the last whole word, and the length in its highest byte. */
INLINE u64 sip_end(struct sip *v, u64 last) {
    sip_absorb(v, last);
    v->c ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v->a ^ v->b ^ v->c ^ v->d;
}
