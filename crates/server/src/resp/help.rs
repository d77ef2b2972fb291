//! `HELP` of the commands that have a second word: what may stand there, a line for how it is
//! written and one, indented, for what it does, as Redis lays it out.

use crate::resp::options::is;
use crate::resp::table::Spec;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{put_array_head, put_simple};

/// What one second word is for.
type Line = (&'static str, &'static str);

static CLIENT: &[Line] = &[
    ("GETNAME", "Tells what this connection calls itself."),
    ("ID", "Tells the number of this connection."),
    ("INFO", "Tells of this connection."),
    ("LIST [TYPE type | ID id [id ...]]", "Tells of the first 256 connections, or of these."),
    ("NO-EVICT ON|OFF", "Is accepted, and changes nothing."),
    ("NO-TOUCH ON|OFF", "Is accepted, and changes nothing."),
    ("SETINFO LIB-NAME|LIB-VER text", "Names the library that speaks for the client."),
    ("SETNAME name", "Gives this connection a name."),
];

static COMMAND: &[Line] = &[
    ("(nothing)", "Tells of every command."),
    ("COUNT", "Tells how many commands there are."),
    ("DOCS [command ...]", "Tells what commands do, and their arguments."),
    ("GETKEYS command [argument ...]", "Tells which of the arguments are keys."),
    ("INFO [command ...]", "Tells how many arguments commands take, and where their keys stand."),
    ("LIST [FILTERBY PATTERN pattern]", "Tells the names of commands."),
];

static CONFIG: &[Line] =
    &[("GET pattern [pattern ...]", "Tells the settings whose names fit one of the patterns.")];

static MEMORY: &[Line] = &[(
    "USAGE key [SAMPLES count]",
    "Tells the bytes that an item takes. All of them are counted.",
)];

static OBJECT: &[Line] = &[
    ("ENCODING key", "Tells how Redis would keep the value."),
    ("FREQ key", "Is an error: how often a key is used is not counted."),
    ("IDLETIME key", "Tells about how many seconds the item has not been used for."),
    ("REFCOUNT key", "Tells 1: a value is of one key."),
];

/// The lines of a command that has a second word.
fn lines_of(name: &str) -> &'static [Line] {
    match name {
        "client" => CLIENT,
        "command" => COMMAND,
        "config" => CONFIG,
        "memory" => MEMORY,
        "object" => OBJECT,
        _ => &[],
    }
}

/// Whether it is asked for; `args` are those behind the command's name.
pub fn is_asked(spec: &Spec, mut args: Args<'_>) -> bool {
    args.left() == 1
        && args.next().is_some_and(|word| is(word, "help"))
        && !lines_of(spec.name).is_empty()
}

/// Writes what there is of this command.
pub fn put(spec: &Spec, out: &mut Vec<u8>) {
    let lines = lines_of(spec.name);
    put_array_head(out, 1 + 2 * (lines.len() + 1));
    let head = format!("{} with one of these behind it:", spec.name.to_uppercase());
    put_simple(out, head.as_bytes());
    for (usage, what) in lines.iter().chain([&("HELP", "Tells this.")]) {
        put_simple(out, usage.as_bytes());
        put_simple(out, format!("    {what}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::table::{PARTS, TABLE};

    #[test]
    fn every_second_word_has_its_line_and_no_other_has_one() {
        for spec in TABLE {
            let parts =
                PARTS.iter().filter(|(name, part, ..)| *name == spec.name && *part != "help");
            let mut parts: Vec<&str> = parts.map(|(_, part, ..)| *part).collect();
            parts.sort_unstable();
            let words = lines_of(spec.name).iter().filter_map(|(usage, _)| usage.split(' ').next());
            let words: Vec<String> =
                words.filter(|word| *word != "(nothing)").map(str::to_lowercase).collect();
            assert_eq!(words, parts, "{}", spec.name);
            let has_help =
                PARTS.iter().any(|(name, part, ..)| (*name, *part) == (spec.name, "help"));
            assert_eq!(has_help, !words.is_empty(), "{}", spec.name);
        }
    }
}
