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

use crate::outcome::{Failure, Outcome, passed, skipped};
use crate::process::{self, Guarded};
use crate::random;
use crate::vm::{self, initramfs, packages};
use fastrand::Rng;
use guest::{ACKNOWLEDGED, TOLD};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use workload::{Life, Workload};

pub const HELP: &str = "\
Cut the power of an emulated machine while it writes; nothing acknowledged may be lost.

usage: cargo xtask power-cut [--states N] [--operations N] [--seed N] [--replay | --files]

  --states N      states of each kind (at flushes, and between them) that are opened from the log
                  of one disk (240)
  --operations N  writes and deletions of that run (1200)
  --seed N        what is written, what a disk loses, and about when the power goes (1)
  --replay        do without the machine: open the states of the log that the last run left
  --files         four kills of the machine with log and SSD as two files of an ext4 on the disk,
                  which one flush serves, instead of all that is below

One run on an NVMe disk whose writes are logged, with its states and two controls (states without
what one flush should have kept, and of a disk that ignores flushes, which must be found to lose);
then two kills of the machine with the log on an NVDIMM. Needs QEMU (apt-get install
--no-install-recommends qemu-system-x86) on an x86-64 Debian; fetches a kernel and a few programs as
Debian packages, once, below the target folder: nothing is installed. Takes two minutes.";

const STATES: usize = 240;
const OPERATIONS: u64 = 1_200;
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
/// What the guest says when the first run is over, and when it has come to its end.
const LOGGED: &str = "POWER-CUT: the logged run is over";
const VERDICT: &str = "POWER-CUT: everything was right";
const MEMORY: &str = "768M,slots=1,maxmem=2G";
const NVDIMM_BYTES: u64 = 64 << 20;
/// Far more than is ever logged; takes no space where nothing is written.
const WRITES_BYTES: u64 = 4 << 30;

/// ext4 asks for a checksum by name, which no dependency says.
const MODULES: &[&str] = &["crc32c_generic", "nvme", "nfit", "nd_pmem", "ext4"];
/// What they are linked with is on every Debian.
const PACKAGES: &[&str] = &["busybox-static", "e2fsprogs"];
const APPLETS: &[&str] =
    &["sh", "mount", "mkdir", "insmod", "cat", "echo", "sleep", "reboot", "dmesg", "tail"];

struct Options {
    states: usize,
    operations: u64,
    seed: u64,
    replay: bool,
    files: bool,
}

impl Options {
    fn check(self) -> Result<Options, Failure> {
        // Fewer, and there are not enough flushes to choose from.
        let operations_min = 4 * self.states as u64;
        if self.states == 0 || self.operations < operations_min {
            return Err(Failure::Usage(format!(
                "--states {} --operations {}: there must be a state, and at least {operations_min} \
                 operations for so many states",
                self.states, self.operations
            )));
        }
        Ok(self)
    }
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (states, operations) = (STATES, OPERATIONS);
    let mut options = Options { states, operations, seed: 1, replay: false, files: false };
    flags!(parser, {
        // Ourselves, inside the machine.
        Value(word) if word == "guest" => return guest::main(parser),
        Long("states") => options.states = parser.value()?.parse()?,
        Long("operations") => options.operations = parser.value()?.parse()?,
        Long("seed") => options.seed = parser.value()?.parse()?,
        Long("replay") => options.replay = true,
        Long("files") => options.files = true,
    });
    let options = options.check()?;
    let files = Files::of(&process::scratch_dir("power-cut")?);
    if options.replay {
        return passed(replay(&files.first, &options)?);
    }
    if let Some(reason) = vm::lacking() {
        return skipped(reason);
    }
    let debian = packages::fetch(packages::Kernel::Ordinary, PACKAGES)?;
    let archive = archive(&files.folder, &debian)?;
    let began = Instant::now();
    let mut machine = Machine::new(&debian, &archive, &files, &options)?;
    if options.files {
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
    let told = replay(&files.first, &options)?;
    while machine.lives.len() < KILLS {
        machine.run_and_kill()?;
    }
    machine.last_start()?;
    let took = began.elapsed().as_secs_f64();
    passed(format!("{told}; {KILLS} kills: nothing acknowledged was lost; {took:.0} s"))
}

/// What a run leaves in its folder.
struct Files {
    folder: PathBuf,
    nvdimm: PathBuf,
    disk: PathBuf,
    writes: PathBuf,
    /// The writes of the first start, which are replayed.
    first: PathBuf,
}

impl Files {
    fn of(folder: &Path) -> Files {
        let name = |name: &str| folder.join(name);
        Files {
            folder: folder.to_path_buf(),
            nvdimm: name("nvdimm"),
            disk: name("disk"),
            writes: name("writes"),
            first: name("writes-first"),
        }
    }
}

/// Opens the states of a log; what came out, in words.
fn replay(log: &Path, options: &Options) -> Result<String, String> {
    let entries = writes::read(log, states::DISK_BYTES)?;
    let workload = Workload { seed: options.seed };
    let again = |why: String| {
        let Options { states, operations, seed, .. } = options;
        format!(
            "{why} (the same states again: cargo xtask power-cut --replay --states {states} \
             --operations {operations} --seed {seed})"
        )
    };
    let tally = states::replay(&entries, workload, options.states, CONTROLS).map_err(again)?;
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
    if tally.at_flushes < options.states {
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
        applets: APPLETS,
        loaded: &[],
        provider: None,
        modules: MODULES,
        script: &SCRIPT.replace("@LOGGED@", LOGGED).replace("@VERDICT@", VERDICT),
    };
    initramfs::write(folder, &contents)
}

/// A machine that is started again and again.
struct Machine<'a> {
    debian: &'a packages::Debian,
    archive: &'a Path,
    files: &'a Files,
    options: &'a Options,
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
        files: &'a Files,
        options: &'a Options,
    ) -> Result<Machine<'a>, String> {
        sparse(&files.nvdimm, NVDIMM_BYTES)?;
        let (workload, random) = (Workload { seed: options.seed }, random::stream(options.seed, 0));
        let disk = states::new_disk(options.files);
        Ok(Machine { debian, archive, files, options, workload, random, lives: Vec::new(), disk })
    }

    fn number(&self) -> usize {
        self.lives.len() + 1
    }

    fn console(&self) -> PathBuf {
        self.files.folder.join(format!("console-{}.log", self.number()))
    }

    /// Starts it, on the disk as it is now and with a new log of its writes.
    fn start(&self, until: u64) -> Result<Guarded, String> {
        let Files { nvdimm, disk, writes, .. } = self.files;
        process::write(disk, &self.disk)?;
        sparse(writes, WRITES_BYTES)?;
        let boot = format!(
            "cut_boot={} cut_files={} cut_seed={} cut_operations={} cut_lives={} cut_until={until}",
            self.number(),
            u8::from(self.options.files),
            self.options.seed,
            self.options.operations,
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
        let first = self.lives.last().map_or(1, |life| life.next(&self.workload));
        let least = LIFE_OPERATIONS + self.random.u64(..LIFE_OPERATIONS);
        let mut guest = self.start(u64::MAX)?;
        let said = self.watch(&mut guest, |said| {
            acknowledged(said).is_some_and(|number| first + least <= number)
        })?;
        drop(guest);
        show(&said);
        let acknowledged = acknowledged(&vm::said(&self.console())?).unwrap_or(0);
        println!("start {}: killed after operation {acknowledged}", self.number());
        let is_first = self.lives.is_empty() && !self.options.files;
        if is_first {
            fs::rename(&self.files.writes, &self.files.first)
                .map_err(|e| format!("cannot keep {}: {e}", self.files.writes.display()))?;
        }
        let log = if is_first { &self.files.first } else { &self.files.writes };
        let entries = writes::read(log, states::DISK_BYTES)?;
        states::cut(&mut self.disk, &entries, &mut self.random);
        self.lives.push(Life { first, acknowledged });
        Ok(())
    }

    /// The last life comes to its end by itself.
    fn last_start(&mut self) -> Result<(), String> {
        let first = self.lives.last().map_or(1, |life| life.next(&self.workload));
        let mut guest = self.start(first + EPILOGUE_OPERATIONS)?;
        let said = self.watch(&mut guest, |said| said.lines().any(|line| line == VERDICT))?;
        show(&said);
        Ok(())
    }
}

/// The last number that was acknowledged, on a line that is whole.
fn acknowledged(said: &str) -> Option<u64> {
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    let mut lines = whole.lines().rev().filter_map(|line| line.strip_prefix(TOLD));
    lines.find_map(|line| line.strip_prefix(ACKNOWLEDGED)?.parse().ok())
}

/// What the guest said to be shown.
fn show(said: &str) {
    let lines = said.lines().filter_map(|line| line.strip_prefix(TOLD));
    lines.filter(|line| !line.starts_with(ACKNOWLEDGED)).for_each(|line| println!("guest: {line}"));
}

/// A file of zeros that takes no space.
fn sparse(path: &Path, bytes: u64) -> Result<(), String> {
    let made = File::create(path).and_then(|file| file.set_len(bytes));
    made.map_err(|error| format!("cannot make {}: {error}", path.display()))
}

const SCRIPT: &str = r#"#!/bin/sh
export PATH=/bin
say() { echo "POWER-CUT: $*"; }
off() { reboot -f; sleep 60; }
fail() { say "FAIL $*"; dmesg | tail -30; off; }
await() {
    tries=0
    until [ -b "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "no $1"
        sleep 0.1
    done
}
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /pm /run
for word in $(cat /proc/cmdline); do
    case $word in cut_*=*) eval "$word" ;; esac
done
for module in $(cat /modules/order); do
    insmod /modules/$module || fail "module $module"
done
# The console is the writer's from here on: a line of the kernel's in one of its would spoil it.
dmesg -n 1
await /dev/nvme0n1p4
if [ "$cut_files" = 1 ]; then
    if [ "$cut_boot" = 1 ]; then
        /bin/mke2fs -q -t ext4 -b 4096 /dev/nvme0n1p4 || fail "mke2fs"
    fi
    mount -t ext4 /dev/nvme0n1p4 /pm || fail "ext4"
    xtask power-cut guest --log /pm/log --ssd /pm/ssd \
        --seed $cut_seed --lives "$cut_lives" --until $cut_until || fail "the writer to files"
    echo "@VERDICT@"
    off
fi
await /dev/pmem0
if [ "$cut_boot" = 1 ]; then
    xtask power-cut guest --log /dev/nvme0n1p1 --ssd /dev/nvme0n1p2 --acks /dev/nvme0n1p3 \
        --seed $cut_seed --until $cut_operations || fail "the writer to the logged disk"
    echo "@LOGGED@"
    # DAX wants page structures for the memory: what `ndctl create-namespace -m fsdax` does.
    bus=/sys/bus/nd
    pfn=$(cat $bus/devices/region0/pfn_seed)
    echo namespace0.0 >$bus/drivers/nd_pmem/unbind || fail "namespace0.0 stays"
    echo ram >$bus/devices/$pfn/mode || fail "mode"
    cat /proc/sys/kernel/random/uuid >$bus/devices/$pfn/uuid || fail "uuid"
    echo namespace0.0 >$bus/devices/$pfn/namespace || fail "namespace"
    echo $pfn >$bus/drivers/nd_pmem/bind || fail "$pfn does not start"
    await /dev/pmem0
    # The shell prefers its own, which knows no ext4: hence the path.
    /bin/mke2fs -q -t ext4 -b 4096 /dev/pmem0 || fail "mke2fs"
fi
mount -t ext4 -o dax=always /dev/pmem0 /pm || fail "ext4 with DAX"
xtask power-cut guest --log /pm/log --dax --ssd /dev/nvme0n1p4 \
    --seed $cut_seed --lives "$cut_lives" --until $cut_until || fail "the writer to the NVDIMM"
echo "@VERDICT@"
off
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_acknowledges() {
        assert_eq!(acknowledged(""), None);
        let said = "booted\nPOWER-CUT: acknowledged 12\nPOWER-CUT: acknowledged 1";
        assert_eq!(acknowledged(said), Some(12), "the last line may go on");
        assert_eq!(acknowledged(&format!("{said}5\nnoise\n")), Some(15));
        assert_eq!(acknowledged("POWER-CUT: acknowledged \n"), None);
    }

    #[test]
    fn the_script_says_what_is_waited_for() {
        let script = SCRIPT.replace("@LOGGED@", LOGGED).replace("@VERDICT@", VERDICT);
        assert!(!script.contains('@') && script.ends_with(&format!("echo \"{VERDICT}\"\noff\n")));
        assert!(LOGGED.starts_with(TOLD) && VERDICT.starts_with(TOLD));
    }

    #[test]
    fn states_want_operations_to_choose_from() {
        let options = |states, operations| Options {
            states,
            operations,
            seed: 1,
            replay: false,
            files: false,
        };
        assert!(options(STATES, OPERATIONS).check().is_ok());
        assert!(options(0, OPERATIONS).check().is_err());
        assert!(options(STATES, STATES as u64).check().is_err());
    }
}
