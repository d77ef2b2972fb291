//! A sealed descriptor says where a long message lies, and has its seal. It has 24 bytes,
//! little-endian: number (8), seal (8), offset from the start of the memory (4), length (4).
//!
//! The seal is SipHash-1-3 of the message, keyed by its number and a constant: it tells bytes of
//! another message, of an earlier one at the same place, and pieces that never arrived. It is no
//! proof of anything to who can choose the bytes: that is their sender, who may send what he likes.

use laneway_sync::prim::AtomicU64;
use laneway_sync::words;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bytes of a sealed descriptor.
pub const SEALED_DESCRIPTOR_BYTES: usize = 24;
/// What a card moves at a time, at most: a slice, behind which others have their turn.
pub const PIECE_BYTES: usize = 32 << 10;
/// The other half of the seal's key.
const KEY: u64 = u64::from_le_bytes(*b"laneway2");

/// A long message, said where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedDescriptor {
    /// New for each message of this direction and connection.
    pub number: u64,
    /// Over its number and bytes: see [`Sealing`].
    pub seal: u64,
    /// Where it begins.
    pub offset: u32,
    /// Its length.
    pub bytes: u32,
}

/// Three words as they stand in a message.
pub(crate) fn put_words(words: [u64; 3]) -> [u8; SEALED_DESCRIPTOR_BYTES] {
    let mut out = [0; SEALED_DESCRIPTOR_BYTES];
    let (places, _) = out.as_chunks_mut::<8>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    out
}

/// The words of such a message; `None` if it is not as long as one.
pub(crate) fn words_in(bytes: &[u8]) -> Option<[u64; 3]> {
    let bytes: &[u8; SEALED_DESCRIPTOR_BYTES] = bytes.try_into().ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    Some([words[0], words[1], words[2]].map(u64::from_le_bytes))
}

/// A seal in the making, piece by piece.
#[derive(Debug, Clone)]
pub struct Sealing(SipHasher13);

impl Sealing {
    /// Of message `number`, nothing of it yet.
    pub fn new(number: u64) -> Sealing {
        Sealing(SipHasher13::new_with_keys(number, KEY))
    }

    /// The next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Of all bytes so far.
    pub fn seal(&self) -> u64 {
        self.0.finish()
    }
}

impl SealedDescriptor {
    /// A whole message that lies at `offset`.
    pub fn of(number: u64, offset: u32, message: &[u8]) -> SealedDescriptor {
        let mut sealing = Sealing::new(number);
        sealing.add(message);
        SealedDescriptor { number, seal: sealing.seal(), offset, bytes: message.len() as u32 }
    }

    /// As it stands in a message.
    pub fn to_bytes(self) -> [u8; SEALED_DESCRIPTOR_BYTES] {
        put_words([self.number, self.seal, u64::from(self.bytes) << 32 | u64::from(self.offset)])
    }

    /// From a message; `None` if it is not as long as one.
    pub fn parse(bytes: &[u8]) -> Option<SealedDescriptor> {
        let [number, seal, last] = words_in(bytes)?;
        Some(SealedDescriptor { number, seal, offset: last as u32, bytes: (last >> 32) as u32 })
    }

    /// Whether it lies within memory of so many bytes.
    pub fn fits(&self, memory_bytes: usize) -> bool {
        u64::from(self.offset) + u64::from(self.bytes) <= memory_bytes as u64
    }

    /// Copy it out of `memory`, behind what is in `out`. False, and `out` as it was: it does not
    /// lie there, or not whole, or not any more.
    pub fn open(&self, memory: &[AtomicU64], out: &mut Vec<u8>) -> bool {
        if !self.fits(size_of_val(memory)) {
            return false;
        }
        let start = out.len();
        words::read_into(memory, self.offset as usize, self.bytes as usize, out);
        let mut sealing = Sealing::new(self.number);
        sealing.add(&out[start..]);
        let is_right = sealing.seal() == self.seal;
        if !is_right {
            out.truncate(start);
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_comes_back_and_has_one_length() {
        let sealed_descriptor = SealedDescriptor {
            number: 1 << 40 | 5,
            seal: u64::MAX - 3,
            offset: 7,
            bytes: 0xffff_fffe,
        };
        let bytes = sealed_descriptor.to_bytes();
        assert_eq!(SealedDescriptor::parse(&bytes), Some(sealed_descriptor));
        assert_eq!(SealedDescriptor::parse(&bytes[1..]), None);
        assert_eq!(SealedDescriptor::parse(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn a_parcel_opens_by_its_own_bytes_at_its_own_place_alone() {
        let memory: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
        let message: Vec<u8> = (0..200).collect();
        words::write(&memory, 40, &message);
        let sealed_descriptor = SealedDescriptor::of(9, 40, &message);
        let opens = |sealed_descriptor: SealedDescriptor| {
            let mut out = b"before".to_vec();
            let opened = sealed_descriptor.open(&memory, &mut out);
            assert_eq!(&out[..6], b"before");
            assert!(if opened { out[6..] == message } else { out.len() == 6 });
            opened
        };
        assert!(opens(sealed_descriptor));
        for wrong in [
            SealedDescriptor { number: 10, ..sealed_descriptor },
            SealedDescriptor { seal: sealed_descriptor.seal ^ 1, ..sealed_descriptor },
            SealedDescriptor { offset: 41, ..sealed_descriptor },
            SealedDescriptor { offset: u32::MAX, ..sealed_descriptor },
            SealedDescriptor { bytes: 199, ..sealed_descriptor },
            SealedDescriptor { bytes: u32::MAX, ..sealed_descriptor },
            SealedDescriptor { offset: 57, ..sealed_descriptor },
        ] {
            assert!(!opens(wrong), "{wrong:?}");
        }
        for at in 40..240 {
            let was = [message[at - 40]];
            words::write(&memory, at, &[was[0] ^ 0x10]);
            assert!(!opens(sealed_descriptor), "byte {at} is another");
            words::write(&memory, at, &was);
        }
        assert!(opens(sealed_descriptor));
    }

    #[test]
    fn a_seal_is_the_same_however_its_message_was_cut() {
        let message: Vec<u8> = (0..1000).map(|at| (at * 7) as u8).collect();
        let whole = SealedDescriptor::of(3, 0, &message).seal;
        for cut in [0, 1, 7, 8, 999] {
            let mut sealing = Sealing::new(3);
            sealing.add(&message[..cut]);
            sealing.add(&message[cut..]);
            assert_eq!(sealing.seal(), whole, "{cut}");
        }
        assert_eq!(
            SealedDescriptor::of(1, 0, b"laneway").seal,
            SEAL_OF_LANEWAY,
            "docs/protocol.md has it"
        );
    }

    /// Of message 1, which is `laneway`.
    const SEAL_OF_LANEWAY: u64 = 0xe9ec_3e31_16aa_91db;
}
