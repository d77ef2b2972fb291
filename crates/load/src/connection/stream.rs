//! What a connection is made of: a stream over TCP, plain or encrypted, or a unix socket.

use laneway_tls::{Client, ClientStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long a server may take to go on with a handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `host:port`.
    Tcp(String),
    /// The same, encrypted.
    Tls(String, Client),
    /// A unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Tcp(address) | Target::Tls(address, _) => f.write_str(address),
            Target::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A stream of any kind.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TCP with TLS.
    Tls(Box<ClientStream>),
    /// A unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects, without Nagle's delay, and through the handshake of TLS; the stream blocks.
    pub fn connect(target: &Target) -> io::Result<Self> {
        match target {
            Target::Tcp(address) => connect(address).map(Stream::Tcp),
            Target::Tls(address, client) => {
                Ok(Stream::Tls(Box::new(handshake(connect(address)?, client)?)))
            }
            Target::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// Whether bytes were taken that the kernel does not have yet: encrypted ones.
    pub(super) fn holds_back(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.conn.wants_write())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => encrypt(stream, bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => push(stream),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.sock.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A stream without Nagle's delay.
pub(crate) fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A stream that is through the handshake, which may take [`HANDSHAKE_WITHIN`] between two of its
/// bytes.
pub(crate) fn handshake(stream: TcpStream, client: &Client) -> io::Result<ClientStream> {
    stream.set_read_timeout(Some(HANDSHAKE_WITHIN))?;
    stream.set_write_timeout(Some(HANDSHAKE_WITHIN))?;
    let stream = client.over(stream)?;
    stream.sock.set_read_timeout(None)?;
    stream.sock.set_write_timeout(None)?;
    Ok(stream)
}

/// Takes bytes once all that was encrypted before has left. Only writes: where the session reads
/// too, as it would by itself, replies lie in it of which the socket does not tell.
fn encrypt(stream: &mut ClientStream, bytes: &[u8]) -> io::Result<usize> {
    push(stream)?;
    let taken = stream.conn.writer().write(bytes)?;
    match push(stream) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(taken),
    }
}

/// Hands what was encrypted to the kernel.
fn push(stream: &mut ClientStream) -> io::Result<()> {
    while stream.conn.wants_write() {
        match stream.conn.write_tls(&mut stream.sock) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => drop(sent?),
        }
    }
    Ok(())
}
