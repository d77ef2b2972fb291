//! A running server, asked for its statistics or its version over memcached's text protocol.

pub mod whom;

use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use whom::{Place, Whom};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A version is shorter; what is longer is no memcached's answer.
const VERSION_BYTES_MAX: u64 = 512;
/// What a server says to who has not told a password (`-Y`).
pub const WANTS_PASSWORD: &str = "CLIENT_ERROR unauthenticated";
/// How the answer to who asks for its version begins.
pub const VERSION: &str = "VERSION ";
/// A line of the server's that begins with one of these refuses the command.
const ERRORS: [&str; 3] = ["ERROR ", "CLIENT_ERROR ", "SERVER_ERROR "];
/// So does one that begins with this where RESP alone is spoken, and nothing follows it.
const RESP_ERROR: char = '-';
/// What an answer begins with where plain text reaches a port that encrypts (RFC 8446, 5.1).
const TLS_ALERT: u8 = 21;

/// Why a server's statistics are not known.
#[derive(Debug)]
pub enum Failure {
    /// It cannot be reached, or the connection ended.
    Connection(io::Error),
    /// It has not answered for so long.
    Silent(Duration),
    /// It has no such statistics.
    Unknown,
    /// It says something else.
    Refused(String),
    /// The file with the login cannot be read.
    Login(OsString, io::Error),
    /// What TLS was asked to be makes no sense.
    Tls(String),
    /// It encrypts, and was not spoken to by TLS.
    Encrypts,
}

impl Failure {
    /// Tells the user what happened, and the way out.
    pub fn told(&self, whom: &Whom) -> String {
        let (place, by_tls) = (&whom.place, whom.tls.is_asked_for());
        match self {
            Failure::Connection(error) if is_silence(error) => {
                format!("{place} does not answer within {} seconds", PATIENCE.as_secs())
            }
            Failure::Silent(waited) => {
                format!("{place} does not answer within {} seconds", waited.as_secs())
            }
            Failure::Connection(error) if by_tls && error.kind() == io::ErrorKind::InvalidData => {
                format!("{place} cannot be asked by TLS: {error}; {}", way_out_of_tls(error))
            }
            Failure::Connection(error) if is_end(error) && by_tls => {
                format!("{place} closed the connection instead of an answer by TLS")
            }
            Failure::Connection(error) if is_end(error) => format!(
                "{place} closed the connection instead of an answer; if it speaks TLS, \
                 --tls-ca FILE names who signed its certificate; one that serves the binary \
                 protocol alone (-B binary, -S) cannot be asked"
            ),
            Failure::Connection(error) => {
                format!("{place} cannot be asked: {error}; is a server running there?")
            }
            Failure::Unknown => format!("the server at {place} has no such statistics"),
            Failure::Refused(words) if words.starts_with(RESP_ERROR) => format!(
                "{place} speaks Redis' protocol alone, as ports of serve --resp do; name one of \
                 -p or -l: it says {words}"
            ),
            Failure::Refused(words) if words.contains("unauthenticated") => {
                format!("the server says {words}; --login FILE shows it USER:PASSWORD")
            }
            Failure::Refused(words) => format!("the server says {words}"),
            Failure::Login(path, error) => format!("{}: {error}", path.display()),
            Failure::Tls(words) => words.clone(),
            Failure::Encrypts => {
                format!("{place} speaks TLS; --tls-ca FILE names who signed its certificate")
            }
        }
    }
}

/// What helps against this error of TLS.
fn way_out_of_tls(error: &io::Error) -> &'static str {
    let error = error.to_string();
    // rustls has no variant for the first; both are told by their names.
    if error.contains("CaUsedAsEndEntity") {
        "its certificate is one of an authority; make it with openssl's option -addext \
         basicConstraints=critical,CA:FALSE"
    } else if error.contains("CertificateRequired") {
        "it asks for a certificate; show one with --tls-cert FILE --tls-key FILE"
    } else {
        "where its port is one of plain text, leave out --tls-ca"
    }
}

fn is_error(line: &str) -> bool {
    line.starts_with(RESP_ERROR) || ERRORS.iter().any(|word| line.starts_with(word))
}

fn is_silence(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&error.kind())
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
    /// How many times [`PATIENCE`] may pass without an answer before it is given up.
    silences_max: u32,
}

impl Server {
    /// Connect, and log in where there is a file with `USER:PASSWORD` in its first line, and the
    /// server asks for that.
    pub fn of(whom: &Whom) -> Result<Server, Failure> {
        let login = match &whom.login {
            None => None,
            Some(path) => {
                let read = std::fs::read_to_string(path).and_then(|text| first_login(&text));
                Some(read.map_err(|error| Failure::Login(path.clone(), error))?)
            }
        };
        let mut server = Server { stream: BufReader::new(stream(whom)?), silences_max: 1 };
        if let Some(login) = login {
            // A login is an item to who asks for none, for everybody to read. Nor is a port that
            // encrypts shown a password in plain text.
            let said = server.version()?;
            match () {
                () if said == WANTS_PASSWORD => server.log_in(&login)?,
                () if said.starts_with(VERSION) => {}
                () => return Err(Failure::Refused(said)),
            }
        }
        Ok(server)
    }

    /// From now on its answers are waited for so many times as long as usual, and stderr tells.
    pub fn be_patient(&mut self, silences_max: u32) {
        self.silences_max = silences_max;
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
                // Not wherever the word stands: it may be in a key that is told.
                line if is_error(line) => return Err(Failure::Refused(line.to_owned())),
                line => each(line.strip_prefix("STAT ").unwrap_or(line)),
            }
        }
    }

    /// The first line of what is answered to `version`, which costs a server nothing.
    pub fn version(&mut self) -> Result<String, Failure> {
        self.stream.get_mut().write_all(b"version\r\n")?;
        let mut line = Vec::new();
        self.stream.by_ref().take(VERSION_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.first() {
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Some(&TLS_ALERT) => Err(Failure::Encrypts),
            Some(_) => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }

    /// The line that is answered to `request`.
    pub fn line_for(&mut self, request: &str) -> Result<String, Failure> {
        self.stream.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
        self.line()
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

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        let mut silences = 0;
        // The buffer keeps what has come of a line.
        while let Err(error) = self.stream.read_until(b'\n', &mut line) {
            if !is_silence(&error) {
                return Err(error.into());
            }
            silences += 1;
            let waited = PATIENCE * silences;
            if self.silences_max <= silences {
                return Err(Failure::Silent(waited));
            }
            let seconds = waited.as_secs();
            // A user may have closed standard error.
            let _ = writeln!(io::stderr(), "laneway: no answer for {seconds} s; waiting on");
        }
        if line.first() == Some(&TLS_ALERT) {
            return Err(Failure::Encrypts);
        }
        if line.pop() != Some(b'\n') {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let line = String::from_utf8_lossy(&line);
        Ok(line.trim_end_matches('\r').to_owned())
    }
}

/// The login that the first line of a file has.
fn first_login(text: &str) -> io::Result<String> {
    let line = text.lines().next().filter(|line| line.contains(':'));
    line.map(str::to_owned).ok_or(io::Error::other("its first line is not USER:PASSWORD"))
}

/// Connects to the server: the stream carries questions and answers.
fn stream(whom: &Whom) -> Result<Box<dyn Stream>, Failure> {
    match &whom.place {
        Place::Unix(path) => {
            let stream = connect_unix(Path::new(path), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        Place::Tcp(address) => {
            let stream = connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            match whom.tls.is_asked_for() {
                false => Ok(Box::new(stream)),
                true => {
                    let client = whom.tls.read(address).map_err(Failure::Tls)?;
                    Ok(Box::new(client.over(stream)?))
                }
            }
        }
    }
}

/// Connects to a unix socket. The kernel has who connects wait while the server's queue is full, as
/// that of one that hangs comes to be: no longer than this, nor does a write wait longer.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(patience))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
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
    /// Of lines with a name and a value each.
    #[cfg(test)]
    pub fn of(text: &str) -> Family {
        let lines = text.lines().map(|line| line.trim().split_once(' ').expect("name and value"));
        Family(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The value of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The number of this name; 0 where it is not told.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A stream on which these bytes arrive; nothing stands for a silence.
    struct Script(VecDeque<&'static [u8]>);

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Ok(0),
                Some([]) => Err(io::ErrorKind::WouldBlock.into()),
                Some(bytes) => {
                    into[..bytes.len()].copy_from_slice(bytes);
                    Ok(bytes.len())
                }
            }
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_tls_is_told_with_what_helps_against_it() {
        let mut whom = Whom::default();
        whom.tls.ca = Some("cert.pem".into());
        for (error, way_out) in [
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("received fatal alert: CertificateRequired", "--tls-cert FILE --tls-key FILE"),
            ("received corrupt message of type InvalidContentType", "leave out --tls-ca"),
        ] {
            let failure = Failure::from(io::Error::new(io::ErrorKind::InvalidData, error));
            let told = failure.told(&whom);
            assert!(told.contains(error) && told.ends_with(way_out), "{told}");
        }
    }

    #[test]
    fn a_unix_socket_with_a_full_queue_is_waited_for_no_longer_than_an_answer() {
        let path = std::env::temp_dir().join(format!("laneway-asking-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let address = SockAddr::unix(&path).expect("a short path");
        // Nobody accepts.
        listener.bind(&address).and_then(|()| listener.listen(0)).expect("temp is writable");
        let mut queued = Vec::new();
        let error = loop {
            match connect_unix(&path, Duration::from_millis(20)) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        std::fs::remove_file(&path).expect("it is there");
        assert!(!queued.is_empty(), "the first has its place");
        let told = Failure::from(error).told(&Whom::default());
        assert!(told.ends_with("does not answer within 10 seconds"), "{told}");
    }

    #[test]
    fn a_key_that_has_the_word_error_in_it_is_no_refusal() {
        let listed = |arrives: &'static [u8]| {
            let stream: Box<dyn Stream> = Box::new(Script([arrives].into()));
            let mut server = Server { stream: BufReader::new(stream), silences_max: 1 };
            let mut lines = Vec::new();
            let told = server.each_line("cachedump 5 0", |line| lines.push(line.to_owned()));
            told.map(|()| lines)
        };
        let all = listed(b"ITEM ERROR [3 b; 0 s]\r\nITEM log:SERVER_ERROR [3 b; 0 s]\r\nEND\r\n");
        assert_eq!(all.expect("nothing is refused").len(), 2);
        for refusal in [&b"CLIENT_ERROR no\r\n"[..], b"SERVER_ERROR no\r\n", b"ERROR no\r\n"] {
            assert!(
                matches!(listed(refusal), Err(Failure::Refused(words)) if words.ends_with("no"))
            );
        }
        assert!(matches!(listed(b"ERROR\r\n"), Err(Failure::Unknown)));
        let resp = listed(b"-ERR unknown command 'stats', with args beginning with: \r\n");
        let told = resp.expect_err("nothing follows").told(&Whom::default());
        assert!(told.contains("Redis' protocol alone") && told.contains("-ERR unknown"), "{told}");
    }

    #[test]
    fn a_file_whose_first_line_is_no_login_is_refused() {
        assert_eq!(first_login("app:a:b\r\nother:c\n").expect("a login"), "app:a:b");
        for text in ["", "\n", "app\n", "\napp:secret\n"] {
            let why = first_login(text).expect_err(text);
            let told = Failure::Login("users".into(), why).told(&Whom::default());
            assert_eq!(told, "users: its first line is not USER:PASSWORD");
        }
    }

    fn asked(silences_max: u32) -> Result<Family, Failure> {
        let arrives: [&[u8]; 5] = [b"STAT a 1\r\nSTAT ", b"", b"", b"b 2\r", b"\nEND\r\n"];
        let stream: Box<dyn Stream> = Box::new(Script(arrives.into()));
        let mut server = Server { stream: BufReader::new(stream), silences_max: 1 };
        server.be_patient(silences_max);
        server.family("backup")
    }

    #[test]
    fn a_server_that_is_silent_for_a_while_is_waited_for_and_loses_no_byte() {
        let told = asked(3).expect("it answers in time");
        assert_eq!((told.text("a"), told.text("b")), (Some("1"), Some("2")));
        assert!(matches!(asked(2), Err(Failure::Silent(waited)) if waited == 2 * PATIENCE));
        assert!(matches!(asked(1), Err(Failure::Silent(waited)) if waited == PATIENCE));
    }
}
