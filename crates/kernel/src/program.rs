//! Finds programs in their objects, and hands them to the kernel's verifier.

use crate::error::Error;
use aya::Ebpf;
use aya::programs::{Program, ProgramError};
use std::io::ErrorKind;

/// As often as libbpf asks.
const ATTEMPTS_MAX: u32 = 5;

/// The program of this name, as one of its kind.
pub(crate) fn find<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Error>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let what = || format!("the program `{name}`");
    let program = ebpf.program_mut(name);
    let program = program.ok_or_else(|| Error::said(what(), "is not in its object"))?;
    <&mut P>::try_from(program).map_err(|why| Error::new(what(), &why))
}

/// Loads a program by `ask`. The verifier gives up where a signal waits for the thread (EAGAIN), so
/// it is asked again then.
pub(crate) fn load(ask: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    until_done(ask, |error| match error {
        ProgramError::LoadError { io_error, .. } => io_error.kind() == ErrorKind::WouldBlock,
        _ => false,
    })
}

fn until_done<E>(
    mut ask: impl FnMut() -> Result<(), E>,
    is_for_a_signal: fn(&E) -> bool,
) -> Result<(), E> {
    for _ in 1..ATTEMPTS_MAX {
        match ask() {
            Err(error) if is_for_a_signal(&error) => {}
            told => return told,
        }
    }
    ask()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_waits_is_no_refusal() {
        for (signals, wanted, good) in [(0, 1, true), (4, 5, true), (9, 5, false)] {
            let mut asked = 0;
            let ask = || {
                asked += 1;
                if asked <= signals { Err(ErrorKind::WouldBlock) } else { Ok(()) }
            };
            let told = until_done(ask, |error| *error == ErrorKind::WouldBlock);
            assert_eq!((asked, told.is_ok()), (wanted, good));
        }
        let mut asked = 0;
        let ask = || {
            asked += 1;
            Err(ErrorKind::PermissionDenied)
        };
        assert!(until_done(ask, |error| *error == ErrorKind::WouldBlock).is_err());
        assert_eq!(asked, 1);
    }
}
