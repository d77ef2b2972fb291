//! The server's flags: memcached's, and our own, each defined once in a table, from which the
//! command line, the file of `--config`, the variables, the help, the completions and the man page
//! are made.
//!
//! A memcached flag, or `-o` key, that only tunes memcached is reported on stderr and passed over,
//! so that scripts written for memcached go on working. What is not known, and what would restrict
//! access or keep data and is not supported, refuses the start (`foreign`): a server that ignored
//! it would be more open, or more forgetful, than whoever started it believes.

mod clap_command;
mod command_line;
mod config;
mod environment;
mod file;
mod flag;
mod foreign;
mod help;
mod layers;
mod origin;
mod table;
mod values;

pub use clap_command::command;
pub use command_line::{Asked, of_folder};
#[cfg(test)]
pub use command_line::{choices, defaults};
pub use config::{changes, first_given, refuse, text as config};
pub use flag::Handover;
#[cfg(test)]
use foreign::Refused;
pub use foreign::meant;
pub use help::text as help;
pub use layers::{placed, read};
pub use table::Flags;
pub use values::bytes;

/// The flags of a command line of `serve`.
#[cfg(test)]
pub fn typed(line: &str) -> Flags {
    match read(line.split_whitespace().map(std::ffi::OsString::from), []) {
        Ok(Asked::Serve(flags)) => *flags,
        other => panic!("{line}: {other:?}"),
    }
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod documents_tests;
#[cfg(test)]
mod tests;
