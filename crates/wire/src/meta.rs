//! The meta commands: `mg ms md ma me` (memcached doc/protocol.txt, "Meta Commands").
//!
//! Flags are read in the order given. A number that cannot be read is remembered and reading goes
//! on, so that the last such flag names the error; an unknown or repeated flag ends it at once, as
//! in memcached. Every known flag is legal with every command, whether or not it means something.
//!
//! It departs from memcached 1.6.45: base64 keys must be in canonical form, so that the token sent
//! is the one a `k` flag returns; a mode is a letter or the name of its command, where memcached
//! looks at the first letter and appends for `MADD`.

use crate::base64;
use crate::limits::{KEY_BYTES_MAX, META_TOKENS_MAX, OPAQUE_BYTES_MAX};
use crate::refusal::{Outcome, Refusal, value_bytes};
use crate::reply;
use crate::request::*;
use crate::scan::{Tokens, number_i32, number_u32, number_u64};

/// `mg <key> <flags>*`
pub(crate) fn get(rest: &[u8]) -> Outcome<'_> {
    Ok(Request::MetaGet(keyed(rest)?))
}

/// `md <key> <flags>*`
pub(crate) fn delete(rest: &[u8]) -> Outcome<'_> {
    Ok(Request::MetaDelete(keyed(rest)?))
}

/// `ma <key> <flags>*`
pub(crate) fn arith(rest: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(rest);
    let Some(key) = tokens.next() else {
        return Err(Refusal::says(reply::BAD_FORMAT));
    };
    let rest = tokens.rest();
    // Whatever else is wrong with the key or a flag, `ma` has one sentence for it.
    if !Tokens::new(rest).all(has_letter) {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let is_key = key.len() <= KEY_BYTES_MAX;
    let Some((mut meta, mode)) = flags(key, rest, 2).ok().filter(|_| is_key) else {
        return Err(Refusal::says(reply::INVALID_OR_DUPLICATE_FLAG));
    };
    meta.flags.decrement = match mode {
        None | Some(b"I" | b"+" | b"INCR") => false,
        Some(b"D" | b"-" | b"DECR") => true,
        Some(_) => return Err(Refusal::says(reply::BAD_ARITH_MODE)),
    };
    check_opaque(&meta.flags)?;
    Ok(Request::MetaArith(meta))
}

/// `me <key> [b]`: other flags mean nothing.
pub(crate) fn debug(rest: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(rest);
    let token = tokens.next().unwrap_or_default();
    let tokens = tokens.rest();
    let base64 = Tokens::new(tokens).next() == Some(b"b");
    let key = MetaKey { token, base64 };
    if token.is_empty() || token.len() > KEY_BYTES_MAX || !decodes(&key) {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    if !Tokens::new(tokens).all(has_letter) {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let flags = MetaFlags { tokens, key_base64: base64, ..MetaFlags::default() };
    Ok(Request::MetaDebug(Meta { key, flags }))
}

/// `ms <key> <bytes> <flags>*`
pub(crate) fn set<'a>(rest: &'a [u8], limits: &Limits) -> Outcome<'a> {
    let mut tokens = Tokens::new(rest);
    let key = tokens.next().unwrap_or_default();
    let Some(value_bytes) = tokens.next().and_then(value_bytes) else {
        return Err(Refusal::says(reply::BAD_FORMAT).close());
    };
    match set_flags(key, tokens.rest()) {
        Ok(meta) => {
            let mut scratch = [0; KEY_BYTES_MAX];
            let key_bytes = meta.key.bytes(&mut scratch).len();
            let client_flags = meta.flags.client_flags.unwrap_or(0);
            if limits.item_fits(key_bytes, client_flags, value_bytes) {
                return Ok(Request::MetaSet(MetaSet { meta, value_bytes }));
            }
            let refusal = Refusal::says(reply::TOO_LARGE).swallow(value_bytes);
            Err(Refusal { unlink: Some(meta.key), ..refusal })
        }
        Err(refusal) => Err(refusal.swallow(value_bytes)),
    }
}

/// Key, flags and mode of an `ms` whose length was read: what fails here skips the body.
fn set_flags<'a>(key: &'a [u8], rest: &'a [u8]) -> Result<Meta<'a>, Refusal<'a>> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::says(reply::BAD_FORMAT));
    }
    let (mut meta, mode) = flags(key, rest, 3)?;
    meta.flags.set_mode = match mode {
        None | Some(b"S" | b"SET") => MetaSetMode::Set,
        Some(b"E") => MetaSetMode::Add,
        Some(b"R" | b"REPLACE") => MetaSetMode::Replace,
        Some(b"A" | b"APPEND") => MetaSetMode::Append,
        Some(b"P" | b"PREPEND") => MetaSetMode::Prepend,
        Some(_) => return Err(Refusal::says(reply::BAD_SET_MODE)),
    };
    check_opaque(&meta.flags)?;
    Ok(meta)
}

/// Key and flags of a command without a value, whose mode means nothing.
#[inline]
fn keyed(rest: &[u8]) -> Result<Meta<'_>, Refusal<'_>> {
    let (key, rest) = key(rest)?;
    let (meta, _) = flags(key, rest, 2)?;
    check_opaque(&meta.flags)?;
    Ok(meta)
}

/// The key at the front of `rest`, and what follows it.
fn key(rest: &[u8]) -> Result<(&[u8], &[u8]), Refusal<'_>> {
    let mut tokens = Tokens::new(rest);
    match tokens.next() {
        None => Err(Refusal::says(reply::BAD_FORMAT)),
        Some(key) if key.len() > KEY_BYTES_MAX => Err(Refusal::says(reply::BAD_FORMAT)),
        Some(key) => Ok((key, tokens.rest())),
    }
}

/// Whether a flag begins as one can; which of them there are is asked later.
fn has_letter(flag: &[u8]) -> bool {
    flag[0].is_ascii_alphanumeric()
}

fn decodes(key: &MetaKey<'_>) -> bool {
    let mut scratch = [0; KEY_BYTES_MAX];
    !key.base64 || base64::decode(key.token, &mut scratch).is_some()
}

fn check_opaque<'a>(flags: &MetaFlags<'a>) -> Result<(), Refusal<'a>> {
    if flags.opaque().is_some_and(|opaque| opaque.len() > OPAQUE_BYTES_MAX) {
        return Err(Refusal::says(reply::OPAQUE_TOO_LONG));
    }
    Ok(())
}

/// Reads the flags behind `tokens_before` tokens; the mode is the command's to judge.
#[inline]
fn flags<'a>(
    token: &'a [u8],
    rest: &'a [u8],
    tokens_before: usize,
) -> Result<(Meta<'a>, Option<&'a [u8]>), Refusal<'a>> {
    let mut meta = Meta {
        key: MetaKey { token, base64: false },
        flags: MetaFlags { tokens: rest, ..MetaFlags::default() },
    };
    if rest.is_empty() {
        return Ok((meta, None));
    }
    let flags_max = META_TOKENS_MAX - tokens_before;
    // One more than allowed takes a letter each and the spaces between: seldom worth counting.
    if rest.len() > 2 * flags_max && Tokens::new(rest).count() > flags_max {
        return Err(Refusal::says(reply::FLAGS_TOO_LONG));
    }
    let mut mode = None;
    let mut failed = None;
    for flag in meta.flags.each() {
        let letter = flag[0];
        let bit = MetaFlags::bit(letter);
        if !has_letter(flag) {
            return Err(Refusal::says(reply::BAD_FORMAT));
        }
        if meta.flags.returns & bit != 0 {
            return Err(Refusal::says(reply::DUPLICATE_FLAG));
        }
        meta.flags.returns |= bit;
        match one_flag(letter, &flag[1..], &mut meta, &mut mode) {
            Ok(()) => {}
            Err(BadFlag::Unknown) => return Err(Refusal::says(reply::INVALID_FLAG)),
            Err(BadFlag::Argument(reply)) => failed = Some(reply),
            // memcached gives this one no text of its own.
            Err(BadFlag::ClientFlags) => failed = failed.or(Some(reply::BAD_FORMAT)),
        }
    }
    match failed {
        Some(reply) => Err(Refusal::says(reply)),
        None => Ok((meta, mode)),
    }
}

/// What is wrong with one flag.
enum BadFlag {
    /// No such flag.
    Unknown,
    /// The argument cannot be read: say this.
    Argument(&'static [u8]),
    /// The argument of `F` cannot be read.
    ClientFlags,
}

/// Takes one flag into `meta`.
#[inline]
fn one_flag<'a>(
    letter: u8,
    argument: &'a [u8],
    meta: &mut Meta<'a>,
    mode: &mut Option<&'a [u8]>,
) -> Result<(), BadFlag> {
    const BAD_TOKEN: BadFlag = BadFlag::Argument(reply::BAD_TOKEN);
    let flags = &mut meta.flags;
    let seconds = || Ok(Some(number_i32(argument).ok_or(BAD_TOKEN)?));
    let id = |bad| Ok(Some(number_u64(argument).ok_or(bad)?));
    match letter {
        b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'u' | b'O' | b'P' | b'L' => {}
        b'v' => flags.value = true,
        b'q' => flags.quiet = true,
        b'I' => flags.invalidate = true,
        b'x' => flags.drop_value = true,
        b'b' => {
            flags.key_base64 = true;
            meta.key.base64 = true;
            if !decodes(&meta.key) {
                return Err(BadFlag::Argument(reply::BAD_KEY_ENCODING));
            }
        }
        b'T' => flags.exptime = seconds()?,
        b'N' => flags.vivify = seconds()?,
        b'R' => flags.recache = seconds()?,
        b'C' => flags.cas_compare = id(BAD_TOKEN)?,
        b'E' => flags.cas_explicit = id(BAD_TOKEN)?,
        b'F' => flags.client_flags = Some(number_u32(argument).ok_or(BadFlag::ClientFlags)?),
        b'J' => flags.initial = id(BadFlag::Argument(reply::BAD_INITIAL_VALUE))?,
        b'D' => flags.delta = id(BadFlag::Argument(reply::BAD_DELTA_VALUE))?,
        b'M' => *mode = Some(argument),
        _ => return Err(BadFlag::Unknown),
    }
    Ok(())
}
