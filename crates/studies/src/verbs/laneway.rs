//! A Laneway that serves, counted: memcached's lines written into its slots, one datagram each, and
//! what its own statistics say that it did for them. Every item is set once and got once.

use super::report::{Counted, Tallies};
use super::rig::Items;
use crate::rivals::design::Way;
use crate::rivals::tally::Tally;
use laneway_rdma::contract::{MESSAGE_BYTES_MAX, Posted, Requester};
use laneway_rdma::door::{self, Version};
use laneway_rdma::shmring::RingRequester;
use laneway_rdma::verbs::VerbsRequester;
use laneway_wire::udp::Header;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an answer may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Longest sleep for one.
pub(super) const SLEEP: Duration = Duration::from_millis(100);

/// What the server is called.
const NAME: &str = "laneway";

/// The costs of a GET and of a PUT.
pub(super) fn count(path: &Path, items: &Items<'_>, window: usize) -> Result<[Counted; 2], String> {
    let told = |error: String| format!("--shm {}: {error}", path.display());
    // Statistics are put together here, too.
    let ring = door::enter_as(Version::Framed, path).map_err(|error| told(error.to_string()))?;
    let most = ring.terms().replies / 2;
    let mut counter = Counter::new(ring, "shm", window.min(most).max(1));
    let put = counter.each(items, false).map_err(told)?;
    let get = counter.each(items, true).map_err(told)?;
    Ok([("GET", get), ("PUT", put)]
        .map(|(operation, tallies)| tallies.counted((NAME, operation), items.value_bytes, window)))
}

/// What both kinds of memory have beside the contract.
pub(super) trait Link: Requester {
    /// Whether a reply is there.
    fn has_reply(&mut self) -> bool;
    /// Whether the server has ended.
    fn is_server_gone(&self) -> bool;
    /// Sleep until there is a reply, and at most so long.
    fn sleep(&mut self, most: Duration) -> io::Result<()>;
}

macro_rules! link {
    ($ring:ty) => {
        impl Link for $ring {
            fn has_reply(&mut self) -> bool {
                <$ring>::has_reply(self)
            }
            fn is_server_gone(&self) -> bool {
                <$ring>::is_server_gone(self)
            }
            fn sleep(&mut self, most: Duration) -> io::Result<()> {
                <$ring>::sleep(self, most)
            }
        }
    };
}

link!(RingRequester);
link!(VerbsRequester);

/// The server's counts, and how many frames of stats it sent before them, and with them.
#[derive(Default)]
pub(super) struct Snapshot {
    pub stats: BTreeMap<String, u64>,
    pub seen: u64,
    pub unseen: u64,
}

impl Snapshot {
    /// How much a count has grown since `before`.
    pub fn since(&self, before: &Snapshot, name: &str) -> Result<u64, String> {
        let count = |snapshot: &Snapshot| snapshot.stats.get(name).copied();
        let both = count(before).zip(count(self));
        let since = both.and_then(|(before, after)| after.checked_sub(before));
        since.ok_or_else(|| format!("its statistics do not tell {name}"))
    }
}

/// A client of a server, and what it counts.
pub(super) struct Counter<L> {
    pub ring: L,
    /// The statistics that tell what the server does for it.
    section: &'static str,
    window: usize,
    tally: Tally,
    answered_bytes: u64,
}

/// A reply's frame: of which request, which of how many, and what it says.
struct Frame {
    id: u16,
    sequence: u16,
    total: u16,
    bytes: Vec<u8>,
}

impl<L: Link> Counter<L> {
    /// Nothing asked yet; what the server does is in `stats SECTION`.
    pub fn new(ring: L, section: &'static str, window: usize) -> Counter<L> {
        Counter { ring, section, window, tally: Tally::default(), answered_bytes: 0 }
    }

    /// Ask for one item, or store it, and wait for the answer; how long that took.
    pub fn round_trip(
        &mut self,
        items: &Items<'_>,
        (key, id): (u32, u16),
        is_get: bool,
    ) -> Result<Duration, String> {
        let lane = key as usize % self.ring.queues();
        let request = request(items, key, is_get);
        let begun = Instant::now();
        let mut is_posted = self.post(lane, id, &request)?;
        loop {
            let frames = self.receive()?;
            if let Some(Frame { total, bytes, .. }) = frames.into_iter().find(|one| one.id == id) {
                if total != 1 || !is_answered(items, key, is_get, &bytes) {
                    return Err(format!("key {key}: {}", String::from_utf8_lossy(&bytes)));
                }
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > ANSWER_WITHIN {
                return Err(format!("key {key}: no answer"));
            }
            is_posted = is_posted || self.post(lane, id, &request)?;
        }
    }

    /// Post a request to a lane; false if there is no room.
    fn post(&mut self, lane: usize, id: u16, payload: &[u8]) -> Result<bool, String> {
        let message = [&Header::whole(id).to_bytes()[..], payload].concat();
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(format!("a request of {} bytes fits no slot", message.len()));
        }
        match self.ring.post_request(lane, &message) {
            Posted::Done => {
                self.tally.sent(Way::Write, message.len());
                Ok(true)
            }
            Posted::Full => Ok(false),
            Posted::Gone => Err("the server is gone".into()),
        }
    }

    /// Take replies; sleep a while if there are none.
    fn receive(&mut self) -> Result<Vec<Frame>, String> {
        self.ring.pump().map_err(|error| error.to_string())?;
        if !self.ring.has_reply() {
            if self.ring.is_server_gone() {
                return Err("the server is gone".into());
            }
            self.ring.sleep(SLEEP).map_err(|error| error.to_string())?;
        }
        let mut frames = Vec::new();
        let answered_bytes = &mut self.answered_bytes;
        self.ring.poll_replies(usize::MAX, &mut |_, bytes| {
            *answered_bytes += bytes.len() as u64;
            if let Some((header, payload)) = Header::parse(bytes) {
                let Header { request_id: id, sequence, total, .. } = header;
                frames.push(Frame { id, sequence, total, bytes: payload.to_vec() });
            }
        });
        Ok(frames)
    }

    /// What the server has counted, of everything it has answered: a worker counts a reply after it
    /// is sent, so each is asked in turn, and the last to answer has seen what all have counted.
    pub fn snapshot(&mut self) -> Result<Snapshot, String> {
        let mut snapshot = Snapshot::default();
        for lane in 0..self.ring.queues() {
            snapshot.seen += snapshot.unseen;
            (snapshot.stats, snapshot.unseen) = self.stats(lane)?;
        }
        Ok(snapshot)
    }

    /// The statistics, and how many frames they came in.
    fn stats(&mut self, lane: usize) -> Result<(BTreeMap<String, u64>, u64), String> {
        const ID: u16 = u16::MAX;
        let deadline = Instant::now() + ANSWER_WITHIN;
        let command = format!("stats {}\r\n", self.section);
        while !self.post(lane, ID, command.as_bytes())? {
            self.receive()?;
            if Instant::now() > deadline {
                return Err("no room for a request".into());
            }
        }
        let mut frames = BTreeMap::new();
        loop {
            for Frame { sequence, total, bytes, .. } in
                self.receive()?.into_iter().filter(|frame| frame.id == ID)
            {
                frames.insert(sequence, (total, bytes));
            }
            match frames.first_key_value() {
                Some((_, (total, _))) if usize::from(*total) == frames.len() => break,
                _ if Instant::now() > deadline => {
                    return Err(format!("no answer to stats {}", self.section));
                }
                _ => {}
            }
        }
        let count = frames.len() as u64;
        let text: Vec<u8> = frames.into_values().flat_map(|(_, bytes)| bytes).collect();
        let text = String::from_utf8_lossy(&text);
        let stat = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_string(), value.trim().parse().ok()?))
        };
        Ok((text.lines().filter_map(stat).collect(), count))
    }

    fn each(&mut self, items: &Items<'_>, is_get: bool) -> Result<Tallies, String> {
        let before = self.snapshot()?;
        let (tally, verbs, bytes) = (self.tally, self.ring.verbs(), self.answered_bytes);
        let mut under_way: BTreeMap<u16, u32> = BTreeMap::new();
        let (mut begun, mut ended, mut trips) = (0, 0, 0);
        let mut deadline = Instant::now() + ANSWER_WITHIN;
        while ended < items.keys {
            while begun < items.keys && under_way.len() < self.window {
                let id = (begun % u32::from(u16::MAX)) as u16;
                let lane = begun as usize % self.ring.queues();
                let request = request(items, begun, is_get);
                if under_way.contains_key(&id) || !self.post(lane, id, &request)? {
                    break;
                }
                under_way.insert(id, begun);
                trips += 1;
                begun += 1;
            }
            for Frame { id, total, bytes, .. } in self.receive()? {
                let Some(key) = under_way.remove(&id) else { continue };
                if total != 1 || !is_answered(items, key, is_get, &bytes) {
                    return Err(format!("key {key}: {}", String::from_utf8_lossy(&bytes)));
                }
                ended += 1;
                deadline = Instant::now() + ANSWER_WITHIN;
            }
            if Instant::now() > deadline {
                return Err(format!("{} requests had no answer", under_way.len()));
            }
        }
        let mut client = self.tally - tally;
        client.verbs.receives = self.ring.verbs().receives - verbs.receives;
        let mut server = Tally { bytes_sent: self.answered_bytes - bytes, ..Tally::default() };
        let after = self.snapshot()?;
        let sends = after.since(&before, "verbs_send")?;
        server.verbs.sends = sends.saturating_sub(before.unseen + after.seen);
        server.verbs.reads = after.since(&before, "verbs_read")?;
        Ok(Tallies { client, server, requests: items.keys.into(), trips, torn: 0 })
    }
}

fn request(items: &Items<'_>, key: u32, is_get: bool) -> Vec<u8> {
    let name = items.name(key);
    if is_get {
        return [b"get ", &name[..], b"\r\n"].concat();
    }
    let mut value = Vec::new();
    items.value(key, 1, &mut value);
    let bytes = format!(" 0 0 {}\r\n", value.len());
    [b"set ", &name[..], bytes.as_bytes(), &value, b"\r\n"].concat()
}

fn is_answered(items: &Items<'_>, key: u32, is_get: bool, reply: &[u8]) -> bool {
    if !is_get {
        return reply == b"STORED\r\n";
    }
    let name = items.name(key);
    let bytes = format!(" 0 {}\r\n", items.value_bytes);
    let head = [b"VALUE ", &name[..], bytes.as_bytes()].concat();
    let value = reply.strip_prefix(&head[..]).and_then(|rest| rest.strip_suffix(b"\r\nEND\r\n"));
    value.is_some_and(|value| items.is_right(key, value))
}
