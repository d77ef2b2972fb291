//! Commands that tune what memcached is made of inside. What has no counterpart here is answered as
//! memcached answers it in the nearest case: `OK` where nothing would be worse for having been
//! asked, the refusal of a switched-off feature where the client would wait for something.

use super::{Context, reply};
use crate::access::client_limits::Limited;
use crate::durable::backup::{self, Asked, NOT_KEPT};
use crate::stats::BAD_CLASS;
use laneway_wire::reply::{
    BAD_FORMAT, ERROR, MEMORY_LIMIT_NOT_MEGABYTES, MEMORY_LIMIT_TOO_SMALL, OK,
};
use laneway_wire::scan::Tokens;

/// The highest level of `verbosity`.
pub(super) const VERBOSITY_MAX: u32 = 2;

/// Smallest `cache_memlimit`, in MiB.
const MEMORY_MEGABYTES_MIN: u64 = 8;
/// Largest: above it the client has certainly meant bytes.
const MEMORY_MEGABYTES_MAX: u64 = 1_000_000_000;
const MEGABYTE: u64 = 1 << 20;

/// Longest `lru_crawler sleep`, microseconds.
const CRAWLER_SLEEP_US_MAX: u32 = 1_000_000;

/// `lru tune`: what hot and warm may take together, in percent.
const SEGMENTS_PERCENT_MAX: u64 = 80;

const REASSIGN_DISABLED: &[u8] = b"CLIENT_ERROR slab reassignment disabled\r\n";
const SLEEP_TOO_LONG: &[u8] = b"CLIENT_ERROR sleep must be one second or less\r\n";
const SEGMENTS_TOO_LARGE: &[u8] = b"ERROR hot and warm pcts must not exceed 80\r\n";
const FACTORS_TOO_SMALL: &[u8] = b"ERROR hot/warm age factors must be greater than 0\r\n";
const CHECKPOINT_USAGE: &[u8] = b"CLIENT_ERROR usage: checkpoint\r\n";
const COMPACT_USAGE: &[u8] = b"CLIENT_ERROR usage: compact [stop]\r\n";
const MIGRATE_RATE_USAGE: &[u8] =
    b"CLIENT_ERROR usage: migrate_rate BYTES (a second; 0 for as many as it can)\r\n";
const CLIENT_RATE_USAGE: &[u8] =
    b"CLIENT_ERROR usage: client_rate REQUESTS (a second; 0 for any number)\r\n";
const CLIENT_BYTES_USAGE: &[u8] =
    b"CLIENT_ERROR usage: client_bytes BYTES (a second; 0 for any number)\r\n";
const NO_TLS: &[u8] = b"Error TLS not enabled\r\n";
/// Files are read by no worker.
const BY_SIGHUP: &[u8] = b"Error SIGHUP reads the certificates again\r\n";

/// `cache_memlimit`.
pub(super) fn memory_limit(
    context: &Context<'_>,
    megabytes: u64,
    noreply: bool,
    out: &mut Vec<u8>,
) {
    let line = match megabytes {
        0..MEMORY_MEGABYTES_MIN => MEMORY_LIMIT_TOO_SMALL,
        MEMORY_MEGABYTES_MIN..=MEMORY_MEGABYTES_MAX => {
            let share = megabytes * MEGABYTE / (1 + context.others.len() as u64);
            let stores = std::iter::once(context.store).chain(context.others);
            stores.for_each(|store| store.set_memory_bytes(share));
            OK
        }
        _ => MEMORY_LIMIT_NOT_MEGABYTES,
    };
    reply::unless(noreply, line, out);
}

/// What a `backup` line asks; nothing where the line is another.
pub(super) fn backup(line: &[u8]) -> Option<Result<Asked, &'static [u8]>> {
    let words: Vec<&[u8]> = Tokens::new(line.trim_ascii_end()).collect();
    let (&command, words) = words.split_first()?;
    (command == b"backup").then(|| backup::asked(words))
}

/// Whether a line asks for a checkpoint. Where there is a data folder its executor makes it.
pub(crate) fn is_checkpoint(line: &[u8]) -> bool {
    Tokens::new(line.trim_ascii_end()).eq([&b"checkpoint"[..]])
}

/// What is asked of the data folder and answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedOfTier {
    /// Migration and compaction write so many bytes a second from now on; 0 is any number.
    MigrateRate(u64),
    /// Compact it beside everything else.
    Compact,
    /// Give that up.
    StopCompacting,
}

/// What a line asks of the data folder; nothing where it is another.
pub(super) fn of_tier(line: &[u8]) -> Option<Result<AskedOfTier, &'static [u8]>> {
    let words: Vec<&[u8]> = Tokens::new(line.trim_ascii_end()).collect();
    let (&command, words) = words.split_first()?;
    match (command, words) {
        (b"migrate_rate", [bytes]) => {
            Some(number(bytes).map(AskedOfTier::MigrateRate).ok_or(MIGRATE_RATE_USAGE))
        }
        (b"migrate_rate", _) => Some(Err(MIGRATE_RATE_USAGE)),
        (b"compact", []) => Some(Ok(AskedOfTier::Compact)),
        (b"compact", [b"stop"]) => Some(Ok(AskedOfTier::StopCompacting)),
        (b"compact", _) => Some(Err(COMPACT_USAGE)),
        _ => None,
    }
}

/// What a `client_rate` or a `client_bytes` line asks: a limit of each client, a second, 0 for any;
/// nothing where the line is another.
pub(super) fn client_limit(line: &[u8]) -> Option<Result<(Limited, u64), &'static [u8]>> {
    let words: Vec<&[u8]> = Tokens::new(line.trim_ascii_end()).collect();
    let (&command, words) = words.split_first()?;
    let (limited, usage) = match command {
        b"client_rate" => (Limited::Requests, CLIENT_RATE_USAGE),
        b"client_bytes" => (Limited::Bytes, CLIENT_BYTES_USAGE),
        _ => return None,
    };
    Some(match words {
        [most] => number(most).map(|most| (limited, most)).ok_or(usage),
        _ => Err(usage),
    })
}

/// Everything else: `line` is the whole line; `tls`: it is spoken.
pub(super) fn answer(line: &[u8], tls: bool, out: &mut Vec<u8>) {
    let line = line.trim_ascii_end();
    let words: Vec<&[u8]> = Tokens::new(line).collect();
    let Some((&command, words)) = words.split_first() else {
        return out.extend_from_slice(ERROR);
    };
    // Only these three look for it (and `watch`).
    let may_be_silent = matches!(command, b"lru" | b"refresh_certs")
        || (command == b"slabs" && words.first() == Some(&&b"automove"[..]));
    let noreply = may_be_silent && words.last() == Some(&&b"noreply"[..]);
    let line = match command {
        b"slabs" => slabs(words),
        b"lru" => lru(words),
        b"lru_crawler" => crawler(words),
        b"checkpoint" if words.is_empty() => NOT_KEPT,
        b"checkpoint" => CHECKPOINT_USAGE,
        b"refresh_certs" if tls => BY_SIGHUP,
        b"refresh_certs" => NO_TLS,
        _ => ERROR,
    };
    reply::unless(noreply, line, out);
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn slabs(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"reassign", _, _] => REASSIGN_DISABLED,
        [b"automove", b"ratio" | b"freeratio", ratio, ..] if number::<f64>(ratio).is_some() => OK,
        [b"automove", b"ratio" | b"freeratio", ..] => ERROR,
        [b"automove", b"window", window, ..] if number::<u32>(window).is_some() => OK,
        [b"automove", level, ..] => match number::<u32>(level) {
            Some(0..=2) => OK,
            Some(_) => ERROR,
            None => BAD_FORMAT,
        },
        _ => ERROR,
    }
}

fn lru(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            let shares = (number::<u32>(hot), number::<u32>(warm));
            let factors = (number::<f64>(hot_factor), number::<f64>(warm_factor));
            match (shares, factors) {
                ((Some(hot), Some(warm)), _)
                    if u64::from(hot) + u64::from(warm) > SEGMENTS_PERCENT_MAX =>
                {
                    SEGMENTS_TOO_LARGE
                }
                ((Some(_), Some(_)), (Some(hot), Some(warm))) if hot <= 0.0 || warm <= 0.0 => {
                    FACTORS_TOO_SMALL
                }
                ((Some(_), Some(_)), (Some(_), Some(_))) => OK,
                _ => ERROR,
            }
        }
        [b"mode", b"flat" | b"segmented", ..] => OK,
        [b"temp_ttl", seconds, ..] if number::<i32>(seconds).is_some() => OK,
        _ => ERROR,
    }
}

fn crawler(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"enable" | b"disable"] => OK,
        // The background sweep never stops: whoever asks for a crawl has it already.
        [b"crawl", classes] if is_classes(classes) => OK,
        [b"crawl", _] => BAD_CLASS,
        [b"tocrawl", items] if number::<u32>(items).is_some() => OK,
        [b"sleep", microseconds] => match number::<u32>(microseconds) {
            Some(0..=CRAWLER_SLEEP_US_MAX) => OK,
            Some(_) => SLEEP_TOO_LONG,
            None => BAD_FORMAT,
        },
        [b"tocrawl", _] => BAD_FORMAT,
        _ => ERROR,
    }
}

/// `all`, `hash`, or class numbers with commas between them.
fn is_classes(word: &[u8]) -> bool {
    matches!(word, b"all" | b"hash")
        || word.split(|&byte| byte == b',').all(|class| number::<u8>(class).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_asked_for_by_one_word() {
        assert!(is_checkpoint(b"checkpoint") && is_checkpoint(b"checkpoint "));
        assert!(!is_checkpoint(b"checkpoint now") && !is_checkpoint(b"checkpoints"));
    }

    #[test]
    fn a_migrate_rate_is_one_number() {
        let rate = |line: &str| of_tier(line.as_bytes());
        assert_eq!(rate("migrate_rate 0"), Some(Ok(AskedOfTier::MigrateRate(0))));
        let sixteen_megabytes = Some(Ok(AskedOfTier::MigrateRate(16 << 20)));
        assert_eq!(rate("migrate_rate  16777216 "), sixteen_megabytes);
        for line in ["migrate_rate", "migrate_rate 1 2", "migrate_rate 1m", "migrate_rate -1"] {
            assert_eq!(rate(line), Some(Err(MIGRATE_RATE_USAGE)), "{line}");
        }
        assert_eq!((rate("migrate_rates 1"), rate("")), (None, None));
    }

    #[test]
    fn a_compaction_is_asked_for_by_one_word_and_given_up_by_two() {
        let asked = |line: &str| of_tier(line.as_bytes());
        assert_eq!(asked("compact "), Some(Ok(AskedOfTier::Compact)));
        assert_eq!(asked("compact  stop"), Some(Ok(AskedOfTier::StopCompacting)));
        for line in ["compact now", "compact stop now", "compact STOP"] {
            assert_eq!(asked(line), Some(Err(COMPACT_USAGE)), "{line}");
        }
        assert_eq!(asked("compacts"), None);
    }

    #[test]
    fn a_limit_of_clients_is_one_number() {
        let limit = |line: &str| client_limit(line.as_bytes());
        assert_eq!(limit("client_rate 100 "), Some(Ok((Limited::Requests, 100))));
        assert_eq!(limit("client_bytes  0"), Some(Ok((Limited::Bytes, 0))));
        for words in ["", " 1 2", " 1m", " -1"] {
            let (rate, bytes) = (format!("client_rate{words}"), format!("client_bytes{words}"));
            assert_eq!(limit(&rate), Some(Err(CLIENT_RATE_USAGE)), "{rate}");
            assert_eq!(limit(&bytes), Some(Err(CLIENT_BYTES_USAGE)), "{bytes}");
        }
        assert_eq!((limit("client_rates 1"), limit("")), (None, None));
    }

    #[test]
    fn admin_lines_are_answered_as_memcached_answers_them() {
        for (line, reply) in [
            ("slabs", ERROR),
            ("slabs reassign 1 2", REASSIGN_DISABLED),
            ("slabs automove 1", OK),
            ("slabs automove 1 noreply", b""),
            ("slabs automove 3", ERROR),
            ("slabs automove x", BAD_FORMAT),
            ("slabs automove ratio 0.5", OK),
            ("slabs automove freeratio x", ERROR),
            ("slabs automove window 5", OK),
            ("slabs automove window x", BAD_FORMAT),
            ("lru mode flat", OK),
            ("lru tune 10 25 0.1 2.0", OK),
            ("lru tune 50 31 0.1 2.0", SEGMENTS_TOO_LARGE),
            ("lru tune 4294967295 4294967295 1 1", SEGMENTS_TOO_LARGE),
            ("lru tune 10 25 0 2.0", FACTORS_TOO_SMALL),
            ("lru tune 10", ERROR),
            ("lru temp_ttl -1", OK),
            ("lru foo", ERROR),
            ("lru_crawler", ERROR),
            ("lru_crawler enable", OK),
            ("lru_crawler crawl all", OK),
            ("lru_crawler crawl 1,2,3", OK),
            ("lru_crawler crawl x", BAD_CLASS),
            ("lru_crawler metadump", ERROR),
            ("lru_crawler mgdump all 1", ERROR),
            ("lru_crawler sleep 100", OK),
            ("lru_crawler sleep 1000001", SLEEP_TOO_LONG),
            ("lru_crawler sleep x", BAD_FORMAT),
            ("lru_crawler tocrawl 5", OK),
            ("lru_crawler tocrawl x", BAD_FORMAT),
            ("refresh_certs", NO_TLS),
            ("checkpoint", NOT_KEPT),
            ("checkpoint now", CHECKPOINT_USAGE),
            ("extstore item_size 5", ERROR),
            ("misbehave", ERROR),
            ("debugtime p", ERROR),
            ("", ERROR),
        ] {
            let mut out = Vec::new();
            answer(line.as_bytes(), false, &mut out);
            assert_eq!(out, reply, "{line}");
        }
        let mut out = Vec::new();
        answer(b"refresh_certs", true, &mut out);
        assert_eq!(out, BY_SIGHUP);
    }
}
