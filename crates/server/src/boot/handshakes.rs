//! The threads that make TLS handshakes: they accept from listeners of their own, and give way to
//! workers on the same CPU. Each connection that is through goes to a thread that does not give
//! way, which puts it into a worker's mailbox: it takes locks that workers take.

use super::listeners::Listeners;
use super::{Gate, ServerStream, once_open};
use crate::access::listener_rules::ListenerRules;
use crate::access::usher::{ByAddress, Usher};
use crate::clock::{Clock, SystemClock, nanos_of};
use crate::settings::{GUESTS_MAX, Rules, Settings};
use crate::shared::{Connections, Shared};
use laneway_tier::drop_priority;
use laneway_tls::{Acceptor, Bounds, Finished, Handshakes};
use laneway_transport::scheduler::give_way;
use laneway_transport::socket::{Listener, SocketStream, SocketTransport};
use laneway_transport::{Stream, Transport, Wake};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// As many as make a few thousand handshakes a second, where there are the CPUs.
const THREADS: usize = 2;
/// How much less of a CPU a thread gets that workers want too (`nice`).
const NICENESS: i32 = 10;
/// How long a worker's full mailbox is left alone.
const MAILBOX_TICK: Duration = Duration::from_millis(1);

/// Listeners that nobody has come by yet.
pub struct Closed {
    pub listeners: Arc<Vec<Listener>>,
    resp_from: usize,
    rules: Vec<Rules>,
    acceptor: Arc<Acceptor>,
    /// Most connections of one address; 0 for any number.
    per_address: usize,
    limit: Duration,
    /// Handshakes under way at once, in all.
    most: usize,
}

/// Threads that make handshakes.
pub struct Running {
    listeners: Arc<Vec<Listener>>,
    resp_from: usize,
    rules: Vec<Rules>,
    stop: Arc<AtomicBool>,
    threads: Vec<(Arc<dyn Wake>, JoinHandle<()>)>,
    usher: Option<JoinHandle<()>>,
}

/// The listeners whose connections are encrypted, if the settings say how.
pub fn closed(settings: &Settings, listeners: Listeners) -> Option<Closed> {
    let tls = settings.tls.as_ref()?;
    let (listeners, rules, resp_from) = listeners.in_order();
    let acceptor = tls.acceptor.clone();
    let per_address = settings.connections_per_address;
    let listeners = Arc::new(listeners);
    let (limit, most) = (tls.handshake, tls.handshakes_max);
    Some(Closed { listeners, resp_from, rules, acceptor, per_address, limit, most })
}

impl Closed {
    /// Let clients in.
    pub fn open(
        self,
        domains: &[Arc<Shared<ServerStream>>],
        gate: &Gate,
        clock: SystemClock,
    ) -> io::Result<Running> {
        let Closed { listeners, resp_from, rules, acceptor, per_address, limit, most } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let bounds = Bounds { most: (most / THREADS).max(1), nanos: nanos_of(limit) };
        let (sender, guests) = sync_channel(GUESTS_MAX.min(most / THREADS));
        let mut running =
            Running { listeners, resp_from, rules, stop, threads: Vec::new(), usher: None };
        for number in 0..THREADS {
            let transport = SocketTransport::new(running.listeners.clone())?;
            let waker = transport.waker();
            let mut handshakes = Handshakes::new(transport, acceptor.clone(), bounds);
            if per_address > 0 {
                let connections = domains[0].connections.clone();
                handshakes =
                    handshakes.counted_by(Box::new(ByAddress::new(connections, per_address)));
            }
            let pool = Pool {
                guests: sender.clone(),
                connections: domains[0].connections.clone(),
                is_counted: per_address > 0,
                stop: running.stop.clone(),
                clock,
            };
            let builder = thread::Builder::new().name(format!("tls-{number}"));
            let gate = gate.clone();
            let thread = builder.spawn(move || once_open(&gate, || pool.run(handshakes)))?;
            running.threads.push((waker, thread));
        }
        let limits = &domains[0].connections.clients.limits;
        let rules = ListenerRules::of(&running.rules, limits);
        let usher = Usher::new(domains.to_vec(), resp_from, rules);
        let stop = running.stop.clone();
        let builder = thread::Builder::new().name("tls-usher".to_owned());
        let thread = builder.spawn(move || {
            guests.into_iter().for_each(|guest| bring(&usher, guest, &stop, clock));
        });
        running.usher = Some(thread?);
        Ok(running)
    }
}

impl Running {
    /// Where it listens, with the ports that the kernel chose: for RESP alone, or for the others.
    pub fn addresses(&self, is_resp: bool) -> impl Iterator<Item = SocketAddr> {
        let (others, resp) = self.listeners.split_at(self.resp_from);
        (if is_resp { resp } else { others }).iter().filter_map(Listener::address)
    }

    /// Of these, those where nothing may be changed.
    pub fn read_only_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let all = self.listeners.iter().zip(&self.rules);
        all.filter(|(_, rules)| rules.read_only).filter_map(|(listener, _)| listener.address())
    }

    /// Let nobody in any more; handshakes under way end.
    pub fn close(self) {
        self.stop.store(true, Ordering::Release);
        for (waker, thread) in self.threads {
            waker.wake();
            // One that panicked has said so already.
            let _ = thread.join();
        }
        // Those who sent to it are gone, so it ends.
        let _ = self.usher.map(JoinHandle::join);
    }
}

/// What one of the threads has that make handshakes.
struct Pool {
    guests: SyncSender<Finished<SocketStream>>,
    connections: Arc<Connections>,
    /// Who comes is counted by his address.
    is_counted: bool,
    stop: Arc<AtomicBool>,
    clock: SystemClock,
}

impl Pool {
    fn run(&self, mut handshakes: Handshakes<SocketTransport>) {
        drop_priority();
        // The niceness alone would not do: a slice of the default length is not taken away before
        // its end, so that who wakes on this CPU would wait for milliseconds.
        give_way(NICENESS);
        let mut finished = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let stepped = handshakes.step(&|| self.clock.nanos(), &mut finished);
            finished.drain(..).for_each(|guest| self.send(guest));
            match stepped {
                Ok(None) => {}
                Ok(Some(error)) => {
                    log::warn!("accepting TLS connections pauses for a second: {error}");
                    self.connections.paused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    log::error!("no TLS connection is accepted any more: {error}");
                    return;
                }
            }
        }
    }

    /// To who brings it to a worker. Refused only where that one has panicked, which has been said;
    /// then it does not count among those of its address any more.
    fn send(&self, guest: Finished<SocketStream>) {
        if let Err(SendError(guest)) = self.guests.send(guest)
            && self.is_counted
        {
            self.connections.per_address.leave(&guest.stream.peer());
        }
    }
}

/// Brings guests to workers until `stop` is told; then to those alone whose mailbox has room.
fn bring(
    usher: &Usher<SocketStream>,
    guest: Finished<SocketStream>,
    stop: &AtomicBool,
    clock: SystemClock,
) {
    let now_seconds = clock.unix_seconds(clock.nanos());
    let Some(mut guest) = usher.welcome(guest, now_seconds) else { return };
    loop {
        match guest.enter() {
            Ok(()) => return,
            Err(back) => guest = back,
        }
        if stop.load(Ordering::Acquire) {
            return guest.turn_away();
        }
        thread::sleep(MAILBOX_TICK);
    }
}
