//! What a flag of `serve` is: its names, its value, its default and its help, in one row. The
//! command line, the keys of `--config`, the environment's variables, `--help`, `--print-config`,
//! the completions and the man page are all made from such rows (`table`).

use super::foreign::Extended;
use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

/// One flag.
#[derive(Clone, Copy)]
pub struct Flag<F: 'static> {
    /// The long name; also the key in a file and, in capitals, the variable.
    pub name: &'static str,
    /// memcached's letter.
    pub letter: Option<char>,
    /// Other long names of the same flag.
    pub aliases: &'static [&'static str],
    /// What stands for the value in the help, with its unit: `num`, `bytes`, `ms`.
    pub value: &'static str,
    /// What holds where the flag is left out.
    pub default: Default,
    /// The values there are, each with what it means, where these are few.
    pub choices: &'static [(&'static str, &'static str)],
    /// Sentences for the user.
    pub help: &'static str,
    /// Only the command line may have it.
    pub typed_only: bool,
    /// Where its value goes.
    pub field: fn(&mut F) -> Field<'_>,
}

/// What holds where a flag is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    /// Nothing: what the flag would turn on is off.
    Off,
    /// This value, as it would be typed.
    Value(&'static str),
    /// What these words say; it depends on other things.
    Told(&'static str),
}

/// The place of a value, by the kind of value that it takes.
pub enum Field<'f> {
    /// On or off.
    Switch(&'f mut bool),
    /// How often it was given.
    Count(&'f mut u32),
    /// A number that fits the field.
    Number(&'f mut dyn Number),
    /// A size in bytes, or with k, m or g.
    Bytes(&'f mut Option<u64>),
    /// A size in MiB, or with k, m or g; kept in bytes.
    Megabytes(&'f mut Option<u64>),
    /// An access mask, written in octal.
    Octal(&'f mut Option<u32>),
    /// Words.
    Text(&'f mut Option<String>),
    /// Words, some of which are numbers.
    TextOrNumber(&'f mut Option<String>),
    /// A file.
    Path(&'f mut Option<OsString>),
    /// Several values, separated by commas; the flag may also be given several times.
    List(&'f mut Vec<String>),
    /// memcached's `-o`.
    Extended(&'f mut Extended),
    /// memcached's `-B`.
    Protocol(&'f mut Option<String>),
}

/// A number of any type, or none yet.
pub trait Number {
    /// Take what is written here; false if it is no such number.
    fn read(&mut self, text: &str) -> bool;
    /// As it would be typed.
    fn told(&self) -> Option<String>;
    /// Forget it.
    fn clear(&mut self);
    /// A number with a fraction may stand here.
    fn is_decimal(&self) -> bool;
}

impl<N: FromStr + Display + 'static> Number for Option<N> {
    fn read(&mut self, text: &str) -> bool {
        *self = text.trim().parse().ok();
        self.is_some()
    }

    fn told(&self) -> Option<String> {
        self.as_ref().map(N::to_string)
    }

    fn clear(&mut self) {
        *self = None;
    }

    fn is_decimal(&self) -> bool {
        "0.5".parse::<N>().is_ok()
    }
}

/// Flags under one heading.
pub struct Section<F: 'static> {
    /// The heading.
    pub heading: &'static str,
    /// The flags, in the order of the help.
    pub flags: &'static [Flag<F>],
}

impl<F> Flag<F> {
    /// A flag before it has more than names and a place.
    pub const fn new(name: &'static str, value: &'static str) -> Flag<F> {
        Flag {
            name,
            letter: None,
            aliases: &[],
            value,
            default: Default::Off,
            choices: &[],
            help: "",
            typed_only: false,
            field: |_| panic!("a row of the table has a field"),
        }
    }

    /// With memcached's letter.
    pub const fn letter(mut self, letter: char) -> Flag<F> {
        self.letter = Some(letter);
        self
    }

    /// With other long names.
    pub const fn also(mut self, aliases: &'static [&'static str]) -> Flag<F> {
        self.aliases = aliases;
        self
    }

    /// With this value where it is left out.
    pub const fn default(mut self, value: &'static str) -> Flag<F> {
        self.default = Default::Value(value);
        self
    }

    /// With words for what holds where it is left out.
    pub const fn unless(mut self, told: &'static str) -> Flag<F> {
        self.default = Default::Told(told);
        self
    }

    /// With the values that it may have.
    pub const fn choices(mut self, choices: &'static [(&'static str, &'static str)]) -> Flag<F> {
        self.choices = choices;
        self
    }

    /// With sentences for the user.
    pub const fn help(mut self, help: &'static str) -> Flag<F> {
        self.help = help;
        self
    }

    /// For the command line alone.
    pub const fn typed_only(mut self) -> Flag<F> {
        self.typed_only = true;
        self
    }

    /// The environment's name for it.
    pub fn variable(&self) -> String {
        format!("{VARIABLES}{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// All long names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }

    /// The help, and the default in words.
    pub fn told(&self) -> String {
        match self.default {
            Default::Off => self.help.to_owned(),
            Default::Value(value) | Default::Told(value) => {
                format!("{} (default: {value})", self.help)
            }
        }
    }
}

/// Sockets that a service manager has opened and hands over: flags that name such mean nothing
/// then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handover {
    /// Some where clients come.
    pub clients: bool,
    /// One where operators look.
    pub admin: bool,
    /// One whose clients may change nothing.
    pub read_only: bool,
}

/// How every variable of ours begins.
pub const VARIABLES: &str = "LANEWAY_";

/// The flags as typed, a struct with a field for each, and the rows that fill it.
macro_rules! flags {
    (
        $(#[$about:meta])* $flags:ident, $sections:ident;
        $($heading:literal {
            $($kind:ident $field:ident: $type:ty = $flag:expr;)*
        })*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $flags {
            $($(
                #[doc = concat!("In the table:\n```text\n", stringify!($flag), "\n```")]
                pub $field: $type,
            )*)*
            /// Where each of them was given, by its name; the last place for each.
            pub origins: Vec<(&'static str, Origin)>,
            /// What to say on stderr before starting.
            pub warnings: Vec<String>,
            /// Addresses of the names in them that were looked up already, and are not again.
            pub names: std::collections::BTreeMap<String, Vec<std::net::SocketAddr>>,
            /// The sockets that a service manager has opened and hands over.
            pub handed: Handover,
        }

        /// Every flag, under its heading.
        pub const $sections: &[Section<$flags>] = &[$(Section {
            heading: $heading,
            flags: &[$(Flag { field: |flags| Field::$kind(&mut flags.$field), ..$flag },)*],
        },)*];
    };
}
pub(super) use flags;
