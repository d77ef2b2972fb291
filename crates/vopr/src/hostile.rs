//! Clients that misbehave: none of them may hurt anybody else, and none may keep what it took.

use crate::ask::key_name;
use crate::scene::Scene;
use crate::wire::Wire;
use laneway_rig::tls::ENCRYPTED;
use laneway_rig::value;
use laneway_transport::memory::Net;

/// What one of them does.
#[derive(Debug, Clone, Copy)]
enum Misdeed {
    /// Sends half a request, and then nothing.
    HalfLine,
    /// Declares a value, sends half of it, and then nothing.
    HalfValue,
    /// Sends what is no protocol.
    Garbage,
    /// Asks for much and reads nothing.
    ReadsNothing,
    /// Sends a long line of short keys.
    LongLine,
    /// Connects and says nothing.
    Silent,
    /// Asks, and says that it will send no more before it reads.
    HalfClose,
}

const MISDEEDS: [Misdeed; 7] = [
    Misdeed::HalfLine,
    Misdeed::HalfValue,
    Misdeed::Garbage,
    Misdeed::ReadsNothing,
    Misdeed::LongLine,
    Misdeed::Silent,
    Misdeed::HalfClose,
];

/// Bytes of a line of short keys.
pub(crate) const LINE_BYTES: usize = 40_000;

/// A client that misbehaves.
pub struct Hostile {
    wire: Wire,
    out: Vec<u8>,
    sent: usize,
    misdeed: Misdeed,
    /// It shows a certificate that is no good: nothing that it asks may be answered.
    is_stranger: bool,
}

/// A connection of its own, plain or encrypted, and whether it must not be let in.
fn connect(scene: &mut Scene<'_>, net: &Net) -> (Wire, bool) {
    let Some(encryption) = scene.encryption else {
        return (Wire::connect(net, 0, None), false);
    };
    let number = scene.random.number();
    match (scene.random.below(4), encryption.stranger(number)) {
        (0, _) => (Wire::connect(net, 0, None), false),
        // It speaks in plain text where nobody does.
        (1, _) => (Wire::Plain(net.connect_at(ENCRYPTED)), false),
        (2, Some(stranger)) => (Wire::connect(net, 0, Some(&stranger)), true),
        _ => (Wire::connect(net, 0, Some(&encryption.client(number))), false),
    }
}

impl Hostile {
    /// Draws what it does.
    pub fn new(scene: &mut Scene<'_>, net: &Net) -> Hostile {
        let misdeed = MISDEEDS[scene.random.below(MISDEEDS.len() as u64) as usize];
        scene.books.counts.hostile += 1;
        scene.books.say(|| format!("a hostile client comes: {misdeed:?}"));
        let (wire, is_stranger) = connect(scene, net);
        Hostile { wire, out: bytes(misdeed, scene), sent: 0, misdeed, is_stranger }
    }

    /// Goes on; some vanish or close at any time. Returns whether it stays.
    pub fn go_on(&mut self, scene: &mut Scene<'_>) -> Result<bool, String> {
        if self.wire.ended() {
            self.receive(usize::MAX)?;
            return Ok(false);
        }
        // Who says nothing at all does not begin a handshake either.
        if !matches!(self.misdeed, Misdeed::Silent) {
            self.sent += self.wire.send(&self.out[self.sent..], usize::MAX);
        }
        if !matches!(self.misdeed, Misdeed::ReadsNothing) || self.wire.is_handshaking() {
            self.receive(1000)?;
        }
        let has_sent = self.sent == self.out.len() && !self.wire.has_to_send();
        if matches!(self.misdeed, Misdeed::HalfClose) && has_sent {
            self.wire.finish();
        }
        let leaves = scene.random.one_in(40);
        if leaves {
            self.vanish();
        }
        Ok(!leaves)
    }

    /// A stranger is told by TLS that he is one, and nothing else.
    fn receive(&mut self, most: usize) -> Result<(), String> {
        match (self.wire.receive(most), self.is_stranger) {
            (Ok(told), true) if !told.is_empty() => {
                Err("who showed a stranger's certificate was answered".into())
            }
            (Ok(_), _) | (Err(_), true) => Ok(()),
            (Err(what), false) => Err(format!("a hostile client was sent {what}")),
        }
    }

    /// Vanishes: who closes politely and reads no more would have to be waited for.
    pub fn vanish(&self) {
        self.wire.reset();
    }
}

fn bytes(misdeed: Misdeed, scene: &mut Scene<'_>) -> Vec<u8> {
    let random = &mut *scene.random;
    let most = scene.swarm.value_bytes_max as u64;
    // Keys of nobody else.
    match misdeed {
        Misdeed::HalfLine => b"set alone 0 0 1".to_vec(),
        Misdeed::HalfValue => {
            let length = 1 + random.below(most) as usize;
            let sent = value(length / 2, random.number());
            [format!("set alone 0 0 {length}\r\n").as_bytes(), &sent].concat()
        }
        Misdeed::Garbage => {
            let length = 1 + random.below(3000);
            (0..length).map(|_| b"\r\n\0 \xffzq19"[random.below(9) as usize]).collect()
        }
        Misdeed::ReadsNothing => {
            let keys: Vec<String> = (0..scene.swarm.keys).map(key_name).collect();
            format!("get {}\r\n", keys.join(" ")).repeat(20).into_bytes()
        }
        Misdeed::LongLine => {
            let mut line = b"get".to_vec();
            while line.len() < LINE_BYTES {
                line.extend_from_slice(b" a");
            }
            line.extend_from_slice(b"\r\n");
            line
        }
        Misdeed::Silent => Vec::new(),
        Misdeed::HalfClose => b"get alone\r\nget alone\r\n".to_vec(),
    }
}
