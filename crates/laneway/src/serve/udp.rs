//! Where UDP is served: `-U`, `--udp-base`, `--udp-listen`, `--udp-public`, checked.
//!
//! It departs from memcached: UDP listens on loopback only, whatever `-l` says, unless
//! `--udp-public` is given too; an open UDP cache is a weapon in other people's wars.

use crate::flags::{self, Flags};
use laneway_server::settings::UdpSettings;
use std::net::{IpAddr, Ipv4Addr};

/// The settings, or none where no flag asks for UDP.
pub fn settings(flags: &Flags, workers: usize) -> Result<Option<UdpSettings>, String> {
    let port = match flags.udp_port {
        None | Some(0) => None,
        Some(-1) => Some(0), // the kernel chooses
        Some(port) => Some(u16::try_from(port).map_err(|_| {
            format!("-U {port}: must be from 1 to 65535, 0 for none, or -1 for any free port")
        })?),
    };
    let port_base = flags.udp_base.map(|base| port_of_base(base, port, workers)).transpose()?;
    if port.is_none() && port_base.is_none() {
        let why = "UDP is off; give it a port with -U PORT or --udp-base PORT too";
        return flags::refuse(flags, "udp-public udp-listen", why).map(|()| None);
    }
    let (address, public) = (address(flags)?, flags.udp_public);
    Ok(Some(UdpSettings { address, port_base, port, public }))
}

fn port_of_base(base: i32, port: Option<u16>, workers: usize) -> Result<u16, String> {
    if base == -1 {
        return Ok(0); // the kernel chooses
    }
    let most = usize::from(u16::MAX) + 1 - workers;
    let fits = u16::try_from(base).ok().filter(|base| *base > 0 && usize::from(*base) <= most);
    let Some(base) = fits else {
        return Err(format!(
            "--udp-base {base}: must be from 1 to {most}, since {workers} workers take one port \
             each from there on, or -1 for any free ones"
        ));
    };
    let last = usize::from(base) + workers - 1;
    match port {
        Some(port) if (usize::from(base)..=last).contains(&usize::from(port)) => Err(format!(
            "-U {port}: worker {} has this port by --udp-base {base}; choose one outside {base} \
             to {last}",
            port - base
        )),
        _ => Ok(base),
    }
}

fn address(flags: &Flags) -> Result<IpAddr, String> {
    let Some(text) = &flags.udp_listen else { return Ok(Ipv4Addr::LOCALHOST.into()) };
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = bare
        .parse()
        .map_err(|_| format!("--udp-listen {text}: not an address; write one such as 127.0.0.1"))?;
    if !address.is_loopback() && !flags.udp_public {
        return Err(format!(
            "--udp-listen {text}: strangers could reach it, and abuse it by lying about where \
             they are; say --udp-public too if that is meant, or listen on 127.0.0.1"
        ));
    }
    Ok(address)
}
