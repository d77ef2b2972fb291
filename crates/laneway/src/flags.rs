//! The server's flags as typed: memcached's, and our own. Nothing is checked against anything else
//! here; `serve` makes settings of it.
//!
//! Departs from common manners on purpose: a memcached flag, or `-o` key, that means nothing here
//! is reported on stderr and passed over, so that scripts written for memcached go on working.

mod tier;

pub use tier::{TierFlags, tier};

use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;

/// What the command line asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Run with these flags.
    Serve(Box<Flags>),
    /// `-h`
    Help,
    /// `-V`
    Version,
    /// `-i`
    Licence,
}

/// The flags as typed; `None` where a flag was left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// `-p`
    pub port: Option<i32>,
    /// `-U`
    pub udp_port: Option<i32>,
    /// `--udp-base`
    pub udp_base: Option<i32>,
    /// `--reply-sample`
    pub reply_percent: Option<u8>,
    /// `--udp-listen`
    pub udp_listen: Option<String>,
    /// `--udp-public`
    pub udp_public: bool,
    /// `--shm`
    pub shm: Option<OsString>,
    /// `--shm-mask`, octal
    pub shm_mask: Option<u32>,
    /// `--shm-clients`
    pub shm_clients: Option<usize>,
    /// `--rdma`
    pub rdma: Option<String>,
    /// `--rdma-port`
    pub rdma_port: Option<u16>,
    /// `--rdma-clients`
    pub rdma_clients: Option<usize>,
    /// `--kernel-lane`
    pub kernel_lane: Option<String>,
    /// `--kernel-lane-hook`
    pub kernel_lane_hook: Option<String>,
    /// `--kernel-lane-memory`, MiB
    pub kernel_lane_megabytes: Option<u64>,
    /// `--kernel-lane-peers`
    pub kernel_lane_peers: Option<String>,
    /// `--steer`
    pub steer: bool,
    /// `--af-xdp`
    pub af_xdp: Option<String>,
    /// `--af-xdp-copy`
    pub af_xdp_copy: bool,
    /// `-s`
    pub unix_socket: Option<OsString>,
    /// `-a`, octal
    pub unix_mask: Option<u32>,
    /// `-l`, each time it was given
    pub listen: Vec<String>,
    /// `-d`
    pub daemon: bool,
    /// `-r`
    pub core_dumps: bool,
    /// `-u`
    pub user: Option<String>,
    /// `-m`, MiB
    pub memory_megabytes: Option<u64>,
    /// `-M`
    pub no_evictions: bool,
    /// `-c`
    pub connections: Option<usize>,
    /// `-k`
    pub lock_memory: bool,
    /// `-v` times
    pub verbose: u32,
    /// `-P`
    pub pid_file: Option<OsString>,
    /// `-L`
    pub large_pages: bool,
    /// `-t`, `--workers`
    pub workers: Option<usize>,
    /// `-C`
    pub no_cas: bool,
    /// `-b`
    pub backlog: Option<i32>,
    /// `-I`, bytes
    pub item_bytes_max: Option<u64>,
    /// `-F`
    pub no_flush: bool,
    /// `-A`
    pub shutdown: bool,
    /// `-o idle_timeout`, seconds
    pub idle_timeout: Option<u64>,
    /// `--design`
    pub design: Option<String>,
    /// `--access`
    pub access: Option<String>,
    /// `--numa`
    pub numa: Option<String>,
    /// `--handoff-workers`
    pub handoff_workers: Option<u16>,
    /// `--extra-large`
    pub extra_large: bool,
    /// `--put-lock`
    pub put_lock: bool,
    /// `--profile-sample`
    pub profile_sample: Option<u32>,
    /// `--hot`
    pub hot: Option<String>,
    /// `--slot-requests`
    pub slot_requests: Option<u32>,
    /// `--slot-us`, microseconds
    pub slot_microseconds: Option<u64>,
    /// `--hot-threshold`
    pub hot_threshold: Option<String>,
    /// `--hot-keys`
    pub hot_keys: Option<usize>,
    /// `--hot-counters`
    pub hot_counters: Option<usize>,
    /// `--hot-rank`
    pub hot_rank: Option<String>,
    /// `--hot-carry`
    pub hot_carry: Option<String>,
    /// `--hot-alone`
    pub hot_alone: bool,
    /// `--form`
    pub form: Option<String>,
    /// `--percentile`
    pub percentile: Option<f64>,
    /// `--epoch-ms`
    pub epoch_milliseconds: Option<u64>,
    /// `--alpha`
    pub alpha: Option<f64>,
    /// `--cost`
    pub cost: Option<String>,
    /// `--threshold`, bytes
    pub threshold: Option<u64>,
    /// `--slice`, bytes
    pub slice: Option<u64>,
    /// `--samples-min`
    pub samples_min: Option<u64>,
    /// `--hysteresis-epochs`
    pub hysteresis_epochs: Option<u16>,
    /// `--idle`
    pub idle: Option<String>,
    /// `--drain-ms`
    pub drain_milliseconds: Option<u64>,
    /// `--data-dir` and what belongs to it
    pub tier: TierFlags,
    /// What to say on stderr before starting.
    pub warnings: Vec<String>,
}

/// Read the command line. The error is a sentence for the user.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, String> {
    let mut parser = Parser::from_args(args);
    let mut flags = Flags::default();
    while let Some(arg) = parser.next().map_err(sentence)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Help),
            Arg::Short('V') | Arg::Long("version") => return Ok(Asked::Version),
            Arg::Short('i') | Arg::Long("license") => return Ok(Asked::Licence),
            arg => {
                let flag = match &arg {
                    Arg::Short(letter) => format!("-{letter}"),
                    Arg::Long(name) => format!("--{name}"),
                    Arg::Value(word) => {
                        let word = word.to_string_lossy();
                        flags.warnings.push(format!("{word}: no flag stands before it; ignored"));
                        continue;
                    }
                };
                one(&mut flags, &flag, &mut parser).map_err(|error| format!("{flag}: {error}"))?;
            }
        }
    }
    Ok(Asked::Serve(Box::new(flags)))
}

fn one(flags: &mut Flags, flag: &str, parser: &mut Parser) -> Result<(), String> {
    match flag {
        "-p" | "--port" => flags.port = Some(number(parser)?),
        "-U" | "--udp-port" => flags.udp_port = Some(number(parser)?),
        "--udp-base" => flags.udp_base = Some(number(parser)?),
        "--reply-sample" => flags.reply_percent = Some(number(parser)?),
        "--udp-listen" => flags.udp_listen = Some(text(parser)?),
        "--udp-public" => flags.udp_public = true,
        "--kernel-lane" => flags.kernel_lane = Some(text(parser)?),
        "--kernel-lane-hook" => flags.kernel_lane_hook = Some(text(parser)?),
        "--kernel-lane-memory" => flags.kernel_lane_megabytes = Some(number(parser)?),
        "--kernel-lane-peers" => flags.kernel_lane_peers = Some(text(parser)?),
        "--steer" => flags.steer = true,
        "-s" | "--unix-socket" => flags.unix_socket = Some(parser.value().map_err(sentence)?),
        "-a" | "--unix-mask" => flags.unix_mask = Some(octal(&text(parser)?)?),
        "-A" | "--enable-shutdown" => flags.shutdown = true,
        "-l" | "--listen" => flags.listen.push(text(parser)?),
        "-d" | "--daemon" => flags.daemon = true,
        "-r" | "--enable-coredumps" => flags.core_dumps = true,
        "-u" | "--user" => flags.user = Some(text(parser)?),
        "-m" | "--memory-limit" => flags.memory_megabytes = Some(number(parser)?),
        "-M" | "--disable-evictions" => flags.no_evictions = true,
        "-c" | "--conn-limit" => flags.connections = Some(number(parser)?),
        "-k" | "--lock-memory" => flags.lock_memory = true,
        "-v" | "--verbose" => flags.verbose += 1,
        "-P" | "--pidfile" => flags.pid_file = Some(parser.value().map_err(sentence)?),
        "-L" | "--enable-largepages" => flags.large_pages = true,
        "-t" | "--threads" | "--workers" => flags.workers = Some(number(parser)?),
        "-C" | "--disable-cas" => flags.no_cas = true,
        "-b" | "--listen-backlog" => flags.backlog = Some(number(parser)?),
        "-B" | "--protocol" => protocol(flags, &text(parser)?),
        "-I" | "--max-item-size" => flags.item_bytes_max = Some(bytes(&text(parser)?)?),
        "-F" | "--disable-flush-all" => flags.no_flush = true,
        "-o" | "--extended" => extended(flags, &text(parser)?)?,
        "--design" => flags.design = Some(text(parser)?),
        "--access" => flags.access = Some(text(parser)?),
        "--numa" => flags.numa = Some(text(parser)?),
        "--handoff-workers" => flags.handoff_workers = Some(number(parser)?),
        "--extra-large" => flags.extra_large = true,
        "--put-lock" => flags.put_lock = true,
        "--profile-sample" => flags.profile_sample = Some(number(parser)?),
        "--hot" => flags.hot = Some(text(parser)?),
        "--slot-requests" => flags.slot_requests = Some(number(parser)?),
        "--slot-us" => flags.slot_microseconds = Some(number(parser)?),
        "--hot-threshold" => flags.hot_threshold = Some(text(parser)?),
        "--hot-keys" => flags.hot_keys = Some(number(parser)?),
        "--hot-counters" => flags.hot_counters = Some(number(parser)?),
        "--hot-rank" => flags.hot_rank = Some(text(parser)?),
        "--hot-carry" => flags.hot_carry = Some(text(parser)?),
        "--hot-alone" => flags.hot_alone = true,
        "--form" => flags.form = Some(text(parser)?),
        "--percentile" => flags.percentile = Some(number(parser)?),
        "--epoch-ms" => flags.epoch_milliseconds = Some(number(parser)?),
        "--alpha" => flags.alpha = Some(number(parser)?),
        "--cost" => flags.cost = Some(text(parser)?),
        "--threshold" => flags.threshold = Some(bytes(&text(parser)?)?),
        "--slice" => flags.slice = Some(bytes(&text(parser)?)?),
        "--samples-min" => flags.samples_min = Some(number(parser)?),
        "--hysteresis-epochs" => flags.hysteresis_epochs = Some(number(parser)?),
        "--idle" => flags.idle = Some(text(parser)?),
        "--drain-ms" => flags.drain_milliseconds = Some(number(parser)?),
        other => {
            if !tier(&mut flags.tier, other, parser)? && !ways(flags, other, parser)? {
                foreign(flags, other, parser);
            }
        }
    }
    Ok(())
}

/// Of the other ways in, by memory, RDMA and past the stack; false if it is none of theirs.
fn ways(flags: &mut Flags, flag: &str, parser: &mut Parser) -> Result<bool, String> {
    match flag {
        "--shm" => flags.shm = Some(parser.value().map_err(sentence)?),
        "--shm-mask" => flags.shm_mask = Some(octal(&text(parser)?)?),
        "--shm-clients" => flags.shm_clients = Some(number(parser)?),
        "--rdma" => flags.rdma = Some(text(parser)?),
        "--rdma-port" => flags.rdma_port = Some(number(parser)?),
        "--rdma-clients" => flags.rdma_clients = Some(number(parser)?),
        "--af-xdp" => flags.af_xdp = Some(text(parser)?),
        "--af-xdp-copy" => flags.af_xdp_copy = true,
        _ => return Ok(false),
    }
    Ok(true)
}

/// memcached's flags that mean nothing here, and whether a value belongs to them.
const FOREIGN: [(&str, &str, bool, &str); 14] = [
    ("-f", "--slab-growth-factor", true, "size classes are fixed, 8 per octave"),
    ("-n", "--slab-min-size", true, "size classes are fixed, 8 per octave"),
    ("-D", "--delimiter", true, "there are no statistics per prefix"),
    ("-R", "--max-reqs-per-event", true, "a turn of a connection is bounded by itself"),
    ("-S", "--enable-sasl", false, "there is no SASL; listen on a unix socket or behind a proxy"),
    ("-Y", "--auth-file", true, "there is no authentication; use a unix socket with -s and -a"),
    ("-X", "--disable-dumping", false, "there is nothing to dump"),
    ("-W", "--disable-watch", false, "there is nothing to watch"),
    ("-e", "--memory-file", true, "items do not outlive the server"),
    ("-Z", "--enable-ssl", false, "there is no TLS; put a TLS proxy in front"),
    ("-N", "--napi-ids", false, "the kernel spreads connections"),
    ("", "--slab-automove", true, "memory moves between sizes by itself"),
    ("", "--conn-idle-timeout", true, "use -o idle_timeout=SECONDS"),
    ("-g", "--generate", false, "unknown here"),
];

fn foreign(flags: &mut Flags, flag: &str, parser: &mut Parser) {
    let known = FOREIGN.iter().find(|(short, long, ..)| flag == *short || flag == *long);
    match known {
        Some((_, _, takes_value, why)) => {
            if *takes_value {
                let _ = parser.value(); // whatever it was
            }
            flags.warnings.push(format!("{flag} has no effect: {why}"));
        }
        None => {
            let _ = parser.optional_value();
            let meant = nearest(flag).map(|meant| format!("did you mean {meant}? "));
            flags.warnings.push(format!(
                "{flag} is not known and ignored; {}see --help",
                meant.unwrap_or_default()
            ));
        }
    }
}

/// The long flag that differs from `flag` in one or two letters: of those that the help names.
fn nearest(flag: &str) -> Option<&'static str> {
    /// Letters left out, put in, changed, or swapped with the next.
    const SLIPS_MAX: usize = 2;
    let words = include_str!("serve_help.txt").split(|c: char| !c.is_alphanumeric() && c != '-');
    let long = words.filter(|word| word.starts_with("--") && word.len() > "--".len());
    let distances = long.map(|long| (strsim::damerau_levenshtein(flag, long), long));
    distances.filter(|(slips, _)| *slips <= SLIPS_MAX).min().map(|(_, long)| long)
}

fn protocol(flags: &mut Flags, name: &str) {
    match name {
        "auto" | "ascii" | "auto-negotiate" => {}
        "binary" => flags.warnings.push(
            "-B binary: the binary protocol is deprecated by memcached and not served; text and \
             meta are"
                .to_owned(),
        ),
        other => flags.warnings.push(format!("-B {other}: not known; text and meta are served")),
    }
}

/// `-o`: keys separated by commas, each with or without a value.
fn extended(flags: &mut Flags, keys: &str) -> Result<(), String> {
    for key in keys.split(',').filter(|key| !key.is_empty()) {
        let (name, value) = key.split_once('=').map_or((key, None), |(n, v)| (n, Some(v)));
        match name {
            "idle_timeout" => {
                let value = value.ok_or("idle_timeout needs a value: -o idle_timeout=SECONDS")?;
                let seconds = value.parse();
                flags.idle_timeout =
                    Some(seconds.map_err(|_| format!("idle_timeout={value}: not a number"))?);
            }
            // What these ask for is how things are here anyway.
            "maxconns_fast" | "modern" | "lru_crawler" | "lru_maintainer" | "slab_reassign"
            | "slab_automove" | "hash_algorithm" | "no_modern" => {}
            other => flags.warnings.push(format!(
                "-o {other} has no effect; honoured: idle_timeout; taken for granted: \
                 maxconns_fast, modern, lru_crawler, lru_maintainer, slab_reassign, slab_automove"
            )),
        }
    }
    Ok(())
}

fn text(parser: &mut Parser) -> Result<String, String> {
    let value = parser.value().map_err(sentence)?;
    value.string().map_err(sentence)
}

fn number<N: std::str::FromStr>(parser: &mut Parser) -> Result<N, String> {
    let text = text(parser)?;
    text.trim().parse().map_err(|_| format!("{text} is not a number this flag can take"))
}

fn octal(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| format!("{text} is not an access mask; write it in octal, such as 0700"))
}

/// Bytes, with an optional k, m or g behind the number.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a size; write bytes, or a number with k, m or g");
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

fn sentence(error: lexopt::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
