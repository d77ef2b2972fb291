//! One thread that sends and receives on many connections: epoll, never blocking while it measures.
//!
//! While it measures it spins: a sleeping client would add its own wake-up to every latency. The
//! loop over it is [`paced`], which follows a schedule or keeps a number of requests in flight;
//! what is counted and not timed goes in [`batches`]. Times are nanoseconds from the start of the
//! run.

pub mod batches;
pub mod paced;

use crate::connection::{Completion, Connection, Context, Request, Target};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::io;
use std::time::{Duration, Instant};

/// Most events taken from the kernel at once.
const EVENTS_MAX: usize = 64;

/// Nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that reads 0 at `start`, which may lie ahead.
    pub fn starting(start: Instant) -> Self {
        Clock { start }
    }

    /// Now; 0 before the start.
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Spins until the start. What left before would be due at 0, and so would its end.
    pub fn wait(&self) {
        while Instant::now() < self.start {
            std::hint::spin_loop();
        }
    }
}

/// The two ends of the measured window, told to whoever samples processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The window opens.
    Open,
    /// The window has closed.
    Close,
}

/// What became of a readable or writable connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Which connection.
    pub index: usize,
    flags: epoll::EventFlags,
}

/// The connections of one thread.
pub struct Connections<'a> {
    context: Context<'a>,
    all: Vec<Connection>,
    /// Which of them wait for room to write.
    wants_room: Vec<bool>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    in_flight: usize,
}

impl<'a> Connections<'a> {
    /// Opens `count` connections.
    pub fn open(context: Context<'a>, target: &Target, count: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::with_capacity(count);
        for index in 0..count {
            let connection = Connection::connect(target)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &connection, data, epoll::EventFlags::IN)?;
            all.push(connection);
        }
        Ok(Connections {
            context,
            all,
            wants_room: vec![false; count],
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: Vec::new(),
            in_flight: 0,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Requests in flight on all of them.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Requests in flight on one.
    pub fn in_flight_on(&self, index: usize) -> usize {
        self.all[index].in_flight()
    }

    /// What is shared.
    pub fn context(&self) -> Context<'a> {
        self.context
    }

    /// Puts a request on a connection; [`Connections::flush`] sends it.
    pub fn push(&mut self, index: usize, request: Request) {
        self.all[index].push(self.context, request);
        self.in_flight += 1;
    }

    /// Sends what was pushed on a connection, as far as the kernel takes it.
    pub fn flush(&mut self, index: usize) -> io::Result<()> {
        let left = self.all[index].flush(self.context)?;
        if left != self.wants_room[index] {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, left);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &self.all[index], data, flags)?;
            self.wants_room[index] = left;
        }
        Ok(())
    }

    /// The connections with something to read or room to write.
    pub fn poll(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.look(Duration::ZERO, ready).map(|_| ())
    }

    /// The same, but waits: there are none where all were silent for so long. A process that was
    /// halted and goes on waits anew, for the replies that came meanwhile are still to be read.
    pub fn wait(&mut self, silence_max: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        while !self.look(silence_max, ready)? {}
        Ok(())
    }

    /// False where a signal ended it, such as the one by which a process goes on.
    fn look(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<bool> {
        ready.clear();
        self.events.clear();
        let timeout = rustix::event::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            ready.push(Ready { index: event.data.u64() as usize, flags: event.flags });
        }
        Ok(true)
    }

    /// Serves a ready connection: writes if there is room, reads once; appends what ended and
    /// returns when the bytes arrived.
    pub fn serve(
        &mut self,
        ready: Ready,
        clock: &Clock,
        ended: &mut Vec<Completion>,
    ) -> io::Result<u64> {
        if ready.flags.contains(epoll::EventFlags::OUT) {
            self.flush(ready.index)?;
        }
        let mut now_ns = 0;
        // Errors and hang-ups show in the next read.
        if ready.flags != epoll::EventFlags::OUT {
            let before = ended.len();
            let connection = &mut self.all[ready.index];
            connection
                .receive(self.context, &mut self.buffer, ended, || now_ns = clock.now_ns())?;
            self.in_flight -= ended.len() - before;
        }
        Ok(now_ns)
    }

    /// Calls `each` with every request that has no end.
    pub fn for_each_unanswered(&self, mut each: impl FnMut(&Request)) {
        self.all.iter().flat_map(Connection::requests).for_each(&mut each);
    }
}
