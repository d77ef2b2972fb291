//! Has the parser's entry, and the text protocol's commands (memcached doc/protocol.txt).
//!
//! Checks happen in memcached's order, because the first that fails decides the reply: number of
//! words, key length, numbers, item size. Words too few are refused, words too many are not looked
//! at; `noreply` is the last word of the line. The replies are those of 1.6.45. It departs from it:
//! a store whose length cannot be read ends the connection; spaces may stand before a command;
//! flags that do not fit 32 bits are refused, not cut, and so is `-` for a number; an expiry of a
//! store may need 64 bits, where memcached cuts it to 32.
//!
//! A line that has arrived whole is read whatever its length, as in memcached, while the same line
//! without its end may close the connection: lengths above `LINE_BYTES_MAX` depend on the network.
//!
//! It knows no meta flags (`crate::meta` does), no clock, no connection. Sizes are bytes.

use crate::limits::{BINARY_REQUEST, KEY_BYTES_MAX, LINE_BYTES_MAX, LINE_SPACES_MAX};
use crate::meta;
use crate::refusal::{Outcome, Refusal, value_bytes};
use crate::reply;
use crate::request::*;
use crate::scan::{
    Tokens, find, first_name, name, number_i32, number_i64, number_u32, number_u64, skip_spaces,
    without_plus,
};

/// Reads the request at the front of `input`.
///
/// `Ok(Some(frame))`: here it is, and its line is `head_bytes` long. `Ok(None)`: the line has not
/// arrived whole. `Err(malformed)`: tell the client so, consume the line, go on as it says.
#[inline]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<Frame<'a>>, Malformed<'a>> {
    let Some(newline) = find(input, b'\n') else {
        return unfinished(input, limits);
    };
    let head_bytes = newline + 1;
    let line = match &input[..newline] {
        [line @ .., b'\r'] => line,
        line => line,
    };
    // The one command that counts: a get of one key.
    if let [b'g', b'e', b't', b' ', key @ ..] = line
        && (1..=KEY_BYTES_MAX).contains(&key.len())
        && find(key, b' ').is_none()
    {
        let keys = Keys::new(key);
        let request = Request::Get(Get { verb: GetVerb::Get, exptime: 0, keys });
        return Ok(Some(Frame { request, head_bytes }));
    }
    match command(line, limits) {
        Ok(request) => Ok(Some(Frame { request, head_bytes })),
        Err(Refusal { reply, then, unlink }) => Err(Malformed { reply, head_bytes, then, unlink }),
    }
}

/// No newline yet: wait, unless the line is already longer than it may get.
#[cold]
fn unfinished<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<Frame<'a>>, Malformed<'a>> {
    if input.first() == Some(&BINARY_REQUEST) {
        // Its client waits for an answer and sends no newline.
        let reply = reply::NO_BINARY;
        return Err(Malformed { reply, head_bytes: input.len(), then: Then::Close, unlink: None });
    }
    let bytes_max = if is_multiget(input) { limits.line_bytes_max } else { LINE_BYTES_MAX };
    if input.len() <= bytes_max {
        return Ok(None);
    }
    Err(Malformed { reply: b"", head_bytes: input.len(), then: Then::Close, unlink: None })
}

/// Whether a long line may be a multiget. `gat` and `gats` are ours: memcached cuts those off.
fn is_multiget(line: &[u8]) -> bool {
    let words = skip_spaces(line);
    line.len() - words.len() <= LINE_SPACES_MAX
        && [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|verb| words.starts_with(verb))
}

/// Reads one line, its newline taken off.
fn command<'a>(line: &'a [u8], limits: &Limits) -> Outcome<'a> {
    const GET: u64 = name(b"get");
    const GETS: u64 = name(b"gets");
    const GAT: u64 = name(b"gat");
    const GATS: u64 = name(b"gats");
    const SET: u64 = name(b"set");
    const ADD: u64 = name(b"add");
    const REPLACE: u64 = name(b"replace");
    const APPEND: u64 = name(b"append");
    const PREPEND: u64 = name(b"prepend");
    const CAS: u64 = name(b"cas");
    const INCR: u64 = name(b"incr");
    const DECR: u64 = name(b"decr");
    const DELETE: u64 = name(b"delete");
    const TOUCH: u64 = name(b"touch");
    const META_GET: u64 = name(b"mg");
    const META_SET: u64 = name(b"ms");
    const META_DELETE: u64 = name(b"md");
    const META_ARITH: u64 = name(b"ma");
    const META_NOOP: u64 = name(b"mn");
    const META_DEBUG: u64 = name(b"me");
    let line = skip_spaces(line);
    let Some((verb, rest)) = first_name(line) else {
        return rare(line);
    };
    match verb {
        GET => get(GetVerb::Get, rest),
        GETS => get(GetVerb::Gets, rest),
        GAT => get_and_touch(GetVerb::Gat, rest),
        GATS => get_and_touch(GetVerb::Gats, rest),
        SET => store(StoreVerb::Set, rest, limits),
        ADD => store(StoreVerb::Add, rest, limits),
        REPLACE => store(StoreVerb::Replace, rest, limits),
        APPEND => store(StoreVerb::Append, rest, limits),
        PREPEND => store(StoreVerb::Prepend, rest, limits),
        CAS => store(StoreVerb::Cas(0), rest, limits),
        INCR => arith(true, rest),
        DECR => arith(false, rest),
        DELETE => delete(rest),
        TOUCH => touch(rest),
        META_GET => meta::get(rest),
        META_SET => meta::set(rest, limits),
        META_DELETE => meta::delete(rest),
        META_ARITH => meta::arith(rest),
        META_NOOP => Ok(Request::MetaNoop),
        META_DEBUG => meta::debug(rest),
        _ => rare(line),
    }
}

/// The commands no client sends often.
#[cold]
fn rare(line: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(line);
    let verb = tokens.next().unwrap_or_default();
    let rest = tokens.rest();
    match verb {
        b"stats" => Ok(Request::Stats(trim_spaces(rest))),
        b"version" => Ok(Request::Version),
        b"quit" => Ok(Request::Quit),
        b"flush_all" => flush_all(rest),
        b"verbosity" => verbosity(rest),
        b"cache_memlimit" => memory_limit(rest),
        b"shutdown" => shutdown(rest),
        b"backup" | b"checkpoint" | b"compact" | b"migrate_rate" | b"client_rate"
        | b"client_bytes" | b"slabs" | b"lru" | b"lru_crawler" | b"watch" | b"refresh_certs"
        | b"extstore" | b"debugtime" | b"debugitem" | b"misbehave" => Ok(Request::Admin(line)),
        _ => Err(unknown(line)),
    }
}

/// A browser is hung up on; anybody else is told. A request of the binary protocol may well hold a
/// newline.
fn unknown(line: &[u8]) -> Refusal<'_> {
    if line.first() == Some(&BINARY_REQUEST) {
        return Refusal::says(reply::NO_BINARY).close();
    }
    match Tokens::new(line).last() {
        Some(last) if last.starts_with(b"HTTP/") => {
            Refusal { reply: b"", then: Then::Close, unlink: None }
        }
        // No command is that short.
        _ if line.len() < 2 => Refusal::says(reply::BAD_FORMAT),
        _ => Refusal::says(reply::ERROR),
    }
}

fn trim_spaces(mut words: &[u8]) -> &[u8] {
    while let [rest @ .., b' '] = words {
        words = rest;
    }
    words
}

/// Whether the last word of `rest` is `noreply`.
fn is_noreply(rest: &[u8]) -> bool {
    let before = trim_spaces(rest).strip_suffix(b"noreply");
    before.is_some_and(|before| before.last().is_none_or(|&byte| byte == b' '))
}

/// The keys in `rest`, none too long: all are looked at before the first is served.
fn keys(rest: &[u8]) -> Result<Keys<'_>, Refusal<'_>> {
    if rest.is_empty() || has_long_word(rest) {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    Ok(Keys::new(rest))
}

/// Whether a word of `line` is longer than a key may be. Most bytes are not looked at: behind the
/// last space of a stretch one byte longer than a key, the next stretch begins.
fn has_long_word(mut line: &[u8]) -> bool {
    while let Some(stretch) = line.get(..=KEY_BYTES_MAX) {
        match stretch.iter().rposition(|&byte| byte == b' ') {
            Some(space) => line = &line[space + 1..],
            None => return true,
        }
    }
    false
}

/// `get <key>+`
fn get(verb: GetVerb, rest: &[u8]) -> Outcome<'_> {
    Ok(Request::Get(Get { verb, exptime: 0, keys: keys(rest)? }))
}

/// `gat <exptime> <key>+`
fn get_and_touch(verb: GetVerb, rest: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(rest);
    let exptime = tokens.next().unwrap_or_default();
    let rest = tokens.rest();
    if rest.is_empty() {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let exptime = number_i32(exptime).ok_or_else(|| Refusal::says(reply::BAD_EXPTIME))?;
    Ok(Request::Get(Get { verb, exptime, keys: keys(rest)? }))
}

/// `set <key> <flags> <exptime> <bytes> [noreply]`, and `cas`, which has its id before `noreply`.
/// Words behind these are not looked at; `noreply` is the last of the line, as in memcached.
///
/// A line that announces a length never lets the value behind it be read as requests, whatever else
/// is wrong with it: whoever chooses a value would choose commands.
fn store<'a>(mut verb: StoreVerb, rest: &'a [u8], limits: &Limits) -> Outcome<'a> {
    let ([key, flags, exptime, length, id], _) = Tokens::new(rest).take_array::<5>();
    let noreply = is_noreply(rest);
    let Some(value_bytes) = value_bytes(length) else {
        return Err(Refusal::says(reply::BAD_FORMAT).close());
    };
    let bad_format = Refusal::says_unless(noreply, reply::BAD_FORMAT);
    let exptime = number_i64(without_plus(exptime));
    let (Some(flags), Some(exptime)) = (client_flags(flags), exptime) else {
        return Err(bad_format.swallow(value_bytes));
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(bad_format.swallow(value_bytes));
    }
    if let StoreVerb::Cas(cas) = &mut verb {
        let Some(id) = number_u64(id) else {
            return Err(bad_format.swallow(value_bytes));
        };
        *cas = id;
    }
    if !limits.item_fits(key.len(), flags, value_bytes) {
        let is_set = verb == StoreVerb::Set;
        let unlink = is_set.then_some(MetaKey { token: key, base64: false });
        let refusal = Refusal::says_unless(noreply, reply::TOO_LARGE).swallow(value_bytes);
        return Err(Refusal { unlink, ..refusal });
    }
    Ok(Request::Store(Store { verb, key, flags, exptime, value_bytes, noreply }))
}

/// A number of 32 bits, which may have a plus sign, or a minus sign where it is 0.
fn client_flags(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"-").unwrap_or(without_plus(text));
    number_u32(digits).filter(|&flags| flags == 0 || text[0] != b'-')
}

/// `incr <key> <delta> [noreply]`
fn arith(increment: bool, rest: &[u8]) -> Outcome<'_> {
    let ([key, delta], count) = Tokens::new(rest).take_array::<2>();
    if count < 2 {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let noreply = is_noreply(rest);
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::says_unless(noreply, reply::BAD_FORMAT));
    }
    let wrong = || Refusal::says_unless(noreply, reply::BAD_DELTA);
    let delta = number_u64(delta).ok_or_else(wrong)?;
    Ok(Request::Arith(Arith { increment, key, delta, noreply }))
}

/// Words behind the key of a `delete` that are passed over.
const DELETE_WORDS_MAX: usize = 3;

/// `delete <key> [noreply]`; old clients send a 0 behind the key.
fn delete(rest: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(rest);
    let key = tokens.next().ok_or_else(|| Refusal::says(reply::BAD_FORMAT))?;
    let noreply = is_noreply(tokens.rest());
    // memcached passes over any number of words; its clients' own suite wants this many refused.
    let words = tokens.take(DELETE_WORDS_MAX + 1).count();
    if key.len() > KEY_BYTES_MAX || words > DELETE_WORDS_MAX {
        return Err(Refusal::says_unless(noreply, reply::BAD_FORMAT));
    }
    Ok(Request::Delete(Delete { key, noreply }))
}

/// `touch <key> <exptime> [noreply]`
fn touch(rest: &[u8]) -> Outcome<'_> {
    let ([key, exptime], count) = Tokens::new(rest).take_array::<2>();
    if count < 2 {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let noreply = is_noreply(rest);
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::says_unless(noreply, reply::BAD_FORMAT));
    }
    let wrong = || Refusal::says_unless(noreply, reply::BAD_EXPTIME);
    let exptime = number_i32(exptime).ok_or_else(wrong)?;
    Ok(Request::Touch(Touch { key, exptime, noreply }))
}

/// `flush_all [delay] [noreply]`
fn flush_all(rest: &[u8]) -> Outcome<'_> {
    let ([delay], count) = Tokens::new(rest).take_array::<1>();
    let noreply = is_noreply(rest);
    if count == usize::from(noreply) {
        return Ok(Request::FlushAll { delay: None, noreply });
    }
    let wrong = || Refusal::says_unless(noreply, reply::BAD_EXPTIME);
    let delay = number_i32(delay).ok_or_else(wrong)?;
    Ok(Request::FlushAll { delay: Some(delay), noreply })
}

/// `verbosity <level> [noreply]`
fn verbosity(rest: &[u8]) -> Outcome<'_> {
    let noreply = is_noreply(rest);
    let wrong = || Refusal::says_unless(noreply, reply::BAD_FORMAT);
    let level = Tokens::new(rest).next().and_then(number_u32).ok_or_else(wrong)?;
    Ok(Request::Verbosity { level, noreply })
}

/// `cache_memlimit <megabytes> [noreply]`
fn memory_limit(rest: &[u8]) -> Outcome<'_> {
    let noreply = is_noreply(rest);
    let wrong = || Refusal::says_unless(noreply, reply::ERROR);
    let megabytes = Tokens::new(rest).next().and_then(number_u32).ok_or_else(wrong)?;
    Ok(Request::MemoryLimit { megabytes: u64::from(megabytes), noreply })
}

/// `shutdown [graceful]`
fn shutdown(rest: &[u8]) -> Outcome<'_> {
    match Tokens::new(rest).take_array::<1>() {
        (_, 0) => Ok(Request::Shutdown(ShutdownMode::Now)),
        ([b"graceful"], 1) => Ok(Request::Shutdown(ShutdownMode::Graceful)),
        _ => Ok(Request::Shutdown(ShutdownMode::Unknown)),
    }
}
