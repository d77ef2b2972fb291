//! What this machine offers of the kernel lane, layer by layer; what it lacks, why, and what to do.
//!
//! It looks by trying: the programs are loaded and let go again, nothing is attached.

#[cfg(feature = "kernel")]
use crate::capabilities::BYPASS;
use crate::capabilities::{LANE, grant, missing};
use crate::realtime;
#[cfg(feature = "kernel")]
use rustix::net::{AddressFamily, SocketType};
use std::fmt;

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its name.
    pub name: &'static str,
    /// What is missing and what would help; nothing if it is there.
    pub missing: Option<String>,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing {
            None => write!(f, "{}: available", self.name),
            Some(why) => write!(f, "{}: missing: {why}", self.name),
        }
    }
}

/// tcx links appeared with this kernel.
const TCX_SINCE: (u32, u32) = (6, 6);

/// Whether a kernel's release, as `uname -r` has it, is at least a version; false if it cannot be
/// read.
fn is_since(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(here_major), Some(here_minor)) => (here_major, here_minor) >= (major, minor),
        _ => false,
    }
}

/// Every layer.
pub fn layers() -> Vec<Layer> {
    let lacking = missing(LANE);
    let capabilities = (!lacking.is_empty()).then(|| {
        format!(
            "this process lacks {}; grant them to the program with `{}`, or start it as root",
            lacking.join(", "),
            grant(LANE)
        )
    });
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let tcx = (!is_since(&release, TCX_SINCE)).then(|| {
        let (major, minor) = TCX_SINCE;
        format!("Linux {major}.{minor} or newer is needed for tcx links, this is {release}")
    });
    let realtime = realtime::is_realtime().then(|| realtime::WHY.to_owned());
    let mut layers = vec![
        Layer { name: "capabilities", missing: capabilities },
        Layer { name: "softirqs that are not preempted", missing: realtime },
        Layer { name: "tcx links", missing: tcx },
    ];
    programs(&mut layers);
    layers
}

#[cfg(feature = "kernel")]
fn programs(layers: &mut Vec<Layer>) {
    use crate::{Lane, Program, Room, Steer};
    let room = Room { buckets: 64, overflows: 1, items_bytes: 1 };
    let lane = |program| Lane::load(program, &room).err().map(|why| why.to_string());
    let steering = Steer::load(0).err().map(|why| why.to_string());
    layers.extend([
        Layer { name: "programs in this build", missing: None },
        Layer { name: "GET lane at tc ingress", missing: lane(Program::TrafficControl) },
        Layer { name: "GET lane at XDP", missing: lane(Program::Xdp) },
        Layer { name: "key steering", missing: steering },
        Layer { name: "AF_XDP", missing: bypass() },
    ]);
}

/// The sockets and their program.
#[cfg(feature = "kernel")]
fn bypass() -> Option<String> {
    let lacking = missing(BYPASS);
    if !lacking.is_empty() {
        let (lacking, grant) = (lacking.join(", "), grant(BYPASS));
        return Some(format!("this process lacks {lacking}; grant them with `{grant}`"));
    }
    let kind = (AddressFamily::XDP, SocketType::RAW);
    if let Err(why) = rustix::net::socket(kind.0, kind.1, None) {
        return Some(format!("this kernel makes no such sockets (CONFIG_XDP_SOCKETS): {why}"));
    }
    crate::redirect::Redirect::load().err().map(|why| why.to_string())
}

#[cfg(not(feature = "kernel"))]
fn programs(layers: &mut Vec<Layer>) {
    let missing = Some(crate::error::REBUILD.into());
    layers.push(Layer { name: "programs in this build", missing });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, since) in
            [("6.6.0", true), ("6.18.44-fc", true), ("6.5.9", false), ("10.0", true), ("x", false)]
        {
            assert_eq!(is_since(release, TCX_SINCE), since, "{release}");
        }
    }

    #[test]
    fn every_layer_says_whether_it_is_there() {
        let layers = layers();
        assert!(layers.iter().any(|layer| layer.name == "programs in this build"));
        for layer in &layers {
            let told = layer.to_string();
            assert!(told.contains(": available") || told.contains(": missing: "), "{told}");
        }
    }
}
