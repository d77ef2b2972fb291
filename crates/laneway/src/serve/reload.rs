//! SIGHUP: the file of `--config`, that of `-Y` and those of `-Z` are read again. What has changed
//! is told, and what can change while the server runs does; the rest waits for the next start. A
//! file that is wrong changes nothing. The service manager is told when it begins and when it has
//! ended, however it came out; that says that the server serves, so a SIGHUP that comes before it
//! does waits until then.

use super::{MEBIBYTE, MEMORY_BYTES, auth, checked, features, manager, memory, places, slow, tls};
use crate::flags::{self, Asked, Flags};
use crate::process;
use laneway_server::access::client_limits::Limited;
use laneway_server::boot::Server;
use laneway_server::built::{FEATURES, Feature};
use laneway_server::settings::Sandbox;
use laneway_server::shared::Shared;
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use std::{io, thread};

/// The thread that reads the files. It is not the one that hears signals: a file may keep its
/// reader waiting (a file server that is gone, a name that nobody resolves), and a stop is heard
/// all the same.
pub struct Reloads {
    /// Nothing is sent, apart from one word at the beginning.
    begins: Sender<()>,
    asks: SyncSender<()>,
}

/// Make the thread, for a server that was started with these words and flags; a sandbox lets none
/// begin later.
pub fn prepare(args: Vec<OsString>, flags: &Flags, server: &Server) -> io::Result<Reloads> {
    Reloads::new(on_hup(args, flags, server))
}

impl Reloads {
    fn new(mut again: impl FnMut() + Send + 'static) -> io::Result<Reloads> {
        // Whoever asks again before it begins has it done once: it reads what stands there then.
        let (asks, asked) = sync_channel(1);
        let (begins, begun) = channel();
        let builder = thread::Builder::new().name("reload".to_owned());
        builder.spawn(move || {
            // An error says that the server does not serve after all.
            if begun.recv().is_ok() {
                asked.iter().for_each(|()| again());
            }
        })?;
        Ok(Reloads { begins, asks })
    }

    /// The server serves, and whoever waits for that was told so.
    pub fn begin(&self) {
        let _ = self.begins.send(()); // it waits for this word
    }

    /// Returns a function that asks for a reload. It does not wait.
    pub fn asks(&self) -> impl Fn() + Send + use<> {
        let asks = self.asks.clone();
        move || {
            let _ = asks.try_send(()); // it is asked for already, where there is no room
        }
    }
}

/// What can change while the server runs.
pub trait Live {
    /// Be this verbose.
    fn be_verbose(&self, times: u32);
    /// Memory for all items. Returns the limit that holds then: no more address space can be used
    /// than was reserved at the start.
    fn limit_memory(&self, bytes: u64) -> u64;
    /// Log what takes so long.
    fn log_slow(&self, slow: Option<Duration>);
    /// Bytes a second that migration may write; 0 for any number.
    fn limit_migration(&self, bytes_per_second: u64);
    /// How much the clients of an address may ask for.
    fn limit_clients(&self, limited: Limited, per_second: u64);
}

/// What SIGHUP does to a server that was started with these words and flags.
fn on_hup(args: Vec<OsString>, flags: &Flags, server: &Server) -> impl FnMut() + Send + use<> {
    let shared = server.shared().clone();
    let users = shared.settings.auth.clone();
    let encrypted = shared.settings.tls.clone();
    let mut running = flags.clone();
    let looks_up = shared.settings.sandbox != Sandbox::On;
    let mut again = move || {
        if running.config.is_none() && users.is_none() && encrypted.is_none() {
            log::info!("SIGHUP: there is nothing to reload; SIGTERM stops the server");
            return;
        }
        // However that comes out, users and certificates are files of their own.
        if running.config.is_some() {
            reload(&args, &mut running, looks_up, &*shared);
        }
        if let (Some(path), Some(users)) = (&running.auth_file, &users) {
            auth::reload(path, users);
        }
        if let Some(encrypted) = &encrypted {
            tls::reload(encrypted);
        }
    };
    move || {
        manager::reloading();
        again();
        manager::ready();
    }
}

impl<S> Live for Shared<S> {
    fn be_verbose(&self, times: u32) {
        self.set_verbosity(times);
    }

    fn limit_memory(&self, bytes: u64) -> u64 {
        let share = bytes / (1 + self.other_stores().len() as u64);
        let mut holds = 0;
        self.each_domain(|domain| {
            domain.store.set_memory_bytes(share);
            holds += domain.store.limit_bytes();
        });
        holds
    }

    fn log_slow(&self, slow: Option<Duration>) {
        self.each_domain(|domain| domain.slow.set(slow));
    }

    fn limit_migration(&self, bytes_per_second: u64) {
        self.durable
            .get()
            .iter()
            .for_each(|durable| durable.tier.limit_migration(bytes_per_second));
    }

    fn limit_clients(&self, limited: Limited, per_second: u64) {
        self.answer_client_limit(limited, per_second);
    }
}

/// Change what can be, unless what stands there now could not be started with. `looks_up`: a name
/// that was not there at the start can be looked up now.
fn reload(args: &[OsString], running: &mut Flags, looks_up: bool, live: &impl Live) {
    if let Some(why) = readable_once(running) {
        return log::error!("SIGHUP: {why}; everything in the file stays as it was");
    }
    let read = flags::read(args.to_vec(), std::env::vars_os());
    let new = match read.map_err(|refused| refused.why) {
        Ok(Asked::Serve(new)) => {
            let (names, handed) = (running.names.clone(), running.handed);
            let new = Flags { names, handed, ..*new };
            match refused(&new, &FEATURES, looks_up) {
                Some(why) => Err(why),
                None => Ok(new),
            }
        }
        Ok(Asked::Help | Asked::Version | Asked::Licence) => return, // it has been started
        Err(why) => Err(why),
    };
    match new {
        Ok(new) => apply(running, &new, live),
        Err(why) => {
            let hint = if looks_up { "" } else { unreadable_in_sandbox(&why) };
            log::error!("SIGHUP: {why}{hint}; everything in the file stays as it was");
        }
    }
}

/// Why the configuration cannot be read again, where it came by a pipe (`--config /dev/stdin`):
/// what is left of that is nothing, by which everything would have its default again.
fn readable_once(running: &Flags) -> Option<String> {
    let path = Path::new(running.config.as_ref()?);
    process::is_read_once(path)
        .then(|| format!("--config {}: it is no file, and is read once", path.display()))
}

/// Why a build with these features could not be started with these flags.
fn refused(new: &Flags, features: &[Feature], looks_up: bool) -> Option<String> {
    let unknown = || places::unknown(new).filter(|_| !looks_up);
    features::refused(new, features)
        .or_else(|| unknown().map(|(flag, place)| in_sandbox(flag, place)))
        .or_else(|| checked(new).err())
}

/// Why a place that may be sound is refused.
fn in_sandbox(flag: &str, place: &str) -> String {
    format!(
        "{flag} {place}: the sandbox (--sandbox) lets this server look no name up, and this one \
         was not there when it started; write a number, or start the server anew"
    )
}

/// What else is told where a file that may be sound cannot be read in a sandbox.
fn unreadable_in_sandbox(why: &str) -> &'static str {
    const WORDS: &str = "; the sandbox (--sandbox) lets this server read files in those folders \
                         alone that were named when it started";
    if why.contains("Permission denied") { WORDS } else { "" }
}

/// Tell what is not as it was, and change what can be changed; `running` is what is in force then.
fn apply(running: &mut Flags, new: &Flags, live: &impl Live) {
    // A key without effect changes no setting, so nothing else would tell of it.
    for warning in new.warnings.iter().filter(|warning| !running.warnings.contains(warning)) {
        log::warn!("SIGHUP: {warning}");
    }
    running.warnings.clone_from(&new.warnings);
    let changes = flags::changes(running, new);
    if changes.is_empty() {
        log::info!("SIGHUP: the configuration is as it was");
    }
    for change in changes {
        let mut when = "now".to_owned();
        match change.name {
            "verbose" => {
                running.verbose = new.verbose;
                live.be_verbose(new.verbose);
            }
            "memory-limit" => {
                running.memory_bytes = new.memory_bytes;
                let asked = new.memory_bytes.unwrap_or(MEMORY_BYTES);
                let holds = live.limit_memory(asked);
                if let Some(words) = memory::too_much(holds) {
                    log::warn!("SIGHUP: {words}");
                }
                when = now_as_far(asked, holds);
            }
            "slow-ms" => {
                running.slow_milliseconds = new.slow_milliseconds;
                live.log_slow(slow::setting(new).unwrap_or_default()); // it was checked
            }
            "migrate-rate" => {
                running.migrate_rate = new.migrate_rate;
                live.limit_migration(new.migrate_rate.unwrap_or(0));
            }
            "client-rate" => {
                running.client_rate = new.client_rate;
                live.limit_clients(Limited::Requests, new.client_rate.unwrap_or(0));
            }
            "client-bytes" => {
                running.client_bytes = new.client_bytes;
                live.limit_clients(Limited::Bytes, new.client_bytes.unwrap_or(0));
            }
            _ => when = "at the next start".to_owned(),
        }
        log::info!("SIGHUP: {}: {} -> {}, {when}", change.name, change.before, change.after);
    }
}

/// When a limit of so many bytes takes effect, of which so many hold now.
fn now_as_far(asked: u64, holds: u64) -> String {
    // NUMA domains have equal parts, so a few bytes may be left.
    if holds + MEBIBYTE <= asked {
        format!("now up to {} MiB; more takes a restart", holds / MEBIBYTE)
    } else if asked + MEBIBYTE <= holds {
        let why = "a store takes so much at least, and a lane in the kernel keeps what it has";
        format!("now down to {} MiB; {why}", holds / MEBIBYTE)
    } else {
        "now".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::typed as flags;
    use std::cell::RefCell;

    #[test]
    fn a_limit_that_is_not_the_one_asked_for_is_told() {
        for (asked, holds, told) in [
            (128, 128 * MEBIBYTE, "now"),
            (128, 128 * MEBIBYTE - 2, "now"),
            (8192, 1024 * MEBIBYTE, "now up to 1024 MiB; more takes a restart"),
            (64, 300 * MEBIBYTE, "now down to 300 MiB; a store takes so much at least"),
        ] {
            let when = now_as_far(asked * MEBIBYTE, holds);
            assert!(when.starts_with(told), "{when}");
        }
    }

    #[test]
    fn what_is_asked_before_the_server_serves_is_done_once_and_not_before() {
        for serves in [false, true] {
            let (tells, told) = channel();
            let again = move || tells.send(()).expect("the test listens");
            let reloads = Reloads::new(again).expect("a thread can be made");
            let ask = reloads.asks();
            (0..3).for_each(|_| ask());
            if serves {
                reloads.begin();
            }
            drop((ask, reloads));
            // The words end with the thread, which alone could send more.
            assert_eq!(told.iter().count(), usize::from(serves));
        }
    }

    #[derive(Default)]
    struct Told(RefCell<Vec<String>>);

    impl Live for Told {
        fn be_verbose(&self, times: u32) {
            self.0.borrow_mut().push(format!("verbose {times}"));
        }

        fn limit_memory(&self, bytes: u64) -> u64 {
            self.0.borrow_mut().push(format!("memory {bytes}"));
            bytes
        }

        fn log_slow(&self, slow: Option<Duration>) {
            self.0.borrow_mut().push(format!("slow {slow:?}"));
        }

        fn limit_migration(&self, bytes_per_second: u64) {
            self.0.borrow_mut().push(format!("migrate {bytes_per_second}"));
        }

        fn limit_clients(&self, limited: Limited, per_second: u64) {
            self.0.borrow_mut().push(format!("{limited:?} {per_second}"));
        }
    }

    #[test]
    fn flags_whose_feature_is_not_in_are_refused_as_at_a_start() {
        let lacking = FEATURES.map(|feature| Feature { is_in: false, ..feature });
        for line in ["-U 5000 --kernel-lane lo", "-U 5000 --af-xdp lo", "--rdma rxe0"] {
            let why = refused(&flags(line), &lacking, true).expect(line);
            assert!(why.contains("built without the feature"), "{line}: {why}");
        }
        assert_eq!(refused(&flags("-m 128"), &lacking, true), None);
        let why = refused(&flags("-c 0"), &lacking, true).expect("nobody could connect");
        assert!(why.starts_with("-c 0: must be at least 1"), "{why}");
    }

    #[test]
    fn what_can_change_does_once_and_what_cannot_is_not_taken_for_changed() {
        let mut running = flags("-m 64 -p 5");
        let told = Told::default();
        apply(&mut running, &flags("-m 128 -p 6 -vv"), &told);
        assert_eq!(told.0.take(), [format!("memory {}", 128 << 20), "verbose 2".into()]);
        assert_eq!((running.port, running.verbose), (Some(5), 2));
        let left = flags::changes(&running, &flags("-m 128 -p 6 -vv"));
        assert_eq!(left.iter().map(|change| change.name).collect::<Vec<_>>(), ["port"]);
        apply(&mut running, &flags("-m 128 -p 5 -vv"), &told);
        assert!(told.0.take().is_empty(), "nothing has changed");
        apply(&mut running, &flags("-m 128 -p 5 -vv --slow-ms 20"), &told);
        apply(&mut running, &flags("-m 128 -p 5 -vv"), &told);
        assert_eq!(told.0.take(), ["slow Some(20ms)", "slow None"]);
        let paced = "-m 128 -p 5 -vv --data-dir /d";
        running = flags(paced);
        apply(&mut running, &flags(&format!("{paced} --migrate-rate 8m")), &told);
        apply(&mut running, &flags(paced), &told);
        assert_eq!(told.0.take(), [format!("migrate {}", 8 << 20), "migrate 0".into()]);
        running = flags("-m 128 -p 5 -vv");
        let limited = "-m 128 -p 5 -vv --client-rate 10 --client-bytes 1m";
        apply(&mut running, &flags(limited), &told);
        apply(&mut running, &flags("-m 128 -p 5 -vv --client-rate 20"), &told);
        let words = ["Requests 10", "Bytes 1048576", "Requests 20", "Bytes 0"];
        assert_eq!(told.0.take(), words);
        apply(&mut running, &flags("-m 128 -p 5 -vv"), &told);
        assert_eq!(told.0.take(), ["Requests 0"]);
        // A key that was taken out has its default again.
        apply(&mut running, &flags("-p 5"), &told);
        assert_eq!(told.0.take(), [format!("memory {}", 64 << 20), "verbose 0".into()]);
        assert!(flags::changes(&running, &flags("-p 5")).is_empty());
    }
}
