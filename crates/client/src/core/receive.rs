//! What comes back: replies, parts of replies, and the server's wish for frames that it missed.

use super::Core;
use super::pending::{Attempt, Heard};
use crate::answer::{self, Answer};
use crate::error::Error;
use crate::request::Repeat;
use laneway_rdma::shmring::LyingReply;
use laneway_wire::udp::reassembly::Refused;
use laneway_wire::udp::resend::{forget, gaps, put_resend};
use laneway_wire::udp::{Gap, Header, Kind, Message, Taken};
use std::ops::Range;

/// How often missing frames are waited for or asked for, each time for twice as long, before the
/// request is sent anew.
const ASKS_MAX: u32 = 7;

/// Longest proof of an address that is sent back.
const COOKIE_BYTES_MAX: usize = 64;

/// Of this many frames, one may be lost without the way being too narrow.
const LOSS_SHARE: u32 = 8;

impl Core {
    /// Takes one datagram that came from the port of `queue`.
    pub fn feed(&mut self, queue: u16, datagram: &[u8], now_nanos: u64) {
        let Some((header, payload)) = Header::parse(datagram) else {
            self.counts.unintelligible += 1;
            return;
        };
        let Some(found) = self.find(header.request_id, queue) else {
            self.counts.stray += 1;
            return;
        };
        match header.kind {
            Kind::Data => self.data(found, header, payload, now_nanos),
            Kind::Resend => self.resend(found, header, payload, now_nanos),
            Kind::Cookie => self.cookie(found, payload, now_nanos),
            Kind::Forget | Kind::Once | Kind::Lent | Kind::Notice => self.counts.stray += 1,
            Kind::Unknown(_) => self.counts.unintelligible += 1,
        }
    }

    fn find(&self, id: u16, queue: u16) -> Option<(u64, Attempt)> {
        let serial = *self.by_id.get(&id)?;
        let attempt = Attempt { id, queue };
        self.pending[&serial].attempts.contains(&attempt).then_some((serial, attempt))
    }

    fn data(
        &mut self,
        (serial, attempt): (u64, Attempt),
        header: Header,
        payload: &[u8],
        now_nanos: u64,
    ) {
        let Some(pending) = self.pending.get(&serial) else { return };
        let first = pending.heard.is_none() && !pending.has_unsent();
        if first && pending.sends == 1 {
            self.trips.measured(now_nanos.saturating_sub(pending.sent_nanos));
        }
        if header.is_whole() && header.is_possible() {
            return self.judge(serial, payload, now_nanos);
        }
        if !pending.is_read() {
            self.counts.garbled += 1; // what changes something is answered by one line
            return;
        }
        match self.replies.take(attempt.id, header, payload, now_nanos) {
            Taken::Whole(reply) => {
                if self.topology.is_extended() {
                    let datagram = forget(attempt.id, header.total).to_vec();
                    self.asides.push_back((attempt.queue, datagram));
                }
                self.judge(serial, &reply, now_nanos);
            }
            Taken::More => {
                if let Some(pending) = self.pending.get_mut(&serial) {
                    let total = header.total;
                    pending.heard = Some(Heard { attempt, total, asks: 0, placed: false });
                }
                self.set_timer(serial, now_nanos.saturating_add(self.settings.resend_nanos));
            }
            Taken::Refused(Refused::TooLong) => {
                self.end_too_long(serial, now_nanos);
            }
            Taken::Refused(_) => self.counts.frames_refused += 1,
        }
    }

    /// The server says that a reply of `total` frames lies in memory that this client lends. False:
    /// nobody waits for it any more. Behind it comes [`Core::feed_long`]; where that fails, the
    /// frames are asked for after a while.
    pub fn hear_notice(&mut self, queue: u16, id: u16, total: u16, now_nanos: u64) -> bool {
        let found = self.find(id, queue);
        let pending = found.and_then(|(serial, attempt)| {
            let pending = self.pending.get_mut(&serial)?;
            (pending.is_read() && total > 1).then_some((serial, attempt, pending))
        });
        let Some((serial, attempt, pending)) = pending else {
            // It came late, and lies in memory that others could have.
            self.asides.push_back((queue, forget(id, total).to_vec()));
            self.counts.stray += 1;
            return false;
        };
        if pending.heard.is_none() && !pending.has_unsent() && pending.sends == 1 {
            self.trips.measured(now_nanos.saturating_sub(pending.sent_nanos));
        }
        if pending.heard.is_none_or(|heard| heard.attempt != attempt) {
            pending.heard = Some(Heard { attempt, total, asks: 0, placed: true });
            self.set_timer(serial, now_nanos.saturating_add(self.settings.resend_nanos));
        }
        true
    }

    /// Whether a reply that a notice told of is still waited for.
    pub fn waits_for(&self, queue: u16, id: u16) -> bool {
        self.find(id, queue).is_some()
    }

    /// Takes a long reply whole, of `total` frames if it had come so.
    pub fn feed_long(&mut self, queue: u16, id: u16, total: u16, reply: &[u8], now_nanos: u64) {
        let Some((serial, attempt)) = self.find(id, queue) else { return };
        self.has_long(attempt, total, now_nanos);
        if reply.len() > self.settings.reply_message_bytes_max {
            return self.end_too_long(serial, now_nanos);
        }
        self.judge(serial, reply, now_nanos);
    }

    /// The same of one that lies where it may be written over: false, and nothing was taken, if it
    /// was.
    pub(crate) fn feed_lying(
        &mut self,
        (queue, id, total): (u16, u16, u16),
        reply: &LyingReply<'_>,
        now_nanos: u64,
    ) -> bool {
        let Some((serial, attempt)) = self.find(id, queue) else { return true };
        if reply.bytes() > self.settings.reply_message_bytes_max {
            self.has_long(attempt, total, now_nanos);
            self.end_too_long(serial, now_nanos);
            return true;
        }
        let pending = &self.pending[&serial];
        if pending.cargo.is_some() {
            let whole = reply.copied(0..reply.bytes());
            let is_there = reply.is_there();
            if is_there {
                self.feed_long(queue, id, total, &whole, now_nanos);
            }
            return is_there;
        }
        let Some(read) = answer::read_lying(&pending.request, reply) else { return false };
        self.has_long(attempt, total, now_nanos);
        self.conclude(serial, read, now_nanos);
        true
    }

    /// The value in such a reply is to be copied by somebody else, who says [`Core::has_taken`]
    /// then: which bytes of the reply it is. The answer has none. `None`, and nothing was taken, of
    /// another reply, or if it is not there.
    pub(crate) fn leave_lying(
        &mut self,
        (queue, id): (u16, u16),
        reply: &LyingReply<'_>,
        now_nanos: u64,
    ) -> Option<Range<usize>> {
        let (serial, attempt) = self.find(id, queue)?;
        if reply.bytes() > self.settings.reply_message_bytes_max {
            return None;
        }
        let pending = self.pending.get(&serial).filter(|pending| pending.cargo.is_none())?;
        let (found, value) = answer::find_lying(&pending.request, reply)?;
        self.replies.forget(&attempt.id, now_nanos);
        self.conclude(serial, Ok(Ok(Answer::Value(value))), now_nanos);
        Some(found)
    }

    /// The value of a reply that was left lying has been taken: the server may forget it. Before
    /// anything else is asked for, since its id is free.
    pub(crate) fn has_taken(&mut self, (queue, id, total): (u16, u16, u16)) {
        self.asides.push_back((queue, forget(id, total).to_vec()));
    }

    /// The reply is longer than the settings allow: of several values each may be asked for.
    fn end_too_long(&mut self, serial: u64, now_nanos: u64) {
        if !self.part(serial) {
            self.complete(serial, Err(Error::ReplyTooLong), now_nanos);
        }
    }

    /// A long reply is here: the server may forget it.
    fn has_long(&mut self, attempt: Attempt, total: u16, now_nanos: u64) {
        self.has_taken((attempt.queue, attempt.id, total));
        self.replies.forget(&attempt.id, now_nanos);
    }

    /// A whole reply: an answer, or something that only looks like one.
    fn judge<M: Message + ?Sized>(&mut self, serial: u64, reply: &M, now_nanos: u64) {
        let Some(pending) = self.pending.get(&serial) else { return };
        if pending.cargo.is_some() {
            return self.deliver(serial, reply, now_nanos);
        }
        let read = answer::read(&pending.request, reply);
        self.conclude(serial, read, now_nanos);
    }

    /// What a whole reply to one request says.
    fn conclude(
        &mut self,
        serial: u64,
        read: Result<Result<Answer, Error>, answer::Mismatch>,
        now_nanos: u64,
    ) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        match read {
            Ok(answer) => {
                self.window.answered();
                if pending.total > 1 {
                    self.rate.arrived();
                }
                self.complete(serial, answer, now_nanos);
            }
            Err(answer::Mismatch) => {
                // Its frames are gone; the timer sends the request again.
                pending.garbled = true;
                pending.heard = None;
                self.counts.garbled += 1;
            }
        }
    }

    /// The server misses frames of a request.
    fn resend(
        &mut self,
        (serial, attempt): (u64, Attempt),
        header: Header,
        payload: &[u8],
        now_nanos: u64,
    ) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        let current = pending.attempt() == Some(attempt) && pending.total > 1;
        if !current || header.total != pending.total {
            self.counts.stray += 1;
            return;
        }
        pending.is_asked_for();
        let (sent_nanos, was_sent) = (pending.sent_nanos, !pending.has_unsent());
        let added = pending.add_gaps(gaps(payload, header.total));
        if added > 0 {
            if was_sent && added > u32::from(header.total) / LOSS_SHARE {
                self.rate.lost(sent_nanos, now_nanos);
            }
            pending.tries = 1; // the server is there: no need to wait ever longer
            self.counts.frames_resent += u64::from(added);
            self.enqueue(serial);
            self.set_timer(serial, u64::MAX);
        }
    }

    /// The server wants its cookie back before it sends more than it was sent. What it withheld,
    /// it is asked for again.
    fn cookie(&mut self, (serial, attempt): (u64, Attempt), payload: &[u8], now_nanos: u64) {
        if payload.len() > COOKIE_BYTES_MAX || !self.topology.is_extended() {
            // Who sends none back may have short answers, of which several may be too long.
            self.part(serial);
            self.counts.stray += 1;
            return;
        }
        let header = Header { kind: Kind::Cookie, ..Header::whole(attempt.id) };
        self.asides.push_back((attempt.queue, [&header.to_bytes(), payload].concat()));
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        let current = pending.attempt() == Some(attempt);
        if !current || std::mem::replace(&mut pending.proved, true) {
            return; // every frame of a long request may bring one
        }
        match pending.repeat {
            Repeat::Free => {
                self.begin(serial, now_nanos);
            }
            Repeat::SameId | Repeat::Never if pending.total > 1 => pending.all_again(),
            Repeat::SameId => pending.again(),
            Repeat::Never => return,
        }
        self.enqueue(serial);
    }

    /// A part of a reply has come, and then nothing for a while.
    pub(super) fn ask_or_retry(&mut self, serial: u64, now_nanos: u64) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        let Some(heard) = &mut pending.heard else { return };
        heard.asks += 1;
        let Heard { attempt, total, asks, placed } = *heard;
        let mut missing = self.replies.missing(&attempt.id);
        if placed {
            // It may still arrive where it was to be; then the frames are asked for.
            missing = vec![Gap { first: 0, count: total }];
        }
        if asks > ASKS_MAX || missing.is_empty() || !self.topology.is_extended() {
            pending.heard = None;
            self.replies.forget(&attempt.id, now_nanos);
            return self.retry(serial, now_nanos);
        }
        if asks == 1 {
            // What is missing at the end may not have been sent yet.
            let reaches_end = |gap: &Gap| gap.sequences().end == u32::from(total);
            missing.pop_if(|gap| reaches_end(gap));
        }
        let frames: u32 = missing.iter().map(|gap| u32::from(gap.count)).sum();
        if frames > u32::from(total) / LOSS_SHARE {
            self.window.lost(pending.sent_nanos, now_nanos);
        }
        if !missing.is_empty() {
            let mut datagram = Vec::new();
            put_resend(&mut datagram, attempt.id, total, missing);
            self.asides.push_back((attempt.queue, datagram));
            self.counts.resends_asked += 1;
        }
        let wait_nanos = self.settings.resend_nanos.max(1) << asks;
        self.set_timer(serial, now_nanos.saturating_add(wait_nanos));
    }
}
