//! A server without threads that has all that operators can watch.

use super::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use super::{Plan, Rig};
use laneway_policy::Form;
use laneway_transport::memory_datagram::DatagramFaults;

impl Rig {
    /// Two workers, whose clients come by streams and datagrams and whose items are kept durably.
    pub fn watched() -> Rig {
        let machine = Machine::new(32 * SEGMENT_BYTES as usize, 16 << 20);
        let tier = machine.open(settings()).expect("the media are sound");
        Rig::new(&Plan {
            kept: Some(Kept::of(&tier)),
            datagrams: Some(DatagramFaults::NONE),
            ..Plan::of(2, Form::TimeShare)
        })
    }
}
