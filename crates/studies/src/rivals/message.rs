//! The messages between the two ends, in designs that use messages: eight bytes, a key, a value.
//! Numbers are little-endian. Only these designs have them; Laneway's own requests are memcached's.
//!
//! | bytes | request | reply |
//! |---|---|---|
//! | 0 | 1 GET, 2 PUT | 0 done, 1 found, 2 missing, 3 full, 4 too long, 5 malformed |
//! | 1 | length of the key | 0 |
//! | 2..4 | length of the value | the same |
//! | 4..8 | number of the request | the same |
//! | 8.. | key, value | value |

use laneway_rdma::contract::MESSAGE_BYTES_MAX;

/// Before key and value.
pub const HEADER_BYTES: usize = 8;
/// Longest key, memcached's.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest value: what HERD's figures end with, and a slot holds.
pub const VALUE_BYTES_MAX: usize = 1024;

const _: () = assert!(HEADER_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(KEY_BYTES_MAX <= u8::MAX as usize);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The value of a key.
    Get {
        /// Which.
        key: &'a [u8],
    },
    /// A key is to have a value.
    Put {
        /// Which.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Put.
    Done,
    /// Got.
    Found(&'a [u8]),
    /// There is no such key.
    Missing,
    /// There is no room for it.
    Full,
    /// Its key or value is longer than the server keeps.
    TooLong,
    /// That was no request.
    Malformed,
}

const GET: u8 = 1;
const PUT: u8 = 2;

fn header(first: u8, second: u8, value_bytes: usize, id: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[first, second]);
    out.extend_from_slice(&(value_bytes as u16).to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
}

impl<'a> Request<'a> {
    /// Append it. Keys and values are no longer than they may be.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        let (first, key, value) = match *self {
            Request::Get { key } => (GET, key, &[][..]),
            Request::Put { key, value } => (PUT, key, value),
        };
        assert!(
            key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX,
            "the client's limits"
        );
        header(first, key.len() as u8, value.len(), id, out);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// Its number and what it is; what is wrong with it still has a number. `None`: too short to
    /// have one.
    pub fn parse(bytes: &'a [u8]) -> Option<(u32, Option<Request<'a>>)> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [kind, key_bytes, value_low, value_high, id @ ..] = *header;
        let (id, key_bytes) = (u32::from_le_bytes(id), usize::from(key_bytes));
        let value_bytes = usize::from(u16::from_le_bytes([value_low, value_high]));
        let fits = (1..=KEY_BYTES_MAX).contains(&key_bytes) && value_bytes <= VALUE_BYTES_MAX;
        if !fits || rest.len() != key_bytes + value_bytes {
            return Some((id, None));
        }
        let (key, value) = rest.split_at(key_bytes);
        let request = match kind {
            GET if value.is_empty() => Some(Request::Get { key }),
            PUT => Some(Request::Put { key, value }),
            _ => None,
        };
        Some((id, request))
    }
}

impl<'a> Reply<'a> {
    /// Append it.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        let (status, value) = match *self {
            Reply::Done => (0, &[][..]),
            Reply::Found(value) => (1, value),
            Reply::Missing => (2, &[][..]),
            Reply::Full => (3, &[][..]),
            Reply::TooLong => (4, &[][..]),
            Reply::Malformed => (5, &[][..]),
        };
        header(status, 0, value.len(), id, out);
        out.extend_from_slice(value);
    }

    /// Its number and what it is. `None`: it is no reply.
    pub fn parse(bytes: &'a [u8]) -> Option<(u32, Reply<'a>)> {
        let (header, value) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [status, _, value_low, value_high, id @ ..] = *header;
        if value.len() != usize::from(u16::from_le_bytes([value_low, value_high])) {
            return None;
        }
        let reply = match (status, value) {
            (0, []) => Reply::Done,
            (1, value) => Reply::Found(value),
            (2, []) => Reply::Missing,
            (3, []) => Reply::Full,
            (4, []) => Reply::TooLong,
            (5, []) => Reply::Malformed,
            _ => return None,
        };
        Some((u32::from_le_bytes(id), reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let (key, value) = ([7; KEY_BYTES_MAX], [8; VALUE_BYTES_MAX]);
        for request in [
            Request::Get { key: b"k" },
            Request::Get { key: &key },
            Request::Put { key: b"k", value: b"" },
            Request::Put { key: &key, value: &value },
        ] {
            let mut out = Vec::new();
            request.write(0xfeed_beef, &mut out);
            assert_eq!(Request::parse(&out), Some((0xfeed_beef, Some(request))));
        }
        for reply in [
            Reply::Done,
            Reply::Found(&value),
            Reply::Missing,
            Reply::Full,
            Reply::TooLong,
            Reply::Malformed,
        ] {
            let mut out = Vec::new();
            reply.write(9, &mut out);
            assert_eq!(Reply::parse(&out), Some((9, reply)));
        }
    }

    #[test]
    fn what_is_wrong_with_a_message_is_told_if_it_has_a_number() {
        let mut good = Vec::new();
        Request::Put { key: b"key", value: b"value" }.write(5, &mut good);
        let changed = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            bad
        };
        let long = [&good[..], b"x"].concat();
        let (no_key, too_long) = (changed(1, 0), changed(1, 251));
        for bad in [&good[..9], &long, &changed(0, 0), &changed(0, 3), &changed(0, 1)] {
            assert_eq!(Request::parse(bad), Some((5, None)), "{bad:?}");
        }
        for bad in [&no_key, &too_long, &changed(2, 4), &changed(3, 255)] {
            assert_eq!(Request::parse(bad), Some((5, None)), "{bad:?}");
        }
        for length in 0..HEADER_BYTES {
            assert_eq!(Request::parse(&good[..length]), None);
            assert_eq!(Reply::parse(&good[..length]), None);
        }
        for bad in
            [&[0, 0, 1, 0, 0, 0, 0, 0, 9][..], &[9, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 1, 0, 0, 0, 0, 0]]
        {
            assert_eq!(Reply::parse(bad), None, "{bad:?}");
        }
    }
}
