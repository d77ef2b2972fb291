//! What guests are made of: a kernel and programs of Debian's, in a folder of ours. Nothing of them
//! is installed.

use crate::{Failure, peers, process, setup};
use std::path::PathBuf;

/// What guests run beside programs of ours. What these packages depend on comes with them.
const PROGRAMS: &str = "busybox-static,e2fsprogs,ethtool,ibverbs-providers,iproute2";

/// What was unpacked.
pub struct Debian {
    /// The root of it all.
    pub root: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its release, by which its modules' folder is called.
    pub release: String,
}

/// Which kernel a guest runs: the newest of its kind that the suite has.
#[derive(Clone, Copy)]
pub enum Kernel {
    /// That of this machine's Debian.
    Ordinary,
    /// One with tcx links, which appeared with 6.6: that of the peers' suite.
    Tcx,
    /// One with PREEMPT_RT.
    Realtime,
}

/// Fetches and unpacks a kernel and the programs, if they are not there yet.
pub fn fetch(kind: Kernel) -> Result<Debian, Failure> {
    let (name, suite, package) = match kind {
        Kernel::Ordinary => ("vm", setup::suite()?, "linux-image-amd64"),
        Kernel::Tcx => ("vm-tcx", peers::SUITE.to_owned(), "linux-image-amd64"),
        Kernel::Realtime => ("vm-realtime", setup::suite()?, "linux-image-rt-amd64"),
    };
    let include = format!("--include={package},{PROGRAMS}");
    let root = setup::root(name, &suite, &["--variant=extract", &include])?;
    let boot = root.join("boot");
    let files = process::named(&boot, "")?;
    let release = files.iter().find_map(|name| name.strip_prefix("vmlinuz-"));
    let release = release.ok_or_else(|| format!("{package} brought no kernel"))?.to_owned();
    Ok(Debian { kernel: boot.join(format!("vmlinuz-{release}")), root, release })
}
