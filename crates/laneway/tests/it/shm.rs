//! `serve --shm` as a process, and clients that write into memory it shares with them: values of
//! every size, sleepers that are woken, clients and servers that vanish.

use crate::rig::{BINARY, Process, Scratch, ask, laneway, stat, text};
use laneway_client::{Answer, Client, Error, Refusal, Request, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server with a door of its own; the folder goes after it.
struct Served {
    process: Option<Process>,
    folder: Scratch,
    flags: Vec<String>,
}

impl Served {
    fn new(name: &str, flags: &[&str]) -> Served {
        let folder = Scratch::folder(&format!("shm-{name}"));
        let door = folder.file("door");
        let all = [&["--shm", &*door], flags].concat();
        let flags: Vec<String> = all.into_iter().map(String::from).collect();
        let mut served = Served { process: None, folder, flags };
        served.start();
        served
    }

    fn start(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.process = Some(Process::here(&flags));
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    fn door(&self) -> PathBuf {
        self.folder.0.join("door")
    }

    fn client(&self) -> Client {
        connect(&self.door())
    }

    /// A number of `stats shm`, asked over TCP.
    fn stat(&self, name: &str) -> u64 {
        stat(&mut self.process().connect(), "shm", name)
    }

    /// Ask until it is so.
    fn until(&self, name: &str, value: u64) {
        while self.stat(name) != value {
            std::thread::yield_now();
        }
    }

    /// User and system time of the process, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.process().child.id());
        let stat = std::fs::read_to_string(path).expect("it runs");
        let behind = stat.rsplit(") ").next().expect("it has a name");
        let fields: Vec<&str> = behind.split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        ticks(11) + ticks(12)
    }
}

/// Patient, for a machine that does many other things.
fn patient() -> Settings {
    Settings { deadline_nanos: 120_000_000_000, ..Settings::in_memory() }
}

fn connect(door: &Path) -> Client {
    Client::connect_shm(door, patient()).expect("it is let in")
}

fn value(salt: u64, length: usize) -> Vec<u8> {
    let mut word = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let byte = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..length).map(byte).collect()
}

#[test]
fn values_of_every_size_come_back_by_memory_and_are_the_same_over_tcp() {
    let served = Served::new("sizes", &["-t", "2", "-I", "8m", "-m", "256"]);
    let mut client = served.client();
    for length in [0, 1, 16, 1024, 1300, 1380, 1392, 1400, 1401, 5_000, 65_536, 500_000, 8_000_000]
    {
        let (key, bytes) = (format!("key:{length}"), value(length as u64, length));
        client.set(key.as_str(), bytes.clone()).expect("it is stored");
        let found = client.get(key.as_str()).expect("it answers").expect("it is there");
        assert!(found.data == bytes, "{length} bytes");
        let got = client.get_to(Request::gets(key.as_str()), |found| {
            let mut copy = vec![0; found.bytes()];
            found.copy(0, &mut copy);
            copy
        });
        let got = got.expect("it answers").expect("it is there");
        assert!(got.taken == bytes && got.cas.is_some(), "{length} bytes");
    }
    assert!(client.get_to(Request::get("nothing"), |_| ()).expect("it answers").is_none());
    assert!(served.stat("notices") > 8, "long ones lay in their places");
    let mut stream = served.process().connect();
    let told = ask(&mut stream, b"get key:16\r\n", b"END\r\n");
    assert!(told.starts_with(b"VALUE key:16 0 16\r\n"));
    assert!(client.delete("key:16").expect("it answers"));
    assert_eq!(ask(&mut stream, b"get key:16\r\n", b"END\r\n"), b"END\r\n");
    let refused = client.set("too-large", vec![0; 8 << 20]);
    assert!(matches!(refused, Err(Error::Refused(Refusal::Server(_)))), "{refused:?}");
    let too_long = client.set("longer-than-lent", vec![0; 64 << 20]);
    assert!(matches!(too_long, Err(Error::RequestTooLong { .. })), "{too_long:?}");
    assert_eq!(client.get("key:1").expect("it goes on").expect("there").data.len(), 1);
    for name in ["stale", "impossible", "replies_to_nobody"] {
        assert_eq!(served.stat(name), 0, "{name}");
    }
}

#[test]
fn one_request_is_one_write_and_one_send_and_a_sleeper_is_rung_awake() {
    let served = Served::new("verbs", &["-t", "2", "--idle", "block"]);
    let mut client = served.client();
    client.set("k", "v").expect("it is stored");
    let before = (served.stat("requests"), served.stat("verbs_send"));
    let asked = 200;
    for _ in 0..asked {
        assert_eq!(client.get("k").expect("it answers").expect("there").data, b"v");
    }
    // More only where this machine is so slow that a request was sent again.
    let retries = client.counts().retries;
    let after = (served.stat("requests"), served.stat("verbs_send"));
    assert!((asked..=asked + retries).contains(&(after.0 - before.0)));
    assert!((asked..=asked + retries).contains(&(after.1 - before.1)));
    assert_eq!(served.stat("verbs_read"), 0);
}

#[test]
fn a_server_with_an_idle_client_sleeps() {
    let served = Served::new("idle", &["-t", "2"]);
    let mut client = served.client();
    client.set("k", "v").expect("it is stored");
    let before = served.ticks();
    // Nothing is ever sent: this waits.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let waited = Duration::from_secs(3);
    assert!(never.recv_timeout(waited).is_err());
    let ticks = served.ticks() - before;
    // 1 % of three seconds.
    assert!(ticks <= 3, "{ticks} ticks of 10 ms in {waited:?}");
    assert_eq!(client.get("k").expect("it wakes").expect("there").data, b"v");
}

/// Each thread has keys of its own, and knows what is in them.
fn mixed(door: &Path, thread: u64, rounds: u64) {
    let mut client = connect(door);
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let draw = value(thread << 32 | round, 8);
        let key = format!("{thread}:{}", draw[0] % 40);
        match draw[1] % 8 {
            0..3 => {
                let length = match draw[2] {
                    0..8 => 20_000 + 1_000 * usize::from(draw[3]),
                    _ => usize::from(draw[3]) * 7,
                };
                let bytes = value(round, length);
                client.set(key.as_str(), bytes.clone()).expect("it is stored");
                model.insert(key, bytes);
            }
            3 => {
                let was = client.delete(key.as_str()).expect("it answers");
                assert_eq!(was, model.remove(&key).is_some(), "{key} in round {round}");
            }
            4 => {
                let keys: Vec<String> = (0..40).map(|key| format!("{thread}:{key}")).collect();
                let found = client.get_many(keys.iter().map(String::as_str));
                for (key, found) in keys.iter().zip(found) {
                    let found = found.expect("it answers").map(|value| value.data);
                    assert!(found.as_ref() == model.get(key), "{key} in round {round}");
                }
            }
            _ => {
                let found = client.get(key.as_str()).expect("it answers").map(|value| value.data);
                assert!(found.as_ref() == model.get(&key), "{key} in round {round}");
            }
        }
    }
}

#[test]
fn clients_of_every_form_and_design_find_what_they_stored() {
    for flags in [
        &["-t", "1"][..],
        &["-t", "2", "--form", "time-share", "--threshold", "2000"],
        &["-t", "4", "--form", "roles", "--threshold", "2000"],
        &["-t", "3", "--design", "minos", "--threshold", "2000"],
        &["-t", "2", "--design", "hkh", "--access", "erew", "--udp-base", "-1"],
        &["-t", "3", "--design", "sho"],
    ] {
        let served = Served::new("mixed", flags);
        let door = served.door();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let door = &door;
                    scope.spawn(move || mixed(door, thread, 400))
                })
                .collect();
            for thread in threads {
                thread.join().unwrap_or_else(|_| panic!("with {flags:?}"));
            }
        });
        served.until("clients", 0);
    }
}

#[test]
fn clients_that_leave_make_room_and_more_than_there_is_room_for_are_told() {
    let served = Served::new("room", &["-t", "2", "--shm-clients", "2"]);
    let mut first = served.client();
    let second = served.client();
    let third = Client::connect_shm(served.door(), patient()).err().expect("there is no room");
    assert!(third.to_string().contains("--shm-clients"), "{third}");
    // It leaves with a request in flight.
    drop(second);
    served.until("clients", 1);
    let mut third = served.client();
    third.set("k", "v").expect("it is stored");
    assert_eq!(first.get("k").expect("it answers").expect("there").data, b"v");
    assert_eq!(served.stat("clients_refused"), 1);
}

#[test]
fn a_server_that_is_killed_is_an_error_and_the_next_one_is_found() {
    let mut served = Served::new("killed", &["-t", "2"]);
    let mut client = served.client();
    client.set("k", "v").expect("it is stored");
    served.process.take().expect("it runs").kill();
    let error = client.get("k").expect_err("it is gone");
    assert!(error.to_string().contains("gone"), "{error}");
    served.start();
    assert_eq!(client.get("k").expect("it is found"), None, "another server");
    client.set("k", "w").expect("it is stored");
    served.process.take().expect("it runs").stop();
    assert!(!served.door().exists(), "it has taken its door away");
}

#[test]
fn a_request_that_may_not_be_repeated_is_carried_out_once() {
    let served = Served::new("once", &["-t", "2"]);
    let mut client = served.client();
    client.set("n", "0").expect("it is stored");
    for expected in 1..=300 {
        let answer = client.ask(Request::increment("n", 1)).expect("it answers");
        assert_eq!(answer, Answer::Number(expected));
    }
}

#[test]
fn bench_asks_by_memory_and_every_value_is_right() {
    let served = Served::new("bench", &["-t", "2"]);
    let place = served.process().places()[0].to_string();
    let report = served.folder.file("report.json");
    let mut bench = Command::new(BINARY);
    bench.args(["bench", "--server", &place, "--transport", "shm", "--keys", "500"]);
    bench.args(["--closed", "--depth", "4", "--connections", "2", "--timeout-ms", "60000"]);
    bench.args(["--p-large", "5", "--duration", "0.3", "--warmup", "0.1", "--json"]);
    let status = bench.arg(&report).status().expect("it starts");
    let told = std::fs::read_to_string(&report).expect("it has written its report");
    let number = |name: &str| -> u64 {
        let behind = told.split(&format!("\"{name}\": ")).nth(1).expect(name);
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect(name)
    };
    assert!(status.success(), "{told}");
    assert!(told.contains("\"in_memory\": true"), "{told}");
    assert_eq!((number("lost"), number("impossible"), number("stray")), (0, 0, 0));
    assert!(number("answered") > 0);
    assert!(served.stat("loans_claimed") > 0, "large SETs are lent");
}

#[test]
fn bench_verbs_counts_one_round_trip_and_one_verb_of_the_server_at_every_length() {
    let served = Served::new("bench-verbs", &["-t", "2"]);
    let load = "bench verbs --keys 200 --value-bytes 16,64,256,1024 --window 1,16 --designs herd";
    let door = served.folder.file("door");
    let output = laneway(&load.split(' ').chain(["--shm", &door]).collect::<Vec<_>>());
    let told = text(output.stdout);
    assert!(output.status.success(), "{told}{}", text(output.stderr));
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let rows: Vec<_> = told.lines().map(cells).filter(|cells| cells[1] == "laneway").collect();
    assert_eq!(rows.len(), 2 * 4 * 2, "{told}");
    for row in rows {
        // Round trips, what the client posts, what the server does, what its card has to do with.
        assert_eq!(row[5..9], ["1", "1 WRITE, 1 RECV", "1 SEND", "2"], "{row:?}");
    }
}
