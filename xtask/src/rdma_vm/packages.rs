//! Debian's packages, fetched and unpacked into a folder of ours: apt knows where they are, and
//! nothing of them is installed.

use crate::process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose newest dependency is the kernel to run.
const KERNEL_META: &str = "linux-image-amd64";
/// What the guest runs beside our programs: a shell and its tools, `ip` and `rdma`, libibverbs and
/// the provider for rxe, and the libraries of these.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "iproute2",
    "libbpf1",
    "libcap2",
    "libelf1",
    "libibverbs1",
    "ibverbs-providers",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "zlib1g",
];

/// What was unpacked.
pub struct Debian {
    /// The root of it all.
    pub root: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its release, by which its modules' folder is called.
    pub release: String,
}

/// Fetches and unpacks what is not there yet.
pub fn fetch(folder: &Path) -> Result<Debian, String> {
    let root = folder.join("root");
    if let Some(debian) = unpacked(&root) {
        return Ok(debian);
    }
    // From an earlier attempt, which did not come to its end.
    let _ = fs::remove_dir_all(&root);
    let debs = folder.join("debs");
    let half = folder.join("root.part");
    let _ = fs::remove_dir_all(&half);
    for dir in [&debs, &half] {
        fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    let kernel = match kernel_package() {
        Ok(kernel) => kernel,
        Err(_) => {
            process::run(Command::new("apt-get").args(["update", "-qq"]))?;
            kernel_package()?
        }
    };
    println!("fetching {kernel} and {} small packages", PACKAGES.len());
    let names = PACKAGES.iter().copied().chain([kernel.as_str()]);
    let mut download = Command::new("apt-get");
    process::run(download.args(["download", "-qq"]).args(names).current_dir(&debs))?;
    let found = fs::read_dir(&debs).map_err(|e| format!("cannot read {}: {e}", debs.display()))?;
    for deb in found.flatten().map(|entry| entry.path()) {
        process::run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&half))?;
    }
    fs::rename(&half, &root).map_err(|e| format!("cannot move {}: {e}", half.display()))?;
    let _ = fs::remove_dir_all(&debs);
    unpacked(&root).ok_or_else(|| format!("{kernel} brought no kernel"))
}

/// The package of the newest kernel.
fn kernel_package() -> Result<String, String> {
    let (_, told) = process::capture(Command::new("apt-cache").args(["depends", KERNEL_META]))?;
    let names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let kernel = names.map(str::to_owned).find(|name| name.starts_with("linux-image-"));
    kernel.ok_or_else(|| format!("apt knows no {KERNEL_META}"))
}

fn unpacked(root: &Path) -> Option<Debian> {
    let boot = fs::read_dir(root.join("boot")).ok()?;
    let release = boot.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.strip_prefix("vmlinuz-").map(str::to_owned)
    })?;
    let kernel = root.join("boot").join(format!("vmlinuz-{release}"));
    Some(Debian { root: root.to_path_buf(), kernel, release })
}
