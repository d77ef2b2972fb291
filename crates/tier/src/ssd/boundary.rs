//! The boundary between the two paths: values of that size and above go straight to the SSD, as
//! long as that costs less now (SplitKV, "Size Boundary of KV Items", where it is fixed).
//!
//! Costs are the media's time, as moving averages by classes of sizes: what a group of records
//! takes, what one with values takes by their bytes, and what migration and compaction take for
//! each byte of the log, which counts as far as the log is as full as migration lets it become. The
//! boundary is the power of two by which the writes that come now would cost the least. It moves
//! where that is cheaper by [`BAND`], and has been [`PATIENCE`] times in a row: between paths that
//! cost the same it stays.
//!
//! What was not measured counts for the least that it can be, and what was long ago for less and
//! less; so each path is tried again in time, the more seldom the dearer it was.
//!
//! Arithmetic: it knows no clock, lock or medium. It takes a group's writes for alike, and does not
//! know that a short value straight to the SSD takes a whole block of it.

use crate::types::BLOCK_BYTES;

/// Classes of sizes: powers of two from 64 bytes on, the last without end.
const CLASSES: usize = 16;
const FIRST_BYTES: usize = 64;
/// Of a record beside its value: header, commit word, a key of some 32 bytes, padding.
const AROUND_VALUE_BYTES: f64 = 112.0;
/// The record of a value that is on the SSD.
const POINTER_RECORD_BYTES: f64 = 128.0;
/// By so much of its own cost another boundary must be cheaper.
const BAND: f64 = 1.0 / 40.0;
/// So often in a row.
const PATIENCE: u32 = 3;
/// Groups between two looks.
const LOOK_GROUPS: u64 = 8;
/// Groups after which what was not measured meanwhile counts for less.
const FORGET_GROUPS: u64 = 4096;
/// What is left of it then.
const FORGOTTEN: f64 = 7.0 / 8.0;
/// The share of the newest in a moving average.
const NEWEST: f64 = 1.0 / 32.0;
/// The same of a segment's migration, and of a compaction.
const NEWEST_SEGMENT: f64 = 1.0 / 8.0;
/// A single time counts as at most so many times the average: media hiccup.
const HICCUP: f64 = 4.0;
/// Nothing takes less, whatever was left for it.
const NANOS_MIN: f64 = 100.0;
/// Sizes tell of what a byte costs where they differ by this share.
const SPREAD: f64 = 1.0 / 50.0;
/// Writes after which half of a mix is forgotten.
const MIX_WRITES: f64 = 4096.0;

/// One more of what fades.
fn fade(sum: &mut f64, newest: u64) {
    *sum = *sum * (1.0 - NEWEST_SEGMENT) + newest as f64;
}

fn class_of(bytes: usize) -> usize {
    let class = (bytes.max(FIRST_BYTES) / FIRST_BYTES).ilog2() as usize;
    class.min(CLASSES - 1)
}

/// Writes of a class: how many, bytes of their values, and of the blocks that these take.
#[derive(Debug, Clone, Copy, Default)]
struct Writes {
    count: f64,
    bytes: f64,
    block_bytes: f64,
}

impl Writes {
    fn add(&mut self, more: Writes) {
        self.count += more.count;
        self.bytes += more.bytes;
        self.block_bytes += more.block_bytes;
    }

    fn halve(&mut self) {
        self.count /= 2.0;
        self.bytes /= 2.0;
        self.block_bytes /= 2.0;
    }
}

/// Writes by the sizes of their values.
#[derive(Debug, Clone, Default)]
pub struct Mix([Writes; CLASSES]);

impl Mix {
    /// One more.
    pub fn count(&mut self, value_bytes: usize) {
        let block_bytes = value_bytes.max(1).next_multiple_of(BLOCK_BYTES) as f64;
        let one = Writes { count: 1.0, bytes: value_bytes as f64, block_bytes };
        self.0[class_of(value_bytes)].add(one);
    }

    fn writes(&self) -> f64 {
        self.0.iter().map(|writes| writes.count).sum()
    }
}

/// A group that was made durable.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// Bytes of its records.
    pub log_bytes: u64,
    /// Values that it wrote straight to the SSD.
    pub values: u64,
    /// Their bytes.
    pub ssd_bytes: u64,
    /// How long it took.
    pub nanos: u64,
}

/// What was measured of a class of sizes: moving averages, and how they vary together.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    bytes: f64,
    nanos: f64,
    variance: f64,
    covariance: f64,
    /// Nanoseconds for each byte more, when sizes last differed enough to tell: also after those of
    /// one end of the class have gone the other way, or they would be tried again and again.
    slope: Option<f64>,
    is_fresh: bool,
}

impl Point {
    fn measure(&mut self, bytes: f64, nanos: f64) {
        if !self.is_fresh {
            *self = Point { bytes, nanos, is_fresh: true, ..Point::default() };
            return;
        }
        let (by, nanos_by) =
            (bytes - self.bytes, nanos.min(self.nanos.max(NANOS_MIN) * HICCUP) - self.nanos);
        self.bytes += by * NEWEST;
        self.nanos += nanos_by * NEWEST;
        self.variance = (1.0 - NEWEST) * (self.variance + NEWEST * by * by);
        self.covariance = (1.0 - NEWEST) * (self.covariance + NEWEST * by * nanos_by);
        if (self.bytes * SPREAD).powi(2) < self.variance {
            self.slope = Some(self.covariance / self.variance);
        }
    }

    fn slope(&self) -> Option<f64> {
        self.slope.map(|slope| slope.clamp(0.0, self.nanos / self.bytes))
    }
}

/// How long something takes by its size.
#[derive(Debug, Default)]
struct Curve([Point; CLASSES]);

impl Curve {
    fn measure(&mut self, bytes: u64, nanos: f64) {
        self.0[class_of(bytes as usize)].measure(bytes.max(1) as f64, nanos);
    }

    /// In nanoseconds: between two points on their line. Beyond them as the nearest goes on; where
    /// it does not tell, the least that it can be, if more bytes take longer, and each of them no
    /// longer than in a shorter one.
    fn at(&self, bytes: f64) -> f64 {
        let measured = || self.0.iter().filter(|point| 0.0 < point.bytes);
        let below = measured().rfind(|point| point.bytes <= bytes);
        let above = measured().find(|point| bytes < point.bytes);
        match (below, above) {
            (None, None) => 0.0,
            (None, Some(above)) => {
                let slope = above.slope().unwrap_or(above.nanos / above.bytes);
                above.nanos - slope * (above.bytes - bytes)
            }
            (Some(below), None) => {
                below.nanos + below.slope().unwrap_or(0.0) * (bytes - below.bytes)
            }
            (Some(below), Some(above)) => {
                let share = (bytes - below.bytes) / (above.bytes - below.bytes);
                below.nanos + (above.nanos - below.nanos) * share
            }
        }
    }

    fn forget(&mut self) {
        for point in &mut self.0 {
            if !std::mem::take(&mut point.is_fresh) {
                point.nanos *= FORGOTTEN;
                point.slope = point.slope.map(|slope| slope * FORGOTTEN);
            }
        }
    }
}

/// The boundary, and what it is worked out from.
#[derive(Debug)]
pub struct Boundary {
    /// Groups of records alone.
    log: Curve,
    /// Groups with values on the SSD and their records, and writes of sort tables.
    ssd: Curve,
    /// What migration took, how many bytes of the log it freed, and how many of sort tables it
    /// wrote; they fade.
    moved_nanos: f64,
    moved_bytes: f64,
    tabled_bytes: f64,
    /// What compaction took, and how many bytes of sort tables there were fewer; they fade.
    compacted_nanos: f64,
    reclaimed_bytes: f64,
    /// Writes by class; they fade.
    mix: Mix,
    /// Writes in a group.
    group_writes: f64,
    groups: u64,
    /// The class from which on values go to the SSD.
    class: usize,
    /// The last that it may be.
    class_most: usize,
    /// Where it would be better, and how often in a row that was so.
    better: (usize, u32),
    table_bytes: f64,
}

impl Boundary {
    /// At `bytes` until something is measured, and never beyond the class of `bytes_max`.
    pub fn new(bytes: usize, bytes_max: usize, table_bytes: usize) -> Boundary {
        let class_most = class_of(bytes_max);
        let class = class_of(bytes).min(class_most);
        Boundary {
            log: Curve::default(),
            ssd: Curve::default(),
            moved_nanos: 0.0,
            moved_bytes: 0.0,
            tabled_bytes: 0.0,
            compacted_nanos: 0.0,
            reclaimed_bytes: 0.0,
            mix: Mix::default(),
            group_writes: 1.0,
            groups: 0,
            class,
            class_most,
            better: (class, 0),
            table_bytes: table_bytes as f64,
        }
    }

    /// Values of this size and above go straight to the SSD.
    pub fn bytes(&self) -> usize {
        FIRST_BYTES << self.class
    }

    /// A sort table of so many bytes was written, or several of so many each.
    pub fn table_took(&mut self, bytes: u64, nanos: u64) {
        self.ssd.measure(bytes, nanos as f64);
    }

    /// Migration took so long, freed so many bytes of the log, and wrote so many of sort tables.
    pub fn migration_took(&mut self, freed_bytes: u64, tabled_bytes: u64, nanos: u64) {
        fade(&mut self.moved_nanos, nanos);
        fade(&mut self.moved_bytes, freed_bytes);
        fade(&mut self.tabled_bytes, tabled_bytes);
    }

    /// Compaction took so long, and sort tables have so many bytes fewer.
    pub fn compaction_took(&mut self, reclaimed_bytes: u64, nanos: u64) {
        fade(&mut self.compacted_nanos, nanos);
        fade(&mut self.reclaimed_bytes, reclaimed_bytes);
    }

    /// A group was made durable, with these writes. `fullness` is 1 where the log is as full as
    /// migration lets it become.
    pub fn group_took(&mut self, took: Took, mix: &Mix, fullness: f64) {
        let nanos = took.nanos as f64;
        match took.ssd_bytes {
            0 => self.log.measure(took.log_bytes, nanos),
            bytes => {
                // What other records of the group took is not the values' cost.
                let own = self.log.at(POINTER_RECORD_BYTES * took.values as f64);
                let others = (self.log.at(took.log_bytes as f64) - own).max(0.0);
                self.ssd.measure(bytes, (nanos - others).max(0.0));
            }
        }
        self.add_mix(mix);
        self.groups += 1;
        if self.groups.is_multiple_of(FORGET_GROUPS) {
            self.log.forget();
            self.ssd.forget();
        }
        if self.groups.is_multiple_of(LOOK_GROUPS) {
            self.look(fullness.clamp(0.0, 1.0));
        }
    }

    fn add_mix(&mut self, mix: &Mix) {
        let writes = mix.writes();
        // A group of migration's own says nothing of how many come together.
        if 0.0 < writes {
            self.group_writes += (writes - self.group_writes) * NEWEST;
        }
        self.mix.0.iter_mut().zip(mix.0).for_each(|(sum, more)| sum.add(more));
        if MIX_WRITES < self.mix.writes() {
            self.mix.0.iter_mut().for_each(Writes::halve);
        }
    }

    /// For each byte of the log. What goes to a sort table is reclaimed there once, sooner or
    /// later: compaction counts by that, since it comes in bursts and long after.
    fn migration_nanos(&self, fullness: f64) -> f64 {
        let compaction = match 0.0 < self.reclaimed_bytes {
            true => self.compacted_nanos / self.reclaimed_bytes,
            false => 0.0,
        };
        let by_byte = match 0.0 < self.moved_bytes {
            true => (self.moved_nanos + self.tabled_bytes * compaction) / self.moved_bytes,
            // As if all of it went to sort tables.
            false => self.ssd.at(self.table_bytes) / self.table_bytes,
        };
        by_byte * fullness
    }

    /// A value of so many bytes by way of the log, and straight to the SSD, where it takes blocks
    /// of so many.
    fn both_nanos(&self, bytes: f64, block_bytes: f64, fullness: f64) -> (f64, f64) {
        let writes = self.group_writes.max(1.0);
        let migration = self.migration_nanos(fullness);
        let record_bytes = bytes + AROUND_VALUE_BYTES;
        let through = self.log.at(record_bytes * writes) / writes + migration * record_bytes;
        let straight = self.ssd.at(block_bytes * writes) / writes;
        (through, straight + migration * POINTER_RECORD_BYTES)
    }

    /// Moves to where the mix costs the least.
    fn look(&mut self, fullness: f64) {
        // With the boundary at the first class all goes to the SSD; each class further takes the
        // writes of one from there to the log.
        let mut nanos = [0.0; CLASSES];
        // Longer ones have no choice.
        for (class, writes) in self.mix.0[..self.class_most].iter().enumerate() {
            let Writes { count, bytes, block_bytes } = *writes;
            if count <= 0.0 {
                continue;
            }
            let (log, ssd) = self.both_nanos(bytes / count, block_bytes / count, fullness);
            for (boundary, nanos) in nanos[..=self.class_most].iter_mut().enumerate() {
                *nanos += count * if class < boundary { log } else { ssd };
            }
        }
        let distance = |class: usize| class.abs_diff(self.class);
        let best = (0..=self.class_most)
            .min_by(|&one, &other| {
                let by_nanos = nanos[one].total_cmp(&nanos[other]);
                by_nanos.then(distance(one).cmp(&distance(other)))
            })
            .unwrap_or(self.class);
        if nanos[self.class] <= nanos[best] * (1.0 + BAND) {
            self.better = (self.class, 0);
            return;
        }
        let times = if self.better.0 == best { self.better.1 + 1 } else { 1 };
        self.better = (best, times);
        if times == PATIENCE {
            self.class = best;
            self.better = (best, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Media whose times are lines, in nanoseconds and nanoseconds a byte.
    #[derive(Debug, Clone, Copy)]
    struct Costs {
        group: f64,
        log_byte: f64,
        value: f64,
        ssd_byte: f64,
        moved_byte: f64,
    }

    impl Costs {
        fn log_nanos(self, bytes: f64) -> f64 {
            self.group + self.log_byte * bytes
        }

        fn ssd_nanos(self, value_bytes: usize) -> f64 {
            self.value + self.ssd_byte * value_bytes.next_multiple_of(BLOCK_BYTES) as f64
        }

        /// The oracle: a write by the path that the boundary sends it.
        fn write_nanos(self, value_bytes: usize, boundary: usize) -> f64 {
            let record = |bytes: f64| self.log_nanos(bytes) + self.moved_byte * bytes;
            match value_bytes < boundary {
                true => record(value_bytes as f64 + AROUND_VALUE_BYTES),
                false => self.ssd_nanos(value_bytes) + record(POINTER_RECORD_BYTES),
            }
        }

        fn mix_nanos(self, sizes: &[usize], boundary: usize) -> f64 {
            sizes.iter().map(|bytes| self.write_nanos(*bytes, boundary)).sum()
        }

        /// The least that a boundary can make of it.
        fn least_nanos(self, sizes: &[usize]) -> f64 {
            let boundaries = (0..CLASSES).map(|class| FIRST_BYTES << class);
            let each = boundaries.map(|boundary| self.mix_nanos(sizes, boundary));
            each.fold(f64::INFINITY, f64::min)
        }

        /// Carries out a write, alone in its group.
        fn write(self, boundary: &mut Boundary, value_bytes: usize) {
            let mut mix = Mix::default();
            mix.count(value_bytes);
            let is_small = value_bytes < boundary.bytes();
            let (record, ssd_bytes, value) = match is_small {
                true => (value_bytes as f64 + AROUND_VALUE_BYTES, 0, 0.0),
                false => {
                    let bytes = value_bytes.next_multiple_of(BLOCK_BYTES) as u64;
                    (POINTER_RECORD_BYTES, bytes, self.ssd_nanos(value_bytes))
                }
            };
            let nanos = (self.log_nanos(record) + value) as u64;
            let values = u64::from(!is_small);
            let took = Took { log_bytes: record as u64, values, ssd_bytes, nanos };
            boundary.group_took(took, &mix, 1.0);
        }

        /// Writes these sizes by turns, and migrates now and then.
        fn run(self, boundary: &mut Boundary, sizes: &[usize], writes: usize) {
            for (nth, &bytes) in sizes.iter().cycle().take(writes).enumerate() {
                if nth % 64 == 0 {
                    let nanos = self.moved_byte * f64::from(1 << 20);
                    boundary.migration_took(1 << 20, 0, nanos as u64);
                }
                self.write(boundary, bytes);
            }
        }
    }

    fn boundary() -> Boundary {
        Boundary::new(4096, 2 << 20, 1 << 20)
    }

    /// SplitKV's media, and migration in blocks as there.
    const PAPER: Costs =
        Costs { group: 150.0, log_byte: 0.23, value: 11_600.0, ssd_byte: 0.6, moved_byte: 3.5 };

    #[test]
    fn classes_are_powers_of_two_and_the_boundary_is_the_first_size_of_one() {
        let sizes = [0, 64, 127, 128, 4095, 4096, 1 << 20, 1 << 21, usize::MAX];
        assert_eq!(sizes.map(class_of), [0, 0, 0, 1, 5, 6, 14, 15, 15]);
        assert_eq!(boundary().bytes(), 4096);
        // A log that takes 1 KB at most.
        let mut short = Boundary::new(4096, 1500, 1 << 20);
        assert_eq!(short.bytes(), 1024);
        PAPER.run(&mut short, &[100, 700, 8192], 1000);
        assert_eq!(short.bytes(), 1024);
    }

    #[test]
    fn a_curve_lies_on_the_lines_between_its_points_and_is_never_above_what_may_be() {
        let mut curve = Curve::default();
        assert_eq!(curve.at(5.0), 0.0);
        curve.measure(1000, 100.0);
        assert_eq!([500.0, 1000.0, 9000.0].map(|bytes| curve.at(bytes)), [50.0, 100.0, 100.0]);
        curve.measure(9000, 900.0);
        assert_eq!(curve.at(5000.0), 500.0);
        // A hiccup counts as four times the average, and what is old as less.
        curve.measure(1000, 1e9);
        assert_eq!(curve.at(1000.0), 100.0 + 300.0 / 32.0);
        curve.forget();
        assert_eq!(curve.at(9000.0), 900.0);
        curve.forget();
        assert_eq!(curve.at(9000.0), 900.0 * 7.0 / 8.0);
        curve.measure(9000, 1800.0);
        assert_eq!(curve.at(9000.0), 1800.0, "the first after a long time counts for itself");
    }

    #[test]
    fn on_the_papers_media_it_is_the_papers_boundary_and_elsewhere_another() {
        let sizes = [256, 1024, 5000, 16 << 10];
        let mut paper = boundary();
        PAPER.run(&mut paper, &sizes, 4000);
        assert_eq!(paper.bytes(), 4096);
        // Migration by large writes.
        let mut ours = boundary();
        Costs { moved_byte: 0.6, ..PAPER }.run(&mut ours, &sizes, 4000);
        assert!(16 << 10 < ours.bytes(), "{}", ours.bytes());
        // A log that costs more by byte than the SSD costs at all.
        let mut all = boundary();
        Costs { log_byte: 900.0, ..PAPER }.run(&mut all, &sizes, 4000);
        assert!(all.bytes() <= 256, "{}", all.bytes());
    }

    #[test]
    fn media_that_change_move_it_there_and_back() {
        let mut boundary = boundary();
        let sizes = [8192];
        let slow_ssd = Costs { value: 100_000.0, ..PAPER };
        slow_ssd.run(&mut boundary, &sizes, 2000);
        assert!(8192 < boundary.bytes());
        // Nothing goes straight to the SSD now; that it has become fast is found out all the same.
        PAPER.run(&mut boundary, &sizes, 200_000);
        assert!(boundary.bytes() <= 8192);
        slow_ssd.run(&mut boundary, &sizes, 2000);
        assert!(8192 < boundary.bytes());
    }

    #[test]
    fn a_log_that_is_far_from_full_has_nothing_to_migrate() {
        let mut boundary = boundary();
        PAPER.run(&mut boundary, &[16 << 10], 1000);
        let (full, _) = boundary.both_nanos(16384.0, 16384.0, 1.0);
        let (empty, _) = boundary.both_nanos(16384.0, 16384.0, 0.0);
        let moved = 3.5 * (16384.0 + AROUND_VALUE_BYTES);
        assert!((full - empty - moved).abs() < 1.0, "{full} {empty} {moved}");
    }

    #[test]
    fn compaction_counts_by_what_it_reclaims_however_much_at_once() {
        let mut boundary = boundary();
        boundary.migration_took(1000, 500, 1000);
        assert_eq!(boundary.migration_nanos(1.0), 1.0);
        boundary.compaction_took(100, 400);
        assert_eq!(boundary.migration_nanos(1.0), (1000.0 + 500.0 * 4.0) / 1000.0);
        boundary.compaction_took(1000, 4000);
        assert_eq!(boundary.migration_nanos(1.0), 3.0, "a burst");
        assert_eq!(boundary.migration_nanos(0.5), 1.5);
    }

    proptest! {
        /// Given constant costs it is where the writes cost the least, but for the band; it has
        /// tried the paths for that and then stays.
        #[test]
        fn with_constant_costs_no_boundary_is_cheaper_by_more_than_the_band(
            group in 100.0..200_000.0_f64,
            log_byte in 0.0..2.0_f64,
            value in 100.0..200_000.0_f64,
            ssd_byte in 0.0..2.0_f64,
            moved_byte in 0.0..8.0_f64,
            sizes in prop::collection::vec(64..200_000_usize, 1..5),
        ) {
            let costs = Costs { group, log_byte, value, ssd_byte, moved_byte };
            let mut boundary = boundary();
            costs.run(&mut boundary, &sizes, 3000);
            let stays = boundary.bytes();
            let (ours, least) = (costs.mix_nanos(&sizes, stays), costs.least_nanos(&sizes));
            prop_assert!(ours <= least * (1.0 + 2.0 * BAND), "{stays}: {ours} {least}");
            let mut moves = 0;
            for _ in 0..100 {
                let before = boundary.bytes();
                costs.run(&mut boundary, &sizes, 8);
                moves += u32::from(boundary.bytes() != before);
            }
            prop_assert!(moves <= 1, "{moves} times");
        }
    }
}
