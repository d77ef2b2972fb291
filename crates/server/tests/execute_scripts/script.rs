//! Reading scripts: see `tests/scripts/README.md`.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// One conversation.
pub struct Case {
    pub file: String,
    pub name: String,
    pub conditions: Vec<String>,
    pub steps: Vec<Numbered>,
}

impl Case {
    pub fn has(&self, condition: &str) -> bool {
        self.conditions.iter().any(|word| word == condition)
    }

    /// Bytes sent in all, about.
    pub fn sent_bytes(&self) -> usize {
        let sent = |step: &Numbered| match &step.does {
            Step::Send(text) => text.bytes(&Numbers::default()).map_or(0, |bytes| bytes.len()),
            _ => 0,
        };
        self.steps.iter().map(sent).sum()
    }
}

/// A step and the line of the file it stands on.
pub struct Numbered {
    pub line: usize,
    pub does: Step,
}

pub enum Step {
    Send(Text),
    Expect(Expect),
    Pass(u32),
    Closed,
}

pub struct Expect {
    pub text: Text,
    /// Any lines may stand before it.
    pub after_any: bool,
}

/// A line with its placeholders.
pub struct Text(Vec<Piece>);

enum Piece {
    Bytes(Vec<u8>),
    Number,
    Rest,
    Remembered { name: String, offset: i64 },
}

/// Numbers remembered by name.
#[derive(Default)]
pub struct Numbers(HashMap<String, u64>);

pub fn read(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let name = path.file_name().and_then(|name| name.to_str()).expect("a file's name");
    parse(name, &text)
}

pub fn parse(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if kind == "==" {
            let (file, name) = (file.to_owned(), rest.to_owned());
            cases.push(Case { file, name, conditions: Vec::new(), steps: Vec::new() });
            continue;
        }
        if line.is_empty() || kind.starts_with('#') || kind.starts_with('~') {
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{file}:{number}: before any case"));
        let expect = |after_any| Step::Expect(Expect { text: Text::parse(rest, true), after_any });
        let does = match kind {
            "$" => {
                case.conditions.extend(rest.split(' ').map(str::to_owned));
                continue;
            }
            ">" => Step::Send(Text::parse(rest, true)),
            ">>" => Step::Send(Text::parse(rest, false)),
            "<" => expect(false),
            "<~" => expect(true),
            "+" => Step::Pass(rest.parse().unwrap_or_else(|_| panic!("{file}:{number}: seconds"))),
            "!" if rest == "closed" => Step::Closed,
            _ => panic!("{file}:{number}: {line:?} is no line of a script"),
        };
        case.steps.push(Numbered { line: number, does });
    }
    cases
}

impl Text {
    fn parse(text: &str, newline: bool) -> Text {
        let mut pieces = vec![Piece::Bytes(Vec::new())];
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some((piece, length)) = placeholder(rest) {
                pieces.push(piece);
                pieces.push(Piece::Bytes(Vec::new()));
                rest = &rest[length..];
                continue;
            }
            let Some(Piece::Bytes(bytes)) = pieces.last_mut() else { unreachable!() };
            if let Some((byte, length)) = escape(rest) {
                bytes.push(byte);
                rest = &rest[length..];
            } else {
                bytes.extend_from_slice(first.to_string().as_bytes());
                rest = &rest[first.len_utf8()..];
            }
        }
        if newline {
            pieces.push(Piece::Bytes(b"\r\n".to_vec()));
        }
        Text(pieces)
    }

    /// The bytes to send.
    pub fn bytes(&self, numbers: &Numbers) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Bytes(more) => bytes.extend_from_slice(more),
                Piece::Remembered { name, offset } => {
                    let number =
                        numbers.0.get(name).ok_or(format!("no number is known as {name}"))?;
                    let number = number.wrapping_add_signed(*offset);
                    bytes.extend_from_slice(number.to_string().as_bytes());
                }
                Piece::Number | Piece::Rest => return Err("cannot be sent".to_owned()),
            }
        }
        Ok(bytes)
    }

    /// Where this ends in `out`, if it stands at the front, or (`after_any`) where a line begins.
    pub fn find(&self, out: &[u8], after_any: bool, numbers: &mut Numbers) -> Option<usize> {
        let mut start = 0;
        loop {
            if let Some(length) = self.length_in(&out[start..], numbers) {
                return Some(start + length);
            }
            if !after_any {
                return None;
            }
            start += out[start..].windows(2).position(|two| two == b"\r\n")? + 2;
        }
    }

    fn length_in(&self, out: &[u8], numbers: &mut Numbers) -> Option<usize> {
        let mut at = 0;
        for piece in &self.0 {
            let rest = &out[at..];
            at += match piece {
                Piece::Bytes(bytes) => rest.starts_with(bytes).then_some(bytes.len())?,
                Piece::Rest => rest.windows(2).position(|two| two == b"\r\n")?,
                Piece::Number => {
                    let sign = usize::from(rest.starts_with(b"-"));
                    sign + Some(digits(&rest[sign..])).filter(|&length| length > 0)?
                }
                Piece::Remembered { name, .. } => {
                    let length = digits(rest);
                    let number = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
                    if *numbers.0.entry(name.clone()).or_insert(number) != number {
                        return None;
                    }
                    length
                }
            };
        }
        Some(at)
    }
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// A placeholder at the front of `text`, and its length.
fn placeholder(text: &str) -> Option<(Piece, usize)> {
    let (inner, _) = text.strip_prefix('<')?.split_once('>')?;
    let piece = match inner {
        "NUM" => Piece::Number,
        "ANY" => Piece::Rest,
        _ => match inner.strip_prefix("CAS:") {
            Some(name) => {
                let at = name.find(['+', '-']).unwrap_or(name.len());
                let (name, offset) = name.split_at(at);
                let offset = if offset.is_empty() { 0 } else { offset.parse().ok()? };
                Piece::Remembered { name: name.to_owned(), offset }
            }
            None => {
                let (character, times) = inner.split_once('*')?;
                Piece::Bytes(character.repeat(times.parse().ok()?).into_bytes())
            }
        },
    };
    Some((piece, inner.len() + 2))
}

/// An escape at the front of `text`: its byte and length.
fn escape(text: &str) -> Option<(u8, usize)> {
    let mut rest = text.strip_prefix('\\')?.chars();
    Some(match rest.next()? {
        'r' => (b'\r', 2),
        'n' => (b'\n', 2),
        't' => (b'\t', 2),
        '0' => (0, 2),
        '\\' => (b'\\', 2),
        'x' => (u8::from_str_radix(text.get(2..4)?, 16).ok()?, 4),
        _ => return None,
    })
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => {
                    let shown = &bytes[..bytes.len().min(100)];
                    write!(formatter, "{}", shown.escape_ascii())?;
                }
                Piece::Number => write!(formatter, "<NUM>")?,
                Piece::Rest => write!(formatter, "<ANY>")?,
                Piece::Remembered { name, .. } => write!(formatter, "<CAS:{name}>")?,
            }
        }
        Ok(())
    }
}
