//! Base64 as the meta commands use it for binary keys (RFC 4648 §4): padded, and in canonical form
//! only, so that every key has one text and a `k` flag can return the text that was sent.
//!
//! memcached also takes text whose unused bits are not zero, and text that goes on behind its
//! padding; it answers such a key with another text than it was sent.

/// What a byte outside the alphabet decodes to.
const BAD: u8 = 0xff;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const VALUES: [u8; 256] = {
    let mut values = [BAD; 256];
    let mut i = 0;
    while i < ALPHABET.len() {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// Bytes of text that `bytes` bytes encode to.
pub const fn encoded_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Decodes `text` into `out` and returns how many bytes it made; `None` if the text is empty, not
/// canonical base64, or more than `out` holds.
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|&&b| b == b'=').count();
    let length = text.len() / 4 * 3 - padding;
    let out = out.get_mut(..length)?;
    let digits = &text[..text.len() - padding];
    for (four, three) in digits.chunks(4).zip(out.chunks_mut(3)) {
        let mut bits: u32 = 0;
        for (i, &digit) in four.iter().enumerate() {
            let value = VALUES[usize::from(digit)];
            if value == BAD {
                return None;
            }
            bits |= u32::from(value) << (18 - 6 * i);
        }
        let bytes = bits.to_be_bytes();
        three.copy_from_slice(&bytes[1..=three.len()]);
        if bytes[1 + three.len()..].iter().any(|&b| b != 0) {
            return None; // bits that the padding says are not there
        }
    }
    Some(length)
}

/// Encodes `bytes` into `out` and returns the length of the text; `None` if `out` is too short.
pub fn encode(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let length = encoded_bytes(bytes.len());
    let out = out.get_mut(..length)?;
    for (three, four) in bytes.chunks(3).zip(out.chunks_mut(4)) {
        let mut group = [0; 4];
        group[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(group);
        for (i, digit) in four.iter_mut().enumerate() {
            *digit = if i <= three.len() {
                ALPHABET[(bits >> (18 - 6 * i)) as usize & 63]
            } else {
                b'='
            };
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_decodes_as_rfc_4648_says_or_not_at_all() {
        let rows: [(&[u8], Option<&[u8]>); 13] = [
            (b"Zg==", Some(b"f")),
            (b"Zm8=", Some(b"fo")),
            (b"Zm9v", Some(b"foo")),
            (b"Zm9vYmFy", Some(b"foobar")),
            (b"+/+/", Some(&[0xfb, 0xff, 0xbf])),
            (b"", None),
            (b"Zg", None),
            (b"Zg=", None),
            (b"Zh==", None),
            (b"Z===", None),
            (b"====", None),
            (b"Zg==Zg==", None),
            (b"Zm9-", None),
        ];
        for (text, bytes) in rows {
            let mut out = [0; 8];
            let decoded = decode(text, &mut out).map(|length| &out[..length]);
            assert_eq!(decoded, bytes, "{}", text.escape_ascii());
            if let Some(bytes) = bytes {
                let mut out = [0; 12];
                let length = encode(bytes, &mut out).expect("room");
                assert_eq!(&out[..length], text);
            }
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), None, "no room");
        assert_eq!(encode(b"foo", &mut [0; 3]), None, "no room");
    }
}
