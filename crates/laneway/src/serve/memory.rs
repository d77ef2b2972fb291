//! Whether there is as much memory as `-m` says: what the machine has, and what the kernel lets
//! this process's control groups take (cgroups(7)), as in a container.

use super::MEBIBYTE;
use std::fs;
use std::path::Path;

/// What is told where items may take all the memory that there is for this process, or more.
pub fn too_much(asked_bytes: u64) -> Option<String> {
    beyond(asked_bytes, of_machine(), of_groups())
}

/// The same where the machine has so much, and the groups may take so much.
fn beyond(asked_bytes: u64, machine: Option<u64>, groups: Option<u64>) -> Option<String> {
    let bounds = [
        (groups, "this container or unit (its control group) may take"),
        (machine, "the machine has"),
    ];
    let there = bounds.into_iter().filter_map(|(bytes, whose)| Some((bytes?, whose)));
    let (there, whose) = there.min_by_key(|(bytes, _)| *bytes)?;
    (there <= asked_bytes).then(|| {
        let (asked, there) = (asked_bytes / MEBIBYTE, there / MEBIBYTE);
        format!(
            "-m {asked}: {whose} {there} MiB; a server that fills up is ended by the kernel \
             unless there is swap"
        )
    })
}

/// The machine's memory in bytes, where the kernel says.
fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The limit of this process's control groups in bytes; none where there is no such limit.
fn of_groups() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    least_limit(&groups, |file| fs::read_to_string(file).ok())
}

/// The least limit of these groups and of those that they are in. A container sees the last ones
/// of these, at the names of the first. `read` gives a file's text.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(root).join(path.trim_start_matches('/'));
        let all = group.ancestors().take_while(|group| group.starts_with(root));
        all.filter_map(|group| read(&group.join(file))?.trim().parse::<u64>().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let limit = |groups: &str, files: &[(&str, &str)]| {
            least_limit(groups, |asked| {
                let file = files.iter().find(|(file, _)| Path::new(file) == asked);
                file.map(|(_, text)| (*text).to_owned())
            })
        };
        let unit = "0::/system.slice/laneway.service\n";
        let of_unit = "/sys/fs/cgroup/system.slice/laneway.service/memory.max";
        let of_slice = ("/sys/fs/cgroup/system.slice/memory.max", "300\n");
        assert_eq!(limit(unit, &[(of_unit, "200\n"), of_slice]), Some(200));
        assert_eq!(limit(unit, &[(of_unit, "max\n"), of_slice]), Some(300));
        assert_eq!(limit(unit, &[(of_unit, "max\n")]), None);
        // In a container: its own group is the root there.
        assert_eq!(limit("0::/\n", &[("/sys/fs/cgroup/memory.max", "100\n")]), Some(100));
        let first = "5:cpu,cpuacct:/docker/5\n3:memory:/docker/5\n1:name=systemd:/docker/5\n";
        let file = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(first, &[(file, "400\n")]), Some(400));
        for groups in ["", "0:\n", "nonsense\n", "0::/\n"] {
            assert_eq!(limit(groups, &[(file, "400\n")]), None, "{groups}");
        }
    }

    #[test]
    fn what_leaves_nothing_beside_the_items_is_told_with_the_narrower_bound() {
        for (asked_mib, machine, groups, told) in [
            (64, Some(2048), None, None),
            (2048, Some(2048), None, Some("-m 2048: the machine has 2048 MiB")),
            (1024, Some(8192), Some(1024), Some("(its control group) may take 1024 MiB")),
            (1024, Some(8192), Some(1792), None),
            // A group without a limit of its own tells a very large one.
            (4096, Some(2048), Some(u64::MAX >> 20), Some("the machine has 2048 MiB")),
            (4096, None, None, None),
        ] {
            let bytes = |mib: Option<u64>| mib.map(|mib| mib << 20);
            let words = beyond(asked_mib << 20, bytes(machine), bytes(groups));
            assert_eq!(words.is_some(), told.is_some(), "{words:?}");
            assert!(words.unwrap_or_default().contains(told.unwrap_or_default()), "{told:?}");
        }
    }
}
