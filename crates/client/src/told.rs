//! Long replies that a server has told of: it wrote them into memory that this client lends, and a
//! notice says where. Which memory that is, and how a reply is known to be whole, the link knows
//! ([`crate::memory`], [`crate::remote`]). It knows no clock.

use crate::core::Core;
use laneway_wire::udp::{Header, Kind};

/// A reply that was told of.
pub(crate) struct Notice<D> {
    pub(crate) queue: u16,
    pub(crate) id: u16,
    /// Of how many frames it would be.
    pub(crate) total: u16,
    /// Where it lies.
    pub(crate) said: D,
    /// How often it was looked for.
    looks: u32,
}

/// Those that have not been taken.
pub(crate) struct Told<D> {
    notices: Vec<Notice<D>>,
    /// How often one is looked for: then its frames will be.
    looks_max: u32,
}

impl<D> Told<D> {
    /// None yet; each is to be looked for so often.
    pub(crate) fn new(looks_max: u32) -> Told<D> {
        Told { notices: Vec::new(), looks_max }
    }

    /// Whether some have not come as their notices say.
    pub(crate) fn is_any(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes what came from `queue` in, if it is a notice in which `parse` finds where a reply
    /// lies, and somebody waits for that; anything else is for the core.
    pub(crate) fn hear(
        &mut self,
        core: &mut Core,
        (queue, bytes): (usize, &[u8]),
        now_nanos: u64,
        parse: impl FnOnce(&[u8]) -> Option<D>,
    ) {
        let queue = queue as u16;
        let parsed = Header::parse(bytes).filter(|(header, _)| header.kind == Kind::Notice);
        let told = parsed.and_then(|(header, said)| Some((header, parse(said)?)));
        let Some((Header { request_id: id, total, .. }, said)) = told else {
            return core.feed(queue, bytes, now_nanos);
        };
        if core.hear_notice(queue, id, total, now_nanos) {
            self.notices.push(Notice { queue, id, total, said, looks: 0 });
        }
    }

    /// Has `open` look at each that is still waited for, and hand it to the core: false of one that
    /// is not there.
    pub(crate) fn open(
        &mut self,
        core: &mut Core,
        mut open: impl FnMut(&mut Core, &Notice<D>) -> bool,
    ) {
        let looks_max = self.looks_max;
        self.notices.retain_mut(|notice| {
            notice.looks += 1;
            let is_over = !core.waits_for(notice.queue, notice.id) || open(core, notice);
            !is_over && notice.looks < looks_max
        });
    }
}
