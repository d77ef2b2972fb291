//! Starts the threads of the durable executor. One steps it, beside the workers that do. The others
//! wait for devices on its behalf: one commits, one writes large values, one makes room in the log,
//! one counts for `stats tier`, one makes the checkpoints that clients ask for, and the tier has
//! its own for reading. Two more make backups and verify all that is kept.

use crate::clock::{Clock, SystemClock};
use crate::durable::DurableSettings;
use crate::durable::cas_ids;
use crate::durable::copier::{BackupSettings, Copier, Folder};
use crate::durable::hands::{DeviceExecutor, Done, Order, carry_out};
use crate::durable::scrub::ScrubSettings;
use crate::durable::scrubber::Scrubber;
use crate::durable::shared::{Durable, Helped, Recovery};
use crate::durable::shared_executor::SharedExecutor;
use crate::durable::state::DurableExecutor;
use crate::shared::{Shared, lock};
use laneway_tier::scrub::Bounds;
use laneway_tier::{Directory, FolderLock, Reads, Request, Tier, Wake, drop_priority};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const NANOS_PER_MS: u64 = 1_000_000;

/// A store that was opened.
pub struct Opened {
    tier: Arc<Tier>,
    lock: FolderLock,
    settings: DurableSettings,
    recovery: Recovery,
    seq_after: u64,
}

/// Opens the store, or makes it. `progress` hears of bytes replayed, and of how many.
pub fn open(
    settings: DurableSettings,
    progress: &mut dyn FnMut(u64, u64),
) -> laneway_tier::Result<Opened> {
    let clock = SystemClock::start();
    let (directory, report) = Directory::open(&settings.directory, progress)?;
    let (tier, lock) = directory.into_parts();
    let recovery = Recovery { report, took_ms: clock.nanos() / NANOS_PER_MS };
    let seq_after = cas_ids::leave_out(&tier, settings.interval);
    Ok(Opened { tier: Arc::new(tier), lock, settings, recovery, seq_after })
}

impl Opened {
    /// How the store was found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The part that the workers share.
    pub(super) fn share(&self) -> Durable {
        Durable::new(self.tier.clone(), self.settings.interval, self.recovery.clone())
    }

    /// No CAS id up to this one is given to an item.
    pub(super) fn seq_after(&self) -> u64 {
        self.seq_after
    }
}

/// The threads of an executor.
pub(super) struct Running {
    durable: Arc<Durable>,
    executor: JoinHandle<()>,
    copier: Option<JoinHandle<()>>,
    scrubber: Option<JoinHandle<()>>,
    waiting: Vec<JoinHandle<()>>,
    // Released after everything else.
    _lock: FolderLock,
}

impl Running {
    /// Starts them; the executor takes jobs from now on.
    pub(super) fn start<S: Send + 'static>(
        opened: Opened,
        shared: &Arc<Shared<S>>,
        clock: SystemClock,
    ) -> Result<Running, String> {
        let Opened { tier, lock, settings, .. } = opened;
        let durable = shared.durable.get().expect("it was shared").clone();
        tier.lend_clock(Box::new(move || clock.nanos()));
        tier.limit_migration(settings.migrate_rate);
        let (hands, waiting) = Threads::start(&tier, &durable, settings.read_threads, clock)?;
        let executor = SharedExecutor::new(DurableExecutor::new(shared.clone(), Box::new(hands)));
        executor.let_help(&durable);
        let builder = thread::Builder::new().name("executor".into());
        let kept = durable.clone();
        let executor = builder.spawn(move || keep(&executor, &kept, clock)).map_err(told)?;
        let backup = settings.backup;
        let copier = backup.map(|backup| start_copier(backup, &durable, clock)).transpose()?;
        let scrub = settings.scrub;
        let scrubber = scrub.map(|scrub| start_scrubber(scrub, &durable, clock)).transpose()?;
        Ok(Running { durable, executor, copier, scrubber, waiting, _lock: lock })
    }

    /// No worker runs any more: finish, make everything durable, and a checkpoint.
    pub(super) fn stop(self) -> laneway_tier::Result<()> {
        self.durable.stop();
        self.durable.backups.close();
        self.durable.scrubs.close();
        // A thread that panicked has said so already.
        let _ = self.executor.join();
        self.waiting.into_iter().for_each(|thread| drop(thread.join()));
        let settled = self.durable.tier.settle();
        // The last: they may wait for a device that answers no more, and nothing waits for that.
        self.scrubber.into_iter().for_each(|thread| drop(thread.join()));
        self.copier.into_iter().for_each(|thread| drop(thread.join()));
        settled
    }
}

/// The thread that makes backups: of ordinary priority, for a step may hold what writers need, and
/// bounded by its rate.
fn start_copier(
    settings: BackupSettings,
    durable: &Arc<Durable>,
    clock: SystemClock,
) -> Result<JoinHandle<()>, String> {
    let BackupSettings { folder, bytes_per_second } = settings;
    let durable = durable.clone();
    let (bounds, place) = (durable.tier.backup_bounds(), Box::new(Folder(folder)));
    let mut copier = Copier::new(durable.clone(), place, bytes_per_second, bounds);
    let backups = durable.clone();
    let copy = move || {
        while !durable.backups.is_closed() {
            let now = clock.nanos();
            match copier.step(now, clock.unix_seconds(now)) {
                None => thread::park(),
                Some(due) if due <= now => thread::yield_now(), // workers on its CPU come first
                Some(due) => thread::park_timeout(Duration::from_nanos(due - now)),
            }
        }
        let now = clock.nanos();
        copier.step(now, clock.unix_seconds(now));
    };
    let thread = thread::Builder::new().name("tier-backup".into()).spawn(copy).map_err(told)?;
    let copier = thread.thread().clone();
    backups.backups.enable(Box::new(move || copier.unpark()));
    Ok(thread)
}

/// The thread that verifies, bounded by its rate. It gives way, as the one that migrates does: it
/// sorts what it is to read, and holds no lock but a leaf of the index for some microseconds.
fn start_scrubber(
    settings: ScrubSettings,
    durable: &Arc<Durable>,
    clock: SystemClock,
) -> Result<JoinHandle<()>, String> {
    let durable = durable.clone();
    let mut scrubber = Scrubber::new(durable.clone(), settings, Bounds::BESIDE, clock.nanos());
    let scrubs = durable.clone();
    let is_bounded = settings.bytes_per_second != 0;
    let scrub = move || {
        drop_priority();
        while !durable.scrubs.is_closed() {
            let now = clock.nanos();
            let due = scrubber.step(now, clock.unix_seconds(now));
            // A device that takes its time for a step has as long for others.
            let took_nanos = if is_bounded { clock.nanos().saturating_sub(now) } else { 0 };
            let rest_nanos = due.saturating_sub(clock.nanos()).max(took_nanos);
            match Duration::from_nanos(rest_nanos) {
                Duration::ZERO => thread::yield_now(), // workers on its CPU come first
                rest => thread::park_timeout(rest),
            }
        }
    };
    let thread = thread::Builder::new().name("tier-scrub".into()).spawn(scrub).map_err(told)?;
    let scrubber = thread.thread().clone();
    scrubs.scrubs.enable(Box::new(move || scrubber.unpark()));
    Ok(thread)
}

fn told(error: io::Error) -> String {
    error.to_string()
}

fn keep<S: Send + 'static>(executor: &SharedExecutor<S>, durable: &Durable, clock: SystemClock) {
    let me = thread::current();
    durable.set_bell(Box::new(move || me.unpark()));
    loop {
        let mut executor = executor.lock();
        let now = clock.nanos();
        let busy = executor.step(now, clock.moment(now));
        let (is_idle, due_nanos) = (executor.is_idle(), executor.due_nanos());
        drop(executor);
        // Replies that no worker takes any more are nobody's.
        if !busy && durable.is_stopping() && is_idle {
            return;
        }
        match busy {
            // Workers on the same CPU come first: a scheduler that does not take it away by itself
            // would have their hits wait until there is nothing left to do here.
            true => thread::yield_now(),
            false => thread::park_timeout(Duration::from_nanos(due_nanos.saturating_sub(now))),
        }
    }
}

/// Threads that wait.
struct Threads {
    commits: Sender<Order>,
    others: Sender<Order>,
    counts: Sender<Order>,
    checkpoints: Sender<Order>,
    rooms: Sender<Order>,
    reads: Reads,
    answers: Vec<(u64, laneway_tier::Answer)>,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Threads {
    fn start(
        tier: &Arc<Tier>,
        durable: &Arc<Durable>,
        read_threads: usize,
        clock: SystemClock,
    ) -> Result<(Threads, Vec<JoinHandle<()>>), String> {
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        let mut start = |name: &str, gives_way: bool| {
            let (sender, orders) = channel();
            let (tier, durable, done) = (tier.clone(), durable.clone(), done.clone());
            let thread = thread::Builder::new()
                .name(name.into())
                .spawn(move || {
                    if gives_way {
                        drop_priority();
                    }
                    // Who gives way may be stopped while others wait for what it holds.
                    serve(&orders, &tier, &done, || match gives_way {
                        true => durable.ring(),
                        false => {
                            let help = || {
                                let now = clock.nanos();
                                durable.help(now, clock.moment(now)) == Helped::More
                            };
                            // Once more, for those who have come meanwhile, as they are in the
                            // same group then. But this thread has orders to carry out.
                            if help() && help() {
                                durable.ring();
                            }
                        }
                    });
                })
                .map_err(told)?;
            threads.push(thread);
            Ok::<_, String>(sender)
        };
        // Nobody waits for a commit at an interval.
        let commits = start("tier-commit", !durable.waits)?;
        let others = start("tier-write", true)?;
        // It makes room in the log: neither commits nor large values wait for that.
        let rooms = start("tier-room", false)?;
        // It may go over the whole index: no value waits for that.
        let counts = start("tier-count", true)?;
        // It writes all of the index: who asks for statistics waits no longer for that.
        let checkpoints = start("tier-checkpoint", true)?;
        let rings = durable.clone();
        let wake: Wake = Arc::new(move || rings.ring());
        let reads = tier.reads(read_threads, &wake).map_err(|error| error.to_string())?;
        let answers = Vec::new();
        let own = Threads { commits, others, counts, checkpoints, rooms, reads, answers, done };
        Ok((own, threads))
    }
}

/// Carries out orders; `tell` hears after each that its end is there.
fn serve(orders: &Receiver<Order>, tier: &Tier, done: &Mutex<Vec<Done>>, tell: impl Fn()) {
    while let Ok(order) = orders.recv() {
        let end = carry_out(tier, order);
        lock(done).push(end);
        tell();
    }
}

impl DeviceExecutor for Threads {
    fn order(&mut self, order: Order) {
        let to = match order {
            Order::Commit => &self.commits,
            Order::Spill { .. } => &self.others,
            Order::Write { .. } | Order::Flush { .. } => &self.rooms,
            Order::Count { .. } => &self.counts,
            Order::Checkpoint { .. } => &self.checkpoints,
        };
        // It ends only after the executor, or by a panic that it has told.
        let sent = to.send(order);
        assert!(sent.is_ok(), "a thread of the tier has ended");
    }

    fn read(&mut self, number: u64, request: Request) {
        self.reads.submit(number, request);
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        into.append(&mut lock(&self.done));
        self.reads.complete(&mut self.answers);
        into.extend(self.answers.drain(..).map(|(number, answer)| Done::Read(number, answer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_tier::{DirectorySettings, Durability, ItemMeta};

    /// Never waited out when all is well.
    const HANG: Duration = Duration::from_secs(60);

    #[test]
    fn statistics_wait_for_no_checkpoint() {
        let name = format!("laneway-orders-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut settings = DirectorySettings::new(&folder);
        (settings.pm_bytes, settings.ssd_bytes) = (32 << 20, 64 << 20);
        let (directory, _) = Directory::open(&settings, &mut |_, _| {}).unwrap();
        let (tier, lock) = directory.into_parts();
        let wake: Wake = Arc::new(|| {});
        let reads = tier.reads(1, &wake).unwrap();
        let (counts, to_count) = channel();
        let (checkpoints, to_checkpoint) = channel();
        let [(commits, _), (others, _), (rooms, _)] = [channel(), channel(), channel()];
        let (answers, done) = (Vec::new(), Arc::default());
        let mut threads =
            Threads { commits, others, counts, checkpoints, rooms, reads, answers, done };
        // The thread that gets this one may take as long as it likes.
        threads.order(Order::Checkpoint { number: 1 });
        threads.order(Order::Count { number: 2 });
        assert!(matches!(to_checkpoint.try_recv(), Ok(Order::Checkpoint { number: 1 })));
        assert!(matches!(to_count.try_recv(), Ok(Order::Count { number: 2 })));
        drop((threads, tier, lock));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_cas_id_comes_again_where_a_crash_has_lost_every_write_of_an_interval() {
        let name = format!("laneway-cas-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut directory = DirectorySettings::new(&folder);
        (directory.pm_bytes, directory.ssd_bytes) = (32 << 20, 64 << 20);
        directory.settings.background = false;
        directory.settings.durability = Durability::Interval;
        let settings = DurableSettings {
            directory,
            interval: Some(Duration::from_secs(60)),
            read_threads: 1,
            backup: None,
            migrate_rate: 0,
            scrub: None,
        };
        // Nothing is made durable behind a start, and nothing when it is over.
        let mut last = 0;
        for start in 0..3 {
            let opened = open(settings.clone(), &mut |_, _| {}).unwrap();
            let seen = opened.seq_after() + 64;
            opened.tier.try_put(b"key", b"value", ItemMeta::default(), seen).unwrap();
            assert!(last < opened.seq_after(), "start {start}: a client may have seen {last}");
            last = seen;
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_backup_that_waits_for_its_device_keeps_nothing_from_being_settled() {
        let name = format!("laneway-executor-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut settings = DirectorySettings::new(&folder);
        (settings.pm_bytes, settings.ssd_bytes) = (32 << 20, 64 << 20);
        let (directory, report) = Directory::open(&settings, &mut |_, _| {}).unwrap();
        let (tier, lock) = directory.into_parts();
        let tier = Arc::new(tier);
        let recovery = Recovery { report, took_ms: 0 };
        let durable = Arc::new(Durable::new(tier.clone(), None, recovery));
        // As one whose device answers no more, until the store is settled.
        let copier = thread::spawn(move || {
            while tier.stats().checkpoints == 0 {
                thread::yield_now();
            }
        });
        let (executor, waiting) = (thread::spawn(|| ()), Vec::new());
        let (copier, scrubber) = (Some(copier), None);
        let running = Running { durable, executor, copier, scrubber, waiting, _lock: lock };
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(running.stop().is_ok()));
        assert_eq!(ended.recv_timeout(HANG), Ok(true), "it waits for the backup");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
