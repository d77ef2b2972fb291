//! Values that are asked for, and expiries that are changed.

use super::expires;
use crate::execute::get::{Telling, get as get_value, get_and_touch};
use crate::execute::remove::expire_at;
use crate::execute::{Context, Outcome, reply};
use laneway_store::{ItemMeta, KeyHash};
use laneway_wire::binary::reply::{Status, put, put_error, put_value_head};
use laneway_wire::binary::{Frame, Get};

/// How a value is told by the binary protocol.
struct Told<'a> {
    frame: &'a Frame<'a>,
    get: &'a Get<'a>,
}

impl Telling for Told<'_> {
    const TAIL: &'static [u8] = b"";

    #[inline]
    fn head(&self, context: &Context<'_>, meta: &ItemMeta, out: &mut Vec<u8>) {
        let Told { frame, get } = self;
        let key = if get.with_key { get.key } else { b"" };
        let item = (meta.flags, meta.value_bytes as usize, context.cas(meta));
        put_value_head(out, frame.echo, key, item);
    }

    fn miss(&self, out: &mut Vec<u8>) {
        put_miss(self.frame, self.get, out);
    }

    fn too_many(&self, out: &mut Vec<u8>) {
        reply::binary_too_many(self.frame.echo, out);
    }
}

/// Says that there is no item; with its key where the value would have come with it.
pub fn put_miss(frame: &Frame<'_>, get: &Get<'_>, out: &mut Vec<u8>) {
    match get.with_key {
        _ if frame.quiet => {}
        true => put(out, frame.echo, Status::NotFound, get.key, b""),
        false => put_error(out, frame.echo, Status::NotFound),
    }
}

/// A value; also a new expiry, where one is given.
pub fn get(
    context: &Context<'_>,
    frame: &Frame<'_>,
    get: &Get<'_>,
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    let told = Told { frame, get };
    match get.touch {
        None => get_value(context, &told, (get.key, hash), out),
        Some(expiration) => {
            let expires = expires(context, expiration);
            get_and_touch(context, &told, (get.key, hash), expires, out)
        }
    }
}

/// A new expiry. The reply has the item's flags and id.
pub fn touch(
    context: &Context<'_>,
    frame: &Frame<'_>,
    (key, expiration): (&[u8], u32),
    out: &mut Vec<u8>,
) -> Outcome {
    match expire_at(context, key, expires(context, expiration)) {
        Ok(Some(item)) => {
            put_value_head(out, frame.echo, b"", (item.flags, 0, context.cas(&item)));
        }
        Ok(None) => put_error(out, frame.echo, Status::NotFound),
        Err(kept) => return kept,
    }
    Outcome::Done
}
