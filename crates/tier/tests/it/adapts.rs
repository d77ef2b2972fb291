//! The boundary that adapts beside each single path: on each timed medium, for the writes of YCSB's
//! mixes under Zipf and uniform, it takes the media no more than 1 / 0.97 of what the better path
//! takes, once the log was turned over twenty times, in 24 more. Where straight to the SSD is the
//! better path it writes at most 0.65 of the bytes of the log's, both media counted: that path
//! writes a long value to the log, to a sort table, and again when tables are merged. Where the log
//! is the better path the boundary takes it, and with it the log's bytes: nothing is asked of them.
//! The time is counted, so each run repeats exactly; `--nocapture` shows what each path took and
//! wrote.

use crate::timed::timed_disk::{DiskTimes, FLASH_SSD, OPTANE_SSD, VIRTUAL_DISK};
use crate::timed::{Draws, Log, Timed, key};
use laneway_tier::{ItemMeta, Settings};

const SEGMENTS: usize = 16;
const SSD_BYTES: usize = 32 << 20;
/// The most that the boundary writes of what all through the log does, where straight to the SSD is
/// better than that by more than [`CLEARLY`]: nearer to each other the boundary may stay with
/// either.
const OF_LOG_BYTES: f64 = 0.65;
const CLEARLY: f64 = 1.05;

/// Values of two sizes, by turns.
struct Sizes {
    value_bytes: [usize; 2],
    records: usize,
    segment_bytes: usize,
}

/// Records as those of bench/tier, some four times the log.
const YCSB: Sizes = Sizes { value_bytes: [256, 4096], records: 2000, segment_bytes: 64 << 10 };
/// Values of which the longer ones cost more to migrate than to write at once, where flushes do
/// not cost more than that.
const WIDE: Sizes = Sizes { value_bytes: [256, 48 << 10], records: 400, segment_bytes: 128 << 10 };

impl Sizes {
    fn of(&self, number: usize) -> usize {
        self.value_bytes[number % 2]
    }

    fn log_bytes(&self) -> usize {
        SEGMENTS * self.segment_bytes
    }

    /// How many turn over a log that all of them go through.
    fn turn_over(&self) -> usize {
        2 * self.log_bytes() / self.value_bytes.iter().sum::<usize>()
    }
}

/// What comes with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// A read of another item.
    A,
    /// Nineteen.
    B,
    /// One, and one of the item itself.
    F,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Log,
    Ssd,
    Adapts,
}

/// What a path came to.
struct Told {
    /// Media's time for a write, migration included.
    write_us: f64,
    /// Bytes written to log and SSD for each of the user's.
    log_bytes: f64,
    ssd_bytes: f64,
    /// Where the boundary is at the end, and how often it moved.
    split_bytes: u64,
    moves: u64,
}

impl Told {
    /// To both media, for each of the user's.
    fn bytes(&self) -> f64 {
        self.log_bytes + self.ssd_bytes
    }

    fn line(&self) -> String {
        let Told { write_us, log_bytes, ssd_bytes, split_bytes, moves } = self;
        format!(
            "{write_us:.2} us, log {log_bytes:.2} and SSD {ssd_bytes:.2} bytes for a byte, \
             boundary {split_bytes} after {moves} moves"
        )
    }
}

struct Run<'a> {
    machine: Timed,
    sizes: &'a Sizes,
    draws: Draws,
    workload: Workload,
    value: Vec<u8>,
    nanos: u64,
    user_bytes: usize,
}

impl Run<'_> {
    fn read(&self, number: usize) {
        assert!(self.machine.tier.get(&key(number)).unwrap().is_some());
    }

    fn put(&mut self, number: usize) {
        let bytes = self.sizes.of(number);
        let began = self.machine.time.now();
        let (key, value) = (key(number), &self.value[..bytes]);
        self.machine.tier.put(&key, value, ItemMeta::default()).unwrap();
        self.machine.maintain();
        self.nanos += self.machine.time.now() - began;
        self.user_bytes += key.len() + bytes;
    }

    fn write(&mut self) {
        let others = if self.workload == Workload::B { 19 } else { 1 };
        for _ in 0..others {
            let number = self.draws.number();
            self.read(number);
        }
        let number = self.draws.number();
        if self.workload == Workload::F {
            self.read(number);
        }
        self.put(number);
    }
}

fn run(
    (log, times): (Log, DiskTimes),
    sizes: &Sizes,
    (workload, is_zipf): (Workload, bool),
    path: Path,
) -> Told {
    let settings = Settings {
        split_bytes: match path {
            Path::Log => usize::MAX,
            Path::Ssd => 0,
            Path::Adapts => 4096,
        },
        split_adapts: path == Path::Adapts,
        segment_bytes: sizes.segment_bytes as u32,
        background: false,
        ..Settings::default()
    };
    let mut run = Run {
        machine: Timed::open(log, times, (sizes.log_bytes(), SSD_BYTES), settings),
        sizes,
        draws: Draws::new(sizes.records, is_zipf),
        workload,
        value: vec![7; sizes.value_bytes[1]],
        nanos: 0,
        user_bytes: 0,
    };
    (0..sizes.records).for_each(|number| run.put(number));
    (0..20 * sizes.turn_over()).for_each(|_| run.write());
    let before = run.machine.tier.usage();
    (run.nanos, run.user_bytes) = (0, 0);
    // Long enough for compaction, which comes in bursts: by eight turns over it is still by chance
    // how many a path had.
    let writes = 24 * sizes.turn_over();
    (0..writes).for_each(|_| run.write());
    let after = run.machine.tier.usage();
    let by_user = |bytes: u64| bytes as f64 / run.user_bytes as f64;
    Told {
        write_us: run.nanos as f64 / writes as f64 / 1000.0,
        log_bytes: by_user(after.log_written_bytes - before.log_written_bytes),
        ssd_bytes: by_user(after.ssd_written_bytes - before.ssd_written_bytes),
        split_bytes: after.split_bytes,
        moves: after.split_moves,
    }
}

/// How often straight to the SSD was clearly the better path.
fn adapts_to(medium: (Log, DiskTimes)) -> usize {
    let mut straight_won = 0;
    for (name, sizes) in [("256 B and 4 KB", &YCSB), ("256 B and 48 KB", &WIDE)] {
        for workload in [Workload::A, Workload::B, Workload::F] {
            for is_zipf in [true, false] {
                let [log, ssd, adapts] = [Path::Log, Path::Ssd, Path::Adapts]
                    .map(|path| run(medium, sizes, (workload, is_zipf), path));
                let of_log_bytes = adapts.bytes() / log.bytes();
                let what = format!(
                    "{name}, {workload:?}, Zipf {is_zipf}\n  log: {}\n  SSD: {}\n  adapts: {}, \
                     {of_log_bytes:.2} of the log's bytes",
                    log.line(),
                    ssd.line(),
                    adapts.line()
                );
                println!("{what}");
                assert!(adapts.write_us * 0.97 <= log.write_us.min(ssd.write_us), "{what}");
                if ssd.write_us * CLEARLY < log.write_us {
                    straight_won += 1;
                    assert!(of_log_bytes <= OF_LOG_BYTES, "{what}");
                }
            }
        }
    }
    straight_won
}

#[test]
fn it_tracks_the_better_path_on_the_papers_media() {
    assert!(0 < adapts_to((Log::Memory, OPTANE_SSD)), "long values gain by going straight");
}

#[test]
fn it_tracks_the_better_path_on_a_flash_drive() {
    assert!(0 < adapts_to((Log::Beside, FLASH_SSD)), "long values gain by going straight");
}

#[test]
fn it_tracks_the_better_path_on_a_virtual_disk() {
    // All straight to the SSD pays for a second write of each short value: it may win nowhere.
    adapts_to((Log::Beside, VIRTUAL_DISK));
}

#[test]
fn it_tracks_the_better_path_with_a_log_in_memory_before_a_virtual_disk() {
    // There the log's flush costs next to nothing, and it may be the better path for all.
    adapts_to((Log::Memory, VIRTUAL_DISK));
}
