//! A key as the index in memory keeps it: a short one lies where it is looked at, so that a search
//! goes to no other place for each key that it passes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;

/// Longer keys lie elsewhere. As much as takes no more room than a pointer and two words.
const SHORT_BYTES_MAX: usize = 22;

/// A key.
#[derive(Clone)]
pub struct Key(Lies);

#[derive(Clone)]
enum Lies {
    Here { bytes: u8, text: [u8; SHORT_BYTES_MAX] },
    Elsewhere(Box<[u8]>),
}

impl Key {
    /// How many of its bytes lie elsewhere.
    pub fn elsewhere_bytes(&self) -> usize {
        match &self.0 {
            Lies::Here { .. } => 0,
            Lies::Elsewhere(key) => key.len(),
        }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        if SHORT_BYTES_MAX < key.len() {
            return Key(Lies::Elsewhere(key.into()));
        }
        let mut text = [0; SHORT_BYTES_MAX];
        text[..key.len()].copy_from_slice(key);
        Key(Lies::Here { bytes: key.len() as u8, text })
    }
}

impl Default for Key {
    fn default() -> Key {
        Key::from(&[][..])
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Lies::Here { bytes, text } => &text[..usize::from(*bytes)],
            Lies::Elsewhere(key) => key,
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_length_is_what_it_was_and_in_its_order() {
        let text: Vec<u8> = (0..60).map(|at| at % 3).collect();
        let mut plain: Vec<&[u8]> = Vec::new();
        for bytes in [0, 1, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 40] {
            plain.extend((0..8).map(|from| &text[from..from + bytes]));
        }
        let mut keys: Vec<Key> = plain.iter().map(|key| Key::from(*key)).collect();
        plain.sort_unstable();
        keys.sort_unstable();
        assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), plain);
        assert_eq!(std::mem::size_of::<Key>(), 3 * std::mem::size_of::<usize>());
    }
}
