//! What may be written for each kind of value, how it is read, and how it is told again.

use super::flag::Field;
use super::foreign::{self, Refused};
use std::ffi::OsStr;

/// Take a value that somebody typed, or wrote into the environment.
pub fn put(field: Field<'_>, value: &OsStr) -> Result<(), Refused> {
    if let Field::Path(path) = field {
        *path = Some(value.to_owned());
        return Ok(());
    }
    let text = value.to_str().ok_or_else(|| format!("{} is not UTF-8", value.to_string_lossy()))?;
    match field {
        Field::Switch(on) => *on = is_on(text)?,
        Field::Count(times) => {
            *times = text.trim().parse().map_err(|_| format!("{text} is not a number"))?;
        }
        Field::Number(number) => {
            if !number.read(text) {
                let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
                let way_out = match is_whole || number.is_decimal() {
                    true => "",
                    false => "; write digits alone",
                };
                Err(format!("{text} is not a number this flag can take{way_out}"))?;
            }
        }
        Field::Bytes(size) => *size = Some(bytes(text)?),
        Field::Megabytes(size) => *size = Some(megabytes(text)?),
        Field::Octal(mask) => *mask = Some(octal(text)?),
        Field::Text(words) | Field::TextOrNumber(words) => *words = Some(text.to_owned()),
        Field::List(list) => list.push(text.to_owned()),
        Field::Extended(keys) => keys.read(text)?,
        Field::Protocol(name) => *name = Some(foreign::protocol(text)?),
        Field::Path(_) => unreachable!("a path was taken above"),
    }
    Ok(())
}

/// Forget what an earlier place said.
pub fn clear(field: Field<'_>) {
    match field {
        Field::Switch(on) => *on = false,
        Field::Count(times) => *times = 0,
        Field::Number(number) => number.clear(),
        Field::Bytes(size) | Field::Megabytes(size) => *size = None,
        Field::Octal(mask) => *mask = None,
        Field::Text(words) | Field::TextOrNumber(words) | Field::Protocol(words) => *words = None,
        Field::Path(path) => *path = None,
        Field::List(list) => list.clear(),
        Field::Extended(keys) => keys.clear(),
    }
}

/// A value as it stands in a TOML file; none where there is none.
pub fn toml(field: Field<'_>) -> Option<String> {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    match field {
        Field::Switch(on) => on.then(|| "true".to_owned()),
        Field::Count(times) => (*times > 0).then(|| times.to_string()),
        Field::Number(number) => number.told(),
        Field::Bytes(size) => size.map(|size| size.to_string()),
        Field::Megabytes(size) => size.map(|size| match size % (1 << 20) {
            0 => (size >> 20).to_string(),
            _ => quoted(&format!("{}k", size >> 10)),
        }),
        Field::Octal(mask) => mask.map(|mask| quoted(&format!("{mask:o}"))),
        Field::Text(words) | Field::TextOrNumber(words) | Field::Protocol(words) => {
            words.as_deref().map(quoted)
        }
        Field::Path(path) => path.as_deref().map(|path| quoted(&path.to_string_lossy())),
        Field::List(list) => match &list[..] {
            [] => None,
            [one] => Some(quoted(one)),
            _ => Some(toml::Value::from(list.clone()).to_string()),
        },
        Field::Extended(keys) => keys.told().as_deref().map(quoted),
    }
}

/// What a file should hold there, in words.
pub fn expected(field: &Field<'_>) -> &'static str {
    match field {
        Field::Switch(_) => "true or false",
        Field::Count(_) => "a whole number, such as 2",
        Field::Number(number) if number.is_decimal() => "a number, such as 0.9",
        Field::Number(_) => "a whole number, such as 64",
        Field::Bytes(_) => "bytes, or a string with k, m or g, such as \"8m\"",
        Field::Megabytes(_) => "a number of MiB, or a string with k, m or g, such as \"4g\"",
        Field::Octal(_) => "a string in octal, such as \"0700\"",
        Field::Text(_) => "a string",
        Field::TextOrNumber(_) => "a number or a string",
        Field::Path(_) => "a string with a path",
        Field::List(_) => "a string, or an array of strings",
        Field::Extended(_) => "a string of keys, such as \"idle_timeout=60\"",
        Field::Protocol(_) => "\"auto\", \"ascii\" or \"binary\"",
    }
}

fn is_on(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        other => Err(format!("{other}: must be true or false; the flag alone means true")),
    }
}

fn octal(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| format!("{text} is not an access mask; write it in octal, such as 0700"))
}

/// Bytes of a number of MiB, or of a number with k, m or g behind it.
fn megabytes(text: &str) -> Result<u64, String> {
    let number = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => bytes(&format!("{text}m")),
        false => bytes(text),
    };
    let wrong = "is not an amount of memory; write MiB, or a number with k, m or g";
    number.map_err(|_| format!("{text} {wrong}"))
}

/// Bytes, with an optional k, m or g behind the number.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a size; write bytes, or a number with k, m or g");
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}
