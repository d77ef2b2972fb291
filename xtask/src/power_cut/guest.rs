//! What runs inside the machine whose power is cut: opens a store, compares it with what was
//! acknowledged in earlier lives, and writes on until it is done or the power is gone.
//!
//! An acknowledgement leaves the machine before the next group begins: as a line on the console,
//! waited for until its last bit is out; or as a block on a partition of the very disk that is
//! logged, written but not flushed, so that the log says what came before it.

use super::workload::{self, Expected, LOG_BYTES, Life, SSD_BYTES, Workload};
use crate::vm::SAID;
use crate::{Failure, Outcome, passed};
use laneway_tier::disk::Disk;
use laneway_tier::disk::real::FileDisk;
use laneway_tier::{BLOCK_BYTES, Backend, Blocks, Directory, DirectorySettings};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Begins, behind [`SAID`], what is acknowledged.
pub const ACKNOWLEDGED: &str = "acknowledged ";
/// Where the store's lock lies.
const FOLDER: &str = "/run/store";

/// The lives that ended behind these operations, such as `153,299`, as [`told_lives`] writes it.
fn lives(text: &str, workload: &Workload) -> Result<Vec<Life>, Failure> {
    let mut lives: Vec<Life> = Vec::new();
    for acknowledged in text.split(',').filter(|part| !part.is_empty()) {
        let wrong = |_| Failure::Usage(format!("--lives {text}: expected numbers and commas"));
        let acknowledged = acknowledged.parse::<u64>().map_err(wrong)?;
        lives.push(Life { first: Life::first(lives.last(), workload), acknowledged });
    }
    Ok(lives)
}

/// Lives as the flag has them.
pub fn told_lives(lives: &[Life]) -> String {
    lives.iter().map(|life| life.acknowledged.to_string()).collect::<Vec<_>>().join(",")
}

/// Where acknowledgements go.
enum Acknowledgements {
    Console,
    Disk(FileDisk, Blocks),
}

impl Acknowledgements {
    fn open(path: Option<&Path>) -> Result<Acknowledgements, String> {
        let Some(path) = path else { return Ok(Acknowledgements::Console) };
        let disk = FileDisk::open(path).map_err(|error| error.to_string())?;
        Ok(Acknowledgements::Disk(disk, Blocks::zeroed(BLOCK_BYTES)))
    }

    fn tell(&mut self, number: u64) -> Result<(), String> {
        match self {
            Acknowledgements::Console => {
                let mut console = std::io::stdout().lock();
                writeln!(console, "{SAID}{ACKNOWLEDGED}{number}")
                    .and_then(|()| console.flush())
                    .and_then(|()| Ok(rustix::termios::tcdrain(&console)?))
                    .map_err(|error| format!("the console: {error}"))
            }
            Acknowledgements::Disk(disk, block) => {
                let bytes = block.as_mut();
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                disk.write_all(0, bytes).map_err(|error| format!("acknowledgements: {error}"))
            }
        }
    }
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut log, mut ssd, mut acknowledgements) = (PathBuf::new(), PathBuf::new(), None);
    let (mut dax, mut seed, mut before, mut until) = (false, 0, String::new(), u64::MAX);
    flags!(parser, {
        Long("log") => log = parser.value()?.into(),
        Long("ssd") => ssd = parser.value()?.into(),
        Long("dax") => dax = true,
        Long("acks") => acknowledgements = Some(PathBuf::from(parser.value()?)),
        Long("seed") => seed = parser.value()?.parse()?,
        Long("lives") => before = parser.value()?.string()?,
        Long("until") => until = parser.value()?.parse()?,
    });
    let workload = Workload { seed };
    let before = lives(&before, &workload)?;
    let settings = DirectorySettings {
        path: FOLDER.into(),
        pm_path: Some(log),
        backend: if dax { Backend::Dax } else { Backend::Wal },
        pm_bytes: LOG_BYTES,
        pm_grows: false,
        ssd_path: Some(ssd),
        ssd_bytes: SSD_BYTES,
        ssd_grows: false,
        // Where acknowledgements are on the logged disk nothing happens beside the writer, so that
        // the log tells what was flushed and what was not; the thread's work is done between two
        // groups.
        settings: workload::settings(acknowledgements.is_none()),
    };
    let (tier, report) =
        Directory::open(&settings, &mut |_, _| {}).map_err(|error| error.to_string())?;
    workload::sound(&report.problems)?;
    let items = Expected::after(workload, &before).check(&tier)?;
    if let Some(life) = before.last() {
        println!(
            "{SAID}recovered {items} items from {} bytes of log; none of {} acknowledged \
             operations lost",
            report.replayed_bytes, life.acknowledged
        );
    }
    let mut told = Acknowledgements::open(acknowledgements.as_deref())?;
    let mut next = Life::first(before.last(), &workload);
    while next <= until {
        let end = workload.group_end(next);
        workload.write_group(&tier, next..=end)?;
        told.tell(end)?;
        if acknowledgements.is_some() {
            tier.maintain().map_err(|error| error.to_string())?;
        }
        next = end + 1;
    }
    tier.close().map_err(|error| error.to_string())?;
    passed("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_read_as_they_are_told() {
        let workload = Workload { seed: 5 };
        let first = Life { first: 1, acknowledged: 153 };
        let second = Life { first: Life::first(Some(&first), &workload), acknowledged: 300 };
        let some = [first, second];
        assert_eq!(lives(&told_lives(&some), &workload).unwrap(), some);
        assert!(lives("", &workload).unwrap().is_empty());
        assert!(matches!(lives("1,a", &workload), Err(Failure::Usage(_))));
    }
}
