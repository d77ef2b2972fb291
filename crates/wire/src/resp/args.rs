//! The arguments of a request that has arrived, one after the other.

use super::BULK_END;
use super::header::bulk_header;

/// Arguments in order: an iterator over bulk strings whose headers a [`super::Scan`] has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Args<'a> {
    /// The first so many bulk strings of `rest`, which holds them whole.
    pub const fn new(rest: &'a [u8], left: u32) -> Self {
        Args { rest, left }
    }

    /// How many are left.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// The bytes from the next one on.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        // All of it was read once: nothing of this fails.
        let (bytes, head_bytes) = bulk_header(self.rest).ok()??;
        let argument = self.rest.get(head_bytes..head_bytes + bytes)?;
        self.rest = &self.rest[head_bytes + bytes + BULK_END.len()..];
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}
