//! Lines of a `stats` reply.

use laneway_wire::reply::{Decimal, END, put_stat};
use std::fmt::{Display, Write};

/// Writes `STAT name value` lines behind what is in the output.
pub(super) struct Lines<'a> {
    out: &'a mut Vec<u8>,
    text: String,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Lines { out, text: String::new() }
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        put_stat(self.out, name.as_bytes(), Decimal::new(value).bytes());
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        put_stat(self.out, name.as_bytes(), value.as_bytes());
    }

    /// A value that has its own way of being written.
    pub(super) fn shown(&mut self, name: &str, value: impl Display) {
        self.text.clear();
        let written = write!(self.text, "{value}");
        debug_assert!(written.is_ok(), "a String takes everything");
        put_stat(self.out, name.as_bytes(), self.text.as_bytes());
    }

    /// `yes` or `no`, as memcached writes its settings.
    pub(super) fn yes(&mut self, name: &str, value: bool) {
        self.text(name, if value { "yes" } else { "no" });
    }

    pub(super) fn end(self) {
        self.out.extend_from_slice(END);
    }
}

/// Lines of numbers, each called as its field is.
macro_rules! numbers {
    ($lines:expr, $of:expr; $($name:ident)*) => {
        $($lines.number(stringify!($name), $of.$name);)*
    };
}
pub(super) use numbers;

/// Nanoseconds written as microseconds, with the tenths.
pub(super) struct Micros(pub(super) u64);

impl Display for Micros {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = self.0.saturating_add(50) / 100;
        write!(formatter, "{}.{}", tenths / 10, tenths % 10)
    }
}

/// Microseconds written as seconds, as memcached writes its CPU times.
pub(super) struct Seconds(pub(super) u64);

impl Display for Seconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
