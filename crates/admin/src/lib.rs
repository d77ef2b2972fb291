//! The admin endpoint of a server, over HTTP/1.1: `/metrics` for Prometheus, `/healthz` and
//! `/readyz` for whoever restarts or routes, `/` the dashboard for people, and `/api/state`, the
//! numbers that the dashboard draws.
//!
//! It has one thread and never a worker's time: each answer is made of a
//! [`WatchSnapshot`], which is read without a lock that a
//! worker takes. HTTP is hyper's, on tokio's scheduler for one thread: the smallest of the runtimes
//! that hyper is tested with, and it has the timers that bound a client's patience.
//!
//! Knows the server's numbers and the addresses of its clients: no key and no value. Nothing here
//! changes the server.
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
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// Reads the numbers of now.
pub type Watch = Arc<dyn Fn() -> WatchSnapshot + Send + Sync>;

/// An endpoint that listens and answers nobody yet.
#[derive(Debug)]
pub struct Closed {
    listener: TcpListener,
    address: SocketAddr,
}

/// An endpoint that answers.
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

    /// Answer from now on, by a thread of its own.
    pub fn run(self, watch: Watch) -> io::Result<Running> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(http::serve(self.listener, watch, stopped));
        })?;
        Ok(Running { thread, stop })
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
