//! What a server answers: the fixed lines, and writers for the ones that carry numbers.
//!
//! Every line ends in `\r\n`. Nothing here decides what to answer.

use alloc::vec::Vec;

/// Where reply bytes go.
pub trait Sink {
    /// Takes the bytes; there is always room.
    fn put(&mut self, bytes: &[u8]);
    /// Takes the first `length` of a few bytes; a sink that can take all sixteen at once, and then
    /// forget the others, is quicker at it.
    #[inline]
    fn put_short(&mut self, bytes: &[u8; 16], length: usize) {
        self.put(&bytes[..length]);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        (**self).put(bytes);
    }
}

/// What ends every line and every value.
pub const CRLF: &[u8] = b"\r\n";

/// The value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of `add`, `replace`, `append` or `prepend` was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// `cas`: somebody else changed the item.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// No such key.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// `delete` did.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// `touch` did.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// Behind the last value of a `get`, and the last line of `stats`.
pub const END: &[u8] = b"END\r\n";
/// `stats reset` did.
pub const RESET: &[u8] = b"RESET\r\n";
/// What `version` answers, without number and newline.
pub const VERSION_LINE: &[u8] = b"VERSION ";

/// Meta: answer to `mn`.
pub const MN: &[u8] = b"MN\r\n";

/// No such command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// A request of the binary protocol.
pub const NO_BINARY: &[u8] =
    b"CLIENT_ERROR the binary protocol is not supported: set the client to the text protocol\r\n";
/// Words too few, a key too long, a number that is none.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// A value that does not end in `\r\n` where its length says.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// `incr`, `decr`: the amount is no number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// `touch`, `gat`, `flush_all`: the expiry is no number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// `incr`, `decr`, `ma`: the value is no number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// `shutdown` with an unknown word behind it.
pub const BAD_SHUTDOWN: &[u8] = b"CLIENT_ERROR invalid shutdown mode\r\n";
/// `shutdown` without `-A`.
pub const SHUTDOWN_DISABLED: &[u8] = b"SERVER_ERROR: shutdown not enabled\r\n";
/// `flush_all` with `-F`.
pub const FLUSH_DISABLED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";
/// `cache_memlimit` below 8.
pub const MEMORY_LIMIT_TOO_SMALL: &[u8] =
    b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
/// `cache_memlimit` with a number of bytes.
pub const MEMORY_LIMIT_NOT_MEGABYTES: &[u8] =
    b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";

/// Meta: a flag twice.
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// Meta: a flag nobody knows.
pub const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// Meta: what `ma` says of any bad flag.
pub const INVALID_OR_DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
/// Meta: a flag's argument is no number.
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// Meta: more than twenty tokens.
pub const FLAGS_TOO_LONG: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
/// Meta: an opaque above 32 bytes.
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// Meta: the key has the `b` flag and is not base64.
pub const BAD_KEY_ENCODING: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// Meta: `ms` knows no such mode.
pub const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// Meta: `ma` knows no such mode.
pub const BAD_ARITH_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
/// Meta: the `J` flag's argument is no number.
pub const BAD_INITIAL_VALUE: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
/// Meta: the `D` flag's argument is no number.
pub const BAD_DELTA_VALUE: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";

/// The item is above `-I`.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory for a new item.
pub const NO_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// No memory for an answer.
pub const NO_MEMORY_READING: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
/// No memory for the result of `incr` or `decr`.
pub const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";

/// More connections than `-c`: said before the connection is closed.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
/// More connections of one address than it may have: the same.
pub const TOO_MANY_CONNECTIONS_OF_ADDRESS: &[u8] =
    b"ERROR Too many open connections of this address\r\n";

/// Longest decimal number of 64 bits, a minus sign included.
pub const NUMBER_BYTES_MAX: usize = 20;

/// Two decimal digits for every number below 100.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut i = 0;
    while i < 100 {
        pairs[2 * i] = b'0' + (i / 10) as u8;
        pairs[2 * i + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

/// A number as decimal text.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    digits: [u8; NUMBER_BYTES_MAX],
    start: usize,
}

impl Decimal {
    /// The text of `value`.
    #[inline]
    pub const fn new(mut value: u64) -> Self {
        let mut digits = [0; NUMBER_BYTES_MAX];
        let mut start = NUMBER_BYTES_MAX;
        while value >= 100 {
            let pair = (value % 100) as usize * 2;
            value /= 100;
            start -= 2;
            digits[start] = PAIRS[pair];
            digits[start + 1] = PAIRS[pair + 1];
        }
        let pair = value as usize * 2;
        start -= 1;
        digits[start] = PAIRS[pair + 1];
        if value >= 10 {
            start -= 1;
            digits[start] = PAIRS[pair];
        }
        Decimal { digits, start }
    }

    /// Its digits.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Writes `value` in decimal.
#[inline]
pub fn put_u64(sink: &mut impl Sink, value: u64) {
    sink.put(Decimal::new(value).bytes());
}

/// Writes `value` in decimal, with a minus sign where it is negative.
#[inline]
pub fn put_i64(sink: &mut impl Sink, value: i64) {
    if value < 0 {
        sink.put(b"-");
    }
    put_u64(sink, value.unsigned_abs());
}

/// Writes `value` and the end of the line: what `incr` and `decr` answer.
pub fn put_number_line(sink: &mut impl Sink, value: u64) {
    put_u64(sink, value);
    sink.put(CRLF);
}

/// Longest line that [`put_value_head`] writes: `VALUE `, key, flags, length, CAS id, three spaces
/// and the newline.
pub const VALUE_HEAD_BYTES_MAX: usize =
    6 + crate::request::KEY_BYTES_MAX + 10 + NUMBER_BYTES_MAX + NUMBER_BYTES_MAX + 3 + 2;

/// Writes `VALUE key flags bytes [cas]` and the end of the line; the value comes next.
#[inline]
pub fn put_value_head(
    sink: &mut impl Sink,
    key: &[u8],
    flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
) {
    if flags == 0 && value_bytes < 10_000 && cas.is_none() {
        let (tail, length) = ordinary_tail(value_bytes as u32);
        sink.put(b"VALUE ");
        sink.put(key);
        return sink.put_short(&tail, length);
    }
    // One put for everything behind the key: a sink may have a cost per call.
    let mut tail = Line::<64>::new();
    tail.put_byte(b' ');
    tail.put_number(u64::from(flags));
    tail.put_byte(b' ');
    tail.put_number(value_bytes as u64);
    if let Some(cas) = cas {
        tail.put_byte(b' ');
        tail.put_number(cas);
    }
    tail.put_byte(b'\r');
    tail.put_byte(b'\n');
    sink.put(b"VALUE ");
    sink.put(key);
    sink.put(tail.bytes());
}

/// ` 0 bytes` and the end of the line, for a number of four digits at most, and how long that is:
/// what stands behind most keys, put together in two words.
#[inline]
const fn ordinary_tail(value_bytes: u32) -> ([u8; 16], usize) {
    const FLAGS: u128 = u32::from_le_bytes(*b" 0 \0") as u128;
    const FLAGS_BYTES: usize = 3;
    const CRLF_WORD: u64 = u16::from_le_bytes(*b"\r\n") as u64;
    let (high, low) = ((value_bytes / 100) as usize * 2, (value_bytes % 100) as usize * 2);
    let four = u32::from_le_bytes([PAIRS[high], PAIRS[high + 1], PAIRS[low], PAIRS[low + 1]]);
    let digits = 1
        + (value_bytes >= 10) as usize
        + (value_bytes >= 100) as usize
        + (value_bytes >= 1000) as usize;
    let number = (four >> (8 * (4 - digits))) as u64 | CRLF_WORD << (8 * digits);
    let tail = FLAGS | (number as u128) << (8 * FLAGS_BYTES);
    (tail.to_le_bytes(), FLAGS_BYTES + digits + CRLF.len())
}

/// Writes `VA bytes`: the caller goes on with return flags and [`CRLF`], then the value.
#[inline]
pub fn put_meta_value_head(sink: &mut impl Sink, value_bytes: usize) {
    sink.put(b"VA ");
    put_u64(sink, value_bytes as u64);
}

/// Writes a return flag with a number behind it: ` t30`.
#[inline]
pub fn put_flag(sink: &mut impl Sink, letter: u8, value: u64) {
    sink.put(&[b' ', letter]);
    put_u64(sink, value);
}

/// Writes a return flag without argument: ` W`.
#[inline]
pub fn put_flag_bare(sink: &mut impl Sink, letter: u8) {
    sink.put(&[b' ', letter]);
}

/// Writes `STAT name value` and the end of the line.
pub fn put_stat(sink: &mut impl Sink, name: &[u8], value: &[u8]) {
    sink.put(b"STAT ");
    sink.put(name);
    sink.put(b" ");
    sink.put(value);
    sink.put(CRLF);
}

/// Up to `N` bytes on the stack.
struct Line<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Line<N> {
    const fn new() -> Self {
        Line { bytes: [0; N], length: 0 }
    }
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
    #[inline(always)]
    fn put_pair(&mut self, number: u32) {
        let pair = number as usize * 2;
        self.put_byte(PAIRS[pair]);
        self.put_byte(PAIRS[pair + 1]);
    }
    /// In decimal; short numbers, as flags and lengths mostly are, without a way round.
    #[inline(always)]
    fn put_number(&mut self, value: u64) {
        let Some(value) = u32::try_from(value).ok().filter(|value| *value < 10_000) else {
            return self.put(Decimal::new(value).bytes());
        };
        let (high, low) = (value / 100, value % 100);
        match value {
            0..10 => self.put_byte(b'0' + value as u8),
            10..100 => self.put_pair(low),
            100..1000 => {
                self.put_byte(b'0' + high as u8);
                self.put_pair(low);
            }
            _ => {
                self.put_pair(high);
                self.put_pair(low);
            }
        }
    }
}

impl<const N: usize> Sink for Line<N> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}
// Three numbers, three spaces and the newline fit.
const _: () = assert!(64 >= 10 + 2 * NUMBER_BYTES_MAX + 3 + 2);
