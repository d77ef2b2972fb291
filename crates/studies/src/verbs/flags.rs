//! Reads the command line of `laneway bench verbs`.

use crate::rivals::client::WINDOW_MAX;
use crate::rivals::design::Design;
use crate::rivals::message::VALUE_BYTES_MAX;
use laneway_load::arguments::{number, text, within};
use laneway_load::workload::keys::{KEY_BYTES, KEY_BYTES_MAX};
use laneway_rdma::verbs::{Place, Service};
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
  --rounds N            each design so many times, one after the other, the order turned round
                        every time; the table has medians and spread                        [1]
  --cpus CLIENT,SERVER  the threads' CPUs                                         [any they get]

a device, instead
  --rdma DEVICE[:PORT[:GID]]
                        HERD's microbenchmark of verbs (section 3.2) on this device: WRITE, READ and
                        SEND, inline or not, signalled each or one in 32; both ends are here. With
                        --value-bytes and --json only
  --operations N        work requests of each kind, in batches of 32                    [10000]

clients of a server over RDMA, instead
  --door HOST:PORT      of a server (serve --rdma), which nobody else should be using: one client
                        GETs --operations items, one at a time, alone, and beside others that ask
                        for nothing; --rounds times [3]. Needs --rdma DEVICE; it writes --keys items
  --clients N           with the others, 2 to 4096                                          [500]
  --rdma-service NAME   how they are served: any, uc, rc or ud                               [ud]
  --at-most X           fail where the median of p50, the server's SENDs or its completions is more
                        beside the others than X of those alone

Bytes are payload: keys, values, index entries, eight bytes of header for each message, and with
what is written its control word of eight bytes. Headers of the wire and requests of READs are not
among them. Times are of shared memory: a READ takes no time of a card there, nor a round trip any
of a wire. Counts carry over to a network, times do not.

example
  laneway bench verbs --value-bytes 16,64,256,1024
  laneway bench verbs --rdma mlx5_0 --value-bytes 32,256,1024
  laneway bench verbs --rdma mlx5_0 --door server:18515 --clients 500 --at-most 1.1
  laneway bench verbs --closed --get-share 1 --duration 1 --rounds 5 --window 1,16 --cpus 1,0

exit status: 0 all well; 1 a wrong value, more than --at-most, or something failed; 2 wrong flags
";

/// Most items: what memory there is must hold them four times over.
const KEYS_MAX: u32 = 1_000_000;
const SECONDS_MAX: f64 = 86_400.0;
const ROUNDS_MAX: usize = 1_000;
const OPERATIONS_MAX: u64 = 1_000_000_000;
/// Most clients that a server takes.
const CLIENTS_MAX: usize = 4096;

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
    /// A device is tried, and nothing else done.
    pub trials: Option<Trials>,
    /// Clients of a server are measured, and nothing else done.
    pub many: Option<Many>,
    /// Where the report goes as data.
    pub json: Option<PathBuf>,
}

/// Work requests of every kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trials {
    /// Which device.
    pub place: Place,
    /// Of each kind.
    pub operations: u64,
}

/// One client of a server beside others.
#[derive(Debug, Clone, PartialEq)]
pub struct Many {
    /// By which device.
    pub place: Place,
    /// The server's door.
    pub door: String,
    /// How they are served; nothing: as the server chooses.
    pub service: Option<Service>,
    /// All of them.
    pub clients: usize,
    /// GETs, alone and beside the others.
    pub operations: u64,
    /// How often.
    pub rounds: usize,
    /// What a GET may take beside the others of what it takes alone.
    pub at_most: Option<f64>,
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
    /// How often.
    pub rounds: usize,
    /// Of the client and of the server.
    pub cpus: Option<(usize, usize)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            designs: Design::ALL.to_vec(),
            shm: None,
            value_bytes: vec![32],
            windows: vec![1],
            keys: 10_000,
            key_bytes: 16,
            seed: 1,
            closed: None,
            trials: None,
            many: None,
            json: None,
        }
    }
}

/// Flags as typed.
#[derive(Default)]
struct Typed {
    /// The names of the flags that were there.
    names: Vec<String>,
    options: Options,
    place: Option<Place>,
    operations: Option<u64>,
    door: Option<String>,
    clients: Option<usize>,
    service: Option<Option<Service>>,
    at_most: Option<f64>,
    is_closed: bool,
    get_share: Option<f64>,
    duration_s: Option<f64>,
    warmup_s: Option<f64>,
    rounds: Option<usize>,
    cpus: Option<(usize, usize)>,
}

/// Reads a command line; `None` is a question for help.
pub fn parse(arguments: Vec<OsString>) -> Result<Option<Options>, String> {
    let mut typed = Typed::default();
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long(name) => {
                let name = name.to_owned();
                flag(&mut typed, &name, &mut parser)?;
                typed.names.push(name);
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
        "rdma" => {
            let place = text(name, parser)?;
            let parsed = place.parse().map_err(|why| format!("--rdma {place}: {why}"))?;
            typed.place = Some(parsed);
        }
        "operations" => typed.operations = Some(number(name, parser)?),
        "door" => typed.door = Some(text(name, parser)?),
        "clients" => typed.clients = Some(number(name, parser)?),
        "rdma-service" => {
            let service = text(name, parser)?;
            let parsed = Service::wanted(&service);
            typed.service = Some(parsed.map_err(|why| format!("--{name} {service}: {why}"))?);
        }
        "at-most" => typed.at_most = Some(number(name, parser)?),
        "closed" => typed.is_closed = true,
        "get-share" => typed.get_share = Some(number(name, parser)?),
        "duration" => typed.duration_s = Some(number(name, parser)?),
        "warmup" => typed.warmup_s = Some(number(name, parser)?),
        "rounds" => typed.rounds = Some(number(name, parser)?),
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

/// What goes with `--rdma`.
const WITH_RDMA: &str = "rdma operations value-bytes json";

/// What goes with `--door`.
const WITH_DOOR: &str = "rdma door clients rdma-service operations rounds at-most value-bytes \
                         keys key-bytes seed json";
/// Of these, what means nothing without it.
const WITH_DOOR_ONLY: &str = "clients rdma-service at-most";

impl Typed {
    /// The first flag that is one of these, or that is none of them.
    fn given(&self, names: &str, is_in: bool) -> Option<&String> {
        self.names.iter().find(|name| names.split(' ').any(|one| one == *name) == is_in)
    }
}

fn many(typed: &Typed) -> Result<Option<Many>, String> {
    let Some(door) = typed.door.clone() else {
        return match typed.given(WITH_DOOR_ONLY, true) {
            None => Ok(None),
            Some(name) => Err(format!("--{name}: means something with --door only")),
        };
    };
    if let Some(name) = typed.given(WITH_DOOR, false) {
        return Err(format!("--{name}: means nothing with --door; leave one of them out"));
    }
    let place = typed.place.clone().ok_or("--door: needs --rdma DEVICE, by which to go there")?;
    let operations = operations(typed)?;
    let (clients, rounds) = (typed.clients.unwrap_or(500), typed.rounds.unwrap_or(3));
    within("clients", clients, 2..=CLIENTS_MAX)?;
    within("rounds", rounds, 1..=ROUNDS_MAX)?;
    within("at-most", typed.at_most.unwrap_or(1.0), 1.0..=1e6)?;
    let (service, at_most) = (typed.service.unwrap_or(Some(Service::Datagrams)), typed.at_most);
    Ok(Some(Many { place, door, service, clients, operations, rounds, at_most }))
}

fn operations(typed: &Typed) -> Result<u64, String> {
    let operations = typed.operations.unwrap_or(10_000);
    within("operations", operations, 1..=OPERATIONS_MAX).map(|()| operations)
}

fn trials(typed: &Typed) -> Result<Option<Trials>, String> {
    let Some(place) = typed.place.clone() else {
        return match typed.operations {
            None => Ok(None),
            Some(_) => Err("--operations: means something with --rdma only".into()),
        };
    };
    if let Some(name) = typed.given(WITH_RDMA, false) {
        return Err(format!("--{name}: means nothing with --rdma; leave one of them out"));
    }
    Ok(Some(Trials { place, operations: operations(typed)? }))
}

fn check(typed: Typed) -> Result<Options, String> {
    let many = many(&typed)?;
    let trials = if many.is_some() { None } else { trials(&typed)? };
    let Typed { options, is_closed, get_share, duration_s, warmup_s, rounds, cpus, .. } = typed;
    for bytes in &options.value_bytes {
        within("value-bytes", *bytes, 1..=VALUE_BYTES_MAX)?;
    }
    for window in &options.windows {
        within("window", *window, 1..=WINDOW_MAX)?;
    }
    within("keys", options.keys, 1..=KEYS_MAX)?;
    within("key-bytes", options.key_bytes, KEY_BYTES..=KEY_BYTES_MAX)?;
    let is_timed = [get_share, duration_s, warmup_s].iter().any(Option::is_some);
    let is_repeated = rounds.is_some() && many.is_none();
    if !is_closed && (is_timed || is_repeated || cpus.is_some()) {
        let names = "--get-share, --duration, --warmup, --rounds, --cpus";
        return Err(format!("{names}: mean something with --closed only"));
    }
    let (get_share, duration_s) = (get_share.unwrap_or(0.95), duration_s.unwrap_or(5.0));
    let (warmup_s, rounds) = (warmup_s.unwrap_or(0.5), rounds.unwrap_or(1));
    within("get-share", get_share, 0.0..=1.0)?;
    within("duration", duration_s, 0.001..=SECONDS_MAX)?;
    within("warmup", warmup_s, 0.0..=SECONDS_MAX)?;
    within("rounds", rounds, 1..=ROUNDS_MAX)?;
    let closed = is_closed.then(|| Closed {
        get_share,
        duration: Duration::from_secs_f64(duration_s),
        warmup: Duration::from_secs_f64(warmup_s),
        rounds,
        cpus,
    });
    Ok(Options { closed, trials, many, ..options })
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
                    --duration 0.5 --rounds 4 --cpus 1,0 --json -";
        let options = parsed(line).expect("it is understood").expect("no question");
        assert_eq!(options.designs, [Design::Farm, Design::Herd]);
        assert_eq!((options.value_bytes, options.windows), (vec![16, 1024], vec![1, 32]));
        let closed = options.closed.expect("time is measured");
        assert_eq!((closed.get_share, closed.rounds, closed.cpus), (0.95, 4, Some((1, 0))));
        assert_eq!(parsed("--help"), Ok(None));
        let tried = parsed("--rdma rxe0:2 --operations 64 --value-bytes 8 --json f");
        let trials = tried.expect("it is understood").expect("no question").trials;
        let trials = trials.expect("a device is tried");
        assert_eq!((trials.place.to_string().as_str(), trials.operations), ("rxe0:2", 64));
        let default = parsed("").expect("it is understood").expect("no question");
        assert_eq!((default.designs.len(), default.closed), (5, None));
        assert_eq!((default.trials, default.many), (None, None));
    }

    #[test]
    fn clients_of_a_server_are_asked_for_by_its_door() {
        let many = |line: &str| {
            let options = parsed(line).expect("it is understood").expect("no question");
            assert_eq!((options.trials, options.closed), (None, None));
            options.many.expect("clients are measured")
        };
        let usual = many("--rdma rxe0 --door host:18515");
        assert_eq!((usual.door.as_str(), usual.place.to_string()), ("host:18515", "rxe0:1".into()));
        assert_eq!((usual.service, usual.clients), (Some(Service::Datagrams), 500));
        assert_eq!((usual.operations, usual.rounds, usual.at_most), (10_000, 3, None));
        let line = "--rdma rxe0 --door h:1 --clients 64 --rdma-service any --operations 5 \
                    --rounds 1 --at-most 1.1 --value-bytes 32,1024 --keys 7 --json -";
        let asked = many(line);
        assert_eq!((asked.service, asked.clients, asked.operations), (None, 64, 5));
        assert_eq!((asked.rounds, asked.at_most), (1, Some(1.1)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (line, words) in [
            ("--designs herd,drtm", "--designs drtm: some of herd,send,pilaf,farm,farm-var"),
            ("--value-bytes 0", "--value-bytes 0: must be in 1..=1024"),
            ("--value-bytes 16,1025", "--value-bytes 1025"),
            ("--value-bytes x", "--value-bytes x: numbers"),
            ("--window 33", "--window 33: must be in 1..=32"),
            ("--keys 0", "--keys 0: must be"),
            ("--key-bytes 7", "--key-bytes 7: must be"),
            ("--key-bytes 251", "--key-bytes 251: must be"),
            ("--duration 1", "with --closed only"),
            ("--closed --duration 0", "--duration 0: must be in 0.001..=86400"),
            ("--closed --duration NaN", "--duration NaN: must be in"),
            ("--closed --get-share 1.1", "--get-share 1.1: must be"),
            ("--closed --warmup -1", "--warmup -1: must be in 0..=86400"),
            ("--closed --cpus 1", "--cpus: two numbers"),
            ("--rounds 2", "with --closed only"),
            ("--closed --rounds 0", "--rounds 0: must be"),
            ("--rdma a/b", "--rdma a/b: write DEVICE"),
            ("--rdma rxe0 --closed", "--closed: means nothing with --rdma"),
            ("--rdma rxe0 --operations 0", "--operations 0: must be"),
            ("--operations 5", "means something with --rdma only"),
            ("--door h:1", "--door: needs --rdma DEVICE"),
            ("--door h:1 --rdma rxe0 --closed", "--closed: means nothing with --door"),
            ("--door h:1 --rdma rxe0 --clients 1", "--clients 1: must be in 2..=4096"),
            ("--door h:1 --rdma rxe0 --rounds 0", "--rounds 0: must be"),
            ("--door h:1 --rdma rxe0 --operations 0", "--operations 0: must be"),
            ("--door h:1 --rdma rxe0 --at-most 0.9", "--at-most 0.9: must be"),
            ("--door h:1 --rdma rxe0 --rdma-service xrc", "must be any, uc, rc or ud"),
            ("--rdma rxe0 --clients 5", "--clients: means something with --door only"),
            ("--at-most 2", "--at-most: means something with --door only"),
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
