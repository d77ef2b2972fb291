//! The client's end: a window of GETs and PUTs, each by the verbs of the design. It loses nothing
//! and repeats nothing but READs, so what it stands on must not either: these designs run over
//! connections that do not lose, and so does HERD here, to be compared.
//!
//! It belongs to one thread, which calls [`Client::turn`].

use super::design::Design;
use super::lookup::{Lookup, Lost, Next};
use super::message::{KEY_BYTES_MAX, Reply, Request, VALUE_BYTES_MAX};
use super::opened::Reader;
use super::record::{self, Shape};
use super::tally::Tally;
use laneway_rdma::contract::{Posted, Requester};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;

/// Requests under way at most: the widest window of HERD's figures.
pub const WINDOW_MAX: usize = 32;
/// Numbers of requests are a count times this, and their place.
const PLACES: u32 = 1 << 8;
const _: () = assert!(WINDOW_MAX <= PLACES as usize);

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Put.
    Done,
    /// Got.
    Value(Vec<u8>),
    /// There is no such key.
    Missing,
}

/// Why it came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// What was READ is of no use.
    Lost(Lost),
    /// The server has no room for the item.
    Full,
    /// The server keeps no items as long as this.
    TooLong,
    /// The server did not understand, or answered with what is no answer.
    Malformed,
    /// The server is gone.
    Gone,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Lost(lost) => lost.fmt(f),
            Failure::Full => f.write_str("the server's index or memory has no room for the item"),
            Failure::TooLong => f.write_str("the server was made for shorter keys or values"),
            Failure::Malformed => {
                f.write_str("the server and this client do not understand each other")
            }
            Failure::Gone => f.write_str("the server is gone"),
        }
    }
}

/// Why a request was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// As many as the window are under way.
    WindowFull,
    /// Keys have 1 to [`KEY_BYTES_MAX`] bytes.
    KeyBytes(usize),
    /// Values have at most [`VALUE_BYTES_MAX`].
    ValueBytes(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::WindowFull => f.write_str("the window is full: take a turn first"),
            Refused::KeyBytes(bytes) => {
                write!(f, "a key of {bytes} bytes: it must have 1 to {KEY_BYTES_MAX}")
            }
            Refused::ValueBytes(bytes) => {
                write!(f, "a value of {bytes} bytes: it must have at most {VALUE_BYTES_MAX}")
            }
        }
    }
}

/// A request that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// What the caller calls it.
    pub ticket: u64,
    /// What it came to.
    pub result: Result<Answer, Failure>,
    /// How often something was asked and waited for.
    pub trips: u32,
    /// How often what was READ was torn.
    pub torn: u32,
}

#[derive(Debug)]
enum Stage {
    /// A message to be posted.
    Unasked(Vec<u8>),
    /// It waits for its reply.
    Asked,
    /// A READ to be posted.
    Unread { address: u64, bytes: usize },
    /// It waits for what is READ.
    Reading,
    /// It waits for so many turns.
    Paused { turns: u32 },
}

#[derive(Debug)]
struct Under {
    id: u32,
    ticket: u64,
    queue: usize,
    stage: Stage,
    /// Of GETs that READ.
    lookup: Option<Lookup>,
    trips: u32,
}

/// Memory to READ: what a client must know of it, and the way there.
pub struct Access<D> {
    /// What stands where.
    pub shape: Shape,
    /// Who READs.
    pub reader: D,
}

/// The client's end.
pub struct Client<R, D> {
    design: Design,
    requester: R,
    access: Option<Access<D>>,
    /// Checksums are not looked at.
    trust: bool,
    window: Vec<Option<Under>>,
    under_way: usize,
    begun: u32,
    ended: VecDeque<Ended>,
    tally: Tally,
    unintelligible: u64,
    /// What is to be done next for whom, while that is gathered.
    nexts: Vec<(usize, Next)>,
    results: Vec<(usize, Result<Answer, Failure>)>,
}

impl<R: Requester, D: Reader> Client<R, D> {
    /// Ask as `design` does, so many requests at a time (1 to [`WINDOW_MAX`]); `access` is to what
    /// it READs, if it does.
    ///
    /// # Panics
    /// If the window is another, or the access that of another design.
    pub fn new(
        design: Design,
        requester: R,
        access: Option<Access<D>>,
        window: usize,
    ) -> Client<R, D> {
        assert!((1..=WINDOW_MAX).contains(&window), "a window of {window}");
        assert_eq!(access.is_some(), design.reads(), "{design} reads, or does not");
        Client {
            design,
            requester,
            access,
            trust: false,
            window: (0..window).map(|_| None).collect(),
            under_way: 0,
            begun: 0,
            ended: VecDeque::new(),
            tally: Tally::default(),
            unintelligible: 0,
            nexts: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Believe whatever is READ. To see what the checksums are for.
    pub fn trusting(self) -> Client<R, D> {
        Client { trust: true, ..self }
    }

    /// What its card was asked.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Replies to nothing that was asked.
    pub fn unintelligible(&self) -> u64 {
        self.unintelligible
    }

    /// How requests leave.
    pub fn requester(&self) -> &R {
        &self.requester
    }

    /// Whether one more request may begin.
    pub fn has_room(&self) -> bool {
        self.under_way < self.window.len()
    }

    /// Requests that are not over.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Ask for a key's value.
    pub fn get(&mut self, ticket: u64, key: &[u8]) -> Result<(), Refused> {
        let (place, id) = self.place(key, &[])?;
        let (stage, lookup) = match &self.access {
            Some(access) => {
                let mut lookup = Lookup::new(access.shape, key, self.trust);
                let Next::Read { address, bytes } = lookup.begin() else {
                    unreachable!("a lookup begins with a READ")
                };
                (Stage::Unread { address, bytes }, Some(lookup))
            }
            None => (Stage::Unasked(message(&Request::Get { key }, id)), None),
        };
        self.begin(place, Under { id, ticket, queue: self.queue(key), stage, lookup, trips: 0 });
        Ok(())
    }

    /// Give a key a value.
    pub fn put(&mut self, ticket: u64, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        let (place, id) = self.place(key, value)?;
        let stage = Stage::Unasked(message(&Request::Put { key, value }, id));
        let queue = self.queue(key);
        self.begin(place, Under { id, ticket, queue, stage, lookup: None, trips: 0 });
        Ok(())
    }

    fn queue(&self, key: &[u8]) -> usize {
        record::home(key, self.requester.queues())
    }

    fn place(&self, key: &[u8], value: &[u8]) -> Result<(usize, u32), Refused> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(Refused::KeyBytes(key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refused::ValueBytes(value.len()));
        }
        let place = self.window.iter().position(Option::is_none).ok_or(Refused::WindowFull)?;
        Ok((place, self.begun.wrapping_mul(PLACES) | place as u32))
    }

    fn begin(&mut self, place: usize, under: Under) {
        self.begun = self.begun.wrapping_add(1);
        self.window[place] = Some(under);
        self.under_way += 1;
    }

    /// Take what has come, and post what is to be posted. Returns how much that was: nothing, and
    /// the caller may rest a while.
    pub fn turn(&mut self) -> io::Result<usize> {
        let mut count = self.take_replies() + self.take_reads();
        for place in 0..self.window.len() {
            count += usize::from(self.post(place));
        }
        self.requester.pump()?;
        Ok(count)
    }

    /// A request that is over.
    pub fn take(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    fn end(&mut self, place: usize, result: Result<Answer, Failure>) {
        let Some(under) = self.window[place].take() else { return };
        self.under_way -= 1;
        let Under { ticket, trips, lookup, .. } = under;
        let torn = lookup.map_or(0, |lookup| lookup.tries());
        self.ended.push_back(Ended { ticket, result, trips, torn });
    }

    fn take_replies(&mut self) -> usize {
        let Client { requester, window, results, unintelligible, .. } = self;
        requester.poll_replies(WINDOW_MAX, &mut |_, bytes| {
            let Some((id, reply)) = Reply::parse(bytes) else {
                *unintelligible += 1;
                return;
            };
            let place = (id % PLACES) as usize;
            match window.get(place) {
                Some(Some(Under { id: own, stage: Stage::Asked, .. })) if *own == id => {
                    results.push((place, answer(reply)));
                }
                _ => *unintelligible += 1,
            }
        });
        let mut results = mem::take(&mut self.results);
        let count = results.len();
        results.drain(..).for_each(|(place, result)| self.end(place, result));
        self.results = results;
        count
    }

    fn take_reads(&mut self) -> usize {
        let Client { access: Some(access), window, nexts, tally, .. } = self else { return 0 };
        access.reader.poll_reads(WINDOW_MAX, &mut |tag, bytes| {
            tally.read(bytes.map_or(0, <[u8]>::len));
            let place = (tag % u64::from(PLACES)) as usize;
            let Some(Some(under)) = window.get_mut(place) else { return };
            let Under { id, stage: Stage::Reading, lookup: Some(lookup), .. } = under else {
                return;
            };
            if u64::from(*id) == tag {
                nexts.push((place, lookup.take(bytes)));
            }
        });
        let mut nexts = mem::take(&mut self.nexts);
        let count = nexts.len();
        nexts.drain(..).for_each(|(place, next)| self.follow(place, next));
        self.nexts = nexts;
        count
    }

    fn follow(&mut self, place: usize, next: Next) {
        let Some(under) = &mut self.window[place] else { return };
        match next {
            Next::Read { address, bytes } => under.stage = Stage::Unread { address, bytes },
            Next::Pause { turns } => under.stage = Stage::Paused { turns },
            Next::Found(value) => self.end(place, Ok(Answer::Value(value))),
            Next::Missing => self.end(place, Ok(Answer::Missing)),
            Next::Failed(lost) => self.end(place, Err(Failure::Lost(lost))),
        }
    }

    /// Post what is next for one request, if it has something. Whether it had.
    fn post(&mut self, place: usize) -> bool {
        let Some(under) = &mut self.window[place] else { return false };
        if let (Stage::Paused { turns }, Some(lookup)) = (&mut under.stage, &mut under.lookup) {
            *turns = turns.saturating_sub(1);
            if *turns == 0 {
                let next = lookup.begin();
                self.follow(place, next);
            }
            return false;
        }
        let (id, queue) = (under.id, under.queue);
        let (posted, waits) = match (&under.stage, &mut self.access) {
            (Stage::Unasked(message), _) => {
                let posted = self.requester.post_request(queue, message);
                if posted == Posted::Done {
                    self.tally.sent(self.design.request(), message.len());
                    self.tally.awaited(self.design.reply());
                }
                (posted, Stage::Asked)
            }
            (Stage::Unread { address, bytes }, Some(access)) => {
                let posted = access.reader.post_read(id.into(), *address, *bytes);
                self.tally.verbs.reads += u64::from(posted == Posted::Done);
                (posted, Stage::Reading)
            }
            _ => return false,
        };
        match posted {
            Posted::Done => {
                under.stage = waits;
                under.trips += 1;
            }
            Posted::Full => return false,
            Posted::Gone => self.end(place, Err(Failure::Gone)),
        }
        true
    }
}

fn message(request: &Request<'_>, id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.write(id, &mut bytes);
    bytes
}

fn answer(reply: Reply<'_>) -> Result<Answer, Failure> {
    match reply {
        Reply::Done => Ok(Answer::Done),
        Reply::Found(value) => Ok(Answer::Value(value.to_vec())),
        Reply::Missing => Ok(Answer::Missing),
        Reply::Full => Err(Failure::Full),
        Reply::TooLong => Err(Failure::TooLong),
        Reply::Malformed => Err(Failure::Malformed),
    }
}
