//! What stands in for clients on other hosts in a build without the feature `verbs`: the names of
//! the module that has them, and an error that says how to build it. Its types have no values, so
//! whoever holds one is never reached, and no caller asks which build it is in.

use crate::contract::{
    Lend, Lenders, LongRequester, Peer, Posted, Request, Requester, Responder, Verbs,
};
use crate::door::{Admitted, Heard, House};
use crate::long::sealed_descriptor::SealedDescriptor;
use crate::place_set::PlaceSet;
pub use crate::remote::{
    Bounds, ClientLimits, DEPTH, DOOR_PORT, Grants, Lending, Place, SLOTS, Service, WINDOW,
};
use card::Card;
use client_table::Guest;
use laneway_sync::prim::AtomicU64;
use mailroom::Mailroom;
use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no RDMA: this build has none.
#[derive(Debug)]
pub struct Trouble;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "built without the feature `rdma`; build with `cargo build --release --features rdma`",
        )
    }
}

impl std::error::Error for Trouble {}

/// Functions of what has no value: whoever calls one would have to hold a value.
macro_rules! none {
    (
        $none:expr;
        $($(#[$what:meta])* $vis:vis fn $name:ident($($given:tt)*) $(-> $result:ty)?;)*
    ) => {
        $($(#[$what])* $vis fn $name($($given)*) $(-> $result)? { match $none {} })*
    };
}

/// A device.
pub mod card {
    use super::{Arc, Place, Trouble};

    /// A device, of which this build opens none.
    #[derive(Debug)]
    pub enum Card {}

    impl Card {
        /// Says so, and the way out.
        pub fn open(_place: &Place) -> Result<Arc<Card>, Trouble> {
            Err(Trouble)
        }
    }
}

/// A server's clients.
pub mod client_table {
    /// A client, of whom there is none.
    #[derive(Debug)]
    pub enum Guest {}

    impl Guest {
        none! {
            *self;
            /// Whether it writes its requests into slots.
            pub fn has_slots(&self) -> bool;
            /// Whether the next request of a lane is there.
            pub fn has_request(&self, _lane: usize) -> bool;
        }
    }
}

/// Where datagrams arrive.
pub mod mailroom {
    use std::os::fd::BorrowedFd;

    /// The place for them, of which there is none.
    #[derive(Debug)]
    pub enum Mailroom {}

    impl Mailroom {
        none! {
            *self;
            /// Whether a lane has something.
            pub fn has_some(&self, _lane: usize) -> bool;
            /// Readable when something has come to a lane.
            pub fn descriptor(&self, _lane: usize) -> BorrowedFd<'_>;
            /// Have the descriptor told of what comes.
            pub fn arm(&self, _lane: usize) -> bool;
            /// Have it be told anew.
            pub fn clear(&self, _lane: usize);
        }
    }
}

/// What a machine has.
pub mod look {
    use super::Trouble;
    use crate::remote::Need;

    /// What `serve --rdma` needs before anything else.
    pub fn look() -> Vec<Need> {
        let missing = Some(Trouble.to_string());
        vec![Need { name: "RDMA in this build", there: String::new(), missing }]
    }
}

/// The table of clients.
#[derive(Debug)]
pub struct ClientTable {
    none: Card,
    /// Clients that came, were refused, and said something else than hello.
    pub clients_come: AtomicU64,
    /// See above.
    pub clients_refused: AtomicU64,
    /// See above.
    pub hellos_bad: AtomicU64,
}

impl ClientTable {
    /// No client yet.
    pub fn new(
        card: Arc<Card>,
        _bounds: Bounds,
        _limits: ClientLimits,
        _grants: Grants,
    ) -> Result<ClientTable, Trouble> {
        match *card {}
    }

    none! {
        self.none;
        /// How each client's memory is laid out.
        pub fn bounds(&self) -> Bounds;
        /// By which device they come.
        pub fn place(&self) -> &Place;
        /// The clients that a worker polls in a lane.
        pub fn active(&self, _worker: usize, _lane: usize) -> &PlaceSet;
        /// Where datagrams arrive.
        pub fn mailroom(&self) -> Option<&Mailroom>;
        /// Places for datagrams of each worker.
        pub fn datagram_places(&self) -> usize;
        /// How many clients there may be.
        pub fn limits(&self) -> ClientLimits;
        /// Changes when a client comes or goes.
        pub fn version(&self) -> u64;
        /// Has a copy of the table say who is there now.
        pub fn follow(
            &self,
            (_copy, _seen): (&mut Vec<Option<Arc<Guest>>>, &mut u64),
            _writers: &mut Vec<usize>,
            _changed: impl FnMut(Option<&Guest>, Option<&Guest>),
        );
        /// How many there are.
        pub fn count(&self) -> usize;
        /// How many of them have slots.
        pub fn writers(&self) -> usize;
        /// Every count and its name, summed.
        pub fn sums(&self) -> Vec<(&'static str, u64)>;
        /// Whether a worker's queue pair broke and did not begin anew.
        pub fn is_deaf(&self, _worker: usize) -> Option<bool>;
        /// Memory locked for each client, beside what it is granted.
        pub fn client_bytes(&self) -> usize;
        /// Memory that is granted now.
        pub fn granted_bytes(&self) -> usize;
    }
}

impl House for ClientTable {
    type Hello = Infallible;

    none! {
        self.none;
        fn hear(&self, _said: &[u8]) -> Heard<Infallible>;
        fn admit(&self, _hello: Infallible, _stream: &OwnedFd) -> Admitted;
        fn misheard(&self);
        fn leave(&self, _peer: Peer);
        fn bury(&self) -> bool;
    }
}

/// A worker's handle.
#[derive(Debug)]
pub enum VerbsResponder {}

impl VerbsResponder {
    /// The handle of a worker.
    pub fn new(client_table: Arc<ClientTable>, _worker: usize) -> Result<VerbsResponder, Trouble> {
        match client_table.none {}
    }
}

impl Responder for VerbsResponder {
    none! {
        *self;
        fn queues(&self) -> usize;
        fn poll_slots(&mut self, _queue: usize, _burst: usize) -> usize;
        fn request(&self, _index: usize) -> Request<'_>;
        fn reply(
            &mut self,
            _peer: Peer,
            _queue: usize,
            _pieces: &[IoSlice<'_>],
            _spare: usize,
        ) -> Posted;
        fn pump(&mut self) -> io::Result<()>;
        fn tidy(&mut self);
        fn lenders(&self) -> Box<dyn Lenders>;
    }
}

/// A client's handle.
#[derive(Debug)]
pub enum VerbsRequester {}

/// Says that there is no way to become a client, and the way out.
pub fn enter(
    _stream: TcpStream,
    _place: &Place,
    _service: Option<Service>,
    _lending: Lending,
) -> io::Result<VerbsRequester> {
    Err(io::Error::new(io::ErrorKind::Unsupported, Trouble))
}

impl VerbsRequester {
    none! {
        *self;
        /// How the server's memory is laid out.
        pub fn bounds(&self) -> Bounds;
        /// How requests are carried.
        pub fn service(&self) -> Service;
        /// Whether a reply is there.
        pub fn has_reply(&mut self) -> bool;
        /// Whether the server has ended.
        pub fn is_server_gone(&self) -> bool;
        /// Sleep until there is a reply, and at most so long.
        pub fn sleep(&mut self, _most: Duration) -> io::Result<()>;
        /// How many more requests a lane takes now, however long.
        pub fn room(&mut self, _lane: usize) -> usize;
        /// How many it takes at most.
        pub fn window(&self) -> usize;
        /// There was less room in a lane than somebody wants.
        pub fn want_room(&mut self, _lane: usize);
    }
}

impl Requester for VerbsRequester {
    none! {
        *self;
        fn queues(&self) -> usize;
        fn post_request(&mut self, _queue: usize, _message: &[u8]) -> Posted;
        fn poll_replies(&mut self, _burst: usize, _take: &mut dyn FnMut(usize, &[u8])) -> usize;
        fn pump(&mut self) -> io::Result<()>;
        fn verbs(&self) -> Verbs;
    }
}

impl LongRequester for VerbsRequester {
    none! {
        *self;
        fn has_room(&mut self, _queue: usize) -> bool;
        fn lent_bytes_max(&self) -> usize;
        fn lend(&mut self, _name: u16, _message: &[u8]) -> Lend;
        fn lend_again(&mut self, _sealed_descriptor: &SealedDescriptor) -> Lend;
        fn take_back(&mut self, _name: u16);
        fn open_reply(&self, _sealed_descriptor: &SealedDescriptor, _out: &mut Vec<u8>) -> bool;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_verbs_says_so_and_the_way_out() {
        let place = "rxe0".parse().expect("a name");
        let told = Card::open(&place).expect_err("there is none").to_string();
        assert!(told.contains("without the feature `rdma`"), "{told}");
        assert!(told.contains("--features rdma"), "{told}");
        let needs = look::look();
        assert!(needs.iter().all(|need| need.missing.as_ref() == Some(&told)), "{needs:?}");
    }
}
