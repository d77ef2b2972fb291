//! The flags of `laneway bench` that say how UDP is used.

use crate::arguments::{number, text, within};
use crate::datagram::endpoint::{By, Wanted};
use laneway_rdma::verbs::{Place, Service};
use lexopt::Parser;
use std::time::Duration;

/// When a request is given up, where the flags do not say.
const TIMEOUT_MS: f64 = 250.0;
/// Longest time waited: ids of requests given up rest for seconds.
const TIMEOUT_MS_MAX: f64 = 60_000.0;

/// Which way requests go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Transport {
    #[default]
    Tcp,
    Udp,
    Shm,
    Rdma,
}

/// Flags as typed.
#[derive(Debug, Clone, Default)]
pub(super) struct UdpTyped {
    transport: Transport,
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
            "udp" => self.transport = Transport::Udp,
            "transport" => {
                self.transport = match text(name, parser)?.as_str() {
                    "tcp" => Transport::Tcp,
                    "udp" => Transport::Udp,
                    "shm" => Transport::Shm,
                    "rdma" => Transport::Rdma,
                    other => {
                        return Err(format!("--transport {other}: must be tcp, udp, shm or rdma"));
                    }
                }
            }
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

    /// What is wanted; nothing where no flag asks for UDP.
    pub(super) fn check(&self) -> Result<Option<Wanted>, String> {
        let [is_rdma, is_shm] = [Transport::Rdma, Transport::Shm].map(|one| one == self.transport);
        if !is_rdma && (self.rdma_device.is_some() || self.rdma_service.is_some()) {
            return Err("--rdma-device, --rdma-service: with --transport rdma only".into());
        }
        if !is_shm && self.shm_idle.is_some() {
            return Err("--shm-idle: means something with --transport shm only".into());
        }
        if (is_rdma || is_shm) && self.port.is_some() {
            return Err("--udp-port: --transport shm or rdma has no ports; leave one out".into());
        }
        let by = match self.transport {
            Transport::Tcp if self.port.is_none() => {
                return match self.timeout_ms {
                    Some(_) => Err("--timeout-ms: means something with --udp only".into()),
                    None => Ok(None),
                };
            }
            Transport::Tcp | Transport::Udp => By::Ports(self.port),
            Transport::Shm => By::Memory { idle: self.shm_idle.unwrap_or(0) },
            Transport::Rdma => {
                let place = self
                    .rdma_device
                    .clone()
                    .ok_or("--transport rdma: needs --rdma-device NAME, as `rdma link` shows it")?;
                By::Rdma(place, self.rdma_service.flatten())
            }
        };
        let timeout_ms = self.timeout_ms.unwrap_or(TIMEOUT_MS);
        within("timeout-ms", timeout_ms, 1.0..=TIMEOUT_MS_MAX)?;
        Ok(Some(Wanted { by, timeout: Duration::from_secs_f64(timeout_ms / 1e3) }))
    }
}
