//! The queue of requests that found no room in a server's memory. The client tries them again in
//! their order, drops what is too late, and computes how long it may sleep meanwhile. This module
//! knows no clock, and no kind of memory.

use crate::core::{Core, Departure};
use laneway_rdma::contract::Posted;
use laneway_wire::udp::{Header, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

/// Looks for a reply before the CPU is given away, and how often it is, before sleeping.
const LOOKS: u32 = 64;
const YIELDS: u32 = 16;
/// The longest sleep: behind it, whether the server is still there.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The longest while something waits that nobody may tell of, such as room: a server in memory does
/// not, another's word may be lost, and a card that writes tells nobody.
const SLEEP_UNTOLD: Duration = Duration::from_millis(1);

/// Whether a datagram found room; an error where the server is `gone`.
pub(crate) fn posted(posted: Posted, gone: fn() -> io::Error) -> io::Result<bool> {
    match posted {
        Posted::Done => Ok(true),
        Posted::Full => Ok(false),
        Posted::Gone => Err(gone()),
    }
}

/// A datagram, with its queue.
type Waits = (u16, Vec<u8>);

/// Of a datagram which says that a request is lent, the request's id.
pub(crate) fn lent_id(datagram: &[u8]) -> Option<u16> {
    let (header, _) = Header::parse(datagram)?;
    (header.kind == Kind::Lent).then_some(header.request_id)
}

/// Has `take_back` take back what is lent for requests that have ended.
pub(crate) fn end_loans<D>(
    lent: &mut BTreeMap<u16, D>,
    core: &Core,
    mut take_back: impl FnMut(u16, &D),
) {
    lent.retain(|id, descriptor| {
        let is_wanted = core.is_under_way(*id);
        if !is_wanted {
            take_back(*id, descriptor);
        }
        is_wanted
    });
}

/// The datagrams that wait until the region has room for them.
#[derive(Default)]
pub(crate) struct Waiting {
    short: VecDeque<Waits>,
    /// One of a request that is to be lent. Short ones are sent past it.
    long: Option<Waits>,
    out: Vec<u8>,
}

impl Waiting {
    /// Whether something does.
    pub(crate) fn is_any(&self) -> bool {
        !self.short.is_empty() || self.long.is_some()
    }

    /// Has `post` write everything that waits and that the core has to send now, as far as there is
    /// room: false of a datagram that found none.
    pub(crate) fn send(
        &mut self,
        core: &mut Core,
        now_nanos: u64,
        mut post: impl FnMut(&mut Core, u16, &[u8]) -> io::Result<bool>,
    ) -> io::Result<()> {
        let may_leave = |waits: &Waits| core.may_leave(&waits.1, now_nanos);
        self.short.retain(may_leave);
        self.long = self.long.take().filter(may_leave);
        // It needs little beside its memory, and would never find it behind all that is short.
        if let Some((queue, bytes)) = self.long.take()
            && !post(core, queue, &bytes)?
        {
            self.long = Some((queue, bytes));
        }
        while let Some((queue, bytes)) = self.short.pop_front() {
            if !post(core, queue, &bytes)? {
                self.short.push_front((queue, bytes));
                return Ok(());
            }
        }
        let mut out = std::mem::take(&mut self.out);
        while self.short.is_empty()
            && let Some(departure) = self.next(core, now_nanos, &mut out)
        {
            for datagram in out.chunks(departure.segment_bytes.max(1)) {
                let queue = departure.queue;
                if self.short.is_empty() && post(core, queue, datagram)? {
                    continue;
                }
                let waits = (queue, datagram.to_vec());
                match lent_id(datagram) {
                    None => self.short.push_back(waits),
                    Some(_) => self.long = Some(waits),
                }
            }
        }
        self.out = out;
        Ok(())
    }

    /// How long to sleep for who would wait so long; nothing, if `has_come` says meanwhile that
    /// something has. `is_untold`: something else than room may come without a word.
    pub(crate) fn sleep(
        &self,
        nanos: u64,
        is_untold: bool,
        mut has_come: impl FnMut() -> bool,
    ) -> Option<Duration> {
        // The core may have something to send at once, but there is no room for it.
        let nanos = match self.is_any() {
            false => nanos,
            true => nanos.max(SLEEP_UNTOLD.as_nanos() as u64),
        };
        for look in 0..LOOKS + YIELDS {
            if nanos == 0 || has_come() {
                return None;
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let most = if is_untold || self.is_any() { SLEEP_UNTOLD } else { SLEEP_MAX };
        Some(Duration::from_nanos(nanos).min(most))
    }

    /// What leaves next: nothing long while something long waits.
    fn next(&self, core: &mut Core, now_nanos: u64, out: &mut Vec<u8>) -> Option<Departure> {
        match self.long {
            None => core.transmit(now_nanos, out),
            Some(_) => core.transmit_short(now_nanos, out),
        }
    }
}
