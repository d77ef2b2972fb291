//! The command line as words: which flag of the table each is, with its value as typed. Nothing is
//! read of a value yet, since a file and the environment come before it (`layers`).

use super::flag::{Field, Flag, Section};
use super::foreign::{self, Refused};
use super::table::{Flags, SECTIONS};
use super::values;
use lexopt::{Arg, Parser};
use std::ffi::OsString;

/// One flag with its value.
pub struct Word {
    /// Its row.
    pub flag: &'static Flag<Flags>,
    /// As typed: `-p`, `--port`.
    pub typed: String,
    /// Its value, where one belongs to it or was given.
    pub value: Option<OsString>,
}

/// A command line asks for one of these.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Run with these flags.
    Serve(Box<Flags>),
    /// `-h`
    Help,
    /// `-V`
    Version,
    /// `-i`
    Licence,
}

/// The flags, and what to warn of; or what else is asked for.
pub type Split = Result<(Vec<Word>, Vec<String>), Asked>;

/// All flags, in the order of the help.
pub fn all() -> impl Iterator<Item = &'static Flag<Flags>> {
    SECTIONS.iter().flat_map(|section| section.flags)
}

/// The row of a flag as typed, `-p` or `--port`.
pub fn row(typed: &str) -> Option<&'static Flag<Flags>> {
    match typed.strip_prefix("--") {
        Some(name) => all().find(|flag| flag.names().any(|own| own == name)),
        None => {
            all().find(|flag| flag.letter.is_some_and(|letter| typed.chars().eq(['-', letter])))
        }
    }
}

/// Whether the flag stands alone.
pub fn is_switch(flag: &Flag<Flags>) -> bool {
    matches!((flag.field)(&mut Flags::default()), Field::Switch(_) | Field::Count(_))
}

/// Split the command line.
pub fn split(args: impl IntoIterator<Item = OsString>) -> Result<Split, Refused> {
    let mut parser = Parser::from_args(args);
    let (mut words, mut warnings) = (Vec::new(), Vec::new());
    while let Some(arg) = parser.next().map_err(sentence)? {
        let (typed, is_long) = match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Err(Asked::Help)),
            Arg::Short('V') | Arg::Long("version") => return Ok(Err(Asked::Version)),
            Arg::Short('i') | Arg::Long("license") => return Ok(Err(Asked::Licence)),
            Arg::Short(letter) => (format!("-{letter}"), false),
            Arg::Long(name) => (format!("--{name}"), true),
            Arg::Value(word) => return Err(foreign::word(&word.to_string_lossy())),
        };
        let Some(flag) = row(&typed) else {
            let known = all().flat_map(|flag| flag.names()).map(|name| format!("--{name}"));
            let warning = foreign::flag(&typed, known, &mut parser);
            warnings.push(warning.map_err(|refused| refused.at(&typed))?);
            continue;
        };
        let value = match is_switch(flag) {
            // Behind a letter stand other letters: -vv, -dv.
            true if is_long => parser.optional_value(),
            true => None,
            false => {
                let value = parser.value().map_err(sentence);
                Some(value.map_err(|refused| refused.at(&typed))?)
            }
        };
        words.push(Word { flag, typed, value });
    }
    Ok(Ok((words, warnings)))
}

/// Take one flag of a tool's that the server has too, for the folder of `--data-dir`; false if it
/// is none of these.
pub fn of_folder(flags: &mut Flags, typed: &str, parser: &mut Parser) -> Result<bool, Refused> {
    let is_of_folder =
        |section: &&Section<Flags>| section.flags.iter().any(|flag| flag.name == "data-dir");
    let section = SECTIONS.iter().find(is_of_folder).expect("the table has --data-dir");
    let Some(flag) = row(typed).filter(|row| section.flags.iter().any(|own| own.name == row.name))
    else {
        return Ok(false);
    };
    let value = match is_switch(flag) {
        true => OsString::from("true"),
        false => parser.value().map_err(sentence)?,
    };
    values::put((flag.field)(flags), &value)?;
    Ok(true)
}

fn sentence(error: lexopt::Error) -> Refused {
    Refused::from(error.to_string())
}

/// Each flag's default, where it is a value; for tests.
#[cfg(test)]
pub fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().filter_map(|flag| match flag.default {
        super::flag::Default::Value(value) => Some((flag.name, value)),
        _ => None,
    })
}

/// Each choice that a flag has; for tests.
#[cfg(test)]
pub fn choices() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().flat_map(|flag| flag.choices.iter().map(|(choice, _)| (flag.name, *choice)))
}
