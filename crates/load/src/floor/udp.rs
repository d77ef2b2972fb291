//! A bare loop of recvmmsg and sendmmsg: as many requests as wait, up to a burst, and their replies
//! by one call. A reply that one datagram does not hold goes out as trains (`UDP_SEGMENT`).

use super::{REQUEST_BYTES, Template};
use laneway_wire::udp::TRAIN_FRAMES_MAX;
use laneway_wire::udp::frames::{frames, put_train};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, HEADER_BYTES, Header};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Most requests that one call takes.
const BURST: usize = 32;
/// Room for one request.
const ROOM_BYTES: usize = 64;
const DATAGRAM_REQUEST_BYTES: usize = HEADER_BYTES + REQUEST_BYTES;

/// Serves until `socket` breaks.
pub fn serve(socket: &UdpSocket, template: &Template) -> io::Result<()> {
    let mut floor = Floor {
        socket,
        template,
        receiving: MultiHeaders::preallocate(BURST, None),
        sending: MultiHeaders::preallocate(BURST, None),
        rooms: [[0; ROOM_BYTES]; BURST],
        requests: Vec::with_capacity(BURST),
        out: Vec::new(),
    };
    loop {
        floor.receive()?;
        if HEADER_BYTES + template.reply_bytes() <= DATAGRAM_BYTES_MAX {
            floor.answer_burst()?;
        } else {
            floor.answer_trains()?;
        }
    }
}

struct Floor<'a> {
    socket: &'a UdpSocket,
    template: &'a Template,
    receiving: MultiHeaders<SockaddrStorage>,
    sending: MultiHeaders<SockaddrStorage>,
    rooms: [[u8; ROOM_BYTES]; BURST],
    requests: Vec<(Option<SockaddrStorage>, [u8; DATAGRAM_REQUEST_BYTES])>,
    out: Vec<u8>,
}

impl Floor<'_> {
    /// Waits for a request and takes those that wait with it.
    fn receive(&mut self) -> io::Result<()> {
        self.requests.clear();
        let mut slices = self.rooms.each_mut().map(|room| [IoSliceMut::new(room)]);
        let flags = MsgFlags::MSG_WAITFORONE;
        match recvmmsg(self.socket.as_raw_fd(), &mut self.receiving, &mut slices, flags, None) {
            Ok(arrivals) => {
                for arrival in arrivals {
                    let request = arrival.iovs().next().and_then(|bytes| bytes.try_into().ok());
                    // What has another length is no GET; it is not answered.
                    self.requests.extend(request.map(|request| (arrival.address, request)));
                }
                Ok(())
            }
            Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers what was taken, a datagram each, by one call.
    fn answer_burst(&mut self) -> io::Result<()> {
        self.out.clear();
        for (_, request) in &self.requests {
            // The header of the request is that of the reply: one datagram of one.
            self.out.extend_from_slice(&request[..HEADER_BYTES]);
            if let Some((_, line)) = request.split_first_chunk::<HEADER_BYTES>()
                && let Ok(line) = line.try_into()
            {
                self.template.answer(line, &mut self.out);
            }
        }
        let reply_bytes = HEADER_BYTES + self.template.reply_bytes();
        let mut slices = Vec::with_capacity(BURST);
        slices.extend(self.out.chunks(reply_bytes).map(|reply| [IoSlice::new(reply)]));
        let mut peers = Vec::with_capacity(BURST);
        peers.extend(self.requests.iter().map(|(peer, _)| *peer));
        let mut sent = 0;
        while sent < slices.len() {
            let (slices, peers) = (&slices[sent..], &peers[sent..]);
            let flags = MsgFlags::empty();
            match sendmmsg(self.socket.as_raw_fd(), &mut self.sending, slices, peers, [], flags) {
                Ok(done) => sent += done.count(),
                // The client has gone; so has its reply.
                Err(Errno::ECONNREFUSED) => sent += 1,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Answers what was taken, each by as many trains as it needs.
    fn answer_trains(&mut self) -> io::Result<()> {
        for (peer, request) in &self.requests {
            let Some((header, line)) = Header::parse(request) else { continue };
            let Ok(line) = line.try_into() else { continue };
            self.out.clear();
            self.template.answer(line, &mut self.out);
            let total = frames(self.out.len()).unwrap_or(0);
            let mut sequences = 0..total;
            while !sequences.is_empty() {
                let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES_MAX];
                let mut pieces = Vec::with_capacity(2 * TRAIN_FRAMES_MAX);
                let (id, message) = (header.request_id, self.out.as_slice());
                put_train(id, message, &mut sequences, &mut headers, |piece| {
                    pieces.push(IoSlice::new(piece));
                });
                let control = [ControlMessage::UdpGsoSegments(&(DATAGRAM_BYTES_MAX as u16))];
                let fd = self.socket.as_raw_fd();
                match sendmsg(fd, &pieces, &control, MsgFlags::empty(), peer.as_ref()) {
                    Ok(_) | Err(Errno::ECONNREFUSED) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

const _: () = assert!(DATAGRAM_REQUEST_BYTES <= ROOM_BYTES);
