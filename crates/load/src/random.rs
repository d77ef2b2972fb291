//! Random numbers that stay the same: a run is repeated from its seed, so the stream of numbers is
//! part of what we promise and may not change with a library's version. xoshiro256++ seeded by
//! splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators"), and a
//! stateless mix for what must be a pure function of a key.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One well-mixed word from another: a bijection of 64-bit words (splitmix64's finalizer).
pub const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A pure function of two words, used for everything that belongs to a key.
pub const fn mix_pair(seed: u64, word: u64) -> u64 {
    mix(seed ^ mix(word))
}

/// `0..count` picked by the high bits of `word`; the bias is below `count / 2^64`.
pub const fn scale(word: u64, count: u64) -> u64 {
    ((word as u128 * count as u128) >> 64) as u64
}

/// A stream of random numbers that depends on its seed alone.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        let a = mix(seed);
        let b = mix(a);
        let c = mix(b);
        // splitmix64 never yields four zero words in a row, the one state that would stick.
        Random { state: [a, b, c, mix(c)] }
    }

    /// The stream number `index` of `seed`: one for each thread, independent of each other.
    pub const fn stream(seed: u64, index: u64) -> Self {
        Random::new(mix_pair(seed, index))
    }

    /// The next word.
    pub const fn word(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A whole number in `0..count`.
    pub const fn below(&mut self, count: u64) -> u64 {
        scale(self.word(), count)
    }

    /// A number in [0, 1), in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// An exponentially distributed number with this mean: the gap between Poisson arrivals.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - unit is in (0, 1], so the logarithm is finite.
        -(1.0 - self.unit()).ln() * mean
    }
}
