//! `/metrics`: a [`WatchSnapshot`] in the text form of OpenMetrics, written by prometheus-client.
//!
//! Names begin with `laneway_` and end in their unit. Counters run from the server's start, and
//! `stats reset` leaves them alone. docs/operating.md has the meaning of each.

mod page;
mod server;
mod store;
mod traffic;

use laneway_server::counts::watch::WatchSnapshot;
use page::Page;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt;

/// The snapshot of one scrape.
#[derive(Debug)]
struct Scrape(WatchSnapshot);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Page::new(encoder);
        server::write(&self.0, page)?;
        traffic::write(&self.0, page)?;
        store::write(&self.0, page)
    }
}

/// The text of a scrape.
pub fn text(snapshot: WatchSnapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("laneway");
    registry.register_collector(Box::new(Scrape(snapshot)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}
