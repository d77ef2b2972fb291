//! Rust source without its comments and literals, and which of its lines are tests.
//!
//! proc-macro2 reads it, so that no word in a string is taken for code. Every byte keeps its place;
//! blanked ones become spaces.

use proc_macro2::{TokenStream, TokenTree};

/// The code of one file.
#[derive(Default)]
pub struct Code {
    /// The text with comments, strings and characters blanked.
    pub text: String,
    /// It cannot be read as tokens: the text is as it is.
    pub is_unread: bool,
    /// For each line, whether it belongs to a test.
    test_lines: Vec<bool>,
}

impl Code {
    pub fn of(path: &str, source: &str) -> Code {
        let blanked = blank(source);
        let is_unread = blanked.is_none();
        let text = blanked.unwrap_or_else(|| source.to_owned());
        let whole = is_test_path(path);
        let mut test_lines = vec![whole; text.lines().count() + 1];
        if !whole {
            for (first, last) in test_items(&text) {
                test_lines[first..=last].fill(true);
            }
        }
        Code { text, is_unread, test_lines }
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

/// Comments and literals as spaces, but for numbers; none where it is no Rust.
fn blank(source: &str) -> Option<String> {
    let tokens = source.parse::<TokenStream>().ok()?;
    let mut out: Vec<u8> = source.bytes().map(|b| if b == b'\n' { b } else { b' ' }).collect();
    copy(tokens, source, &mut out);
    Some(String::from_utf8(out).expect("tokens are whole characters"))
}

/// Puts the tokens where they stand in their source.
fn copy(tokens: TokenStream, source: &str, out: &mut [u8]) {
    for token in tokens {
        let text = &source[token.span().byte_range()];
        let spans = match token {
            // A doc comment is the tokens of an attribute, each of which has the place of all.
            _ if text.starts_with("//") || text.starts_with("/*") => continue,
            TokenTree::Literal(_) if !text.starts_with(|c: char| c.is_ascii_digit()) => continue,
            TokenTree::Group(group) => {
                copy(group.stream(), source, out);
                [group.span_open(), group.span_close()]
            }
            other => [other.span(); 2],
        };
        for range in spans.map(|span| span.byte_range()) {
            out[range.clone()].copy_from_slice(&source.as_bytes()[range]);
        }
    }
}
