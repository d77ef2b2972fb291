//! Requests as bytes of the text protocol, and what replies of both protocols tell.
//!
//! A request touches one key or several; what each is told becomes an operation of the model. A
//! reply is judged to the last byte: its keys, lengths and ends, and its place among the replies of
//! its connection. It knows no network.

use crate::binary;
use crate::meta;
use crate::model::{Asked, New, Seen, Told, Ttl, Values};
use crate::request::{Heard, exptime, key_number, line, request};
use crate::resp;

pub use crate::request::{Expect, Request, key_name, refusal};

/// One key, by the text protocol.
pub fn text(key: usize, asked: Asked, values: &Values, cas: bool, noreply: bool) -> Request {
    let name = key_name(key);
    let quiet = if noreply { " noreply" } else { "" };
    let line_expected = if noreply { Expect::Silence } else { Expect::Line };
    let store = |verb: &str, new: New, id: &str| {
        let body = values.bytes(new.value);
        let (flags, ttl) = (new.flags, exptime(new.ttl));
        let line = format!("{verb} {name} {flags} {ttl} {}{id}{quiet}", body.len());
        request(line, Some(body), (key, asked), line_expected.clone())
    };
    let join = |verb: &str, value| store(verb, New { value, flags: 0, ttl: Ttl::Never }, "");
    let line = |line: String| request(line, None, (key, asked), line_expected.clone());
    let read =
        |line: String| request(line, None, (key, asked), Expect::Values { keys: vec![key], cas });
    let s = if cas { "s" } else { "" };
    match asked {
        Asked::Get => read(format!("get{s} {name}")),
        Asked::GetTouch(ttl) => read(format!("gat{s} {} {name}", exptime(ttl))),
        Asked::Set(new) => store("set", new, ""),
        Asked::Add(new) => store("add", new, ""),
        Asked::Replace(new) => store("replace", new, ""),
        Asked::Cas(new, id) => store("cas", new, &format!(" {id}")),
        Asked::Append(value) => join("append", value),
        Asked::Prepend(value) => join("prepend", value),
        Asked::Delete => line(format!("delete {name}{quiet}")),
        Asked::Touch(ttl) => line(format!("touch {name} {}{quiet}", exptime(ttl))),
        Asked::Increase(by) => line(format!("incr {name} {by}{quiet}")),
        Asked::Decrease(by) => line(format!("decr {name} {by}{quiet}")),
        Asked::Flush => line(format!("flush_all{quiet}")),
        _ => unreachable!("the text protocol has no such command"),
    }
}

/// Several keys at once.
pub fn multiget(keys: Vec<usize>, cas: bool) -> Request {
    let names: Vec<String> = keys.iter().map(|key| key_name(*key)).collect();
    let line = format!("{} {}", if cas { "gets" } else { "get" }, names.join(" "));
    let asked = keys.iter().map(|key| (*key, Asked::Get)).collect();
    let bytes = format!("{line}\r\n").into_bytes();
    Request::of(bytes, asked, Expect::Values { keys, cas }, &line)
}

/// A request that concerns no key.
pub fn other(line: &str, expect: Expect) -> Request {
    let bytes = format!("{line}\r\n").into_bytes();
    Request::of(bytes, Vec::new(), expect, line)
}

/// A request that must be refused, with a value that must not be executed.
pub fn refused(line: &str, body: &[u8]) -> Request {
    let bytes = [line.as_bytes(), b"\r\n", body, b"\r\n"].concat();
    Request::of(bytes, Vec::new(), Expect::Refusal, line)
}

/// How much of `got` is the reply to `request`, and what each of its keys is told; `None` while it
/// is not whole.
pub fn reply(request: &Request, got: &[u8], values: &mut Values) -> Heard {
    if !request.is_quiet {
        return one_reply(request, got, values);
    }
    const END: &[u8] = b"MN\r\n";
    if got.starts_with(END) {
        return Ok(Some((END.len(), vec![meta::unsaid(request)])));
    }
    let Some((bytes, told)) = one_reply(request, got, values)? else { return Ok(None) };
    match &got[bytes..] {
        rest if rest.starts_with(END) => Ok(Some((bytes + END.len(), told))),
        rest if END.starts_with(rest) => Ok(None),
        _ => Err("a reply without the end that it was asked to have".into()),
    }
}

fn one_reply(request: &Request, got: &[u8], values: &mut Values) -> Heard {
    if request.expect == Expect::Silence {
        return Ok(Some((0, vec![Told::Silence; request.asked.len()])));
    }
    if let Expect::Resp(kind) = request.expect {
        return resp::reply(kind, request, got, values);
    }
    if let Expect::Binary(kind) = request.expect {
        return binary::reply(kind, request, got, values);
    }
    let Some((first, bytes)) = line(got)? else { return Ok(None) };
    let all = |told: Told| Ok(Some((bytes, vec![told; request.asked.len().max(1)])));
    if first.starts_with("SERVER_ERROR") {
        return all(refusal(first));
    }
    match &request.expect {
        Expect::Silence | Expect::Resp(_) | Expect::Binary(_) => {
            unreachable!("it was answered above")
        }
        Expect::Refusal => match first.starts_with("CLIENT_ERROR") || first == "ERROR" {
            true => all(Told::Refused),
            false => Err(format!("{first:?} to a request that is wrong")),
        },
        Expect::Stored if first == "STORED" => all(Told::Done),
        Expect::Stored => Err(format!("{first:?}")),
        Expect::Line | Expect::Later(_) => match told(first) {
            Some(told) => all(told),
            None => Err(format!("{first:?}")),
        },
        Expect::Values { keys, cas } => read_values(got, keys, *cas, values),
        Expect::Meta { value } => meta::read(request, got, *value, values),
        Expect::Stats => read_stats(got),
        Expect::Dump(end) => read_dump(got, end),
    }
}

fn told(line: &str) -> Option<Told> {
    Some(match line {
        "STORED" | "DELETED" | "TOUCHED" | "OK" => Told::Done,
        "NOT_STORED" => Told::NotStored,
        "EXISTS" => Told::Exists,
        "NOT_FOUND" => Told::NotFound,
        "CLIENT_ERROR cannot increment or decrement non-numeric value" => Told::NotNumber,
        digits => Told::Number(digits.parse().ok()?),
    })
}

fn read_values(got: &[u8], keys: &[usize], cas: bool, values: &mut Values) -> Heard {
    let mut all = vec![Told::Value(None); keys.len()];
    let (mut at, mut next) = (0, 0);
    loop {
        let Some((text, bytes)) = line(&got[at..])? else { return Ok(None) };
        at += bytes;
        if text == "END" {
            return Ok(Some((at, all)));
        }
        if text.starts_with("SERVER_ERROR") {
            all[next..].fill(refusal(text));
            return Ok(Some((at, all)));
        }
        let words: Vec<&str> = text.split(' ').collect();
        let wrong = || format!("{text:?} among values");
        if words.len() != 4 + usize::from(cas) || words[0] != "VALUE" {
            return Err(wrong());
        }
        let key = key_number(words[1].as_bytes()).ok_or_else(wrong)?;
        let place = keys[next..].iter().position(|asked| *asked == key).ok_or_else(wrong)?;
        let flags = words[2].parse().map_err(|_| wrong())?;
        let length: usize = words[3].parse().map_err(|_| wrong())?;
        let cas = words.get(4).map(|id| id.parse()).transpose().map_err(|_| wrong())?;
        if got.len() < at + length + 2 {
            return Ok(None);
        }
        if &got[at + length..at + length + 2] != b"\r\n" {
            return Err(format!("{text:?}: its value does not end where it should"));
        }
        let value = values.id(&got[at..at + length]);
        all[next + place] = Told::Value(Some(Seen { value, flags: Some(flags), cas, marks: None }));
        next += place + 1;
        at += length + 2;
    }
}

fn read_dump(got: &[u8], end: &str) -> Heard {
    let mut at = 0;
    while let Some(bytes) = got[at..].iter().position(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(&got[at..at + bytes]).into_owned();
        let is_item = text.starts_with("key=") || text.starts_with("mg ");
        match (at, text.trim_end_matches('\r')) {
            (0, "OK") => {}
            (1.., text) if text == end => return Ok(Some((at + bytes + 1, Vec::new()))),
            (1.., _) if is_item => {}
            _ => return Err(format!("{text:?} in a dump")),
        }
        at += bytes + 1;
    }
    Ok(None)
}

fn read_stats(got: &[u8]) -> Heard {
    let mut at = 0;
    loop {
        let Some((text, bytes)) = line(&got[at..])? else { return Ok(None) };
        at += bytes;
        let goes_on = ["STAT ", "ITEM "].iter().any(|word| text.starts_with(word));
        if !goes_on {
            return Ok(Some((at, Vec::new())));
        }
    }
}
