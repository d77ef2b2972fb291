//! A running server, asked for its statistics or its version over memcached's text protocol.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A version is shorter; what is longer is no memcached's answer.
const VERSION_BYTES_MAX: u64 = 512;

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum Place {
    /// `HOST:PORT`
    Tcp(String),
    /// The path of a unix socket.
    Unix(OsString),
}

impl Default for Place {
    fn default() -> Self {
        Place::Tcp("127.0.0.1:11211".into())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(address) => formatter.write_str(address),
            Place::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// Why a server's statistics are not known.
#[derive(Debug)]
pub enum Failure {
    /// It cannot be reached, or the connection ended.
    Connection(io::Error),
    /// It has no such statistics.
    Unknown,
    /// It says something else.
    Refused(String),
    /// The file with the login cannot be read.
    Login(OsString, io::Error),
}

impl Failure {
    /// Tells the user what happened, and the way out.
    pub fn told(&self, place: &Place) -> String {
        match self {
            Failure::Connection(error) => {
                format!("{place} cannot be asked: {error}; is a server running there?")
            }
            Failure::Unknown => format!("the server at {place} has no such statistics"),
            Failure::Refused(words) if words.contains("unauthenticated") => {
                format!("the server says {words}; --login FILE shows it USER:PASSWORD")
            }
            Failure::Refused(words) => format!("the server says {words}"),
            Failure::Login(path, error) => format!("{}: {error}", path.display()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Connection(error)
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// A connection to a server.
pub struct Server {
    stream: BufReader<Box<dyn Stream>>,
}

impl Server {
    fn at(place: &Place) -> io::Result<Server> {
        let stream: Box<dyn Stream> = match place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(Path::new(path))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Place::Tcp(address) => {
                let stream = connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        Ok(Server { stream: BufReader::new(stream) })
    }

    /// Connect, and log in where there is a file with `USER:PASSWORD` in its first line.
    pub fn of(place: &Place, login: Option<&OsStr>) -> Result<Server, Failure> {
        let words = match login {
            None => None,
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => text.lines().next().map(str::to_owned),
                Err(error) => return Err(Failure::Login(path.into(), error)),
            },
        };
        let mut server = Server::at(place)?;
        if let Some(words) = words {
            server.log_in(&words)?;
        }
        Ok(server)
    }

    /// Show `login`, which is `USER:PASSWORD`, to a server that asks for one (`serve -Y`).
    fn log_in(&mut self, login: &str) -> Result<(), Failure> {
        let words = login.replacen(':', " ", 1);
        let line = format!("set login 0 0 {}\r\n{words}\r\n", words.len());
        self.stream.get_mut().write_all(line.as_bytes())?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            words => Err(Failure::Refused(words.to_owned())),
        }
    }

    /// The lines of `stats FAMILY`, without `STAT`, each as soon as it arrives.
    pub fn each_line(&mut self, family: &str, mut each: impl FnMut(&str)) -> Result<(), Failure> {
        let question = format!("stats {family}").trim_end().to_owned() + "\r\n";
        self.stream.get_mut().write_all(question.as_bytes())?;
        loop {
            let line = self.line()?;
            match line.as_str() {
                "END" | "RESET" | "OK" => return Ok(()),
                "ERROR" => return Err(Failure::Unknown),
                line if line.contains("ERROR") => return Err(Failure::Refused(line.to_owned())),
                line => each(line.strip_prefix("STAT ").unwrap_or(line)),
            }
        }
    }

    /// The first line of what is answered to `version`, which costs a server nothing.
    pub fn version(&mut self) -> io::Result<String> {
        self.stream.get_mut().write_all(b"version\r\n")?;
        let mut line = Vec::new();
        self.stream.by_ref().take(VERSION_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }

    /// The values of `stats FAMILY` by their names.
    pub fn family(&mut self, family: &str) -> Result<Family, Failure> {
        let mut lines = Vec::new();
        self.each_line(family, |line| {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            lines.push((name.to_owned(), value.to_owned()));
        })?;
        Ok(Family(lines))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        Ok(line.trim_end_matches('\r').to_owned())
    }
}

/// The first address of the name that takes the connection; an error is the last one's.
fn connect(name: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in name.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Names and values, in the server's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Family(pub Vec<(String, String)>);

impl Family {
    /// The value of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The number of this name; 0 where it is not told.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}
