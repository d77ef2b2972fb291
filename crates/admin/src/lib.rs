//! The admin endpoint of a server, over HTTP/1.1: `/metrics` for Prometheus, `/healthz` and
//! `/readyz` for whoever restarts or routes, `/` the dashboard for people, and `/api/state`, the
//! numbers that the dashboard draws.
//!
//! It has one thread and never a worker's time: each answer is made of a [`WatchSnapshot`], which
//! is read without a lock that a worker waits for. HTTP is hyper's, on tokio's scheduler for one
//! thread: the smallest of the runtimes that hyper is tested with, and it has the timers that bound
//! a client's patience.
//!
//! It knows the server's numbers and the addresses of its clients: no key and no value. Nothing
//! here changes the server.
#![forbid(unsafe_code)]

mod causes;
mod connections;
mod http;
mod metrics;
mod routes;
mod state;

use laneway_server::counts::watch::WatchSnapshot;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// Reads the numbers of now.
pub type Watch = Arc<dyn Fn() -> WatchSnapshot + Send + Sync>;

/// Where the watch is once there is a server to tell of.
type Place = Arc<OnceLock<Watch>>;

/// An endpoint that listens and answers nobody yet.
#[derive(Debug)]
pub struct Closed {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

/// An endpoint that answers, and has no server to tell of: it says that it is alive and not ready.
pub struct Starting {
    running: Running,
    place: Place,
}

/// An endpoint that tells of a server.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

/// Listen at these addresses of one name, at one port; the kernel chooses port 0. Those that the
/// machine does not have are left out, as `::1` of `localhost` is where there is no IPv6, as long
/// as it has one.
pub fn listen(addresses: &[SocketAddr]) -> io::Result<Closed> {
    let mut closed = Closed { listeners: Vec::new(), addresses: Vec::new() };
    let mut refused = None;
    for address in addresses {
        let mut address = *address;
        if let (0, Some(first)) = (address.port(), closed.addresses.first()) {
            address.set_port(first.port());
        }
        match TcpListener::bind(address) {
            Ok(listener) => closed.add(listener)?,
            Err(error) if is_not_here(&error) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if closed.listeners.is_empty() => Err(error),
        _ => Ok(closed),
    }
}

/// Whether the machine has no such address, or no address of its kind.
fn is_not_here(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// The same by a socket that listens already.
pub fn take(listener: TcpListener) -> io::Result<Closed> {
    let mut closed = Closed { listeners: Vec::new(), addresses: Vec::new() };
    closed.add(listener)?;
    Ok(closed)
}

impl Closed {
    fn add(&mut self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.addresses.push(listener.local_addr()?);
        self.listeners.push(listener);
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answer from now on, by a thread of its own. A server that opens a large store is asked for
    /// minutes whether it lives.
    pub fn start(self) -> io::Result<Starting> {
        let (stop, stopped) = oneshot::channel();
        let place = Place::default();
        let watch = place.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(http::serve(self.listeners, watch, stopped));
        })?;
        Ok(Starting { running: Running { thread, stop }, place })
    }
}

impl Starting {
    /// Tell of this server from now on.
    pub fn tell_of(self, watch: Watch) -> Running {
        let told = self.place.set(watch);
        assert!(told.is_ok(), "this is called once");
        self.running
    }
}

impl Running {
    /// Close every connection, and end the thread.
    pub fn stop(self) {
        // It ends by itself only if it could not listen, and has said so.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn it_answers_at_all_addresses_of_a_name_that_the_machine_has() {
        // The second is nobody's (RFC 5737), the third another one of the loopback.
        let asked = ["127.0.0.1:0", "192.0.2.1:0", "127.0.0.2:0"];
        let asked: [SocketAddr; 3] = asked.map(|text| text.parse().unwrap());
        let closed = listen(&asked).unwrap();
        let addresses = closed.addresses().to_vec();
        let ips: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(ips, ["127.0.0.1", "127.0.0.2"]);
        assert_eq!(addresses[0].port(), addresses[1].port());
        let starting = closed.start().unwrap();
        for address in &addresses {
            let mut stream = TcpStream::connect(address).unwrap();
            let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{address}: {answer}");
        }
        starting.running.stop();
        assert!(listen(&asked[1..2]).is_err(), "there is no such address here");
    }

    /// An address that the machine has and that cannot be listened at is an error.
    #[test]
    fn only_an_address_that_the_machine_does_not_have_is_left_out() {
        let not_here = |code| is_not_here(&io::Error::from_raw_os_error(code));
        let (unavailable, no_family) = (99, 97);
        assert!(not_here(unavailable) && not_here(no_family));
        let (refused, in_use, invalid, no_descriptors) = (13, 98, 22, 24);
        assert!(![refused, in_use, invalid, no_descriptors].into_iter().any(not_here));
    }

    #[test]
    fn before_there_is_a_server_it_lives_and_is_not_ready() {
        let closed = listen(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = closed.addresses()[0];
        let starting = closed.start().unwrap();
        let ask = |path| {
            let mut stream = TcpStream::connect(address).unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask("/healthz").starts_with("HTTP/1.1 200 "));
        for path in ["/readyz", "/metrics", "/api/state", "/"] {
            let answer = ask(path);
            assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
            assert!(answer.contains("the server is starting"), "{path}: {answer}");
        }
        assert!(ask("/nowhere").starts_with("HTTP/1.1 404 "));
        starting.running.stop();
    }
}
