//! The command line of `laneway bench verbs`.

use crate::arguments::{number, text};
use crate::workload::keys::{KEY_BYTES, KEY_BYTES_MAX};
use laneway_rdma::rivals::client::WINDOW_MAX;
use laneway_rdma::rivals::design::Design;
use laneway_rdma::rivals::message::VALUE_BYTES_MAX;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What `laneway bench verbs --help` prints.
pub const HELP: &str = "\
laneway bench verbs: round trips, verbs and bytes of a GET and a PUT, counted (HERD, SIGCOMM'14)

usage: laneway bench verbs [flags]

HERD's way beside the designs that it is compared with, both ends of each in this process, over
memory that they share. Everything is counted as it is posted. herd: requests written, replies sent;
send: both sent; pilaf: GETs READ a cuckoo index and what it points at; farm: GETs READ six slots
with the values in them; farm-var: with the values elsewhere. PUTs are messages in all of them.

  --designs LIST        some of herd,send,pilaf,farm,farm-var                             [all]
  --shm PATH            count a Laneway that serves there (serve --shm PATH), too; nobody else
                        should be using it. It writes --keys items of its own names
  --value-bytes LIST    lengths of the values, 1 to 1024                                   [32]
  --window LIST         requests under way at a time, 1 to 32                               [1]
  --keys N              items                                                           [10000]
  --key-bytes N         length of every key, 8 to 250                                      [16]
  --seed N              of names, values and order                                          [1]
  --json FILE           the report as data, schema laneway-verbs/1; - is standard output
  --help, -h            this

time, too
  --closed              the designs in a closed loop: client and server each a thread that spins
  --get-share X         share of GETs, 0 to 1; the rest are PUTs                         [0.95]
  --duration SECONDS    measured                                                            [5]
  --warmup SECONDS      before that                                                       [0.5]
  --cpus CLIENT,SERVER  the threads' CPUs                                         [any they get]

Bytes are payload: keys, values, index entries, eight bytes of header for each message, and with
what is written its control word of eight bytes. Headers of the wire and requests of READs are not
among them. Times are of shared memory: a READ takes no time of a card there, nor a round trip any
of a wire. Counts carry over to a network, times do not.

example
  laneway bench verbs --value-bytes 16,64,256,1024
  laneway bench verbs --closed --window 1,8,32 --cpus 1,0

exit status: 0 all well; 1 a wrong value, or something failed; 2 wrong flags
";

/// Most items: what memory there is must hold them four times over.
const KEYS_MAX: u32 = 1_000_000;
const SECONDS_MAX: f64 = 86_400.0;

/// What to count.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which designs.
    pub designs: Vec<Design>,
    /// Where a server's door is.
    pub shm: Option<PathBuf>,
    /// Lengths of values.
    pub value_bytes: Vec<usize>,
    /// Requests under way.
    pub windows: Vec<usize>,
    /// Items.
    pub keys: u32,
    /// Length of keys.
    pub key_bytes: usize,
    /// What decides.
    pub seed: u64,
    /// Time is measured, too.
    pub closed: Option<Closed>,
    /// Where the report goes as data.
    pub json: Option<PathBuf>,
}

/// A closed loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Share of GETs.
    pub get_share: f64,
    /// Measured.
    pub duration: Duration,
    /// Before that.
    pub warmup: Duration,
    /// Of the client and of the server.
    pub cpus: Option<(usize, usize)>,
}

/// Flags as typed.
struct Typed {
    options: Options,
    is_closed: bool,
    get_share: Option<f64>,
    duration_s: Option<f64>,
    warmup_s: Option<f64>,
    cpus: Option<(usize, usize)>,
}

/// Reads a command line; `None` is a question for help.
pub fn parse(arguments: Vec<OsString>) -> Result<Option<Options>, String> {
    let options = Options {
        designs: Design::ALL.to_vec(),
        shm: None,
        value_bytes: vec![32],
        windows: vec![1],
        keys: 10_000,
        key_bytes: 16,
        seed: 1,
        closed: None,
        json: None,
    };
    let mut typed = Typed {
        options,
        is_closed: false,
        get_share: None,
        duration_s: None,
        warmup_s: None,
        cpus: None,
    };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long(name) => {
                let name = name.to_owned();
                flag(&mut typed, &name, &mut parser)?;
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    check(typed).map(Some)
}

fn flag(typed: &mut Typed, name: &str, parser: &mut Parser) -> Result<(), String> {
    let options = &mut typed.options;
    match name {
        "designs" => {
            let list = text(name, parser)?;
            let designs = list.split(',').map(|one| {
                let known = || Design::ALL.map(Design::name).join(",");
                Design::named(one).ok_or_else(|| format!("--designs {one}: some of {}", known()))
            });
            options.designs = designs.collect::<Result<_, _>>()?;
        }
        "shm" => options.shm = Some(text(name, parser)?.into()),
        "value-bytes" => options.value_bytes = list(name, parser)?,
        "window" => options.windows = list(name, parser)?,
        "keys" => options.keys = number(name, parser)?,
        "key-bytes" => options.key_bytes = number(name, parser)?,
        "seed" => options.seed = number(name, parser)?,
        "json" => options.json = Some(text(name, parser)?.into()),
        "closed" => typed.is_closed = true,
        "get-share" => typed.get_share = Some(number(name, parser)?),
        "duration" => typed.duration_s = Some(number(name, parser)?),
        "warmup" => typed.warmup_s = Some(number(name, parser)?),
        "cpus" => match list(name, parser)?[..] {
            [client, server] => typed.cpus = Some((client, server)),
            _ => return Err("--cpus: two numbers, the client's CPU and the server's".into()),
        },
        _ => return Err(format!("--{name}: no such flag")),
    }
    Ok(())
}

/// Numbers with commas between them.
fn list<T: FromStr>(name: &str, parser: &mut Parser) -> Result<Vec<T>, String> {
    let list = text(name, parser)?;
    let numbers = list.split(',').map(|one| one.trim().parse());
    numbers.collect::<Result<_, _>>().map_err(|_| format!("--{name} {list}: numbers, as 16,64"))
}

fn check(typed: Typed) -> Result<Options, String> {
    let Typed { options, is_closed, get_share, duration_s, warmup_s, cpus } = typed;
    let Options { keys, key_bytes, .. } = options;
    for bytes in &options.value_bytes {
        if !(1..=VALUE_BYTES_MAX).contains(bytes) {
            return Err(format!("--value-bytes {bytes}: each must be in 1..={VALUE_BYTES_MAX}"));
        }
    }
    for window in &options.windows {
        if !(1..=WINDOW_MAX).contains(window) {
            return Err(format!("--window {window}: each must be in 1..={WINDOW_MAX}"));
        }
    }
    if !(1..=KEYS_MAX).contains(&keys) {
        return Err(format!("--keys {keys}: must be in 1..={KEYS_MAX}"));
    }
    if !(KEY_BYTES..=KEY_BYTES_MAX).contains(&key_bytes) {
        return Err(format!("--key-bytes {key_bytes}: must be in {KEY_BYTES}..={KEY_BYTES_MAX}"));
    }
    let is_timed =
        get_share.is_some() || duration_s.is_some() || warmup_s.is_some() || cpus.is_some();
    if !is_closed && is_timed {
        let names = "--get-share, --duration, --warmup, --cpus";
        return Err(format!("{names}: mean something with --closed only"));
    }
    let (get_share, duration_s) = (get_share.unwrap_or(0.95), duration_s.unwrap_or(5.0));
    let warmup_s = warmup_s.unwrap_or(0.5);
    if !(0.0..=1.0).contains(&get_share) {
        return Err(format!("--get-share {get_share}: must be in 0..=1"));
    }
    if !(0.001..=SECONDS_MAX).contains(&duration_s) {
        return Err(format!("--duration {duration_s}: seconds, 0.001 to {SECONDS_MAX}"));
    }
    if !(0.0..=SECONDS_MAX).contains(&warmup_s) {
        return Err(format!("--warmup {warmup_s}: seconds, 0 to {SECONDS_MAX}"));
    }
    let closed = is_closed.then(|| Closed {
        get_share,
        duration: Duration::from_secs_f64(duration_s),
        warmup: Duration::from_secs_f64(warmup_s),
        cpus,
    });
    Ok(Options { closed, ..options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_ascii_whitespace().map(Into::into).collect())
    }

    #[test]
    fn flags_become_options() {
        let line = "--designs farm,herd --value-bytes 16,1024 --window 1,32 --keys 5 --closed \
                    --duration 0.5 --cpus 1,0 --json -";
        let options = parsed(line).expect("it is understood").expect("no question");
        assert_eq!(options.designs, [Design::Farm, Design::Herd]);
        assert_eq!((options.value_bytes, options.windows), (vec![16, 1024], vec![1, 32]));
        let closed = options.closed.expect("time is measured");
        assert_eq!((closed.get_share, closed.cpus), (0.95, Some((1, 0))));
        assert_eq!(parsed("--help"), Ok(None));
        let default = parsed("").expect("it is understood").expect("no question");
        assert_eq!((default.designs.len(), default.closed), (5, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (line, words) in [
            ("--designs herd,drtm", "--designs drtm: some of herd,send,pilaf,farm,farm-var"),
            ("--value-bytes 0", "--value-bytes 0: each must be in 1..=1024"),
            ("--value-bytes 16,1025", "--value-bytes 1025"),
            ("--value-bytes x", "--value-bytes x: numbers"),
            ("--window 33", "--window 33: each must be in 1..=32"),
            ("--keys 0", "--keys 0: must be"),
            ("--key-bytes 7", "--key-bytes 7: must be"),
            ("--key-bytes 251", "--key-bytes 251: must be"),
            ("--duration 1", "with --closed only"),
            ("--closed --duration 0", "--duration 0: seconds"),
            ("--closed --duration NaN", "--duration NaN: seconds"),
            ("--closed --get-share 1.1", "--get-share 1.1: must be"),
            ("--closed --warmup -1", "--warmup -1: seconds"),
            ("--closed --cpus 1", "--cpus: two numbers"),
            ("--rate 5", "--rate: no such flag"),
            ("herd", "unexpected argument \"herd\""),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
    }

    #[test]
    fn the_help_fits_and_names_every_design() {
        assert!(HELP.lines().all(|line| line.chars().count() <= 100));
        assert!(Design::ALL.iter().all(|design| HELP.contains(design.name())));
    }
}
