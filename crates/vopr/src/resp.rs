//! Requests as bytes of RESP, and what its replies tell: of what the model knows, the part that
//! both protocols have.

use crate::model::{Asked, New, Seen, Told, Ttl, Values};
use crate::request::{Expect, Heard, Reply, Request, key_name, refusal};
use laneway_rig::resp::{reply_bytes, request};

/// The beginning of what is told where too much is asked to change in one moment: nothing was done.
const TOO_MUCH: &[u8] = b"-ERR what changes in one moment";

fn of(args: &[&[u8]], asked: Vec<(usize, Asked)>, reply: Reply) -> Request {
    let shown: Vec<String> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
    Request::of(request(args), asked, Expect::Resp(reply), &shown.join(" "))
}

/// The option that asks for an end, the command that does, and the time.
fn end(ttl: Ttl) -> Option<(&'static str, &'static str, String)> {
    Some(match ttl {
        Ttl::Never => return None,
        Ttl::Past => ("EXAT", "EXPIREAT", "1".into()),
        Ttl::Millis(ms) if ms % 1000 == 0 => ("EX", "EXPIRE", (ms / 1000).to_string()),
        Ttl::Millis(ms) => ("PX", "PEXPIRE", ms.to_string()),
        Ttl::At(at) if at % 1000 == 0 => ("EXAT", "EXPIREAT", (at / 1000).to_string()),
        Ttl::At(at) => ("PXAT", "PEXPIREAT", at.to_string()),
        Ttl::Seconds(_) => unreachable!("memcached counts so"),
    })
}

/// One key; `None` where RESP has no such request, or another meaning of it.
pub fn one(key: usize, asked: Asked, values: &Values) -> Option<Request> {
    let name = key_name(key);
    let name = name.as_bytes();
    let store = |new: New, option: Option<&[u8]>, asked: Asked| {
        let end = end(new.ttl);
        let mut args = vec![&b"SET"[..], name, values.bytes(new.value)];
        if let Some((option, _, time)) = &end {
            args.extend([option.as_bytes(), time.as_bytes()]);
        }
        args.extend(option);
        of(&args, vec![(key, asked)], Reply::Stored)
    };
    let plain = |new: New| New { flags: 0, ..new };
    Some(match asked {
        Asked::Get => of(&[b"GET", name], vec![(key, asked)], Reply::Value),
        Asked::GetTouch(ttl) => {
            let end = end(ttl);
            let mut args = vec![&b"GETEX"[..], name];
            match &end {
                Some((option, _, time)) => args.extend([option.as_bytes(), time.as_bytes()]),
                None => args.push(b"PERSIST"),
            }
            of(&args, vec![(key, asked)], Reply::Value)
        }
        Asked::Set(new) => store(plain(new), None, Asked::Set(plain(new))),
        Asked::Add(new) => store(plain(new), Some(b"NX"), Asked::Add(plain(new))),
        Asked::Replace(new) => store(plain(new), Some(b"XX"), Asked::Replace(plain(new))),
        Asked::Delete => of(&[b"DEL", name], vec![(key, asked)], Reply::Found),
        Asked::Touch(ttl) => {
            let (_, command, time) = end(ttl)?;
            let args = [command.as_bytes(), name, time.as_bytes()];
            of(&args, vec![(key, asked)], Reply::Found)
        }
        Asked::Flush => of(&[b"FLUSHALL"], vec![(key, asked)], Reply::Stored),
        Asked::Join(more) => {
            of(&[b"APPEND", name, values.bytes(more)], vec![(key, asked)], Reply::Number)
        }
        Asked::Over(at, more) => {
            let at = at.to_string();
            let args = [&b"SETRANGE"[..], name, at.as_bytes(), values.bytes(more)];
            of(&args, vec![(key, asked)], Reply::Number)
        }
        Asked::Sum(by) => {
            let by = by.to_string();
            of(&[b"INCRBY", name, by.as_bytes()], vec![(key, asked)], Reply::Signed)
        }
        Asked::Left => of(&[b"PTTL", name], vec![(key, asked)], Reply::Left),
        Asked::Take => of(&[b"GETDEL", name], vec![(key, asked)], Reply::Value),
        Asked::Swap(new) => {
            let request = store(plain(new), Some(b"GET"), Asked::Swap(plain(new)));
            Request { expect: Expect::Resp(Reply::Value), ..request }
        }
        _ => return None,
    })
}

/// Several keys at once.
pub fn many(keys: &[usize]) -> Request {
    let names: Vec<String> = keys.iter().map(|key| key_name(*key)).collect();
    let mut args = vec![&b"MGET"[..]];
    args.extend(names.iter().map(|name| name.as_bytes()));
    of(&args, keys.iter().map(|key| (*key, Asked::Get)).collect(), Reply::Values)
}

/// Several values at once: all, or only if none of the keys has one.
pub fn set_many(pairs: &[(usize, New)], values: &Values, only_absent: bool) -> Request {
    let (verb, asked, reply): (&[u8], fn(New) -> Asked, _) = match only_absent {
        true => (b"MSETNX", Asked::AddAll, Reply::StoredAbsent),
        false => (b"MSET", Asked::Set, Reply::StoredAll),
    };
    let names: Vec<String> = pairs.iter().map(|(key, _)| key_name(*key)).collect();
    let mut args = vec![verb];
    for (name, (_, new)) in names.iter().zip(pairs) {
        args.extend([name.as_bytes(), values.bytes(new.value)]);
    }
    let plain = |new: &New| asked(New { flags: 0, ttl: Ttl::Never, ..*new });
    of(&args, pairs.iter().map(|(key, new)| (*key, plain(new))).collect(), reply)
}

/// A key is read behind `WATCH`, and stored in a transaction.
pub fn guarded(key: usize, new: New, values: &Values) -> Request {
    let name = key_name(key);
    let name = name.as_bytes();
    let new = New { flags: 0, ..new };
    let end = end(new.ttl);
    let mut set = vec![&b"SET"[..], name, values.bytes(new.value)];
    if let Some((option, _, time)) = &end {
        set.extend([option.as_bytes(), time.as_bytes()]);
    }
    let all: [&[&[u8]]; 5] = [&[b"WATCH", name], &[b"GET", name], &[b"MULTI"], &set, &[b"EXEC"]];
    let bytes = all.iter().flat_map(|args| request(args)).collect();
    let shown = format!("WATCH, GET, MULTI, SET and EXEC of k{key}");
    Request::of(bytes, vec![(key, Asked::Guarded(new))], Expect::Resp(Reply::Guarded), &shown)
}

/// An item goes from one key to another, whatever it is: what it is, is read in the same moment.
pub fn moved(from: usize, to: usize, only_absent: bool) -> Request {
    let names = [key_name(from), key_name(to)];
    let [from_name, to_name] = names.each_ref().map(|name| name.as_bytes());
    let rename = rename(only_absent);
    let all: [&[&[u8]]; 6] = [
        &[b"WATCH", from_name],
        &[b"MULTI"],
        &[b"GET", from_name],
        &[b"PEXPIRETIME", from_name],
        &[rename.as_bytes(), from_name, to_name],
        &[b"EXEC"],
    ];
    let bytes = all.iter().flat_map(|args| request(args)).collect();
    let asked = vec![(from, Asked::MoveOut(only_absent)), (to, Asked::MoveIn(only_absent))];
    let shown = format!("GET and {rename} of k{from} to k{to} in a transaction");
    Request::of(bytes, asked, Expect::Resp(Reply::Moved), &shown)
}

/// An item is made under one key and goes to another in the same moment.
pub fn moved_fresh(from: usize, to: usize, new: New, values: &Values) -> Request {
    let names = [key_name(from), key_name(to)];
    let [from_name, to_name] = names.each_ref().map(|name| name.as_bytes());
    let new = New { flags: 0, ..new };
    let end = end(new.ttl);
    let mut set = vec![&b"SET"[..], from_name, values.bytes(new.value)];
    if let Some((option, _, time)) = &end {
        set.extend([option.as_bytes(), time.as_bytes()]);
    }
    let all: [&[&[u8]]; 5] =
        [&[b"WATCH", from_name], &[b"MULTI"], &set, &[b"RENAME", from_name, to_name], &[b"EXEC"]];
    let bytes = all.iter().flat_map(|args| request(args)).collect();
    let asked = vec![(from, Asked::Emptied(new)), (to, Asked::Moved(new))];
    let shown = format!("SET of k{from} and RENAME to k{to} in a transaction");
    Request::of(bytes, asked, Expect::Resp(Reply::MovedFresh), &shown)
}

fn rename(only_absent: bool) -> &'static str {
    if only_absent { "RENAMENX" } else { "RENAME" }
}

/// Requests that concern no key; fewer where items are kept durably.
pub fn lines(kept: bool) -> &'static [&'static str] {
    const LINES: [&str; 12] = [
        "PING",
        "INFO",
        "DBSIZE",
        "COMMAND",
        "CONFIG GET *",
        "CLIENT ID",
        "CLIENT LIST",
        "TIME",
        "WAIT 0 0",
        "SCAN 0 COUNT 50",
        "RANDOMKEY",
        "SCAN 3000000000000 MATCH k*",
    ];
    // Of a walk over a data folder only the cursors that were told are known.
    if kept { &LINES[..11] } else { &LINES }
}

/// What concerns no key.
pub fn other(words: &str) -> Request {
    let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    of(&args, Vec::new(), Reply::Any)
}

/// What concerns no key, as somebody types it.
pub fn typed(line: &str) -> Request {
    let bytes = format!("{line}\r\n").into_bytes();
    Request::of(bytes, Vec::new(), Expect::Resp(Reply::Any), line)
}

/// A request that must be refused.
pub fn refused(args: &[&[u8]]) -> Request {
    of(args, Vec::new(), Reply::Refusal)
}

/// A request that must be refused, with a value that must not be executed.
pub fn wrong(number: u64, value: &[u8]) -> Request {
    let long = [b'y'; 251];
    let args: [&[&[u8]]; 5] = [
        &[b"SET", b"k0", value, b"what"],
        &[b"SET", b"k0", value, b"EX", b"0"],
        &[b"SET", &long, value],
        &[b"SETEX", b"k0", b"x", value],
        &[b"nothing-like-it", value],
    ];
    of(args[number as usize % args.len()], Vec::new(), Reply::Refusal)
}

/// What the value at the front of a reply tells.
fn value(got: &[u8], values: &mut Values) -> Result<Told, String> {
    if got == b"$-1\r\n" {
        return Ok(Told::Value(None));
    }
    if let Some(why) = got.strip_prefix(b"-ERR ") {
        return Ok(refusal(&String::from_utf8_lossy(why)));
    }
    let head = got.iter().position(|byte| *byte == b'\n').ok_or("no value")? + 1;
    if got[0] != b'$' {
        return Err(format!("{:?} and no value", got.escape_ascii().to_string()));
    }
    let value = values.id(&got[head..got.len() - 2]);
    Ok(Told::Value(Some(Seen { value, flags: None, cas: None, marks: None })))
}

/// What the replies to a transaction behind `WATCH` tell, all together ([`guarded`]).
fn guarded_reply(kind: Reply, got: &[u8], values: &mut Values) -> Heard {
    let Some(([watched, read, begun, queued, executed], at)) = replies::<5>(got) else {
        return Ok(None);
    };
    let text = || got[..at.min(160)].escape_ascii().to_string();
    if watched != b"+OK\r\n" || begun != b"+OK\r\n" {
        return Err(text());
    }
    let why = |words: &[u8]| refusal(&String::from_utf8_lossy(words));
    let told = match executed {
        _ if queued != b"+QUEUED\r\n" && !executed.starts_with(b"-EXECABORT") => {
            return Err(text());
        }
        b"*-1\r\n" => Told::NotStored,
        b"*1\r\n+OK\r\n" if read.starts_with(b"-") => Told::Unknown, // executed, and of what?
        b"*1\r\n+OK\r\n" => value(read, values)?,
        words if words.starts_with(TOO_MUCH) => Told::TooMuch,
        words if words.starts_with(b"-EXECABORT") => Told::Refused,
        words if words.starts_with(b"-OOM") || words.starts_with(b"*1\r\n-OOM") => Told::Refused,
        words if words.starts_with(b"-ERR ") => why(words),
        _ => return Err(text()),
    };
    if kind == Reply::GuardedRefused && told != Told::Refused {
        return Err(format!("{told:?} to what may not be written: {}", text()));
    }
    Ok(Some((at, vec![told])))
}

/// So many replies, and where they end; `None` while they are not whole.
fn replies<const N: usize>(got: &[u8]) -> Option<([&[u8]; N], usize)> {
    let (mut at, mut all) = (0, [&[][..]; N]);
    for reply in &mut all {
        let bytes = reply_bytes(&got[at..])?;
        (*reply, at) = (&got[at..at + bytes], at + bytes);
    }
    Some((all, at))
}

/// What `EXEC` tells where the transaction was not executed; `None` where it was.
fn unexecuted(executed: &[u8]) -> Option<Told> {
    match executed {
        b"*-1\r\n" => Some(Told::NotStored),
        words if words.starts_with(TOO_MUCH) => Some(Told::TooMuch),
        words if words.starts_with(b"-EXECABORT") || words.starts_with(b"-OOM") => {
            Some(Told::Refused)
        }
        words if words.starts_with(b"-") => Some(refusal(&String::from_utf8_lossy(words))),
        _ => None,
    }
}

/// What the replies tell of an item that goes to another key: the one it leaves, and the other.
fn moved_reply(got: &[u8], values: &mut Values) -> Heard {
    let Some(([watched, begun, queued @ .., executed], at)) = replies::<6>(got) else {
        return Ok(None);
    };
    let text = || got[..at.min(200)].escape_ascii().to_string();
    if watched != b"+OK\r\n" || begun != b"+OK\r\n" {
        return Err(text());
    }
    if let Some(told) = unexecuted(executed) {
        return Ok(Some((at, vec![told; 2])));
    }
    let queued: [&[u8]; 3] = queued;
    if queued != [b"+QUEUED\r\n"; 3] || !executed.starts_with(b"*3\r\n") {
        return Err(text());
    }
    let Some(([read, end, renamed], _)) = replies::<3>(&executed[4..]) else { return Err(text()) };
    let read = value(read, values)?;
    let both = match (renamed, read) {
        (b"-ERR no such key\r\n", Told::Value(None)) => [read; 2],
        (b":0\r\n", Told::Value(Some(_))) => [Told::NotStored, Told::Exists],
        (b"+OK\r\n" | b":1\r\n", Told::Value(Some(seen))) => {
            let end = std::str::from_utf8(&end[1..end.len() - 2]).map_err(|_| text())?;
            [read, Told::Moved(seen.value, end.parse().map_err(|_| text())?)]
        }
        (words, _) if words.starts_with(b"-OOM") => [Told::Refused; 2],
        _ => return Err(text()),
    };
    Ok(Some((at, both.to_vec())))
}

/// The same of one that was made in the same moment.
fn moved_fresh_reply(got: &[u8]) -> Heard {
    let Some(([watched, begun, _, _, executed], at)) = replies::<5>(got) else { return Ok(None) };
    // It was over when it was stored.
    if executed == b"*2\r\n+OK\r\n-ERR no such key\r\n" {
        return Ok(Some((at, vec![Told::Done, Told::NotStored])));
    }
    let told = match unexecuted(executed) {
        _ if watched != b"+OK\r\n" || begun != b"+OK\r\n" => None,
        Some(told) => Some(told),
        None if executed == b"*2\r\n+OK\r\n+OK\r\n" => Some(Told::Done),
        // Of what was not done in part nothing is known but that.
        None if executed.windows(4).any(|words| words == b"-OOM") => Some(Told::Unknown),
        None => None,
    };
    let told = told.ok_or_else(|| got[..at.min(200)].escape_ascii().to_string())?;
    Ok(Some((at, vec![told; 2])))
}

/// Those to a transaction of which nothing may be executed.
fn aborted_reply(count: usize, got: &[u8]) -> Heard {
    let (mut at, mut last) = (0, &[][..]);
    for _ in 0..count {
        let Some(bytes) = reply_bytes(&got[at..]) else { return Ok(None) };
        (last, at) = (&got[at..at + bytes], at + bytes);
    }
    match last.starts_with(b"-EXECABORT") {
        true => Ok(Some((at, vec![Told::Refused]))),
        false => Err(got[..at.min(200)].escape_ascii().to_string()),
    }
}

/// Those to a transaction, where it is one.
fn transaction_reply(kind: Reply, got: &[u8], values: &mut Values) -> Option<Heard> {
    match kind {
        Reply::Guarded | Reply::GuardedRefused => Some(guarded_reply(kind, got, values)),
        Reply::Moved => Some(moved_reply(got, values)),
        Reply::MovedFresh => Some(moved_fresh_reply(got)),
        Reply::Aborted(count) => Some(aborted_reply(count, got)),
        _ => None,
    }
}

/// What all keys are told alike.
fn told_of_all(kind: Reply, whole: &[u8]) -> Option<Told> {
    match kind {
        _ if whole.starts_with(TOO_MUCH) => Some(Told::TooMuch),
        Reply::StoredAbsent if whole == b":1\r\n" => Some(Told::Done),
        Reply::StoredAbsent if whole == b":0\r\n" => Some(Told::NotStored),
        // Those before it are stored, and which it is is not told.
        Reply::StoredAll if whole.starts_with(b"-") => {
            Some(match refusal(&String::from_utf8_lossy(whole)) {
                Told::Doubt if !whole.starts_with(b"-OOM") => Told::Doubt,
                _ => Told::Unknown,
            })
        }
        _ => None,
    }
}

/// How errors begin.
const REFUSALS: [&[u8]; 5] = [b"-ERR ", b"-OOM ", b"-NOAUTH ", b"-WRONGPASS ", b"-READONLY "];

/// How much of `got` is the reply, and what each key is told; `None` while it is not whole.
pub fn reply(kind: Reply, request: &Request, got: &[u8], values: &mut Values) -> Heard {
    if let Some(replies) = transaction_reply(kind, got, values) {
        return replies;
    }
    let Some(bytes) = reply_bytes(got) else { return Ok(None) };
    let whole = &got[..bytes];
    let text = || whole[..whole.len().min(80)].escape_ascii().to_string();
    if kind == Reply::Refusal {
        return match REFUSALS.iter().any(|code| whole.starts_with(code)) {
            true => Ok(Some((bytes, vec![Told::Refused]))),
            false => Err(format!("{} to a request that is wrong", text())),
        };
    }
    if let Some(told) = told_of_all(kind, whole) {
        return Ok(Some((bytes, vec![told; request.asked.len()])));
    }
    if let Some(why) = whole.strip_prefix(b"-ERR ") {
        let told = match why {
            b"value is not an integer or out of range\r\n" => Told::NotNumber,
            why if why.starts_with(b"the joined value is larger") => Told::Refused,
            why => refusal(&String::from_utf8_lossy(why)),
        };
        return Ok(Some((bytes, vec![told; request.asked.len().max(1)])));
    }
    if whole.starts_with(b"-OOM") {
        return Ok(Some((bytes, vec![Told::Refused; request.asked.len().max(1)])));
    }
    let told = match (kind, whole) {
        (Reply::Any, [b'-', ..]) => return Err(text()),
        (Reply::Any, _) => Vec::new(),
        (Reply::Stored, b"+OK\r\n") => vec![Told::Done],
        (Reply::StoredAll, b"+OK\r\n") => vec![Told::Done; request.asked.len()],
        (Reply::Stored, b"$-1\r\n") => vec![Told::NotStored],
        (Reply::Number | Reply::Signed | Reply::Left, [b':', number @ .., b'\r', b'\n']) => {
            let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
            let number: i64 = number.ok_or_else(text)?;
            vec![match kind {
                Reply::Signed => Told::Signed(number),
                Reply::Left => Told::Left(number),
                _ => Told::Number(number as u64),
            }]
        }
        (Reply::Found, b":1\r\n") => vec![Told::Done],
        (Reply::Found, b":0\r\n") => vec![Told::NotFound],
        (Reply::Value, whole) => vec![value(whole, values)?],
        (Reply::Values, [b'*', ..]) => {
            let mut at = whole.iter().position(|byte| *byte == b'\n').expect("it is whole") + 1;
            let mut told = Vec::new();
            while at < bytes {
                let end = at + reply_bytes(&whole[at..]).expect("it is whole");
                told.push(value(&whole[at..end], values)?);
                at = end;
            }
            if told.len() != request.asked.len() {
                return Err(format!("{} values", told.len()));
            }
            told
        }
        _ => return Err(text()),
    };
    Ok(Some((bytes, told)))
}
