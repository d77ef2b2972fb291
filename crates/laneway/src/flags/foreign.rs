//! What a command line written for memcached may hold that Laneway does not have, and what nobody
//! has. What only tunes memcached is passed over with a word on stderr. What would restrict access
//! or keep data refuses the start, and so does what is not known: nobody can tell what it would
//! have restricted.

use super::{Flags, Refused};
use lexopt::Parser;

/// A flag of memcached's that has no effect here: short, long, whether it takes a value, and why.
const TUNING: [(&str, &str, bool, &str); 6] = [
    ("-f", "--slab-growth-factor", true, "size classes are fixed, 8 per octave"),
    ("-n", "--slab-min-size", true, "size classes are fixed, 8 per octave"),
    ("-D", "--delimiter", true, "there are no statistics per prefix"),
    ("-R", "--max-reqs-per-event", true, "a turn of a connection is bounded by itself"),
    ("-W", "--disable-watch", false, "there is no watch command anyway"),
    ("-N", "--napi_ids", true, "the kernel spreads connections"),
];

/// A flag of memcached's that the server must not start without: short, long, whether it takes a
/// value, why there is no such thing, and the way out.
const REQUIRING: [(&str, &str, bool, &str); 4] = [
    (
        "-S",
        "--enable-sasl",
        false,
        "SASL is not supported; restrict access by a unix socket (-s PATH -a MASK) or a firewall, \
         and leave the flag out",
    ),
    (
        "-Y",
        "--auth-file",
        true,
        "authentication is not supported; restrict access by a unix socket (-s PATH -a MASK) or a \
         firewall, and leave the flag out",
    ),
    (
        "-Z",
        "--enable-ssl",
        false,
        "TLS is not supported; put a TLS proxy in front, listen on 127.0.0.1 (-l 127.0.0.1), and \
         leave the flag out",
    ),
    (
        "-e",
        "--memory-file",
        true,
        "a restart from a memory file is not supported; keep items with --data-dir DIR instead",
    ),
];

/// `-o` keys that are honoured by how the server works anyway.
const GRANTED: [&str; 8] = [
    "maxconns_fast",
    "modern",
    "lru_crawler",
    "lru_maintainer",
    "slab_reassign",
    "slab_automove",
    "no_drop_privileges",
    "relaxed_privileges",
];

/// `-o` keys of memcached's that tune it and have no effect here.
const TUNING_KEYS: [&str; 31] = [
    "no_maxconns_fast",
    "hashpower",
    "hash_algorithm",
    "no_hashexpand",
    "tail_repair_time",
    "no_lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "no_lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "slab_chunk_max",
    "slab_sizes",
    "watcher_logbuf_size",
    "worker_logbuf_size",
    "track_sizes",
    "no_modern",
    "no_slab_reassign",
    "no_slab_automove",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "meta_response_old",
    "no_chunked_items",
    "resp_obj_mem_limit",
    "read_buf_mem_limit",
];

/// Beginnings of `-o` keys of memcached's that the server must not start without.
const REQUIRING_KEYS: [(&str, &str); 4] = [
    ("ssl_", "TLS is not supported; put a TLS proxy in front, and leave the key out"),
    (
        "drop_privileges",
        "system calls are not restricted; use a sandbox of the service manager, and leave the key \
         out",
    ),
    ("ext_path", "extstore is not supported; keep values on a disk with --data-dir DIR instead"),
    ("proxy_", "there is no proxy; leave the key out, and run memcached's proxy or mcrouter"),
];

/// What `one` does not know: passed over with a word, or refused. Its value belongs to it.
pub fn flag(flags: &mut Flags, flag: &str, parser: &mut Parser) -> Result<(), Refused> {
    let is = |row: &&(&str, &str, bool, &str)| flag == row.0 || flag == row.1;
    if let Some((_, _, takes_value, why)) = TUNING.iter().find(is) {
        if *takes_value {
            let _ = parser.value(); // whatever it was
        }
        flags.warnings.push(format!("{flag} has no effect: {why}"));
        return Ok(());
    }
    if let Some((_, _, takes_value, why)) = REQUIRING.iter().find(is) {
        let value = if *takes_value { parser.value().ok() } else { None };
        let value = value.map(|value| format!("{}: ", value.to_string_lossy()));
        return Err(Refused::unknown(format!("{}{why}", value.unwrap_or_default())));
    }
    let value = parser.optional_value();
    let value = value.map(|value| format!("{}: ", value.to_string_lossy())).unwrap_or_default();
    Err(Refused::unknown(format!(
        "{value}not a flag of this server; {}laneway serve --help lists them",
        meant(nearest(flag, long_flags()))
    )))
}

/// A word before which no flag stands.
pub fn word(word: &str) -> Refused {
    Refused::unknown(format!(
        "{word}: no flag stands before this word; write a list such as that of -l without blanks, \
         and see laneway serve --help"
    ))
}

/// `-B`
pub fn protocol(name: &str) -> Result<(), Refused> {
    match name {
        "auto" | "ascii" | "auto-negotiate" => Ok(()),
        other => Err(Refused::unknown(format!(
            "{other}: only the text and meta protocols are served; write ascii or auto, or leave \
             the flag out"
        ))),
    }
}

/// `-o`: keys separated by commas, each with or without a value.
pub fn extended(flags: &mut Flags, keys: &str) -> Result<(), Refused> {
    for key in keys.split(',').filter(|key| !key.is_empty()) {
        let (name, value) = key.split_once('=').map_or((key, None), |(n, v)| (n, Some(v)));
        if name == "idle_timeout" {
            let value = value
                .ok_or_else(|| "idle_timeout needs a value: -o idle_timeout=SECONDS".to_owned())?;
            let seconds = value.parse();
            flags.idle_timeout =
                Some(seconds.map_err(|_| format!("idle_timeout={value}: not a number"))?);
        } else if let Some((_, why)) =
            REQUIRING_KEYS.iter().find(|(start, _)| name.starts_with(start))
        {
            return Err(Refused::unknown(format!("{key}: {why}")));
        } else if TUNING_KEYS.contains(&name) || name.starts_with("ext_") {
            flags.warnings.push(format!("-o {key} has no effect: it tunes memcached's insides"));
        } else if !GRANTED.contains(&name) {
            let known = ["idle_timeout"].into_iter().chain(GRANTED).chain(TUNING_KEYS);
            return Err(Refused::unknown(format!(
                "{key}: not a key of -o; {}honoured is idle_timeout=SECONDS",
                meant(nearest(name, known))
            )));
        }
    }
    Ok(())
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default()
}

/// The long flags that the help names.
fn long_flags() -> impl Iterator<Item = &'static str> {
    let words = include_str!("../serve_help.txt").split(|c: char| !c.is_alphanumeric() && c != '-');
    words.filter(|word| word.starts_with("--") && word.len() > "--".len())
}

/// What differs from `typed` in one or two letters.
fn nearest(typed: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    /// Letters left out, put in, changed, or swapped with the next.
    const SLIPS_MAX: usize = 2;
    let distances = known.map(|name| (strsim::damerau_levenshtein(typed, name), name));
    distances.filter(|(slips, _)| *slips <= SLIPS_MAX).min().map(|(_, name)| name)
}
