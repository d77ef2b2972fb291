//! The layers in the kernel, as a server uses them: the lane that answers GETs below the socket
//! (Hippos §3), the steering of keys to the socket of their owner (MICA §4.1.2), and the way past
//! the stack ([`crate::bypass`]).
//!
//! The lane reads the very buckets and items of the store, so nothing here keeps it up to date but
//! its clock. Both are loaded and attached before the workers start; then the capabilities that
//! this took are given up. Links are file descriptors: any end of the process detaches them.

use crate::bypass::Way;
use crate::clock::Clock;
use crate::hot::slots::Slots;
use crate::settings::{KernelSettings, LaneSettings, Settings, UdpSettings};
use crate::stats::{KernelLaneSnapshot, KernelSnapshot};
use laneway_kernel::service::{Service, ServiceSettings};
use laneway_kernel::steering::Steering;
use laneway_kernel::{Counts, Error, Outcome};
use laneway_policy::Placement;
use laneway_policy::owner::OwnerHash;
use laneway_store::{Store, Window, layout::Hasher};
use laneway_transport::datagram::Queue;
use laneway_transport::udp::Sockets;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use laneway_kernel::drop_capabilities;
pub use laneway_kernel::probe::layers;
pub use laneway_kernel::service::parse_range;
pub use laneway_kernel::steering::is_possible as can_steer;

/// Longest payload of a reply: that of memcached's datagrams.
const PAYLOAD_BYTES_MAX: u32 = 1400;
/// How often the lane is told the time.
const CLOCK_NANOS: u64 = 1_000_000_000;

/// What is loaded.
#[derive(Debug)]
pub struct Kernel {
    lane: Option<Service>,
    steering: Option<Arc<Steering>>,
    bypass: Option<Way>,
    /// The counts at the last `stats reset`.
    baseline: Mutex<Option<Counts>>,
    /// The most GETs that the lane was told to have answered since the start.
    hits_told: AtomicU64,
    clock_due_nanos: AtomicU64,
}

impl Kernel {
    /// Load the lane, if it is asked for: the store is made in its memory. Nothing is attached.
    pub fn load(settings: &Settings) -> Result<Kernel, Error> {
        let lane = match (&settings.kernel.lane, &settings.udp) {
            (Some(lane), Some(udp)) => Some(Service::load(&service(lane, udp, settings))?),
            _ => None,
        };
        Ok(Kernel::of(lane))
    }

    fn of(lane: Option<Service>) -> Kernel {
        let [hits_told, clock_due_nanos] = [0; 2].map(AtomicU64::new);
        let baseline = Mutex::default();
        Kernel { lane, steering: None, bypass: None, baseline, hits_told, clock_due_nanos }
    }

    /// The memory that the lane looks at.
    pub fn window(&self) -> Result<Option<Window>, Error> {
        self.lane.as_ref().map(Service::window).transpose()
    }

    /// Steer the ordinary port's datagrams. What a machine does not allow is done without: the
    /// workers hand requests over that are another's.
    pub fn steer(&mut self, sockets: &Sockets, placement: &Placement) -> Result<(), Error> {
        let owner = |hash| u32::from(placement.owner(OwnerHash(hash)).0);
        let steering = Steering::start(placement.seed(), &sockets.ordinary(), owner)?;
        self.steering = Some(Arc::new(steering));
        Ok(())
    }

    /// The table of whoever steers, for hot keys to move slots of.
    pub fn slots(&self, placement: Placement) -> Option<Slots> {
        let steering = self.steering.clone()?;
        let rewrite = move |slot, lead| steering.set_slot(slot, lead);
        Some(Slots::new(placement, Box::new(rewrite)))
    }

    /// Receive datagrams past the stack, if that is asked for. `again` as in [`Way::open`].
    pub fn open_bypass(
        &mut self,
        settings: &Settings,
        queues: &[Queue],
        again: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let wanted = settings.kernel.bypass.as_ref();
        self.bypass = wanted.map(|bypass| Way::open(bypass, queues, again)).transpose()?;
        Ok(())
    }

    /// The way past the stack, where there is one.
    pub fn bypass(&self) -> Option<&Way> {
        self.bypass.as_ref()
    }

    /// Attach the lane, for a store in its memory whose keys are hashed by `hasher`.
    pub fn attach(
        &self,
        queues: &[Queue],
        hasher: &Hasher,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let Some(lane) = &self.lane else { return Ok(()) };
        lane.open(ports(queues), hasher.start(), clock.unix_minus_boot_nanos())
    }

    /// Give up the capabilities that loading and attaching took, in this thread and those that it
    /// starts. A thread that is there already keeps its own: whoever made it saw to that.
    ///
    /// A server that cannot must not go on: it would face its clients with more rights than whoever
    /// started it believes.
    pub fn drop_capabilities(asked: &KernelSettings) -> Result<(), Error> {
        // Where steering was refused, too: what would have loaded it is there all the same.
        if asked.is_any() && !laneway_kernel::drop_capabilities() {
            return Err(Error::said(
                "--kernel-lane, --steer, --af-xdp",
                "the capabilities that loading took cannot be given up; leave these flags out",
            ));
        }
        Ok(())
    }

    /// Tell the lane the time, now and then.
    pub fn keep_time(&self, now: u64, clock: &dyn Clock) {
        let Some(lane) = &self.lane else { return };
        if now >= self.clock_due_nanos.load(Relaxed) {
            self.clock_due_nanos.store(now + CLOCK_NANOS, Relaxed); // worker 0 alone comes here
            lane.set_clock(clock.unix_minus_boot_nanos());
        }
    }

    /// Serve nothing any more.
    pub fn close(&self) {
        if let Some(Err(error)) = self.lane.as_ref().map(Service::close) {
            log::warn!("{error}; it goes with the process");
        }
        if let Some(Err(error)) = self.bypass.as_ref().map(Way::close) {
            log::warn!("{error}; it goes with the process");
        }
    }

    fn baseline(&self) -> MutexGuard<'_, Option<Counts>> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the lane counted since the start, or the last reset.
    fn counts(&self) -> Option<Counts> {
        let now = self.lane.as_ref()?.counts().ok()?;
        Some(match &*self.baseline() {
            Some(before) => now.since(before),
            None => now,
        })
    }

    /// GETs that the lane answered, since the start or the last reset.
    pub fn hits(&self) -> u64 {
        self.counts().map_or(0, |counts| counts.hits())
    }

    /// GETs that the lane answered since the start, whatever was reset; those that were told last
    /// where its counts cannot be read now: who takes a counter that falls for one that began anew
    /// would count everything once more.
    pub fn hits_since_start(&self) -> u64 {
        let counts = self.lane.as_ref().and_then(|lane| lane.counts().ok());
        let hits = counts.map_or(0, |counts| counts.hits());
        hits.max(self.hits_told.fetch_max(hits, Relaxed)) // statistics
    }

    /// GETs that the lane answered since the start, by floor log2 of key + value bytes.
    pub fn hits_of_class(&self) -> Option<Vec<u64>> {
        Some(self.lane.as_ref()?.counts().ok()?.hits_of_class().to_vec())
    }

    /// `stats reset`: count from here.
    pub fn reset(&self) {
        *self.baseline() = self.lane.as_ref().and_then(|lane| lane.counts().ok());
    }

    /// For `stats kernel`.
    pub fn snapshot(&self, store: &Store) -> KernelSnapshot {
        let lane = self.lane.as_ref().zip(self.counts()).map(|(lane, counts)| {
            let (settings, store) = (lane.settings(), store.stats());
            let passes = Outcome::ALL.into_iter().filter(|o| *o != Outcome::Hit);
            KernelLaneSnapshot {
                interfaces: settings.interfaces.clone(),
                hook: if settings.xdp { "xdp" } else { "tcx" },
                memory_bytes: store.window_bytes,
                items: store.window_items,
                promotions: store.promotions,
                demotions: store.demotions,
                hits: counts.hits(),
                datagrams: counts.of(Outcome::Hit),
                passes: passes.map(|outcome| (outcome.name(), counts.of(outcome))).collect(),
                retries: counts.retries(),
                hits_of_class: counts.hits_of_class().to_vec(),
            }
        });
        let steering = self.steering.as_ref().and_then(|steering| {
            let counts = steering.counts().ok()?;
            Some(vec![
                ("steered", counts.steered),
                ("unsteered", counts.unsteered),
                ("socketless", counts.socketless),
                ("slots_rewritten", steering.rewritten()),
            ])
        });
        KernelSnapshot { lane, steering, bypass: self.bypass.as_ref().map(Way::snapshot) }
    }
}

fn service(lane: &LaneSettings, udp: &UdpSettings, settings: &Settings) -> ServiceSettings {
    ServiceSettings {
        interfaces: lane.interfaces.clone(),
        xdp: lane.xdp,
        address: udp.address,
        peers: lane.peers.clone(),
        rate_megabits: lane.rate_megabits,
        items_bytes: lane.items_bytes,
        memory_bytes: settings.memory_bytes,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
    }
}

/// The ports of all queues: the ordinary one, and the row of those that clients choose.
fn ports(queues: &[Queue]) -> Vec<RangeInclusive<u16>> {
    let of = |chosen| {
        let ports = || queues.iter().filter(|q| q.chosen == chosen).map(|q| q.address.port());
        Some(ports().min()?..=ports().max()?)
    };
    [of(false), of(true)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_cannot_be_read_are_those_that_were_told_last() {
        let kernel = Kernel::of(None); // nothing to read, as where reading fails
        assert_eq!(kernel.hits_since_start(), 0);
        kernel.hits_told.store(7, Relaxed);
        assert_eq!(kernel.hits_since_start(), 7);
    }
}
