//! The server's flags as typed: memcached's, and our own. Nothing is checked against anything else
//! here; `serve` makes settings of it.
//!
//! A memcached flag, or `-o` key, that only tunes memcached is reported on stderr and passed over,
//! so that scripts written for memcached go on working. What is not known, and what would restrict
//! access or keep data and is not supported, refuses the start (`foreign`): a server that ignored
//! it would be more open, or more forgetful, than whoever started it believes.

mod foreign;
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
    /// `--kernel-lane-rate`, Mbit/s
    pub kernel_lane_megabits: Option<u32>,
    /// `--steer`
    pub steer: bool,
    /// `--af-xdp`
    pub af_xdp: Option<String>,
    /// `--af-xdp-copy`
    pub af_xdp_copy: bool,
    /// `--resp`
    pub resp: Option<u16>,
    /// `--no-resp`
    pub no_resp: bool,
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
    /// `-m`, bytes
    pub memory_bytes: Option<u64>,
    /// `-M`
    pub no_evictions: bool,
    /// `-c`
    pub connections: Option<usize>,
    /// `-k`
    pub lock_memory: bool,
    /// `-v` times
    pub verbose: u32,
    /// `--admin`
    pub admin: Option<String>,
    /// `--log-format`
    pub log_format: Option<String>,
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
    /// `-X`
    pub no_dump: bool,
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

/// Why a command line is refused.
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
    fn unknown(why: String) -> Refused {
        Refused { status: STATUS_UNKNOWN, why }
    }
}

impl From<String> for Refused {
    /// For a value that makes no sense.
    fn from(why: String) -> Refused {
        Refused { status: crate::STATUS_USAGE, why }
    }
}

/// Read the command line.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Refused> {
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
                    Arg::Value(word) => return Err(foreign::word(&word.to_string_lossy())),
                };
                one(&mut flags, &flag, &mut parser).map_err(|refused| Refused {
                    why: format!("{flag}: {}", refused.why),
                    ..refused
                })?;
            }
        }
    }
    Ok(Asked::Serve(Box::new(flags)))
}

fn one(flags: &mut Flags, flag: &str, parser: &mut Parser) -> Result<(), Refused> {
    match flag {
        "-p" | "--port" => flags.port = Some(number(parser)?),
        "-U" | "--udp-port" => flags.udp_port = Some(number(parser)?),
        "--udp-base" => flags.udp_base = Some(number(parser)?),
        "--udp-listen" => flags.udp_listen = Some(text(parser)?),
        "--udp-public" => flags.udp_public = true,
        "--kernel-lane" => flags.kernel_lane = Some(text(parser)?),
        "--kernel-lane-hook" => flags.kernel_lane_hook = Some(text(parser)?),
        "--kernel-lane-memory" => flags.kernel_lane_megabytes = Some(number(parser)?),
        "--kernel-lane-peers" => flags.kernel_lane_peers = Some(text(parser)?),
        "--kernel-lane-rate" => flags.kernel_lane_megabits = Some(number(parser)?),
        "--steer" => flags.steer = true,
        "-s" | "--unix-socket" => flags.unix_socket = Some(parser.value().map_err(sentence)?),
        "-a" | "--unix-mask" => flags.unix_mask = Some(octal(&text(parser)?)?),
        "-A" | "--enable-shutdown" => flags.shutdown = true,
        "-l" | "--listen" => flags.listen.push(text(parser)?),
        "-d" | "--daemon" => flags.daemon = true,
        "-r" | "--enable-coredumps" => flags.core_dumps = true,
        "-u" | "--user" => flags.user = Some(text(parser)?),
        "-m" | "--memory-limit" => flags.memory_bytes = Some(megabytes(&text(parser)?)?),
        "-M" | "--disable-evictions" => flags.no_evictions = true,
        "-c" | "--conn-limit" => flags.connections = Some(number(parser)?),
        "-k" | "--lock-memory" => flags.lock_memory = true,
        "-v" | "--verbose" => flags.verbose += 1,
        "-P" | "--pidfile" => flags.pid_file = Some(parser.value().map_err(sentence)?),
        "-L" | "--enable-largepages" => flags.large_pages = true,
        "-t" | "--threads" | "--workers" => flags.workers = Some(number(parser)?),
        "-C" | "--disable-cas" => flags.no_cas = true,
        "-b" | "--listen-backlog" => flags.backlog = Some(number(parser)?),
        "-B" | "--protocol" => foreign::protocol(&text(parser)?)?,
        "-I" | "--max-item-size" => flags.item_bytes_max = Some(bytes(&text(parser)?)?),
        "-F" | "--disable-flush-all" => flags.no_flush = true,
        "-o" | "--extended" => foreign::extended(flags, &text(parser)?)?,
        "--design" => flags.design = Some(text(parser)?),
        "--access" => flags.access = Some(text(parser)?),
        "--numa" => flags.numa = Some(text(parser)?),
        "--handoff-workers" => flags.handoff_workers = Some(number(parser)?),
        "--extra-large" => flags.extra_large = true,
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
            if !tier(&mut flags.tier, other, parser)? && !rest(flags, other, parser)? {
                foreign::flag(flags, other, parser)?;
            }
        }
    }
    Ok(())
}

/// The rest: what may be asked, and the other ways in, by RESP, memory, RDMA and past the stack;
/// false if it is none of them.
fn rest(flags: &mut Flags, flag: &str, parser: &mut Parser) -> Result<bool, String> {
    match flag {
        "-X" | "--disable-dumping" => flags.no_dump = true,
        "--resp" => flags.resp = Some(number(parser)?),
        "--no-resp" => flags.no_resp = true,
        "--shm" => flags.shm = Some(parser.value().map_err(sentence)?),
        "--shm-mask" => flags.shm_mask = Some(octal(&text(parser)?)?),
        "--shm-clients" => flags.shm_clients = Some(number(parser)?),
        "--rdma" => flags.rdma = Some(text(parser)?),
        "--rdma-port" => flags.rdma_port = Some(number(parser)?),
        "--rdma-clients" => flags.rdma_clients = Some(number(parser)?),
        "--af-xdp" => flags.af_xdp = Some(text(parser)?),
        "--af-xdp-copy" => flags.af_xdp_copy = true,
        "--admin" => flags.admin = Some(text(parser)?),
        "--log-format" => flags.log_format = Some(text(parser)?),
        _ => return Ok(false),
    }
    Ok(true)
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

/// Bytes of a number of MiB, or of a number with k, m or g behind it.
fn megabytes(text: &str) -> Result<u64, String> {
    let number = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => bytes(&format!("{text}m")),
        false => bytes(text),
    };
    let wrong = "is not an amount of memory; write MiB, or a number with k, m or g";
    number.map_err(|_| format!("{text} {wrong}"))
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
