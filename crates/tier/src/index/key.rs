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
    /// The same key, if it is a short one.
    pub fn short(key: &[u8]) -> Option<Key> {
        (key.len() <= SHORT_BYTES_MAX).then(|| Key::from(key))
    }

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

/// The bytes of a short key as numbers that have its order.
fn numbers(text: &[u8; SHORT_BYTES_MAX]) -> (u64, u64, u64) {
    let number = |at: usize| {
        let eight = text[at..at + 8].try_into().expect("as many as were asked for");
        u64::from_be_bytes(eight)
    };
    // What the second has, too, makes no difference where those are equal.
    (number(0), number(8), number(SHORT_BYTES_MAX - 8))
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        match (&self.0, &other.0) {
            // Behind a short key there are zeros: it comes before all that it begins, and among
            // those of zeros alone the length decides.
            (Lies::Here { bytes, text }, Lies::Here { bytes: other_bytes, text: other_text }) => {
                numbers(text).cmp(&numbers(other_text)).then(bytes.cmp(other_bytes))
            }
            _ => (**self).cmp(&**other),
        }
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

    #[test]
    fn keys_are_in_the_order_of_their_bytes_whatever_they_end_with() {
        let mut plain: Vec<Vec<u8>> = Vec::new();
        for bytes in [0, 1, 7, 8, 9, 14, 15, 16, 17, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, 23] {
            for (at, byte) in [(0, 0), (0, 255), (7, 1), (8, 0), (14, 2), (15, 255), (21, 1)] {
                for rest in [0, 1, 255] {
                    let mut key = vec![rest; bytes];
                    key.get_mut(at).into_iter().for_each(|there| *there = byte);
                    plain.push(key);
                }
            }
        }
        for one in &plain {
            for other in &plain {
                let keys = [one, other].map(|key| Key::from(&key[..]));
                assert_eq!(keys[0].cmp(&keys[1]), one.cmp(other), "{one:?} {other:?}");
            }
        }
    }
}
