//! The file of `--config`: TOML, a key for each flag, named as the flag is.

use super::command_line::{all, row};
use super::flag::{Field, Flag};
use super::foreign::{Refused, meant};
use super::table::Flags;
use super::values;
use std::ffi::OsString;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key of the file with its values, as they would be typed.
pub struct Entry {
    /// The row of the key.
    pub flag: &'static Flag<Flags>,
    /// Line of the file, from 1.
    pub line: usize,
    /// One value, or several where the file has an array.
    pub values: Vec<OsString>,
}

/// A file that was read.
pub struct File {
    /// Its name.
    pub name: String,
    /// The keys that the file sets, in the order in which it has them.
    pub entries: Vec<Entry>,
}

/// Read it.
pub fn read(path: &Path) -> Result<File, Refused> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Refused::from(format!("--config {name}: it cannot be read: {error}")))?;
    let entries = entries(&name, &text)?;
    Ok(File { name, entries })
}

fn entries(name: &str, text: &str) -> Result<Vec<Entry>, Refused> {
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let at = |offset: usize, why: String| format!("{name}:{}: {why}", line(offset));
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Refused::from(at(
            offset,
            format!("this is no TOML: {}", error.message().replace('\n', ", ")),
        ))
    })?;
    let mut entries: Vec<Entry> = Vec::new();
    for (key, value) in table.get_ref() {
        let (offset, word) = (key.span().start, key.get_ref().as_ref());
        let flag = known(word).map_err(|why| Refused::unknown(at(offset, why)))?;
        if let Some(other) = entries.iter().find(|entry| entry.flag.name == flag.name) {
            let why = format!("{word}: line {} has this key by its other name", other.line);
            return Err(Refused::from(at(offset, why)));
        }
        let values = typed(flag, value).ok_or_else(|| {
            let expected = values::expected(&(flag.field)(&mut Flags::default()));
            let written = &text[value.span()];
            let written = written.lines().next().unwrap_or_default();
            at(value.span().start, format!("{word} = {written}: expected {expected}"))
        })?;
        entries.push(Entry { flag, line: line(offset), values });
    }
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn known(key: &str) -> Result<&'static Flag<Flags>, String> {
    match row(&format!("--{key}")) {
        Some(flag) if flag.typed_only => Err(format!("{key}: is for the command line alone")),
        Some(flag) => Ok(flag),
        None => {
            let known = all().filter(|flag| !flag.typed_only).flat_map(|flag| flag.names());
            Err(format!(
                "{key}: not a key of this file; {}the keys are the long flags of laneway serve \
                 --help, without dashes before them",
                meant(key, known.map(str::to_owned))
            ))
        }
    }
}

/// The value as it would be typed; none if it has the wrong type.
fn typed(flag: &Flag<Flags>, value: &Spanned<DeValue<'_>>) -> Option<Vec<OsString>> {
    let mut flags = Flags::default();
    let field = (flag.field)(&mut flags);
    let text = match (&field, value.get_ref()) {
        (Field::List(_), DeValue::Array(list)) => {
            let texts = list.iter().map(|one| one.get_ref().as_str().map(OsString::from));
            // None at all would be as good as no key, which means every address.
            return texts.collect::<Option<Vec<_>>>().filter(|texts| !texts.is_empty());
        }
        (Field::Switch(_), DeValue::Boolean(on)) => on.to_string(),
        (Field::Octal(_), DeValue::Integer(number)) if number.radix() == 8 => {
            number.as_str().to_owned()
        }
        (Field::Number(number), DeValue::Float(decimal)) if number.is_decimal() => {
            decimal.as_str().to_owned()
        }
        (
            Field::Count(_)
            | Field::Number(_)
            | Field::Bytes(_)
            | Field::Megabytes(_)
            | Field::TextOrNumber(_),
            DeValue::Integer(number),
        ) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string(),
        (
            Field::Bytes(_)
            | Field::Megabytes(_)
            | Field::Octal(_)
            | Field::Text(_)
            | Field::TextOrNumber(_)
            | Field::Path(_)
            | Field::List(_)
            | Field::Extended(_)
            | Field::Protocol(_),
            DeValue::String(text),
        ) => text.to_string(),
        _ => return None,
    };
    Some(vec![text.into()])
}
