//! Power cuts of a machine with a real kernel: what the durable tier acknowledged must be there
//! afterwards, whole.
//!
//! Simulated media explore far more states (`crates/tier/tests/it/crash.rs`); what they cannot show
//! is that files, devices and mapped memory keep what we believe of them. So an emulated machine
//! ([`crate::vm`]) writes to a disk whose writes and flushes QEMU logs ([`writes`]), and the states
//! that the disk may have been left in are opened here one by one ([`states`]). Then the same
//! machine writes with its log in persistent memory (an emulated NVDIMM, ext4 with DAX) and large
//! values on that disk, and is killed, twice; each time the next start finds the memory as it was
//! and the disk without some of what was not flushed, compares, and goes on.
//!
//! QEMU has no processor cache: a missing write-back of a line is found by the simulation alone.

mod guest;
mod states;
mod workload;
mod writes;

use crate::vm::{self, initramfs, packages};
use crate::{Guarded, Outcome, passed, process, random};
use fastrand::Rng;
use guest::ACKNOWLEDGED;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use workload::{Life, Workload};

/// States of each kind (at flushes, and between them) that are opened from the log of one disk.
const STATES: usize = 240;
/// Writes and deletions of that run: with fewer there are not enough flushes to choose from.
const OPERATIONS: u64 = 5 * STATES as u64;
/// Of each control.
const CONTROLS: usize = 80;
/// The kills, with the log on an NVDIMM and with files.
const KILLS: usize = 2;
const KILLS_FILES: usize = 4;
/// A life lasts for at least so many operations behind its first, and at most for twice as many.
const LIFE_OPERATIONS: u64 = 250;
/// What the last life still writes, to show that the store is of use.
const EPILOGUE_OPERATIONS: u64 = 60;
/// A start takes well under a minute.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
const MEMORY: &str = "768M,slots=1,maxmem=2G";
const NVDIMM_BYTES: u64 = 64 << 20;
/// Far more than is ever logged; takes no space where nothing is written.
const WRITES_BYTES: u64 = 4 << 30;

/// ext4 asks for a checksum by name, which no dependency says.
const MODULES: &[&str] = &["crc32c_generic", "nvme", "nfit", "nd_pmem", "ext4"];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut seed, mut only_replays, mut files) = (1, false, false);
    flags!(parser, {
        // Ourselves, inside the machine.
        Value(word) if word == "guest" => return guest::main(parser),
        Long("seed") => seed = parser.value()?.parse()?,
        Long("replay") => only_replays = true,
        Long("files") => files = true,
    });
    let (folder, workload) = (process::scratch_dir("power-cut")?, Workload { seed });
    if only_replays {
        return passed(replay(&folder.join(FIRST), workload)?);
    }
    vm::need()?;
    let debian = packages::fetch(packages::Kernel::Ordinary)?;
    let archive = archive(&folder, &debian)?;
    let began = Instant::now();
    let mut machine = Machine::new(&debian, &archive, &folder, (workload, files))?;
    if files {
        while machine.lives.len() < KILLS_FILES {
            machine.run_and_kill()?;
        }
        machine.last_start()?;
        let took = began.elapsed().as_secs_f64();
        return passed(format!(
            "{KILLS_FILES} kills with log and SSD on one ext4: nothing acknowledged was lost; \
             {took:.0} s"
        ));
    }
    machine.run_and_kill()?;
    let told = replay(&folder.join(FIRST), workload)?;
    while machine.lives.len() < KILLS {
        machine.run_and_kill()?;
    }
    machine.last_start()?;
    let took = began.elapsed().as_secs_f64();
    passed(format!("{told}; {KILLS} kills: nothing acknowledged was lost; {took:.0} s"))
}

/// What a run leaves in its folder: memory, disk, its writes, and those of the first start, which
/// are replayed.
const NVDIMM: &str = "nvdimm";
const DISK: &str = "disk";
const WRITES: &str = "writes";
const FIRST: &str = "writes-first";

/// Opens the states of a log; what came out, in words.
fn replay(log: &Path, workload: Workload) -> Result<String, String> {
    let entries = writes::read(log, states::DISK_BYTES)?;
    let tally = states::replay(&entries, workload, STATES, CONTROLS).map_err(|why| {
        let seed = workload.seed;
        format!("{why} (the same states again: cargo xtask power-cut --replay --seed {seed})")
    })?;
    let told = format!(
        "{} states at and {} between {} flushes of an NVMe disk hold what was acknowledged; \
         controls found to lose: {} of {} without one flush, {} of {} without any",
        tally.at_flushes,
        tally.between,
        tally.flushes,
        tally.dropped.caught,
        tally.dropped.states,
        tally.ignored.caught,
        tally.ignored.states
    );
    println!("{told}");
    if tally.at_flushes < STATES {
        return Err(format!("only {} flushes, too few to choose from", tally.flushes));
    }
    // Something lost may be overwritten by what came later; but not often.
    for control in [tally.dropped, tally.ignored] {
        if control.states == 0 || control.caught * 10 < control.states * 9 {
            return Err("a control was not found to lose: the check sees too little".into());
        }
    }
    Ok(told)
}

/// The guest's files; this very program runs in it, without what a debugger wants.
fn archive(folder: &Path, debian: &packages::Debian) -> Result<PathBuf, String> {
    let program = folder.join("xtask");
    let ourselves = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut strip = Command::new("objcopy");
    process::run(strip.arg("--strip-debug").arg(&ourselves).arg(&program))?;
    let contents = initramfs::Contents {
        debian,
        ours: &[program.as_path()],
        programs: &["mke2fs"],
        loaded: &[],
        provider: None,
        modules: MODULES,
        script: &vm::script(SCRIPT, &[]),
    };
    initramfs::write(folder, &contents)
}

/// A machine that is started again and again.
struct Machine<'a> {
    debian: &'a packages::Debian,
    archive: &'a Path,
    folder: &'a Path,
    /// Whether log and SSD are files.
    files: bool,
    workload: Workload,
    random: Rng,
    lives: Vec<Life>,
    /// What the disk held when the machine was started.
    disk: Vec<u8>,
}

impl<'a> Machine<'a> {
    fn new(
        debian: &'a packages::Debian,
        archive: &'a Path,
        folder: &'a Path,
        (workload, files): (Workload, bool),
    ) -> Result<Machine<'a>, String> {
        sparse(&folder.join(NVDIMM), NVDIMM_BYTES)?;
        let (random, disk) = (random::stream(workload.seed, 0), states::new_disk(files));
        Ok(Machine { debian, archive, folder, files, workload, random, lives: Vec::new(), disk })
    }

    fn number(&self) -> usize {
        self.lives.len() + 1
    }

    fn console(&self) -> PathBuf {
        self.folder.join(format!("console-{}.log", self.number()))
    }

    /// Starts it, on the disk as it is now and with a new log of its writes.
    fn start(&self, until: u64) -> Result<Guarded, String> {
        let [nvdimm, disk, writes] = [NVDIMM, DISK, WRITES].map(|name| self.folder.join(name));
        process::write(&disk, &self.disk)?;
        sparse(&writes, WRITES_BYTES)?;
        let boot = format!(
            "cut_boot={} cut_files={} cut_seed={} cut_operations={OPERATIONS} cut_lives={} \
             cut_until={until}",
            self.number(),
            u8::from(self.files),
            self.workload.seed,
            guest::told_lives(&self.lives)
        );
        let mut command = vm::command(self.debian, self.archive, &boot);
        command.args(["-machine", "q35,nvdimm=on", "-m", MEMORY, "-object"]);
        let nvdimm = nvdimm.display();
        let memory = format!("memory-backend-file,id=pm,share=on,mem-path={nvdimm}");
        command.arg(format!("{memory},size={NVDIMM_BYTES}")).args(["-device", "nvdimm,memdev=pm"]);
        // Nobody cuts this machine's own power: what the guest flushes need not wait for its disk.
        for (node, path) in [("disk", disk), ("writes", writes)] {
            let file = format!("driver=file,node-name={node},filename={}", path.display());
            command.arg("-blockdev").arg(format!("{file},cache.no-flush=on"));
        }
        command.args(["-blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=writes"]);
        command.args(["-device", "nvme,drive=logged,serial=cut"]);
        Guarded::start(&mut command, &self.console())
    }

    /// Waits until the console says enough, or the guest is at its end.
    fn watch(&self, guest: &mut Guarded, enough: impl Fn(&str) -> bool) -> Result<String, String> {
        let console = self.console();
        process::poll(PATIENCE, || {
            let is_over = guest.ended().is_some();
            let is_said = vm::said(&console).is_ok_and(|said| enough(&said));
            (is_over || is_said).then_some(())
        });
        let said = vm::said(&console)?;
        if enough(&said) {
            return Ok(said);
        }
        vm::show_end(&said);
        Err(format!("start {}: see {}", self.number(), console.display()))
    }

    /// A life and its end by SIGKILL: the memory stays, the disk loses any part of what was not
    /// flushed.
    fn run_and_kill(&mut self) -> Result<(), String> {
        let first = Life::first(self.lives.last(), &self.workload);
        let least = LIFE_OPERATIONS + self.random.u64(..LIFE_OPERATIONS);
        let mut guest = self.start(u64::MAX)?;
        let said = self.watch(&mut guest, |said| {
            acknowledged(said).is_some_and(|number| first + least <= number)
        })?;
        drop(guest);
        show(&said);
        let acknowledged = acknowledged(&vm::said(&self.console())?).unwrap_or(0);
        println!("start {}: killed after operation {acknowledged}", self.number());
        let is_first = self.lives.is_empty() && !self.files;
        if is_first {
            fs::rename(self.folder.join(WRITES), self.folder.join(FIRST))
                .map_err(|e| format!("cannot keep what was written: {e}"))?;
        }
        let log = self.folder.join(if is_first { FIRST } else { WRITES });
        let entries = writes::read(&log, states::DISK_BYTES)?;
        states::cut(&mut self.disk, &entries, &mut self.random);
        self.lives.push(Life { first, acknowledged });
        Ok(())
    }

    /// The last life comes to its end by itself.
    fn last_start(&mut self) -> Result<(), String> {
        let first = Life::first(self.lives.last(), &self.workload);
        let mut guest = self.start(first + EPILOGUE_OPERATIONS)?;
        let said = self.watch(&mut guest, |said| said.lines().any(|line| line == vm::VERDICT))?;
        show(&said);
        Ok(())
    }
}

/// The last number that was acknowledged, on a line that is whole.
fn acknowledged(said: &str) -> Option<u64> {
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    let mut lines = whole.lines().rev().filter_map(|line| line.strip_prefix(vm::SAID));
    lines.find_map(|line| line.strip_prefix(ACKNOWLEDGED)?.parse().ok())
}

/// What the guest said to be shown.
fn show(said: &str) {
    let lines = said.lines().filter_map(|line| line.strip_prefix(vm::SAID));
    lines.filter(|line| !line.starts_with(ACKNOWLEDGED)).for_each(|line| println!("guest: {line}"));
}

/// A file of zeros that takes no space.
fn sparse(path: &Path, bytes: u64) -> Result<(), String> {
    let made = File::create(path).and_then(|file| file.set_len(bytes));
    made.map_err(|error| format!("cannot make {}: {error}", path.display()))
}

const SCRIPT: &str = include_str!("guest.sh");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_acknowledges() {
        assert_eq!(acknowledged(""), None);
        let said = "booted\nGUEST: acknowledged 12\nGUEST: acknowledged 1";
        assert_eq!(acknowledged(said), Some(12), "the last line may go on");
        assert_eq!(acknowledged(&format!("{said}5\nnoise\n")), Some(15));
        assert_eq!(acknowledged("GUEST: acknowledged \n"), None);
    }
}
