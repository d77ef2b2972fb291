//! Passing over what is left of a request that was refused before it had arrived.

use super::header::bulk_header;
use super::{BULK_END, Broken};

/// What is to be passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// Bytes of the argument that is on its way, its end included.
    bytes: u64,
    /// Arguments behind it.
    arguments: u32,
}

impl Skip {
    /// So many bytes of an argument and its end, then so many arguments.
    pub const fn new(argument_bytes: usize, arguments: u32) -> Skip {
        Skip { bytes: argument_bytes as u64 + BULK_END.len() as u64, arguments }
    }

    /// So many whole arguments.
    pub const fn arguments(arguments: u32) -> Skip {
        Skip { bytes: 0, arguments }
    }

    /// Passes over what there is of it at the front of `input`: how many bytes, and whether that
    /// was all.
    pub fn advance(&mut self, input: &[u8]) -> Result<(usize, bool), Broken> {
        let mut at = 0;
        loop {
            let passed = self.bytes.min((input.len() - at) as u64);
            at += passed as usize;
            self.bytes -= passed;
            if self.bytes > 0 {
                return Ok((at, false));
            }
            if self.arguments == 0 {
                return Ok((at, true));
            }
            let Some((bytes, head_bytes)) = bulk_header(&input[at..])? else {
                return Ok((at, false));
            };
            at += head_bytes;
            self.bytes = (bytes + BULK_END.len()) as u64;
            self.arguments -= 1;
        }
    }
}
