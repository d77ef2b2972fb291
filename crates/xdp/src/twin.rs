//! The kernel's side of a queue's rings, in software: packets come when a test delivers them, leave
//! when it transmits them, and their frames come back when it completes them. What it cannot do is
//! what the kernel does not do either: reach a frame that was not given to it.
#![allow(unsafe_code)]

use crate::mapped::{FRAME_BYTES, Frames, Ring, frames};
use crate::packet::HEADROOM_BYTES;
use crate::queue::{ADDRESS_WORDS, PACKET_WORDS, Receiver, Rings, Sender, Sizes};
use laneway_sync::descriptors::{Consumer, Producer};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The other end.
#[derive(Debug)]
pub struct Twin {
    rings: Rings,
    frames: Frames,
    fill: Consumer<ADDRESS_WORDS>,
    rx: Producer<PACKET_WORDS>,
    tx: Consumer<PACKET_WORDS>,
    completion: Producer<ADDRESS_WORDS>,
    /// Taken from the fill ring, without a packet yet.
    empty: VecDeque<u64>,
    /// Sent, and not given back yet.
    sent: VecDeque<u64>,
}

/// A queue whose other end is a twin.
pub fn queue(sizes: Sizes) -> io::Result<(Receiver, Sender, Twin)> {
    let ring = |places, words| Ring::own(places, words).map(Arc::new);
    let rings = Rings {
        fill: ring(sizes.receive, ADDRESS_WORDS)?,
        rx: ring(sizes.receive, PACKET_WORDS)?,
        tx: ring(sizes.send, PACKET_WORDS)?,
        completion: ring(sizes.send, ADDRESS_WORDS)?,
    };
    let (memory, mut receiving) = frames(sizes.receive + sizes.send)?;
    let sending = receiving.split_off(sizes.receive as usize);
    let twin = Twin {
        rings: rings.clone(),
        frames: memory,
        fill: Consumer::new(sizes.receive),
        rx: Producer::new(sizes.receive),
        tx: Consumer::new(sizes.send),
        completion: Producer::new(sizes.send),
        empty: VecDeque::new(),
        sent: VecDeque::new(),
    };
    let receiver = Receiver::new(rings.clone(), receiving, None);
    Ok((receiver, Sender::new(rings, sending, None), twin))
}

impl Twin {
    /// A packet arrives. False if it is lost, for want of a frame or because it is too long.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        if packet.len() > FRAME_BYTES - HEADROOM_BYTES {
            return false;
        }
        while let Some([address]) = self.fill.take(self.rings.fill.memory()) {
            self.empty.push_back(address);
        }
        self.fill.release(self.rings.fill.memory());
        let Some(address) = self.empty.pop_front() else { return false };
        let at = address + HEADROOM_BYTES as u64;
        // SAFETY: `address` came out of the fill ring, whose producer, a `Receiver`, puts a frame
        // into its table of frames that are away before it shows the address; and it goes into the
        // RX ring below, once, by which alone the frame can come out of that table again.
        let written = unsafe { self.frames.write(at, packet) };
        let put = self.rx.put(self.rings.rx.memory(), [at, packet.len() as u64]);
        assert!(written && put, "frames are inside, and there is a place for each");
        self.rx.publish(self.rings.rx.memory());
        true
    }

    /// The next packet that leaves; its frame does not come back before [`Twin::complete`].
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        let [address, length] = self.tx.take(self.rings.tx.memory())?;
        // SAFETY: `address` came out of the TX ring, whose producer, a `Sender`, puts a frame into
        // its table of frames that are away before it shows the address; and it goes into the
        // completion ring only by `complete`, once, by which alone the frame can come out again.
        let packet = unsafe { self.frames.read(address, length as u32 as usize) };
        self.tx.release(self.rings.tx.memory());
        self.sent.push_back(address);
        packet
    }

    /// Give back the frames of at most `count` packets that were sent.
    pub fn complete(&mut self, count: usize) {
        for _ in 0..count {
            let Some(address) = self.sent.pop_front() else { break };
            let put = self.completion.put(self.rings.completion.memory(), [address]);
            assert!(put, "there is a place for each");
        }
        self.completion.publish(self.rings.completion.memory());
    }

    /// Frames here: to receive into, and sent.
    pub fn held(&self) -> (usize, usize) {
        (self.empty.len(), self.sent.len())
    }

    /// How many frames there are of both kinds.
    pub fn frames(&self) -> u32 {
        self.frames.count()
    }
}
