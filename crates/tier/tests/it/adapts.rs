//! The boundary that adapts beside each single path: on each timed medium, for the writes of YCSB's
//! mixes under Zipf and uniform, it takes the media no more than 1 / 0.97 of what the better path
//! takes, once the log was turned over twenty times, in 24 more. Where straight to the SSD is the
//! better path it writes at most 0.65 of the bytes of the log's, both media counted: that path
//! writes a long value to the log, to a sort table, and again when tables are merged. Where the log
//! is the better path the boundary takes it, and with it the log's bytes: nothing is asked of them.
//!
//! A single path does the same on all media with such a log, whatever time they take: it is run
//! once, and timed as each of them. The time is counted, so each run repeats exactly; `--nocapture`
//! shows what each path took and wrote.

use crate::timed::timed_disk::{DiskTimes, FLASH_SSD, OPTANE_SSD, VIRTUAL_DISK};
use crate::timed::{Draws, Log, Timed, key};
use laneway_tier::{ItemMeta, MigrateBy, Settings};

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

struct Run<'a, const N: usize> {
    machine: Timed,
    sizes: &'a Sizes,
    draws: Draws,
    workload: Workload,
    value: Vec<u8>,
    /// By the time of each disk.
    nanos: [u64; N],
    user_bytes: usize,
}

impl<const N: usize> Run<'_, N> {
    fn now(&self) -> [u64; N] {
        std::array::from_fn(|at| self.machine.times[at].now())
    }

    fn read(&self, number: usize) {
        assert!(self.machine.tier.get(&key(number)).unwrap().is_some());
    }

    fn put(&mut self, number: usize) {
        let bytes = self.sizes.of(number);
        let began = self.now();
        let (key, value) = (key(number), &self.value[..bytes]);
        self.machine.tier.put(&key, value, ItemMeta::default()).unwrap();
        self.machine.maintain();
        let now = self.now();
        self.nanos = std::array::from_fn(|at| self.nanos[at] + now[at] - began[at]);
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

/// What a path came to on each of these disks; one that adapts goes by the time of one.
fn run<const N: usize>(
    (log, disks): (Log, [DiskTimes; N]),
    sizes: &Sizes,
    (workload, is_zipf): (Workload, bool),
    path: Path,
) -> [Told; N] {
    assert!(path != Path::Adapts || N == 1, "there is one clock");
    let settings = Settings {
        split_bytes: match path {
            Path::Log => usize::MAX,
            Path::Ssd => 0,
            Path::Adapts => 4096,
        },
        split_adapts: path == Path::Adapts,
        segment_bytes: sizes.segment_bytes as u32,
        migrate_by: Some(MigrateBy::Hotness),
        background: false,
        ..Settings::default()
    };
    let mut run = Run {
        machine: Timed::open_as_each(log, &disks, (sizes.log_bytes(), SSD_BYTES), settings),
        sizes,
        draws: Draws::new(sizes.records, is_zipf),
        workload,
        value: vec![7; sizes.value_bytes[1]],
        nanos: [0; N],
        user_bytes: 0,
    };
    (0..sizes.records).for_each(|number| run.put(number));
    (0..20 * sizes.turn_over()).for_each(|_| run.write());
    let before = run.machine.tier.usage();
    (run.nanos, run.user_bytes) = ([0; N], 0);
    // Long enough for compaction, which comes in bursts: by eight turns over it is still by chance
    // how many a path had.
    let writes = 24 * sizes.turn_over();
    (0..writes).for_each(|_| run.write());
    let after = run.machine.tier.usage();
    let by_user = |bytes: u64| bytes as f64 / run.user_bytes as f64;
    run.nanos.map(|nanos| Told {
        write_us: nanos as f64 / writes as f64 / 1000.0,
        log_bytes: by_user(after.log_written_bytes - before.log_written_bytes),
        ssd_bytes: by_user(after.ssd_written_bytes - before.ssd_written_bytes),
        split_bytes: after.split_bytes,
        moves: after.split_moves,
    })
}

/// How often straight to the SSD was clearly the better path, on each of these disks.
fn adapts_to<const N: usize>(log: Log, disks: [(&str, DiskTimes); N]) -> [usize; N] {
    let mut straight_won = [0; N];
    for (name, sizes) in [("256 B and 4 KB", &YCSB), ("256 B and 48 KB", &WIDE)] {
        for workload in [Workload::A, Workload::B, Workload::F] {
            for is_zipf in [true, false] {
                let writes = (workload, is_zipf);
                let times = disks.map(|(_, times)| times);
                let all_log = run((log, times), sizes, writes, Path::Log);
                let all_ssd = run((log, times), sizes, writes, Path::Ssd);
                let paths = all_log.iter().zip(&all_ssd);
                for (((disk, times), (log_told, ssd_told)), won) in
                    disks.into_iter().zip(paths).zip(&mut straight_won)
                {
                    let [adapts] = run((log, [times]), sizes, writes, Path::Adapts);
                    let of_log_bytes = adapts.bytes() / log_told.bytes();
                    let what = format!(
                        "{disk}, {name}, {workload:?}, Zipf {is_zipf}\n  log: {}\n  SSD: {}\n  \
                         adapts: {}, {of_log_bytes:.2} of the log's bytes",
                        log_told.line(),
                        ssd_told.line(),
                        adapts.line()
                    );
                    println!("{what}");
                    let better = log_told.write_us.min(ssd_told.write_us);
                    assert!(adapts.write_us * 0.97 <= better, "{what}");
                    if ssd_told.write_us * CLEARLY < log_told.write_us {
                        *won += 1;
                        assert!(of_log_bytes <= OF_LOG_BYTES, "{what}");
                    }
                }
            }
        }
    }
    straight_won
}

#[test]
fn it_tracks_the_better_path_with_a_log_in_memory() {
    let disks = [("the paper's SSD", OPTANE_SSD), ("a virtual disk", VIRTUAL_DISK)];
    // Before a virtual disk the log's flush costs next to nothing, and it may be the better path
    // for all.
    let [papers, _] = adapts_to(Log::Memory, disks);
    assert!(0 < papers, "long values gain by going straight");
}

#[test]
fn it_tracks_the_better_path_with_a_log_beside_the_values() {
    let disks = [("a flash drive", FLASH_SSD), ("a virtual disk", VIRTUAL_DISK)];
    // On a virtual disk all straight to the SSD pays for a second write of each short value: it may
    // win nowhere.
    let [flash, _] = adapts_to(Log::Beside, disks);
    assert!(0 < flash, "long values gain by going straight");
}
