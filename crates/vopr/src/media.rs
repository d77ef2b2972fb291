//! What a store lies on in a run: how its disks fail and rot, and disks that are not its own or of
//! another day (docs/disk-format.md).

use laneway_rig::durable::{Machine, SEGMENT_BYTES};
use laneway_tier::disk::Disk;
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{Settings, Tier};

/// Bytes of the log.
pub const LOG_BYTES: usize = 24 * SEGMENT_BYTES as usize;

/// Between the two superblocks.
const SUPERBLOCK_BYTES: usize = 65_536;
/// What of a superblock or of a segment's header is not zeros, about.
const FRONT_BYTES: usize = 256;

/// How often disks fail, drawn; writes and flushes only where they may.
pub fn faults(random: &mut Random, writes_fail: bool) -> Faults {
    let mut one_in = |often: u64| match random.one_in(2) {
        true if often > 0 => often + random.below(often),
        _ => 0,
    };
    let writes = if writes_fail { 1500 } else { 0 };
    Faults {
        short_write_one_in: one_in(20),
        read_error_one_in: one_in(300),
        write_error_one_in: one_in(writes),
        sync_error_one_in: one_in(writes),
        ..Faults::default()
    }
}

/// How often a read gives flipped bits, drawn, besides `others`.
pub fn flips(random: &mut Random, others: Faults) -> Faults {
    Faults { flip_read_one_in: 50 + random.below(400), ..others }
}

/// A machine with the same on larger disks; how much larger, and what is there, `salt` says.
pub fn enlarged(machine: &Machine, salt: u64) -> Machine {
    let segments = (salt >> 8) as usize % 4;
    let mebibytes = (salt >> 16) as usize % 3;
    let behind = if salt >> 24 & 1 == 0 { 0 } else { (salt >> 32) as u8 };
    machine.longer((1 + segments) * SEGMENT_BYTES as usize, mebibytes << 20, behind)
}

/// A store that is open is as large as its disks, whatever they were before.
pub fn takes_all(machine: &Machine, tier: &Tier) -> Result<(), String> {
    let usage = tier.usage();
    let (has, there) =
        ((usage.log_bytes, usage.ssd_bytes), (machine.log.bytes(), machine.ssd.bytes()));
    match has == there {
        true => Ok(()),
        false => Err(format!("the store has {has:?} bytes of log and SSD, and these {there:?}")),
    }
}

/// How many superblocks were written to the SSD.
pub fn superblocks(machine: &Machine) -> u64 {
    root(&machine.ssd.part(0..2 * SUPERBLOCK_BYTES)).number
}

/// What lies on both disks of a machine, at some time.
pub struct Images {
    log: Vec<u8>,
    ssd: Vec<u8>,
}

impl Images {
    /// Now.
    pub fn of(machine: &Machine) -> Images {
        Images { log: machine.log.image(), ssd: machine.ssd.image() }
    }

    /// A machine that has it.
    pub fn machine(&self) -> Machine {
        Machine::of(u64::MAX, self.log.clone(), self.ssd.clone())
    }

    /// Some bytes of the one or of the other change; now and then at the front of what names the
    /// rest.
    pub fn rot(&mut self, random: &mut Random) {
        let is_log = random.one_in(2);
        let (medium, apart) = match is_log {
            true => (&mut self.log, SEGMENT_BYTES as usize),
            false => (&mut self.ssd, SUPERBLOCK_BYTES),
        };
        let fronts = if is_log { medium.len() / apart } else { 2 } as u64;
        for _ in 0..1 + random.below(3) {
            match random.one_in(4) {
                true => {
                    let front = apart * random.below(fronts) as usize;
                    damage(&mut medium[front..front + FRONT_BYTES], random);
                }
                false => damage(medium, random),
            }
        }
    }
}

/// A bit, or a few bytes, where something was written.
fn damage(medium: &mut [u8], random: &mut Random) {
    const TRIES: usize = 40;
    const NEAR: usize = 32;
    let mut at = 0;
    for _ in 0..TRIES {
        at = random.below((medium.len() - NEAR) as u64) as usize;
        if medium[at..at + NEAR].iter().any(|byte| *byte != 0) {
            break;
        }
    }
    match random.one_in(2) {
        true => medium[at] ^= 1 << random.below(8),
        false => medium[at..at + NEAR].iter_mut().for_each(|byte| *byte ^= random.number() as u8),
    }
}

/// Of how many keys a start has told that they are damaged; `None` if it could not tell of all.
pub fn keys_told(problems: &[String]) -> Option<usize> {
    // What the rest of the medium makes good.
    let is_made_good = |problem: &&String| {
        problem.starts_with("superblock")
            || problem.starts_with("checkpoint")
            || problem.contains("has no whole header")
    };
    let left: Vec<&String> = problems.iter().filter(|problem| !is_made_good(problem)).collect();
    left.iter().all(|problem| problem.contains("claims to be of key")).then_some(left.len())
}

/// The newest superblock: its number, and where its newest checkpoint begins.
struct Root {
    number: u64,
    generation: u64,
    offset: u32,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it is 8 bytes"))
}

fn root(ssd: &[u8]) -> Root {
    let read = |slot: &[u8]| Root {
        number: u64_at(slot, 40),
        generation: u64_at(slot, 56),
        offset: u64_at(slot, 64) as u32,
    };
    let both = [read(&ssd[..SUPERBLOCK_BYTES]), read(&ssd[SUPERBLOCK_BYTES..])];
    both.into_iter().max_by_key(|root| root.number).expect("there are two")
}

/// The header of a segment, where a slot has one.
struct Segment<'a> {
    generation: u64,
    superblock: u64,
    bytes: &'a [u8],
}

fn segments(log: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    const MAGIC: u64 = 0x3147_4553_5941_4e4c;
    log.chunks(SEGMENT_BYTES as usize).filter(|slot| u64_at(slot, 0) == MAGIC).map(|bytes| {
        Segment { generation: u64_at(bytes, 24), superblock: u64_at(bytes, 52), bytes }
    })
}

/// Whether a log got at least as far as the newest checkpoint, which was made with `now`.
fn reaches(log: &[u8], root: &Root, now: &[u8]) -> bool {
    let newest = segments(log).map(|segment| segment.generation).max().unwrap_or(0);
    let begun = root.generation.saturating_sub(u64::from(root.offset == 0));
    if newest != begun || root.offset == 0 {
        return begun <= newest;
    }
    let front = |log| {
        let mut all = segments(log);
        all.find(|segment| segment.generation == begun).map(|segment| &segment.bytes[4096..])
    };
    let bytes = (root.offset as usize).saturating_sub(4096);
    match (front(log), front(now)) {
        (Some(old), Some(now)) => old[..bytes] == now[..bytes],
        _ => true, // it was migrated since
    }
}

/// A store that is offered with an older copy of its log or of its SSD must be refused and left as
/// it is, wherever the other one shows that it was further. Returns whether it was.
pub fn offer_older(
    machine: &Machine,
    settings: Settings,
    older: &Images,
    is_log: bool,
) -> Result<bool, String> {
    let now = Images::of(machine);
    let (what, log, ssd, shows) = match is_log {
        true => {
            let shows = !reaches(&older.log, &root(&now.ssd), &now.log);
            ("log", older.log.clone(), now.ssd, shows)
        }
        false => {
            let newest = segments(&now.log).max_by_key(|segment| segment.generation);
            let known = newest.map_or(0, |segment| segment.superblock);
            ("SSD", now.log, older.ssd.clone(), root(&older.ssd).number < known)
        }
    };
    let offered = Machine::of(u64::MAX, log.clone(), ssd.clone());
    if offered.open_damaged(settings, 7).is_ok() {
        return match shows {
            true => Err(format!("the store opens with an older {what}")),
            false => Ok(false),
        };
    }
    match offered.log.image() == log && offered.ssd.image() == ssd {
        true => Ok(true),
        false => Err(format!("the store is refused with an older {what}, and was written to")),
    }
}

/// A store that is offered with a log or an SSD that is blank, or another store's, must be refused,
/// and nothing may be written. `which` of the four it is.
pub fn offer_wrong(machine: &Machine, settings: Settings, which: u64) -> Result<(), String> {
    let (log, ssd) = (machine.log.image(), machine.ssd.image());
    let other = Machine::new(log.len(), ssd.len());
    let foreign = other.open_as(settings, 8);
    drop(foreign.map_err(|error| format!("a new store cannot be made: {error}"))?);
    let (what, log, ssd) = match which {
        0 => ("a blank log", vec![0; log.len()], ssd),
        1 => ("another store's log", other.log.image(), ssd),
        2 => ("a blank SSD", log, vec![0; ssd.len()]),
        _ => ("another store's SSD", log, other.ssd.image()),
    };
    let wrong = Machine::of(u64::MAX, log.clone(), ssd.clone());
    if wrong.open(settings).is_ok() {
        return Err(format!("the store opens with {what}"));
    }
    match wrong.log.image() == log && wrong.ssd.image() == ssd {
        true => Ok(()),
        false => Err(format!("the store is refused with {what}, and something was written")),
    }
}
