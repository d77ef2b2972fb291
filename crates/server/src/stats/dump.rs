//! `lru_crawler metadump` and `lru_crawler mgdump`: every item in memory, or those of some size
//! classes, for whoever copies a server's items or looks what they are. A line for each, byte for
//! byte as memcached 1.6.45 has it; told in steps ([`crate::lanes::long_answer`]).
//!
//! Departs from memcached: any number of them may be under way (there the second is told `BUSY`),
//! and `hash` is the same as `all`.

use laneway_store::{HEADER_BYTES, ItemMeta, Moment};
use laneway_wire::base64;
use laneway_wire::reply::END;
use laneway_wire::scan::Tokens;
use laneway_wire::uri;
use std::io::Write;

/// Size classes have numbers below this, as memcached's.
pub(super) const CLASSES_MAX: u32 = 64;

/// What is told where a class is none.
pub const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";

/// How an item is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `metadump`: what is known of it, its key as in a URI.
    Meta,
    /// `mgdump`: the meta command that asks for it.
    Get,
}

/// What a line asks for: how items are told, and a bit for each size class, none where one of those
/// is none. `None`: it asks for no dump.
pub fn asked_dump(line: &[u8]) -> Option<(Form, u64)> {
    let mut words = Tokens::new(line.trim_ascii_end());
    if words.next() != Some(b"lru_crawler") {
        return None;
    }
    let form = match words.next()? {
        b"metadump" => Form::Meta,
        b"mgdump" => Form::Get,
        _ => return None,
    };
    let classes = classes(words.next()?);
    words.next().is_none().then_some((form, classes))
}

/// A bit for each class; 0 where one is none.
fn classes(word: &[u8]) -> u64 {
    if matches!(word, b"all" | b"hash") {
        return u64::MAX;
    }
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let class = |word| number(word).filter(|class| (1..CLASSES_MAX).contains(class));
    let all = word.split(|byte| *byte == b',').filter(|word| !word.is_empty());
    let all: Option<Vec<u32>> = all.map(class).collect();
    all.unwrap_or_default().into_iter().fold(0, |all, class| all | 1 << class)
}

impl Form {
    /// What is told where keys may not be.
    pub fn refused(self) -> &'static [u8] {
        match self {
            Form::Meta => b"ERROR metadump not allowed\r\n",
            Form::Get => b"ERROR mgdump not allowed\r\n",
        }
    }

    /// The last line.
    pub fn end(self) -> &'static [u8] {
        match self {
            Form::Meta => END,
            Form::Get => b"EN\r\n",
        }
    }

    /// The line of an item of this class, told at `now`, whose id is told as `cas`.
    pub fn put(
        self,
        key: &[u8],
        meta: &ItemMeta,
        (class, cas, now): (u32, u64, Moment),
        out: &mut Vec<u8>,
    ) {
        match self {
            Form::Meta => put_meta(key, meta, (class, cas, now), out),
            Form::Get => put_get(key, out),
        }
    }
}

fn put_meta(key: &[u8], meta: &ItemMeta, (class, cas, now): (u32, u64, Moment), out: &mut Vec<u8>) {
    out.extend_from_slice(b"key=");
    uri::encode(key, out);
    let expires = match meta.expires {
        Moment::NEVER => -1,
        end => i64::from(end.seconds_up()),
    };
    let last = now.seconds().saturating_sub(meta.idle_seconds);
    let fetched = if meta.fetched { "yes" } else { "no" };
    let size = meta.item_bytes() + HEADER_BYTES as u64;
    let flags = meta.flags;
    put_text(
        out,
        format_args!(
            " exp={expires} la={last} cas={cas} fetch={fetched} cls={class} size={size} \
             flags={flags} \n"
        ),
    );
}

fn put_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a Vec takes every byte");
}

fn put_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    // What would end a key, or the line, is told in base64.
    if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        let start = out.len();
        out.resize(start + base64::encoded_bytes(key.len()), 0);
        let encoded = base64::encode(key, &mut out[start..]);
        debug_assert!(encoded.is_some(), "there is room");
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbers_from_1_to_63_or_all() {
        for (line, wanted) in [
            ("lru_crawler metadump all\r", Some((Form::Meta, u64::MAX))),
            ("lru_crawler mgdump hash", Some((Form::Get, u64::MAX))),
            ("lru_crawler metadump 1", Some((Form::Meta, 2))),
            ("lru_crawler metadump 1,3,", Some((Form::Meta, 10))),
            ("lru_crawler metadump 63", Some((Form::Meta, 1 << 63))),
            ("lru_crawler metadump 0", Some((Form::Meta, 0))),
            ("lru_crawler metadump 64", Some((Form::Meta, 0))),
            ("lru_crawler metadump 1,x", Some((Form::Meta, 0))),
            ("lru_crawler metadump", None),
            ("lru_crawler metadump all x", None),
            ("lru_crawler crawl all", None),
            ("lru metadump all", None),
            ("", None),
        ] {
            assert_eq!(asked_dump(line.as_bytes()), wanted, "{line}");
        }
    }

    #[test]
    fn a_line_is_as_memcached_has_it() {
        let meta = ItemMeta {
            seq: 7,
            flags: 5,
            expires: Moment::NEVER,
            value_bytes: 3,
            key_bytes: 3,
            stale: false,
            token_sent: false,
            fetched: true,
            idle_seconds: 10,
        };
        let line = |form: Form, key: &[u8], meta: &ItemMeta| {
            let mut out = Vec::new();
            form.put(key, meta, (1, 2, Moment::from_seconds(1000)), &mut out);
            String::from_utf8(out).expect("it is text")
        };
        let size = 6 + HEADER_BYTES;
        let told = format!("exp=-1 la=990 cas=2 fetch=yes cls=1 size={size} flags=5 \n");
        assert_eq!(line(Form::Meta, b"a%b", &meta), format!("key=a%25b {told}"));
        assert_eq!(line(Form::Meta, b"\0-._~", &meta), format!("key=%00-._~ {told}"));
        assert_eq!(line(Form::Get, b"a%b", &meta), "mg a%b\r\n");
        assert_eq!(line(Form::Get, b"\0\0\0", &meta), "mg AAAA b\r\n");
        let ends = ItemMeta { expires: Moment::new(1999, 500), fetched: false, ..meta };
        assert!(line(Form::Meta, b"k", &ends).starts_with("key=k exp=2000 la=990 cas=2 fetch=no "));
    }
}
