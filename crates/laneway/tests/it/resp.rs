//! Transactions behind `WATCH` by several clients at once, on workers that run at once: money goes
//! from account to account, and none is made or lost. And who may not speak RESP: a browser.

use crate::rig::{Process, SIZES, Scratch, ask, connect};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const ACCOUNTS: usize = 8;
const EACH: i64 = 1000;
const TELLERS: u64 = 4;

struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(place: &str) -> Redis {
        let stream = connect(place);
        stream.set_nodelay(true).expect("it is TCP");
        Redis(BufReader::new(stream))
    }

    /// Sends requests in one go, a line each.
    fn send(&mut self, lines: &[&str]) {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            words
                .iter()
                .for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
        }
        self.0.get_mut().write_all(&bytes).expect("it reads");
    }

    /// The next reply, arrays flattened: their heads, and what they hold.
    fn hear(&mut self, heard: &mut Vec<String>) {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply comes");
        let text = line.trim_end();
        let number = || text[1..].parse::<i64>().expect("a length");
        match text.as_bytes().first() {
            Some(b'$') if number() >= 0 => {
                let mut value = vec![0; number() as usize + 2];
                self.0.read_exact(&mut value).expect("a value comes");
                heard.push(String::from_utf8_lossy(&value[..value.len() - 2]).into_owned());
            }
            Some(b'*') => {
                heard.push(text.to_owned());
                (0..number().max(0)).for_each(|_| self.hear(heard));
            }
            _ => heard.push(text.to_owned()),
        }
    }

    fn ask(&mut self, lines: &[&str]) -> Vec<String> {
        self.send(lines);
        let mut heard = Vec::new();
        lines.iter().for_each(|_| self.hear(&mut heard));
        heard
    }
}

/// Moves money so often between accounts that are drawn.
fn tell(place: &str, seed: u64, times: u32) {
    let mut redis = Redis::connect(place);
    let mut state = seed;
    let mut below = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for number in 0..times {
        let from = below(ACCOUNTS);
        let to = (from + 1 + below(ACCOUNTS - 1)) % ACCOUNTS;
        loop {
            let lines = [&*format!("WATCH a{from} a{to}"), &format!("MGET a{from} a{to}")];
            let heard = redis.ask(&lines);
            let [left, right] =
                [&heard[2], &heard[3]].map(|text| text.parse::<i64>().expect("a number"));
            let heard = redis.ask(&[
                "MULTI",
                &format!("SET a{from} {}", left - 7),
                &format!("SET a{to} {}", right + 7),
                &format!("SET fresh{seed}.{number} x"),
                "EXEC",
            ]);
            match heard[4].as_str() {
                "*3" => break,
                "*-1" => {} // somebody else was quicker
                other => panic!("{other}"),
            }
        }
    }
}

/// Looks at all accounts in one moment, as often as there is time for.
fn audit(place: &str, is_over: &AtomicBool) {
    let mut redis = Redis::connect(place);
    let names: Vec<String> = (0..ACCOUNTS).map(|number| format!("a{number}")).collect();
    let all = format!("MGET {}", names.join(" "));
    let mut has_looked = false;
    while !is_over.load(Relaxed) || !has_looked {
        let heard = redis.ask(&["WATCH none", "MULTI", &all, "EXEC"]);
        if heard[3] == "*-1" {
            continue; // a key has changed that shares a counter with this one
        }
        let numbers = heard[5..].iter().map(|text| text.parse::<i64>().expect("a number"));
        assert_eq!(numbers.sum::<i64>(), EACH * ACCOUNTS as i64, "{heard:?}");
        has_looked = true;
    }
}

fn check(flags: &[&str], times: u32) {
    let server = Process::here(&[&["-t", "4"], flags].concat());
    let place = server.places()[0].to_owned();
    let mut redis = Redis::connect(&place);
    for number in 0..ACCOUNTS {
        redis.ask(&[&format!("SET a{number} {EACH}")]);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let place = &*place;
        let tellers: Vec<_> =
            (0..TELLERS).map(|seed| scope.spawn(move || tell(place, seed, times))).collect();
        let auditor = scope.spawn(|| audit(place, &is_over));
        tellers.into_iter().for_each(|teller| teller.join().expect("it ends"));
        is_over.store(true, Relaxed);
        auditor.join().expect("it ends");
    });
    audit(&place, &AtomicBool::new(true));
    server.stop();
}

#[test]
fn money_goes_from_account_to_account() {
    check(&[], 2000);
}

/// New keys have the index grow while buckets of both domains are held.
#[test]
fn money_goes_from_domain_to_domain() {
    check(&["--numa", "fake:2"], 2000);
}

#[test]
fn money_in_a_data_folder_does_so_too() {
    for durability in ["ack", "interval:5"] {
        let folder = Scratch::new("resp-money");
        let own = ["--data-dir", folder.path(), "--durability", durability];
        check(&[&own[..], &SIZES].concat(), 100);
    }
}

/// Of HTTP the lines are unknown commands, and the body is whatever a page has put into it.
#[test]
fn no_web_page_speaks_by_its_readers_browser() {
    let server = Process::here(&["--resp", "0"]);
    let resp = server.place("resp:");
    let mut client = server.connect();
    assert_eq!(ask(&mut client, b"set k 0 0 1\r\nv\r\n", b"\r\n"), b"STORED\r\n");
    for head in ["POST / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\nHost: localhost\r\n"] {
        for place in [&*resp, server.places()[0]] {
            let mut browser = connect(place);
            let request = format!("{head}Content-Length: 18\r\n\r\nFLUSHALL\r\nflush_all\r\n");
            browser.write_all(request.as_bytes()).expect("it reads");
            let mut told = Vec::new();
            let is_end = match browser.read_to_end(&mut told) {
                Ok(_) => true,
                // Who is hung up on with bytes unread may be told so.
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            };
            let told = String::from_utf8_lossy(&told);
            assert!(is_end && !told.contains("OK"), "{place}: {head}: {told}");
        }
    }
    assert_eq!(ask(&mut client, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\nv\r\nEND\r\n");
    drop(client);
    server.stop();
}
