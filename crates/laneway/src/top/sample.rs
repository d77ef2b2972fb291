//! What a server tells at one moment.

use crate::asking::{Failure, Family, Server};
use std::time::Instant;

/// All families that the picture is made of.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// `stats`
    pub general: Family,
    /// `stats lanes`
    pub lanes: Family,
    /// `stats buckets`
    pub buckets: Family,
    /// `stats clients`
    pub clients: Family,
    /// `stats hotkeys`; empty where the server does not tell keys (`-X`).
    pub keys: Family,
}

impl Sample {
    /// Ask for everything.
    pub fn of(server: &mut Server) -> Result<Sample, Failure> {
        let lanes = server.family("lanes")?;
        let general = server.family("")?;
        let buckets = server.family("buckets")?;
        let at = Instant::now();
        let clients = server.family("clients")?;
        let keys = match server.family("hotkeys") {
            Ok(keys) => keys,
            Err(Failure::Refused(_)) => Family::default(),
            Err(failure) => return Err(failure),
        };
        Ok(Sample { at, general, lanes, buckets, clients, keys })
    }
}
