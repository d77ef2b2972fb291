//! YCSB's core workloads (Cooper et al., 2010, table 2).

use laneway_load::random::Random;

/// The longest scan of workload E; lengths are uniform from 1.
pub const SCAN_ITEMS_MAX: u64 = 100;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read one item.
    Read,
    /// Read one of the latest items.
    ReadLatest,
    /// Write an item that is there.
    Update,
    /// Write an item that was not there.
    Insert,
    /// Read some items in the order of their names.
    Scan,
    /// Read one and write it.
    ReadModifyWrite,
}

/// A mix of two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// What it is called.
    pub letter: char,
    often: Operation,
    /// How often in percent; the rest is `seldom`.
    percent: u64,
    seldom: Operation,
}

use Operation::{Insert, Read, ReadLatest, ReadModifyWrite, Scan, Update};

const fn mix(letter: char, often: Operation, percent: u64, seldom: Operation) -> Workload {
    Workload { letter, often, percent, seldom }
}

const WORKLOADS: [Workload; 6] = [
    mix('A', Read, 50, Update),
    mix('B', Read, 95, Update),
    mix('C', Read, 100, Read),
    mix('D', ReadLatest, 95, Insert),
    mix('E', Scan, 95, Insert),
    mix('F', Read, 50, ReadModifyWrite),
];

impl Workload {
    /// The one of this letter.
    pub fn of(letter: char) -> Option<Workload> {
        WORKLOADS.into_iter().find(|workload| workload.letter == letter)
    }

    /// What comes next.
    pub fn operation(&self, random: &mut Random) -> Operation {
        if random.below(100) < self.percent { self.often } else { self.seldom }
    }
}

/// One workload by so many threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// As it was asked for, and as it is reported: `A` or `A@64`.
    pub name: String,
    /// The workload.
    pub workload: Workload,
    /// Its threads.
    pub threads: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_in_the_shares_of_the_workload() {
        const DRAWS: u32 = 20_000;
        for (letter, operation, share) in [
            ('A', Update, 0.5),
            ('B', Read, 0.95),
            ('C', Read, 1.0),
            ('D', Insert, 0.05),
            ('D', ReadLatest, 0.95),
            ('E', Scan, 0.95),
            ('F', ReadModifyWrite, 0.5),
        ] {
            let workload = Workload::of(letter).expect("a letter of the table");
            let mut random = Random::new(1);
            let hits = (0..DRAWS).filter(|_| workload.operation(&mut random) == operation).count();
            let found = hits as f64 / f64::from(DRAWS);
            assert!((found - share).abs() < 0.02, "{letter} {operation:?}: {found}");
        }
        assert_eq!(Workload::of('G'), None);
    }
}
