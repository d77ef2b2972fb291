//! Requests for a few stored keys, random and often askew, and what the server's own grammar makes
//! of them.

use laneway_wire::{GetVerb, Limits, Request};
use std::collections::BTreeMap;

/// Keys of a `get` that the lane's program answers, and its longest request: `bpf/scratch.h`.
pub const KEYS_MAX: usize = 16;
const REQUEST_BYTES_MAX: usize = 1024 - 16;
/// Longest text of a frame made here: trial runs take no much longer ones.
const TEXT_BYTES_MAX: usize = 1200;
/// What the lane's program knows of meta flags.
const FLAGS: &[u8] = b"vfsctkqO";
/// The unique number of every item that a test stores.
pub const SEQ: u64 = 7;

/// Values and client flags, by key.
pub type Stored = BTreeMap<Vec<u8>, (Vec<u8>, u32)>;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % end
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// Keys and values of every awkward length.
pub fn stored() -> Stored {
    let key = |length: usize| (0..length).map(|i| b'A' + ((i * 7 + length) % 50) as u8).collect();
    let value = |length: usize| vec![b'a' + (length % 26) as u8; length];
    [(1, 0), (7, 5), (8, 8), (9, 300), (16, 1), (31, 77), (249, 3), (250, 1000)]
        .map(|(key_bytes, value_bytes)| {
            (key(key_bytes), (value(value_bytes), (key_bytes % 3) as u32))
        })
        .into()
}

/// A line that is often a request for a key that is there.
pub fn line(random: &mut Random, keys: &[&[u8]]) -> Vec<u8> {
    let odd: [&[u8]; 4] = [b"no-such-key", b"", &[b'k'; 251], b"with\0zero"];
    let key = if random.one_in(8) { random.of(&odd) } else { random.of(keys) };
    let space: &[u8] = if random.one_in(16) { b"  " } else { b" " };
    let end: &[u8] = if random.one_in(16) {
        random.of(&["\n", "", "\r\n\r\n", " \r\n"]).as_bytes()
    } else {
        b"\r\n"
    };
    let mut line = Vec::new();
    if random.one_in(2) {
        let verb =
            if random.one_in(8) { random.of(&["gets", "gat 0", "GET", "ge"]) } else { "get" };
        line.extend([verb.as_bytes(), space, key].concat());
        let further = if random.one_in(2) { random.below(KEYS_MAX + 2) } else { 0 };
        // Mostly short ones with short values, so that many fit.
        let few = if random.one_in(4) { keys } else { &keys[1..4] };
        for _ in 0..further {
            let key = if random.one_in(64) { random.of(&odd) } else { random.of(few) };
            if line.len() + key.len() < TEXT_BYTES_MAX {
                let space = if random.one_in(128) { b"  ".as_slice() } else { space };
                line.extend([space, key].concat());
            }
        }
    } else {
        let verb =
            if random.one_in(8) { random.of(&["mg  ", "me ", "md ", "mgx "]) } else { "mg " };
        line.extend([verb.as_bytes(), key].concat());
        for _ in 0..random.below(6) {
            line.extend(space);
            let known =
                if random.one_in(16) { b"hlbNIx"[random.below(6)] } else { FLAGS[random.below(8)] };
            line.push(known);
            if known == b'O' {
                line.extend(vec![b'o'; random.below(36)]);
            }
        }
    }
    line.extend(end);
    line
}

/// The reply that the server's grammar asks for, if the text is one request for stored keys.
pub fn reply_to(text: &[u8], stored: &Stored) -> Option<Vec<u8>> {
    let frame = laneway_wire::parse(text, &Limits::default()).ok()??;
    if frame.head_bytes != text.len() {
        return None;
    }
    match frame.request {
        Request::Get(get) if get.verb == GetVerb::Get => {
            let mut reply = Vec::new();
            for key in get.keys {
                let (value, flags) = stored.get(key)?;
                let head = format!(" {flags} {}\r\n", value.len());
                reply.extend([b"VALUE ", key, head.as_bytes(), value, b"\r\n"].concat());
            }
            Some([&reply[..], b"END\r\n"].concat())
        }
        Request::MetaGet(meta) => {
            let key = meta.key.token;
            let (value, flags) = stored.get(key)?;
            let mut reply = format!("VA {}", value.len()).into_bytes();
            for flag in meta.flags.each() {
                match flag[0] {
                    b'v' | b'q' => continue,
                    b'f' => reply.extend(format!(" f{flags}").bytes()),
                    b's' => reply.extend(format!(" s{}", value.len()).bytes()),
                    b'c' => reply.extend(format!(" c{SEQ}").bytes()),
                    b't' => reply.extend(b" t-1"),
                    b'k' => reply.extend([b" k", key].concat()),
                    b'O' => reply.extend([b" ", flag].concat()),
                    _ => return None,
                }
            }
            let value = [b"\r\n", &value[..], b"\r\n"].concat();
            meta.flags.value.then(|| [reply, value].concat())
        }
        _ => None,
    }
}

/// Whether a request that has a reply is one that the lane must know: single spaces, not too many
/// keys, each flag a letter, an opaque apart.
pub fn is_plain(text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\r\n") else { return false };
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let is_known = match words[0] {
        b"get" => words.len() <= KEYS_MAX + 1 && text.len() <= REQUEST_BYTES_MAX,
        _ => words[2..].iter().all(|flag| flag.len() == 1 || flag.starts_with(b"O")),
    };
    words.iter().all(|word| !word.is_empty()) && is_known
}
