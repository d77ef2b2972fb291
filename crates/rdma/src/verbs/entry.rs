//! How a client comes in: it says hello at the server's door, and goes by what the server answers.
//! One that leaves the way of its requests to the server has what either takes, and lets go of what
//! it was not told to use.

use super::card::{Card, Domain, Place, Registered, Trouble, Writers};
use super::greeting::{Chosen, Heard, Hello, LINE_BYTES_MAX, Mailboxes, QKEY_MAX, Span, Welcome};
use super::outbound::Outbound;
use super::pair::{Channel, Depths, Far, NUMBER_BITS, Pair, Queue, Service, draw};
use super::post::{ROUTE_BYTES, Receiver, Sender};
use super::requester::{DEPTH, Requests, VerbsRequester};
use crate::contract::Requester;
use crate::layout::{BULK_BYTES_MAX, LINE_BYTES, SLOT_BYTES};
use crate::remote::Lending;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Places for replies: a large value comes in many at once.
const PLACES: usize = 1024;
/// Bytes of each.
const STRIDE: usize = (ROUTE_BYTES + SLOT_BYTES).next_multiple_of(LINE_BYTES);
/// How long a client waits for the server's line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// What is left of the memory that may be locked when some is lent: slots of some twenty workers.
const SPARE_BYTES: usize = 1 << 20;

fn other(trouble: Trouble) -> io::Error {
    io::Error::other(trouble)
}

/// Become a client of the server whose door is `stream`. Requests go by `service`, or as the server
/// chooses if none is said.
pub fn enter(
    stream: TcpStream,
    place: &Place,
    service: Option<Service>,
    lending: Lending,
) -> io::Result<VerbsRequester> {
    let mut requester = greet(stream, place, service, lending)?;
    // The server sends away who does not write for a while: it may be nobody.
    requester.ask(0);
    requester.pump()?;
    Ok(requester)
}

/// Say hello, and connect to what the server answers, or send to it.
fn greet(
    mut stream: TcpStream,
    place: &Place,
    service: Option<Service>,
    lending: Lending,
) -> io::Result<VerbsRequester> {
    let card = Card::open(place).map_err(other)?;
    let domain = Domain::new(&card).map_err(other)?;
    let (receiver, replies_qkey) = receiver(&domain).map_err(other)?;
    let is_sent = matches!(service, None | Some(Service::Datagrams));
    let sender =
        is_sent.then(|| Sender::of_datagrams(&domain, DEPTH)).transpose().map_err(other)?;
    let sends_number = sender.as_ref().map_or(0, |(sender, _)| sender.number());
    // It lends what may still be locked, so it comes last.
    let writing = match service {
        Some(Service::Datagrams) => None,
        Some(service) => Some(Writing::new(&domain, service, lending)?),
        None => Some(Writing::new(&domain, Service::Unreliable, lending)?),
    };
    let hello = Hello {
        service,
        far: Far {
            address: card.address(),
            mtu: card.mtu(),
            number: writing.as_ref().map_or(sends_number, |writing| writing.pair.number()),
            psn: writing.as_ref().map_or(0, |writing| writing.psn),
        },
        sends_number,
        replies_number: receiver.number(),
        replies_qkey,
        replies: writing.as_ref().map_or(Span::default(), Writing::replies_span),
        requests: writing.as_ref().map_or(Span::default(), Writing::requests_span),
    };
    let chosen = match service {
        None => say(&mut stream, &hello, Chosen::hear).map_err(advised)?,
        Some(Service::Datagrams) => Chosen::Datagrams(say(&mut stream, &hello, Mailboxes::hear)?),
        Some(_) => Chosen::Slots(say(&mut stream, &hello, Welcome::hear)?),
    };
    match (chosen, writing, sender) {
        (Chosen::Slots(welcome), Some(writing), _) => {
            writing.connect(&domain, welcome, receiver, stream)
        }
        // Nothing is lent: long messages go in frames.
        (Chosen::Datagrams(theirs), _, Some((sender, _))) => {
            let outbound = Outbound::to(&domain, &theirs).map_err(other)?;
            let (service, ways) = (Service::Datagrams, (sender, outbound, receiver));
            let lent = (None, Requests::Nowhere);
            Ok(VerbsRequester::new(theirs.bounds, service, ways, lent, stream))
        }
        _ => Err(io::Error::other("the server answers what was not asked")),
    }
}

/// Of a server that does not know how to choose, what to do.
fn advised(error: io::Error) -> io::Error {
    if error.to_string().starts_with("say laneway-rdma ") {
        return io::Error::other(
            "the server is from before `any`; ask for the service uc, rc or ud",
        );
    }
    error
}

/// What a client has that writes its requests.
struct Writing {
    service: Service,
    pair: Pair,
    psn: u32,
    replies: Option<Registered>,
    /// What the server READs requests out of.
    requests: Option<Registered>,
    /// How much memory of the server's it wishes for in place of it.
    wished_bytes: usize,
}

impl Writing {
    fn new(domain: &Arc<Domain>, service: Service, lending: Lending) -> io::Result<Writing> {
        let sends = Queue::new(domain.card(), 2 * DEPTH, None).map_err(other)?;
        let depths = Depths { sends: DEPTH, receives: 1 };
        let pair = Pair::new(domain, Some(service), &sends, &sends, &depths).map_err(other)?;
        let spare = Registered::new(domain, SPARE_BYTES, Writers::Device).ok();
        let lending = if spare.is_some() { lending } else { Lending::NOTHING };
        let replies = lent(domain, lending.replies_bytes, Writers::Remote);
        let (requests, wished_bytes) = match service {
            Service::Reliable => (lent(domain, lending.requests_bytes, Writers::Readers), 0),
            _ => (None, lending.requests_bytes.min(BULK_BYTES_MAX)),
        };
        let psn = draw() & ((1 << NUMBER_BITS) - 1);
        Ok(Writing { service, pair, psn, replies, requests, wished_bytes })
    }

    fn replies_span(&self) -> Span {
        self.replies.as_ref().map_or(Span::default(), span)
    }

    fn requests_span(&self) -> Span {
        let wish = Span { bytes: self.wished_bytes as u32, ..Span::default() };
        self.requests.as_ref().map_or(wish, span)
    }

    /// To what the server gave.
    fn connect(
        self,
        domain: &Arc<Domain>,
        welcome: Welcome,
        receiver: Receiver,
        stream: TcpStream,
    ) -> io::Result<VerbsRequester> {
        let Writing { service, pair, psn, replies, requests, wished_bytes } = self;
        let Welcome { bounds, far: theirs, slots_address, slots_rkey, grant } = welcome;
        // So much is locked.
        let grant = Span { bytes: grant.bytes.min(wished_bytes as u32), ..grant };
        let requests = match requests {
            Some(ours) => Requests::Ours(ours),
            None if grant.bytes > 0 => Requests::Theirs(grant),
            None => Requests::Nowhere,
        };
        let (memory, requests) = staged(domain, bounds.bytes(), requests)?;
        let is_read = service == Service::Reliable;
        pair.connect(service, is_read, psn, &theirs).map_err(other)?;
        let sender = Sender::new(pair, Arc::new(memory), DEPTH);
        let outbound = Outbound::Slots { address: slots_address, rkey: slots_rkey };
        let ways = (sender, outbound, receiver);
        Ok(VerbsRequester::new(bounds, service, ways, (replies, requests), stream))
    }
}

/// Memory to lend, if there is to be some and so much may be locked.
fn lent(domain: &Arc<Domain>, bytes: usize, writers: Writers) -> Option<Registered> {
    let bytes = bytes.min(BULK_BYTES_MAX);
    (bytes > 0).then(|| Registered::new(domain, bytes, writers).ok()).flatten()
}

/// Memory for so many bytes of slots, and behind them for what is written elsewhere of `requests`,
/// if so much may be locked.
fn staged(
    domain: &Arc<Domain>,
    slots_bytes: usize,
    requests: Requests,
) -> io::Result<(Registered, Requests)> {
    let behind = requests.behind();
    match Registered::new(domain, slots_bytes + behind, Writers::Device) {
        Ok(memory) => Ok((memory, requests)),
        Err(_) if behind > 0 => {
            let memory = Registered::new(domain, slots_bytes, Writers::Device).map_err(other)?;
            Ok((memory, Requests::Nowhere))
        }
        Err(trouble) => Err(other(trouble)),
    }
}

fn span(memory: &Registered) -> Span {
    let bytes = memory.bytes().min(BULK_BYTES_MAX) as u32;
    Span { address: memory.address(), rkey: memory.rkey(), bytes }
}

/// What takes replies, and its key.
fn receiver(domain: &Arc<Domain>) -> Result<(Receiver, u32), Trouble> {
    let channel = Arc::new(Channel::new(domain.card())?);
    let qkey = draw() & QKEY_MAX;
    Ok((Receiver::new(domain, Some(channel), qkey, STRIDE, PLACES)?, qkey))
}

/// Say hello. What the server answers.
fn say<T>(
    stream: &mut TcpStream,
    hello: &Hello,
    hear: impl Fn(&[u8]) -> Heard<T>,
) -> io::Result<T> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(hello.to_string().as_bytes())?;
    let (mut said, mut room) = (Vec::new(), [0; LINE_BYTES_MAX]);
    loop {
        match hear(&said) {
            Heard::Whole(answer) => return Ok(answer),
            Heard::Nonsense(why) => return Err(io::Error::other(why)),
            Heard::More => {}
        }
        match stream.read(&mut room) {
            Ok(0) => return Err(io::Error::other("the server said nothing more")),
            Ok(count) => said.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
