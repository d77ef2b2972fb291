//! The door for clients in memory: its registry, and the thread that opens to them. The thread
//! sleeps until somebody comes or goes; no request passes it.

use super::{Gate, once_open};
use crate::clock::{Clock, SystemClock};
use crate::settings::{Settings, ShmSettings};
use crate::shared::Shared;
use laneway_rdma::door::{Door, House, Turned};
use laneway_rdma::layout::{BULK_BYTES_MAX, Terms};
use laneway_rdma::region::Registry;
use laneway_transport::socket::Listener;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// What a client may lend, at least: a few large values at once.
const BULK_BYTES_MIN: usize = 8 << 20;
/// The longest reply has less than half of it: frames count to 65 535, also where none are sent.
const REPLY_BYTES_MAX: usize = 192 << 20;
/// Lines around a value, and what alignment takes.
const LINE_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// What every client gets: memory for two items of the largest size, and as much for replies.
pub fn terms(settings: &Settings) -> Terms {
    let bulk = (2 * settings.item_bytes_max + LINE_BYTES).max(BULK_BYTES_MIN);
    let bulk = bulk.next_multiple_of(PAGE_BYTES).min(BULK_BYTES_MAX);
    Terms { reply_bytes: bulk.min(REPLY_BYTES_MAX), ..Terms::of(settings.workers, bulk) }
}

/// A door that nobody has come through yet.
pub struct Closed {
    door: Door<Listener>,
    stopper: UnixStream,
    /// Who has come through.
    pub registry: Arc<Registry>,
}

/// An open one.
pub struct Running {
    stopper: UnixStream,
    thread: JoinHandle<()>,
}

/// Listen, if that is asked for.
pub fn listen(settings: &Settings) -> Result<Option<Closed>, (String, io::Error)> {
    let Some(ShmSettings { path, mode, clients_max }) = &settings.shm else { return Ok(None) };
    let told = |error| (path.display().to_string(), error);
    let terms = terms(settings);
    terms.check().map_err(|error| told(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let listener = Listener::unix(path, *mode, settings.backlog).map_err(told)?;
    let registry = Arc::new(Registry::new(terms, *clients_max));
    let (door, stopper) = Door::new(listener, registry.clone()).map_err(told)?;
    Ok(Some(Closed { door, stopper, registry }))
}

impl Closed {
    /// Let clients in.
    pub fn open<S: Send + 'static>(
        self,
        shared: Arc<Shared<S>>,
        gate: &Gate,
    ) -> io::Result<Running> {
        let Closed { door, stopper, .. } = self;
        Running::open("shm", (door, stopper), shared, gate)
    }
}

impl Running {
    /// Have a thread stand at `door`, which `flag` asked for.
    pub fn open<S: Send + 'static, H: House + Send + Sync + 'static>(
        flag: &'static str,
        (door, stopper): (Door<Listener, H>, UnixStream),
        shared: Arc<Shared<S>>,
        gate: &Gate,
    ) -> io::Result<Running> {
        let builder = thread::Builder::new().name(format!("{flag}-door"));
        let gate = gate.clone();
        let thread = builder.spawn(move || once_open(&gate, || run(flag, door, &shared)))?;
        Ok(Running { stopper, thread })
    }

    /// Let everybody go.
    pub fn close(self) {
        drop(self.stopper);
        // One that panicked has said so already.
        let _ = self.thread.join();
    }
}

fn run<S, H: House>(flag: &str, mut door: Door<Listener, H>, shared: &Shared<S>) {
    let clock = SystemClock::start();
    loop {
        match door.turn(None, || clock.nanos()) {
            Ok(Turned::Same) => {}
            Ok(Turned::Changed) => shared.wake_all(),
            Ok(Turned::Closed) => return,
            Err(error) => {
                log::error!("--{flag}: no client comes or goes any more: {error}");
                return;
            }
        }
    }
}
