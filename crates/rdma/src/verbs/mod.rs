//! The kind over RDMA verbs, as HERD has it (§4): a client writes its requests into memory of the
//! server by WRITE on an unreliable connection, the server polls that memory, and answers by SEND
//! of a datagram. A GET is one round trip; the server posts one verb for its reply, and none for
//! the request.
//!
//! - [`card`]: devices, ports, memory that they may use; [`pair`]: queue pairs; [`post`]: what goes
//!   through them. With [`ffi`] these are the only ones with `unsafe`.
//! - [`greeting`]: what both sides tell each other over TCP; [`client_table`]: the server's
//!   clients, behind a [`Door`](crate::door::Door); `admission`: whom it lets in;
//!   [`request_ring`]: a client's slots.
//! - [`mailroom`]: where requests of clients without slots arrive as datagrams; `inbox`: who sent
//!   each, and whether it may.
//! - `carry`: the server's way to one client's long messages; `parts`: messages that are longer
//!   than a packet; `outbound`: a client's requests, by either way.
//! - [`VerbsResponder`]: one worker's handle. [`VerbsRequester`]: a client's, by [`enter`].
//! - [`look`]: what of all this a machine has; [`trial`]: whether its device does what is asked.
//!
//! libibverbs is loaded when it is asked for: a machine without RDMA runs the same program.
//!
//! Where clients are very many, all but the first send their requests as datagrams, too: SEND both
//! ways, as FaSST has it (OSDI '16). `docs/design/rdma-datagrams.md` has the reasons.
//!
//! It departs from HERD: a lost request is passed over rather than waited for; the count of
//! requests taken travels with each reply, so that a client may use all of its window whatever is
//! answered first; and what is longer than a slot or a datagram goes by memory that one side opens
//! to the other ([`crate::long`]), or in frames, as over UDP.

mod admission;
pub mod card;
mod carry;
pub mod client_table;
mod entry;
mod ffi;
pub mod greeting;
mod guest;
mod inbox;
pub mod look;
pub mod mailroom;
mod outbound;
mod pair;
mod parts;
mod post;
mod request_ring;
mod requester;
mod responder;
mod roll;
pub mod trial;

pub use crate::remote::{
    Bounds, ClientLimits, DEPTH, DOOR_PORT, Grants, Lending, Place, SLOTS, Service, WINDOW,
};
pub use card::Trouble;
pub use client_table::ClientTable;
pub use entry::enter;
pub use pair::Far;
pub use requester::VerbsRequester;
pub use responder::VerbsResponder;
