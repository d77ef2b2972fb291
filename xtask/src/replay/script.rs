//! Reads a protocol script; crates/server/tests/scripts/README.md defines the form.
//!
//! Knows no server: a script is a list of cases, a case a list of steps.

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
    Wait(u64),
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
        "<" | "<~" => Act::Expect(Expectation {
            text: Text::read(rest)?.and_end(),
            anywhere: mark == "<~",
            memcached: Vec::new(),
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
    let text = text.strip_prefix(' ').map(|text| Text::read(text).map(Text::and_end));
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

    fn and_end(mut self) -> Text {
        self.parts.push(Part::Bytes(b"\r\n".to_vec()));
        self
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_read() {
        let text = "# c\n\n== a\n$ cas=off live=no\n> get <a*3>\n>> \\r\\x00\\0\n< VALUE <CAS:id>\n\
                    ~ END -- because\n~ -- and no more\n~1.6.18 OK -- was\n<~ STAT <NUM> <ANY>\n\
                    + 2\n! closed\n";
        let cases = read("f.txt", text).expect("a good script");
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].id, "f.txt: a");
        assert_eq!(cases[0].conditions, ["cas=off", "live=no"]);
        let Act::Send(text) = &cases[0].steps[0].act else { panic!("not a send") };
        assert_eq!(text.parts, [Part::Bytes(b"get aaa".to_vec()), Part::Bytes(b"\r\n".to_vec())]);
        let Act::Send(text) = &cases[0].steps[1].act else { panic!("not a send") };
        assert_eq!(text.parts, [Part::Bytes(b"\r\0\0".to_vec())]);
        let Act::Expect(expectation) = &cases[0].steps[2].act else { panic!("not expected") };
        assert_eq!(expectation.text.parts[1], Part::Cas("id".into(), 0));
        assert_eq!(expectation.instead("1.6.45").map(|lines| lines.len()), Some(1));
        assert_eq!(expectation.instead("1.6.18").map(|lines| lines.len()), Some(2));
        assert_eq!(cases[0].steps.len(), 6);
    }

    #[test]
    fn a_difference_without_a_line_stands_for_none() {
        let cases = read("f.txt", "== a\n< x\n~ -- no value\n").expect("a good script");
        let Act::Expect(expectation) = &cases[0].steps[0].act else { panic!("not expected") };
        assert_eq!(expectation.instead("1.6.45"), Some(Vec::new()));
    }

    #[test]
    fn a_difference_of_one_version_is_none_of_another() {
        let cases = read("f.txt", "== a\n< x\n~1.6.18 y -- older\n").expect("a good script");
        let Act::Expect(expectation) = &cases[0].steps[0].act else { panic!("not expected") };
        assert_eq!(expectation.instead("1.6.18").map(|lines| lines.len()), Some(1));
        assert_eq!(expectation.instead("1.6.45"), None);
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_line() {
        for bad in [
            "> a",
            "== a\n? b",
            "== a\n> a\n~ b -- c",
            "== a\n< b\n~ c",
            "== a\n== a",
            "== a\n> \\q",
        ] {
            let why = read("f.txt", bad).expect_err(bad);
            assert!(why.starts_with("f.txt:"), "{why}");
        }
    }
}
