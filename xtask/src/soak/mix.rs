//! The sizes of Facebook's ETC pool as Minos models them (Minos §5), and how p_L changes.
//!
//! Tiny 1–13 B and small 14–1400 B values stand 40 to 60; large ones are uniform up to s_L, which
//! is 400 KB here: below the default item limit, above many slices. Sizes are value bytes.

use crate::random;
use fastrand::Rng;

const TINY_BYTES_MAX: usize = 13;
const SMALL_BYTES_MAX: usize = 1400;
const LARGE_BYTES_MIN: usize = 1500;
/// s_L of Minos §5.
pub const LARGE_BYTES_MAX: usize = 400_000;
const TINY_PARTS: u32 = 4_000;

/// p_L in parts of 10 000: nearly everything small, or large requests the most of the work.
const LOW: [usize; 3] = [0, 12, 75];
const HIGH: [usize; 3] = [500, 1_000, 2_000];

/// p_L for a second: low and high take turns, so that every step asks for other roles.
pub fn large_parts(step: u32, random: &mut Rng) -> u32 {
    let levels = if step.is_multiple_of(2) { LOW } else { HIGH };
    levels[random.usize(..levels.len())] as u32
}

/// The length of a value that is not large.
pub fn small_length(random: &mut Rng) -> usize {
    match random::chance(random, TINY_PARTS) {
        true => random.usize(1..=TINY_BYTES_MAX),
        false => random.usize(TINY_BYTES_MAX + 1..=SMALL_BYTES_MAX),
    }
}

/// The length of a large value.
pub fn large_length(random: &mut Rng) -> usize {
    random.usize(LARGE_BYTES_MIN..=LARGE_BYTES_MAX)
}
