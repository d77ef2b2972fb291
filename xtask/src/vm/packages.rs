//! Debian's packages, fetched and unpacked into a folder of ours: apt knows where they are, and
//! nothing of them is installed.

use crate::{Failure, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's packages are, and whose signature is believed.
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Names of packages that are unpacked, each an empty file in this folder below the root.
const DONE: &str = ".unpacked";

/// What apt says where the network is not there, or nobody answers.
const UNREACHABLE: [&str; 7] = [
    "failure resolving",
    "Could not resolve",
    "error resolving",
    "happened resolving",
    "Could not connect to",
    "Unable to connect to",
    "Cannot initiate the connection to",
];

/// This failed, and apt had said so much. It could not be tried where nobody is reached from here;
/// anything else, such as a wrong checksum, is a failure.
fn judged(what: String, said: &str) -> Failure {
    let is_told = |line: &&str| UNREACHABLE.iter().any(|words| line.contains(words));
    match (said.lines().find(is_told), said.trim()) {
        (Some(line), _) => Failure::Skipped(format!("{what}: {}", line.trim())),
        (None, "") => Failure::Failed(what),
        (None, said) => Failure::Failed(format!("{what}: {said}")),
    }
}

/// What was unpacked.
pub struct Debian {
    /// The root of it all.
    pub root: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its release, by which its modules' folder is called.
    pub release: String,
}

/// Which kernel a guest runs: the newest of its kind that Debian has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// That of this machine's Debian.
    Ordinary,
    /// One with tcx links. Where this machine's Debian has an older one, that of its backports.
    Tcx,
    /// One with PREEMPT_RT.
    Realtime,
}

/// tcx links appeared with this version.
const TCX_SINCE: &str = "6.6";

impl Kernel {
    /// Guests with the same kernel have one folder, so that they share it.
    fn folder(self) -> &'static str {
        match self {
            Kernel::Ordinary => "vm",
            Kernel::Tcx => "vm-tcx",
            Kernel::Realtime => "vm-realtime",
        }
    }

    /// Whose newest dependency is the kernel.
    fn meta(self) -> &'static str {
        match self {
            Kernel::Ordinary | Kernel::Tcx => "linux-image-amd64",
            Kernel::Realtime => "linux-image-rt-amd64",
        }
    }

    /// Whether a package is one.
    fn is(self, package: &str) -> bool {
        let is_new = |version| process::numbers(version) >= process::numbers(TCX_SINCE);
        self != Kernel::Tcx || process::version(package).is_some_and(is_new)
    }
}

/// Fetches and unpacks a kernel and `packages`, as far as they are not there yet.
pub fn fetch(kind: Kernel, packages: &[&str]) -> Result<Debian, Failure> {
    let folder = process::scratch_dir(kind.folder())?;
    let (root, debs) = (folder.join("root"), folder.join("debs"));
    let done = root.join(DONE);
    // From an earlier attempt, which did not come to its end.
    let _ = fs::remove_dir_all(&debs);
    process::make_dir(&debs)?;
    process::make_dir(&done)?;
    let missing = packages.iter().filter(|name| !done.join(name).exists());
    let missing: Vec<String> = missing.map(|name| name.to_string()).collect();
    let attempt = || {
        let mut wanted = vec![(Vec::new(), missing.clone())];
        if kernel(&root).is_none() {
            let (apt, package) = kernel_package(kind, &folder)?;
            wanted.push((apt, vec![package]));
        }
        for (apt, names) in wanted.iter().filter(|(_, names)| !names.is_empty()) {
            download(apt, names, &debs)?;
        }
        Ok::<_, Failure>(wanted)
    };
    let wanted = with_newer_lists(attempt, || update(&[]))?;
    unpack(&debs, &root)?;
    for name in wanted.iter().flat_map(|(_, names)| names) {
        process::write(done.join(name), "")?;
    }
    let _ = fs::remove_dir_all(&debs);
    let unpacked = kernel(&root).ok_or_else(|| "the kernel's package brought no kernel".to_owned());
    let (kernel, release) = unpacked?;
    Ok(Debian { root, kernel, release })
}

fn download(options: &[String], names: &[String], debs: &Path) -> Result<(), Failure> {
    println!("fetching {}", names.join(" "));
    let mut download = Command::new("apt-get");
    download.args(options).args(["download", "-qq"]).args(names).current_dir(debs);
    apt_get(&mut download).map(drop)
}

/// Attempts it again with newer lists where it fails by those that are here: lists of some days ago
/// name packages that the mirror has no more.
fn with_newer_lists<T>(
    attempt: impl Fn() -> Result<T, Failure>,
    update: impl FnOnce() -> Result<String, Failure>,
) -> Result<T, Failure> {
    match attempt() {
        Err(Failure::Failed(why)) => match update() {
            Ok(_) => attempt(),
            // Such as for want of rights: what failed first says more.
            Err(_) => Err(Failure::Failed(why)),
        },
        other => other,
    }
}

/// Has apt look which packages there are. It may succeed though it reached nobody, and says so.
fn update(options: &[String]) -> Result<String, Failure> {
    apt_get(Command::new("apt-get").args(options).args(["update", "-qq"]))
}

/// Runs it to its end, and returns what it says.
fn apt_get(command: &mut Command) -> Result<String, Failure> {
    let (status, said) = process::capture(command.env("LC_ALL", "C"))?;
    if status.success() {
        return Ok(said);
    }
    let what = format!("`{}` ended with {}", process::typed(command), process::told(status));
    Err(judged(what, &said))
}

fn unpack(debs: &Path, root: &Path) -> Result<(), String> {
    let found = fs::read_dir(debs).map_err(|e| format!("cannot read {}: {e}", debs.display()))?;
    for deb in found.flatten().map(|entry| entry.path()) {
        process::run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(root))?;
    }
    Ok(())
}

/// The package of a kernel, and what apt is told so that it finds it.
fn kernel_package(kind: Kernel, folder: &Path) -> Result<(Vec<String>, String), Failure> {
    let newest = match newest_kernel(&[], kind) {
        Ok(newest) => newest,
        Err(_) => updated_kernel(&[], kind)?,
    };
    if kind.is(&newest) {
        return Ok((Vec::new(), newest));
    }
    let apt = backports(folder)?;
    let newer = updated_kernel(&apt, kind)?;
    match kind.is(&newer) {
        true => Ok((apt, newer)),
        false => Err(format!("neither {newest} nor {newer} has tcx links").into()),
    }
}

/// The newest one that there is by now.
fn updated_kernel(options: &[String], kind: Kernel) -> Result<String, Failure> {
    let said = update(options)?;
    newest_kernel(options, kind).map_err(|why| judged(why, &said))
}

/// What makes apt look at this release's backports only, with lists of its own: this machine's
/// stay as they are.
fn backports(folder: &Path) -> Result<Vec<String>, String> {
    let release = process::read("/etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.ok_or("/etc/os-release names no release")?.trim_matches('"');
    let apt = folder.join("apt");
    let (lists, cache) = (apt.join("lists"), apt.join("cache"));
    for dir in [lists.join("partial"), cache.join("archives/partial")] {
        process::make_dir(dir)?;
    }
    let sources = apt.join("sources.list");
    let line = format!("deb [signed-by={KEYRING}] {MIRROR} {name}-backports main\n");
    process::write(&sources, line)?;
    let options = [
        format!("Dir::Etc::SourceList={}", sources.display()),
        "Dir::Etc::SourceParts=/dev/null".into(),
        format!("Dir::State::Lists={}", lists.display()),
        format!("Dir::Cache={}", cache.display()),
        // Its own user may not be able to come here.
        "APT::Sandbox::User=root".into(),
        // A mirror that is behind serves lists that are out of date by some days; they will do.
        "Acquire::Check-Valid-Until=false".into(),
    ];
    Ok(options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect())
}

fn newest_kernel(apt: &[String], kind: Kernel) -> Result<String, String> {
    let meta = kind.meta();
    let (_, told) = process::capture(Command::new("apt-cache").args(apt).args(["depends", meta]))?;
    let names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let kernel = names.map(str::to_owned).find(|name| name.starts_with("linux-image-"));
    kernel.ok_or_else(|| format!("apt knows no {meta}"))
}

/// The kernel that is unpacked whole, and its release.
fn kernel(root: &Path) -> Option<(PathBuf, String)> {
    let boot = fs::read_dir(root.join("boot")).ok()?;
    boot.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let release = name.strip_prefix("vmlinuz-")?;
        let whole = root.join(DONE).join(format!("linux-image-{release}")).exists();
        whole.then(|| (entry.path(), release.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn only_what_nobody_answers_is_no_failure() {
        for (said, is_reached) in [
            ("E: Failed to fetch http://a/b  Temporary failure resolving 'a'", false),
            ("W: Failed to fetch http://a/b  Could not resolve 'a'\nW: Some were ignored", false),
            ("E: Unable to connect to a:http:", false),
            ("E: Could not connect to a:80 (10.0.0.1), connection timed out", false),
            ("E: Failed to fetch http://a/b  Hash Sum mismatch", true),
            ("E: Failed to fetch http://a/b  404  Not Found [IP: 10.0.0.1 80]", true),
            ("E: Unable to locate package linux-image-9", true),
            ("", true),
        ] {
            let told = judged("it failed".into(), said);
            assert_eq!(matches!(told, Failure::Failed(_)), is_reached, "{told:?}");
        }
    }

    #[test]
    fn what_fails_by_old_lists_is_attempted_again_with_newer_ones() {
        let failed = || Failure::Failed("404  Not Found".into());
        let nobody = || Failure::Skipped("failure resolving".into());
        for (first, updated, result, attempts) in [
            (Ok(1), Ok(String::new()), Ok(1), 1),
            (Err(failed()), Ok(String::new()), Ok(2), 2),
            (Err(failed()), Err(nobody()), Err(failed()), 1),
            (Err(nobody()), Ok(String::new()), Err(nobody()), 1),
        ] {
            let (first, attempted) = (Cell::new(Some(first)), Cell::new(0));
            let attempt = || {
                attempted.set(attempted.get() + 1);
                first.take().unwrap_or(Ok(2))
            };
            let told = with_newer_lists(attempt, || updated);
            assert_eq!((told, attempted.get()), (result, attempts));
        }
    }

    #[test]
    fn a_kernel_with_tcx_links_is_known_by_its_packages_name() {
        for (package, expected) in [
            ("linux-image-6.12.95+deb12-amd64", true),
            ("linux-image-6.6.13-amd64", true),
            ("linux-image-10.0.1-amd64", true),
            ("linux-image-6.1.0-56-amd64", false),
            ("linux-image-amd64", false),
        ] {
            assert_eq!(Kernel::Tcx.is(package), expected, "{package}");
            assert!(Kernel::Ordinary.is(package) && Kernel::Realtime.is(package));
        }
    }
}
