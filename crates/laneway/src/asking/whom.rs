//! The flags that `stats`, `top`, `ping` and `backup` share: they say which server is asked, and
//! how it lets in who asks.

use crate::STATUS_USAGE;
use laneway_tls::ClientFiles;
use lexopt::{Arg, Error, Parser, ValueExt};
use std::ffi::OsString;
use std::process::ExitCode;

/// The paragraph of a command's `--help` that lists these flags.
pub const HELP: &str = "  \
  --server HOST:PORT   the server                                  [127.0.0.1:11211]
  --socket PATH        a unix socket instead
  --login FILE         USER:PASSWORD in its first line, for a server that asks for
                       them (serve -Y)
  --tls-ca FILE        speak TLS with a server whose certificate is by one of these
                       authorities (serve --tls-cert); PEM
  --tls-cert FILE      the certificate to show, where the server asks for one
  --tls-key FILE       its key, where that is in a file of its own
  --tls-name NAME      the name that the server's certificate is for, where it is
                       not HOST
";

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum Place {
    /// `HOST:PORT`
    Tcp(String),
    /// The path of a unix socket.
    Unix(OsString),
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(address) => formatter.write_str(address),
            Place::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// A server, and how it is asked.
#[derive(Debug, Clone)]
pub struct Whom {
    /// Where it listens.
    pub place: Place,
    /// The file with the login.
    pub login: Option<OsString>,
    /// How TCP is encrypted; not at all, where nothing is named.
    pub tls: ClientFiles,
}

impl Default for Whom {
    fn default() -> Self {
        let place = Place::Tcp("127.0.0.1:11211".into());
        Whom { place, login: None, tls: ClientFiles::default() }
    }
}

/// A flag or a word of a command line that does not say whom to ask.
pub enum Other<'a> {
    /// `--NAME`, or a letter.
    Flag(&'a str),
    /// A word that belongs to no flag.
    Word(OsString),
}

impl Other<'_> {
    /// The error for a flag or a word that no command takes.
    pub fn unexpected(self) -> Error {
        match self {
            Other::Flag(name) if name.len() == 1 => Error::UnexpectedOption(format!("-{name}")),
            Other::Flag(name) => Error::UnexpectedOption(format!("--{name}")),
            Other::Word(word) => Error::UnexpectedArgument(word),
        }
    }
}

/// The words of `laneway COMMAND`, as they were read; else the status that it ends with, once it
/// has told its help, or what is wrong.
pub fn words<W>(command: &str, help: &str, read: Result<Option<W>, Error>) -> Result<W, ExitCode> {
    match read {
        Ok(Some(words)) => Ok(words),
        Ok(None) => {
            print!("{}", help.replace("{flags}", HELP));
            Err(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("laneway {command}: {error}; see laneway {command} --help");
            Err(ExitCode::from(STATUS_USAGE))
        }
    }
}

impl Whom {
    /// Reads a command line. What does not say whom to ask goes to `other`. Nobody, where help is
    /// wanted.
    pub fn read(
        args: Vec<OsString>,
        mut other: impl FnMut(Other<'_>, &mut Parser) -> Result<(), Error>,
    ) -> Result<Option<Whom>, Error> {
        let mut whom = Whom::default();
        let mut parser = Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                Arg::Short('s') => "server".to_owned(),
                Arg::Long(name) => name.to_owned(),
                Arg::Short(letter) => letter.to_string(),
                Arg::Value(word) => {
                    other(Other::Word(word), &mut parser)?;
                    continue;
                }
            };
            match name.as_str() {
                "server" => whom.place = Place::Tcp(address(parser.value()?.string()?)?),
                "socket" => whom.place = Place::Unix(parser.value()?),
                "login" => whom.login = Some(parser.value()?),
                "tls-ca" => whom.tls.ca = Some(parser.value()?.into()),
                "tls-cert" => whom.tls.cert = Some(parser.value()?.into()),
                "tls-key" => whom.tls.key = Some(parser.value()?.into()),
                "tls-name" => whom.tls.name = Some(parser.value()?.string()?),
                name => other(Other::Flag(name), &mut parser)?,
            }
        }
        if whom.tls.is_asked_for() && matches!(whom.place, Place::Unix(_)) {
            return Err("a unix socket is never encrypted; leave out --tls-*".into());
        }
        Ok(Some(whom))
    }
}

/// What `--server` names, if it is an address and a port: the resolver's words for another text
/// are those of a network that does not know the host.
fn address(text: String) -> Result<String, Error> {
    let is_host = |host: &str| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (is_bracketed || !host.contains(':'))
    };
    let parts = text.rsplit_once(':');
    if parts.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok()) {
        return Ok(text);
    }
    let example = "write HOST:PORT, such as 127.0.0.1:11211 or [::1]:11211";
    Err(format!("--server {text}: {example}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::path::Path;

    fn read(line: &str) -> Result<Option<Whom>, Error> {
        let words = line.split_whitespace().map(OsString::from).collect();
        Whom::read(words, |other, _| Err(other.unexpected()))
    }

    #[test]
    fn each_line_of_the_help_is_indented() {
        assert!(HELP.lines().all(|line| line.starts_with("  ")), "{HELP}");
        assert!(HELP.starts_with("  --server HOST:PORT   the server"), "{HELP}");
    }

    #[test]
    fn flags_say_whom_to_ask() {
        let whom = read("-s here:1 --login l --tls-ca a --tls-name n").expect("good").expect("who");
        assert_eq!(whom.place.to_string(), "here:1");
        assert_eq!(whom.login.as_deref(), Some(OsStr::new("l")));
        assert_eq!(whom.tls.ca.as_deref(), Some(Path::new("a")));
        assert_eq!(whom.tls.name.as_deref(), Some("n"));
        assert!(read("--help").expect("good").is_none());
        for place in ["localhost:11211", "[::1]:0", "10.0.0.5:65535"] {
            let whom = read(&format!("--server {place}")).expect("good").expect("who");
            assert_eq!(whom.place.to_string(), place);
        }
        let socket = read("--socket /s").expect("good").expect("who");
        assert_eq!(socket.place.to_string(), "/s");
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, told) in [
            ("--server 10.0.0.5", "--server 10.0.0.5: write HOST:PORT"),
            ("--server cache:memcache", "write HOST:PORT"),
            ("--server ::1", "[::1]:11211"),
            ("-s :11211", "write HOST:PORT"),
            ("--sever x", "invalid option '--sever'"),
            ("-q", "invalid option '-q'"),
            ("word", "unexpected argument \"word\""),
            ("--socket /s --tls-ca a", "a unix socket is never encrypted"),
            ("--server", "missing argument for option '--server'"),
        ] {
            let error = read(line).expect_err(line).to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
