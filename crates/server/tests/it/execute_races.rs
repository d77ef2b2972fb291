//! Many threads change one key at once: no change is lost, and what one client wins no other wins.

use laneway_server::counts::counters::Counters;
use laneway_server::execute::{self, Body, Context, ExecuteSettings};
use laneway_store::{Config, Moment, Store};
use laneway_wire::{Limits, Request, parse};
use std::cell::Cell;
use std::sync::{Arc, Barrier};

const THREADS: usize = 4;
const ROUNDS: usize = 2_000;
const NOW: Moment = Moment::from_seconds(1_800_000_000);

/// One client, with a thread of its own.
struct Client {
    store: Arc<Store>,
    counters: Counters,
    settings: ExecuteSettings,
}

impl Client {
    /// The reply to one request: a line, or a line and a value with their newlines.
    fn ask(&self, request: &str) -> String {
        let touched = Cell::new(0);
        let context = Context {
            store: &self.store,
            others: &[],
            hand: None,
            now: NOW,
            counters: &self.counters,
            settings: &self.settings,
            touched: &touched,
            large_from: u64::MAX,
            large_lane_from: u64::MAX,
            pending_writes: None,
            read_only: false,
            log: None,
            by: 0,
        };
        let limits = Limits { item_bytes_max: 1 << 20, line_bytes_max: 1 << 16 };
        let input = request.as_bytes();
        let frame = parse(input, &limits).expect("a legal request").expect("a whole line");
        let mut out = Vec::new();
        match &frame.request {
            Request::Store(_) | Request::MetaSet(_) => {
                let body = Body::of(&input[frame.head_bytes..]);
                execute::store_whole(&context, &frame.request, body, &mut out);
            }
            request => drop(execute::command(&context, request, &mut out)),
        }
        String::from_utf8(out).expect("replies are text here")
    }
}

/// Runs `work` on every thread at once, with the thread's number; returns what each returned.
fn at_once<T: Send>(store: &Arc<Store>, work: impl Fn(&Client, usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (store, barrier, work) = (store.clone(), &barrier, &work);
                scope.spawn(move || {
                    let settings = ExecuteSettings::default();
                    let client = Client { store, counters: Counters::default(), settings };
                    barrier.wait();
                    work(&client, number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

fn store() -> (Arc<Store>, Client) {
    let store = Store::new(Config::default()).expect("memory for a store");
    let client = Client {
        store: store.clone(),
        counters: Counters::default(),
        settings: ExecuteSettings::default(),
    };
    (store, client)
}

#[test]
fn no_increment_is_lost() {
    let (store, client) = store();
    client.ask("set k 0 0 1\r\n0\r\n");
    at_once(&store, |client, number| {
        for round in 0..ROUNDS {
            // Half by the classic command, half by the meta one, and touches in between.
            match (number + round) % 3 {
                0 => client.ask("incr k 1\r\n"),
                1 => client.ask("ma k v\r\n"),
                _ => client.ask("touch k 100\r\n") + &client.ask("incr k 1\r\n"),
            };
        }
    });
    assert_eq!(client.ask("incr k 0\r\n"), format!("{}\r\n", THREADS * ROUNDS));
}

#[test]
fn every_number_is_returned_once() {
    let (store, client) = store();
    client.ask("set k 0 0 1\r\n0\r\n");
    let mut numbers: Vec<usize> = at_once(&store, |client, _| {
        let ask = |_| client.ask("incr k 1\r\n").trim().parse().expect("a number");
        (0..ROUNDS).map(ask).collect::<Vec<usize>>()
    })
    .concat();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=THREADS * ROUNDS).collect::<Vec<_>>());
}

#[test]
fn no_append_is_lost() {
    const APPENDS: usize = 400;
    let (store, client) = store();
    client.ask("set k 0 0 0\r\n\r\n");
    at_once(&store, |client, number| {
        let letter = char::from(b'a' + number as u8);
        for round in 0..APPENDS {
            let verb = if round % 2 == 0 { "append" } else { "prepend" };
            let reply = client.ask(&format!("{verb} k 0 0 3\r\n{letter}{letter}{letter}\r\n"));
            assert_eq!(reply, "STORED\r\n");
        }
    });
    let reply = client.ask("mg k v\r\n");
    let (_, value) = reply.split_once("\r\n").expect("a head and a value");
    let value = value.trim_end().as_bytes();
    assert_eq!(value.len(), THREADS * APPENDS * 3);
    // Every piece went in whole.
    let whole = value.chunks(3).all(|piece| piece.iter().all(|byte| *byte == piece[0]));
    assert!(whole, "pieces are mixed");
}

#[test]
fn a_cas_succeeds_for_one_only() {
    let (store, client) = store();
    client.ask("set k 0 0 1\r\n0\r\n");
    let stored: usize = at_once(&store, |client, _| {
        let mut stored = 0;
        for _ in 0..ROUNDS {
            let reply = client.ask("mg k c v\r\n");
            let mut words = reply.split_ascii_whitespace();
            let cas = words.nth(2).and_then(|word| word.strip_prefix('c')).expect("a CAS id");
            let number: usize = words.next().expect("a value").parse().expect("a number");
            let value = (number + 1).to_string();
            let request = format!("cas k 0 0 {} {cas}\r\n{value}\r\n", value.len());
            stored += usize::from(client.ask(&request) == "STORED\r\n");
        }
        stored
    })
    .iter()
    .sum();
    assert_eq!(client.ask("incr k 0\r\n"), format!("{stored}\r\n"));
    assert!(stored >= ROUNDS, "one of those that try must succeed");
}

#[test]
fn one_client_wins_the_token_of_a_missing_item() {
    let (store, _) = store();
    for round in 0..200 {
        let wins: usize = at_once(&store, |client, _| {
            usize::from(client.ask(&format!("mg k{round} N30 v t\r\n")).contains(" W"))
        })
        .iter()
        .sum();
        assert_eq!(wins, 1, "round {round}");
    }
}

#[test]
fn one_client_wins_the_token_of_a_stale_item() {
    let (store, client) = store();
    client.ask("set k 0 0 1\r\na\r\n");
    for round in 0..200 {
        assert_eq!(client.ask("md k I T30\r\n"), "HD\r\n");
        let wins: usize =
            at_once(&store, |client, _| usize::from(client.ask("mg k v\r\n").contains(" W")))
                .iter()
                .sum();
        assert_eq!(wins, 1, "round {round}");
    }
}

#[test]
fn one_client_wins_an_add() {
    let (store, _) = store();
    for round in 0..200 {
        let stored: usize = at_once(&store, |client, _| {
            usize::from(client.ask(&format!("add k{round} 0 0 1\r\na\r\n")) == "STORED\r\n")
        })
        .iter()
        .sum();
        assert_eq!(stored, 1, "round {round}");
    }
}

#[test]
fn vivified_counters_start_once() {
    let (store, client) = store();
    for round in 0..200 {
        at_once(&store, |client, _| client.ask(&format!("ma k{round} N0 J10\r\n")));
        let last = client.ask(&format!("incr k{round} 0\r\n"));
        assert_eq!(last, format!("{}\r\n", 10 + THREADS - 1), "round {round}");
    }
}

#[test]
fn gets_see_whole_values_while_they_are_replaced() {
    let (store, client) = store();
    let value = |letter: char, length: usize| letter.to_string().repeat(length);
    client.ask(&format!("set k 0 0 10\r\n{}\r\n", value('a', 10)));
    at_once(&store, |client, number| {
        for round in 0..ROUNDS {
            if number == 0 {
                let letter = char::from(b'a' + (round % 26) as u8);
                let length = 1 + (round * 37) % 9_000;
                let value = value(letter, length);
                client.ask(&format!("set k 0 0 {length}\r\n{value}\r\n"));
                continue;
            }
            let reply = client.ask("mg k s v\r\n");
            let (head, value) = reply.split_once("\r\n").expect("a head");
            let length: usize = head
                .strip_prefix("VA ")
                .and_then(|head| head.split_once(" s"))
                .map(|(_, size)| size.parse().expect("a size"))
                .expect("a hit");
            let value = value.trim_end().as_bytes();
            assert_eq!(value.len(), length);
            assert!(value.iter().all(|byte| *byte == value[0]), "torn");
        }
    });
}
