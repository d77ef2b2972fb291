//! What changes in one moment: transactions behind `WATCH`, `MSETNX`, `RENAME`; in every design,
//! with NUMA domains and with a data folder, and with clients of either protocol in between.

use crate::kept::{FORMS, all_plans, check, machine, started, with_folder};
use laneway_rig::resp::{are_replies, bulk, request, words};
use laneway_rig::{Rig, tail, value};
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::Client;
use std::sync::atomic::Ordering::Relaxed;

/// Who asks beside the client that watches: one that speaks RESP, or one of memcached's.
enum Who {
    Other,
    Memcached,
}

fn say(rig: &mut Rig, client: &Client, line: &str) -> String {
    rig.say_resp(client, line).replace("\r\n", "|")
}

#[test]
fn what_another_client_changes_stops_the_transaction_and_what_it_reads_does_not() {
    use Who::{Memcached, Other};
    // Behind `SET k 1`, `WATCH k none` and `GET k`.
    let rows: [(Who, &str, bool); 22] = [
        (Other, "GET k", true),
        (Other, "TTL k", true),
        (Other, "SET another 1", true),
        (Other, "SET k 1", false),
        (Other, "SET k 1 NX", true),
        (Other, "SET none 1", false),
        (Other, "DEL k", false),
        (Other, "INCR k", false),
        (Other, "APPEND k x", false),
        (Other, "EXPIRE k 100", false),
        (Other, "MSET another 1 k 2", false),
        (Other, "MSETNX none 1 another 2", false),
        (Other, "MSETNX none 1 k 2", true),
        (Other, "RENAME k another", false),
        (Other, "FLUSHALL", false),
        (Memcached, "get k", true),
        (Memcached, "set k 0 0 1\r\n1", false),
        (Memcached, "incr k 1", false),
        (Memcached, "touch k 100", false),
        (Memcached, "delete k", false),
        (Memcached, "delete none", true),
        (Memcached, "mg k v", true),
    ];
    for plan in all_plans() {
        for (who, line, is_executed) in &rows {
            let mut rig = Rig::new(&with_folder(&plan));
            let clients = [(); 3].map(|()| rig.net.connect());
            let [watcher, other, memcached] = &clients;
            for line in ["SET k 1", "WATCH k none", "GET k"] {
                say(&mut rig, watcher, line);
            }
            match who {
                Other => drop(say(&mut rig, other, line)),
                Memcached => {
                    let end = if line.starts_with("get") { &b"END\r\n"[..] } else { b"\r\n" };
                    rig.ask(memcached, format!("{line}\r\n").as_bytes(), end);
                }
            }
            say(&mut rig, watcher, "MULTI");
            say(&mut rig, watcher, "SET k 7");
            say(&mut rig, watcher, "SET none 8");
            let got = say(&mut rig, watcher, "EXEC");
            let what = format!("{line:?}, {}", plan.what());
            assert_eq!(got, if *is_executed { "*2|+OK|+OK|" } else { "*-1|" }, "{what}");
            let stored = say(&mut rig, other, "GET k") == "$1|7|";
            assert_eq!(stored, *is_executed, "{what}");
        }
    }
}

#[test]
fn an_end_that_another_transaction_changes_stops_it_and_a_touch_does_not() {
    // Behind `SET k 1 EX 50`, `WATCH k` and `GET k`.
    let rows = [
        ("EXPIRE k 100", false),
        ("PERSIST k", false),
        ("GETEX k EX 100", false),
        ("EXPIRE k -1", false),
        ("EXPIRE k 100 NX", true),
        ("TOUCH k", true),
    ];
    for plan in all_plans() {
        for (line, is_executed) in rows {
            let mut rig = Rig::new(&with_folder(&plan));
            let [watcher, other] = [(); 2].map(|()| rig.net.connect());
            for line in ["SET k 1 EX 50", "WATCH k", "GET k"] {
                say(&mut rig, &watcher, line);
            }
            for line in ["WATCH w", "MULTI", line, "EXEC"] {
                say(&mut rig, &other, line);
            }
            say(&mut rig, &watcher, "MULTI");
            say(&mut rig, &watcher, "SET k 7");
            let got = say(&mut rig, &watcher, "EXEC");
            let what = format!("{line:?}, {}", plan.what());
            assert_eq!(got, if is_executed { "*1|+OK|" } else { "*-1|" }, "{what}");
        }
    }
}

#[test]
fn an_item_that_ends_meanwhile_has_changed() {
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        for line in ["SET k 1 EX 10", "WATCH k", "GET k"] {
            say(&mut rig, &client, line);
        }
        rig.clock.advance(12_000_000_000);
        say(&mut rig, &client, "MULTI");
        say(&mut rig, &client, "SET k 7");
        assert_eq!(say(&mut rig, &client, "EXEC"), "*-1|", "{}", plan.what());
        assert_eq!(say(&mut rig, &client, "GET k"), "$-1|");
    }
}

#[test]
fn a_client_that_leaves_behind_exec_leaves_no_half_of_its_transaction() {
    let mut executed = 0;
    for plan in all_plans() {
        let mut rig = Rig::new(&plan);
        let [leaving, other] = [(); 2].map(|()| rig.net.connect());
        let mut sent = words("MULTI");
        for _ in 0..200 {
            sent.extend(words("INCR a"));
            sent.extend(words("INCR b"));
        }
        rig.send(&leaving, &sent);
        rig.turns(100);
        assert_eq!(leaving.send(&words("EXEC")), words("EXEC").len());
        rig.turn();
        leaving.reset();
        rig.turns(100);
        let told = ["GET a", "GET b"].map(|line| say(&mut rig, &other, line));
        let all = ["$3|200|", "$3|200|"];
        assert!(told == all || told == ["$-1|", "$-1|"], "{}: {told:?}", plan.what());
        executed += u32::from(told == all);
    }
    assert!(executed > 0, "the client always left before its transaction was read");
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
}

const ACCOUNTS: usize = 6;
const EACH: i64 = 100;

/// A client that moves money from one account to another, a request at a time, as client libraries
/// do: it reads both behind `WATCH`, and writes both in a transaction.
struct Teller {
    client: Client,
    step: usize,
    from: usize,
    to: usize,
    read: [i64; 2],
    /// Transactions that were executed, and those that were not.
    done: (u32, u32),
}

impl Teller {
    fn next(&mut self, rig: &mut Rig, draws: &mut Draws) {
        let (from, to) = (self.from, self.to);
        let line = match self.step {
            0 => {
                self.from = draws.below(ACCOUNTS);
                self.to = (self.from + 1 + draws.below(ACCOUNTS - 1)) % ACCOUNTS;
                format!("WATCH a{} a{}", self.from, self.to)
            }
            1 => format!("GET a{from}"),
            2 => format!("GET a{to}"),
            3 => "MULTI".into(),
            4 => format!("SET a{from} {}", self.read[0] - 5),
            5 => format!("SET a{to} {}", self.read[1] + 5),
            _ => "EXEC".into(),
        };
        let got = say(rig, &self.client, &line);
        match self.step {
            1 | 2 => {
                let text = got.split('|').nth(1).expect("a value");
                self.read[self.step - 1] = text.parse().expect("a number");
            }
            4 | 5 => assert_eq!(got, "+QUEUED|"),
            6 if got == "*-1|" => self.done.1 += 1,
            6 => {
                assert_eq!(got, "*2|+OK|+OK|");
                self.done.0 += 1;
            }
            _ => assert_eq!(got, "+OK|", "{line}"),
        }
        self.step = (self.step + 1) % 7;
    }
}

/// What is in all accounts, in one moment.
fn sum(rig: &mut Rig, client: &Client) -> i64 {
    let names: Vec<String> = (0..ACCOUNTS).map(|number| format!("a{number}")).collect();
    for line in ["WATCH a0", "MULTI", &format!("MGET {}", names.join(" "))] {
        say(rig, client, line);
    }
    let got = say(rig, client, "EXEC");
    let numbers = got.split('|').skip(1).filter_map(|text| text.parse::<i64>().ok());
    numbers.sum()
}

#[test]
fn money_is_neither_made_nor_lost() {
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let auditor = rig.net.connect();
        for number in 0..ACCOUNTS {
            say(&mut rig, &auditor, &format!("SET a{number} {EACH}"));
        }
        let mut tellers: Vec<Teller> = (0..4)
            .map(|_| {
                let client = rig.net.connect();
                Teller { client, step: 0, from: 0, to: 0, read: [0; 2], done: (0, 0) }
            })
            .collect();
        let mut draws = Draws(7);
        for round in 0..600 {
            let teller = draws.below(tellers.len());
            tellers[teller].next(&mut rig, &mut draws);
            if round % 40 == 0 {
                let all = sum(&mut rig, &auditor);
                assert_eq!(all, EACH * ACCOUNTS as i64, "{}", plan.what());
            }
        }
        let done: u32 = tellers.iter().map(|teller| teller.done.0).sum();
        let vain: u32 = tellers.iter().map(|teller| teller.done.1).sum();
        assert!(done > 10 && vain > 10, "{done} were executed, {vain} were not");
    }
}

#[test]
fn what_is_too_much_for_one_moment_is_refused_and_changes_nothing() {
    const TOO_MUCH: &str = "-ERR what changes in one moment";
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        let many = |verb: &str, count: usize| -> String {
            let pairs = (0..count).map(|number| format!(" k{number} v"));
            pairs.fold(verb.to_owned(), |line, pair| line + &pair)
        };
        let names = |count| (0..count).map(|number| format!(" w{number}")).collect::<String>();
        let told = say(&mut rig, &client, &many("MSETNX", 65));
        assert!(told.starts_with(TOO_MUCH), "{told}");
        assert_eq!(say(&mut rig, &client, "EXISTS k0 k64"), ":0|");
        assert_eq!(say(&mut rig, &client, &many("MSETNX", 64)), ":1|");
        assert_eq!(say(&mut rig, &client, "EXISTS k0 k63"), ":2|");

        let told = say(&mut rig, &client, &format!("WATCH{}", names(65)));
        assert_eq!(told, "-ERR WATCH remembers up to 64 keys here|");
        let told = say(&mut rig, &client, &format!("WATCH{}", " w0".repeat(65)));
        assert_eq!(told, "-ERR WATCH remembers up to 64 keys here|");
        assert_eq!(say(&mut rig, &client, "WATCH extra"), "+OK|", "none of them is watched");
        assert_eq!(say(&mut rig, &client, &format!("WATCH{}", names(63))), "+OK|");
        say(&mut rig, &client, "MULTI");
        say(&mut rig, &client, "SET another x");
        let told = say(&mut rig, &client, "EXEC");
        assert!(told.starts_with(TOO_MUCH), "{told}");
        assert_eq!(say(&mut rig, &client, "EXISTS another"), ":0|");

        let (long, half) = (value(70_000, 1), value(40_000, 2));
        rig.ask_resp(&client, &request(&[b"SET", b"long", &long]), 1);
        rig.ask_resp(&client, &request(&[b"SET", b"half", &half]), 1);
        let told = say(&mut rig, &client, "RENAME long other");
        assert!(told.starts_with(TOO_MUCH), "{told}");
        assert_eq!(say(&mut rig, &client, "RENAME half moved"), "+OK|");
        let got = rig.ask_resp(&client, &words("GET moved"), 1);
        assert!(got == bulk(&half));
        assert_eq!(say(&mut rig, &client, "EXISTS half other long"), ":1|");
        for (queued, is_too_much) in [
            (vec!["GET moved"], false),
            (vec!["GET moved", "GET moved"], true), // its replies
            (vec!["MGET moved moved"], true),
            (vec!["SETRANGE k0 100000 x"], true),
            (vec!["SETRANGE moved 0 x"; 40], true), // what it makes, one after the other
            (vec!["GETRANGE moved 0 1"; 40], true),
            (vec!["STRLEN long"], true),
            (vec!["STRLEN moved", "APPEND moved x"], false),
            (vec!["GET k0"; 511], false),
            (vec!["GET k0"; 512], true), // and one that counts
        ] {
            say(&mut rig, &client, "WATCH k0");
            say(&mut rig, &client, "MULTI");
            for line in queued.iter().chain([&"INCR n"]) {
                assert_eq!(say(&mut rig, &client, line), "+QUEUED|");
            }
            let told = say(&mut rig, &client, "EXEC");
            let what = format!("{:.20} and {}", queued[0], queued.len());
            assert_eq!(told.starts_with(TOO_MUCH), is_too_much, "{what}: {told:.60}");
        }
        // What is watched and nothing else may be as long as it likes.
        for line in ["WATCH long", "MULTI", "INCR n"] {
            say(&mut rig, &client, line);
        }
        assert_eq!(say(&mut rig, &client, "EXEC"), "*1|:4|");
        assert_eq!(say(&mut rig, &client, "GET n"), "$1|4|", "those that were executed");
    }
}

#[test]
fn commands_that_cannot_be_part_of_one_moment_abort_a_transaction_behind_watch() {
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        for line in ["INFO", "FLUSHALL", "DBSIZE", "OBJECT ENCODING k", "TIME", "CLIENT ID"] {
            say(&mut rig, &client, "SET k 1");
            say(&mut rig, &client, "WATCH k");
            say(&mut rig, &client, "MULTI");
            let told = say(&mut rig, &client, line);
            assert!(told.starts_with("-ERR behind WATCH"), "{line}: {told}");
            assert_eq!(say(&mut rig, &client, "SET k 2"), "+QUEUED|");
            let told = say(&mut rig, &client, "EXEC");
            assert!(told.starts_with("-EXECABORT"), "{line}: {told}");
            assert_eq!(say(&mut rig, &client, "GET k"), "$1|1|");
        }
    }
}

#[test]
fn flags_of_memcacheds_items_go_along() {
    for plan in all_plans() {
        let mut rig = Rig::new(&with_folder(&plan));
        let (client, memcached) = (rig.net.connect(), rig.net.connect());
        rig.ask(&memcached, b"set k 7 0 1\r\n5\r\n", b"STORED\r\n");
        assert_eq!(say(&mut rig, &client, "RENAME k m"), "+OK|");
        for line in ["WATCH m", "MULTI", "INCR m", "SET n x", "EXEC"] {
            say(&mut rig, &client, line);
        }
        let got = rig.ask(&memcached, b"get m\r\n", b"END\r\n");
        assert_eq!(String::from_utf8_lossy(&got), "VALUE m 7 1\r\n6\r\nEND\r\n");
        let got = rig.ask(&memcached, b"get n\r\n", b"END\r\n");
        assert_eq!(String::from_utf8_lossy(&got), "VALUE n 0 1\r\nx\r\nEND\r\n");
    }
}

/// Items that lie on the disk alone are brought into memory before anything is compared.
#[test]
fn what_lies_on_the_disk_alone_changes_in_one_moment_and_outlives_the_server() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let pairs: String = (0..40).map(|number| format!(" k{number} {number}")).collect();
        check(&mut rig, &client, &[(&format!("MSET{pairs}"), "+OK|")]);
        assert!(rig.shared.store.flush_all(), "memory forgets, and the folder does not");
        let names: String = (0..40).map(|number| format!(" k{number}")).collect();
        check(&mut rig, &client, &[(&format!("WATCH{names}"), "+OK|"), ("MULTI", "+OK|")]);
        for number in 0..40 {
            check(&mut rig, &client, &[(&format!("INCRBY k{number} 100"), "+QUEUED|")]);
        }
        let sums: String = (0..40).map(|number| format!(":{}|", number + 100)).collect();
        check(&mut rig, &client, &[("EXEC", &format!("*40|{sums}"))]);
        assert!(rig.shared.store.flush_all());
        check(
            &mut rig,
            &client,
            &[
                ("MSETNX new 1 k7 2", ":0|"),
                ("MSETNX new 1 newer 2", ":1|"),
                ("RENAME k1 k2", "+OK|"),
                ("RENAMENX k3 k4", ":0|"),
                ("RENAMENX k3 moved", ":1|"),
                ("RENAME none k4", "-ERR no such key|"),
                ("WATCH k5 none", "+OK|"),
                ("MULTI", "+OK|"),
                ("GETDEL k5", "+QUEUED|"),
                ("DEL k6", "+QUEUED|"),
                ("EXEC", "*2|$3|105|:1|"),
            ],
        );
        // Another client changes what is on the disk alone.
        let other = rig.net.connect();
        assert!(rig.shared.store.flush_all());
        check(&mut rig, &client, &[("WATCH k8", "+OK|"), ("GET k8", "$3|108|")]);
        check(&mut rig, &other, &[("DEL k8", ":1|")]);
        check(&mut rig, &client, &[("MULTI", "+OK|"), ("SET k8 x", "+QUEUED|"), ("EXEC", "*-1|")]);
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        check(
            &mut rig,
            &client,
            &[
                ("MGET k0 k1 k2 k3 k4", "*5|$3|100|$-1|$3|101|$-1|$3|104|"),
                ("MGET moved k5 k6 k8 new newer", "*6|$3|103|$-1|$-1|$-1|$1|1|$1|2|"),
            ],
        );
    }
}

#[test]
fn where_the_disk_refuses_the_reply_is_an_error_and_nothing_is_shown() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        check(&mut rig, &client, &[("MSET a 1 b 2", "+OK|")]);
        check(&mut rig, &client, &[("WATCH a", "+OK|"), ("MULTI", "+OK|")]);
        check(&mut rig, &client, &[("SET a 5", "+QUEUED|"), ("SET b 6", "+QUEUED|")]);
        kept.gate.commits_wait.store(true, Relaxed);
        client.send(&words("EXEC"));
        rig.turns(100);
        other.send(&words("GET b"));
        rig.turns(100);
        assert_eq!(other.receive(usize::MAX), b"", "neither old nor new is shown");
        machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
        kept.gate.commits_wait.store(false, Relaxed);
        let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with("-ERR "), "{got}");
        let got = rig.until(&other, Vec::new(), |got| got.ends_with(b"\r\n") && got.len() > 4);
        assert_eq!(String::from_utf8_lossy(&got), "$1\r\n2\r\n");
        check(&mut rig, &other, &[("MGET a b", "*2|$1|1|$1|2|")]);
        let told = say(&mut rig, &client, "MSETNX c 1 d 2");
        assert!(told.starts_with("-ERR "), "{told}");
        check(&mut rig, &other, &[("EXISTS c d", ":0|")]);
    }
}

/// A rename writes the item under its new name before it deletes the old one, wherever the two
/// stand in the order of keys.
#[test]
fn an_item_that_finds_no_room_under_its_new_name_stays_under_the_old_one() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        let set = |rig: &mut Rig, key: &str, bytes: &[u8]| {
            rig.ask_resp(&client, &request(&[b"SET", key.as_bytes(), bytes]), 1)
        };
        let moved = value(40_000, 1);
        assert_eq!(set(&mut rig, "m", &moved), b"+OK\r\n");
        for length in [600_000, 40_000] {
            let filler = value(length, 2);
            let mut numbers = 0..1000;
            let is_full = numbers.any(|number| {
                set(&mut rig, &format!("filler-{length}-{number}"), &filler) != b"+OK\r\n"
            });
            assert!(is_full, "there is always room for {length} bytes");
        }
        for line in ["RENAME m z", "RENAME m a", "RENAMENX m z"] {
            let told = say(&mut rig, &client, line);
            assert!(told.starts_with("-ERR the SSD has no room"), "{line}: {told}");
            let got = rig.ask_resp(&client, &words("GET m"), 1);
            assert!(got == bulk(&moved), "{line}: {}", tail(&got));
            check(&mut rig, &client, &[("EXISTS a z", ":0|")]);
        }
    }
}

/// What is deleted beside a long value is in the folder until that is on the SSD, and has changed
/// with what is stored all the same.
#[test]
fn who_is_shown_a_part_of_a_transaction_does_not_take_what_it_deletes_for_unchanged() {
    for form in FORMS {
        let (mut rig, kept) = started(&machine(), form);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        check(&mut rig, &client, &[("SET a 1", "+OK|")]);
        check(&mut rig, &other, &[("WATCH a", "+OK|"), ("MULTI", "+OK|"), ("GET b", "+QUEUED|")]);
        check(&mut rig, &client, &[("WATCH none", "+OK|"), ("MULTI", "+OK|")]);
        check(&mut rig, &client, &[("SET b 2", "+QUEUED|"), ("DEL a", "+QUEUED|")]);
        let long = request(&[b"SET", b"long", &value(40_000, 1)]);
        assert_eq!(rig.ask_resp(&client, &long, 1), b"+QUEUED\r\n");
        kept.gate.spills_wait.store(true, Relaxed);
        client.send(&words("EXEC"));
        rig.turns(100);
        check(&mut rig, &other, &[("EXEC", "*-1|")]);
        assert_eq!(client.receive(usize::MAX), b"", "not all of it is durable");
        kept.gate.spills_wait.store(false, Relaxed);
        let got = rig.until(&client, Vec::new(), |got| are_replies(got, 1));
        assert_eq!(String::from_utf8_lossy(&got), "*3\r\n+OK\r\n:1\r\n+OK\r\n");
        check(&mut rig, &other, &[("MGET a b", "*2|$-1|$1|2|"), ("STRLEN long", ":40000|")]);
    }
}

#[test]
fn a_crash_in_the_middle_of_a_rename_leaves_the_item_under_its_old_name() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        let moved = value(40_000, 1);
        let got = rig.ask_resp(&client, &request(&[b"SET", b"m", &moved]), 1);
        assert_eq!(got, b"+OK\r\n");
        kept.gate.spills_wait.store(true, Relaxed);
        client.send(&words("RENAME m z"));
        rig.turns(100);
        check(&mut rig, &other, &[("SET another 1", "+OK|")]); // whatever was appended is durable
        let (mut rig, _kept) = started(&machine.crashed(1), form);
        let client = rig.net.connect();
        let got = rig.ask_resp(&client, &words("GET m"), 1);
        assert!(got == bulk(&moved), "{}", tail(&got));
        check(&mut rig, &client, &[("MGET another z", "*2|$1|1|$-1|")]);
    }
}
