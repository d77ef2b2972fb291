//! Makes the settings of a rig's server.

use super::Plan;
use laneway_server::settings::{
    Auth, Idle, RespSettings, Settings, TlsSettings, UdpSettings, Users,
};
use laneway_tls::Files;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn of(plan: &Plan, policy: laneway_policy::Settings) -> Settings {
    Settings {
        workers: plan.workers,
        addresses: Vec::new(),
        unix: None,
        udp: plan.public.then_some(UdpSettings {
            address: Ipv4Addr::LOCALHOST.into(),
            port_base: None,
            port: None,
            public: plan.public,
        }),
        shm: None,
        rdma: None,
        tls: plan.tls.clone().map(|acceptor| {
            let nowhere = |flag| (flag, PathBuf::new());
            TlsSettings {
                acceptor,
                files: Files::new(nowhere("--tls-cert"), nowhere("--tls-key"), None),
                addresses: Vec::new(),
                resp_addresses: Vec::new(),
                handshake: Duration::from_secs(20),
                handshakes_max: 1024,
            }
        }),
        auth: plan.users.map(|text| {
            let users = Users::read(text).expect("the users are sound");
            Arc::new(Auth::new(users, 0x5eed))
        }),
        resp: RespSettings { shared: plan.resp, addresses: Vec::new() },
        binding: plan.binding,
        backlog: 16,
        connections_max: plan.connections_max,
        item_bytes_max: plan.item_bytes_max,
        memory_bytes: plan.memory_bytes,
        store_mode: plan.store_mode,
        huge_pages: false,
        cas: plan.cas,
        flush: plan.flush,
        dump: plan.dump,
        watch: plan.dump,
        shutdown: plan.shutdown,
        verbosity: 0,
        idle_timeout: plan.idle_timeout,
        idle: Idle::Block,
        epoch: Duration::from_secs(1),
        drain: Duration::ZERO,
        domains: Vec::new(),
        kernel: Default::default(),
        secret_seed: 0x5eed,
        slow: plan.slow,
        log_keys: plan.log_keys,
        connections_per_address: plan.connections_per_address,
        client_rates: Default::default(),
        sandbox: Default::default(),
        policy,
    }
}
