//! Items whose sizes are listed one by one: those of a trace.

use super::Key;

/// Sizes and times to live by the number of the key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Items {
    key_bytes: Vec<u8>,
    value_bytes: Vec<u32>,
    ttl_s: Vec<u32>,
}

impl Items {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.key_bytes.len()
    }

    /// Adds an item of which only the length of its key is known.
    pub fn push(&mut self, key_bytes: u8) {
        self.key_bytes.push(key_bytes);
        self.value_bytes.push(0);
        self.ttl_s.push(0);
    }

    /// Takes what a row tells, where nothing was told before; 0 is nothing.
    pub fn learn(&mut self, key: Key, value_bytes: u32, ttl_s: u32) {
        for (all, told) in [(&mut self.value_bytes, value_bytes), (&mut self.ttl_s, ttl_s)] {
            let own = &mut all[key.0 as usize];
            if *own == 0 {
                *own = told;
            }
        }
    }

    /// Bytes of a key.
    pub fn key_bytes(&self, key: Key) -> usize {
        self.key_bytes[key.0 as usize].into()
    }

    /// Bytes of its value.
    pub fn value_bytes(&self, key: Key) -> u64 {
        self.value_bytes[key.0 as usize].into()
    }

    /// Seconds that it lives, 0 for ever.
    pub fn ttl_s(&self, key: Key) -> u32 {
        self.ttl_s[key.0 as usize]
    }
}
