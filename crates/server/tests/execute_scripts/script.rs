//! Reads a protocol script, and compares what comes with it; crates/server/tests/scripts/README.md
//! defines the form. The one reader: both runners of this crate's tests have it, and so has
//! `cargo xtask replay`.
//!
//! Knows no server: a script is a list of cases, a case a list of steps.
#![allow(dead_code)] // no runner uses all of it

#[path = "binary.rs"]
mod binary;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One conversation on a connection of its own.
#[derive(Debug)]
pub struct Case {
    /// `errors.txt: words missing`
    pub id: String,
    /// Of its name, from 1.
    pub line: usize,
    /// Words of its `$` lines.
    pub conditions: Vec<String>,
    pub steps: Vec<Step>,
}

impl Case {
    pub fn has(&self, condition: &str) -> bool {
        self.conditions.iter().any(|word| word == condition)
    }

    /// Bytes sent in all, about.
    pub fn sent_bytes(&self) -> usize {
        let sent = |step: &Step| match &step.act {
            Act::Send(text) => text.bytes(&Numbers::new()).map_or(0, |bytes| bytes.len()),
            _ => 0,
        };
        self.steps.iter().map(sent).sum()
    }
}

/// One line, from 1, and what it asks for.
#[derive(Debug)]
pub struct Step {
    pub line: usize,
    pub act: Act,
}

#[derive(Debug)]
pub enum Act {
    Send(Text),
    Expect(Expectation),
    /// So many seconds pass.
    Wait(u32),
    Closed,
}

/// A line of a reply.
#[derive(Debug)]
pub struct Expectation {
    pub text: Text,
    /// Whether other lines may stand before it.
    pub anywhere: bool,
    /// What memcached has in its place.
    pub memcached: Vec<Alternative>,
    /// It is a reply of the binary protocol, and no line.
    pub is_binary: bool,
}

/// A `~` line.
#[derive(Debug)]
pub struct Alternative {
    /// The version of memcached that it speaks of; none means every one.
    pub version: Option<String>,
    /// The line; none where nothing comes.
    pub text: Option<Text>,
}

impl Expectation {
    /// The lines, of which there may be none, that this version of memcached has in its place; or
    /// nothing where it answers as we do.
    pub fn instead(&self, version: &str) -> Option<Vec<&Text>> {
        let speaks = |line: &&Alternative| line.version.as_deref().is_none_or(|v| v == version);
        let lines: Vec<&Alternative> = self.memcached.iter().filter(speaks).collect();
        let texts = lines.iter().filter_map(|line| line.text.as_ref()).collect();
        (!lines.is_empty()).then_some(texts)
    }
}

/// Bytes with placeholders, and how they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    pub written: String,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Bytes(Vec<u8>),
    Number,
    RestOfLine,
    /// A remembered number, and what to add to it.
    Cas(String, i64),
    /// A remembered number, in eight bytes.
    Id(String),
    /// So many bytes, whatever they are.
    Any(usize),
}

/// Numbers remembered by name.
pub type Numbers = HashMap<String, u64>;

/// How a text and the bytes at hand compare.
pub enum Compared {
    /// It matches so many bytes, and these numbers are to be remembered.
    Same(usize, Numbers),
    /// More bytes could still make it match.
    Open,
    Differs,
}

/// The scripts of a folder, in order of their names.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    Ok(paths)
}

/// All cases of a file.
pub fn read_file(path: &Path) -> Result<Vec<Case>, String> {
    let name = path.file_name().map(Path::new).unwrap_or(path).display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    read(&name, &text)
}

/// All cases of the file `name`.
pub fn read(name: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        read_line(name, number, line, &mut cases)
            .map_err(|why| format!("{name}:{number}: {why}"))?;
    }
    Ok(cases)
}

fn read_line(name: &str, line: usize, text: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    let (mark, rest) = text.split_once(' ').unwrap_or((text, ""));
    if mark == "==" {
        let id = format!("{name}: {rest}");
        if cases.iter().any(|case| case.id == id) {
            return Err(format!("a second case `{rest}`"));
        }
        cases.push(Case { id, line, conditions: Vec::new(), steps: Vec::new() });
        return Ok(());
    }
    let case = cases.last_mut().ok_or("before the first case")?;
    let act = match mark {
        "$" => {
            case.conditions.extend(rest.split_whitespace().map(String::from));
            return Ok(());
        }
        _ if mark.starts_with('~') => return alternative(&mark[1..], rest, case),
        ">" => Act::Send(Text::read(rest)?.and_end()),
        ">>" => Act::Send(Text::read(rest)?),
        "*>" => Act::Send(Text::request(rest)?),
        "b>" => Act::Send(binary::request(rest)?),
        "b<" => Act::Expect(Expectation {
            text: binary::reply(rest)?,
            anywhere: false,
            memcached: Vec::new(),
            is_binary: true,
        }),
        "<" | "<~" => Act::Expect(Expectation {
            text: Text::read(rest)?.and_end(),
            anywhere: mark == "<~",
            memcached: Vec::new(),
            is_binary: false,
        }),
        "+" => Act::Wait(rest.parse().map_err(|_| format!("`{rest}` is no number of seconds"))?),
        "!" if rest == "closed" => Act::Closed,
        _ => return Err(format!("a line cannot begin with `{mark}`")),
    };
    case.steps.push(Step { line, act });
    Ok(())
}

/// `~ text -- reason` or `~version text -- reason`: what stands before the last ` -- `, or nothing.
fn alternative(version: &str, rest: &str, case: &mut Case) -> Result<(), String> {
    let whole = format!(" {rest}");
    let (text, reason) = whole.rsplit_once(" -- ").ok_or("a `~` line needs ` -- reason`")?;
    if reason.trim().is_empty() {
        return Err("a `~` line needs a reason".into());
    }
    let Some(Step { act: Act::Expect(expectation), .. }) = case.steps.last_mut() else {
        return Err("a `~` line follows a `<` line".into());
    };
    let version = Some(version.to_owned()).filter(|version| !version.is_empty());
    let text = text.strip_prefix(' ').map(|text| match expectation.is_binary {
        true => binary::reply(text),
        false => Text::read(text).map(Text::and_end),
    });
    expectation.memcached.push(Alternative { version, text: text.transpose()? });
    Ok(())
}

impl Text {
    fn read(written: &str) -> Result<Text, String> {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = written;
        while let Some(c) = rest.chars().next() {
            if let Some((part, length)) = placeholder(rest) {
                match part {
                    Part::Bytes(more) => bytes.extend(more),
                    other => {
                        parts.push(Part::Bytes(std::mem::take(&mut bytes)));
                        parts.push(other);
                    }
                }
                rest = &rest[length..];
            } else if c == '\\' {
                let (byte, length) = escape(rest)?;
                bytes.push(byte);
                rest = &rest[length..];
            } else {
                bytes.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
                rest = &rest[c.len_utf8()..];
            }
        }
        parts.push(Part::Bytes(bytes));
        parts.retain(|part| *part != Part::Bytes(Vec::new()));
        Ok(Text { written: written.into(), parts })
    }

    /// RESP's request of these words, of which `""` is the empty one.
    fn request(written: &str) -> Result<Text, String> {
        let words: Vec<&str> = written.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = if word == "\"\"" { "" } else { word };
            let word = Text::read(word)?.bytes(&Numbers::new())?;
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend_from_slice(b"\r\n");
        }
        Ok(Text { written: written.into(), parts: vec![Part::Bytes(bytes)] })
    }

    fn and_end(mut self) -> Text {
        self.parts.push(Part::Bytes(b"\r\n".to_vec()));
        self
    }

    /// Compares it with the front of `input`.
    pub fn compare(&self, input: &[u8], numbers: &Numbers) -> Compared {
        let mut at = 0;
        let mut found = Numbers::new();
        for part in &self.parts {
            // A number may be below zero; one that is remembered never is.
            let below_zero = *part == Part::Number && input[at..].starts_with(b"-");
            at += usize::from(below_zero);
            let rest = &input[at..];
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            match part {
                Part::Bytes(bytes) if rest.starts_with(bytes) => at += bytes.len(),
                Part::Bytes(bytes) if bytes.starts_with(rest) => return Compared::Open,
                Part::Bytes(_) => return Compared::Differs,
                // Digits up to the end of what is there may go on.
                Part::Number | Part::Cas(..) if digits == rest.len() => return Compared::Open,
                Part::Number if digits == 0 => return Compared::Differs,
                Part::Number => at += digits,
                Part::Cas(name, step) => {
                    let Ok(text) = std::str::from_utf8(&rest[..digits]) else {
                        return Compared::Differs;
                    };
                    let Ok(number) = text.parse::<u64>() else { return Compared::Differs };
                    let number = number.wrapping_add_signed(-step);
                    let known = found.get(name).or_else(|| numbers.get(name)).copied();
                    if *found.entry(name.clone()).or_insert(known.unwrap_or(number)) != number {
                        return Compared::Differs;
                    }
                    at += digits;
                }
                Part::Any(count) if rest.len() < *count => return Compared::Open,
                Part::Any(count) => at += count,
                Part::Id(name) => {
                    let Some(bytes) = rest.first_chunk::<8>() else { return Compared::Open };
                    let number = u64::from_be_bytes(*bytes);
                    let known = found.get(name).or_else(|| numbers.get(name)).copied();
                    if *found.entry(name.clone()).or_insert(known.unwrap_or(number)) != number {
                        return Compared::Differs;
                    }
                    at += bytes.len();
                }
                Part::RestOfLine => match rest.windows(2).position(|pair| pair == b"\r\n") {
                    Some(length) => at += length,
                    None => return Compared::Open,
                },
            }
        }
        Compared::Same(at, found)
    }

    /// The bytes to send.
    pub fn bytes(&self, numbers: &Numbers) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            match part {
                Part::Bytes(more) => bytes.extend_from_slice(more),
                Part::Cas(name, step) => {
                    let number = numbers.get(name).ok_or_else(|| format!("no <CAS:{name}> yet"))?;
                    bytes.extend(number.wrapping_add_signed(*step).to_string().into_bytes());
                }
                Part::Id(name) => {
                    let number = numbers.get(name).ok_or_else(|| format!("no <CAS:{name}> yet"))?;
                    bytes.extend(number.to_be_bytes());
                }
                Part::Number | Part::RestOfLine | Part::Any(_) => {
                    return Err(format!("`{}` cannot be sent", self.written));
                }
            }
        }
        Ok(bytes)
    }

    /// Where this ends in `out`, if it stands at the front, or (`anywhere`) where a line begins.
    pub fn find(&self, out: &[u8], anywhere: bool, numbers: &mut Numbers) -> Option<usize> {
        let mut start = 0;
        loop {
            if let Compared::Same(length, found) = self.compare(&out[start..], numbers) {
                numbers.extend(found);
                return Some(start + length);
            }
            if !anywhere {
                return None;
            }
            start += out[start..].windows(2).position(|two| two == b"\r\n")? + 2;
        }
    }
}

fn escape(text: &str) -> Result<(u8, usize), String> {
    let unknown = || format!("no escape begins `{}`", text.chars().take(4).collect::<String>());
    match text.as_bytes().get(1).ok_or_else(unknown)? {
        b'r' => Ok((b'\r', 2)),
        b'n' => Ok((b'\n', 2)),
        b't' => Ok((b'\t', 2)),
        b'0' => Ok((0, 2)),
        b'\\' => Ok((b'\\', 2)),
        b'x' => {
            let digits = text.get(2..4).ok_or_else(unknown)?;
            u8::from_str_radix(digits, 16).map(|byte| (byte, 4)).map_err(|_| unknown())
        }
        _ => Err(unknown()),
    }
}

/// `<NUM>`, `<ANY>`, `<CAS:name+1>`, `<c*N>`, and its length; none if it is only a `<`.
fn placeholder(text: &str) -> Option<(Part, usize)> {
    let inside = text.strip_prefix('<')?;
    let end = inside.find('>')?;
    // A `>` may itself be the repeated character.
    let end = if inside.starts_with(">*") { 1 + inside[1..].find('>')? } else { end };
    let (inside, length) = (&inside[..end], end + 2);
    let part = match inside {
        "NUM" => Part::Number,
        "ANY" => Part::RestOfLine,
        _ if inside.starts_with("CAS:") => {
            let name = &inside["CAS:".len()..];
            let at = name.find(['+', '-']).unwrap_or(name.len());
            let step = if at == name.len() { 0 } else { name[at..].parse().ok()? };
            Part::Cas(name[..at].into(), step)
        }
        _ => {
            let mut chars = inside.chars();
            let repeated = chars.next()?;
            let count: usize = chars.as_str().strip_prefix('*')?.parse().ok()?;
            Part::Bytes(repeated.to_string().repeat(count).into_bytes())
        }
    };
    Some((part, length))
}
