//! Defines the buckets of a latency histogram: 16 of equal width to each power of two, from 8 ns to
//! 73 minutes. They are fixed, so that histograms of different workers, servers and moments can be
//! added and subtracted, here or outside.
//!
//! It knows no operation and no clock. Times are nanoseconds.

/// Buckets to a power of two, as a power of two: each is at most a sixteenth of its times wide.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
/// Times are counted in units of 8 ns, since no clock tells less apart.
const UNIT_BITS: u32 = 3;
/// Times from here on share the last bucket: 2^42 ns, 73 minutes.
const TOP_BITS: u32 = 42;
/// How many there are.
pub const BUCKETS: usize = (TOP_BITS - UNIT_BITS - STEP_BITS + 1) as usize * STEPS + 1;
const OVERFLOW: usize = BUCKETS - 1;

/// The bucket that this time falls into.
#[inline]
pub const fn bucket(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    // The lowest steps are a unit wide each, so they are found as if 16 units were the first power.
    let shift = (units | STEPS as u64).ilog2() - STEP_BITS;
    let index = shift as usize * STEPS + (units >> shift) as usize;
    if index < OVERFLOW { index } else { OVERFLOW }
}

/// The first time that is longer than those in this bucket; none is longer than those in the last.
pub const fn end_nanos(bucket: usize) -> u64 {
    if bucket >= OVERFLOW {
        return u64::MAX;
    }
    let next = bucket + 1;
    if next < STEPS {
        return (next as u64) << UNIT_BITS;
    }
    let shift = next / STEPS - 1;
    ((next % STEPS + STEPS) as u64) << (shift as u32 + UNIT_BITS)
}

const _: () = assert!(bucket(0) == 0 && bucket(u64::MAX) == OVERFLOW);
const _: () = assert!(bucket((1 << TOP_BITS) - 1) == OVERFLOW - 1);
const _: () = assert!(end_nanos(OVERFLOW - 1) == 1 << TOP_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_where_the_next_begins_and_none_is_wider_than_a_sixteenth() {
        let mut begin = 0;
        for index in 0..OVERFLOW {
            let end = end_nanos(index);
            assert!(end > begin);
            assert_eq!((bucket(begin), bucket(end - 1), bucket(end)), (index, index, index + 1));
            let width = end - begin;
            assert!(width <= 8 || width <= begin / 16, "{index}: {begin} to {end}");
            begin = end;
        }
        assert_eq!(bucket(begin), OVERFLOW);
    }

    #[test]
    fn every_power_of_two_from_128_ns_on_ends_a_bucket() {
        for bits in 7..=TOP_BITS {
            assert_eq!(end_nanos(bucket((1 << bits) - 1)), 1 << bits);
        }
    }
}
