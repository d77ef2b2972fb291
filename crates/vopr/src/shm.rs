//! Clients in shared memory, as `serve --shm` has them: each is the client library's own core over
//! a region of its own, and all are in this process. Places for long replies and memory to lend
//! are few, so that replies also go in frames and requests wait. A client reads nothing for a
//! while, or vanishes with whatever it has asked and lent, and another one comes in its place.
//! Where clients misbehave one does so here, too ([`crate::shm_hostile`]).
//!
//! What the server's door does is done here at once: it lets clients in and sees them go, wakes the
//! workers for both, and unmaps regions.

use crate::asking::Asking;
use crate::scene::Scene;
use crate::shm_hostile::HostileMember;
use laneway_client::{Core, Memory, Settings, Topology};
use laneway_policy::{Placement, owner};
use laneway_rdma::contract::{Peer, Requester as _};
use laneway_rdma::door::Version;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use laneway_rig::Rig;
use laneway_tier::disk::sim::Random;
use std::io;
use std::os::unix::net::UnixStream;

/// Steps of a run in which one of them has a turn: one in so many.
const TURN_EVERY: u64 = 12;
/// Turns in which one vanishes, and in which one stops to read: one in so many.
const VANISH_EVERY: u64 = 150;
const DEAF_EVERY: u64 = 60;
/// Turns for which it then reads nothing, fewer than.
const DEAF_TURNS: u64 = 40;
/// One in so many knows no other replies than frames.
const FRAMED_EVERY: u64 = 4;
/// Turns in which one that misbehaves comes, where there is none, or goes: one in so many.
const HOSTILE_EVERY: u64 = 8;
const HOSTILE_GOES_EVERY: u64 = 60;

/// How their regions are laid out. What they lend has room for any value of a run.
pub fn terms(workers: usize) -> Terms {
    let usual = Terms::of(workers, 1 << 20);
    Terms { window: 8, replies: 16, loans: 2, places: 3, reply_bytes: 256 << 10, ..usual }
}

/// One client.
struct Member {
    asking: Asking,
    memory: Memory,
    peer: Peer,
    /// Turns for which it reads nothing.
    deaf: u64,
    /// Without it the server seems gone.
    _server: UnixStream,
}

impl Member {
    fn send(&mut self, now_nanos: u64) -> Result<(), String> {
        let sent = self.memory.send(&mut self.asking.core, now_nanos);
        sent.map_err(|error| format!("{} sends: {error}", self.asking.name))
    }

    fn receive(&mut self, scene: &mut Scene<'_>, now_nanos: u64) -> Result<(), String> {
        let mut has_more = true;
        while has_more {
            let received = self.memory.receive(&mut self.asking.core, now_nanos);
            let failed = |error: io::Error| format!("{} receives: {error}", self.asking.name);
            has_more = received.map_err(failed)?;
        }
        self.asking.core.tick(now_nanos);
        self.asking.hear(scene)
    }
}

/// All of them.
pub struct ShmClients {
    members: Vec<Member>,
    hostile: Option<HostileMember>,
    random: Random,
    /// How many have come.
    come: u64,
}

fn registry(rig: &Rig) -> &Registry {
    rig.registry.as_ref().expect("it serves clients in memory")
}

impl ShmClients {
    /// So many, of this server.
    pub fn new(count: usize, rig: &Rig, seed: u64) -> ShmClients {
        let (members, random) = (Vec::new(), Random::new(seed));
        let mut clients = ShmClients { members, hostile: None, random, come: 0 };
        for _ in 0..count {
            let member = clients.enter(rig);
            clients.members.push(member);
        }
        clients
    }

    fn enter(&mut self, rig: &Rig) -> Member {
        self.come += 1;
        let is_framed = self.random.one_in(FRAMED_EVERY);
        let version = if is_framed { Version::Framed } else { Version::Placed };
        let (ring, peer, server) = rig.enter_as(version);
        rig.shared.wake_all();
        let Terms { lanes, bulk_bytes, .. } = ring.terms();
        let placement = Placement::new(owner::SEED, lanes as u16, 1).expect("there are workers");
        let topology = Topology::in_memory(lanes as u16, bulk_bytes).placed(placement);
        let core = Core::new(Settings::in_memory(), topology, self.random.number());
        let asking = Asking::new(format!("shm {}", self.come), core, true);
        Member { asking, memory: Memory::new(ring), peer, deaf: 0, _server: server }
    }

    /// A client is gone, with all that it has under way.
    fn part(member: &mut Member, scene: &mut Scene<'_>, rig: &Rig) {
        scene.books.counts.shm_rings += member.memory.ring().verbs().rings;
        member.asking.disconnect(scene);
        registry(rig).leave(member.peer);
        rig.shared.wake_all();
    }

    /// All leave.
    pub fn leave(&mut self, scene: &mut Scene<'_>, rig: &Rig) {
        for member in &mut self.members {
            ShmClients::part(member, scene, rig);
        }
        self.members.clear();
        self.end_hostile(rig);
    }

    /// Whoever misbehaves is gone.
    pub fn end_hostile(&mut self, rig: &Rig) {
        if let Some(hostile) = self.hostile.take() {
            registry(rig).leave(hostile.peer);
            rig.shared.wake_all();
        }
    }

    /// Whether somebody misbehaves.
    pub fn has_hostile(&self) -> bool {
        self.hostile.is_some()
    }

    fn step_hostile(&mut self, scene: &mut Scene<'_>, rig: &Rig) {
        let random = &mut self.random;
        match &mut self.hostile {
            None if random.one_in(HOSTILE_EVERY) => {
                scene.books.counts.hostile += 1;
                scene.books.say(|| "a hostile client comes in memory".into());
                self.hostile = Some(HostileMember::new(registry(rig)));
                rig.shared.wake_all();
            }
            None => {}
            Some(_) if random.one_in(HOSTILE_GOES_EVERY) => self.end_hostile(rig),
            Some(hostile) => hostile.go_on(random, scene.swarm.keys),
        }
    }

    /// Something of one of them, now and then.
    pub fn step(&mut self, scene: &mut Scene<'_>, rig: &Rig, now_nanos: u64) -> Result<(), String> {
        if self.members.is_empty() || !self.random.one_in(TURN_EVERY) {
            return Ok(());
        }
        registry(rig).bury();
        if scene.swarm.hostile > 0 {
            self.step_hostile(scene, rig);
        }
        let number = self.random.below(self.members.len() as u64) as usize;
        if self.random.one_in(VANISH_EVERY) {
            let member = &mut self.members[number];
            scene.books.counts.shm_gone += 1;
            scene.books.say(|| format!("{} vanishes", member.asking.name));
            ShmClients::part(member, scene, rig);
            self.members[number] = self.enter(rig);
        }
        let member = &mut self.members[number];
        if self.random.one_in(DEAF_EVERY) {
            member.deaf = self.random.below(DEAF_TURNS);
        }
        member.asking.ask(scene, now_nanos);
        member.send(now_nanos)?;
        match member.deaf {
            0 => member.receive(scene, now_nanos),
            _ => {
                member.deaf -= 1;
                Ok(())
            }
        }
    }

    /// All go on with what they have asked.
    pub fn exchange(&mut self, scene: &mut Scene<'_>, now_nanos: u64) -> Result<(), String> {
        for member in &mut self.members {
            member.deaf = 0;
            member.send(now_nanos)?;
            member.receive(scene, now_nanos)?;
        }
        Ok(())
    }

    /// Whether none waits for anything, and no request lies in its slot.
    pub fn is_idle(&self, rig: &Rig) -> bool {
        self.members.iter().all(|member| member.asking.is_idle()) && !self.is_untaken(rig)
    }

    /// Whether a request lies in its slot. Where every worker sleeps nobody takes it, and that its
    /// client repeats it helps nothing.
    pub fn is_untaken(&self, rig: &Rig) -> bool {
        let registry = registry(rig);
        let mut regions = self.members.iter().filter_map(|member| registry.client(member.peer));
        regions.any(|region| (0..registry.terms().lanes).any(|lane| region.has_request(lane)))
    }

    /// When one of them next does something by itself.
    pub fn wake_nanos(&self) -> Option<u64> {
        let waits = self.members.iter().filter(|member| !member.asking.is_idle());
        waits.filter_map(|member| member.asking.core.wake_nanos()).min()
    }

    /// For a failure: what they wait for.
    pub fn waits_for(&self) -> impl Iterator<Item = String> {
        let waits = self.members.iter().filter(|member| !member.asking.is_idle());
        waits.map(|member| member.asking.waits_for())
    }
}
