//! TLS below the protocol: a stream that is encrypted on its way ([`TlsStream`]), streams of which
//! some are ([`EitherStream`]), the handshakes by which they begin ([`Handshakes`]), and the
//! certificate, its key and what is counted ([`Acceptor`]).
//!
//! The protocol, 1.2 and 1.3, is rustls' affair, and cryptography is ring's. What is done here is
//! to keep the promises of a [`Stream`](laneway_transport::Stream): readiness is told once, though
//! bytes may lie decrypted where no socket tells of them. And what was encrypted and has not left
//! is told as not written, so that whoever writes comes again.
//!
//! The client's end ([`ClientFiles`]) is for the commands that ask or measure a server.
//!
//! It knows no protocol above, no store, no clock (time is an argument) and no thread.
#![forbid(unsafe_code)]

mod acceptor;
mod client;
mod either;
mod files;
mod handshakes;
mod stream;

pub use acceptor::{Acceptor, Cause, Counts, Told};
pub use client::{Client, ClientFiles, ClientStream};
pub use either::{EitherStream, EitherTransport};
pub use files::{Files, Identity, Named, Terms, Verify};
pub use handshakes::{Bounds, Census, Finished, Handshakes};
pub use stream::{Failure, Progress, TlsStream};
