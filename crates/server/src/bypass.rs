//! The way past the kernel's stack, as a server uses it: a socket on each RX queue of each
//! interface, the programs that lead datagrams to them, and for each worker its share.
//!
//! Opened before the workers start, while there are rights to; then everything is reached by
//! descriptors, and any end of the process takes it away.

use crate::settings::BypassSettings;
use crate::stats::BypassSnapshot;
use laneway_kernel::Error;
use laneway_kernel::redirect::{
    self, Hook, QUEUES_MAX, Redirect, RedirectCounts, RedirectSettings,
};
use laneway_transport::datagram::{Datagrams, Queue};
use laneway_transport::socket::SocketTransport;
use laneway_transport::xdp::busy;
use laneway_transport::xdp::handle::XdpDatagrams;
use laneway_transport::xdp::watch::Watch;
use laneway_transport::xdp::{Bypass, Interface, Part, SIZES, TooFew};
use laneway_xdp::packet::{MTU_BYTES_MAX_RECEIVED, Own};
use laneway_xdp::queue::Sender;
use laneway_xdp::socket::{self, Mode};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way, open.
pub struct Way {
    sides: Vec<Side>,
    bypass: Arc<Bypass>,
    /// Each worker's ways out, until it takes them.
    senders: Mutex<Vec<Option<Vec<Sender>>>>,
    /// Whether workers look at the cards' drivers.
    busy_poll: bool,
}

/// One interface, its program attached.
struct Side {
    name: String,
    redirect: Mutex<Redirect>,
    hook: Hook,
    mode: Mode,
}

impl Side {
    fn redirect(&self) -> MutexGuard<'_, Redirect> {
        self.redirect.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One interface, its sockets open and nothing led to them.
struct Opened {
    name: String,
    interface: redirect::Interface,
    redirect: Redirect,
    mode: Mode,
    parts: Vec<Part>,
}

impl Opened {
    /// `again` as in [`Way::open`].
    fn open(
        name: &str,
        settings: &BypassSettings,
        again: &mut impl FnMut() -> bool,
    ) -> Result<Opened, Error> {
        let what = format!("--af-xdp {name}");
        let interface = redirect::look(name)?;
        if interface.mtu_bytes > MTU_BYTES_MAX_RECEIVED {
            let told = format!(
                "its packets may have {} bytes, and {MTU_BYTES_MAX_RECEIVED} are received past the \
                 stack at most; `ip link set {name} mtu {MTU_BYTES_MAX_RECEIVED}` makes them fit",
                interface.mtu_bytes
            );
            return Err(Error::said(what, told));
        }
        let mut redirect = Redirect::load()?;
        let wanted = if settings.copy { Mode::Copy } else { Mode::ZeroCopy };
        let (mut parts, mut mode) = (Vec::new(), Mode::ZeroCopy);
        while parts.len() < QUEUES_MAX {
            let opened = loop {
                match socket::open(interface.index, parts.len() as u32, SIZES, wanted) {
                    Err(error) if error.raw_os_error() == Some(EBUSY) && again() => {}
                    opened => break opened,
                }
            };
            let opened = opened.map_err(|error| Error::said(&what[..], explained(&error)))?;
            let Some(queue) = opened else { break };
            redirect.set_socket(parts.len() as u32, queue.socket.as_fd())?;
            if queue.mode == Mode::Copy {
                mode = Mode::Copy;
            }
            let socket::Queue { receiver, sender, socket, .. } = queue;
            parts.push(Part { receiver, sender, socket: Some(socket) });
        }
        Ok(Opened { name: name.to_owned(), interface, redirect, mode, parts })
    }

    /// Lead the datagrams of `queues` to the sockets.
    fn attach(mut self, queues: &[Queue], own: Own, workers: usize) -> Result<Side, Error> {
        let port = |chosen: bool| {
            let ports = queues.iter().filter(move |queue| queue.chosen == chosen);
            ports.map(|queue| queue.address.port())
        };
        let led = RedirectSettings {
            interface: self.name.clone(),
            address: own.address,
            ordinary: port(false).min(),
            base: port(true).min(),
            workers,
        };
        let hook = self.redirect.attach(&led, &self.interface)?;
        Ok(Side { name: self.name, redirect: Mutex::new(self.redirect), hook, mode: self.mode })
    }

    fn own(&self, queue: &Queue) -> Own {
        Own { address: queue.address.ip(), scope: self.interface.index }
    }
}

/// Have all sockets busy polled. False where the kernel refuses, which is told.
fn prefer_busy_poll(opened: &[Opened]) -> bool {
    let parts = opened.iter().flat_map(|one| &one.parts);
    match parts.filter_map(|part| part.socket.as_ref()).try_for_each(busy::prefer) {
        Ok(()) => true,
        Err(error) => {
            log::warn!(
                "--af-xdp: without --af-xdp-busy-poll, which the kernel refuses ({error}); packets \
                 come as the card's interrupts tell them"
            );
            false
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("interfaces", &self.interfaces()).finish_non_exhaustive()
    }
}

impl Way {
    /// Open it before the server's queues, all of which have one address. `again` is asked, and may
    /// wait, before what another has is tried once more.
    pub fn open(
        settings: &BypassSettings,
        queues: &[Queue],
        mut again: impl FnMut() -> bool,
    ) -> Result<Way, Error> {
        let names = settings.interfaces.join(",");
        redirect::require(&names)?;
        let Some(first) = queues.first() else {
            return Err(Error::said(format!("--af-xdp {names}"), "there is no UDP port"));
        };
        let open = |name: &String| Opened::open(name, settings, &mut again);
        let opened: Result<Vec<Opened>, Error> = settings.interfaces.iter().map(open).collect();
        let mut opened = opened?;
        let busy_poll = settings.busy_poll && prefer_busy_poll(&opened);
        let interface = |one: &mut Opened| {
            let parts = mem::take(&mut one.parts);
            Interface { parts, own: one.own(first), mtu_bytes: one.interface.mtu_bytes }
        };
        let interfaces = opened.iter_mut().map(interface).collect();
        let (bypass, senders) = Bypass::new(interfaces, queues.to_vec()).map_err(|few| {
            let name = &settings.interfaces[few.interface];
            Error::said(format!("--af-xdp {name}"), needed(name, few))
        })?;
        let attach = |one: Opened| {
            let own = one.own(first);
            one.attach(queues, own, senders.len())
        };
        let sides: Result<Vec<Side>, Error> = opened.into_iter().map(attach).collect();
        let senders = Mutex::new(senders.into_iter().map(Some).collect());
        Ok(Way { sides: sides?, bypass, senders, busy_poll })
    }

    /// A worker's transport and its handle on the queues, with this way before `sockets`; for it
    /// alone: the second time there is none.
    pub fn join(
        &self,
        worker: usize,
        transport: SocketTransport,
        sockets: Box<dyn Datagrams>,
    ) -> io::Result<(SocketTransport, Box<dyn Datagrams>)> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = senders.get_mut(worker).and_then(Option::take);
        let senders = senders.ok_or(io::ErrorKind::NotFound)?;
        let watch = Watch::new(self.bypass.clone(), worker);
        let watch = if self.busy_poll { watch.busy() } else { watch };
        let transport = transport.with_bypass(watch);
        let datagrams = XdpDatagrams::new(self.bypass.clone(), worker, senders, sockets);
        Ok((transport, Box::new(datagrams)))
    }

    /// From now on everything goes up the stack.
    pub fn close(&self) -> Result<(), Error> {
        let closed: Vec<Result<(), Error>> =
            self.sides.iter().map(|side| side.redirect().detach()).collect();
        closed.into_iter().collect()
    }

    /// Their names, with commas between.
    fn interfaces(&self) -> String {
        let names: Vec<&str> = self.sides.iter().map(|side| &side.name[..]).collect();
        names.join(",")
    }

    /// Who moves packets, and where programs are attached: of several interfaces, what is worst.
    fn worst(&self) -> (Mode, Hook) {
        let copies = self.sides.iter().any(|side| side.mode == Mode::Copy);
        let is_generic = self.sides.iter().any(|side| side.hook == Hook::Generic);
        (
            if copies { Mode::Copy } else { Mode::ZeroCopy },
            if is_generic { Hook::Generic } else { Hook::Driver },
        )
    }

    /// What the programs counted together.
    fn redirected(&self) -> RedirectCounts {
        let counts = self.sides.iter().map(|side| side.redirect().counts().unwrap_or_default());
        counts.fold(RedirectCounts::default(), |all, one| RedirectCounts {
            led: all.led + one.led,
            other: all.other + one.other,
            unfit: all.unfit + one.unfit,
            elsewhere: all.elsewhere + one.elsewhere,
            socketless: all.socketless + one.socketless,
        })
    }

    /// What it is, in words.
    pub fn told(&self) -> String {
        let how = match self.worst() {
            (Mode::ZeroCopy, _) => "zero-copy",
            (Mode::Copy, Hook::Driver) => {
                "copied by the kernel: its driver has no zero-copy, or \
                                           was not to use it"
            }
            (Mode::Copy, Hook::Generic) => {
                "copied by the kernel behind the driver, which has no \
                                            XDP: this gains little"
            }
        };
        let queues = self.bypass.places();
        let polled = if self.busy_poll { "; workers poll its driver" } else { "" };
        format!(
            "UDP at {} comes past the stack, by {queues} RX queues, {how}{polled}",
            self.interfaces()
        )
    }

    /// For `stats kernel`.
    pub fn snapshot(&self) -> BypassSnapshot {
        let counted = self.bypass.counted();
        let program = self.redirected();
        let (mode, hook) = self.worst();
        let mut counts = vec![("led".to_owned(), program.led)];
        counts.extend(program.passed().map(|(cause, count)| (format!("passed:{cause}"), count)));
        counts.push(("received".into(), counted.received));
        counts.extend(counted.wrong.iter().map(|(why, count)| (format!("dropped:{why}"), *count)));
        let lost = counted.lost;
        for (name, count) in [
            ("lost:receive_ring_full", lost.receive_ring_full),
            ("lost:fill_ring_empty", lost.fill_ring_empty),
            ("lost:other", lost.receive_dropped),
            ("invalid_descriptors", lost.invalid_descriptors),
            ("waiting", counted.waiting),
            ("sent", counted.sent),
            ("sent_by_stack", counted.by_stack),
            ("send_ring_full", counted.full),
            ("interface_down", counted.down),
        ] {
            counts.push((name.into(), count));
        }
        BypassSnapshot {
            interface: self.interfaces(),
            mode: mode.name(),
            hook: hook.name(),
            queues: self.bypass.places(),
            busy_poll: self.busy_poll,
            counts,
        }
    }
}

/// What to do where there are more workers than RX queues, of which each needs one.
fn needed(interface: &str, TooFew { queues, workers, .. }: TooFew) -> String {
    let way_out = match workers > QUEUES_MAX {
        true => format!("no more than {QUEUES_MAX} can be used; start fewer workers with -t"),
        false => format!(
            "`ethtool -L {interface} combined {workers}` gives it more where it can have them, or \
             start fewer workers with -t"
        ),
    };
    format!(
        "it has {queues} RX queues, and there are {workers} workers, each of which needs one; \
         {way_out}"
    )
}

/// What an error of the sockets means, and what to do.
fn explained(error: &io::Error) -> String {
    let help = match error.raw_os_error() {
        Some(ENOBUFS | ENOMEM) => {
            "; each RX queue takes 6 MiB of locked memory: allow more with `ulimit -l`, or grant \
             cap_ipc_lock, too"
        }
        Some(EBUSY) => "; another program receives past the stack there: stop it",
        Some(EAFNOSUPPORT) => "; this kernel was built without CONFIG_XDP_SOCKETS",
        _ => "",
    };
    format!("opening a socket for an RX queue: {error}{help}")
}

/// Numbers of errors on Linux.
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_queues_are_advised_only_where_they_would_be_used() {
        let told = |queues, workers| needed("eth0", TooFew { interface: 0, queues, workers });
        let more = told(2, 3);
        assert!(more.contains("it has 2 RX queues, and there are 3 workers"), "{more}");
        assert!(more.contains("`ethtool -L eth0 combined 3`"), "{more}");
        let fewer = told(64, 65);
        assert!(fewer.contains("no more than 64 can be used") && !fewer.contains("ethtool"));
    }

    #[test]
    fn errors_of_sockets_say_what_to_do() {
        for (number, way_out) in [(ENOBUFS, "ulimit -l"), (EBUSY, "stop it")] {
            let told = explained(&io::Error::from_raw_os_error(number));
            assert!(told.contains(way_out), "{told}");
        }
    }
}
