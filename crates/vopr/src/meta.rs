//! Requests of the meta protocol, with the flags that change what they do (`N`, `R`, `T`, `I`,
//! `C`, `J`, `D`, modes) and those that change how they are told (`k`, `O`, `b`, `q`), and their
//! replies.

use crate::model::{Asked, Count, Fetch, Marks, New, Seen, Told, Ttl, Values};
use crate::request::{Expect, Heard, Request, exptime, key_name, line, request};

/// Longest name that fits in base64.
const NAME_BYTES_MAX: usize = 180;

/// How a request is told, besides what it asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// The key comes back (`k`).
    pub key: bool,
    /// So does this (`O`).
    pub opaque: Option<u32>,
    /// The key is sent in base64 (`b`).
    pub base64: bool,
    /// What is as it should be is not told (`q`); `mn` follows.
    pub quiet: bool,
}

/// What the meta protocol has for it.
fn translated(asked: Asked) -> Asked {
    match asked {
        Asked::Get => Asked::Fetch(Fetch::default()),
        Asked::GetTouch(ttl) | Asked::Touch(ttl) => {
            Asked::Fetch(Fetch { touch: Some(ttl), ..Fetch::default() })
        }
        asked => asked,
    }
}

fn flag(letter: char, ttl: Option<Ttl>) -> String {
    ttl.map_or(String::new(), |ttl| format!(" {letter}{}", exptime(ttl)))
}

/// One key; `None` where there is no such command.
pub fn meta(key: usize, asked: Asked, values: &Values, style: Style) -> Option<Request> {
    let asked = translated(asked);
    let name = key_name(key);
    let is_short = name.len() <= NAME_BYTES_MAX;
    let base64 = style.base64 && is_short;
    let name = if base64 { encoded(&name) } else { name };
    let mut told = String::new();
    let mut echo = Vec::new();
    if let Some(opaque) = style.opaque {
        told += &format!(" O{opaque}");
        echo.push(format!("O{opaque}"));
    }
    if style.key {
        told += " k";
        echo.push(format!("k{name}"));
        echo.extend(base64.then(|| "b".to_owned()));
    }
    told += if base64 { " b" } else { "" };
    told += if style.quiet { " q" } else { "" };
    let store = |mode: &str, new: New, id: Option<u64>| {
        let body = values.bytes(new.value);
        let id = id.map_or(String::new(), |id| format!(" C{id}"));
        let (flags, ttl) = (new.flags, exptime(new.ttl));
        let line = format!("ms {name} {} T{ttl} F{flags} M{mode}{id}{told}", body.len());
        request(line, Some(body), (key, asked), Expect::Meta { value: false })
    };
    let line = |line: String, value| {
        request(format!("{line}{told}"), None, (key, asked), Expect::Meta { value })
    };
    let join = |value| New { value, flags: 0, ttl: Ttl::Never };
    let count = |mode: &str, by| line(format!("ma {name} M{mode} D{by} v"), true);
    let mut made = match asked {
        Asked::Fetch(Fetch { touch, vivify, recache, read_only: _ }) => {
            let ends = flag('T', touch) + &flag('N', vivify);
            let recache = recache.map_or(String::new(), |seconds| format!(" R{seconds}"));
            line(format!("mg {name} v f c{ends}{recache}"), true)
        }
        Asked::Set(new) => store("S", new, None),
        Asked::Add(new) => store("E", new, None),
        Asked::Replace(new) => store("R", new, None),
        Asked::Cas(new, id) => store("S", new, Some(id)),
        Asked::Older(new, id) => store("S I", new, Some(id)),
        Asked::Append(value) => store("A", join(value), None),
        Asked::Prepend(value) => store("P", join(value), None),
        Asked::Delete => line(format!("md {name}"), false),
        Asked::Invalidate(ttl) => line(format!("md {name} I{}", flag('T', ttl)), false),
        Asked::Increase(by) => count("I", by),
        Asked::Decrease(by) => count("D", by),
        Asked::Count(Count { is_up, by, ttl, initial }) => {
            let (mode, ttl) = (if is_up { "I" } else { "D" }, exptime(ttl));
            line(format!("ma {name} N{ttl} J{initial} D{by} M{mode} v"), true)
        }
        Asked::Flush | Asked::Get | Asked::GetTouch(_) | Asked::Touch(_) => return None,
        _ => unreachable!("these are RESP's"),
    };
    made.echo = echo;
    if style.quiet {
        made.bytes.extend_from_slice(b"mn\r\n");
        made.is_quiet = true;
    }
    Some(made)
}

fn encoded(name: &str) -> String {
    let mut out = [0; 4 * NAME_BYTES_MAX];
    let bytes = laneway_wire::base64::encode(name.as_bytes(), &mut out).expect("it is short");
    String::from_utf8_lossy(&out[..bytes]).into_owned()
}

/// What it means that a quiet request is not answered.
pub fn unsaid(request: &Request) -> Told {
    match request.asked[0].1 {
        Asked::Fetch(_) => Told::Value(None),
        // The number is not told.
        Asked::Increase(_) | Asked::Decrease(_) | Asked::Count(_) => Told::Silence,
        _ => Told::Done,
    }
}

/// How much of `got` is the reply, and what it tells; `None` while it is not whole.
pub fn read(request: &Request, got: &[u8], with_value: bool, values: &mut Values) -> Heard {
    let Some((text, bytes)) = line(got)? else { return Ok(None) };
    let wrong = || format!("{text:?} to {}", request.shown);
    let mut words = text.split(' ');
    let asked = request.asked[0].1;
    let reads = matches!(asked, Asked::Fetch(_));
    let counts = matches!(asked, Asked::Increase(_) | Asked::Decrease(_) | Asked::Count(_));
    let one = |told| Ok(Some((bytes, vec![told])));
    let code = words.next();
    let told = match code {
        Some("VA") if with_value => {
            let length = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            return read_value(request, got, (text, bytes, length), values);
        }
        Some("EN") if reads => Told::Value(None),
        Some("HD") if !reads && !counts => Told::Done,
        Some("NS") => Told::NotStored,
        Some("EX") => Told::Exists,
        Some("NF") => Told::NotFound,
        Some("CLIENT_ERROR") if counts => return one(Told::NotNumber),
        _ => return Err(wrong()),
    };
    match words.eq(request.echo.iter().map(String::as_str)) {
        true => one(told),
        false => Err(format!("{}, without {:?}", wrong(), request.echo)),
    }
}

/// The same of a reply with a value of so many bytes behind its line.
fn read_value(
    request: &Request,
    got: &[u8],
    (text, bytes, length): (&str, usize, usize),
    values: &mut Values,
) -> Heard {
    let wrong = || format!("{text:?} to {}", request.shown);
    let end = bytes + length + 2;
    if got.len() < end {
        return Ok(None);
    }
    if &got[end - 2..end] != b"\r\n" {
        return Err(format!("{text:?}: its value does not end where it should"));
    }
    let (mut flags, mut cas, mut echo) = (None, None, Vec::new());
    let mut marks = Marks { won: false, sent: false, stale: false };
    for word in text.split(' ').skip(2) {
        match word.split_at_checked(1) {
            Some(("f", rest)) => flags = Some(rest.parse().map_err(|_| wrong())?),
            Some(("c", rest)) => cas = Some(rest.parse().map_err(|_| wrong())?),
            Some(("W", "")) => marks.won = true,
            Some(("Z", "")) => marks.sent = true,
            Some(("X", "")) => marks.stale = true,
            Some(("k" | "O" | "b", _)) => echo.push(word.to_owned()),
            _ => return Err(wrong()),
        }
    }
    if echo != request.echo {
        return Err(format!("{}, without {:?}", wrong(), request.echo));
    }
    let value = &got[bytes..end - 2];
    if !matches!(request.asked[0].1, Asked::Fetch(_)) {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        return Ok(Some((end, vec![Told::Number(number.ok_or_else(wrong)?)])));
    }
    if flags.is_none() || cas.is_none() {
        return Err(format!("{text:?} without what was asked for"));
    }
    let seen = Seen { value: values.id(value), flags, cas, marks: Some(marks) };
    Ok(Some((end, vec![Told::Value(Some(seen))])))
}
