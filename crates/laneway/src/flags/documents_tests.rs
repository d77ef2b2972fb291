//! The documents are read as a user reads them: every command line of `laneway` in README and in
//! docs/ is one that this program takes. It knows of Markdown only fenced blocks, tables and spans
//! of code, and of a shell only words, quotes, comments, lines that go on, and what ends a command.

use super::command_line::{all, row};
use super::{Asked, Flags, read, values};
use crate::asking::whom;
use crate::bench::STUDIES;
use crate::commands::COMMANDS;
use crate::{ask, backup, doctor, ping, serve, tier, top};
use laneway_load::cli;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Flags that are answered at once, and so have no row in the table.
const ANSWERED: [&str; 6] = ["-h", "-V", "-i", "--help", "--version", "--license"];
/// What may stand behind `laneway bench` besides flags and the names of studies.
const BENCHES: [&str; 2] = ["floor", "compare"];

/// README and the pages of docs/, each with its name.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root.join("docs")).expect("the documents are there") {
        let name = entry.expect("a folder is read to its end").file_name();
        let name = name.into_string().expect("names of documents are UTF-8");
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    let text = |name: &String| fs::read_to_string(root.join(name)).expect("a document is text");
    names.iter().map(|name| (name.clone(), text(name))).collect()
}

/// The lines of fenced blocks of shell, each with its number; one that goes on has the next behind
/// it.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_shell: Option<bool> = None;
    let mut begun: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            is_shell = match is_shell {
                None => Some(kind.split(' ').next() == Some("sh")),
                Some(_) => None,
            };
        } else if is_shell == Some(true) {
            let (number, before) = begun.take().unwrap_or((index + 1, String::new()));
            match line.strip_suffix('\\') {
                Some(head) => begun = Some((number, before + head)),
                None => found.push((number, before + line)),
            }
        }
    }
    found
}

/// A span of code within prose.
struct Span {
    /// The number of the line in which it begins.
    line: usize,
    in_table: bool,
    text: String,
}

/// The spans of code outside of fenced blocks; a span may go on in the next line of its paragraph.
fn spans(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut paragraph = String::new();
    let mut first = 1;
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().copied().chain([""]).enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        if !is_fence && !fenced && !line.trim().is_empty() {
            paragraph += line;
            paragraph.push('\n');
            continue;
        }
        let mut number = first;
        for (piece_index, piece) in paragraph.split('`').enumerate() {
            if piece_index % 2 == 1 {
                let in_table = lines[number - 1].starts_with('|');
                found.push(Span { line: number, in_table, text: piece.replace('\n', " ") });
            }
            number += piece.matches('\n').count();
        }
        paragraph.clear();
        first = index + 2;
        fenced ^= is_fence;
    }
    found
}

enum Token {
    Word(String),
    Operator(char),
}

/// The words into which a shell cuts a line; a comment ends them.
fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word = Some(word.take().unwrap_or_default());
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | ';' | '&' | '|' | '<' | '>') => {
                tokens.extend(word.take().map(Token::Word));
                if character != ' ' {
                    tokens.push(Token::Operator(character));
                }
            }
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    tokens.extend(word.map(Token::Word));
    tokens
}

/// The commands of a line, without the files that they read from and write to.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut command = Vec::new();
    let mut to_file = false;
    for token in tokens(line) {
        match token {
            Token::Word(_) if to_file => to_file = false,
            Token::Word(word) => command.push(word),
            Token::Operator('<' | '>') => to_file = true,
            Token::Operator(_) => commands.push(std::mem::take(&mut command)),
        }
    }
    commands.push(command);
    commands
}

/// The words behind `laneway` where a command is one of ours, however it is called.
fn of_laneway(words: &[String]) -> Option<&[String]> {
    let words = match words {
        [before, rest @ ..] if before == "sudo" => rest,
        [before, flag, _, rest @ ..] if before == "taskset" && flag == "-c" => rest,
        whole => whole,
    };
    match words {
        [program, rest @ ..] if program == "laneway" => Some(rest),
        [program, rest @ ..] if program == "target/release/laneway" => Some(rest),
        [cargo, run, release, dashes, rest @ ..]
            if [cargo, run, release, dashes] == ["cargo", "run", "--release", "--"] =>
        {
            Some(rest)
        }
        _ => None,
    }
}

/// What is wrong with the words behind `laneway`, if anything is.
fn complaint(words: &[String]) -> Option<String> {
    let (command, rest) = words.split_first()?;
    match command.as_str() {
        "serve" => of_serve(rest),
        "bench" => of_bench(rest),
        word if word.starts_with("--") => None,
        word if word.starts_with('-') => of_serve(words),
        word => of_tool(word, rest),
    }
}

/// What `--help` prints for a command that says there all that it takes.
fn help_of(command: &str) -> Option<String> {
    let help = match command {
        "stats" => ask::HELP,
        "top" => top::HELP,
        "ping" => ping::HELP,
        "backup" => backup::HELP,
        "doctor" => doctor::HELP,
        "fsck" | "scan" | "dump" | "load" => return Some(tier::help(command)),
        _ => return None,
    };
    Some(help.replace("{flags}", whom::HELP))
}

/// A command that is not there, or one of its flags, or statistics of a name that there is not.
fn of_tool(command: &str, rest: &[String]) -> Option<String> {
    if !COMMANDS.iter().any(|(name, _)| *name == command) {
        return Some(format!("no command is called {command}"));
    }
    let help = help_of(command)?;
    let is_said = |word: &str| {
        help.split(|c: char| c.is_whitespace() || ",;:[]()".contains(c)).any(|own| own == word)
    };
    for word in rest {
        let flag = word.split('=').next().unwrap_or_default();
        if flag.starts_with("--") && !ANSWERED.contains(&flag) && !is_said(flag) {
            return Some(format!("laneway {command} has no {flag}"));
        }
    }
    let family = rest.first().filter(|word| word.starts_with(char::is_lowercase))?;
    (command == "stats" && !is_said(family)).then(|| format!("there are no statistics {family}"))
}

fn of_serve(words: &[String]) -> Option<String> {
    let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
    // The file is on the reader's machine, and not on this one.
    if let Some(at) = words.iter().position(|word| word == "--config") {
        words.drain(at..words.len().min(at + 2));
    }
    match read(words, []) {
        Err(refused) => Some(refused.why),
        Ok(Asked::Serve(flags)) if !flags.warnings.is_empty() => Some(flags.warnings.join("; ")),
        Ok(Asked::Serve(mut flags)) => of_choices(&mut flags).or_else(|| of_settings(&flags)),
        Ok(Asked::Help | Asked::Version | Asked::Licence) => None,
    }
}

/// Flags that do not go together, or a value out of its bounds.
fn of_settings(flags: &Flags) -> Option<String> {
    // What these name is looked at, and lies on the reader's machine.
    let is_elsewhere = flags.auth_file.is_some()
        || flags.tls
        || flags.tls_cert.is_some()
        || flags.backup_dir.is_some();
    if is_elsewhere { None } else { serve::checked(flags).err() }
}

/// A value that is none of those that its flag has.
fn of_choices(flags: &mut Flags) -> Option<String> {
    for flag in all().filter(|flag| !flag.choices.is_empty()) {
        let Some(value) = values::toml((flag.field)(flags)) else { continue };
        let value = value.trim_matches('"');
        if !flag.choices.iter().any(|(choice, _)| *choice == value) {
            return Some(format!("--{}: there is no choice {value}", flag.name));
        }
    }
    None
}

fn of_bench(words: &[String]) -> Option<String> {
    match words.first() {
        Some(name) if !name.starts_with('-') => {
            let name = name.as_str();
            let is_known = BENCHES.contains(&name) || STUDIES.contains(&name);
            (!is_known).then(|| format!("laneway bench has no {name}"))
        }
        _ => cli::parse(words.iter().map(OsString::from).collect()).err(),
    }
}

/// Whether a word is typed as a flag, and not as a number below 0.
fn is_flag(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(name) => !name.is_empty(),
        None => word.len() == 2 && word.starts_with('-') && !word.ends_with(char::is_numeric),
    }
}

/// A flag of `serve` that there is not, among words of which some may be placeholders.
fn unknown_flag(words: &[String]) -> Option<String> {
    for word in words {
        let typed = word.split('=').next().unwrap_or_default();
        if is_flag(typed) && !ANSWERED.contains(&typed) && row(typed).is_none() {
            return Some(format!("{typed}: no flag of serve"));
        }
    }
    None
}

/// What is wrong with a span of code that is a command of ours; how it goes on may be left out.
fn of_span(span: &Span) -> Option<String> {
    let first = shell_commands(&span.text).into_iter().next()?;
    let words: &[String] = match first.first()?.as_str() {
        "serve" => &first,
        _ => of_laneway(&first)?,
    };
    let (command, rest) = words.split_first()?;
    match command.as_str() {
        "serve" if span.in_table && first[0] != "serve" => of_serve(rest),
        "serve" => unknown_flag(rest),
        word if word.starts_with('-') => None,
        word => of_tool(word, rest),
    }
}

/// The flags in the first column of tables whose heading is `flag`, each with its line's number.
fn flags_of_tables(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_of_flags = false;
    for (index, line) in text.lines().enumerate() {
        is_of_flags = line.starts_with('|') && (is_of_flags || line.starts_with("| flag |"));
        let cell = line.split('|').nth(1).filter(|_| is_of_flags).unwrap_or_default();
        for span in cell.split('`').skip(1).step_by(2) {
            found.extend(span.split(' ').next().map(|flag| (index + 1, flag.to_owned())));
        }
    }
    found
}

#[test]
fn every_command_of_the_documents_is_taken() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (name, text) in documents() {
        for (line, typed) in shell_lines(&text) {
            for command in shell_commands(&typed) {
                let Some(words) = of_laneway(&command) else { continue };
                looked_at += 1;
                let why = complaint(words);
                wrong.extend(why.map(|why| format!("{name}:{line}: {}: {why}", command.join(" "))));
            }
        }
        for span in spans(&text) {
            let why = of_span(&span);
            wrong.extend(why.map(|why| format!("{name}:{}: {}: {why}", span.line, span.text)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(looked_at > 20, "only {looked_at} commands were found");
}

#[test]
fn every_flag_that_operating_lists_is_one() {
    let documents = documents();
    let operating = documents.iter().find(|(name, _)| name == "docs/operating.md");
    let (_, text) = operating.expect("there is such a page");
    let flags = flags_of_tables(text);
    for (line, flag) in &flags {
        assert!(row(flag).is_some(), "docs/operating.md:{line}: {flag} is no flag of serve");
    }
    assert!(flags.len() > 60, "only {} flags were found", flags.len());
}

#[test]
fn a_wrong_command_is_found_with_its_line() {
    for (line, words) in [
        ("laneway serve -m 64 # --treshold", None),
        ("laneway serve --treshold 5", Some("did you mean --threshold?")),
        ("sudo laneway serve --design mions", Some("there is no choice mions")),
        ("laneway serve -m 64 -l 127.0.0.1, 10.0.0.1", Some("no flag stands before this word")),
        ("laneway serve -m 64 -n 48", Some("-n has no effect")),
        ("laneway -m many", Some("many")),
        ("laneway serve -a 0770", Some("there is no unix socket")),
        ("laneway serve -m 64 -I 64m", Some("must be at most half of -m")),
        ("laneway serve --config /no/such/file -m 64 &", None),
        ("laneway statistics", Some("no command is called statistics")),
        ("laneway stats lane", Some("there are no statistics lane")),
        ("laneway stats --login FILE hotkeys", None),
        ("laneway load DIR --ssd-size=1g -i FILE", None),
        ("laneway fsck DIR --repare", Some("laneway fsck has no --repare")),
        ("cat users; laneway serve -Y", Some("-Y")),
        ("laneway stats lanes > /no/such/file", None),
        ("cargo run --release -- serve --shm '/a b'", None),
        ("cargo run --release -- srve", Some("no command is called srve")),
        ("taskset -c 0 target/release/laneway bench --keys", Some("--keys: needs a value")),
        ("laneway bench comparison", Some("laneway bench has no comparison")),
        ("laneway bench designs --pairs 2", None),
        ("memcached --treshold", None),
    ] {
        let text = format!("# A page\n\n```sh\ntrue \\\n  && {line}\n```\n");
        let lines = shell_lines(&text);
        assert_eq!(lines.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4], "{line}");
        let commands = shell_commands(&lines[0].1);
        let told = commands.iter().find_map(|command| complaint(of_laneway(command)?));
        match words {
            None => assert_eq!(told, None, "{line}"),
            Some(words) => {
                assert!(told.as_deref().unwrap_or("").contains(words), "{line}: {told:?}")
            }
        }
    }
}

#[test]
fn a_wrong_span_is_found_with_its_line() {
    for (text, expected) in [
        ("Say `laneway\nstat`.", Some(1)),
        ("a `b`\n`laneway statt`", Some(2)),
        ("a\n\n```sh\n`\n```\n\nb\n`serve --shn PATH`", Some(8)),
        ("`serve --slice 64k|128k` and `serve -p PORT`, `laneway serve -V`", None),
        ("| `laneway serve -m many` |", Some(1)),
        ("`laneway serve -m MB`", None),
        ("`laneway`, `laneway-shm 1` and `laneway top --once`", None),
    ] {
        let wrong = spans(text).into_iter().find(|span| of_span(span).is_some());
        assert_eq!(wrong.map(|span| span.line), expected, "{text}");
    }
}
