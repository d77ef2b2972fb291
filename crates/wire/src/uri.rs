//! Bytes as text in a URI (RFC 3986 §2.1), as memcached tells keys where a line has other words.

use alloc::vec::Vec;

/// Puts the bytes: letters, digits and `-._~` as they are, and every other as `%` with two digits.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            byte if byte.is_ascii_alphanumeric() => out.push(*byte),
            byte => {
                let digits = [byte >> 4, byte & 0xf].map(|digit| DIGITS[usize::from(digit)]);
                out.extend_from_slice(&[b'%', digits[0], digits[1]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_unreserved_is_told_by_its_number() {
        for (bytes, text) in [
            (&b"plain-._~09azAZ"[..], "plain-._~09azAZ"),
            (b"a b/c%", "a%20b%2Fc%25"),
            (b"\x00\xff", "%00%FF"),
            (b"", ""),
        ] {
            let mut out = Vec::new();
            encode(bytes, &mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
