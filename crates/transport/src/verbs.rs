//! What a worker's transport knows of clients over RDMA: whether their slots hold something. Their
//! requests become datagrams as those of clients in memory do ([`crate::rdma`]).
//!
//! Such a client cannot ring: its card writes to memory, and no kernel is told. So a worker that
//! sleeps looks up every [`SLEEP`], as long as there is such a client. (HERD's never sleep.)

use crate::datagram::Path;
use crate::{Ready, Wait};
use laneway_rdma::verbs::ClientTable;
use laneway_rdma::verbs::client_table::Guest;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep while somebody may write: one turn of a few microseconds in it is less than
/// one percent of a CPU.
const SLEEP: Duration = Duration::from_millis(1);
/// Of how many sleeps, or looks of who does not sleep, one ends with a poll of every lane, which
/// finds what comes behind a request that was lost.
const SLEEPS_FAR: u32 = 8;
const LOOKS_FAR: u32 = 4096;

/// The part of a worker's transport.
pub struct Watch {
    client_table: Arc<ClientTable>,
    /// Number of its first queue.
    first: usize,
    version: u64,
    clients: Vec<Arc<Guest>>,
    /// Which lanes are watched.
    lanes: Vec<bool>,
    /// Queues of which room for large replies is waited for.
    rooms: BTreeSet<usize>,
    sleeps: u32,
    looks: u32,
}

impl Watch {
    /// Of the clients of `client_table`, whose queues are numbered from `first` on.
    pub fn new(client_table: Arc<ClientTable>, first: usize) -> Watch {
        let lanes = vec![false; client_table.bounds().lanes];
        let (clients, rooms) = (Vec::new(), BTreeSet::new());
        Watch { client_table, first, version: 0, clients, lanes, rooms, sleeps: 0, looks: 0 }
    }

    /// Whether `queue` is one of these.
    pub(crate) fn has(&self, queue: usize) -> bool {
        (self.first..self.first + self.lanes.len()).contains(&queue)
    }

    pub(crate) fn watch(&mut self, queue: usize, watch: bool) {
        self.lanes[queue - self.first] = watch;
    }

    pub(crate) fn watch_room(&mut self, queue: usize, watch: bool) {
        if watch {
            self.rooms.insert(queue);
        } else {
            self.rooms.remove(&queue);
        }
    }

    /// Say what is ready. The card makes room in a moment, and tells nobody: whoever waits for it
    /// tries again.
    pub(crate) fn look(&mut self, ready: &mut Vec<Ready>) {
        let version = self.client_table.version();
        if version != self.version {
            self.version = version;
            self.clients = self.client_table.clients().into_iter().flatten().collect();
        }
        self.looks = self.looks.wrapping_add(1);
        let far = self.looks.is_multiple_of(LOOKS_FAR) && !self.clients.is_empty();
        for lane in self.watched() {
            if far || self.clients.iter().any(|guest| guest.has_request(lane)) {
                ready.push(Ready::Datagrams(self.first + lane));
            }
        }
        ready.extend(self.rooms.iter().map(|queue| Ready::Room(*queue, Path::Large)));
    }

    fn watched(&self) -> impl Iterator<Item = usize> {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(|(_, watched)| **watched).map(|(lane, _)| lane)
    }

    /// Before a sleep, with nothing ready: how long it may be.
    pub(crate) fn wait(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let Wait::AtMost(time) = wait else { return wait };
        if self.clients.is_empty() {
            return wait;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.sleeps.is_multiple_of(SLEEPS_FAR) {
            ready.extend(self.watched().map(|lane| Ready::Datagrams(self.first + lane)));
            return Wait::No;
        }
        Wait::AtMost(time.min(SLEEP))
    }
}
