//! Parses a `watch` line.

use super::event::{CLASSES, Class};
use laneway_wire::scan::Tokens;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// A bit for each [`Class`].
    pub classes: u32,
    /// One event in so many, from 1 on.
    pub sample: u64,
}

/// What is told where watching is not allowed (memcached's words).
pub const NOT_ALLOWED: &[u8] = b"CLIENT_ERROR watch commands not allowed\r\n";
/// What is told where as many watch as may (memcached's words).
pub const TOO_MANY: &[u8] = b"WATCHER_TOO_MANY log watcher limit reached\r\n";

const USAGE: &[u8] = b"CLIENT_ERROR usage: watch \
    [fetchers] [mutations] [evictions] [connevents] [deletions] [sample=N]\r\n";

/// What the line asks for, or what is told instead; nothing where it is another command's.
pub fn asked(line: &[u8]) -> Option<Result<Asked, &'static [u8]>> {
    let mut words = Tokens::new(line.trim_ascii_end());
    if words.next() != Some(b"watch") {
        return None;
    }
    let words: Vec<&[u8]> = words.collect();
    let silent = words.last() == Some(&&b"noreply"[..]);
    Some(read(&words).ok_or(if silent { b"" } else { USAGE }))
}

fn read(words: &[&[u8]]) -> Option<Asked> {
    let mut asked = Asked { classes: 0, sample: 1 };
    for word in words {
        if let Some(number) = word.strip_prefix(b"sample=") {
            let number = std::str::from_utf8(number).ok()?.parse().ok();
            asked.sample = number.filter(|number| *number > 0)?;
            continue;
        }
        let (_, class) = CLASSES.iter().find(|(name, _)| name.as_bytes() == *word)?;
        asked.classes |= *class as u32;
    }
    if asked.classes == 0 {
        asked.classes = Class::Fetchers as u32; // as in memcached
    }
    Some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stand_in_any_order_and_what_is_none_is_told() {
        let yes = |classes, sample| Some(Ok(Asked { classes, sample }));
        for (line, wanted) in [
            ("watch", yes(1, 1)),
            ("watch\r", yes(1, 1)),
            ("watch fetchers", yes(1, 1)),
            ("watch mutations deletions", yes(18, 1)),
            ("watch connevents evictions evictions", yes(12, 1)),
            ("watch sample=100", yes(1, 100)),
            ("watch mutations sample=2 fetchers", yes(3, 2)),
            ("watch sample=0", Some(Err(USAGE))),
            ("watch sample=", Some(Err(USAGE))),
            ("watch sample=-1", Some(Err(USAGE))),
            ("watch foo", Some(Err(USAGE))),
            ("watch fetchers foo", Some(Err(USAGE))),
            ("watch rawcmds", Some(Err(USAGE))),
            ("watch Fetchers", Some(Err(USAGE))),
            ("watch fetchers noreply", Some(Err(&b""[..]))),
            ("watchers", None),
            ("lru mode flat", None),
            ("", None),
        ] {
            assert_eq!(asked(line.as_bytes()), wanted, "{line}");
        }
    }
}
