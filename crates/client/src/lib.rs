//! A client for Laneway over UDP, over memory that a server on the same host shares with it
//! ([`Client::connect_shm`]; `serve --shm`), or over RDMA ([`Client::connect_rdma`]; `serve
//! --rdma`).
//!
//! Over UDP the client chooses the queue, and with it the worker: a write goes to the owner of its
//! key, a read to any queue (Minos §4.1), so that the server hands nothing over. What that takes
//! is here: the server's topology, requests and replies of many datagrams, asking for the frames
//! that were lost, ids, retries. Any memcached client works with Laneway over TCP; this one is for
//! those who want the server's shortest path.
//!
//! ```no_run
//! use laneway_client::{Client, Expiry, Request};
//! # fn main() -> Result<(), laneway_client::Error> {
//! let mut client = Client::connect("127.0.0.1:11211")?;
//! client.set("user:7", "Ada")?;
//! assert_eq!(client.get("user:7")?.expect("it was stored").data, b"Ada");
//! client.ask(Request::set("page", vec![0; 500_000]).expiry(Expiry::Seconds(60)))?;
//! for value in client.get_many(["user:7", "page", "nobody"]) {
//!     println!("{:?} bytes", value?.map(|value| value.data.len()));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The examples do the same at length: `cargo run --example quick` and `--example many`
//! (`laneway serve --udp-base 11300` in another terminal), and `--example own_loop` for a program
//! that has an event loop of its own.
//!
//! # What is promised
//!
//! - **An answer is an answer.** Lengths, key, frames and the end of every reply are checked; what
//!   does not fit is dropped and counted. Whether a value's bytes make sense is the application's
//!   to check, as with UDP's checksum alone it must.
//! - **Reads may be sent again**, under another id each time. **`set`, `delete` and `touch`** are
//!   sent again under the same id, by which the server recognises a repeated one and answers from
//!   memory, as long as that holds: a server keeps a bounded number of answers for at most ten
//!   seconds, and a repeat that it has forgotten is carried out again. None leaves later than nine
//!   seconds behind the first. **Everything else** is sent
//!   once, and so is every change to a server that may be memcached ([`Client::single`]). When no
//!   answer comes in
//!   [`Settings::deadline_nanos`], the error says what is known: [`Error::TimedOut`] if nothing can
//!   have changed, [`Error::OutcomeUnknown`] otherwise.
//! - **Memory is bounded** by [`Settings`]: requests held, bytes of requests, bytes of replies that
//!   are not whole yet. A core that is full says so and loses nothing.
//! - **What waits together leaves together.** Up to 16 `get`s that were asked for at once
//!   ([`Client::get_many`], [`Client::ask_many`]) go to the server in one datagram over UDP and are
//!   answered by one message ([`Settings::get_keys_max`]): the packet is most of what a short one
//!   costs. After long values fewer go together, so that short ones do not wait for long ones.
//! - **Requests are independent.** Two that are under way together may overtake each other, also
//!   those of one key; who needs an order waits for the answer.
//! - **Requests are at most 65535 datagrams long**, about 91 MB; [`Error::RequestTooLong`] tells.
//!
//! # How it is made
//!
//! [`Core`] has neither socket nor clock: requests and datagrams go in, datagrams and answers come
//! out, time is an argument. It can be driven by any event loop, and is tested on a network that
//! loses, doubles and reorders by seed. [`Client`] is the core with a socket: blocking calls,
//! bursts of datagrams in one call to the kernel, trains that the kernel cuts; or with [`Memory`]
//! or [`Remote`].
//!
//! An id is not used again before it has rested ([`Settings::id_rest_nanos_read`],
//! [`Settings::id_rest_nanos_write`]); so one client asks at most 65 000 reads a second, and 5 000
//! writes a second for longer than twelve seconds. Who needs more takes another client: it has
//! another port.
#![forbid(unsafe_code)]

mod answer;
mod blocking;
mod core;
mod error;
mod found;
mod link;
mod memory;
mod remote;
mod request;
mod settings;
mod socket;
mod told;
mod topology;
mod waiting;

pub use crate::answer::{Answer, Value};
pub use crate::blocking::Client;
pub use crate::core::{Core, Counts, Departure, Ticket};
pub use crate::error::{Error, Refusal};
pub use crate::found::{Found, Got};
pub use crate::memory::Memory;
pub use crate::remote::Remote;
pub use crate::request::{Expiry, Repeat, Request};
pub use crate::settings::Settings;
pub use crate::topology::Topology;
/// By which device, and how: for [`Client::connect_rdma`].
pub use laneway_rdma::verbs::{Place as RdmaPlace, Service as RdmaService};
