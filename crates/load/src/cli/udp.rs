//! The flags of `laneway bench` that say how UDP is used.

use crate::arguments::{number, text, within};
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
        let rdma = self.rdma()?;
        if let (Some(idle), false) = (self.shm_idle, self.in_memory) {
            return Err(format!("--shm-idle {idle}: means something with --transport shm only"));
        }
        if (self.in_memory || self.over_rdma) && self.port.is_some() {
            let transport = if self.in_memory { "shm" } else { "rdma" };
            return Err(format!("--udp-port: --transport {transport} has no ports; leave one out"));
        }
        if !self.udp && self.port.is_none() {
            return match self.timeout_ms {
                Some(_) => Err("--timeout-ms: means something with --udp only".into()),
                None => Ok(None),
            };
        }
        let timeout_ms = self.timeout_ms.unwrap_or(TIMEOUT_MS);
        within("timeout-ms", timeout_ms, 1.0..=TIMEOUT_MS_MAX)?;
        Ok(Some(Wanted {
            port: self.port,
            in_memory: self.in_memory,
            shm_idle: self.shm_idle.unwrap_or(0),
            rdma,
            timeout: Duration::from_secs_f64(timeout_ms / 1e3),
        }))
    }
}
