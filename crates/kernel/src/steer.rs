//! Steering: of the sockets that share a UDP port, the one of the key's owner receives the
//! datagram.
//!
//! The table has a slot for each value of the 12 highest bits of the owner's hash
//! (`laneway_policy::owner`), and names the index of a socket. Whoever schedules keys rewrites
//! slots, word by word, and ends timeslots; keys that were asked for often enough in one are told
//! by their hashes. Unit: requests.

use crate::counts::SteerCounts;
use crate::error::Error;
use crate::lane::mapped;
use crate::layout::{HOT_MAX, Lead, SteerWords};
use crate::mapped::Mapped;
use crate::program;
use aya::maps::{PerCpuArray, ReusePortSockArray};
use aya::programs::SkReuseport;
use aya::{Ebpf, EbpfLoader};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const NAME: &str = "steer_keys";
const COUNTER_WORDS: usize = 3;

/// The table of slots, apart from the program: who has it rewrites slots and waits for nobody.
#[derive(Debug, Clone)]
pub struct SteerTable(Arc<Mapped<SteerWords>>);

impl SteerTable {
    /// Where the keys of a slot go from now on.
    pub fn set_slot(&self, slot: usize, lead: Lead) {
        self.0[0].socket[slot].store(lead.word(), Relaxed);
    }
}

/// The steering program, loaded.
#[derive(Debug)]
pub struct Steer {
    words: Arc<Mapped<SteerWords>>,
    ebpf: Ebpf,
}

impl Steer {
    /// Load the program. `seed` is that of the owner's hash. Every slot leads to socket 0, and no
    /// key is counted.
    pub fn load(seed: u64) -> Result<Steer, Error> {
        crate::realtime::refuse("loading the steering program")?;
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o"));
        let mut ebpf = EbpfLoader::new()
            .load(object)
            .map_err(|why| Error::new("creating the steering program's arrays", &why))?;
        let what = "loading the steering program";
        let program = program::find::<SkReuseport>(&mut ebpf, NAME)?;
        program::load(|| program.load()).map_err(|why| Error::new(what, &why))?;
        let words: Arc<Mapped<SteerWords>> = Arc::new(mapped(&ebpf, "steer")?);
        words[0].seed.store(seed, Relaxed);
        // Untouched cells claim timeslot 0.
        words[0].stamp.store(1, Relaxed);
        Ok(Steer { words, ebpf })
    }

    /// Make a UDP socket, bound with `SO_REUSEPORT`, the one of an index below 256.
    pub fn set_socket(&mut self, index: u32, socket: &impl AsRawFd) -> Result<(), Error> {
        let what = "giving the steering program a socket";
        let map = self.ebpf.map_mut("sockets").ok_or_else(|| Error::said(what, "no array"))?;
        let mut array = ReusePortSockArray::try_from(map).map_err(|why| Error::new(what, &why))?;
        array.set(index, socket, 0).map_err(|why| Error::new(what, &why))
    }

    /// Begin to steer the datagrams of all sockets that share `socket`'s port.
    pub fn attach(&mut self, socket: impl AsFd) -> Result<(), Error> {
        let what = "attaching the steering program";
        let program = program::find::<SkReuseport>(&mut self.ebpf, NAME)?;
        program.attach(socket).map_err(|why| Error::new(what, &why))
    }

    /// Stop. Closing all the sockets does it, too.
    pub fn detach(socket: impl AsFd) -> Result<(), Error> {
        SkReuseport::detach(socket)
            .map_err(|why| Error::new("detaching the steering program", &why))
    }

    /// Sockets of the group beyond the first `receivers` do not receive: datagrams in which no key
    /// is found go to one of these, by their addresses. 0, as at first: any of the group receives.
    pub fn set_receivers(&self, receivers: u32) {
        self.words[0].receivers.store(receivers, Relaxed);
    }

    /// The table of slots.
    pub fn table(&self) -> SteerTable {
        SteerTable(self.words.clone())
    }

    /// Where the keys of a slot go from now on.
    pub fn set_slot(&self, slot: usize, lead: Lead) {
        self.table().set_slot(slot, lead);
    }

    /// Report keys asked for this often in a timeslot; 0 stops the counting.
    pub fn set_hot_requests(&self, requests: u16) {
        self.words[0].hot_requests.store(u32::from(requests), Relaxed);
    }

    /// End the timeslot: the hashes of the keys that became hot in it, at most [`HOT_MAX`]. A key
    /// may be there twice, and one that became hot in this very moment may be told in the next.
    pub fn end_timeslot(&self) -> Vec<u64> {
        let words = &self.words[0];
        let count = (words.hot_count.swap(0, Relaxed) as usize).min(HOT_MAX);
        let hot = words.hot[..count].iter().map(|hash| hash.load(Relaxed)).collect();
        let next = words.stamp.load(Relaxed).wrapping_add(1) & 0xffff;
        words.stamp.store(next, Relaxed);
        hot
    }

    /// What was counted since the program was loaded.
    pub fn counts(&self) -> Result<SteerCounts, Error> {
        let what = "reading the steering program's counters";
        let map = self.ebpf.map("steer_counts").ok_or_else(|| Error::said(what, "no array"))?;
        let array = PerCpuArray::try_from(map).map_err(|why| Error::new(what, &why))?;
        let cpus = array.get(&0, 0).map_err(|why| Error::new(what, &why))?;
        let sum = |word: usize| cpus.iter().map(|cpu: &[u64; COUNTER_WORDS]| cpu[word]).sum();
        Ok(SteerCounts { steered: sum(0), unsteered: sum(1), socketless: sum(2) })
    }

    /// Runs so far and the time they took, if the kernel keeps such statistics now
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_statistics(&self) -> Option<(u64, std::time::Duration)> {
        let info = self.ebpf.program(NAME)?.info().ok()?;
        Some((info.run_count(), info.run_time()))
    }

    /// Instructions that the verifier walked through to accept the program.
    pub fn verified_instructions(&self) -> Option<u32> {
        self.ebpf.program(NAME)?.info().ok()?.verified_instruction_count()
    }
}
