//! The flags of `laneway bench` that say how UDP is used.

use crate::arguments::{number, text};
use crate::datagram::LargeSets;
use crate::datagram::endpoint::Wanted;
use laneway_rdma::verbs::{Place, Service};
use lexopt::Parser;
use std::time::Duration;

/// When a request is given up, where the flags do not say.
const TIMEOUT_MS: f64 = 250.0;
/// Longest time waited: ids of requests given up rest for seconds.
const TIMEOUT_MS_MAX: f64 = 60_000.0;

/// Flags as typed.
#[derive(Debug, Clone, Default)]
pub(super) struct UdpTyped {
    udp: bool,
    in_memory: bool,
    over_rdma: bool,
    shm_idle: Option<usize>,
    rdma_device: Option<Place>,
    rdma_service: Option<Option<Service>>,
    port: Option<u16>,
    base: Option<u16>,
    queues: Option<u16>,
    large_sets: Option<LargeSets>,
    timeout_ms: Option<f64>,
}

impl UdpTyped {
    /// Takes flag `name`, the last module to be asked.
    pub(super) fn flag(&mut self, name: &str, parser: &mut Parser) -> Result<(), String> {
        match name {
            "udp" => self.udp = true,
            "transport" => match text(name, parser)?.as_str() {
                "tcp" => self.transport(false, false, false),
                "udp" => self.transport(true, false, false),
                "shm" => self.transport(true, true, false),
                "rdma" => self.transport(true, false, true),
                other => {
                    return Err(format!("--transport {other}: must be tcp, udp, shm or rdma"));
                }
            },
            "shm-idle" => self.shm_idle = Some(number(name, parser)?),
            "rdma-device" => {
                let place = text(name, parser)?;
                let parsed = place.parse().map_err(|why| format!("--{name} {place}: {why}"))?;
                self.rdma_device = Some(parsed);
            }
            "rdma-service" => {
                let service = text(name, parser)?;
                let parsed = Service::wanted(&service);
                let parsed = parsed.map_err(|why| format!("--{name} {service}: {why}"))?;
                self.rdma_service = Some(parsed);
            }
            "udp-port" => self.port = Some(number(name, parser)?),
            "udp-base" => self.base = Some(number(name, parser)?),
            "udp-queues" => self.queues = Some(number(name, parser)?),
            "large-sets" => {
                self.large_sets = Some(match text(name, parser)?.as_str() {
                    "udp" => LargeSets::Udp,
                    "tcp" => LargeSets::Tcp,
                    other => return Err(format!("--large-sets {other}: must be udp or tcp")),
                });
            }
            "timeout-ms" => self.timeout_ms = Some(number(name, parser)?),
            _ => return Err(format!("--{name}: no such flag")),
        }
        Ok(())
    }

    fn transport(&mut self, udp: bool, in_memory: bool, over_rdma: bool) {
        (self.udp, self.in_memory, self.over_rdma) = (udp, in_memory, over_rdma);
    }

    /// By which device, where RDMA is the way.
    fn rdma(&self) -> Result<Option<(Place, Option<Service>)>, String> {
        let service = self.rdma_service.flatten();
        match (self.over_rdma, &self.rdma_device) {
            (true, Some(place)) => Ok(Some((place.clone(), service))),
            (true, None) => {
                Err("--transport rdma: needs --rdma-device NAME, as `rdma link` shows it".into())
            }
            (false, None) if self.rdma_service.is_none() => Ok(None),
            (false, _) => Err("--rdma-device and --rdma-service: mean something with --transport \
                               rdma only"
                .into()),
        }
    }

    /// What is wanted; nothing where no flag asks for UDP.
    pub(super) fn check(&self) -> Result<Option<Wanted>, String> {
        let base = match (self.base, self.queues) {
            (Some(base), Some(queues)) => Some((base, queues)),
            (Some(base), None) => {
                return Err(format!(
                    "--udp-base {base}: needs --udp-queues; with --udp alone, the server is \
                     asked for both"
                ));
            }
            (None, Some(queues)) => {
                return Err(format!("--udp-queues {queues}: needs --udp-base"));
            }
            (None, None) => None,
        };
        let rdma = self.rdma()?;
        if let (Some(idle), false) = (self.shm_idle, self.in_memory) {
            return Err(format!("--shm-idle {idle}: means something with --transport shm only"));
        }
        if self.in_memory || self.over_rdma {
            let ports = [("udp-port", self.port.is_some()), ("udp-base", base.is_some())];
            if let Some((name, _)) = ports.iter().find(|(_, given)| *given) {
                let transport = if self.in_memory { "shm" } else { "rdma" };
                return Err(format!(
                    "--{name}: --transport {transport} has no ports; leave one out"
                ));
            }
        }
        if let (Some(port), Some(_)) = (self.port, base) {
            return Err(format!("--udp-port {port}: one port or many; leave out one of them"));
        }
        if !self.udp && self.port.is_none() && base.is_none() {
            let lonely = [
                ("large-sets", self.large_sets.is_some()),
                ("timeout-ms", self.timeout_ms.is_some()),
            ];
            return match lonely.iter().find(|(_, given)| *given) {
                Some((name, _)) => Err(format!("--{name}: means something with --udp only")),
                None => Ok(None),
            };
        }
        let timeout_ms = self.timeout_ms.unwrap_or(TIMEOUT_MS);
        if !(1.0..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(format!("--timeout-ms {timeout_ms}: must be in 1..={TIMEOUT_MS_MAX}"));
        }
        Ok(Some(Wanted {
            port: self.port,
            base,
            in_memory: self.in_memory,
            shm_idle: self.shm_idle.unwrap_or(0),
            rdma,
            large_sets: self.large_sets,
            timeout: Duration::from_secs_f64(timeout_ms / 1e3),
        }))
    }
}
