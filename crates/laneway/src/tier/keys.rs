//! Keys on the command line, as `laneway scan` prints them: what is no printable ASCII is escaped,
//! so that a key of a list names the place where the next list begins.

/// The key that stands for this text; nothing if a backslash begins no escape. The inverse of
/// `[u8]::escape_ascii`.
pub fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut key, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        key.push(if byte == b'\\' { escaped(&mut bytes)? } else { byte });
    }
    Some(key)
}

/// An escape, as it stands behind its backslash.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        b't' => b'\t',
        b'r' => b'\r',
        b'n' => b'\n',
        b'x' => {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            (16 * high + low) as u8
        }
        plain @ (b'\\' | b'\'' | b'"') => plain,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_of_a_key_is_read_as_that_key() {
        let key: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(unescaped(&key.escape_ascii().to_string()), Some(key));
        assert_eq!(unescaped("é"), Some("é".as_bytes().to_vec()), "as a terminal has it");
        assert_eq!(unescaped("\\x0aB"), Some(b"\nB".to_vec()));
    }

    #[test]
    fn what_begins_no_escape_is_refused() {
        for text in ["\\", "a\\", "\\a", "\\x", "\\x1", "\\x1g", "\\x+1", "\\u{e9}"] {
            assert_eq!(unescaped(text), None, "{text}");
        }
    }
}
