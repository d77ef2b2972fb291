//! `--numa`: the machine's NUMA domains, or as many as somebody wants to pretend.
//!
//! Domains are read from sysfs. What needs all items in one memory does not go with several of
//! them, and is refused.

use crate::flags::Flags;
use laneway_policy::owner::DOMAINS_MAX;
use laneway_server::settings::DomainSettings;
use std::path::Path;

/// Where Linux tells of them.
const NODES: &str = "/sys/devices/system/node";

/// The domains; none where one is enough.
pub fn settings(flags: &Flags, workers: usize) -> Result<Vec<DomainSettings>, String> {
    let Some(wanted) = flags.numa.as_deref() else { return Ok(Vec::new()) };
    let domains = match wanted.strip_prefix("fake:") {
        None if wanted == "off" => Vec::new(),
        None if wanted == "auto" => read(Path::new(NODES)),
        None => return Err(refuse(wanted, "must be off, auto or fake:N")),
        Some(count) => match count.parse() {
            Ok(count) if (1..=DOMAINS_MAX).contains(&count) => {
                (0..count).map(|_| DomainSettings::default()).collect()
            }
            _ => return Err(refuse(wanted, &format!("from 1 to {DOMAINS_MAX} domains"))),
        },
    };
    if domains.len() < 2 {
        return Ok(Vec::new());
    }
    if workers < domains.len() {
        let count = domains.len();
        let words = format!("{count} domains need --workers {count} or more ({workers})");
        return Err(refuse(wanted, &words));
    }
    let others = [
        ("--data-dir", flags.data_dir.is_some()),
        ("--kernel-lane", !flags.kernel_lane.is_empty()),
        ("--steer", flags.steer),
        ("--af-xdp", !flags.af_xdp.is_empty()),
        ("--shm", flags.shm.is_some()),
        ("--rdma", flags.rdma.is_some()),
        ("--hot", flags.hot.as_deref().is_some_and(|hot| hot != "off")),
        ("--access", flags.access.as_deref().is_some_and(|access| access != "crcw")),
    ];
    match others.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(refuse(wanted, &format!("does not go with {flag}"))),
        None => Ok(domains),
    }
}

fn refuse(wanted: &str, why: &str) -> String {
    format!("--numa {wanted}: {why}; leave the flag out for one domain")
}

/// The domains that have CPUs, in the order of their numbers, as many as there may be; none where
/// nothing tells.
fn read(nodes: &Path) -> Vec<DomainSettings> {
    let online = std::fs::read_to_string(nodes.join("online")).unwrap_or_default();
    let cpus = |node: usize| {
        let path = nodes.join(format!("node{node}/cpulist"));
        list(&std::fs::read_to_string(path).unwrap_or_default())
    };
    let domain = |node| DomainSettings { cpus: cpus(node), node: u32::try_from(node).ok() };
    let domains = list(&online).into_iter().map(domain);
    domains.filter(|domain| !domain.cpus.is_empty()).take(usize::from(DOMAINS_MAX)).collect()
}

/// A list of the kernel's, such as `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list("\n"), [0_usize; 0]);
        assert_eq!(list("x,1"), [1]);
    }

    #[test]
    fn domains_are_those_that_have_cpus() {
        let folder = std::env::temp_dir().join(format!("laneway-nodes-{}", std::process::id()));
        for (node, cpus) in [(0, "0-1\n"), (1, "\n"), (2, "2,3\n")] {
            let own = folder.join(format!("node{node}"));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("cpulist"), cpus).unwrap();
        }
        std::fs::write(folder.join("online"), "0-2\n").unwrap();
        let found: Vec<(Option<u32>, Vec<usize>)> =
            read(&folder).into_iter().map(|domain| (domain.node, domain.cpus)).collect();
        assert_eq!(found, [(Some(0), vec![0, 1]), (Some(2), vec![2, 3])]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read(&folder), []);
    }
}
