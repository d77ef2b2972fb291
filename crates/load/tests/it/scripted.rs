//! A server for tests that keeps values in a map and misbehaves as it is told. It listens on a
//! loopback port of the kernel's choice or a unix socket; each connection has a thread, and all end
//! when the connections do.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// What the server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The last byte of every value is another one.
    FlipsLastByte,
    /// Values lack their last byte, and the line says so.
    CutsLastByte,
    /// Values are of another key, rightly named.
    OtherKey,
    /// Every SET of this many bytes or more is refused.
    RefusesFrom(usize),
    /// The connection ends at the first GET.
    Closes,
    /// Replies to GETs are words of no protocol.
    Babbles,
    /// Replies leave byte by byte.
    Trickles,
    /// Nothing is answered until this many GETs have come, on all connections together.
    HoldsUntil(usize),
    /// Nothing is answered until so many GETs of one key have come on each of so many connections,
    /// by when they are all there: read ahead, not one after the other.
    ReadsAhead {
        each: usize,
        connections: usize,
    },
    /// The body of a SET of this many bytes or more is not read until a GET was answered.
    ReadsBodyAfterGet(usize),
}

#[derive(Debug, Default)]
pub struct State {
    pub values: HashMap<Vec<u8>, Vec<u8>>,
    pub gets: usize,
    pub gets_answered: usize,
    pub sets: usize,
    /// Of [`Fault::ReadsAhead`]: GETs that had come before any was answered.
    pub ahead: usize,
    /// What it tells of its UDP ports.
    pub topology: String,
}

#[derive(Debug)]
pub struct Shared {
    pub state: Mutex<State>,
    changed: Condvar,
    fault: Fault,
}

/// Starts a server on TCP; returns its address.
pub fn serve(fault: Fault) -> (String, Arc<Shared>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let accept = move || {
        let (stream, _) = listener.accept().expect("accepted");
        (stream.try_clone().expect("cloned"), stream)
    };
    (address, talk_to_all(fault, accept))
}

/// Starts a server on a unix socket.
pub fn serve_unix(path: &Path) -> Arc<Shared> {
    let listener = UnixListener::bind(path).expect("bound");
    talk_to_all(Fault::None, move || {
        let (stream, _) = listener.accept().expect("accepted");
        (stream.try_clone().expect("cloned"), stream)
    })
}

fn talk_to_all<S: Read + Write + Send + 'static>(
    fault: Fault,
    accept: impl Fn() -> (S, S) + Send + 'static,
) -> Arc<Shared> {
    let shared = Shared { state: Mutex::default(), changed: Condvar::new(), fault };
    let shared = Arc::new(shared);
    let own = Arc::clone(&shared);
    std::thread::spawn(move || {
        loop {
            let (reader, writer) = accept();
            let own = Arc::clone(&own);
            std::thread::spawn(move || talk(reader, writer, &own));
        }
    });
    shared
}

/// Serves one connection; an error is the client's leaving.
fn talk(reader: impl Read, mut writer: impl Write, shared: &Shared) {
    let mut reader = BufReader::new(reader);
    if let Fault::ReadsAhead { each, connections } = shared.fault
        && !answer_ahead(&mut reader, &mut writer, each, each * connections, shared)
    {
        return;
    }
    while let Some(reply) = answer(&mut reader, shared) {
        let pieces = if shared.fault == Fault::Trickles { 1 } else { reply.len().max(1) };
        if reply.chunks(pieces).any(|piece| writer.write_all(piece).is_err()) {
            return;
        }
    }
}

/// Reads the first `each` GETs, waits until there are `all` on all connections, looks what else
/// has come, and answers. False if the client left.
fn answer_ahead(
    reader: &mut BufReader<impl Read>,
    writer: &mut impl Write,
    each: usize,
    all: usize,
    shared: &Shared,
) -> bool {
    for _ in 0..each {
        let Some(line) = line(reader) else { return false };
        assert!(line.starts_with("get "), "{line}");
        shared.state.lock().expect("unpoisoned").gets += 1;
        shared.changed.notify_all();
    }
    let state = shared.state.lock().expect("unpoisoned");
    let mut state = shared.changed.wait_while(state, |state| state.gets < all).expect("unpoisoned");
    state.ahead += each + reader.buffer().split(|&byte| byte == b'\n').count() - 1;
    drop(state);
    writer.write_all(&b"END\r\n".repeat(each)).is_ok()
}

/// Reads a request, and does what it asks.
pub fn answer(reader: &mut impl BufRead, shared: &Shared) -> Option<Vec<u8>> {
    let words = line(reader)?;
    let words: Vec<&str> = words.split(' ').collect();
    match words.as_slice() {
        ["version"] => Some(b"VERSION scripted\r\n".to_vec()),
        ["stats"] => Some(stats(shared)),
        ["stats", "topology"] => {
            let told = shared.state.lock().expect("unpoisoned").topology.clone();
            Some((told + "END\r\n").into_bytes())
        }
        ["get", key] => get(key.as_bytes(), shared, false),
        ["get", keys @ ..] => get_many(keys, shared, false),
        ["delete", key] => Some(delete(key.as_bytes(), shared, false)),
        ["set", key, _, _, bytes] => {
            let bytes = bytes.parse().expect("a length");
            set(reader, key.as_bytes(), bytes, shared, false)
        }
        // RESP: every word on a line of its own, its length before it.
        [count] if count.starts_with('*') => {
            let count: usize = count[1..].parse().expect("a number of words");
            let verb = word(reader)?;
            resp(reader, &verb, count - 1, shared)
        }
        ["INFO", ..] => Some(b"$31\r\nredis_version:7.0\ndb0:keys=300\n\r\n".to_vec()),
        other => panic!("the client says {other:?}"),
    }
}

/// A word of RESP, after its length.
fn word(reader: &mut impl BufRead) -> Option<String> {
    let bytes: usize = line(reader)?.strip_prefix('$')?.parse().expect("a length");
    let word = line(reader)?;
    assert_eq!(word.len(), bytes, "{word}");
    Some(word)
}

fn resp(reader: &mut impl BufRead, verb: &str, words: usize, shared: &Shared) -> Option<Vec<u8>> {
    match (verb, words) {
        ("GET", 1) => get(word(reader)?.as_bytes(), shared, true),
        ("DEL", 1) => Some(delete(word(reader)?.as_bytes(), shared, true)),
        ("MGET", count) => {
            let keys: Vec<String> = (0..count).map(|_| word(reader)).collect::<Option<_>>()?;
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            get_many(&keys, shared, true)
        }
        ("SET", 2) | ("SETEX", 3) => {
            let key = word(reader)?;
            if verb == "SETEX" {
                word(reader)?.parse::<u32>().expect("seconds");
            }
            let bytes = line(reader)?.strip_prefix('$')?.parse().expect("a length");
            set(reader, key.as_bytes(), bytes, shared, true)
        }
        other => panic!("the client says {other:?}"),
    }
}

/// What single GETs would have answered, in one reply.
fn get_many(keys: &[&str], shared: &Shared, resp: bool) -> Option<Vec<u8>> {
    let mut reply = if resp { format!("*{}\r\n", keys.len()).into_bytes() } else { Vec::new() };
    for key in keys {
        let one = get(key.as_bytes(), shared, resp)?;
        reply.extend_from_slice(if resp { &one } else { one.strip_suffix(b"END\r\n")? });
    }
    reply.extend_from_slice(if resp { b"" } else { b"END\r\n" });
    Some(reply)
}

fn delete(key: &[u8], shared: &Shared, resp: bool) -> Vec<u8> {
    let found = shared.state.lock().expect("unpoisoned").values.remove(key).is_some();
    let words = match (found, resp) {
        (true, false) => "DELETED\r\n",
        (false, false) => "NOT_FOUND\r\n",
        (true, true) => ":1\r\n",
        (false, true) => ":0\r\n",
    };
    words.into()
}

fn stats(shared: &Shared) -> Vec<u8> {
    let items = shared.state.lock().expect("unpoisoned").values.len();
    let cpu = "STAT rusage_user 1.5\r\nSTAT rusage_system 0.5\r\n";
    format!("{cpu}STAT curr_items {items}\r\nEND\r\n").into_bytes()
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

fn get(key: &[u8], shared: &Shared, resp: bool) -> Option<Vec<u8>> {
    let mut state = shared.state.lock().expect("unpoisoned");
    state.gets += 1;
    shared.changed.notify_all();
    match shared.fault {
        Fault::Closes => return None,
        Fault::Babbles => return Some(b"HELLO THERE\r\n".to_vec()),
        Fault::HoldsUntil(gets) => {
            let held = shared.changed.wait_while(state, |state| state.gets < gets);
            state = held.expect("unpoisoned");
        }
        _ => {}
    }
    let other = || state.values.iter().find(|(name, _)| *name != key);
    let found = match shared.fault {
        Fault::OtherKey => other().map(|(_, value)| value.clone()),
        _ => state.values.get(key).cloned(),
    };
    state.gets_answered += 1;
    shared.changed.notify_all();
    let Some(mut value) = found else {
        return Some(if resp { b"$-1\r\n".to_vec() } else { b"END\r\n".to_vec() });
    };
    match shared.fault {
        Fault::FlipsLastByte => *value.last_mut().expect("some bytes") ^= 1,
        Fault::CutsLastByte => value.truncate(value.len() - 1),
        _ => {}
    }
    let mut reply = match resp {
        true => format!("${}\r\n", value.len()).into_bytes(),
        false => {
            format!("VALUE {} 0 {}\r\n", String::from_utf8_lossy(key), value.len()).into_bytes()
        }
    };
    reply.extend_from_slice(&value);
    reply.extend_from_slice(if resp { b"\r\n" } else { b"\r\nEND\r\n" });
    Some(reply)
}

fn set(
    reader: &mut impl BufRead,
    key: &[u8],
    bytes: usize,
    shared: &Shared,
    resp: bool,
) -> Option<Vec<u8>> {
    if let Fault::ReadsBodyAfterGet(from) = shared.fault
        && bytes >= from
    {
        let state = shared.state.lock().expect("unpoisoned");
        drop(shared.changed.wait_while(state, |state| state.gets_answered == 0));
    }
    let mut value = vec![0; bytes + 2];
    reader.read_exact(&mut value).ok()?;
    assert!(value.ends_with(b"\r\n"), "the value is not as long as said");
    value.truncate(bytes);
    if matches!(shared.fault, Fault::RefusesFrom(from) if bytes >= from) {
        return Some(b"SERVER_ERROR object too large for cache\r\n".to_vec());
    }
    let mut state = shared.state.lock().expect("unpoisoned");
    state.sets += 1;
    state.values.insert(key.to_vec(), value);
    Some(if resp { b"+OK\r\n".to_vec() } else { b"STORED\r\n".to_vec() })
}
