//! Reading replies, for clients and tests.

use super::reply::REPLY;
use super::{Echo, HEADER_BYTES};

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What it repeats of its request.
    pub echo: Echo,
    /// [`super::reply::Status`] as a number.
    pub status: u16,
    /// The item's id.
    pub cas: u64,
    /// Numbers of fixed size.
    pub extras: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value, or the words of an error.
    pub value: &'a [u8],
    /// Bytes of all of it.
    pub bytes: usize,
}

/// No reply begins here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoReply;

/// The reply at the front of `input`; `Ok(None)` if it is not whole.
pub fn parse_reply(input: &[u8]) -> Result<Option<Reply<'_>>, NoReply> {
    if input.first().is_some_and(|first| *first != REPLY) {
        return Err(NoReply);
    }
    let Some((header, behind)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let extras = usize::from(header[4]);
    let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let [.., a, b, c, d] = header[..12] else { return Err(NoReply) };
    let body = u32::from_be_bytes([a, b, c, d]) as usize;
    if body < extras + key {
        return Err(NoReply);
    }
    let Some(body) = behind.get(..body) else { return Ok(None) };
    let (extras, body) = body.split_at(extras);
    let (key, value) = body.split_at(key);
    let mut opaque = [0; 4];
    opaque.copy_from_slice(&header[12..16]);
    let mut cas = [0; 8];
    cas.copy_from_slice(&header[16..24]);
    Ok(Some(Reply {
        echo: Echo { opcode: header[1], opaque },
        status: u16::from_be_bytes([header[6], header[7]]),
        cas: u64::from_be_bytes(cas),
        extras,
        key,
        value,
        bytes: HEADER_BYTES + extras.len() + key.len() + value.len(),
    }))
}
