//! How a client's requests leave: by WRITE into slots of the server's, or by SEND to the queue pair
//! of the worker that is to serve them.

use super::card::{Domain, Trouble, packet_bytes};
use super::greeting::Mailboxes;
use super::inbox::{datagrams, request};
use super::parts;
use super::post::{Handle, Mailbox, Sender};
use super::request_ring::{Bounds, control};
use crate::layout::SLOT_WORDS;
use laneway_sync::prim::Ordering::Relaxed;
use laneway_sync::{slot, words};
use std::sync::Arc;

/// One of the two.
pub enum Outbound {
    /// By WRITE.
    Slots {
        /// Where the slots begin.
        address: u64,
        /// By which key they are written.
        rkey: u32,
    },
    /// By SEND.
    Datagrams {
        /// Where they go, by lane.
        mailboxes: Vec<Arc<Mailbox>>,
        /// The longest that gets there.
        packet_bytes: usize,
        /// Of the last message that left in parts.
        serial: u32,
    },
}

impl Outbound {
    /// To the server that answered so.
    pub fn to(domain: &Arc<Domain>, theirs: &Mailboxes) -> Result<Outbound, Trouble> {
        let handle = Arc::new(Handle::new(domain, &theirs.address)?);
        let mailbox = |number: &u32| {
            let (handle, qkey) = (handle.clone(), theirs.qkey);
            Arc::new(Mailbox { handle, number: *number, qkey })
        };
        Ok(Outbound::Datagrams {
            mailboxes: theirs.numbers.iter().map(mailbox).collect(),
            packet_bytes: packet_bytes(theirs.mtu.min(domain.card().mtu())),
            serial: 0,
        })
    }

    /// How many work requests a message of so many bytes takes.
    pub fn count(&self, message_bytes: usize) -> usize {
        match self {
            Outbound::Slots { .. } => 1,
            Outbound::Datagrams { packet_bytes, .. } => parts::count(message_bytes, *packet_bytes),
        }
    }

    /// Gather a message, number `number` of a lane or, in parts, from that number on.
    pub fn gather(
        &mut self,
        sender: &mut Sender,
        bounds: &Bounds,
        (lane, number): (usize, u32),
        message: &[u8],
    ) {
        match self {
            Outbound::Slots { address, rkey } => {
                // The same place here as over there: what was written from it last was taken, so it
                // left.
                let place = bounds.slot(lane, number);
                let begins = slot::begins(SLOT_WORDS, message.len());
                let memory = &sender.memory().words()[place.clone()];
                words::write(memory, begins, message);
                let word = control(number, message.len()).pack().to_le();
                memory[SLOT_WORDS - 1].store(word, Relaxed);
                let from = 8 * place.start + begins..8 * place.end;
                let address = *address + from.start as u64;
                sender.write(from, address, *rkey);
            }
            Outbound::Datagrams { mailboxes, packet_bytes, serial } => {
                let all = datagrams((lane, number), serial, message, *packet_bytes);
                for (word, head, bytes) in all {
                    let head = head.as_ref().map_or(&[][..], |head| &head[..]);
                    sender.send_copy(&mailboxes[lane], word, [head, bytes].into_iter());
                }
            }
        }
    }

    /// Ask how many of a lane were taken; `next` is the number of the next that would leave.
    pub fn ask(&self, sender: &mut Sender, bounds: &Bounds, lane: usize, next: u32) {
        match self {
            Outbound::Slots { address, rkey } => {
                let word = bounds.ask(lane);
                sender.memory().words()[word].store(1, Relaxed);
                let at = 8 * word;
                sender.write(at..at + 8, *address + at as u64, *rkey);
            }
            Outbound::Datagrams { mailboxes, .. } => {
                sender.send(0..0, &mailboxes[lane], request(next));
            }
        }
    }

    /// Send under another key from now on; which one it was. Whoever tests a device sees that
    /// nothing arrives under a wrong one.
    pub fn replace_key(&mut self, qkey: u32) -> u32 {
        let Outbound::Datagrams { mailboxes, .. } = self else { return 0 };
        let before = mailboxes.first().map_or(0, |mailbox| mailbox.qkey);
        for mailbox in mailboxes {
            let (handle, number) = (mailbox.handle.clone(), mailbox.number);
            *mailbox = Arc::new(Mailbox { handle, number, qkey });
        }
        before
    }
}
