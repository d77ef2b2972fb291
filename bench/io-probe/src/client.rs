//! The client of both servers: each reply that has come is answered by as many requests, for a
//! while.

use crate::{REPLY, REQUEST_BYTES};
use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The calling thread runs on this CPU only.
pub fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps `depth` requests in flight on each connection for this long.
pub fn ask(connections: &[TcpStream], depth: usize, length: Duration) -> io::Result<()> {
    stay_on(1)?;
    let requests = vec![b'g'; REQUEST_BYTES * depth];
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, connection) in connections.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, connection, data, epoll::EventFlags::IN)?;
        send(connection, &requests, SendFlags::NOSIGNAL)?;
    }
    let mut room = vec![0; REPLY.len() * depth];
    let mut begun = vec![0; connections.len()];
    let (since, tick) = (Instant::now(), Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
    let mut ready = Vec::with_capacity(256);
    while since.elapsed() < length {
        ready.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&tick))?;
        for event in &ready {
            let number = event.data.u64() as usize;
            let (got, _) = recv(&connections[number], &mut room[..], RecvFlags::empty())?;
            // Part of a reply waits for its rest.
            let bytes = begun[number] + got;
            begun[number] = bytes % REPLY.len();
            let whole = bytes / REPLY.len();
            send(&connections[number], &requests[..whole * REQUEST_BYTES], SendFlags::NOSIGNAL)?;
        }
    }
    Ok(())
}
