//! Steering as a server uses it: the sockets of its ordinary UDP port, each slot of the table led
//! to the socket of the slot's owner. The same interface stands in a build without the program.
//!
//! It knows no owner: who leads the slots says whose each is, and may say otherwise at any time.

use crate::capabilities;
use crate::counts::SteerCounts;
use crate::error::Error;
use crate::layout::STEER_SLOTS;
use crate::realtime::is_realtime;
use std::os::fd::BorrowedFd;

/// The slot's keys in the middle of it: the hash by which to ask for its owner.
pub const fn middle_of_slot(slot: usize) -> u64 {
    let shift = u64::BITS - STEER_SLOTS.ilog2();
    (slot as u64) << shift | 1 << (shift - 1)
}

/// Whether this process may load the program here; false means that [`Steering::start`] fails. The
/// kernel may refuse it for reasons of its own all the same.
pub fn is_possible() -> bool {
    cfg!(feature = "kernel")
        && capabilities::missing(capabilities::LANE).is_empty()
        && !is_realtime()
}

#[cfg(feature = "kernel")]
pub use real::Steering;

#[cfg(feature = "kernel")]
mod real {
    use super::{BorrowedFd, Error, STEER_SLOTS, SteerCounts, capabilities, middle_of_slot};
    use crate::layout::Lead;
    use crate::steer::{Steer, SteerTable};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Mutex, PoisonError};

    /// The steering of one port.
    #[derive(Debug)]
    pub struct Steering {
        table: SteerTable,
        rewritten: AtomicU64,
        steer: Mutex<Steer>,
    }

    impl Steering {
        /// Steer the datagrams of a port to `sockets`, which share it, by their owners' numbers.
        pub fn start(
            seed: u64,
            sockets: &[BorrowedFd<'_>],
            owner: impl Fn(u64) -> u32,
        ) -> Result<Steering, Error> {
            capabilities::require("steering keys in the kernel", capabilities::LANE)?;
            let mut steer = Steer::load(seed)?;
            for (index, socket) in sockets.iter().enumerate() {
                steer.set_socket(index as u32, socket)?;
            }
            for slot in 0..STEER_SLOTS {
                steer.set_slot(slot, Lead::Socket(owner(middle_of_slot(slot))));
            }
            steer.set_receivers(sockets.len() as u32);
            if let Some(first) = sockets.first() {
                steer.attach(first)?;
            }
            let (table, rewritten) = (steer.table(), AtomicU64::new(0));
            Ok(Steering { table, rewritten, steer: Mutex::new(steer) })
        }

        /// Where the keys of a slot go from now on. Waits for nobody.
        pub fn set_slot(&self, slot: usize, lead: Lead) {
            self.table.set_slot(slot, lead);
            self.rewritten.fetch_add(1, Relaxed); // only a count
        }

        /// How often a slot was rewritten since the start.
        pub fn rewritten(&self) -> u64 {
            self.rewritten.load(Relaxed)
        }

        /// What was counted since the start.
        pub fn counts(&self) -> Result<SteerCounts, Error> {
            self.steer.lock().unwrap_or_else(PoisonError::into_inner).counts()
        }
    }
}

#[cfg(not(feature = "kernel"))]
pub use absent::Steering;

#[cfg(not(feature = "kernel"))]
mod absent {
    use super::{BorrowedFd, Error, SteerCounts};
    use crate::layout::Lead;

    /// The steering of one port, of which this build has none.
    #[derive(Debug)]
    pub enum Steering {}

    impl Steering {
        /// Says that there is none, and the way out.
        pub fn start(
            _seed: u64,
            _sockets: &[BorrowedFd<'_>],
            _owner: impl Fn(u64) -> u32,
        ) -> Result<Steering, Error> {
            Err(Error::absent("steering keys in the kernel"))
        }

        none! {
            /// Where the keys of a slot go from now on.
            fn set_slot(&self, _slot: usize, _lead: Lead);
            /// How often a slot was rewritten since the start.
            fn rewritten(&self) -> u64;
            /// What was counted since the start.
            fn counts(&self) -> Result<SteerCounts, Error>;
        }
    }
}
