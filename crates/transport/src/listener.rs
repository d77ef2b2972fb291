//! Places where clients connect, by TCP or by a unix socket.

use rustix::fd::OwnedFd;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fs::Permissions;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A place where clients connect. Shared by all workers.
pub struct Listener {
    socket: Socket,
    /// Of a unix socket of ours: removed again on drop, unless another server has made it anew.
    file: Option<SocketFile>,
    /// Not one that somebody else opened and goes on using.
    is_ours: bool,
}

/// The file of a unix socket. The kernel gives no other file its identity while the socket is open.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// The one that stands there.
    fn at(path: &Path) -> io::Result<SocketFile> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_owned(), identity: (found.dev(), found.ino()) })
    }
}

impl Listener {
    /// Listen on a TCP address. `backlog` is the kernel's queue of connections not yet accepted.
    pub fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Listener> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?; // accepted sockets inherit both
        socket.set_keepalive(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?; // the IPv4 wildcard gets a listener of its own
        }
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(Listener { socket, file: None, is_ours: true })
    }

    /// Listen on a unix socket with the given permission bits. A socket left behind by a dead
    /// server is replaced; one that a living server answers on, or another kind of file, is not.
    pub fn unix(path: &Path, mode: u32, backlog: i32) -> io::Result<Listener> {
        let address = SockAddr::unix(path)?;
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is not a socket stands there",
                ));
            }
            let answer = probe(path, &address, found.permissions().mode());
            match answer.map_err(|error| (error.kind(), error)) {
                Err((io::ErrorKind::ConnectionRefused, _)) => std::fs::remove_file(path)?,
                Err((io::ErrorKind::NotFound, _)) => {} // gone since
                Ok(()) | Err((io::ErrorKind::WouldBlock, _)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "another server answers on this socket",
                    ));
                }
                // Of another kind, or not ours to open: somebody may have it.
                Err((_, error)) => return Err(error),
            }
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.bind(&address)?;
        let listener = Listener { socket, file: Some(SocketFile::at(path)?), is_ours: true };
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        listener.socket.listen(backlog)?;
        Ok(listener)
    }

    /// Take a socket that somebody else opened, TCP or unix, and that listens already. It accepts
    /// as one of our own does from now on; the file of a unix socket stays when the server ends,
    /// since it is not ours.
    pub fn opened_before(socket: OwnedFd) -> io::Result<Listener> {
        let socket = Socket::from(socket);
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a connection rather than a socket that listens for connections",
            ));
        }
        socket.set_nonblocking(true)?;
        if socket.local_addr()?.as_socket().is_some() {
            socket.set_tcp_nodelay(true)?; // accepted sockets inherit both
            socket.set_keepalive(true)?;
        }
        Ok(Listener { socket, file: None, is_ours: false })
    }

    /// The kernel refuses whoever comes from now on, and those that wait to be accepted. A socket
    /// that somebody else opened is left alone: who comes there waits for the next server.
    pub fn refuse(&self) {
        if !self.is_ours {
            return;
        }
        // It fails where nothing listens any more, and then there is nothing to do.
        let _ = self.socket.shutdown(Shutdown::Read);
        // Of TCP the kernel has reset those that wait. Of a unix socket it keeps them.
        while self.socket.accept().is_ok() {}
    }

    /// The TCP address, with the port that the kernel chose where 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Where it listens, in memcached's notation.
    pub fn name(&self) -> Option<String> {
        named_own(&self.socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(file) = &self.file else { return };
        let found = SocketFile::at(&file.path); // gone already: nothing left to do
        if found.is_ok_and(|found| found.identity == file.identity) {
            let _ = std::fs::remove_file(&file.path);
        }
    }
}

/// Whether somebody accepts at a unix socket whose file has this mode.
fn probe(path: &Path, address: &SockAddr, mode: u32) -> io::Result<()> {
    const OWNER_WRITES: u32 = 0o200;
    let connect = || {
        // Without waiting: who accepts nobody may have a full queue.
        Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?.connect(address)
    };
    let change_mode = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    match connect() {
        // Its clients are others than its owner (`-a 0060`). An owner may let himself in.
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && mode & OWNER_WRITES == 0
                && change_mode(mode | OWNER_WRITES).is_ok() =>
        {
            let answer = connect();
            change_mode(mode)?;
            answer
        }
        answer => answer,
    }
}

/// A TCP address in memcached's notation.
pub(crate) fn named(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(address) => format!("tcp6:{address}"),
        SocketAddr::V4(address) => format!("tcp:{address}"),
    }
}

/// A socket's own address in the same notation.
pub(crate) fn named_own(socket: &Socket) -> Option<String> {
    let address = socket.local_addr().ok()?;
    let path = || Some(format!("unix:{}", address.as_pathname()?.display()));
    let bare = || {
        // Without a file: `@` stands for the zero byte, as in the kernel's own lists.
        let name = address.as_abstract_namespace()?;
        Some(format!("unix:@{}", name.escape_ascii()))
    };
    address.as_socket().map(named).or_else(path).or_else(bare)
}
