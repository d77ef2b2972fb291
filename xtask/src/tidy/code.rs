//! Rust source without its comments and literals, and which of its lines are tests.
//!
//! A lexer only so far as needed not to take a word in a string for code. Every character keeps its
//! line; blanked ones become spaces.

/// The code of one file.
#[derive(Default)]
pub struct Code {
    /// The text with comments, strings and characters blanked.
    pub text: String,
    /// For each line, whether it belongs to a test.
    test_lines: Vec<bool>,
}

impl Code {
    pub fn of(path: &str, source: &str) -> Code {
        let text = blank(source);
        let whole = is_test_path(path);
        let mut test_lines = vec![whole; text.lines().count() + 1];
        if !whole {
            for (first, last) in test_items(&text) {
                test_lines[first..=last].fill(true);
            }
        }
        Code { text, test_lines }
    }

    /// Lines with their number from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether a line, from 1, belongs to a test.
    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// The code with the tests blanked too.
    pub fn without_tests(&self) -> String {
        let kept = |(line, text)| if self.is_test(line) { "" } else { text };
        self.lines().map(kept).collect::<Vec<_>>().join("\n")
    }
}

/// Whether a file is a test as a whole.
pub fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Whether a character can stand in an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in `text` as a whole word.
pub fn word_positions(text: &str, word: &str) -> Vec<usize> {
    let whole = |at: &usize| {
        let before = text[..*at].chars().next_back();
        let after = text[*at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    text.match_indices(word).map(|(at, _)| at).filter(whole).collect()
}

/// The line, from 1, of a byte position.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The `{` of the item that begins at `at`, unless a `;` ends it first.
fn body_start(text: &str, at: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in text[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at + offset),
            ';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

fn matching_brace(text: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return open + offset,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The lines, from 0, of every item under `#[cfg(test)]` or the like, and of every `#[test]`.
fn test_items(text: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    for (at, _) in text.match_indices("#[") {
        let Some(length) = text[at..].find(']') else { continue };
        let attribute = &text[at..at + length];
        let test = attribute == "#[test"
            || (attribute.starts_with("#[cfg(")
                && !attribute.contains("not(test")
                && !word_positions(attribute, "test").is_empty());
        if !test {
            continue;
        }
        let after = at + length + 1;
        let end = match body_start(text, after) {
            Some(open) => matching_brace(text, open),
            None => text[after..].find(';').map_or(text.len(), |offset| after + offset),
        };
        items.push((line_of(text, at) - 1, line_of(text, end) - 1));
    }
    items
}

/// Comments and literals as spaces.
fn blank(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let blanked = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            '\'' => character(rest),
            'r' | 'b' | 'c' if !is_word(previous) => prefixed(rest),
            _ => 0,
        };
        if blanked == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let kept = |c: char| if c == '\n' { '\n' } else { ' ' };
            out.extend(rest[..blanked].chars().map(kept));
            rest = &rest[blanked..];
        }
        previous = c;
    }
    out
}

/// The length of a comment that may hold others.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a string that begins with its quote.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The character after the backslash may itself be a quote.
            text[3..].find('\'').map_or(text.len(), |offset| 3 + offset + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// The length of `r"..."`, `br#"..."#`, `b"..."`, `b'x'`; 0 if it is only a word.
fn prefixed(text: &str) -> usize {
    let letters = text.bytes().take_while(|b| b"rbc".contains(b)).count().min(2);
    let rest = &text[letters..];
    let raw = text[..letters].contains('r');
    let hashes = rest.bytes().take_while(|b| *b == b'#').count();
    if raw && rest[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let begin = letters + hashes + 1;
        return text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len());
    }
    match rest.chars().next() {
        Some('"') if !raw => letters + string(rest),
        Some('\'') if text.starts_with("b'") => letters + character(rest),
        _ => 0,
    }
}
