//! Requests as bytes of memcached's binary protocol, and what its replies tell. Each request has an
//! opaque number of its own bytes, so that a reply to another one shows.

use crate::model::{Asked, New, Seen, Told, Ttl, Values};
use crate::request::{Expect, Heard, Kind, Request, key_name, refusal};
use laneway_wire::binary::answer::{Reply, parse_reply};
use laneway_wire::binary::print::{echo, put_parts};
use laneway_wire::binary::reply::Status;
use laneway_wire::binary::{Echo, HEADER_BYTES, NEVER_MADE, Opcode};

/// A time that is over: a unix time far in the past.
const PAST: u32 = 2_592_001;

fn expiration(ttl: Ttl) -> u32 {
    match ttl {
        Ttl::Never => 0,
        Ttl::Seconds(seconds) => seconds,
        Ttl::Past => PAST,
        Ttl::Millis(_) | Ttl::At(_) => unreachable!("these are RESP's"),
    }
}

/// An opaque number that is another one for other bytes (FNV-1a).
fn mark(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0x811c_9dc5, |mark, byte| (mark ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn bytes_of(opcode: Opcode, quiet: bool, cas: u64, parts: Parts<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let opaque = mark(&[parts.0, parts.1, &parts.2[..parts.2.len().min(64)]]);
    put_parts(&mut bytes, echo(opcode, quiet, opaque), cas, parts);
    bytes
}

fn noop() -> Vec<u8> {
    bytes_of(Opcode::Noop, false, 0, (b"", b"", b""))
}

/// What a request repeats in its reply.
fn echo_of(request: &[u8]) -> Echo {
    let opaque = request[12..16].try_into().expect("a header is longer");
    Echo { opcode: request[1], opaque }
}

/// One key; `None` where the protocol has no such request. `with_key`: a read has its key repeated.
pub fn one(
    key: usize,
    asked: Asked,
    values: &Values,
    (quiet, with_key): (bool, bool),
) -> Option<Request> {
    let name = key_name(key);
    let name = name.as_bytes();
    let of = |opcode: Opcode, cas: u64, extras: &[u8], value: &[u8]| {
        let quiet = quiet && !matches!(opcode, Opcode::Touch);
        let mut bytes = bytes_of(opcode, quiet, cas, (extras, name, value));
        if quiet {
            bytes.extend(noop());
        }
        let kind = if quiet { Kind::Quiet } else { Kind::One };
        let line = format!("{opcode:?} {} quiet={quiet}", name.escape_ascii());
        Request::of(bytes, vec![(key, asked)], Expect::Binary(kind), &line)
    };
    let store = |opcode, new: New, cas| {
        let extras = [new.flags.to_be_bytes(), expiration(new.ttl).to_be_bytes()].concat();
        of(opcode, cas, &extras, values.bytes(new.value))
    };
    let arith = |is_up, by: u64, initial: u64, expiration: u32| {
        let opcode = if is_up { Opcode::Increment } else { Opcode::Decrement };
        let numbers = [&by.to_be_bytes()[..], &initial.to_be_bytes(), &expiration.to_be_bytes()];
        of(opcode, 0, &numbers.concat(), b"")
    };
    Some(match asked {
        Asked::Get if with_key => of(Opcode::GetKey, 0, b"", b""),
        Asked::Get => of(Opcode::Get, 0, b"", b""),
        Asked::GetTouch(ttl) => {
            let opcode = if with_key { Opcode::GetKeyAndTouch } else { Opcode::GetAndTouch };
            of(opcode, 0, &expiration(ttl).to_be_bytes(), b"")
        }
        Asked::Set(new) => store(Opcode::Set, new, 0),
        Asked::Add(new) => store(Opcode::Add, new, 0),
        Asked::Replace(new) => store(Opcode::Replace, new, 0),
        Asked::Cas(new, id) => store(Opcode::Set, new, id),
        Asked::Append(more) => of(Opcode::Append, 0, b"", values.bytes(more)),
        Asked::Prepend(more) => of(Opcode::Prepend, 0, b"", values.bytes(more)),
        Asked::Delete => of(Opcode::Delete, 0, b"", b""),
        Asked::Touch(ttl) => of(Opcode::Touch, 0, &expiration(ttl).to_be_bytes(), b""),
        Asked::Increase(by) => arith(true, by, 0, NEVER_MADE),
        Asked::Decrease(by) => arith(false, by, 0, NEVER_MADE),
        Asked::Count(count) => arith(count.is_up, count.by, count.initial, expiration(count.ttl)),
        Asked::Flush => {
            let bytes = bytes_of(Opcode::Flush, false, 0, (b"", b"", b""));
            Request::of(bytes, vec![(key, asked)], Expect::Binary(Kind::One), "Flush")
        }
        _ => return None,
    })
}

/// Several keys at once.
pub fn many(keys: &[usize]) -> Request {
    let mut bytes = Vec::new();
    for key in keys {
        let name = key_name(*key);
        bytes.extend(bytes_of(Opcode::GetKey, true, 0, (b"", name.as_bytes(), b"")));
    }
    bytes.extend(noop());
    let asked = keys.iter().map(|key| (*key, Asked::Get)).collect();
    Request::of(bytes, asked, Expect::Binary(Kind::Values), "quiet reads")
}

/// Requests that concern no key, by number.
pub fn other(number: u64) -> Request {
    const STATS: [&str; 12] = [
        "", "items", "slabs", "settings", "sizes", "lanes", "latency", "clients", "tier", "conns",
        "nothing", "reset",
    ];
    let number = number as usize % (STATS.len() + 3);
    match STATS.get(number) {
        Some(name) => {
            let bytes = bytes_of(Opcode::Stat, false, 0, (b"", name.as_bytes(), b""));
            let line = format!("Stat {name}");
            Request::of(bytes, Vec::new(), Expect::Binary(Kind::Stats), &line)
        }
        None => {
            let (opcode, extras): (Opcode, &[u8]) = match number - STATS.len() {
                0 => (Opcode::Noop, b""),
                1 => (Opcode::Version, b""),
                _ => (Opcode::Verbosity, &[0; 4]),
            };
            let bytes = bytes_of(opcode, false, 0, (extras, b"", b""));
            let line = format!("{opcode:?}");
            Request::of(bytes, Vec::new(), Expect::Binary(Kind::Any), &line)
        }
    }
}

/// Says who it is.
pub fn login(message: &[u8]) -> Request {
    let bytes = bytes_of(Opcode::SaslAuth, false, 0, (b"", b"PLAIN", message));
    Request::of(bytes, Vec::new(), Expect::Binary(Kind::Any), "user and password")
}

/// The same, wrongly; and a mechanism that is none.
pub fn wrong_login(mechanism: &[u8], message: &[u8]) -> Request {
    let bytes = bytes_of(Opcode::SaslAuth, false, 0, (b"", mechanism, message));
    Request::of(bytes, Vec::new(), Expect::Binary(Kind::Refusal), "a wrong password")
}

/// A request that must be refused, whose body looks like requests that must not be executed.
pub fn wrong(number: u64) -> Request {
    let flush = bytes_of(Opcode::Flush, false, 0, (b"", b"", b"")).repeat(20);
    let delete = bytes_of(Opcode::Delete, false, 0, (b"", b"k0", b""));
    let echo = Echo { opcode: 0x60 + (number % 8) as u8, opaque: *b"bait" };
    let mut bytes = Vec::new();
    match number % 3 {
        0 => put_parts(&mut bytes, echo, 0, (&delete[..20], b"k0", &flush)),
        1 => put_parts(&mut bytes, echo, 0, (b"", b"", &flush)),
        _ => put_parts(&mut bytes, echo, 0, (b"", &delete, b"")),
    }
    Request::of(bytes, Vec::new(), Expect::Binary(Kind::Refusal), "an unknown opcode")
}

/// What one reply tells of its key.
fn told_of(asked: Asked, reply: &Reply<'_>, values: &mut Values) -> Result<Told, String> {
    let words = String::from_utf8_lossy(reply.value).into_owned();
    let is = |status: Status| reply.status == status as u16;
    if is(Status::TooLarge) {
        return Ok(Told::Refused);
    }
    if [Status::OutOfMemory, Status::Failed, Status::Busy].into_iter().any(is) {
        return Ok(refusal(&words));
    }
    let reads = matches!(asked, Asked::Get | Asked::GetTouch(_));
    let told = match asked {
        _ if reads && is(Status::NotFound) => Told::Value(None),
        _ if reads && is(Status::Done) => {
            let flags = reply.extras.try_into().map_err(|_| "no flags".to_owned())?;
            let flags = Some(u32::from_be_bytes(flags));
            let cas = Some(reply.cas).filter(|cas| *cas != 0);
            Told::Value(Some(Seen { value: values.id(reply.value), flags, cas, marks: None }))
        }
        Asked::Increase(_) | Asked::Decrease(_) | Asked::Count(_) if is(Status::Done) => {
            let number = reply.value.try_into().map_err(|_| "no number".to_owned())?;
            Told::Number(u64::from_be_bytes(number))
        }
        _ if is(Status::Done) => Told::Done,
        Asked::Add(_) if is(Status::Exists) => Told::NotStored,
        Asked::Replace(_) if is(Status::NotFound) => Told::NotStored,
        _ if is(Status::NotStored) => Told::NotStored,
        _ if is(Status::Exists) => Told::Exists,
        _ if is(Status::NotFound) => Told::NotFound,
        _ if is(Status::NotANumber) => Told::NotNumber,
        _ => return Err(format!("status {:#x}, {words:?}", reply.status)),
    };
    Ok(told)
}

/// What is told by a quiet request that is not answered.
fn unsaid(asked: Asked) -> Told {
    match asked {
        Asked::Get | Asked::GetTouch(_) => Told::Value(None),
        // The number is not told.
        Asked::Increase(_) | Asked::Decrease(_) | Asked::Count(_) => Told::Silence,
        _ => Told::Done,
    }
}

/// Replies, each with the number of its request.
type Answers<'a> = Vec<(usize, Reply<'a>)>;

/// The replies to the requests in `sent`, up to the one behind which nothing is quiet, and how many
/// bytes they are; `None` while they are not whole.
fn answers<'a>(sent: &[u8], got: &'a [u8]) -> Result<Option<(usize, Answers<'a>)>, String> {
    let mut requests = Vec::new();
    let mut at = 0;
    while at < sent.len() {
        let header = &sent[at..at + HEADER_BYTES];
        let body = u32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
        requests.push(echo_of(header));
        at += HEADER_BYTES + body as usize;
    }
    let (mut all, mut at, mut next) = (Vec::new(), 0, 0);
    while next < requests.len() {
        let reply = parse_reply(&got[at..]).map_err(|_| "what is no reply".to_owned())?;
        let Some(reply) = reply else { return Ok(None) };
        let place = requests[next..].iter().position(|echo| *echo == reply.echo);
        let place = place.ok_or_else(|| format!("a reply to another request: {:?}", reply.echo))?;
        at += reply.bytes;
        next += place;
        all.push((next, reply));
        next += 1;
    }
    Ok(Some((at, all)))
}

fn stats(request: &Request, got: &[u8]) -> Heard {
    let mut at = 0;
    loop {
        let reply = parse_reply(&got[at..]).map_err(|_| "what is no reply".to_owned())?;
        let Some(reply) = reply else { return Ok(None) };
        if reply.echo != echo_of(&request.bytes) {
            return Err(format!("a reply to another request: {:?}", reply.echo));
        }
        at += reply.bytes;
        let is_last = reply.key.is_empty();
        if is_last {
            return Ok(Some((at, Vec::new())));
        }
    }
}

/// How much of `got` is the reply, and what each key is told; `None` while it is not whole.
pub fn reply(kind: Kind, request: &Request, got: &[u8], values: &mut Values) -> Heard {
    if kind == Kind::Stats {
        return stats(request, got);
    }
    let Some((bytes, answers)) = answers(&request.bytes, got)? else { return Ok(None) };
    let (_, last) = answers.last().expect("the last request is answered");
    let status = last.status;
    let told = match kind {
        Kind::Refusal => {
            let refused = [Status::UnknownCommand, Status::Refused, Status::NotSupported];
            let refused = refused.map(|status| status as u16);
            if !refused.contains(&status) {
                return Err(format!("status {status:#x} to a request that is wrong"));
            }
            vec![Told::Refused]
        }
        Kind::Any if status == 0 => Vec::new(),
        Kind::Any => return Err(format!("status {status:#x}")),
        Kind::One => vec![told_of(request.asked[0].1, last, values)?],
        Kind::Quiet | Kind::Values => {
            let mut all: Vec<Told> =
                request.asked.iter().map(|(_, asked)| unsaid(*asked)).collect();
            for (number, reply) in &answers[..answers.len() - 1] {
                let (key, asked) = request.asked[*number];
                let is_told = kind == Kind::Quiet && unsaid(asked) == Told::Done;
                if is_told && reply.status == 0 {
                    return Err("a quiet request was answered that was done".into());
                }
                if kind == Kind::Values
                    && reply.status == 0
                    && reply.key != key_name(key).as_bytes()
                {
                    return Err(format!("another key: {}", reply.key.escape_ascii()));
                }
                all[*number] = told_of(asked, reply, values)?;
            }
            all
        }
        Kind::Stats => unreachable!("it was read above"),
    };
    Ok(Some((bytes, told)))
}
