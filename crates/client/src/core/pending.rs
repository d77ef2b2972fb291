//! One request on its way: what of it is still to be sent, under which ids it went where, and what
//! has been heard of its reply.

use crate::request::{Command, Repeat, Request};
use crate::settings::SECOND;
use crate::topology::Topology;
use laneway_wire::udp::frames::put_train;
use laneway_wire::udp::{Gap, HEADER_BYTES, Header, Kind, Message, Parts, TRAIN_FRAMES_MAX};
use std::ops::Range;

/// How long behind its first copy the repeat of a request may leave. The server knows it by its id
/// for ten seconds, counted from when it came; what is left of them is for the way there.
const REPEAT_NANOS_MAX: u64 = 9 * SECOND;

/// One time that a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) id: u16,
    pub(super) queue: u16,
}

/// The part of a reply that has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub(super) attempt: Attempt,
    /// Frames in all.
    pub(super) total: u16,
    /// How often the rest was waited for since a frame came last.
    pub(super) asks: u32,
    /// No frame has come: the server says that it lies in memory that this client lends.
    pub(super) placed: bool,
}

/// What a request carries that stands for several: see [`super::carrier`].
pub(super) struct Cargo {
    /// Whose request it carries, and for which key.
    pub(super) of: Vec<(u64, Vec<u8>)>,
    /// How many of these have no answer yet.
    pub(super) left: usize,
    /// They go by themselves from now on.
    pub(super) parted: bool,
}

pub(super) struct Pending {
    pub(super) request: Request,
    head: Vec<u8>,
    /// Datagrams of the request.
    pub(super) total: u16,
    /// None before it is begun. A request of [`Repeat::SameId`] has one.
    pub(super) attempts: Vec<Attempt>,
    /// How often it was sent.
    pub(super) sends: u32,
    /// The same since the server was last heard of: what the wait is doubled by.
    pub(super) tries: u32,
    /// Frames to send, ascending.
    unsent: Vec<Range<u32>>,
    /// Whether it stands in a queue of requests with something to send.
    pub(super) queued: bool,
    /// When the last frame left.
    pub(super) sent_nanos: u64,
    /// When all of it had left for the first time: since then it may have been carried out.
    pub(super) whole_nanos: Option<u64>,
    pub(super) deadline_nanos: u64,
    /// Its place among the timers.
    pub(super) timer_nanos: u64,
    pub(super) heard: Option<Heard>,
    /// A reply came that was none.
    pub(super) garbled: bool,
    /// The server wanted to know whether we are where we say, and was told.
    pub(super) proved: bool,
    /// What its datagrams say they are.
    kind: Kind,
    /// Whether it may be sent again, to this server.
    pub(super) repeat: Repeat,
    /// It is not lent, or not any more.
    framed: bool,
    /// It stands for others, and has no answer of its own.
    pub(super) cargo: Option<Cargo>,
    /// Who carried it.
    pub(super) carrier: Option<u64>,
}

impl Pending {
    /// `total` is the number of frames of `head` and the request's body. Where the server is
    /// `extended` it is told to carry the request out once, however often it comes, unless that
    /// makes no difference. Another server knows no repeated request, so to that one a request
    /// that changes something is sent once.
    pub(super) fn new(
        request: Request,
        head: Vec<u8>,
        total: u16,
        extended: bool,
        deadline_nanos: u64,
    ) -> Self {
        let repeat = match request.repeat() {
            Repeat::SameId if !extended => Repeat::Never,
            repeat => repeat,
        };
        let once = extended && repeat != Repeat::Free;
        Pending {
            request,
            head,
            total,
            attempts: Vec::new(),
            sends: 0,
            tries: 0,
            unsent: Vec::new(),
            queued: false,
            sent_nanos: 0,
            whole_nanos: None,
            deadline_nanos,
            timer_nanos: deadline_nanos,
            heard: None,
            garbled: false,
            proved: false,
            kind: if once { Kind::Once } else { Kind::Data },
            repeat,
            framed: false,
            cargo: None,
            carrier: None,
        }
    }

    /// Bytes it is charged with.
    pub(super) fn bytes(&self) -> usize {
        if self.cargo.is_some() { 0 } else { self.request.bytes() }
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Whether it has a place of the window. Where it was parted those that it carried have one
    /// each.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_begun() && self.is_whole()
    }

    /// Every id under which it went.
    pub(super) fn ids(&self) -> impl Iterator<Item = u16> {
        self.attempts.iter().map(|attempt| attempt.id)
    }

    /// Whether it has not been taken apart into requests of their own.
    pub(super) fn is_whole(&self) -> bool {
        self.cargo.as_ref().is_none_or(|cargo| !cargo.parted)
    }

    /// The one under way.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        self.attempts.last().copied()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether it may leave now. Behind its deadline nobody waits for it; and a server that has
    /// forgotten that it has carried it out would do so again.
    pub(super) fn may_leave(&self, now_nanos: u64) -> bool {
        let is_new = |whole_nanos| now_nanos.saturating_sub(whole_nanos) < REPEAT_NANOS_MAX;
        let is_known = self.repeat != Repeat::SameId || self.whole_nanos.is_none_or(is_new);
        now_nanos < self.deadline_nanos && is_known
    }

    /// All of it is to be sent, under `attempt`.
    pub(super) fn begin(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
        self.unsent.clear();
        self.all_again();
    }

    /// It is to be sent again under the same id. Of a long one the last frame is enough: it makes
    /// the server answer again, or ask for what is missing.
    pub(super) fn again(&mut self) {
        let total = u32::from(self.total);
        self.send(total - 1..total);
    }

    /// The server has thrown away what it was sent.
    pub(super) fn all_again(&mut self) {
        self.send(0..u32::from(self.total));
    }

    fn send(&mut self, frames: Range<u32>) {
        self.sends += 1;
        self.tries += 1;
        self.add_unsent(frames);
    }

    /// Whether it is to be lent rather than sent.
    pub(super) fn is_lent(&self, topology: &Topology) -> bool {
        let may = |most| !topology.is_framed() || !self.framed && self.lent_bytes() <= most;
        self.total > 1 && topology.lent_bytes_max().is_some_and(may)
    }

    /// How long it is where it is lent.
    pub(super) fn lent_bytes(&self) -> usize {
        Pending::message_bytes(&self.head, &self.request)
    }

    /// From now on it goes in frames, all of them.
    pub(super) fn in_frames(&mut self) {
        self.framed = true;
        self.all_again();
    }

    /// The server asks for frames, whether it was lent before or not.
    pub(super) fn is_asked_for(&mut self) {
        self.framed = true;
        if self.sends == 1 {
            // It has not been carried out. Behind a repeat that may be asked, too, of who has.
            self.whole_nanos = None;
        }
    }

    /// The server asks for these. Returns how many frames that adds.
    pub(super) fn add_gaps(&mut self, gaps: impl Iterator<Item = Gap>) -> u32 {
        let before = self.unsent_frames();
        for gap in gaps {
            self.add_unsent(gap.sequences());
        }
        self.unsent_frames() - before
    }

    fn unsent_frames(&self) -> u32 {
        self.unsent.iter().map(|range| range.end - range.start).sum()
    }

    fn add_unsent(&mut self, mut added: Range<u32>) {
        // Ranges that meet the new one become part of it; the others keep their order.
        self.unsent.retain(|range| {
            let meets = range.start <= added.end && added.start <= range.end;
            if meets {
                added = range.start.min(added.start)..range.end.max(added.end);
            }
            !meets
        });
        let at = self.unsent.partition_point(|range| range.start < added.start);
        self.unsent.insert(at, added);
    }

    /// Writes the next frames into `out`, which is empty, as many as a train carries.
    pub(super) fn put(&mut self, out: &mut Vec<u8>) {
        let Some(Attempt { id, .. }) = self.attempt() else { return };
        let mut sequences = Vec::with_capacity(TRAIN_FRAMES_MAX);
        while let Some(range) = self.unsent.first_mut()
            && sequences.len() < TRAIN_FRAMES_MAX
        {
            sequences.push(range.start as u16);
            range.start += 1;
            if range.start == range.end {
                self.unsent.remove(0);
            }
        }
        let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES_MAX];
        let message = Pending::message(&self.head, &self.request);
        let mut sequences = sequences.into_iter();
        let put = |slice: &[u8]| out.extend_from_slice(slice);
        put_train(id, &message, &mut sequences, &mut headers, put);
        if self.total == 1
            && let Some(header) = out.first_chunk_mut()
        {
            *header = Header { kind: self.kind, ..Header::whole(id) }.to_bytes();
        }
    }

    /// Writes one header into `out`, which is empty, that says that all of it is lent.
    pub(super) fn put_lent(&mut self, out: &mut Vec<u8>) {
        let Some(Attempt { id, .. }) = self.attempt() else { return };
        self.unsent.clear();
        out.extend_from_slice(&Header { kind: Kind::Lent, ..Header::whole(id) }.to_bytes());
    }

    /// All of it, where it lies.
    pub(super) fn pieces(&self) -> [&[u8]; 3] {
        let Parts { head, body, tail } = Pending::message(&self.head, &self.request);
        [head, body, tail]
    }

    /// The request as sent.
    pub(super) fn message<'a>(head: &'a [u8], request: &'a Request) -> Parts<'a, [u8]> {
        let (body, tail) = request.body();
        Parts { head, body, tail }
    }

    /// How long it is as sent.
    pub(super) fn message_bytes(head: &[u8], request: &Request) -> usize {
        Pending::message(head, request).message_bytes()
    }

    /// Whether it may go with others as one request.
    pub(super) fn may_be_carried(&self) -> bool {
        let is_new = self.cargo.is_none() && self.carrier.is_none();
        self.request.command == Command::Get { with_cas: false } && is_new
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        self.repeat == Repeat::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(total: u16) -> Pending {
        Pending::new(Request::get("k"), Vec::new(), total, true, 0)
    }

    #[test]
    fn gaps_that_meet_become_one() {
        let mut pending = pending(100);
        let gap = |first, count| Gap { first, count };
        assert_eq!(pending.add_gaps([gap(10, 5), gap(50, 1)].into_iter()), 6);
        assert_eq!(pending.add_gaps([gap(15, 5), gap(12, 2), gap(0, 1)].into_iter()), 6);
        assert_eq!(pending.unsent, [0..1, 10..20, 50..51]);
        assert_eq!(pending.add_gaps([gap(0, 100)].into_iter()), 88);
        assert_eq!(pending.unsent.as_slice(), std::slice::from_ref(&(0..100)));
    }

    #[test]
    fn a_train_takes_ascending_frames_and_no_more_than_it_carries() {
        let request = Request::set("k", vec![7; 100 * 1392]);
        let head = request.head().expect("it is a fine request");
        let total = 101;
        let mut pending = Pending::new(request, head, total, true, 0);
        pending.begin(Attempt { id: 9, queue: 0 });
        let mut sent = 0;
        let mut out = Vec::new();
        while pending.has_unsent() {
            out.clear();
            pending.put(&mut out);
            assert!(out.len() <= TRAIN_FRAMES_MAX * 1400);
            sent += out.len();
        }
        let bytes = Pending::message_bytes(&pending.head, &pending.request);
        assert_eq!(sent, bytes + usize::from(total) * HEADER_BYTES);
        pending.again();
        out.clear();
        pending.put(&mut out);
        assert_eq!((&out[..8], pending.sends), (&[0, 9, 0, 100, 0, 101, 0, 0][..], 2));
        let request = Request::delete("k");
        let head = request.head().expect("it is a fine request");
        let mut pending = Pending::new(request, head, 1, true, 0);
        pending.begin(Attempt { id: 9, queue: 0 });
        out.clear();
        pending.put(&mut out);
        assert_eq!(out[..8], [0, 9, 0xff, 0xff, 0, 1, 0xa7, 3], "it is told to be done once");
    }
}
