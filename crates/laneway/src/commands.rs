//! The commands of the binary: their list, and what is made from it and from the flags of `serve`
//! for shells and for `man`.

use crate::{STATUS_USAGE, flags};
use clap::{Arg, Command};
use clap_complete::aot::{Bash, Fish, Zsh, generate};
use laneway_load::output::print;
use std::ffi::OsString;
use std::process::ExitCode;

/// Each command with what it does.
pub const COMMANDS: [(&str, &str); 17] = [
    ("serve", "run the server; takes memcached's flags (laneway serve --help)"),
    ("bench", "measure a server: laneway, memcached, redis (laneway bench --help)"),
    ("sim", "what every design does on any number of cores (laneway sim --help)"),
    ("doctor", "what this machine offers of the layers in the kernel, and what to do"),
    ("stats", "ask a running server for its statistics (laneway stats lanes)"),
    ("top", "what a running server does, once a second, in a terminal"),
    ("ping", "ask a running server whether it answers, for health checks"),
    ("backup", "copy what a running server keeps durably, while it serves"),
    ("fsck", "check, and with --repair repair, the folder of serve --data-dir"),
    ("compact", "rewrite what is sparse in such a folder"),
    ("scan", "list what such a folder holds, in key order"),
    ("dump", "write all of it as one stream"),
    ("load", "put the items of such a stream, or of a backup, into a folder"),
    ("completions", "print what a shell completes: bash, zsh or fish"),
    ("man", "print the man page of laneway, or with serve that of laneway serve"),
    ("help", "this text"),
    ("version", "print the version; with -v the Cargo features that are built in, too"),
];

const ABOUT: &str = "\
Laneway: a memcached-compatible key-value server in which a small request never
waits behind a large one.";

const NOTES: &str = "\
Try:
  laneway serve -m 1024              a server on port 11211 with 1 GiB for items
  laneway bench --help               what can be measured, with examples
  laneway top                        what a running server does, second by second
  laneway stats lanes                what the lanes of a running server are doing

Called by the name memcached, or with a flag first (laneway -p 11211 -m 64), it
is `laneway serve`.
";

/// What `laneway help` says.
pub fn help() -> String {
    let widest = COMMANDS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let commands = COMMANDS.map(|(name, words)| format!("  {name:<widest$}  {words}\n")).concat();
    format!("{ABOUT}\n\nUsage: laneway COMMAND [FLAGS]\n\nCommands:\n{commands}\n{NOTES}")
}

/// Why there is no such command, with the nearest that there is.
pub fn unknown(word: &str) -> String {
    let names = COMMANDS.iter().map(|(name, _)| (*name).to_owned());
    let nearest = flags::meant(word, names);
    format!("no command is called {word}; {nearest}laneway help lists them")
}

/// `laneway completions SHELL`.
pub fn completions(args: &[OsString]) -> ExitCode {
    let (mut command, mut text) = (root(), Vec::new());
    // Each by its own type: the enum of all shells has those in the binary that are not offered.
    match args.first().filter(|_| args.len() == 1).and_then(|name| name.to_str()) {
        Some("bash") => generate(Bash, &mut command, "laneway", &mut text),
        Some("zsh") => generate(Zsh, &mut command, "laneway", &mut text),
        Some("fish") => generate(Fish, &mut command, "laneway", &mut text),
        _ => {
            eprintln!("laneway completions: for which shell? write bash, zsh or fish");
            return ExitCode::from(STATUS_USAGE);
        }
    }
    told(&text)
}

/// `laneway man [serve]`.
pub fn man(args: &[OsString]) -> ExitCode {
    let command = match args {
        [] => overview(),
        [name] if name == "serve" => flags::command().name("laneway-serve"),
        _ => {
            eprintln!("laneway man: of which command? write serve, or nothing");
            return ExitCode::from(STATUS_USAGE);
        }
    };
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.version(env!("CARGO_PKG_VERSION")));
    page.render(&mut text).expect("memory takes what is written");
    told(&text)
}

/// To standard output; who reads no further has what he wanted.
fn told(text: &[u8]) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("laneway: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The page of the binary. Of the commands `serve` alone has a page; the others have `--help`.
fn overview() -> Command {
    let commands = COMMANDS.map(|(name, words)| format!("  {name:<12} {words}\n")).concat();
    Command::new("laneway")
        .about("a memcached-compatible server in which a small request never waits")
        .long_about(ABOUT.replace('\n', " "))
        .disable_help_flag(true)
        .after_help(format!("Commands:\n\n{commands}\n{NOTES}"))
}

/// The binary, as clap's generators want it.
fn root() -> Command {
    let mut root = Command::new("laneway")
        .about(ABOUT.replace('\n', " "))
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .after_help(NOTES);
    for (name, words) in COMMANDS {
        let own = match name {
            "serve" => flags::command(),
            "completions" => Command::new(name)
                .about(words)
                .arg(Arg::new("SHELL").value_parser(["bash", "zsh", "fish"])),
            "man" => {
                Command::new(name).about(words).arg(Arg::new("COMMAND").value_parser(["serve"]))
            }
            _ => Command::new(name).about(words),
        };
        root = root.subcommand(own.disable_help_flag(name != "serve" && name != "completions"));
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_told_the_nearest() {
        for (typed, wanted) in [
            ("srve", "no command is called srve; did you mean serve? laneway help lists them"),
            ("stast", "no command is called stast; did you mean stats? laneway help lists them"),
            ("restart", "no command is called restart; laneway help lists them"),
        ] {
            assert_eq!(unknown(typed), wanted);
        }
    }
}
