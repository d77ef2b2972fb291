//! Inline commands, for whoever types them: words with quotes and escapes, written again as an
//! array, so that there is one form to serve. (The quoting is that of Redis' `sdssplitargs`.)

use crate::reply::{Sink, put_u64};
use alloc::vec::Vec;

/// A quote is not closed, or something stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unbalanced;

/// Writes the words of `line` as an array of bulk strings behind `out`. Returns how many they are;
/// of none, nothing is written.
pub fn transcribe(line: &[u8], out: &mut Vec<u8>) -> Result<u32, Unbalanced> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // A vertical tab is a space to C, and not to Rust.
        if let [0x0b, behind @ ..] = rest {
            rest = behind;
            continue;
        }
        if rest.is_empty() {
            break;
        }
        let (word, behind) = word(rest)?;
        words.push(word);
        rest = behind;
    }
    if words.is_empty() {
        return Ok(0);
    }
    out.put(b"*");
    put_u64(out, words.len() as u64);
    out.put(b"\r\n");
    for word in &words {
        super::reply::put_bulk(out, word);
    }
    Ok(words.len() as u32)
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The word at the front, and what stands behind it.
fn word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Ok((word, rest)),
            // A zero ends the line for C.
            [0, ..] => return Ok((word, &[])),
            [byte, ..] if is_space(*byte) => return Ok((word, rest)),
            [b'"', behind @ ..] => return quoted(word, behind),
            [b'\'', behind @ ..] => return single_quoted(word, behind),
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

/// What stands behind a closing quote is a space, or nothing.
fn closed(word: Vec<u8>, rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(Unbalanced),
        _ => Ok((word, rest)),
    }
}

fn quoted(mut word: Vec<u8>, mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    loop {
        let (byte, behind) = match rest {
            [] => return Err(Unbalanced),
            [b'"', behind @ ..] => return closed(word, behind),
            [b'\\', b'x', high, low, behind @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), behind)
            }
            [b'\\', escaped, behind @ ..] => (unescaped(*escaped), behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

fn single_quoted(mut word: Vec<u8>, mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    loop {
        let (byte, behind) = match rest {
            [] => return Err(Unbalanced),
            [b'\'', behind @ ..] => return closed(word, behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

const fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
