//! `me`: what is known of an item, for people.

use super::super::{Context, Outcome};
use laneway_store::{HEADER_BYTES, Moment};
use laneway_wire::{KEY_BYTES_MAX, Meta};
use std::io::Write;

pub(in super::super) fn meta_debug(
    context: &Context<'_>,
    meta: &Meta<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut scratch = [0; KEY_BYTES_MAX];
    let key = meta.key.bytes(&mut scratch);
    let hash = context.store.hash(key);
    let found = context.store.peek(hash, key, context.now);
    if found.is_none() && context.has_forgotten() {
        return Outcome::Kept;
    }
    context.counters.cmd_meta.bump_owner();
    let Some(item) = found else {
        out.extend_from_slice(b"EN\r\n");
        return Outcome::Done;
    };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(meta.key.token);
    let bytes = item.item_bytes();
    let size = bytes + HEADER_BYTES as u64;
    let expires = match item.expires {
        Moment::NEVER => -1,
        expires => i64::from(expires.seconds_up()) - i64::from(context.now.seconds()),
    };
    let fetched = if item.fetched { "yes" } else { "no" };
    let cas = context.cas(&item);
    let class = bytes.max(1).ilog2();
    let idle = item.idle_seconds;
    let written = write!(
        out,
        " exp={expires} la={idle} cas={cas} fetch={fetched} cls={class} size={size}\r\n"
    );
    debug_assert!(written.is_ok(), "a Vec takes every byte");
    Outcome::Done
}
