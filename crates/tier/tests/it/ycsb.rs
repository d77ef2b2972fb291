//! SplitKV's tables of YCSB's mean latencies with one thread (slides 16 and 19) beside this tier's
//! paths on media with the times of its slide 6, which are counted; `--nocapture` shows all.
//!
//! KVell is stood for by the path straight to the SSD where the block of a short value is read
//! before it is written, as KVell does and this tier does not. All through the log is this tier's
//! other path; the paper has no such store.
//!
//! What is counted is the media's time, migration and compaction with the writes that they follow.
//! The paper's times have the processor's, and its stores have memory over the SSD; here there is
//! none. Under uniform that makes little difference, since little of what is read is in memory;
//! under Zipf the paper's reads take half as long. So uniform is held to the paper, and Zipf to
//! what the paths are to each other.

use crate::timed::timed_disk::OPTANE_SSD;
use crate::timed::{Draws, Log, Timed, key, scrambled};
use laneway_tier::disk::sim::Random;
use laneway_tier::{BLOCK_BYTES, ItemMeta, MigrateBy, Settings};

/// Short and long ones by turns, as the paper's halves.
const VALUE_BYTES: [usize; 2] = [256, 4096];
const RECORDS: usize = 4000;
const SEGMENT_BYTES: usize = 32 << 10;
/// A seventeenth of the items.
const LOG_BYTES: usize = 16 * SEGMENT_BYTES;
const SSD_BYTES: usize = 64 << 20;
/// What says of sort tables that they are gone stays in the log until two checkpoints know it.
const CHECKPOINT_BYTES: u64 = 4 << 20;
const SCANNED_MOST: u64 = 100;
/// Operations before any is counted, and those that are; of E as many items.
const WARM_UP: usize = 3000;
const COUNTED: usize = 6000;
const SCANS_LESS: usize = 20;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const E: usize = 4;
const F: usize = 5;
/// The order in which YCSB asks for them: what inserts comes last.
const ORDER: [usize; 6] = [A, B, C, F, D, E];
const UNIFORM: usize = 1;

/// In µs, A to F; Zipf, then uniform.
const PAPER_SPLIT: [[f64; 6]; 2] =
    [[3.81, 4.65, 4.56, 4.56, 306.65, 5.05], [8.81, 12.78, 12.77, 9.22, 346.02, 13.87]];
const PAPER_KVELL: [[f64; 6]; 2] =
    [[11.76, 8.60, 8.64, 9.20, 609.38, 14.12], [17.86, 14.02, 13.31, 13.80, 670.69, 23.09]];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The paper's: short values through the log, those of 4096 bytes straight to the SSD.
    Split,
    /// The same, but that the oldest short values migrate, and not the coldest.
    Oldest,
    /// All straight to the SSD.
    Straight,
    /// The same, with a read before each write of a short value.
    ReadFirst,
    /// All through the log.
    Log,
}

struct Run {
    machine: Timed,
    way: Way,
    draws: Draws,
    latest: Draws,
    lengths: Random,
    records: usize,
    value: Vec<u8>,
}

impl Run {
    /// A store with its items.
    fn new(way: Way, is_zipf: bool) -> Run {
        let settings = Settings {
            split_bytes: match way {
                Way::Split | Way::Oldest => BLOCK_BYTES,
                Way::Straight | Way::ReadFirst => 0,
                Way::Log => usize::MAX,
            },
            segment_bytes: SEGMENT_BYTES as u32,
            migrate_by: Some(match way {
                Way::Oldest => MigrateBy::Age,
                _ => MigrateBy::Hotness,
            }),
            checkpoint_bytes: CHECKPOINT_BYTES,
            background: false,
            ..Settings::default()
        };
        let mut run = Run {
            machine: Timed::open(Log::Memory, OPTANE_SSD, (LOG_BYTES, SSD_BYTES), settings),
            way,
            draws: Draws::new(RECORDS, is_zipf),
            latest: Draws::new(RECORDS, true),
            lengths: Random::new(9),
            records: RECORDS,
            value: vec![7; VALUE_BYTES[1]],
        };
        (0..RECORDS).for_each(|nth| run.put(scrambled(nth, RECORDS)));
        run
    }

    fn put(&mut self, number: usize) {
        let value = &self.value[..VALUE_BYTES[number % 2]];
        if self.way == Way::ReadFirst && value.len() < BLOCK_BYTES {
            self.machine.time.pass(OPTANE_SSD.read.of(BLOCK_BYTES as u64));
        }
        self.machine.tier.put(&key(number), value, ItemMeta::default()).unwrap();
        self.machine.maintain();
    }

    fn insert(&mut self) {
        self.put(self.records);
        self.records += 1;
    }

    fn read(&self, number: usize) {
        assert!(self.machine.tier.get(&key(number)).unwrap().is_some());
    }

    fn scan(&mut self) {
        let from = key(self.draws.number());
        let limit = 1 + self.lengths.below(SCANNED_MOST) as usize;
        let items = self.machine.tier.scan(&from, None, limit);
        assert!(!items.is_empty() && items.iter().all(|(_, item)| item.is_ok()));
    }

    /// The operation of this number: one in two, or in twenty, writes.
    fn operate(&mut self, workload: usize, nth: usize) {
        let (one_in_two, one_in_twenty) = (nth.is_multiple_of(2), nth.is_multiple_of(20));
        let number = self.draws.number();
        match workload {
            A if one_in_two => self.put(number),
            B if one_in_twenty => self.put(number),
            D | E if one_in_twenty => self.insert(),
            D => {
                let back = self.latest.rank();
                self.read(self.records - 1 - back);
            }
            E => self.scan(),
            F if one_in_two => {
                self.read(number);
                self.put(number);
            }
            _ => self.read(number),
        }
    }

    /// What an operation takes on the average, in µs.
    fn mean_us(&mut self, workload: usize) -> f64 {
        let less = if workload == E { SCANS_LESS } else { 1 };
        (0..WARM_UP / less).for_each(|nth| self.operate(workload, nth));
        let (counted, began) = (COUNTED / less, self.machine.time.now());
        (0..counted).for_each(|nth| self.operate(workload, nth));
        (self.machine.time.now() - began) as f64 / counted as f64 / 1000.0
    }
}

/// A to F.
fn means(way: Way, is_zipf: bool) -> [f64; 6] {
    let mut run = Run::new(way, is_zipf);
    let mut means = [0.0; 6];
    for workload in ORDER {
        means[workload] = run.mean_us(workload);
    }
    means
}

fn row(name: &str, means: [f64; 6]) -> String {
    let numbers = means.map(|mean| format!("{mean:.2}")).join(" | ");
    format!("| {name} | {numbers} |\n")
}

fn over(one: [f64; 6], other: [f64; 6]) -> [f64; 6] {
    std::array::from_fn(|workload| one[workload] / other[workload])
}

#[test]
fn ycsb_on_the_papers_media_beside_the_paper_and_the_paths_beside_each_other() {
    for (distribution, is_zipf) in [true, false].into_iter().enumerate() {
        let ways = [Way::Split, Way::Oldest, Way::Straight, Way::ReadFirst, Way::Log];
        let [split, oldest, straight, read_first, log] = ways.map(|way| means(way, is_zipf));
        let (paper, kvell) = (PAPER_SPLIT[distribution], PAPER_KVELL[distribution]);
        let (ours, papers) = (over(split, read_first), over(paper, kvell));
        let told = [
            row(if is_zipf { "Zipf, us" } else { "uniform, us" }, split),
            row("SplitKV, paper", paper),
            row("straight, read first", read_first),
            row("KVell, paper", kvell),
            row("straight", straight),
            row("log", log),
            row("split, the oldest migrate", oldest),
            row("split of straight, read first", ours),
            row("SplitKV of KVell, paper", papers),
        ]
        .concat();
        println!("{told}");
        // Half of the writes, the short ones, cost next to nothing. What reads alone is as on the
        // path straight to the SSD, but for short values that are still in the log.
        let of_straight = over(split, straight);
        for (workload, most) in [(A, 0.85), (B, 1.03), (C, 1.03), (D, 1.03), (E, 1.03), (F, 0.9)] {
            assert!(of_straight[workload] <= most, "{workload}: {of_straight:.2?}\n{told}");
        }
        if distribution == UNIFORM {
            let as_papers = over(ours, papers);
            for workload in [A, B, C, F] {
                let as_paper = as_papers[workload];
                assert!((0.7..=1.5).contains(&as_paper), "{workload}: {as_paper:.2}\n{told}");
            }
            for workload in [A, F] {
                let of_paper = split[workload] / paper[workload];
                assert!((0.7..=1.3).contains(&of_paper), "{workload}: {of_paper:.2}\n{told}");
            }
        }
    }
}
