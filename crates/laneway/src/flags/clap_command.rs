//! The table told as a clap command, for clap's generators of completions and man pages. clap reads
//! no command line of ours.

use super::flag::{Field, Flag};
use super::help::{ACTIONS, NOTES};
use super::table::{Flags, SECTIONS};
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, ValueHint};

/// `laneway serve`, as clap's generators want it.
pub fn command() -> Command {
    let mut command = Command::new("serve")
        .about("run the server; takes memcached's flags")
        .long_about(
            "A memcached-compatible server in which a small request never waits behind a large \
             one. It takes memcached's flags, and its own.",
        )
        .disable_help_flag(true)
        .disable_version_flag(true);
    for section in SECTIONS {
        for flag in section.flags {
            command = command.arg(argument(flag).help_heading(section.heading));
        }
    }
    for (letter, name, words) in ACTIONS {
        let action = Arg::new(name).short(letter).long(name).help(words);
        command = command.arg(action.action(ArgAction::SetTrue));
    }
    let notes = NOTES.map(|(heading, words)| format!("{heading}:\n\n{words}\n"));
    command.after_long_help(notes.join("\n"))
}

fn argument(flag: &'static Flag<Flags>) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).help(flag.told());
    let argument = argument.visible_aliases(flag.aliases.iter().copied()).short(flag.letter);
    let mut flags = Flags::default();
    let argument = match (flag.field)(&mut flags) {
        Field::Switch(_) => return argument.action(ArgAction::SetTrue),
        Field::Count(_) => return argument.action(ArgAction::Count),
        Field::Path(_) => argument.value_hint(ValueHint::AnyPath),
        _ => argument,
    }
    .value_name(flag.value);
    let choice =
        |(name, words): &(&'static str, &'static str)| PossibleValue::new(*name).help(*words);
    match flag.choices {
        [] => argument,
        choices => argument.value_parser(choices.iter().map(choice).collect::<Vec<_>>()),
    }
}
