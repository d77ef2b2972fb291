//! Items, and both ends of a design in this process.

use crate::rivals::client::{Access, Client};
use crate::rivals::cuckoo::Full;
use crate::rivals::design::Design;
use crate::rivals::opened::RingReader;
use crate::rivals::server::{Server, Sizes, Store};
use laneway_load::values::{Checker, Value, Values};
use laneway_load::workload::Key;
use laneway_load::workload::keys::KeyName;
use laneway_rdma::door;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::{RingRequester, RingResponder};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What one client and one server have between them.
const TERMS: Terms = Terms { loans: 1, ..Terms::of(1, 0).framed() };
/// Most memory that an index and its extents may take.
const STORE_BYTES_MAX: usize = 2 << 30;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items<'a> {
    pub keys: u32,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub seed: u64,
    pub values: &'a Values,
}

impl Items<'_> {
    pub fn name(&self, key: u32) -> KeyName {
        KeyName::new(self.seed, key, self.key_bytes)
    }

    /// A value of a key, in place of what is in `out`.
    pub fn value(&self, key: u32, version: u32, out: &mut Vec<u8>) {
        out.clear();
        let bytes = self.value_bytes as u64;
        self.values.append(Value { key: Key(key), bytes, version }, out);
    }

    /// Whether it is one.
    pub fn is_right(&self, key: u32, value: &[u8]) -> bool {
        if value.len() != self.value_bytes {
            return false;
        }
        let mut checker = Checker::new(Key(key), value.len() as u64);
        checker.feed(self.values, value);
        checker.is_good()
    }

    /// A store that holds each of them. An index that they do not fit into is made larger.
    fn store(&self, design: Design) -> Result<Store, String> {
        let mut sizes = Sizes::of(design, self.keys as usize, self.key_bytes, self.value_bytes);
        loop {
            let place_bytes = match design {
                Design::Herd | Design::Send => 0,
                Design::Pilaf | Design::FarmVar => 32 + self.key_bytes,
                Design::Farm => 16 + self.key_bytes + self.value_bytes,
            };
            let bytes = sizes.places.saturating_mul(place_bytes).saturating_add(sizes.extent_bytes);
            if bytes > STORE_BYTES_MAX {
                let keys = self.keys;
                return Err(format!(
                    "--keys {keys}: {design} would take {} MiB, and {} are the most; fewer keys \
                     or shorter values will do",
                    bytes >> 20,
                    STORE_BYTES_MAX >> 20
                ));
            }
            let mut store = Store::new(design, sizes).map_err(|e| format!("{design}: {e}"))?;
            let mut value = Vec::new();
            let filled = (0..self.keys).try_for_each(|key| {
                self.value(key, 0, &mut value);
                store.put(&self.name(key), &value)
            });
            match filled {
                Ok(()) => return Ok(store),
                Err(Full::Index { .. }) => sizes.places *= 2,
                Err(full) => return Err(format!("{design}: {full}")),
            }
        }
    }
}

/// Both ends, every item in its place.
pub(super) struct Ends {
    pub client: Client<RingRequester, RingReader>,
    pub server: Server<RingResponder>,
    /// What keeps the client from seeing the server gone.
    pub stream: UnixStream,
}

impl Ends {
    pub fn new(design: Design, items: &Items<'_>, window: usize) -> Result<Ends, String> {
        let registry = Arc::new(Registry::new(TERMS, 1));
        let joined = door::join(&registry).map_err(|error| format!("no memory: {error}"))?;
        let (given, _, stream) = joined.ok_or("there is no place for a client")?;
        let mut store = items.store(design)?;
        let shape = store.shape();
        let reader = store.memory().map(|memory| memory.reader());
        let access = shape.zip(reader).map(|(shape, reader)| Access { shape, reader });
        let client = Client::new(design, RingRequester::new(given), access, window);
        let server = Server::new(design, RingResponder::new(registry, 0), store);
        Ok(Ends { client, server, stream })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_items_than_there_is_memory_for_are_refused() {
        let values = Values::new(1);
        let (keys, key_bytes, value_bytes) = (1_000_000, 16, 1024);
        let items = Items { keys, key_bytes, value_bytes, seed: 1, values: &values };
        let said = Ends::new(Design::Farm, &items, 1).err().expect("too much");
        assert!(said.contains("--keys 1000000: farm would take"), "{said}");
    }

    #[test]
    fn values_are_told_from_others() {
        let values = Values::new(1);
        let items = Items { keys: 3, key_bytes: 16, value_bytes: 40, seed: 1, values: &values };
        let mut value = Vec::new();
        items.value(2, 7, &mut value);
        assert!(items.is_right(2, &value) && !items.is_right(1, &value));
        assert!(!items.is_right(2, &value[..39]));
        value[39] ^= 1;
        assert!(!items.is_right(2, &value));
    }
}
