//! A client over UDP: the client library's own core, which repeats what was lost, over the seeded
//! memory network. It reads, stores, deletes and touches, since those a server carries out once
//! however often they arrive.

use crate::ask::{Request, key_name, refusal};
use crate::books::Entry;
use crate::model::{Asked, New, Seen, Told, Ttl};
use crate::scene::Scene;
use crate::swarm::Swarm;
use laneway_client::{Answer, Core, Error, Expiry, Refusal, Settings, Ticket, Topology};
use laneway_policy::{Placement, owner};
use laneway_transport::memory_datagram::{DatagramNet, MemoryClient};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The address of queue 0 of a memory network.
const QUEUES_AT: ([u8; 4], u16) = ([10, 0, 0, 1], 11_211);
/// Requests of a client under way.
const TOGETHER: usize = 4;

/// One client.
pub struct DatagramClient {
    name: String,
    core: Core,
    socket: MemoryClient,
    under_way: BTreeMap<Ticket, (Asked, Vec<Entry>)>,
}

impl DatagramClient {
    /// On this network, of a server with so many workers.
    pub fn new(number: usize, net: &DatagramNet, swarm: &Swarm, seed: u64) -> DatagramClient {
        let queues = swarm.workers as u16;
        // Every second one does not know of domains, and sends to any.
        let domains = if number.is_multiple_of(2) { swarm.domains() } else { 1 };
        let placement = Placement::new(owner::SEED, queues, domains).expect("there are workers");
        let topology = Topology::queues(QUEUES_AT.1, queues).placed(placement);
        DatagramClient {
            name: format!("udp {number}"),
            core: Core::new(Settings::default(), topology, seed),
            socket: net.client(),
            under_way: BTreeMap::new(),
        }
    }

    /// Whether it waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// When it next does something by itself.
    pub fn wake_nanos(&self) -> Option<u64> {
        self.core.wake_nanos()
    }

    /// For a failure: what it waits for.
    pub fn waits_for(&self) -> String {
        format!("{} waits for {:?}", self.name, self.under_way.values().next())
    }

    /// The server is gone.
    pub fn disconnect(&mut self, scene: &mut Scene<'_>) {
        for (_, entries) in std::mem::take(&mut self.under_way).into_values() {
            scene.books.forget(&entries);
        }
    }

    /// Asks one thing more, if it may.
    pub fn ask(&mut self, scene: &mut Scene<'_>, now_nanos: u64) {
        if self.under_way.len() >= TOGETHER {
            return;
        }
        let Some(key) = scene.key() else { return };
        let asked = match scene.random.below(8) {
            0..4 => Asked::Get,
            4 | 5 => {
                let value = scene.new_value();
                Asked::Set(New { value, flags: 7, ttl: Ttl::Never })
            }
            6 => Asked::Delete,
            _ => Asked::Touch(Ttl::Never),
        };
        let name = key_name(key);
        let request = match asked {
            Asked::Set(new) => {
                laneway_client::Request::set(name, scene.books.values.bytes(new.value)).flags(7)
            }
            Asked::Delete => laneway_client::Request::delete(name),
            Asked::Touch(_) => laneway_client::Request::touch(name, Expiry::Never),
            _ => laneway_client::Request::gets(name),
        };
        // Full: ids rest after they were used.
        let Ok(ticket) = self.core.push(request, now_nanos) else { return };
        let shown = format!("{asked:?}");
        let request = Request::elsewhere((key, asked), &shown);
        let entries = scene.books.call(&self.name, &request, scene.now_ms);
        self.under_way.insert(ticket, (asked, entries));
    }

    /// Sends and receives, and judges what came.
    pub fn exchange(&mut self, scene: &mut Scene<'_>, now_nanos: u64) -> Result<(), String> {
        let mut out = Vec::new();
        while let Some(departure) = self.core.transmit(now_nanos, &mut out) {
            let to = SocketAddr::from((QUEUES_AT.0, QUEUES_AT.1 + departure.queue));
            for datagram in out.chunks(departure.segment_bytes) {
                self.socket.send(to, datagram);
            }
        }
        while let Some((from, datagram)) = self.socket.receive() {
            self.core.feed(from.port() - QUEUES_AT.1, &datagram, now_nanos);
        }
        self.core.tick(now_nanos);
        while let Some((ticket, answer)) = self.core.answer() {
            let (asked, entries) = self.under_way.remove(&ticket).expect("it was asked");
            match self.told(asked, answer, scene)? {
                Some(told) => {
                    let (now, may_miss) = (scene.now_ms, scene.may_miss);
                    scene.books.tell(&self.name, &entries, &[told], now, may_miss);
                }
                None => scene.books.forget(&entries),
            }
        }
        let counts = self.core.counts();
        match counts.garbled + counts.unintelligible {
            0 => Ok(()),
            _ => Err(format!("{}: a reply is garbled", self.name)),
        }
    }

    /// `None` where the outcome is not known yet.
    fn told(
        &self,
        asked: Asked,
        answer: Result<Answer, Error>,
        scene: &mut Scene<'_>,
    ) -> Result<Option<Told>, String> {
        Ok(Some(match answer {
            Ok(Answer::Value(value)) => {
                let id = scene.books.values.id(&value.data);
                Told::Value(Some(Seen {
                    value: id,
                    flags: Some(value.flags),
                    cas: value.cas,
                    marks: None,
                }))
            }
            Ok(Answer::Missing) if asked == Asked::Get => Told::Value(None),
            Ok(Answer::Missing) => Told::NotFound,
            Ok(Answer::Done) => Told::Done,
            Err(Error::Refused(Refusal::Server(why))) => refusal(&why),
            Err(Error::TimedOut { .. } | Error::OutcomeUnknown { .. }) => return Ok(None),
            other => return Err(format!("{} asked {asked:?} and was told {other:?}", self.name)),
        }))
    }
}
