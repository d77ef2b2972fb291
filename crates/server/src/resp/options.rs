//! Parses what stands behind a key or a value: options, numbers, times.

use crate::execute::redis::{
    Answer, Condition, Deadline, Expiry, ExpiryUnit, NO_INTEGER, Set, Short, When,
};
use laneway_wire::KEY_BYTES_MAX;
use laneway_wire::resp::{Args, BULK_BYTES_MAX, integer};
use std::borrow::Cow;

/// What the client is told: a whole error.
pub type Refusal = Cow<'static, [u8]>;

/// Redis' words.
pub const SYNTAX: &[u8] = b"-ERR syntax error\r\n";

/// Options of one request, at most: whoever sends more is wrong, and each takes a look.
pub const OPTIONS_MAX: u32 = 8;

/// What `IFEQ` compares with is longer.
pub const LONG_COMPARED: &[u8] = b"-ERR IFEQ compares with values of up to 64 bytes here\r\n";

/// Redis takes longer keys.
const KEY_TOO_LONG: &[u8] = b"-ERR the key is longer than 250 bytes, which this server takes\r\n";
const KEY_EMPTY: &[u8] = b"-ERR the key is empty, which this server does not take\r\n";
const _: () = assert!(KEY_BYTES_MAX == 250);

/// The longest name that a client may give itself.
const NAME_BYTES_MAX: usize = 256;
const BAD_NAME: &[u8] =
    b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n";
const LONG_NAME: &[u8] = b"-ERR Client names cannot be longer than 256 bytes here\r\n";

/// The key, if the store takes it.
pub fn key(key: &[u8]) -> Result<&[u8], Refusal> {
    match key.len() {
        0 => Err(KEY_EMPTY.into()),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err(KEY_TOO_LONG.into()),
    }
}

/// Whether a word is this one, in any case.
pub fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Whether a client may call itself so.
pub fn name_of(text: &[u8]) -> Result<&[u8], &'static [u8]> {
    match () {
        () if text.len() > NAME_BYTES_MAX => Err(LONG_NAME),
        () if text.iter().all(|byte| (b'!'..=b'~').contains(byte)) => Ok(text),
        () => Err(BAD_NAME),
    }
}

/// The longest pattern; no key is longer.
pub const PATTERN_BYTES_MAX: usize = 256;
/// What is told of a longer one.
pub const LONG_PATTERN: &[u8] = b"-ERR the pattern is longer than 256 bytes, and no key is\r\n";

/// A number.
pub fn number(text: &[u8]) -> Result<i64, Refusal> {
    integer(text).ok_or(NO_INTEGER.into())
}

/// Where in a value something begins.
pub fn offset(text: &[u8]) -> Result<usize, Refusal> {
    const BAD: &[u8] = b"-ERR offset is out of range\r\n";
    const FAR: &[u8] = b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    let at = usize::try_from(number(text)?).map_err(|_| Refusal::from(BAD))?;
    if at > BULK_BYTES_MAX { Err(FAR.into()) } else { Ok(at) }
}

fn bad_time(command: &str) -> Refusal {
    format!("-ERR invalid expire time in '{command}' command\r\n").into_bytes().into()
}

/// A time that is ahead.
pub fn deadline(unit: ExpiryUnit, text: &[u8], command: &str) -> Result<Expiry, Refusal> {
    let time = number(text)?;
    if time <= 0 {
        return Err(bad_time(command));
    }
    unit.deadline(time).map(Expiry::At).map_err(|_| bad_time(command))
}

/// A time that may be over.
pub fn any_deadline(unit: ExpiryUnit, text: &[u8], command: &str) -> Result<Deadline, Refusal> {
    unit.deadline(number(text)?).map_err(|_| bad_time(command))
}

fn unit(option: &[u8]) -> Option<ExpiryUnit> {
    Some(match () {
        () if is(option, "ex") => ExpiryUnit::Seconds,
        () if is(option, "px") => ExpiryUnit::Milliseconds,
        () if is(option, "exat") => ExpiryUnit::UnixSeconds,
        () if is(option, "pxat") => ExpiryUnit::UnixMilliseconds,
        () => return None,
    })
}

/// The options of `SET`.
pub fn of_set(mut options: Args<'_>) -> Result<Set, Refusal> {
    let mut how = Set::default();
    let syntax = || Refusal::from(SYNTAX);
    if options.left() > OPTIONS_MAX {
        return Err(syntax());
    }
    let mut time = None;
    while let Some(option) = options.next() {
        let has_condition = how.condition != Condition::Always;
        if is(option, "nx") && !(has_condition && how.condition != Condition::Absent) {
            how.condition = Condition::Absent;
        } else if is(option, "xx") && !(has_condition && how.condition != Condition::Present) {
            how.condition = Condition::Present;
        } else if is(option, "ifeq") && !has_condition {
            let wanted = Short::of(options.next().ok_or_else(syntax)?);
            how.condition = Condition::Equal(wanted.ok_or(Refusal::from(LONG_COMPARED))?);
        } else if is(option, "get") {
            how.answer = Answer::Old;
        } else if is(option, "keepttl") && time.is_none() {
            how.expiry = Expiry::Keep;
        } else if let Some(unit) = unit(option)
            && how.expiry != Expiry::Keep
            && time.is_none_or(|(before, _)| before == unit)
        {
            time = Some((unit, options.next().ok_or_else(syntax)?));
        } else {
            return Err(syntax());
        }
    }
    // Numbers are read once the rest is right, as in Redis.
    if let Some((unit, text)) = time {
        how.expiry = deadline(unit, text, "set")?;
    }
    Ok(how)
}

/// The options of `GETEX`: none leaves the expiry as it is.
pub fn of_getex(mut options: Args<'_>) -> Result<Expiry, Refusal> {
    let Some(option) = options.next() else { return Ok(Expiry::Keep) };
    let syntax = || Refusal::from(SYNTAX);
    match unit(option) {
        Some(unit) => {
            let text = options.next().ok_or_else(syntax)?;
            if options.left() > 0 {
                return Err(syntax());
            }
            deadline(unit, text, "getex")
        }
        None if is(option, "persist") && options.left() == 0 => Ok(Expiry::Never),
        None => Err(syntax()),
    }
}

/// The options of `EXPIRE`.
pub fn of_expire(options: Args<'_>) -> Result<When, Refusal> {
    let mut when = When::default();
    if options.left() > OPTIONS_MAX {
        return Err(SYNTAX.into());
    }
    for option in options {
        match () {
            () if is(option, "nx") => when.none = true,
            () if is(option, "xx") => when.some = true,
            () if is(option, "gt") => when.later = true,
            () if is(option, "lt") => when.sooner = true,
            () => {
                let mut out = Vec::new();
                let words = [b"ERR Unsupported option ", option].concat();
                laneway_wire::resp::reply::put_error(&mut out, &words);
                return Err(out.into());
            }
        }
    }
    if when.none && (when.some || when.later || when.sooner) {
        let words =
            &b"-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"[..];
        return Err(words.into());
    }
    if when.later && when.sooner {
        let words = &b"-ERR GT and LT options at the same time are not compatible\r\n"[..];
        return Err(words.into());
    }
    Ok(when)
}
