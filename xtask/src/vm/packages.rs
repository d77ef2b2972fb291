//! Debian's packages, fetched and unpacked into a folder of ours: apt knows where they are, and
//! nothing of them is installed.

use crate::process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose newest dependency is the kernel to run.
const KERNEL_META: &str = "linux-image-amd64";
/// Names of packages that are unpacked, each an empty file in this folder below the root.
const DONE: &str = ".unpacked";

/// What was unpacked.
pub struct Debian {
    /// The root of it all.
    pub root: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its release, by which its modules' folder is called.
    pub release: String,
}

/// Fetches and unpacks a kernel and `packages`, as far as they are not there yet. All guests have
/// one folder, so that they share the kernel.
pub fn fetch(packages: &[&str]) -> Result<Debian, String> {
    let folder = process::scratch_dir("vm")?;
    let (root, debs) = (folder.join("root"), folder.join("debs"));
    let done = root.join(DONE);
    // From an earlier attempt, which did not come to its end.
    let _ = fs::remove_dir_all(&debs);
    for dir in [&debs, &done] {
        fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    let missing = packages.iter().filter(|name| !done.join(name).exists());
    let mut missing: Vec<String> = missing.map(|name| name.to_string()).collect();
    if kernel(&root).is_none() {
        missing.push(kernel_package()?);
    }
    if !missing.is_empty() {
        unpack(&missing, &debs, &root)?;
    }
    for name in &missing {
        let path = done.join(name);
        fs::write(&path, "").map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    let _ = fs::remove_dir_all(&debs);
    let (kernel, release) = kernel(&root).ok_or("the kernel's package brought no kernel")?;
    Ok(Debian { root, kernel, release })
}

fn unpack(names: &[String], debs: &Path, root: &Path) -> Result<(), String> {
    println!("fetching {}", names.join(" "));
    let mut download = Command::new("apt-get");
    process::run(download.args(["download", "-qq"]).args(names).current_dir(debs))?;
    let found = fs::read_dir(debs).map_err(|e| format!("cannot read {}: {e}", debs.display()))?;
    for deb in found.flatten().map(|entry| entry.path()) {
        process::run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(root))?;
    }
    Ok(())
}

/// The package of the newest kernel.
fn kernel_package() -> Result<String, String> {
    newest_kernel().or_else(|_| {
        process::run(Command::new("apt-get").args(["update", "-qq"]))?;
        newest_kernel()
    })
}

fn newest_kernel() -> Result<String, String> {
    let (_, told) = process::capture(Command::new("apt-cache").args(["depends", KERNEL_META]))?;
    let names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let kernel = names.map(str::to_owned).find(|name| name.starts_with("linux-image-"));
    kernel.ok_or_else(|| format!("apt knows no {KERNEL_META}"))
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
