//! Reports which clients ask most, by address, and which keys are asked for most, summed over all
//! NUMA domains.

use crate::counts::clients::{ClientSums, ClientWatch};
use crate::hot::sample::Count;
use crate::shared::Shared;
use crate::stats::{SampledKey, SamplesSnapshot};
use laneway_store::{Moment, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of the samples that are told.
const SAMPLED_KEYS_MAX: usize = 32;

impl<S> Shared<S> {
    /// Clients of streams, by address.
    pub(crate) fn clients(&self) -> Vec<ClientWatch> {
        self.connections.clients.read(|client| self.client_sums(client))
    }

    /// What was counted for the clients of this place since the start.
    pub(crate) fn client_sums(&self, client: u16) -> ClientSums {
        let mut sums = ClientSums::default();
        self.each_domain(|shared| {
            shared.workers.iter().for_each(|worker| sums.add(&worker.clients[usize::from(client)]));
        });
        sums
    }

    /// The keys that the samples name, the one asked for most first.
    pub(crate) fn samples(&self, now: Moment) -> SamplesSnapshot {
        let (mut counts, mut samples) = (BTreeMap::new(), 0);
        self.each_domain(|shared| {
            let seen = shared.workers.iter().map(|worker| worker.samples.read_into(&mut counts));
            samples += seen.sum::<u64>();
        });
        let stores = || std::iter::once(&self.store).chain(self.other_stores());
        let key = |(key, count): (Vec<u8>, Count)| {
            let peek = |store: &Arc<Store>| store.peek(store.hash(&key), &key, now);
            let meta = stores().find_map(peek);
            let bytes = meta.map(|meta| meta.item_bytes());
            SampledKey { key, count, bytes }
        };
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(count.certain()));
        counts.truncate(SAMPLED_KEYS_MAX);
        SamplesSnapshot {
            samples,
            threshold_bytes: self.plan.shown.threshold_bytes(),
            keys: counts.into_iter().map(key).collect(),
        }
    }
}
