//! Both ends in one thread.

use laneway_rdma::door;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::{RingRequester, RingResponder};
use laneway_studies::rivals::client::{Access, Client, Ended};
use laneway_studies::rivals::design::Design;
use laneway_studies::rivals::opened::RingReader;
use laneway_studies::rivals::server::{Server, Sizes, Store};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

pub const TERMS: Terms = Terms { loans: 1, ..Terms::of(1, 0).framed() };

/// Turns that anything takes at most: a lookup that fails pauses for 55 000.
const TURNS_MAX: usize = 200_000;

pub type RingClient = Client<RingRequester, RingReader>;

pub struct World {
    pub client: RingClient,
    pub server: Server<RingResponder>,
    /// What keeps the client from seeing the server gone.
    _stream: Option<UnixStream>,
}

/// What a client and a server stand on.
pub fn rings() -> (RingRequester, RingResponder, UnixStream) {
    let registry = Arc::new(Registry::new(TERMS, 1));
    let responder = RingResponder::new(registry.clone(), 0);
    let (given, _, stream) = door::join(&registry).expect("memory").expect("a place");
    (RingRequester::new(given), responder, stream)
}

impl World {
    pub fn new(design: Design, sizes: Sizes, window: usize) -> World {
        let (requester, responder, stream) = rings();
        let mut store = Store::new(design, sizes).expect("memory");
        let shape = store.shape();
        let reader = store.memory().map(|memory| memory.reader());
        let access = shape.zip(reader).map(|(shape, reader)| Access { shape, reader });
        let client = Client::new(design, requester, access, window);
        World { client, server: Server::new(design, responder, store), _stream: Some(stream) }
    }

    /// Of two ends.
    pub fn of(client: RingClient, server: Server<RingResponder>) -> World {
        World { client, server, _stream: None }
    }

    /// The same, and its client believes whatever it READs.
    pub fn trusting(self) -> World {
        World { client: self.client.trusting(), ..self }
    }

    pub fn turn(&mut self) {
        self.client.turn().expect("memory does not fail");
        self.server.turn().expect("memory does not fail");
    }

    /// Take turns until something ends.
    pub fn end(&mut self) -> Ended {
        for _ in 0..TURNS_MAX {
            if let Some(ended) = self.client.take() {
                return ended;
            }
            self.turn();
        }
        panic!("nothing ended in {TURNS_MAX} turns");
    }

    pub fn get(&mut self, key: &[u8]) -> Ended {
        self.client.get(0, key).expect("there is room");
        self.end()
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Ended {
        self.client.put(0, key, value).expect("there is room");
        self.end()
    }
}

/// What decides, if nobody says so.
pub fn seed() -> u64 {
    match std::env::var("LANEWAY_SEED") {
        Ok(seed) => seed.parse().expect("LANEWAY_SEED is a number"),
        Err(_) => 1,
    }
}
