//! Looks which parts of RDMA a machine has, and says what to do about those that are missing. It
//! changes nothing: it loads the library, opens devices and closes them.

use super::card::{Card, Trouble, names};
use super::ffi;
use crate::remote::{Need, Place};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// What a client's memory takes of what may be locked, with ten workers or so: for replies 1.5 MiB,
/// to lend twice 4 MiB, and slots. With less its long messages go in frames.
const LOCKED_BYTES_MIN: u64 = 12 << 20;

fn need(name: &'static str, found: Result<String, String>) -> Need {
    let (there, missing) = match found {
        Ok(there) => (there, None),
        Err(missing) => (String::new(), Some(missing)),
    };
    Need { name, there, missing }
}

/// Everything that `serve --rdma` needs.
pub fn look() -> Vec<Need> {
    let library = ffi::library().map(|_| ffi::LIBRARY.to_string_lossy().into_owned());
    let devices = names().and_then(|names| match names.is_empty() {
        true => Err(Trouble::no_device()),
        false => Ok(names),
    });
    let mut needs = vec![
        need("libibverbs", library.map_err(|why| Trouble::NoLibrary(why).to_string())),
        need(
            "RDMA device",
            match &devices {
                Ok(names) => Ok(names.join(", ")),
                // Said above already.
                Err(Trouble::NoLibrary(_)) => Err(by_hand()),
                Err(trouble) => Err(trouble.to_string()),
            },
        ),
    ];
    for name in devices.unwrap_or_default() {
        needs.push(need("RDMA port", port(&name)));
    }
    needs.push(need("locked memory", locked()));
    needs.push(need("rdma_rxe, RDMA in software", rxe()));
    needs
}

/// Without the library, what the kernel says.
fn by_hand() -> String {
    let names = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let names: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    match names.is_empty() {
        true => Trouble::no_device().to_string(),
        false => format!("the kernel has {}, but only libibverbs opens it", names.join(", ")),
    }
}

fn port(name: &str) -> Result<String, String> {
    let place: Place = name.parse().map_err(|why| format!("{name}: {why}"))?;
    let card = Card::open(&place).map_err(|trouble| trouble.to_string())?;
    Ok(format!("serve --rdma {}", card.place()))
}

fn locked() -> Result<String, String> {
    match getrlimit(Resource::Memlock).current {
        None => Ok("unlimited".to_owned()),
        Some(bytes) if bytes >= LOCKED_BYTES_MIN || rustix::process::geteuid().is_root() => {
            Ok(format!("{} KiB", bytes >> 10))
        }
        Some(bytes) => Err(format!(
            "{} KiB may be locked, and memory that a device uses is; raise it with ulimit -l, in \
             /etc/security/limits.d, or with LimitMEMLOCK= in the unit",
            bytes >> 10
        )),
    }
}

/// The kernel's device of any network interface.
fn rxe() -> Result<String, String> {
    if Path::new("/sys/module/rdma_rxe").exists() {
        return Ok("loaded".to_owned());
    }
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let there = ["modules.dep", "modules.builtin"].into_iter().any(|list| {
        let list = Path::new("/lib/modules").join(&*release).join(list);
        fs::read_to_string(list).is_ok_and(|list| list.contains("/rdma_rxe.ko"))
    });
    match there {
        true => Ok("modprobe rdma_rxe loads it".to_owned()),
        false => Err(format!(
            "kernel {release} has no module rdma_rxe; without a card, a kernel of a distribution \
             has it (Debian: linux-image-amd64)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_is_there_or_says_what_to_do() {
        let needs = look();
        for name in ["libibverbs", "RDMA device", "locked memory", "rdma_rxe, RDMA in software"] {
            let need = needs.iter().find(|need| need.name == name).expect(name);
            let said = need.to_string();
            match &need.missing {
                None => assert!(said.contains(": available ("), "{said}"),
                Some(missing) => {
                    assert!(missing.len() > 20 && said.contains(": missing: "), "{said}")
                }
            }
        }
    }
}
