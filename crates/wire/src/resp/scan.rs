//! Looking at a request as it arrives: each byte once, whatever the pieces are.

use super::header::{HeaderError, bulk_header, header};
use super::{ARGUMENTS_MAX, Args, BULK_END, Broken, INLINE_BYTES_MAX};
use crate::scan::find;

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    /// The header of an array, or an inline command.
    #[default]
    Request,
    /// The end of a bulk string that was taken away.
    End,
    /// Bulk strings.
    Arguments,
}

/// How far the request at the front of the input has been looked at. The default has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scan {
    next: Next,
    /// Bytes that were looked at.
    at: usize,
    /// Where the arguments begin.
    args_at: usize,
    /// Arguments that were announced; 0 before the header of the array was read.
    announced: u32,
    /// Of them, those that are not whole.
    missing: u32,
    /// The length of the bulk string that is awaited, if its header was read.
    bulk: Option<usize>,
}

/// What stands at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned<'a> {
    /// A request, and how many bytes it takes.
    Whole(Args<'a>, usize),
    /// The beginning of one.
    More,
    /// An array without an argument, which asks for nothing and is not answered.
    Nothing(usize),
    /// An inline command: the line without its newline, and how many bytes it takes.
    Inline(&'a [u8], usize),
}

/// An argument that has begun to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The arguments before it.
    pub before: Args<'a>,
    /// Where its bytes begin in the input.
    pub at: usize,
    /// How many they are.
    pub bytes: usize,
    /// Arguments behind it.
    pub behind: u32,
}

impl Scan {
    /// What stands behind a bulk string whose bytes were taken away: its `\r\n`, then so many
    /// arguments.
    pub const fn behind(arguments: u32) -> Scan {
        let (announced, missing) = (arguments, arguments);
        Scan { next: Next::End, at: 0, args_at: 0, announced, missing, bulk: None }
    }

    /// So many arguments, without the header of their array.
    pub const fn arguments(arguments: u32) -> Scan {
        let (announced, missing) = (arguments, arguments);
        Scan { next: Next::Arguments, at: 0, args_at: 0, announced, missing, bulk: None }
    }

    /// Arguments that were announced; 0 as long as that is not known.
    pub const fn announced(&self) -> u32 {
        self.announced
    }

    /// Looks on. `input` begins where it began before, and may have become longer.
    #[inline]
    pub fn advance<'a>(&mut self, input: &'a [u8]) -> Result<Scanned<'a>, Broken> {
        match self.next {
            Next::Arguments => {}
            Next::Request => match input.first() {
                None => return Ok(Scanned::More),
                Some(b'*') => match header(input) {
                    Ok(None) => return Ok(Scanned::More),
                    Ok(Some((i64::MIN..=0, bytes))) => return Ok(Scanned::Nothing(bytes)),
                    Ok(Some((count, bytes))) => {
                        let count = u32::try_from(count).ok();
                        let count = count.filter(|count| *count <= ARGUMENTS_MAX);
                        self.begin(count.ok_or(Broken::ArrayLength)?, bytes);
                    }
                    Err(HeaderError::Endless) => return Err(Broken::ArrayHeader),
                    Err(HeaderError::NoNumber) => return Err(Broken::ArrayLength),
                },
                Some(_) => return self.inline(input),
            },
            Next::End => match input.get(..BULK_END.len()) {
                None => return Ok(Scanned::More),
                Some(BULK_END) => self.begin(self.announced, BULK_END.len()),
                Some(_) => return Err(Broken::BulkEnd),
            },
        }
        self.bulks(input)
    }

    /// So many arguments stand from here on.
    #[inline]
    fn begin(&mut self, arguments: u32, at: usize) {
        self.next = Next::Arguments;
        (self.at, self.args_at) = (at, at);
        (self.announced, self.missing) = (arguments, arguments);
    }

    #[inline]
    fn bulks<'a>(&mut self, input: &'a [u8]) -> Result<Scanned<'a>, Broken> {
        while self.missing > 0 {
            let bytes = match self.bulk {
                Some(bytes) => bytes,
                None => match bulk_header(&input[self.at..])? {
                    None => return Ok(Scanned::More),
                    Some((bytes, head_bytes)) => {
                        self.at += head_bytes;
                        self.bulk = Some(bytes);
                        bytes
                    }
                },
            };
            let Some(end) = input.get(self.at + bytes..self.at + bytes + BULK_END.len()) else {
                return Ok(Scanned::More);
            };
            if end != BULK_END {
                return Err(Broken::BulkEnd);
            }
            self.at += bytes + BULK_END.len();
            self.bulk = None;
            self.missing -= 1;
        }
        let whole = self.whole(input);
        Ok(Scanned::Whole(whole, self.at))
    }

    /// The arguments that are whole.
    fn whole<'a>(&self, input: &'a [u8]) -> Args<'a> {
        Args::new(&input[self.args_at..self.at], self.announced - self.missing)
    }

    /// The argument that is on its way, where its length is known. After [`Scanned::More`], and of
    /// the same input.
    pub fn pending<'a>(&self, input: &'a [u8]) -> Option<Pending<'a>> {
        let bytes = self.bulk?;
        Some(Pending { before: self.whole(input), at: self.at, bytes, behind: self.missing - 1 })
    }

    /// Arguments that have not arrived whole, one that is pending included.
    pub const fn missing(&self) -> u32 {
        self.missing
    }

    /// Where the first argument begins that is not whole.
    pub const fn at(&self) -> usize {
        self.at
    }

    #[cold]
    fn inline<'a>(&mut self, input: &'a [u8]) -> Result<Scanned<'a>, Broken> {
        let Some(newline) = find(&input[self.at..], b'\n') else {
            self.at = input.len();
            let is_endless = input.len() > INLINE_BYTES_MAX;
            return if is_endless { Err(Broken::Inline) } else { Ok(Scanned::More) };
        };
        let newline = self.at + newline;
        let line = &input[..newline];
        Ok(Scanned::Inline(line.strip_suffix(b"\r").unwrap_or(line), newline + 1))
    }
}
