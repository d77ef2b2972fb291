//! What `--print-config` says: the configuration in force, as a file for `--config` that reads back
//! to the same.

use super::flag::{Default, Flag};
use super::table::{Flags, SECTIONS};
use super::values;

/// The file. What was left out stands behind a `#`, with its default.
pub fn text(flags: &Flags) -> String {
    let mut flags = flags.clone();
    let mut out = format!(
        "# The configuration of laneway {}, for laneway serve --config FILE.\n\
         # A line behind a # is a default; what may stand there says laneway serve --help.\n",
        env!("CARGO_PKG_VERSION")
    );
    for section in SECTIONS {
        out += &format!("\n# {}\n", section.heading);
        for flag in section.flags.iter().filter(|flag| !flag.typed_only) {
            let name = flag.name;
            let origin = flags.origins.iter().find(|(given, _)| *given == name);
            // The name of a file may hold anything, and a comment ends with its line.
            let origin =
                origin.map(|(_, origin)| origin.to_string().replace(char::is_control, " "));
            let origin = origin.map(|place| format!("  # by {place}"));
            out += &match (values::toml((flag.field)(&mut flags)), flag.default) {
                (Some(value), _) => format!("{name} = {value}{}\n", origin.unwrap_or_default()),
                (None, Default::Off) => format!("# {name}: off\n"),
                (None, Default::Value(value)) => {
                    let mut fresh = Flags::default();
                    // A default that is no value of its flag fails a test of the table.
                    let read = values::put((flag.field)(&mut fresh), value.as_ref());
                    let told = read.ok().and_then(|()| values::toml((flag.field)(&mut fresh)));
                    format!("# {name} = {}\n", told.unwrap_or_default())
                }
                (None, Default::Told(words)) => format!("# {name}: {words}\n"),
            };
        }
    }
    out
}

/// The first of these flags that was given, as it is typed. Their long names have spaces between
/// them.
pub fn first_given(flags: &Flags, names: &str) -> Option<String> {
    let mut flags = flags.clone();
    let name = names.split(' ').find(|name| {
        let mut rows = SECTIONS.iter().flat_map(|section| section.flags);
        let flag = rows.find(|flag| flag.name == *name).expect("it is in the table");
        values::toml((flag.field)(&mut flags)).is_some()
    })?;
    Some(format!("--{name}"))
}

/// Refuses the first of these flags that was given, and says why it means nothing.
pub fn refuse(flags: &Flags, names: &str, why: &str) -> Result<(), String> {
    first_given(flags, names).map_or(Ok(()), |flag| Err(format!("{flag}: {why}")))
}

/// A flag that is not what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its long name.
    pub name: &'static str,
    /// The value before, as a file would have it, or the default in words.
    pub before: String,
    /// The value now, in the same form.
    pub after: String,
}

/// The flags that differ, in the order of the help.
pub fn changes(before: &Flags, after: &Flags) -> Vec<Change> {
    let (mut before, mut after) = (before.clone(), after.clone());
    let flags = SECTIONS.iter().flat_map(|section| section.flags);
    flags
        .filter(|flag| !flag.typed_only)
        .filter_map(|flag| {
            let (before, after) = (told(flag, &mut before), told(flag, &mut after));
            (before != after).then_some(Change { name: flag.name, before, after })
        })
        .collect()
}

fn told(flag: &Flag<Flags>, flags: &mut Flags) -> String {
    let default = || match flag.default {
        Default::Off => "off".to_owned(),
        Default::Value(words) | Default::Told(words) => format!("{words} (the default)"),
    };
    values::toml((flag.field)(flags)).unwrap_or_else(default)
}
