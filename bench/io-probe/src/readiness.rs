//! The echo server by readiness: what `laneway serve` does (edge-triggered epoll, 32 events a call,
//! one receive and one send for each connection that is ready).

use crate::{RECEIVE_BYTES, REPLY, REQUEST_BYTES, Run};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;

pub fn serve(connections: Vec<TcpStream>, run: &Run) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, connection) in connections.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, connection, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    let replies = REPLY.repeat(RECEIVE_BYTES / REQUEST_BYTES);
    let mut room = [0; RECEIVE_BYTES];
    let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut ready = Vec::with_capacity(32);
    while !run.stop.load(Relaxed) {
        ready.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&tick))?;
        for event in &ready {
            let connection = &connections[event.data.u64() as usize];
            let bytes = match recv(connection, &mut room[..], RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            let requests = bytes / REQUEST_BYTES;
            send(connection, &replies[..requests * REPLY.len()], SendFlags::NOSIGNAL)?;
            run.requests.fetch_add(requests as u64, Relaxed);
        }
    }
    Ok(())
}
