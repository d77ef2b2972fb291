//! To which worker a key belongs: the rule that a client and the server must share, so that a PUT
//! goes straight to the queue of the key's owner (Minos §4.1; MICA §4.1 "Parallel Data Access").
//!
//! Three steps. [`hash`] makes 64 bits of a key and a public seed; the high bits choose the NUMA
//! domain; what is left of them chooses a queue of that domain. Each choice is one multiplication:
//! 64 bits read as a fraction of 1, times the count, rounded down. So neighbours in hash stay
//! neighbours in queue, and no division is needed.
//!
//! It departs from MICA, which takes the bits of the hash that also chooses bucket and tag: that
//! hash is seeded in secret here, to guard the index against keys made to collide, and a client
//! must know this one. Whoever knows the seed can aim keys at one *queue*; that costs its worker's
//! time at worst, as asking for one hot key does, and never lengthens a bucket's chain. The seed is
//! told by `stats topology`.
//!
//! The function is fixed: its name is [`HASH_NAME`], its test vectors are in the tests. It knows no
//! socket, port or connection.

use crate::units::WorkerId;

/// What `stats topology` calls this function. A client that knows another name only must not place
/// keys.
pub const HASH_NAME: &str = "owner-1";

/// The seed of a server that was given none.
pub const SEED: u64 = 0x6c61_6e65_7761_7931;

/// Most NUMA domains.
pub const DOMAINS_MAX: u16 = 16;

/// Odd, and of no pattern: the first bits of pi's fraction.
const MULTIPLIER: u64 = 0x243f_6a88_85a3_08d3;
/// The finalizer's: the first bits of e's fraction, made odd.
const MULTIPLIER_LAST: u64 = 0xb7e1_5162_8aed_2a6b;

/// What places a key: 64 bits, of which the high ones matter most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerHash(pub u64);

/// The hash of `key`.
///
/// `h = seed ^ length * M`; for each 8 bytes of the key as a little-endian number (the last ones
/// filled up with zeros) `h = (h ^ word) * M; h ^= h >> 32`; then twice more, with `M'`:
/// `h = h * M'; h ^= h >> 32`. All numbers have 64 bits and wrap.
#[inline]
pub fn hash(seed: u64, key: &[u8]) -> OwnerHash {
    let mut state = seed ^ (key.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        state = stir(state ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        state = stir(state ^ u64::from_le_bytes(last), MULTIPLIER);
    }
    OwnerHash(stir(stir(state, MULTIPLIER_LAST), MULTIPLIER_LAST))
}

#[inline(always)]
fn stir(state: u64, multiplier: u64) -> u64 {
    let product = state.wrapping_mul(multiplier);
    product ^ (product >> 32)
}

impl OwnerHash {
    /// Which of `queues` the key belongs to, where there is one domain.
    #[inline]
    pub const fn queue(self, queues: u16) -> WorkerId {
        WorkerId(self.split(queues).0)
    }

    /// Which of `count`, and what remains of the hash to choose by again.
    #[inline]
    const fn split(self, count: u16) -> (u16, OwnerHash) {
        let product = self.0 as u128 * count as u128;
        ((product >> 64) as u16, OwnerHash(product as u64))
    }
}

/// How many queues and domains there are, and the seed: all that a client needs to place a key.
///
/// Worker i has queue i. Domain d of D has the queues from `d * queues / D` up to where domain
/// d + 1 begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    seed: u64,
    queues: u16,
    domains: u16,
}

impl Placement {
    /// `None` unless there are queues and every domain has one.
    pub const fn new(seed: u64, queues: u16, domains: u16) -> Option<Placement> {
        if domains == 0 || domains > DOMAINS_MAX || queues < domains {
            return None;
        }
        Some(Placement { seed, queues, domains })
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Queues, of all domains together.
    pub const fn queues(&self) -> u16 {
        self.queues
    }

    /// NUMA domains.
    pub const fn domains(&self) -> u16 {
        self.domains
    }

    /// The hash of `key`, for the questions below.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> OwnerHash {
        hash(self.seed, key)
    }

    /// The NUMA domain whose memory holds the key, from 0.
    #[inline]
    pub const fn domain(&self, hash: OwnerHash) -> u16 {
        hash.split(self.domains).0
    }

    /// The worker that writes the key (CREW), or serves it altogether (EREW).
    #[inline]
    pub fn owner(&self, hash: OwnerHash) -> WorkerId {
        let (domain, rest) = hash.split(self.domains);
        let (first, count) = self.queues_of(domain);
        WorkerId(first.0 + rest.split(count).0)
    }

    /// A worker of the key's domain, where any will do (GETs under CREW): chosen by `draw`, which
    /// is any random number.
    #[inline]
    pub fn any_of_domain(&self, hash: OwnerHash, draw: u64) -> WorkerId {
        let (first, count) = self.queues_of(self.domain(hash));
        WorkerId(first.0 + OwnerHash(draw).split(count).0)
    }

    /// A domain's first queue, and how many it has.
    pub const fn queues_of(&self, domain: u16) -> (WorkerId, u16) {
        assert!(domain < self.domains, "there is no such domain");
        let (first, end) = (self.begin(domain), self.begin(domain + 1));
        (WorkerId(first), end - first)
    }

    const fn begin(&self, domain: u16) -> u16 {
        (domain as u32 * self.queues as u32 / self.domains as u32) as u16
    }
}
