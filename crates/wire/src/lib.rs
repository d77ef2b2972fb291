//! The wire formats, memcached's text and meta protocols, its [`binary`] one, and RESP ([`resp`]):
//! bytes in, requests out, without copying the key; and the replies.
//!
//! One grammar for every place bytes arrive: server, load generator, client library and fuzzer all
//! call [`parse`]. It answers three ways: `Ok(Some(frame))` serve it, `Ok(None)` more bytes are
//! needed, `Err(malformed)` the client is wrong and this is what it is told.
//! [`answer::parse_reply`] is the same for the other direction, [`print::put_request`] the inverse.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
pub mod base64;
pub mod binary;
pub mod limits;
pub mod login;
pub mod print;
mod refusal;
pub mod reply;
pub mod request;
pub mod resp;
pub mod scan;
pub mod udp;
pub mod uri;

mod meta;
mod text;

pub use request::*;
pub use text::parse;
