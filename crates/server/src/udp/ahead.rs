//! Looking ahead in a burst of datagrams: the first keys of those to come are read together
//! (`laneway_store::Group`), so that their misses overlap instead of being waited for one by one
//! (MICA §4.4).
//!
//! Nothing is parsed here: what looks like a key is sought, and whoever serves the request finds
//! out whether it was one. Keys are known by where they stand in the input, so what is remembered
//! is good for one burst only, and as long as nobody else has another group read.

use laneway_store::{GROUP, Group, Store};

/// Keys to come, each with its number in the group.
#[derive(Default)]
pub struct Ahead {
    /// Where the keys stand in the input, address and length, in the order of their turns. What
    /// looked like a key may be the front of one: in a key, any byte but a space may stand.
    places: [(usize, usize); GROUP],
    known: usize,
    used: usize,
}

impl Ahead {
    /// Another input, or another group: what was remembered is of no use.
    pub fn clear(&mut self) {
        (self.known, self.used) = (0, 0);
    }

    /// Begin to read the first key of each of at most [`GROUP`] inputs.
    pub fn look_at_each<'a>(
        &mut self,
        store: &Store,
        group: &mut Group,
        inputs: impl Iterator<Item = &'a [u8]>,
    ) {
        self.clear();
        let mut keys = [&[][..]; GROUP];
        for key in inputs.filter_map(first_key).take(GROUP) {
            keys[self.known] = key;
            self.places[self.known] = place(key);
            self.known += 1;
        }
        store.seek(group, &keys[..self.known]);
    }

    /// The number of a key whose turn has come; `None` where it was not looked at.
    pub fn number(&mut self, key: &[u8]) -> Option<usize> {
        while self.used < self.known {
            let number = self.used;
            self.used += 1;
            if self.places[number] == place(key) {
                return Some(number);
            }
        }
        None
    }
}

fn place(key: &[u8]) -> (usize, usize) {
    (key.as_ptr() as usize, key.len())
}

/// The first key of a `get`, `gets` or `mg`, if the input begins with one of them.
fn first_key(input: &[u8]) -> Option<&[u8]> {
    let (verb, keys) = input.split_at(input.iter().take(5).position(|&byte| byte == b' ')?);
    let keys = &keys[1..];
    let end = keys.iter().position(|byte| byte.is_ascii_whitespace())?;
    (matches!(verb, b"get" | b"gets" | b"mg") && end > 0).then_some(&keys[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_of_what_looks_one_up_is_found() {
        for (input, key) in [
            (&b"get a\r\n"[..], Some(&b"a"[..])),
            (b"gets key other\r\n", Some(b"key")),
            (b"mg key v\r\n", Some(b"key")),
            (b"get  a\r\n", None),
            (b"get ", None),
            (b"get a", None),
            (b"gat 0 a\r\n", None),
            (b"get\r\n", None),
            (b"getss a\r\n", None),
            (b"", None),
        ] {
            assert_eq!(first_key(input), key, "{:?}", input.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_key_has_the_number_of_its_own_read_whatever_was_looked_at_before() {
        let store = Store::new(laneway_store::Config::default()).expect("memory for a store");
        let inputs =
            [&b"get one\r\n"[..], b"set x 0 0 1\r\n", b"get two three\r\n", b"get one\r\n"];
        let (mut ahead, mut group) = (Ahead::default(), Group::default());
        ahead.look_at_each(&store, &mut group, inputs.into_iter());
        let keys =
            [&inputs[0][4..7], &inputs[2][4..7], &inputs[2][8..13], b"other", &inputs[3][4..7]];
        let numbers = keys.map(|key| ahead.number(key));
        assert_eq!(numbers[..2], [Some(0), Some(1)]);
        assert_eq!(numbers[2..], [None; 3], "a key that was not looked at passes the rest over");
        ahead.look_at_each(&store, &mut group, inputs.into_iter());
        for key in [keys[0], keys[1], keys[4]] {
            let number = ahead.number(key).expect("it was looked at");
            assert_eq!(group.hash(number), store.hash(key));
        }
    }
}
