//! What is known of the ext4 that a file lies on: whether a sync of one of its files empties the
//! cache of the device for all of them.
//!
//! Of ext4 it is known that a write goes where the bytes were (others may write elsewhere and keep
//! a map of it), and that fdatasync ends with a flush of the device whatever the file had to write
//! (fs/ext4/fsync.c). Not where it is mounted without barriers; nor where its journal is on another
//! device, which may be the one that is flushed. So it is asked for each, and what cannot be told
//! counts as no.

use rustix::fs::{AtFlags, StatxFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The device whose cache fdatasync of this file empties as a whole.
pub fn cache_of(file: &OwnedFd) -> Option<u64> {
    const EXT4_MAGIC: u64 = 0xef53;
    if rustix::fs::fstatfs(file).ok()?.f_type as u64 != EXT4_MAGIC {
        return None;
    }
    // Not where it takes O_DIRECT for a wish (`data=journal`, say).
    let wanted = StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    if told.stx_mask & wanted.bits() == 0 || told.stx_dio_mem_align == 0 {
        return None;
    }
    let (major, minor) = (told.stx_dev_major, told.stx_dev_minor);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let options = options_of(&mounts, &format!("{major}:{minor}"))?;
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = link.file_name()?.to_str()?;
    let is_known = flushes(options) && journal_is_inside(Path::new("/"), name);
    is_known.then_some(u64::from(major) << 32 | u64::from(minor))
}

/// The options of the ext4 on a device, which are the same wherever it is mounted.
fn options_of<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        // 27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_it = place.split(' ').nth(2) == Some(device) && kind.next() == Some("ext4");
        is_it.then(|| kind.nth(1)).flatten()
    })
}

/// Whether such a mount flushes the device, and its files lie on one (not in memory, as with DAX).
fn flushes(options: &str) -> bool {
    let is_other = |option: &str| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "nobarrier" => true,
            "barrier" => value == "0",
            "dax" => value != "never",
            "data" => value == "journal",
            _ => false,
        }
    };
    !options.split(',').any(is_other)
}

/// Whether the ext4 on the device of this name has its journal on it, or has none.
fn journal_is_inside(root: &Path, name: &str) -> bool {
    let task = root.join("sys/fs/ext4").join(name).join("journal_task");
    if std::fs::read_to_string(task).is_ok_and(|task| task.trim() == "<none>") {
        return true;
    }
    // A journal inside is named after its device and inode, one on another device after that.
    let Ok(journals) = std::fs::read_dir(root.join("proc/fs/jbd2")) else { return false };
    journals.flatten().any(|journal| {
        let of = journal.file_name();
        let inode = of.to_str().and_then(|of| of.strip_prefix(name)?.strip_prefix('-'));
        inode.is_some_and(|inode| !inode.is_empty() && inode.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_mount_are_found_and_judged() {
        const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard,resuid=65534
30 27 254:1 / /a rw - ext4 /dev/vdb rw,nobarrier,data=ordered
31 27 254:2 / /b rw - xfs /dev/vdc rw
32 27 254:16 /sub /c rw - ext4 /dev/vdd rw
";
        for (device, wanted) in [
            ("254:0", Some("rw,discard,resuid=65534")),
            ("254:1", Some("rw,nobarrier,data=ordered")),
            ("254:2", None),
            ("254:16", Some("rw")),
            ("54:1", None),
        ] {
            assert_eq!(options_of(MOUNTS, device), wanted, "{device}");
        }
        for options in ["rw", "rw,barrier=1,data=ordered", "rw,barrier", "ro,dax=never,nodelalloc"]
        {
            assert!(flushes(options), "{options}");
        }
        for options in
            ["nobarrier", "rw,nobarrier", "rw,barrier=0", "rw,dax", "dax=always", "data=journal"]
        {
            assert!(!flushes(options), "{options}");
        }
    }

    #[test]
    fn a_journal_is_inside_if_it_is_named_after_the_device_and_an_inode_or_there_is_none() {
        let root = std::env::temp_dir().join(format!("laneway-ext4-{}", std::process::id()));
        for journal in ["sda1-8", "sdb", "dm-0-8", "dm-1"] {
            std::fs::create_dir_all(root.join("proc/fs/jbd2").join(journal)).unwrap();
        }
        for (device, task) in [("sda1", "211"), ("sdc", "212"), ("sdd", "<none>\n")] {
            let folder = root.join("sys/fs/ext4").join(device);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("journal_task"), task).unwrap();
        }
        for inside in ["sda1", "dm-0", "sdd"] {
            assert!(journal_is_inside(&root, inside), "{inside}");
        }
        // sdb and dm-1 hold the journals of others; of sda nothing is said.
        for elsewhere in ["sdb", "sdc", "dm-1", "sda", ""] {
            assert!(!journal_is_inside(&root, elsewhere), "{elsewhere}");
        }
        std::fs::remove_dir_all(&root).unwrap();
        assert!(!journal_is_inside(&root, "sda1"), "nothing can be told");
    }
}
