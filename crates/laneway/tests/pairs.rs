//! The runner of `cargo xtask bench` on servers of this very binary: each is stopped while others
//! are measured, and hears what it is told all the same.

mod rig;

use laneway_load::connection::Target;
use laneway_load::pairs::definition::{self, Definition};
use laneway_load::pairs::server::{Places, Server};
use laneway_load::pairs::{self, Options, Patience};
use rig::BINARY;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Two servers.
const TWO: &str = r#"
about = "two servers"
load = "--closed --depth 1 --connections 1 --keys 16 --value-bytes 10 --duration 0.1 --drain 120"
[[server]]
name = "first"
command = "{laneway} serve -s {socket} -m 64 -t 1"
[[server]]
name = "second"
command = "{laneway} serve -l 127.0.0.1 -p {port} -U 0 -m 64 -t 1"
[[run]]
name = "of-first"
server = "first"
[[run]]
name = "of-second"
server = "second"
[[figure]]
name = "answered"
value = "/requests/answered_per_s"
of = "of-first"
over = "of-second"
"#;

/// A client that notes, whenever it is called, whose run it is and how all servers are that it has
/// seen so far. It passes a build for debugging off as one for release, which alone is taken.
const CLIENT: &str = r#"
previous=
for word in "$@"; do
    case $previous in --server-pid) pid=$word ;; --json) json=$word ;; esac
    previous=$word
done
echo $pid >> @FOLDER@/pids
for each in $(sort -u @FOLDER@/pids); do
    echo "$pid $each $(sed 's/.*) //; s/ .*//' /proc/$each/stat)" >> @FOLDER@/seen
done
@LANEWAY@ bench "$@"
status=$?
sed -i 's/"build": "debug"/"build": "release"/' $json
exit $status
"#;

/// The runner keeps what it needs in one folder for each process, and here two tests are one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn two() -> (Definition, Options) {
    let mut options = Options::new(&std::env::temp_dir());
    options.laneway = BINARY.into();
    (definition::parse(TWO).expect("it is a good one"), options)
}

/// As `ps` has it: `T` is stopped.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let behind = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    behind.expect("a state stands behind the name")
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn who_is_not_needed_is_stopped_and_ends_well_all_the_same() {
    let _alone = alone();
    let (definition, options) = two();
    let places = Places::unpinned(&options, 64).expect("a folder");
    let start = |at: usize| Server::start(&definition.servers[at], &places).expect("it starts");
    let (first, second) = (start(0), start(1));
    let pid = first.pid().expect("it is ours");
    for _ in 0..3 {
        let awake = first.while_awake(|| first.version().map(|_| state(pid)));
        assert_ne!(awake.expect("it answers"), 'T');
        assert_eq!(state(pid), 'T');
        let other = second.pid().expect("it is ours");
        let awake = second.while_awake(|| second.version().map(|_| state(other)));
        assert!(awake.expect("it answers") != 'T' && state(other) == 'T');
    }
    let failed: Result<(), String> = first.while_awake(|| Err("the run broke".into()));
    assert_eq!((failed, state(pid)), (Err("the run broke".into()), 'T'));
    let Target::Unix(socket) = first.target.clone() else { panic!("it has a socket") };
    assert!(socket.exists());
    drop(first);
    assert!(!is_there(pid) && !socket.exists(), "who is killed tidies nothing up");
    assert_eq!(state(second.pid().expect("it is ours")), 'T');
}

#[test]
fn in_a_comparison_each_server_is_awake_for_its_own_runs_only() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < 2 {
        return rig::skip("pairs", "servers and client need a CPU each");
    }
    let _alone = alone();
    let (definition, mut options) = two();
    let name = format!("laneway-pairs-it-{}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = CLIENT.replace("@FOLDER@", &folder.to_string_lossy());
    let client = folder.join("client.sh");
    std::fs::write(&client, script.replace("@LANEWAY@", BINARY)).expect("it can be written");
    options.client = vec!["sh".into(), client.to_string_lossy().into_owned()];
    // One round of two runs, however much this machine has to do.
    options.patience = Patience::Until(Instant::now());
    let collected = pairs::collect(&definition, &options).expect("both servers are there");
    assert!(collected.failures.is_empty(), "{:?}", collected.failures);
    assert_eq!(collected.rounds.len(), 1);
    let seen = std::fs::read_to_string(folder.join("seen")).expect("the client was called");
    let rows: Vec<[&str; 3]> = seen
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>().try_into().expect("three words"))
        .collect();
    for [own, each, state] in &rows {
        assert_eq!(*state == "T", each != own, "{seen}");
    }
    let stopped = rows.iter().filter(|[_, _, state]| *state == "T").count();
    assert_eq!((rows.len(), stopped), (1 + 2 + 2 + 2, 3), "filled, then measured: {seen}");
    for [_, each, _] in &rows {
        assert!(!is_there(each.parse().expect("a number")), "{each} was to be ended");
    }
    std::fs::remove_dir_all(&folder).expect("ours");
}

/// A client before whose first measurement the server of that is killed.
const KILLS: &str = r#"
previous=
for word in "$@"; do
    case $previous in --server-pid) pid=$word ;; --json) json=$word ;; esac
    case $word in --no-prefill) measures=yes ;; esac
    previous=$word
done
if [ -n "$measures" ] && mkdir @FOLDER@/killed 2> /dev/null; then
    kill -KILL $pid
    until [ "$(sed 's/.*) //; s/ .*//' /proc/$pid/stat)" = Z ]; do :; done
fi
@LANEWAY@ bench "$@"
status=$?
[ -e $json ] && sed -i 's/"build": "debug"/"build": "release"/' $json
exit $status
"#;

#[test]
fn who_vanishes_or_never_comes_is_told_and_the_others_keep_their_results() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < 2 {
        return rig::skip("pairs", "servers and client need a CPU each");
    }
    let _alone = alone();
    let never = "[[server]]\nname = \"never\"\ncommand = \"{laneway} serve --nonsense\"\n\
                 [[run]]\nname = \"of-never\"\nserver = \"never\"\n";
    let definition = definition::parse(&format!("{TWO}{never}")).expect("it is a good one");
    let (_, mut options) = two();
    let name = format!("laneway-pairs-gone-{}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = KILLS.replace("@FOLDER@", &folder.to_string_lossy());
    let client = folder.join("client.sh");
    std::fs::write(&client, script.replace("@LANEWAY@", BINARY)).expect("it can be written");
    options.client = vec!["sh".into(), client.to_string_lossy().into_owned()];
    options.patience = Patience::Until(Instant::now());
    let collected = pairs::collect(&definition, &options).expect("one of them is there");
    let round = &collected.rounds[0];
    let answered = |run: &str| round[run].pointer("/requests/answered_per_s").is_some();
    assert_eq!([answered("of-first"), answered("of-second")], [false, true], "{round:?}");
    let [gone, never] = collected.failures.as_slice() else { panic!("{:?}", collected.failures) };
    assert!(gone.starts_with("first has ended by itself (signal: 9"), "{gone}");
    assert!(never.starts_with("never takes no part"), "{never}");
    assert!(round["of-first"]["doubt"].as_str().is_some_and(|doubt| doubt.contains(gone)));
    std::fs::remove_dir_all(&folder).expect("ours");
}

/// Waits until a process is in this state.
fn await_state(pid: u32, wanted: char) {
    loop {
        match state(pid) {
            now if now == wanted => return,
            'Z' => panic!("it has ended"),
            _ => std::thread::yield_now(),
        }
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.expect("kill exists").success());
}

#[test]
fn a_client_that_was_halted_while_it_fills_a_server_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let mut bench = Command::new(BINARY)
        .args(["bench", "--server", &address, "--connections", "1", "--keys", "100"])
        .args(["--value-bytes", "10"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let pid = bench.id();
    let mut buffer = [0; 4096];
    let (mut asks, _) = listener.accept().expect("it asks for the version");
    assert!(asks.read(&mut buffer).expect("a question") > 0);
    asks.write_all(b"VERSION 1.6.45\r\n").expect("it reads");
    let (mut fills, _) = listener.accept().expect("it fills the server");
    assert!(fills.read(&mut buffer).expect("a value") > 0);
    // It waits for the replies.
    await_state(pid, 'S');
    signal(pid, "STOP");
    await_state(pid, 'T');
    signal(pid, "CONT");
    await_state(pid, 'S');
    drop(fills);
    let mut said = String::new();
    bench.stderr.take().expect("it was piped").read_to_string(&mut said).expect("words");
    assert!(!bench.wait().expect("it ends").success());
    assert!(said.contains("prefill: the connection broke"), "{said}");
}
