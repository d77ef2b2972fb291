//! Keeps the sockets of one thread, with everything in flight on them.

use super::flight::Flight;
use super::line::Line;
use super::socket::{INBOX_BYTES, Outbox};
use super::upload::Upload;
use super::{Counts, LargeSets, Options};
use crate::connection::{Completion, Context, Request, write_head};
use crate::dialect::Dialect;
use crate::random::Random;
use crate::sender::Clock;
use crate::workload::Operation;
use laneway_wire::udp::{FRAME_BYTES_MAX, Header, Kind, gaps};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::io;

/// Most bytes of a SET's first line and last two bytes, besides the key.
const SET_LINE_BYTES_MAX: u64 = 56;
/// Longest proof of an address that is sent back.
const COOKIE_BYTES_MAX: usize = 64;

/// Whether a request fits one datagram: every GET and DELETE (the command line sees to those of
/// several keys), and SETs of small values.
fn fits_one(context: Context<'_>, request: &Request) -> bool {
    let key_bytes = || context.workload.key_name(request.key).len() as u64;
    request.operation != Operation::Set
        || request.value_bytes + key_bytes() + SET_LINE_BYTES_MAX <= FRAME_BYTES_MAX as u64
}

#[derive(Debug)]
struct Flow {
    line: Line,
    flight: Flight,
    outbox: Outbox,
    uploads: HashMap<u16, Upload>,
    /// Ids of uploads with frames to send.
    sending: VecDeque<u16>,
}

/// The sockets of one thread.
pub struct Flows<'a> {
    context: Context<'a>,
    options: &'a Options,
    all: Vec<Flow>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Flows that something has come on, or may have.
    ready: Vec<usize>,
    inbox: Vec<u8>,
    random: Random,
    /// What became of what.
    pub counts: Counts,
}

impl<'a> Flows<'a> {
    /// Opens `count` sockets; `random` chooses queues.
    pub fn open(
        context: Context<'a>,
        options: &'a Options,
        count: usize,
        random: Random,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::with_capacity(count);
        for index in 0..count {
            let line = Line::open(options)?;
            if let Line::Kernel(socket) = &line {
                let data = epoll::EventData::new_u64(index as u64);
                epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
            }
            let (flight, outbox) = (Flight::default(), Outbox::default());
            let (uploads, sending) = (HashMap::new(), VecDeque::new());
            all.push(Flow { line, flight, outbox, uploads, sending });
        }
        Ok(Flows {
            context,
            options,
            all,
            epoll,
            events: Vec::with_capacity(count),
            ready: Vec::with_capacity(count),
            inbox: vec![0; INBOX_BYTES],
            random,
            counts: Counts::default(),
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Requests in flight on all of them.
    pub fn in_flight(&self) -> usize {
        self.all.iter().map(|flow| flow.flight.waiting()).sum()
    }

    /// Whether this request goes over UDP at all.
    pub fn takes(&self, request: &Request) -> bool {
        self.options.large_sets == LargeSets::Udp || fits_one(self.context, request)
    }

    /// Puts a request on a socket; [`Flows::flush`] sends it. False where the socket has no request
    /// id left.
    pub fn push(&mut self, index: usize, request: Request, now_ns: u64) -> bool {
        let Flow { line, flight, outbox, uploads, sending } = &mut self.all[index];
        let name = self.context.workload.key_name(request.key);
        let peer = self.options.peers.choose(request.operation, &name, &mut self.random);
        let Some(id) = flight.begin(request, peer, now_ns) else { return false };
        self.counts.sent += 1;
        let context = self.context;
        if fits_one(context, &request) {
            outbox.add(peer, |out| {
                out.extend_from_slice(&Header::whole(id).to_bytes());
                write_request(context, &request, out);
            });
            return true;
        }
        let mut message = Vec::with_capacity(request.value_bytes as usize + 64);
        write_request(context, &request, &mut message);
        if let Line::Memory(memory) = line {
            // One that is too long to be lent is lost, when its time is up.
            memory.lend(id, peer, message);
            return true;
        }
        if let Some(upload) = Upload::new(peer, message) {
            uploads.insert(id, upload);
            sending.push_back(id);
        }
        true
    }

    /// Sends what was pushed on a socket, and one train of what is large.
    pub fn flush(&mut self, index: usize) -> io::Result<()> {
        let Flow { line, outbox, uploads, sending, .. } = &mut self.all[index];
        if !outbox.is_empty() || line.has_long() {
            line.send(outbox)?;
        }
        let Some(id) = sending.pop_front() else { return Ok(()) };
        // One that was answered or given up meanwhile is gone.
        let Some(upload) = uploads.get_mut(&id) else { return Ok(()) };
        let had_room = upload.step(id, line)?;
        match (had_room, upload.is_sent()) {
            (true, true) => {}
            (true, false) => sending.push_back(id),
            (false, _) => sending.push_front(id),
        }
        Ok(())
    }

    /// Sends what is left on any socket.
    pub fn flush_rest(&mut self) -> io::Result<()> {
        for index in 0..self.all.len() {
            let Flow { line, outbox, sending, .. } = &self.all[index];
            if !outbox.is_empty() || !sending.is_empty() || line.has_long() {
                self.flush(index)?;
            }
        }
        Ok(())
    }

    /// Finds out on which flows something has come: of those in memory it may have on all.
    fn look(&mut self) -> io::Result<()> {
        self.ready.clear();
        if self.options.door.is_some() {
            self.ready.extend(0..self.all.len());
            return Ok(());
        }
        self.events.clear();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }

    /// Takes what came on any socket; `each` gets every request that ended, the socket's number and
    /// when its last byte was there.
    pub fn receive(
        &mut self,
        clock: &Clock,
        mut each: impl FnMut(usize, Completion, u64),
    ) -> io::Result<()> {
        self.look()?;
        let (context, counts) = (self.context, &mut self.counts);
        for &index in &self.ready {
            let Flow { line, flight, outbox, uploads, sending } = &mut self.all[index];
            let now_ns = || clock.now_ns();
            let mut ended = Vec::new();
            line.receive(&mut self.inbox, now_ns, |&now_ns, from, datagram| {
                let Some((header, payload)) = Header::parse(datagram) else {
                    counts.impossible += 1;
                    return;
                };
                match header.kind {
                    Kind::Data => counts.datagrams_received += 1,
                    Kind::Resend => {
                        counts.resends_asked += 1;
                        let upload = uploads.get_mut(&header.request_id);
                        if let Some(upload) = upload.filter(|upload| from == Some(upload.peer())) {
                            let waits = !upload.is_sent(); // and so it stands in the line already
                            upload.again(gaps(payload, upload.total()));
                            if !waits && !upload.is_sent() {
                                sending.push_back(header.request_id);
                            }
                        }
                        return;
                    }
                    // Where we are not believed to be where we say: it goes back once.
                    Kind::Cookie if payload.len() <= COOKIE_BYTES_MAX => {
                        if let Some(peer) = from {
                            let header = Header { kind: Kind::Cookie, ..Header::whole(0) };
                            outbox.add(peer, |out| {
                                out.extend_from_slice(&header.to_bytes());
                                out.extend_from_slice(payload);
                            });
                        }
                        counts.cookies += 1;
                        return;
                    }
                    _ => {
                        counts.other_kind += 1;
                        return;
                    }
                }
                if let Some(completion) = flight.take(context, from, header, payload, counts) {
                    counts.answered += 1;
                    uploads.remove(&header.request_id);
                    ended.push(header.request_id);
                    each(index, completion, now_ns);
                }
            })?;
            ended.into_iter().for_each(|id| line.ended(id));
        }
        Ok(())
    }

    /// Gives up what has no whole reply in time.
    pub fn expire(&mut self, now_ns: u64, mut lost: impl FnMut(usize, &Request)) {
        let timeout_ns = self.options.timeout.as_nanos() as u64;
        let Some(sent_by_ns) = now_ns.checked_sub(timeout_ns) else { return };
        let counts = &mut self.counts;
        for (index, flow) in self.all.iter_mut().enumerate() {
            let Flow { line, flight, uploads, .. } = flow;
            flight.expire(sent_by_ns, now_ns, |request, id| {
                counts.lost += 1;
                uploads.remove(&id);
                line.ended(id);
                lost(index, request);
            });
        }
    }

    /// Gives up whatever has no whole reply, as the run is over.
    pub fn give_up_all(&mut self, mut lost: impl FnMut(&Request)) {
        let Flows { all, counts, .. } = self;
        for flow in all {
            flow.flight.for_each_waiting(|request| {
                counts.lost += 1;
                lost(request);
            });
        }
    }
}

fn write_request(context: Context<'_>, request: &Request, out: &mut Vec<u8>) {
    write_head(context, request, out);
    if request.operation == Operation::Set {
        context.values.append(request.value(), out);
        out.extend_from_slice(Dialect::SET_ENDING);
    }
}
