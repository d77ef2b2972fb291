//! From bytes to a request.

use super::{Arith, Broken, Echo, Frame, Get, HEADER_BYTES, Opcode, Request, Store, StoreVerb};
use crate::limits::{BINARY_REQUEST, KEY_BYTES_MAX};

/// Most bytes of extras that an opcode has.
const EXTRAS_BYTES_MAX: usize = 20;

/// The lengths that a header tells of.
#[derive(Clone, Copy)]
struct Lengths {
    extras: usize,
    key: usize,
    value: usize,
}

/// The request at the front of `input`. `Ok(None)` if what stands before its value has not arrived,
/// which is never longer than a header, 20 bytes of extras and a key.
#[inline]
pub fn parse(input: &[u8]) -> Result<Option<Frame<'_>>, Broken> {
    match input.first() {
        None => return Ok(None),
        Some(&BINARY_REQUEST) => {}
        Some(_) => return Err(Broken::Magic),
    }
    let Some((header, behind)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let echo = Echo { opcode: header[1], opaque: part(header, 12) };
    let extras = usize::from(header[4]);
    let key = usize::from(u16::from_be_bytes(part(header, 2)));
    let body = u32::from_be_bytes(part(header, 8)) as usize;
    let Some(value) = body.checked_sub(extras + key) else { return Err(Broken::Lengths(echo)) };
    if key > KEY_BYTES_MAX {
        return Err(Broken::Arguments(echo));
    }
    let cas = u64::from_be_bytes(part(header, 16));
    let unknown = Frame {
        echo,
        quiet: false,
        cas,
        request: Request::Unknown,
        head_bytes: HEADER_BYTES,
        value_bytes: body,
    };
    let Some((opcode, quiet)) = Opcode::read(echo.opcode) else { return Ok(Some(unknown)) };
    if !fits(opcode, Lengths { extras, key, value }) {
        return Err(Broken::Arguments(echo));
    }
    if behind.len() < extras + key {
        return Ok(None);
    }
    let (extras, behind) = behind.split_at(extras);
    let request = request(opcode, extras, &behind[..key]);
    let head_bytes = HEADER_BYTES + extras.len() + key;
    Ok(Some(Frame { quiet, request, head_bytes, value_bytes: value, ..unknown }))
}

/// Some bytes of a header, or of extras.
#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..][..N].try_into().expect("it is so long")
}

/// Whether such lengths are those of an opcode.
#[inline]
const fn fits(opcode: Opcode, Lengths { extras, key, value }: Lengths) -> bool {
    use Opcode::*;
    match opcode {
        Get | GetKey | Delete => extras == 0 && key > 0 && value == 0,
        Set | Add | Replace => extras == 8 && key > 0,
        Append | Prepend => extras == 0 && key > 0,
        Increment | Decrement => extras == EXTRAS_BYTES_MAX && key > 0 && value == 0,
        Touch | GetAndTouch | GetKeyAndTouch => extras == 4 && key > 0 && value == 0,
        Flush => (extras == 0 || extras == 4) && key == 0 && value == 0,
        Verbosity => extras == 4 && key == 0 && value == 0,
        Stat => extras == 0 && value == 0,
        Noop | Version | Quit | SaslList => extras == 0 && key == 0 && value == 0,
        SaslAuth | SaslStep => extras == 0 && key > 0,
    }
}

/// What is asked; the lengths are those of the opcode.
#[inline]
fn request<'a>(opcode: Opcode, extras: &[u8], key: &'a [u8]) -> Request<'a> {
    let number = |at| u32::from_be_bytes(part(extras, at));
    let long = |at| u64::from_be_bytes(part(extras, at));
    let store = |verb| Request::Store(Store { verb, key, flags: number(0), expiration: number(4) });
    let arith = |increment| {
        let (delta, initial, expiration) = (long(0), long(8), number(16));
        Request::Arith(Arith { key, increment, delta, initial, expiration })
    };
    match opcode {
        Opcode::Get => Request::Get(Get { key, with_key: false, touch: None }),
        Opcode::GetKey => Request::Get(Get { key, with_key: true, touch: None }),
        Opcode::GetAndTouch => Request::Get(Get { key, with_key: false, touch: Some(number(0)) }),
        Opcode::GetKeyAndTouch => Request::Get(Get { key, with_key: true, touch: Some(number(0)) }),
        Opcode::Touch => Request::Touch { key, expiration: number(0) },
        Opcode::Set => store(StoreVerb::Set),
        Opcode::Add => store(StoreVerb::Add),
        Opcode::Replace => store(StoreVerb::Replace),
        Opcode::Append => Request::Join { before: false, key },
        Opcode::Prepend => Request::Join { before: true, key },
        Opcode::Increment => arith(true),
        Opcode::Decrement => arith(false),
        Opcode::Delete => Request::Delete { key },
        Opcode::Flush => Request::Flush { delay: (!extras.is_empty()).then(|| number(0)) },
        Opcode::Noop => Request::Noop,
        Opcode::Version => Request::Version,
        Opcode::Quit => Request::Quit,
        Opcode::Verbosity => Request::Verbosity { level: number(0) },
        Opcode::Stat => Request::Stat { name: key },
        Opcode::SaslList => Request::SaslList,
        Opcode::SaslAuth => Request::Sasl { goes_on: false, mechanism: key },
        Opcode::SaslStep => Request::Sasl { goes_on: true, mechanism: key },
    }
}
