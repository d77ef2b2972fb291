//! The admin endpoint of a server, over HTTP/1.1: `/metrics` for Prometheus, `/healthz` and
//! `/readyz` for whoever restarts or routes, `/` the dashboard for people, and `/api/state`, the
//! numbers that the dashboard draws.
//!
//! It has one thread and never a worker's time: each answer is made of a
//! [`WatchSnapshot`], which is read without a lock that a
//! worker takes. HTTP is hyper's, on tokio's scheduler for one thread: the smallest of the runtimes
//! that hyper is tested with, and it has the timers that bound a client's patience.
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

use laneway_server::watch::WatchSnapshot;
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
    listener: TcpListener,
    address: SocketAddr,
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

/// Listen there; the kernel chooses port 0.
pub fn listen(address: SocketAddr) -> io::Result<Closed> {
    take(TcpListener::bind(address)?)
}

/// The same by a socket that listens already.
pub fn take(listener: TcpListener) -> io::Result<Closed> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(Closed { listener, address })
}

impl Closed {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answer from now on, by a thread of its own. A server that opens a large store is asked for
    /// minutes whether it lives.
    pub fn start(self) -> io::Result<Starting> {
        let (stop, stopped) = oneshot::channel();
        let place = Place::default();
        let watch = place.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(http::serve(self.listener, watch, stopped));
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
    fn before_there_is_a_server_it_lives_and_is_not_ready() {
        let closed = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = closed.address();
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
