//! Requests as bytes of the text or the meta protocol, and what their replies tell.
//!
//! A request touches one key or several; what each is told becomes an operation of the model. A
//! reply is judged to the last byte: its keys, lengths and ends, and its place among the replies of
//! its connection. Knows no network.

use crate::model::{Asked, New, Seen, Told, Ttl, Values};

/// Longest line of a reply that is not a value.
const LINE_BYTES_MAX: usize = 2048;

/// What kind of reply comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// One line of the text protocol.
    Line,
    /// `VALUE` for each key that is there, in the order of the keys, then `END`.
    Values {
        /// The keys asked for.
        keys: Vec<usize>,
        /// With the CAS id.
        cas: bool,
    },
    /// One meta reply; `value` where `v` was asked for.
    Meta {
        /// The value comes with a hit.
        value: bool,
    },
    /// `STORED`, unless there is no room.
    Stored,
    /// Lines up to `END`, or one line of another kind.
    Stats,
    /// Nothing.
    Silence,
    /// One line that refuses: the request is wrong on purpose.
    Refusal,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Request {
    /// The bytes that are sent.
    pub bytes: Vec<u8>,
    /// What is asked of which keys.
    pub asked: Vec<(usize, Asked)>,
    /// What comes back.
    pub expect: Expect,
    /// For the trace.
    pub shown: String,
}

/// The name of a key; some are as long as keys may be.
pub fn key_name(key: usize) -> String {
    match key % 7 {
        6 => format!("k{key}-{}", "x".repeat(240)),
        _ => format!("k{key}"),
    }
}

/// A name that its number can be read from again.
fn key_number(name: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix('k')?;
    let number: usize = text.split('-').next()?.parse().ok()?;
    (key_name(number).as_bytes() == name).then_some(number)
}

fn exptime(ttl: Ttl) -> String {
    match ttl {
        Ttl::Never => "0".into(),
        Ttl::Seconds(seconds) => seconds.to_string(),
        Ttl::Past => "-1".into(),
    }
}

fn shown(line: &str) -> String {
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_owned(),
    }
}

fn request(line: String, body: Option<&[u8]>, asked: (usize, Asked), expect: Expect) -> Request {
    let mut bytes = line.clone().into_bytes();
    bytes.extend_from_slice(b"\r\n");
    if let Some(body) = body {
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"\r\n");
    }
    Request { bytes, asked: vec![asked], expect, shown: shown(&line) }
}

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
    }
}

/// One key, by the meta protocol; `None` where it has no such command.
pub fn meta(key: usize, asked: Asked, values: &Values) -> Option<Request> {
    let name = key_name(key);
    let store = |mode: &str, new: New, id: Option<u64>| {
        let body = values.bytes(new.value);
        let id = id.map_or(String::new(), |id| format!(" C{id}"));
        let (flags, ttl) = (new.flags, exptime(new.ttl));
        let line = format!("ms {name} {} T{ttl} F{flags} M{mode}{id}", body.len());
        request(line, Some(body), (key, asked), Expect::Meta { value: false })
    };
    let line = |line: String, value| request(line, None, (key, asked), Expect::Meta { value });
    Some(match asked {
        Asked::Get => line(format!("mg {name} v f c"), true),
        Asked::GetTouch(ttl) => line(format!("mg {name} v f T{}", exptime(ttl)), true),
        Asked::Set(new) => store("S", new, None),
        Asked::Add(new) => store("E", new, None),
        Asked::Replace(new) => store("R", new, None),
        Asked::Cas(new, id) => store("S", new, Some(id)),
        Asked::Append(value) => store("A", New { value, flags: 0, ttl: Ttl::Never }, None),
        Asked::Prepend(value) => store("P", New { value, flags: 0, ttl: Ttl::Never }, None),
        Asked::Delete => line(format!("md {name}"), false),
        Asked::Touch(ttl) => line(format!("mg {name} T{}", exptime(ttl)), false),
        Asked::Increase(by) => line(format!("ma {name} D{by} v"), true),
        Asked::Decrease(by) => line(format!("ma {name} MD D{by} v"), true),
        Asked::Flush => return None,
    })
}

/// Several keys at once.
pub fn multiget(keys: Vec<usize>, cas: bool) -> Request {
    let names: Vec<String> = keys.iter().map(|key| key_name(*key)).collect();
    let line = format!("{} {}", if cas { "gets" } else { "get" }, names.join(" "));
    let asked = keys.iter().map(|key| (*key, Asked::Get)).collect();
    let bytes = format!("{line}\r\n").into_bytes();
    Request { bytes, asked, expect: Expect::Values { keys, cas }, shown: shown(&line) }
}

/// A request that concerns no key.
pub fn other(line: &str, expect: Expect) -> Request {
    let bytes = format!("{line}\r\n").into_bytes();
    Request { bytes, asked: Vec::new(), expect, shown: shown(line) }
}

/// A request that must be refused, with a value that must not be executed.
pub fn refused(line: &str, body: &[u8]) -> Request {
    let bytes = [line.as_bytes(), b"\r\n", body, b"\r\n"].concat();
    Request { bytes, asked: Vec::new(), expect: Expect::Refusal, shown: shown(line) }
}

/// The first line of `got`, and its length with its end.
fn line(got: &[u8]) -> Result<Option<(&str, usize)>, String> {
    let window = &got[..got.len().min(LINE_BYTES_MAX)];
    let Some(at) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if got.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err("a line without end".into())
        };
    };
    let text = std::str::from_utf8(&got[..at]).map_err(|_| "a line that is no text".to_owned())?;
    Ok(Some((text, at + 2)))
}

/// How much of `got` is the reply to `request`, and what each of its keys is told; `None` while it
/// is not whole.
pub fn reply(
    request: &Request,
    got: &[u8],
    values: &mut Values,
) -> Result<Option<(usize, Vec<Told>)>, String> {
    if request.expect == Expect::Silence {
        return Ok(Some((0, vec![Told::Silence; request.asked.len()])));
    }
    let Some((first, bytes)) = line(got)? else { return Ok(None) };
    let all = |told: Told| Ok(Some((bytes, vec![told; request.asked.len().max(1)])));
    if first.starts_with("SERVER_ERROR") {
        return all(refusal(first));
    }
    match &request.expect {
        Expect::Silence => unreachable!("it was answered above"),
        Expect::Refusal => match first.starts_with("CLIENT_ERROR") || first == "ERROR" {
            true => all(Told::Refused),
            false => Err(format!("{first:?} to a request that is wrong")),
        },
        Expect::Stored if first == "STORED" => all(Told::Done),
        Expect::Stored => Err(format!("{first:?}")),
        Expect::Line => match told(first) {
            Some(told) => all(told),
            None => Err(format!("{first:?}")),
        },
        Expect::Values { keys, cas } => read_values(got, keys, *cas, values),
        Expect::Meta { value } => read_meta(request, got, *value, values),
        Expect::Stats => read_stats(got),
    }
}

/// What a refusal means for the item.
pub fn refusal(why: &str) -> Told {
    const UNTRIED: [&str; 5] =
        ["out of memory", "Out of memory", "too large", "until restart", "no room"];
    match UNTRIED.iter().any(|words| why.contains(words)) {
        true => Told::Refused,
        false => Told::Doubt,
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

fn read_values(
    got: &[u8],
    keys: &[usize],
    cas: bool,
    values: &mut Values,
) -> Result<Option<(usize, Vec<Told>)>, String> {
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
        all[next + place] = Told::Value(Some(Seen { value, flags: Some(flags), cas }));
        next += place + 1;
        at += length + 2;
    }
}

fn read_meta(
    request: &Request,
    got: &[u8],
    with_value: bool,
    values: &mut Values,
) -> Result<Option<(usize, Vec<Told>)>, String> {
    let Some((text, bytes)) = line(got)? else { return Ok(None) };
    let mut words = text.split(' ');
    let asked = request.asked[0].1;
    let reads = matches!(asked, Asked::Get | Asked::GetTouch(_));
    let counts = matches!(asked, Asked::Increase(_) | Asked::Decrease(_));
    let one = |bytes, told| Ok(Some((bytes, vec![told])));
    match words.next() {
        Some("VA") if with_value => {
            let wrong = || format!("{text:?}");
            let length: usize =
                words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            let (mut flags, mut cas) = (None, None);
            for word in words {
                match word.split_at_checked(1) {
                    Some(("f", rest)) => flags = Some(rest.parse().map_err(|_| wrong())?),
                    Some(("c", rest)) => cas = Some(rest.parse().map_err(|_| wrong())?),
                    _ => return Err(wrong()),
                }
            }
            let end = bytes + length + 2;
            if got.len() < end {
                return Ok(None);
            }
            if &got[end - 2..end] != b"\r\n" {
                return Err(format!("{text:?}: its value does not end where it should"));
            }
            let value = &got[bytes..end - 2];
            if !counts && (flags.is_none() || (cas.is_none() && asked == Asked::Get)) {
                return Err(format!("{text:?} without what was asked for"));
            }
            if counts {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                return one(end, Told::Number(number.ok_or_else(wrong)?));
            }
            one(end, Told::Value(Some(Seen { value: values.id(value), flags, cas })))
        }
        Some("EN") if reads => one(bytes, Told::Value(None)),
        Some("EN") if matches!(asked, Asked::Touch(_)) => one(bytes, Told::NotFound),
        Some("HD") if !reads => one(bytes, Told::Done),
        Some("NS") => one(bytes, Told::NotStored),
        Some("EX") => one(bytes, Told::Exists),
        Some("NF") => one(bytes, Told::NotFound),
        Some("CLIENT_ERROR") if counts => one(bytes, Told::NotNumber),
        _ => Err(format!("{text:?} to {}", request.shown)),
    }
}

fn read_stats(got: &[u8]) -> Result<Option<(usize, Vec<Told>)>, String> {
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
