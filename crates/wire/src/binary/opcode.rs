//! The opcodes of requests.

/// What a request asks, its quiet twin taken for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // they are named as in memcached's `protocol_binary.h`
#[repr(u8)]
pub enum Opcode {
    Get = 0x00,
    Set = 0x01,
    Add = 0x02,
    Replace = 0x03,
    Delete = 0x04,
    Increment = 0x05,
    Decrement = 0x06,
    Quit = 0x07,
    Flush = 0x08,
    Noop = 0x0a,
    Version = 0x0b,
    GetKey = 0x0c,
    Append = 0x0e,
    Prepend = 0x0f,
    Stat = 0x10,
    Verbosity = 0x1b,
    Touch = 0x1c,
    GetAndTouch = 0x1d,
    SaslList = 0x20,
    SaslAuth = 0x21,
    SaslStep = 0x22,
    GetKeyAndTouch = 0x23,
}

use Opcode::*;

/// Each opcode that has a quiet twin, and the twin.
pub const QUIET: [(Opcode, u8); 14] = [
    (Get, 0x09),
    (GetKey, 0x0d),
    (Set, 0x11),
    (Add, 0x12),
    (Replace, 0x13),
    (Delete, 0x14),
    (Increment, 0x15),
    (Decrement, 0x16),
    (Quit, 0x17),
    (Flush, 0x18),
    (Append, 0x19),
    (Prepend, 0x1a),
    (GetAndTouch, 0x1e),
    (GetKeyAndTouch, 0x24),
];

impl Opcode {
    /// What a byte asks, and whether quietly.
    #[inline]
    pub const fn read(byte: u8) -> Option<(Opcode, bool)> {
        Some(match byte {
            0x00 => (Get, false),
            0x01 => (Set, false),
            0x02 => (Add, false),
            0x03 => (Replace, false),
            0x04 => (Delete, false),
            0x05 => (Increment, false),
            0x06 => (Decrement, false),
            0x07 => (Quit, false),
            0x08 => (Flush, false),
            0x09 => (Get, true),
            0x0a => (Noop, false),
            0x0b => (Version, false),
            0x0c => (GetKey, false),
            0x0d => (GetKey, true),
            0x0e => (Append, false),
            0x0f => (Prepend, false),
            0x10 => (Stat, false),
            0x11 => (Set, true),
            0x12 => (Add, true),
            0x13 => (Replace, true),
            0x14 => (Delete, true),
            0x15 => (Increment, true),
            0x16 => (Decrement, true),
            0x17 => (Quit, true),
            0x18 => (Flush, true),
            0x19 => (Append, true),
            0x1a => (Prepend, true),
            0x1b => (Verbosity, false),
            0x1c => (Touch, false),
            0x1d => (GetAndTouch, false),
            0x1e => (GetAndTouch, true),
            0x20 => (SaslList, false),
            0x21 => (SaslAuth, false),
            0x22 => (SaslStep, false),
            0x23 => (GetKeyAndTouch, false),
            0x24 => (GetKeyAndTouch, true),
            _ => return None,
        })
    }

    /// The byte of it.
    pub fn byte(self, quiet: bool) -> u8 {
        let twin = QUIET.iter().find(|(loud, _)| quiet && *loud == self);
        twin.map_or(self as u8, |(_, twin)| *twin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_read_as_it_is_written() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            let Some((opcode, quiet)) = Opcode::read(byte) else { continue };
            known += 1;
            assert_eq!(opcode.byte(quiet), byte);
            assert_eq!(quiet, QUIET.iter().any(|(_, twin)| *twin == byte), "{byte:#04x}");
        }
        assert_eq!(known, 22 + QUIET.len());
    }
}
