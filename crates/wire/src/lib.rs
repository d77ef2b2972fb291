//! The memcached wire formats: bytes in, requests out, without copying the key; and the replies.
//!
//! One grammar for every place bytes arrive: server, load generator, client library and fuzzer all
//! call [`parse`]. It answers three ways: `Ok(Some(frame))` serve it, `Ok(None)` more bytes are
//! needed, `Err(malformed)` the client is wrong and this is what it is told.
#![no_std]
#![forbid(unsafe_code)]

pub mod request;
pub use request::*;

pub mod base64;
