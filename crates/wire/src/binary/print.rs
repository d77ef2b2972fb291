//! Writing requests, for clients and tests.

use super::{Echo, Frame, HEADER_BYTES, Opcode, Request, StoreVerb};
use crate::limits::BINARY_REQUEST;
use crate::reply::Sink;

/// Puts a request of any parts, whether they go together or not.
pub fn put_parts(
    sink: &mut impl Sink,
    echo: Echo,
    cas: u64,
    (extras, key, value): (&[u8], &[u8], &[u8]),
) {
    put_head(sink, echo, cas, (extras, key), value.len());
    sink.put(value);
}

/// The same before a value of so many bytes.
pub fn put_head(
    sink: &mut impl Sink,
    echo: Echo,
    cas: u64,
    (extras, key): (&[u8], &[u8]),
    value_bytes: usize,
) {
    let mut header = [0; HEADER_BYTES];
    (header[0], header[1], header[4]) = (BINARY_REQUEST, echo.opcode, extras.len() as u8);
    header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    let body = extras.len() + key.len() + value_bytes;
    header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    header[12..16].copy_from_slice(&echo.opaque);
    header[16..24].copy_from_slice(&cas.to_be_bytes());
    sink.put(&header);
    sink.put(extras);
    sink.put(key);
}

/// Puts a request as it was read, up to its value. (Of an unknown one, no more than its header.)
pub fn put_frame(sink: &mut impl Sink, frame: &Frame<'_>) {
    let (mut extras, mut length) = ([0; 20], 0);
    let mut extra = |bytes: &[u8]| {
        extras[length..][..bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    let key: &[u8] = match frame.request {
        Request::Get(get) => {
            get.touch.inspect(|expiration| extra(&expiration.to_be_bytes()));
            get.key
        }
        Request::Store(store) => {
            extra(&store.flags.to_be_bytes());
            extra(&store.expiration.to_be_bytes());
            store.key
        }
        Request::Arith(arith) => {
            extra(&arith.delta.to_be_bytes());
            extra(&arith.initial.to_be_bytes());
            extra(&arith.expiration.to_be_bytes());
            arith.key
        }
        Request::Touch { key, expiration } => {
            extra(&expiration.to_be_bytes());
            key
        }
        Request::Flush { delay } => {
            delay.inspect(|delay| extra(&delay.to_be_bytes()));
            &[]
        }
        Request::Verbosity { level } => {
            extra(&level.to_be_bytes());
            &[]
        }
        Request::Join { key, .. } | Request::Delete { key } => key,
        Request::Stat { name } => name,
        Request::Sasl { mechanism, .. } => mechanism,
        Request::Noop | Request::Version | Request::Quit => &[],
        Request::SaslList | Request::Unknown => &[],
    };
    put_head(sink, frame.echo, frame.cas, (&extras[..length], key), frame.value_bytes);
}

/// The opcode of a request, whose quiet twin asks the same; `None` of an unknown one.
pub fn opcode_of(request: &Request<'_>) -> Option<Opcode> {
    Some(match request {
        Request::Get(get) => match (get.with_key, get.touch.is_some()) {
            (false, false) => Opcode::Get,
            (true, false) => Opcode::GetKey,
            (false, true) => Opcode::GetAndTouch,
            (true, true) => Opcode::GetKeyAndTouch,
        },
        Request::Store(store) => match store.verb {
            StoreVerb::Set => Opcode::Set,
            StoreVerb::Add => Opcode::Add,
            StoreVerb::Replace => Opcode::Replace,
        },
        Request::Join { before: false, .. } => Opcode::Append,
        Request::Join { before: true, .. } => Opcode::Prepend,
        Request::Arith(arith) if arith.increment => Opcode::Increment,
        Request::Arith(_) => Opcode::Decrement,
        Request::Delete { .. } => Opcode::Delete,
        Request::Touch { .. } => Opcode::Touch,
        Request::Flush { .. } => Opcode::Flush,
        Request::Noop => Opcode::Noop,
        Request::Version => Opcode::Version,
        Request::Quit => Opcode::Quit,
        Request::Verbosity { .. } => Opcode::Verbosity,
        Request::Stat { .. } => Opcode::Stat,
        Request::SaslList => Opcode::SaslList,
        Request::Sasl { goes_on: false, .. } => Opcode::SaslAuth,
        Request::Sasl { goes_on: true, .. } => Opcode::SaslStep,
        Request::Unknown => return None,
    })
}

/// What the reply to a request of this opcode repeats: the opcode as it is sent, and
/// `opaque`.
pub fn echo(opcode: Opcode, quiet: bool, opaque: u32) -> Echo {
    Echo { opcode: opcode.byte(quiet), opaque: opaque.to_be_bytes() }
}
