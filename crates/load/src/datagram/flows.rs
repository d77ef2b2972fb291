//! Keeps the sockets of one thread, with everything in flight on them, and a few TCP connections
//! for large SETs where they are to go over those.

use super::flight::Flight;
use super::line::Line;
use super::socket::{INBOX_BYTES, Outbox};
use super::upload::Upload;
use super::{Counts, LargeSets, Options};
use crate::connection::{Completion, Context, Request, Target, write_head};
use crate::dialect::Dialect;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::sender::{Clock, Connections, Ready};
use crate::workload::Operation;
use laneway_wire::udp::{FRAME_BYTES_MAX, Header, Kind, gaps};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::io;

/// TCP connections of a thread for what does not go over UDP.
const STREAMS: usize = 4;
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

/// Something that ended: on which socket, if on one, and when.
pub type Ended = (Option<usize>, Completion, u64);

/// The sockets of one thread.
pub struct Flows<'a> {
    /// Keys, sizes and values.
    pub context: Context<'a>,
    /// How requests travel.
    pub options: &'a Options,
    all: Vec<Flow>,
    streams: Option<Connections<'a>>,
    streams_ready: Vec<Ready>,
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
    /// Opens `count` sockets, and connections to `target` where large SETs go by TCP; `random`
    /// chooses queues.
    pub fn open(
        context: Context<'a>,
        options: &'a Options,
        target: &Target,
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
        let streams = match options.large_sets {
            LargeSets::Udp => None,
            LargeSets::Tcp => Some(Connections::open(context, target, STREAMS)?),
        };
        Ok(Flows {
            context,
            options,
            all,
            streams,
            streams_ready: Vec::new(),
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

    /// Requests in flight on all of them, and on the connections.
    pub fn in_flight(&self) -> usize {
        let by_udp: usize = self.all.iter().map(|flow| flow.flight.waiting).sum();
        by_udp + self.streams.as_ref().map_or(0, Connections::in_flight)
    }

    /// Puts a request on a socket, from where [`Flows::flush`] sends it, or on a connection if it
    /// must. False where the socket has no request id left.
    pub fn push(&mut self, index: usize, request: Request, now_ns: u64) -> io::Result<bool> {
        match &mut self.streams {
            Some(streams) if !fits_one(self.context, &request) => {
                let least = (0..streams.count()).min_by_key(|&index| streams.in_flight_on(index));
                let index = least.unwrap_or_else(|| unreachable!("there are connections"));
                streams.push(index, request);
                streams.flush(index)?;
                self.counts.by_tcp += 1;
                Ok(true)
            }
            _ => Ok(self.push_on(index, request, now_ns)),
        }
    }

    fn push_on(&mut self, index: usize, request: Request, now_ns: u64) -> bool {
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

    /// Receives and sends whatever can be; appends what ended.
    pub fn turn(&mut self, clock: &Clock, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.receive(clock, ended)?;
        self.flush_rest()?;
        let Some(streams) = self.streams.as_mut().filter(|streams| streams.in_flight() > 0) else {
            return Ok(());
        };
        streams.poll(&mut self.streams_ready)?;
        let mut completions = Vec::new();
        for &event in &self.streams_ready {
            let now_ns = streams.serve(event, clock, &mut completions)?;
            let each = completions.drain(..);
            ended.extend(each.map(|completion| (None, completion, now_ns)));
        }
        Ok(())
    }

    /// Takes what came on any socket.
    fn receive(&mut self, clock: &Clock, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.look()?;
        let (context, counts) = (self.context, &mut self.counts);
        for &index in &self.ready {
            let Flow { line, flight, outbox, uploads, sending } = &mut self.all[index];
            // The clock is looked at when the first datagram is there, and not yet read.
            let (mut came_ns, mut over) = (None, Vec::new());
            line.receive(&mut self.inbox, |from, datagram| {
                let now_ns = *came_ns.get_or_insert_with(|| clock.now_ns());
                let Some((header, payload)) = Header::parse(datagram) else {
                    counts.impossible += 1;
                    return;
                };
                match header.kind {
                    Kind::Data => counts.datagrams_received += 1,
                    Kind::Resend => {
                        counts.resends_asked += 1;
                        let upload = uploads.get_mut(&header.request_id);
                        if let Some(upload) = upload.filter(|upload| from == Some(upload.peer)) {
                            let waits = !upload.is_sent(); // and so it stands in the line already
                            upload.again(gaps(payload, upload.total));
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
                    over.push(header.request_id);
                    ended.push((Some(index), completion, now_ns));
                }
            })?;
            over.into_iter().for_each(|id| line.ended(id));
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

    /// The run is over: gives up whatever has no whole reply, and counts what has none by TCP.
    pub fn finish(&mut self, recorder: &mut Recorder, now_ns: u64) {
        for flow in &self.all {
            flow.flight.for_each_waiting(|request| {
                self.counts.lost += 1;
                recorder.lost(request, now_ns);
            });
        }
        if let Some(streams) = &self.streams {
            streams.for_each_unanswered(|request| recorder.unanswered(request.due_ns));
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
