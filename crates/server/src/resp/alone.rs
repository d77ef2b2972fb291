//! Gives a request that goes alone to the durable executor, in one copy; a long one is copied slice
//! by slice.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::jobs::handoff::{Spoken, Work};
use crate::stream::connection::Connection;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::ItemBytes;
use laneway_policy::pace::Way;
use laneway_store::meter;
use laneway_transport::Transport;

impl<T: Transport> Core<T> {
    /// What the executor has to know of who asks.
    pub(crate) fn spoken(&self, connection: &mut Connection<T::Stream>) -> Spoken {
        Spoken { version: connection.session().version, goes_on: false, keeps: 0 }
    }
}

impl<T: Transport> Streams<T> {
    /// Gives a whole request to the executor alone: the next waits for its reply. Of `size` bytes
    /// is its item; `keeps` is [`Spoken::keeps`].
    pub(crate) fn resp_hand(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (request, goes_on): (&[u8], bool),
        (size, keeps): (u64, u64),
    ) -> Step {
        meter::bytes(request.len());
        let spoken = core.spoken(connection);
        let spoken = Box::new(Spoken { goes_on, keeps, ..spoken });
        let work = Work::Resp { bytes: request.to_vec(), spoken };
        let size = ItemBytes(size.max(request.len() as u64));
        match self.hand_over(core, connection, EXECUTOR, work, size) {
            Ok(()) => Step::Stop(request.len(), Stop::Ticket),
            Err(_) => Step::Stop(0, Stop::Quota),
        }
    }

    /// The same of a long request, which is copied slice by slice. Once that has begun no other
    /// way is open to it, so what was copied is of the request that stands at the front.
    pub(crate) fn resp_hand_long(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        request: &[u8],
        keeps: u64,
    ) -> Step {
        let mut copy = std::mem::take(&mut connection.session().handing);
        let copied = copy.len();
        let end = request.len().min(copied.saturating_add(core.slice_budget(Way::Copy)));
        meter::bytes(end - copied);
        copy.reserve_exact(request.len() - copied);
        copy.extend_from_slice(&request[copied..end]);
        if end < request.len() {
            connection.session().handing = copy;
            return Step::Stop(0, Stop::Quota); // others come first
        }
        let spoken = Box::new(Spoken { keeps, ..core.spoken(connection) });
        let work = Work::Resp { bytes: copy, spoken };
        let size = ItemBytes(request.len() as u64);
        match self.hand_over(core, connection, EXECUTOR, work, size) {
            Ok(()) => Step::Stop(request.len(), Stop::Ticket),
            Err(Work::Resp { bytes, .. }) => {
                connection.session().handing = bytes;
                Step::Stop(0, Stop::Quota)
            }
            Err(_) => unreachable!("what comes back is what was given"),
        }
    }
}
