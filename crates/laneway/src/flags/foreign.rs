//! What a command line written for memcached may hold that Laneway does not have, and what nobody
//! has. What only tunes memcached is passed over with a word on stderr. What would restrict access
//! or keep data refuses the start, and so does what is not known: nobody can tell what it would
//! have restricted.

use lexopt::Parser;
use std::ffi::OsString;

/// Why a command line, a file or a variable is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Exit status.
    pub status: u8,
    /// A sentence for the user.
    pub why: String,
}

/// Exit status of a flag that is not known or not supported; memcached's.
pub const STATUS_UNKNOWN: u8 = 1;

impl Refused {
    /// For a flag that is not known or not supported.
    pub fn unknown(why: String) -> Refused {
        Refused { status: STATUS_UNKNOWN, why }
    }

    /// The same, with where it was found before it.
    pub fn at(self, place: impl std::fmt::Display) -> Refused {
        Refused { why: format!("{place}: {}", self.why), ..self }
    }
}

impl From<String> for Refused {
    /// For a value that makes no sense.
    fn from(why: String) -> Refused {
        Refused { status: crate::STATUS_USAGE, why }
    }
}

/// What `-o` asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extended {
    /// `idle_timeout`, seconds.
    pub idle_timeout: Option<u64>,
    /// The keys of `-Z`.
    pub ssl: SslKeys,
    /// What has no effect here, in sentences.
    pub warnings: Vec<String>,
}

/// memcached's keys of TLS, as typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SslKeys {
    /// `ssl_chain_cert`
    pub chain_cert: Option<String>,
    /// `ssl_key`
    pub key: Option<String>,
    /// `ssl_ca_cert`
    pub ca_cert: Option<String>,
    /// `ssl_verify_mode`, 0 to 3
    pub verify_mode: Option<u8>,
    /// `ssl_min_version`, 2 or 3
    pub min_version: Option<u8>,
}

impl SslKeys {
    /// Take a key with its value; false if it is none of these.
    fn take(&mut self, name: &str, value: Option<&str>) -> Result<bool, Refused> {
        let number = |range: std::ops::RangeInclusive<u8>| {
            let (text, (from, to)) = (value.unwrap_or_default(), range.clone().into_inner());
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| {
                Refused::from(format!("{name}={text}: must be a number from {from} to {to}"))
            })
        };
        let file = || {
            let path = value.filter(|path| !path.is_empty()).map(str::to_owned);
            let path = path.ok_or_else(|| format!("{name} needs a value: -o {name}=FILE"));
            Ok::<_, Refused>(Some(path?))
        };
        match name {
            "ssl_chain_cert" => self.chain_cert = file()?,
            "ssl_key" => self.key = file()?,
            "ssl_ca_cert" => self.ca_cert = file()?,
            "ssl_verify_mode" => self.verify_mode = Some(number(0..=3)?),
            "ssl_min_version" => self.min_version = Some(number(0..=3)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// As typed.
    fn told(&self) -> impl Iterator<Item = String> {
        let text = |value: &Option<String>| value.clone();
        let number = |value: &Option<u8>| value.map(|number| number.to_string());
        let pairs = [
            ("ssl_chain_cert", text(&self.chain_cert)),
            ("ssl_key", text(&self.key)),
            ("ssl_verify_mode", number(&self.verify_mode)),
            ("ssl_ca_cert", text(&self.ca_cert)),
            ("ssl_min_version", number(&self.min_version)),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)))
    }
}

/// A flag of memcached's, with a value, that has no effect here: short, long, and why.
const TUNING: [(&str, &str, &str); 5] = [
    ("-f", "--slab-growth-factor", "size classes are fixed, 8 per octave"),
    ("-n", "--slab-min-size", "size classes are fixed, 8 per octave"),
    ("-D", "--delimiter", "there are no statistics per prefix"),
    ("-R", "--max-reqs-per-event", "a turn of a connection is bounded by itself"),
    ("-N", "--napi_ids", "the kernel spreads connections"),
];

/// `-o` keys that are honoured by how the server works anyway, a blank between two.
const GRANTED: &str = "\
    maxconns_fast modern lru_crawler lru_maintainer slab_reassign slab_automove \
    no_drop_privileges relaxed_privileges";

/// `-o` keys of memcached's that have an effect here, too.
const HONOURED: &str =
    "idle_timeout ssl_chain_cert ssl_key ssl_verify_mode ssl_ca_cert ssl_min_version";

/// `-o` keys of memcached's that tune it and have no effect here, a blank between two.
const TUNING_KEYS: &str = "\
    no_maxconns_fast hashpower hash_algorithm no_hashexpand tail_repair_time no_lru_crawler \
    lru_crawler_sleep lru_crawler_tocrawl no_lru_maintainer hot_lru_pct warm_lru_pct \
    hot_max_factor warm_max_factor temporary_ttl slab_chunk_max slab_sizes watcher_logbuf_size \
    worker_logbuf_size track_sizes no_modern no_slab_reassign no_slab_automove \
    slab_automove_ratio slab_automove_window slab_automove_freeratio inline_ascii_resp \
    no_inline_ascii_resp meta_response_old no_chunked_items resp_obj_mem_limit \
    read_buf_mem_limit";

/// Keys of memcached's TLS that only tune it; sessions are taken up again in any case.
const SSL_TUNING_KEYS: [&str; 3] = ["ssl_wbuf_size", "ssl_session_cache", "ssl_kernel_tls"];

/// Beginnings of `-o` keys of memcached's that the server must not start without.
const REQUIRING_KEYS: [(&str, &str); 4] = [
    (
        "ssl_",
        "of TLS there are ssl_chain_cert, ssl_key, ssl_verify_mode, ssl_ca_cert and \
         ssl_min_version; cipher suites are those of rustls, all of them with AEAD; leave the key \
         out",
    ),
    (
        "drop_privileges",
        "write --sandbox on instead, which restricts system calls and files, and leave the key \
         out",
    ),
    (
        "ext_path",
        "extstore is not supported; keep values on a disk with --data-dir DIR --when-full evict \
         instead",
    ),
    ("proxy_", "there is no proxy; leave the key out, and run memcached's proxy or mcrouter"),
];

/// What the table of flags does not know: passed over with the warning that is returned, or
/// refused, with the nearest of the `known`. Its value belongs to it.
pub fn flag(
    flag: &str,
    known: impl Iterator<Item = String>,
    parser: &mut Parser,
) -> Result<String, Refused> {
    if let Some((.., why)) = TUNING.iter().find(|row| flag == row.0 || flag == row.1) {
        let _ = parser.value(); // whatever it was
        return Ok(format!("{flag} has no effect: {why}"));
    }
    let told = |value: Option<OsString>| {
        value.map(|value| format!("{}: ", value.to_string_lossy())).unwrap_or_default()
    };
    // The server must not start as if it had done that.
    if ["-e", "--memory-file"].contains(&flag) {
        return Err(Refused::unknown(format!(
            "{}a restart from a memory file is not supported; keep items with --data-dir DIR \
             instead",
            told(parser.value().ok())
        )));
    }
    let value = told(parser.optional_value());
    Err(Refused::unknown(format!(
        "{value}not a flag of this server; {}laneway serve --help lists them",
        meant(flag, known)
    )))
}

/// A word before which no flag stands.
pub fn word(word: &str) -> Refused {
    Refused::unknown(format!(
        "{word}: no flag stands before this word; write a list such as that of -l without blanks, \
         and see laneway serve --help"
    ))
}

/// `-B`: the name, if it is one of a protocol that is served.
pub fn protocol(name: &str) -> Result<String, Refused> {
    match name {
        "auto" | "ascii" | "binary" | "auto-negotiate" => Ok(name.to_owned()),
        other => Err(Refused::unknown(format!(
            "{other}: not a protocol of memcached's; write auto, ascii or binary, or leave the \
             flag out"
        ))),
    }
}

impl Extended {
    /// `-o`: keys separated by commas, each with or without a value.
    pub fn read(&mut self, keys: &str) -> Result<(), Refused> {
        keys.split(',').filter(|key| !key.is_empty()).try_for_each(|key| self.key(key))
    }

    fn key(&mut self, key: &str) -> Result<(), Refused> {
        let (name, value) = key.split_once('=').map_or((key, None), |(n, v)| (n, Some(v)));
        if name == "idle_timeout" {
            let value = value
                .ok_or_else(|| "idle_timeout needs a value: -o idle_timeout=SECONDS".to_owned())?;
            let seconds = value.parse();
            self.idle_timeout =
                Some(seconds.map_err(|_| format!("idle_timeout={value}: not a number"))?);
        } else if self.ssl.take(name, value)? {
            if name == "ssl_min_version" && self.ssl.min_version < Some(2) {
                self.warnings.push(format!("-o {key}: TLS 1.2 is the oldest version here"));
            }
        } else if SSL_TUNING_KEYS.contains(&name) {
            self.warnings.push(format!("-o {key} has no effect: it tunes memcached's insides"));
        } else if let Some((_, why)) =
            REQUIRING_KEYS.iter().find(|(start, _)| name.starts_with(start))
        {
            return Err(Refused::unknown(format!("{key}: {why}")));
        } else if TUNING_KEYS.split(' ').any(|key| key == name) || name.starts_with("ext_") {
            self.warnings.push(format!("-o {key} has no effect: it tunes memcached's insides"));
        } else if !GRANTED.split(' ').any(|key| key == name) {
            let known = [HONOURED, GRANTED, TUNING_KEYS].map(|keys| keys.split(' '));
            let known = known.into_iter().flatten();
            return Err(Refused::unknown(format!(
                "{key}: not a key of -o; {}the keys with an effect are {}",
                meant(name, known.map(str::to_owned)),
                HONOURED.replace(' ', ", ")
            )));
        }
        Ok(())
    }

    /// Forget what was read.
    pub fn clear(&mut self) {
        *self = Extended::default();
    }

    /// The keys that have an effect.
    pub fn told(&self) -> Option<String> {
        let timeout = self.idle_timeout.map(|seconds| format!("idle_timeout={seconds}"));
        let keys: Vec<String> = timeout.into_iter().chain(self.ssl.told()).collect();
        (!keys.is_empty()).then(|| keys.join(","))
    }
}

/// Which of the `known` names may have been meant, as the beginning of a sentence; empty if none.
pub fn meant(typed: &str, known: impl Iterator<Item = String>) -> String {
    /// Letters left out, put in, changed, or swapped with the next.
    const SLIPS_MAX: usize = 2;
    /// From so many letters on, the first word of a name will do: `--memroy` for `--memory-limit`.
    const LETTERS_LEAST: usize = 7;
    let slips = |name: &str| strsim::damerau_levenshtein(typed, name);
    let distance = |name: String| {
        let word = name.len() - name.trim_start_matches('-').len();
        let word = name[word..].find('-').map(|end| &name[..word + end]);
        let word = word.filter(|_| typed.len() >= LETTERS_LEAST).map(slips);
        // A whole name before one of which there is but a word.
        (slips(&name).min(word.map_or(usize::MAX, |slips| slips + 1)), name)
    };
    let nearest = known.map(distance).filter(|(slips, _)| *slips <= SLIPS_MAX).min();
    nearest.map(|(_, name)| format!("did you mean {name}? ")).unwrap_or_default()
}
