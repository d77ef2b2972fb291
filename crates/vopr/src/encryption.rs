//! What the clients of a run that encrypt and their server show to each other.

use crate::swarm::Swarm;
use laneway_certs::{self as certs, Authority, VERSIONS};
use laneway_tls::{Acceptor, Identity, Terms, Verify};
use rustls::ClientConfig;
use std::sync::{Arc, LazyLock};

/// The one whose certificates are good, and a stranger. Their keys, and with them the lengths of
/// their certificates, are the same in every run.
static AUTHORITIES: LazyLock<[Authority; 2]> =
    LazyLock::new(|| [Authority::fixed("good", 1), Authority::fixed("stranger", 2)]);
/// The number of the clients' key, and the first of the server's, of which there are so many.
const CLIENT_KEY: u8 = 3;
const SERVER_KEY: u8 = 10;
const SERVER_KEYS: u8 = 4;

/// What is shown.
pub struct Encryption {
    terms: Terms,
    acceptor: Arc<Acceptor>,
    /// By version: without a certificate, with a good one, and with a stranger's.
    configs: Vec<[Arc<ClientConfig>; 3]>,
    /// Which of the server's keys comes next.
    next: u8,
}

impl Encryption {
    /// That of a run, if any of its clients encrypts.
    pub fn of(swarm: &Swarm) -> Option<Encryption> {
        let verify = match swarm.tls {
            0 => return None,
            1 => Verify::No,
            2 => Verify::IfGiven,
            _ => Verify::Always,
        };
        let [good, stranger] = &*AUTHORITIES;
        let pairs = [good, stranger].map(|authority| authority.pair_fixed(CLIENT_KEY));
        let configs = VERSIONS.map(|version| {
            let shows = [None, Some(&pairs[0]), Some(&pairs[1])];
            shows.map(|shows| good.client(version, shows))
        });
        let terms = Terms { verify, only_1_3: false };
        let acceptor = Arc::new(Acceptor::new(identity(&terms, 0), terms.clone()));
        Some(Encryption { terms, acceptor, configs: configs.into(), next: 1 })
    }

    /// A server starts. Its tickets are its own: nobody takes up a session of the one before.
    pub fn start(&mut self) {
        let identity = self.another();
        self.acceptor = Arc::new(Acceptor::new(identity, self.terms.clone()));
    }

    /// Certificate and key are replaced under the connections, as SIGHUP does.
    pub fn reload(&mut self) {
        let identity = self.another();
        self.acceptor.replace(identity);
    }

    fn another(&mut self) -> Identity {
        let key = self.next;
        self.next = (key + 1) % SERVER_KEYS;
        identity(&self.terms, key)
    }

    /// What the server has.
    pub fn acceptor(&self) -> &Arc<Acceptor> {
        &self.acceptor
    }

    /// What the good client of this number has. Clients that have the same take up each other's
    /// sessions.
    pub fn client(&self, number: u64) -> Arc<ClientConfig> {
        let version = (number % VERSIONS.len() as u64) as usize;
        let shows = match self.terms.verify {
            Verify::No => 0,
            Verify::IfGiven => (number / 2 % 2) as usize,
            Verify::Always => 1,
        };
        self.configs[version][shows].clone()
    }

    /// What a client has that must not be let in; `None` where nobody is asked who he is.
    pub fn stranger(&self, number: u64) -> Option<Arc<ClientConfig>> {
        let version = (number % VERSIONS.len() as u64) as usize;
        (self.terms.verify != Verify::No).then(|| self.configs[version][2].clone())
    }
}

fn identity(terms: &Terms, key: u8) -> Identity {
    let [good, _] = &*AUTHORITIES;
    certs::identity(&good.pair_fixed(SERVER_KEY + key), terms, Some(&good.pem))
}
