//! Clients that misbehave: none of them may hurt anybody else, and none may keep what it took.

use crate::ask::key_name;
use crate::rig::value;
use crate::scene::Scene;
use laneway_transport::memory::{Client, Net};

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
const LINE_BYTES: usize = 40_000;

/// A client that misbehaves.
pub struct Hostile {
    client: Client,
    out: Vec<u8>,
    sent: usize,
    misdeed: Misdeed,
}

impl Hostile {
    /// Draws what it does.
    pub fn new(scene: &mut Scene<'_>, net: &Net) -> Hostile {
        let misdeed = MISDEEDS[scene.random.below(MISDEEDS.len() as u64) as usize];
        scene.books.counts.hostile += 1;
        scene.books.say(|| format!("a hostile client comes: {misdeed:?}"));
        Hostile { client: net.connect(), out: bytes(misdeed, scene), sent: 0, misdeed }
    }

    /// Goes on; some vanish or close at any time. Returns whether it stays.
    pub fn go_on(&mut self, scene: &mut Scene<'_>) -> bool {
        if self.client.ended() {
            return false;
        }
        self.sent += self.client.send(&self.out[self.sent..]);
        if !matches!(self.misdeed, Misdeed::ReadsNothing) {
            self.client.receive(1000);
        }
        if matches!(self.misdeed, Misdeed::HalfClose) && self.sent == self.out.len() {
            self.client.finish();
        }
        let leaves = scene.random.one_in(40);
        if leaves {
            self.vanish();
        }
        !leaves
    }

    /// Vanishes: who closes politely and reads no more would have to be waited for.
    pub fn vanish(&self) {
        self.client.reset();
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
