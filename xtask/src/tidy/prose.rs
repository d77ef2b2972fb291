//! Prose: the sentences of pages and of module docs are short on the average, and each has a verb
//! and a subject.
//!
//! The check is a modest one. Words count as verbs by a list (`verbs.toml`), so a fragment may
//! pass, and what fails is bad. A sentence that begins with a verb of the third person ("Knows no
//! clock.") has no subject; the first sentence of a module's doc may begin so, as rustdoc has it.
//! No sentences are headings, tables, code, labels (a bold beginning, or a term and a colon), and
//! what ends in no full stop. The average is that of a page, or of all module docs of a crate.
//! The list of exceptions argues each of its entries; one that excepts nothing is a finding, too.

use super::code::is_test_path;
use super::{Finding, Tree};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Where the exceptions stand.
const EXCEPTIONS: &str = "xtask/prose-exceptions.toml";
/// The most words that a sentence may have on the average.
const WORDS_MEAN_MAX: usize = 22;
const LENGTH: &str = "prose-length";
const VERB: &str = "prose-verb";
const SUBJECT: &str = "prose-subject";
const STALE: &str = "prose-exception";

const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// A list of links.
const SUMMARY: &str = "docs/SUMMARY.md";

/// What stands for a span of code.
const CODE: &str = "CODE";
const QUOTES: [char; 5] = ['"', '\'', ')', '”', '’'];
const MARKS: &str = ".,;:()\"'“”‘’?!…";
const ABBREVIATIONS: [&str; 9] =
    ["e.g.", "i.e.", "etc.", "vs.", "cf.", "al.", "St.", "No.", "Fig."];
/// The endings of verbs, and what the base form has in place of each.
const ENDINGS: [(&str, &[&str]); 5] =
    [("ies", &["y"]), ("es", &["", "e"]), ("s", &[""]), ("ied", &["y"]), ("ed", &["", "e"])];

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    let words = Words::read();
    let mut complaints = Vec::new();
    // Sentences and words of a page or a crate.
    let mut sums: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in &tree.files {
        let Some(place) = place_of(&file.path) else { continue };
        let lines = match file.is_rust() {
            true => module_doc(&file.text),
            false => file.text.lines().collect(),
        };
        for paragraph in paragraphs(&lines) {
            let (text, is_labelled) = unlabelled(&paragraph.text);
            let text = plain(text);
            for (index, sentence) in sentences(&text).iter().enumerate() {
                let sum = sums.entry(place.clone()).or_default();
                *sum = (sum.0 + 1, sum.1 + sentence.len());
                let is_first = index == 0;
                if is_labelled && is_first || !is_sentence(sentence) {
                    continue;
                }
                let is_summary = file.is_rust() && paragraph.line == 1 && is_first;
                if let Some((rule, why)) = words.complaint(sentence, is_summary) {
                    let text = format!("{why}: {}", sentence.join(" "));
                    let (subject, line) = (file.path.clone(), paragraph.line);
                    complaints.push(Finding { rule, subject, line, text });
                }
            }
        }
    }
    for (subject, (count, words)) in sums {
        if WORDS_MEAN_MAX * count < words {
            let text = format!(
                "{count} sentences have {words} words, more than {WORDS_MEAN_MAX} on the average"
            );
            complaints.push(Finding { rule: LENGTH, subject, line: 0, text });
        }
    }
    except(tree, complaints, found);
}

/// The file of exceptions.
#[derive(Default, Deserialize)]
struct Exceptions {
    #[serde(default, rename = "exception")]
    all: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: String,
    /// A page or a crate.
    place: String,
    reason: String,
}

/// Keeps the complaints that no exception names.
fn except(tree: &Tree, complaints: Vec<Finding>, found: &mut Vec<Finding>) {
    let mut stale = |text: String| {
        found.push(Finding { rule: STALE, subject: EXCEPTIONS.to_owned(), line: 0, text });
    };
    let list = tree.file(EXCEPTIONS).map_or("", |file| &file.text);
    let Exceptions { all } = toml::from_str(list).unwrap_or_else(|why| {
        stale(why.to_string());
        Exceptions::default()
    });
    for Exception { rule, place, reason } in &all {
        let names = |finding: &Finding| finding.rule == *rule && finding.subject == *place;
        if reason.trim().is_empty() || !complaints.iter().any(names) {
            stale(format!("{rule} {place} excepts nothing, or gives no reason"));
        }
    }
    let is_excepted = |finding: &Finding| {
        all.iter().any(|one| finding.rule == one.rule && finding.subject == one.place)
    };
    found.extend(complaints.into_iter().filter(|finding| !is_excepted(finding)));
}

/// The page or the crate whose average a file is part of; none for a file without prose.
fn place_of(path: &str) -> Option<String> {
    if path.ends_with(".md") {
        let is_page = PAGES.contains(&path) || path.starts_with("docs/") && path != SUMMARY;
        return is_page.then(|| path.to_owned());
    }
    if !path.ends_with(".rs") || is_test_path(path) {
        return None;
    }
    let mut parts = path.split('/');
    match (parts.next()?, parts.next()?) {
        ("xtask", "src") => Some("xtask".to_owned()),
        ("crates", name) if path.contains("/src/") => Some(format!("crates/{name}")),
        _ => None,
    }
}

/// The doc of a module without its marks.
fn module_doc(text: &str) -> Vec<&str> {
    let is_before = |line: &&str| {
        let is_comment = line.starts_with("//") || line.starts_with("#!");
        !line.starts_with("//!") && (is_comment || line.trim().is_empty())
    };
    let doc = text.lines().skip_while(is_before).map_while(|line| line.strip_prefix("//!"));
    doc.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect()
}

/// Lines that belong together, and the number of the first, from 1.
struct Paragraph {
    line: usize,
    text: String,
}

fn paragraphs(lines: &[&str]) -> Vec<Paragraph> {
    let mut all: Vec<Paragraph> = Vec::new();
    let (mut is_open, mut is_fenced) = (false, false);
    for (index, raw) in lines.iter().enumerate() {
        let line = raw.trim();
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            is_open = false;
            continue;
        }
        if is_fenced {
            continue;
        }
        let is_code = !is_open && raw.starts_with("    ");
        if line.is_empty() || line.starts_with(['|', '#', '!', '<']) || is_code {
            is_open = false;
            continue;
        }
        let item = item_of(line);
        if is_open
            && item.is_none()
            && let Some(last) = all.last_mut()
        {
            last.text.push(' ');
            last.text.push_str(line);
        } else {
            let text = item.unwrap_or(line).trim().to_owned();
            all.push(Paragraph { line: index + 1, text });
        }
        is_open = true;
    }
    all
}

/// What stands behind the mark of an item of a list.
fn item_of(line: &str) -> Option<&str> {
    if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(item);
    }
    let (number, item) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(item)
}

/// A paragraph without the bold label that it begins with, and whether the label ended in a colon.
fn unlabelled(text: &str) -> (&str, bool) {
    let Some((label, rest)) = text.strip_prefix("**").and_then(|text| text.split_once("**")) else {
        return (text, false);
    };
    if label.ends_with(['.', ':', '?']) {
        return (rest, label.ends_with(':'));
    }
    let behind = match rest.strip_prefix(" (").and_then(|rest| rest.split_once(')')) {
        Some((_, behind)) => behind,
        None => rest,
    };
    match behind.strip_prefix(['.', ':']) {
        Some(sentences) => (sentences, behind.starts_with(':')),
        None => (text, false),
    }
}

/// The text without code, the targets of links, and marks.
fn plain(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let mut plain: String =
        pieces.map(|(index, piece)| if index % 2 == 0 { piece } else { CODE }).collect();
    while let Some(open) = plain.find("](") {
        let close = plain[open..].find(')').map_or(plain.len(), |at| open + at + 1);
        plain.replace_range(open..close, "");
    }
    plain.retain(|c| !"[]*_".contains(c));
    plain
}

fn sentences(text: &str) -> Vec<Vec<&str>> {
    let (mut all, mut current) = (Vec::new(), Vec::new());
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        current.push(word);
        let goes_on = words.peek().is_some_and(|next| {
            next.trim_start_matches(['(', '"', '\'', '“']).starts_with(char::is_lowercase)
        });
        if is_end(word) && !goes_on {
            all.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        all.push(current);
    }
    all
}

/// Whether a word may end a sentence.
fn is_end(word: &str) -> bool {
    let core = word.trim_end_matches(QUOTES);
    core.ends_with(['.', '?', '!']) && !core.ends_with("..") && !ABBREVIATIONS.contains(&core)
}

/// No sentence has a term and a colon in front, points in the middle, or nothing but code.
fn is_sentence(words: &[&str]) -> bool {
    let is_whole =
        words.last().is_some_and(|last| last.trim_end_matches(QUOTES).ends_with(['.', '?', '!']));
    let is_code = |word: &&str| matches!(bare(word).as_str(), "code" | "and" | "or" | "");
    is_whole
        && !words.iter().take(4).any(|word| word.ends_with(':'))
        && !words.iter().any(|word| word.contains('·'))
        && !words.iter().all(is_code)
}

/// A word as the lists have it.
fn bare(word: &str) -> String {
    word.trim_matches(|c: char| MARKS.contains(c)).to_lowercase().replace('’', "'")
}

/// The lists of `verbs.toml`.
struct Words {
    forms: BTreeSet<String>,
    verbs: BTreeSet<String>,
    lonely: BTreeSet<String>,
}

impl Words {
    fn read() -> Words {
        let lists: BTreeMap<String, String> =
            toml::from_str(include_str!("verbs.toml")).expect("lists of words");
        let set = |name: &str| lists[name].split_whitespace().map(str::to_owned).collect();
        Words { forms: set("forms"), verbs: set("verbs"), lonely: set("lonely") }
    }

    fn complaint(&self, words: &[&str], is_summary: bool) -> Option<(&'static str, &'static str)> {
        let words: Vec<String> =
            words.iter().map(|word| bare(word)).filter(|word| !word.is_empty()).collect();
        let first = words.first()?;
        if !words.iter().any(|word| self.is_verb(word)) {
            return Some((VERB, "no verb"));
        }
        let is_lonely = !is_summary && self.lonely.contains(first.as_str());
        is_lonely.then_some((SUBJECT, "no subject"))
    }

    fn is_verb(&self, word: &str) -> bool {
        let is_base = |word: &str| self.verbs.contains(word);
        self.forms.contains(word)
            || is_base(word)
            || ENDINGS.iter().any(|(ending, instead)| {
                word.strip_suffix(*ending)
                    .is_some_and(|stem| instead.iter().any(|end| is_base(&format!("{stem}{end}"))))
            })
            || word.strip_suffix("ed").and_then(undoubled).is_some_and(is_base)
    }
}

/// `stop` for `stopp`.
fn undoubled(stem: &str) -> Option<&str> {
    let mut letters = stem.chars().rev();
    let last = letters.next()?;
    let is_double = letters.next()? == last && letters.next().is_some();
    is_double.then(|| &stem[..stem.len() - last.len_utf8()])
}
