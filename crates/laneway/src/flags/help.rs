//! What `laneway serve --help` says, made from the table.

use super::flag::{Field, Flag};
use super::table::{Flags, SECTIONS};

/// What a flag does that has no value and no place: letter, name, words.
pub const ACTIONS: [(char, &str, &str); 3] =
    [('h', "help", "this text"), ('i', "license", "the licence"), ('V', "version", "the version")];

/// What the server is, in a sentence or two.
pub const ABOUT: &str = "\
laneway serve: a memcached-compatible server in which a small request never
waits behind a large one. Takes memcached's flags, and its own.";

/// What is said behind the flags.
pub const NOTES: [(&str, &str); 4] = [
    (
        "Configuration",
        "\
Each long flag is also a key of the file of --config (port = 11212, listen =
[\"127.0.0.1\", \"::1\"], disable-evictions = true) and a variable
(LANEWAY_PORT=11212, LANEWAY_LISTEN=127.0.0.1,::1,
LANEWAY_DISABLE_EVICTIONS=true). The command line goes before the environment, the
environment before the file, and the file before the defaults; a list of one place
replaces that of another. --flag=false turns off what another place turned on. A
key or variable that is not known refuses the start.",
    ),
    (
        "Flags of memcached",
        "\
memcached's flags that only tune it (-f -n -D -R -N) are reported on stderr and
passed over, so that its start scripts go on working. Those that would restrict
access or keep items, and are not supported (-e, -o ssl_ciphers and the like),
refuse the start, as does a flag that is not known. -o drop_privileges is called
--sandbox on here, and is the default where the kernel has it.",
    ),
    (
        "Signals and exit statuses",
        "\
SIGTERM, SIGINT and SIGUSR1 finish what is under way and exit 0; a second one
exits at once, with 128 and its number. SIGHUP reads the files of --config, -Y and
-Z again: memory-limit, verbose, slow-ms, migrate-rate, client-rate, client-bytes,
the users and the certificate change at once, the rest at the next start, and a
file that is wrong changes nothing. Exit statuses: 1 a flag is not known or not
supported, 2 a value makes no sense, 70 the process could not be set up, 71 it
cannot listen or has no memory, 74 the data folder refused.",
    ),
    (
        "Examples",
        "  \
  laneway serve                          port 11211, 64 MiB
  laneway serve -m 4096 -t 4 -I 8m       4 GiB, 4 workers, values to 8 MiB
  laneway serve -s /run/laneway.sock     a unix socket
  laneway serve --config laneway.toml    what the file says
  laneway stats lanes                    what the lanes of a running server do",
    ),
];

/// Where the words about a flag begin, and where a line ends.
const COLUMN: usize = 26;
const WIDTH: usize = 82;

/// The help.
pub fn text() -> String {
    let mut out = format!("{ABOUT}\n\nUsage: laneway serve [FLAGS]\n");
    for section in SECTIONS {
        out += &format!("\n{}:\n", section.heading);
        section.flags.iter().for_each(|flag| one(&mut out, flag));
    }
    for (letter, name, words) in ACTIONS {
        described(&mut out, &format!("-{letter}, --{name}"), words);
    }
    for (heading, words) in NOTES {
        out += &format!("\n{heading}:\n{words}\n");
    }
    out
}

fn one(out: &mut String, flag: &Flag<Flags>) {
    let letter = flag.letter.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let value = match (flag.field)(&mut Flags::default()) {
        Field::Switch(_) | Field::Count(_) => String::new(),
        _ => format!("=<{}>", flag.value),
    };
    described(out, &format!("{letter}--{}{value}", flag.name), &unbroken(&flag.told()));
    let widest = flag.choices.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    for (name, words) in flag.choices {
        let head = format!("{}{:<widest$}", " ".repeat(COLUMN), format!("{name}:"));
        wrapped(out, &head, words, COLUMN + widest);
    }
}

/// A default keeps together with its word.
fn unbroken(words: &str) -> String {
    words.replace("(default: ", "(default:\u{a0}")
}

fn described(out: &mut String, head: &str, words: &str) {
    if head.len() < COLUMN {
        return wrapped(out, &format!("{head:<COLUMN$}"), words, COLUMN);
    }
    *out += &format!("{head}\n");
    wrapped(out, &" ".repeat(COLUMN), words, COLUMN);
}

/// `words` behind `head`, in as many lines as they need, each of which begins at the column.
fn wrapped(out: &mut String, head: &str, words: &str, column: usize) {
    let mut line = head.to_owned();
    let mut is_first = true;
    for word in words.split(' ') {
        if !is_first && line.len() + 1 + word.len() > WIDTH {
            *out += &format!("{}\n", line.trim_end()).replace('\u{a0}', " ");
            line = " ".repeat(column);
            is_first = true;
        }
        line += if is_first { "" } else { " " };
        line += word;
        is_first = false;
    }
    *out += &format!("{line}\n").replace('\u{a0}', " ");
}
