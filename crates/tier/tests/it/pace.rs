//! Migration and compaction go no faster than their rate, by a clock from outside; but no write
//! waits for that, however slow it is.

use crate::common::{Kind, Machine, PM_BYTES, SEGMENT_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{ItemMeta, Stats, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SECOND: u64 = 1_000_000_000;
/// So that a segment takes a second, about.
const RATE: u64 = SEGMENT_BYTES as u64;

struct Paced {
    tier: Tier,
    now: Arc<AtomicU64>,
    written: u64,
}

impl Paced {
    fn new(kind: Kind, bytes_per_second: u64) -> Paced {
        let machine = Machine::sized(kind, &Faults::default(), 8 << 20);
        let (tier, _) = machine.open(settings()).unwrap();
        let now = Arc::new(AtomicU64::new(SECOND));
        let clock = now.clone();
        tier.lend_clock(Box::new(move || clock.load(Relaxed)));
        tier.limit_migration(bytes_per_second);
        Paced { tier, now, written: 0 }
    }

    fn put(&mut self) {
        let bytes = value(self.written, 700);
        self.tier.put(&self.written.to_be_bytes(), &bytes, ItemMeta::default()).unwrap();
        self.written += 1;
    }

    /// Writes until migration is due.
    fn fill(&mut self) {
        while self.tier.usage().migration_backlog_bytes == 0 {
            self.put();
        }
    }

    /// Does all that is due now; what was moved.
    fn maintain(&self) -> u64 {
        let before = self.stats().moved_bytes;
        while self.tier.maintain().unwrap() {}
        self.stats().moved_bytes - before
    }

    fn stats(&self) -> Stats {
        self.tier.stats()
    }
}

#[test]
fn migration_is_no_faster_than_its_rate() {
    for kind in [Kind::Pm, Kind::Wal, Kind::PmFair] {
        let mut paced = Paced::new(kind, RATE);
        paced.fill();
        let mut moved = paced.maintain();
        assert!(0 < moved, "{kind:?}: nothing was moved before");
        let began = paced.now.load(Relaxed);
        for _ in 0..200 {
            paced.fill();
            moved += paced.maintain();
            assert_eq!(paced.stats().rate_yields, 0, "{kind:?}: there is room");
            let seconds = (paced.now.fetch_add(SECOND / 5, Relaxed) - began) / (SECOND / 5);
            // One turn goes before its time: two segments, or what two tables take.
            let allowed = RATE * seconds / 5 + 3 * u64::from(SEGMENT_BYTES);
            assert!(moved <= allowed, "{kind:?}: {moved} of {allowed} bytes");
        }
        assert!(RATE * 20 < moved, "{kind:?}: it goes on, {moved} bytes");
    }
}

#[test]
fn a_rate_that_is_too_low_lets_no_log_run_full_and_is_told() {
    for kind in [Kind::Pm, Kind::Wal] {
        let mut paced = Paced::new(kind, 1);
        // Many times the log, and time stands still.
        for _ in 0..10 * PM_BYTES / 700 {
            paced.put();
            paced.tier.maintain().unwrap();
        }
        let stats = paced.stats();
        assert!(0 < stats.rate_yields, "{kind:?}");
        assert_eq!(stats.stalls, 0, "{kind:?}: no writer had to make room");
        // Without anybody who maintains, writers make room: they do not wait either.
        for _ in 0..3 * PM_BYTES / 700 {
            paced.put();
        }
        let after = paced.stats();
        assert!(0 < after.stalls && stats.rate_yields < after.rate_yields, "{kind:?}");
    }
}

#[test]
fn a_rate_changes_at_once_and_none_is_none() {
    let mut paced = Paced::new(Kind::Pm, 1);
    paced.fill();
    assert!(0 < paced.maintain(), "nothing was moved before");
    paced.fill();
    assert_eq!(paced.maintain(), 0, "it takes hours");
    assert_eq!(paced.stats().migrate_rate, 1);
    paced.tier.limit_migration(0);
    assert!(0 < paced.maintain());
    paced.fill();
    assert!(0 < paced.maintain());
}
