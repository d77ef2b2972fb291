//! Which files a server in a sandbox reaches (Landlock): those that its flags name, and what it
//! reads of the machine. Of a file that may be replaced while the server runs, as certificates are,
//! it is the folder, since a rule is about what stands there now.

use crate::flags::Flags;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The newest rights that are asked for; an older kernel has fewer of them.
const ABI_WANTED: ABI = ABI::V5;

/// What may be done at a place, and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Files are read.
    Read,
    /// One device is written to.
    Write,
    /// Files and sockets come and go.
    Entries,
    /// Everything, but running programs.
    Own,
}

impl Reach {
    fn rights(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        match self {
            Reach::Read => read,
            Reach::Write => write | AccessFs::ReadFile,
            Reach::Entries => write | AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::RemoveFile,
            Reach::Own => AccessFs::from_all(ABI_WANTED) & !BitFlags::from(AccessFs::Execute),
        }
    }
}

/// A place, and what may be done there.
pub type Rule = (PathBuf, Reach);

/// What a server with these flags reaches; the file of ports is written at the start.
pub fn rules(flags: &Flags, ports_file: Option<PathBuf>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = vec![
        // The machine's CPUs, memory, devices and network counters.
        ("/proc".into(), Reach::Read),
        ("/sys".into(), Reach::Read),
        ("/dev/null".into(), Reach::Write),
        ("/dev/urandom".into(), Reach::Read),
    ];
    // What a panic says of where it was.
    rules.extend(std::env::current_exe().ok().map(|program| (program, Reach::Read)));
    let ssl = &flags.extended.ssl;
    let theirs = [&ssl.chain_cert, &ssl.key, &ssl.ca_cert].into_iter().flatten().map(OsStr::new);
    let own =
        [&flags.config, &flags.auth_file, &flags.tls_cert, &flags.tls_key, &flags.tls_client_ca];
    // They are read again at SIGHUP.
    for path in own.into_iter().flatten().map(|path| &**path).chain(theirs) {
        let folders = folders_of(Path::new(path));
        rules.extend(folders.into_iter().map(|folder| (folder, Reach::Read)));
    }
    for path in [&flags.unix_socket, &flags.shm, &flags.pid_file].into_iter().flatten() {
        rules.push((folder_of(Path::new(path)), Reach::Entries));
    }
    // A write to a link goes to the file that the link leads to, so its folder is allowed, too.
    if let Some(path) = &flags.pid_file {
        rules.extend(folders_of(Path::new(path)).pop().map(|folder| (folder, Reach::Entries)));
    }
    rules.extend(ports_file.map(|path| (folder_of(&path), Reach::Entries)));
    let owned = [&flags.data_dir, &flags.pm, &flags.ssd, &flags.backup_dir];
    for path in owned.into_iter().flatten() {
        rules.push((there_or_above(Path::new(path)), Reach::Own));
    }
    // Its files may be links to other disks.
    for folder in flags.data_dir.iter().map(Path::new) {
        let links =
            ["log", "ssd"].into_iter().filter_map(|name| folder.join(name).read_link().ok());
        rules.extend(links.map(|link| (there_or_above(&folder.join(link)), Reach::Own)));
    }
    if flags.core_dumps {
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        rules.push((folder_of_cores(&pattern), Reach::Entries));
    }
    rules.sort();
    rules.dedup();
    rules
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => ".".into(),
    }
}

/// Where the kernel writes a core by this pattern (core(5)), which it does as the process that
/// ends; the working folder, where the pattern names no other. A program that it gives the core to
/// is in no sandbox.
fn folder_of_cores(pattern: &str) -> PathBuf {
    match pattern.starts_with('/') {
        true => there_or_above(&folder_of(Path::new(pattern.trim_end()))),
        false => ".".into(),
    }
}

/// Links that the kernel follows on the way to one file.
const LINKS_MAX: usize = 40;

/// The folder of a file, and those of all links on the way to it, whose targets may be links, too.
/// Any may be set anew, as Kubernetes and others that roll out do: what it leads to then stands
/// beside what it leads to now.
fn folders_of(path: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder_of(path)];
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        // The first one that the kernel meets.
        let links = path.ancestors().filter_map(|prefix| Some((prefix, prefix.read_link().ok()?)));
        let Some((link, target)) = links.last() else { break };
        let folder = folder_of(link);
        // Nothing stands behind the last link, and no slash may, either.
        let next = match path.strip_prefix(link) {
            Ok(rest) if !rest.as_os_str().is_empty() => folder.join(target).join(rest),
            _ => folder.join(target),
        };
        folders.push(folder);
        path = next;
        folders.push(folder_of(&path));
    }
    folders
}

/// A path that is there: this one, or the nearest above it, where it is to be made. It is to be
/// made also in the place of a file that is empty, beside what links lead to.
fn there_or_above(path: &Path) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_there =
        |path: &&Path| path.metadata().is_ok_and(|found| !found.is_file() || found.len() != 0);
    let there = path.ancestors().find(is_there);
    there.filter(|path| !path.as_os_str().is_empty()).map_or_else(|| ".".into(), Path::to_owned)
}

/// Reach nothing else from now on, by this thread and those that it makes.
pub fn guard(rules: &[Rule]) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let handled = Ruleset::default().handle_access(AccessFs::from_all(ABI_WANTED));
    // No rule lets anybody connect by TCP, also not by a socket that was accepted (Linux 6.7).
    let handled = handled.and_then(|rules| rules.handle_access(AccessNet::ConnectTcp));
    let mut ruleset = handled.and_then(Ruleset::create).map_err(|error| told(&error))?;
    for (path, reach) in rules {
        // Not every machine has all of them.
        let Ok(place) = PathFd::new(path) else { continue };
        let mut rights = reach.rights();
        if !path.is_dir() {
            rights &= AccessFs::from_file(ABI_WANTED);
        }
        let added = ruleset.add_rule(PathBeneath::new(place, rights));
        ruleset = added.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let status = ruleset.restrict_self().map_err(|error| told(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("Landlock is not available: the kernel is older \
                than 5.13 or has it switched off, or a unit or container refuses `landlock_*`"
            .to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::typed as flags;
    use std::net::{TcpListener, TcpStream};

    /// Since Linux 6.7.
    fn connects_are_handled() -> bool {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        (numbers.next(), numbers.next()) >= (Some(6), Some(7))
    }

    #[test]
    fn a_server_reaches_what_its_flags_name() {
        let machine = rules(&flags(""), None).len();
        for (line, wanted) in [
            ("-l 127.0.0.1:5,[::1],readonly:notls:10.0.0.1", &[][..]),
            ("-P /run/x/pid", &[("/run/x", Reach::Entries)]),
            ("-s sock", &[(".", Reach::Entries)]),
            ("-Y /proc/version", &[]), // among the machine's, and its folder is there twice
            ("--data-dir /no/such/folder", &[("/", Reach::Own)]),
            ("--data-dir /tmp", &[("/tmp", Reach::Own)]),
            ("--tls-cert /a/cert --tls-key /b/key", &[("/a", Reach::Read), ("/b", Reach::Read)]),
            ("-o ssl_chain_cert=/a/cert", &[("/a", Reach::Read)]),
        ] {
            let all = rules(&flags(line), None);
            for (path, reach) in wanted {
                assert!(all.contains(&(PathBuf::from(path), *reach)), "{line}: {all:?}");
            }
            assert_eq!(all.len(), machine + wanted.len(), "{line}: {all:?}");
        }
        // Names were looked up before.
        let named = rules(&flags("-l ,localhost, --admin localhost:1"), Some("/run/ports".into()));
        assert!(named.contains(&("/run".into(), Reach::Entries)));
        assert_eq!(named.len(), machine + 1, "{named:?}");
    }

    #[test]
    fn the_folder_of_each_link_on_the_way_to_a_file_is_read() {
        let folder = std::env::temp_dir().join(format!("laneway-links-{}", std::process::id()));
        let release = folder.join("releases/7");
        fs::create_dir_all(&release).expect("temp is writable");
        fs::write(release.join("users"), "a:b").expect("temp is writable");
        let current = folder.join("current");
        std::os::unix::fs::symlink("releases/7", &current).expect("temp is writable");
        let users = current.join("users");
        let all = rules(&flags(&format!("-Y {}", users.display())), None);
        fs::remove_dir_all(&folder).expect("it is ours");
        for wanted in [current, folder] {
            assert!(all.contains(&(wanted.clone(), Reach::Read)), "{wanted:?}: {all:?}");
        }
    }

    #[test]
    fn a_pid_file_that_is_a_link_is_written_where_it_leads() {
        let folder = std::env::temp_dir().join(format!("laneway-pid-{}", std::process::id()));
        let (named, run) = (folder.join("named"), folder.join("run"));
        for folder in [&named, &run] {
            fs::create_dir_all(folder).expect("temp is writable");
        }
        std::os::unix::fs::symlink("../run/pid", named.join("pid")).expect("temp is writable");
        let all = rules(&flags(&format!("-P {}", named.join("pid").display())), None);
        let entries = all.into_iter().filter(|(_, reach)| *reach == Reach::Entries);
        let places: Vec<PathBuf> =
            entries.map(|(folder, _)| folder.canonicalize().expect("it is there")).collect();
        let wanted = [&named, &run].map(|folder| folder.canonicalize().expect("it is there"));
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(places.len(), wanted.len(), "{places:?}");
        assert!(wanted.iter().all(|wanted| places.contains(wanted)), "{places:?}");
    }

    #[test]
    fn cores_go_where_the_kernel_puts_them() {
        let folder = std::env::temp_dir().canonicalize().expect("it is there");
        let there = folder.display();
        for (pattern, wanted) in [
            ("core\n", Path::new(".")),
            ("cores/%p\n", Path::new(".")),
            ("|/usr/lib/systemd/systemd-coredump %P\n", Path::new(".")),
            ("", Path::new(".")),
            (&format!("{there}/core.%e.%p\n"), &folder),
            (&format!("{there}/%e.no-such-folder/%p\n"), &folder),
        ] {
            assert_eq!(folder_of_cores(pattern), wanted, "{pattern}");
        }
    }

    /// A link of one's own to a file that Kubernetes mounts, which it reaches by two more.
    #[test]
    fn the_folders_of_links_to_links_are_read() {
        let folder = std::env::temp_dir().join(format!("laneway-chain-{}", std::process::id()));
        let (own, mounted) = (folder.join("own"), folder.join("mounted"));
        fs::create_dir_all(mounted.join("..1")).expect("temp is writable");
        fs::create_dir_all(&own).expect("temp is writable");
        fs::write(mounted.join("..1/users"), "a:b").expect("temp is writable");
        let link = |to: &str, from: &Path| {
            std::os::unix::fs::symlink(to, from).expect("temp is writable");
        };
        link("..1", &mounted.join("..data"));
        link("..data/users", &mounted.join("users"));
        link("../mounted/users", &own.join("users"));
        link("loop", &own.join("loop"));
        let found = folders_of(&own.join("users"));
        let ends = folders_of(&own.join("loop"));
        let last = found.last().and_then(|last| last.canonicalize().ok());
        let places = found.iter().filter_map(|folder| folder.canonicalize().ok());
        let places: Vec<PathBuf> = places.collect();
        let wanted = [&own, &mounted].map(|folder| folder.canonicalize().expect("it is there"));
        fs::remove_dir_all(&folder).expect("it is ours");
        assert!(wanted.iter().all(|wanted| places.contains(wanted)), "{places:?}");
        assert_eq!(last, Some(wanted[1].join("..1")), "{found:?}");
        assert_eq!(ends.len(), 1 + 2 * LINKS_MAX, "a link to itself leads nowhere");
    }

    #[test]
    fn a_file_that_is_empty_is_made_anew_where_it_lies() {
        let folder = std::env::temp_dir().join(format!("laneway-empty-{}", std::process::id()));
        for name in ["data", "pm", "ssd"] {
            fs::create_dir_all(folder.join(name)).expect("temp is writable");
        }
        let folder = folder.canonicalize().expect("it is there");
        let (empty, full) = (folder.join("pm/log"), folder.join("ssd/file"));
        fs::write(&empty, "").expect("temp is writable");
        fs::write(&full, "text").expect("temp is writable");
        std::os::unix::fs::symlink(&empty, folder.join("data/log")).expect("temp is writable");
        let data = folder.join("data");
        let of = |more: &str| {
            let line = format!("--data-dir {} --ssd {} {more}", data.display(), full.display());
            rules(&flags(&line), None)
        };
        let (linked, named) = (of(""), of(&format!("--pm {}", empty.display())));
        fs::remove_dir_all(&folder).expect("it is ours");
        for all in [linked, named] {
            for wanted in [&data, &folder.join("pm"), &full] {
                assert!(all.contains(&(wanted.clone(), Reach::Own)), "{wanted:?}: {all:?}");
            }
        }
    }

    #[test]
    fn other_files_are_refused_by_the_kernel() {
        let folder = std::env::temp_dir().join(format!("laneway-sandbox-{}", std::process::id()));
        let (inside, outside) = (folder.join("in"), folder.join("out"));
        for folder in [&inside, &outside] {
            fs::create_dir_all(folder).expect("temp is writable");
            fs::write(folder.join("file"), "text").expect("temp is writable");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
        let address = listener.local_addr().expect("it is bound");
        // It holds for a thread and those that it makes.
        let guarded = std::thread::spawn({
            let (inside, outside) = (inside.clone(), outside.clone());
            let connects_are_handled = connects_are_handled();
            move || {
                let rules = [(inside.clone(), Reach::Own), (outside.join("file"), Reach::Read)];
                if let Err(why) = guard(&rules) {
                    use std::io::Write;
                    let _ = writeln!(std::io::stderr(), "SKIPPED: Landlock: {why}");
                    return;
                }
                let made = fs::write(inside.join("more"), "text");
                assert!(made.is_ok() && fs::remove_file(inside.join("more")).is_ok());
                assert!(fs::read(outside.join("file")).is_ok());
                let refused = |done: std::io::Result<()>, what: &str| {
                    let kind = done.expect_err(what).kind();
                    assert_eq!(kind, std::io::ErrorKind::PermissionDenied, "{what}");
                };
                if connects_are_handled {
                    refused(TcpStream::connect(address).map(drop), "a connection");
                }
                refused(fs::write(outside.join("file"), "new"), "writing what may be read");
                refused(fs::write(outside.join("more"), "new"), "making a file elsewhere");
                refused(fs::read_dir(&outside).map(drop), "listing a folder elsewhere");
                refused(fs::read("/etc/passwd").map(drop), "reading a file elsewhere");
                let there = std::thread::spawn(|| fs::read("/etc/passwd").map(drop)).join();
                refused(there.expect("it ends"), "reading it by another thread");
            }
        });
        let ended = guarded.join();
        fs::remove_dir_all(folder).expect("it is ours");
        ended.expect("what it says stands above");
    }
}
