//! Holds the parser to `vectors.txt`, row by row.
//!
//! A row is an input, a tab and the verdict on it. In the input `\r`, `\n`, `\t`, `\\` and `\xNN`
//! mean what they do in C, and `\(N)c` is the byte `c`, N times. Empty lines and those that begin
//! with `#` are comments. The verdicts are described in `common`.

use crate::common::verdict;

/// The bytes that the input column stands for.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, tail) = rest.split_first().expect("something behind the backslash");
        rest = tail;
        match escape {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = str::from_utf8(&rest[..2]).expect("two hexadecimal digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                rest = &rest[2..];
            }
            b'(' => {
                let close = rest.iter().position(|&b| b == b')').expect("a closing parenthesis");
                let count = str::from_utf8(&rest[..close]).expect("a count").parse();
                bytes.extend(std::iter::repeat_n(rest[close + 1], count.expect("a count")));
                rest = &rest[close + 2..];
            }
            other => panic!("unknown escape \\{}", char::from(other)),
        }
    }
    bytes
}

#[test]
fn every_vector_has_its_verdict() {
    let rows = include_str!("../vectors.txt");
    let mut wrong = Vec::new();
    let mut count = 0;
    for (number, row) in rows.lines().enumerate() {
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        count += 1;
        let (input, expected) = row.split_once('\t').unwrap_or((row, ""));
        let actual = verdict(&unescape(input));
        if actual != expected {
            wrong.push(format!("{}: {input}\t{actual}\n  instead of\t{expected}", number + 1));
        }
    }
    assert!(count > 200, "only {count} rows: was the file cut?");
    assert!(wrong.is_empty(), "{} of {count} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
