//! Values that tests write, and what comes back.

/// The last bytes, to be shown where they are not those that were expected.
pub fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(80)..]).into_owned()
}

/// A value of `len` bytes that depends on `salt`, so that a wrong one shows.
pub fn value(len: usize, salt: u64) -> Vec<u8> {
    let mut word = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let byte = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        b'a' + (word % 26) as u8
    };
    (0..len).map(byte).collect()
}

/// A value that can be compressed: lines of 64 bytes, each of which says where it is.
pub fn lines(len: usize, salt: u64) -> Vec<u8> {
    let line = value(48, salt);
    let numbered = |number: usize| [format!("{number:015};").as_bytes(), &line[..]].concat();
    (0..len.div_ceil(64)).flat_map(numbered).take(len).collect()
}

/// The reply to a `get` of one key.
pub fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}
