//! What happened between two samples, as it is shown.

use super::latency::{Latencies, Part};
use super::sample::Sample;
use crate::asking::Family;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// By what the clients are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrder {
    Bytes,
    Requests,
    Large,
    Connections,
}

/// By what the keys are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    Requests,
    Bytes,
}

/// One lane. Times in nanoseconds; none where nothing was asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lane {
    pub per_second: f64,
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub p99_9: Option<u64>,
    /// p99 of the three parts: wait, service, drain.
    pub parts: [Option<u64>; 3],
}

/// One worker.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Worker {
    pub number: usize,
    pub role: String,
    pub small_per_second: f64,
    pub large_per_second: f64,
    pub queue_small: f64,
    pub queue_large: f64,
    pub connections: f64,
}

/// One client address. Rates are per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Client {
    pub address: String,
    pub connections: f64,
    pub requests: f64,
    pub large: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// Waits for its limit.
    pub waits: f64,
}

/// One key that is asked for much.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Key {
    pub key: String,
    /// Of the requests.
    pub share: f64,
    /// Of the requests for it.
    pub reads: f64,
    /// Of its item, if there is one.
    pub bytes: f64,
    pub is_large: bool,
}

/// The picture.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub small: Lane,
    pub large: Lane,
    pub design: String,
    pub form: String,
    pub threshold_bytes: f64,
    pub uptime_seconds: f64,
    pub version: String,
    pub items: f64,
    pub bytes: f64,
    pub bytes_max: f64,
    pub connections: f64,
    /// Of the keys asked for; none where no key was.
    pub hit_share: Option<f64>,
    pub evictions_per_second: f64,
    pub in_per_second: f64,
    pub out_per_second: f64,
    pub workers: Vec<Worker>,
    pub clients: Vec<Client>,
    pub keys: Vec<Key>,
}

impl View {
    /// What happened from one sample to the next.
    pub fn between(before: &Sample, now: &Sample) -> View {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let latencies = Latencies::between(&before.buckets, &now.buckets);
        let lane = |is_large| Lane {
            per_second: latencies.count(is_large) as f64 / seconds,
            p50: latencies.quantile(is_large, Part::Whole, 0.50),
            p99: latencies.quantile(is_large, Part::Whole, 0.99),
            p99_9: latencies.quantile(is_large, Part::Whole, 0.999),
            parts: [Part::Wait, Part::Service, Part::Drain]
                .map(|part| latencies.quantile(is_large, part, 0.99)),
        };
        let general = Rates { before: &before.general, now: &now.general, seconds };
        let (hits, misses) = (general.per_second("get_hits"), general.per_second("get_misses"));
        let text = |family: &Family, name| family.text(name).unwrap_or_default().to_owned();
        View {
            small: lane(false),
            large: lane(true),
            design: text(&now.lanes, "design"),
            form: text(&now.lanes, "form"),
            threshold_bytes: now.lanes.number("threshold_bytes"),
            uptime_seconds: now.general.number("uptime"),
            version: text(&now.general, "version"),
            items: now.general.number("curr_items"),
            bytes: now.general.number("bytes"),
            bytes_max: now.general.number("limit_maxbytes"),
            connections: now.general.number("curr_connections"),
            hit_share: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            evictions_per_second: general.per_second("evictions"),
            in_per_second: general.per_second("bytes_read"),
            out_per_second: general.per_second("bytes_written"),
            workers: workers(&Rates { before: &before.lanes, now: &now.lanes, seconds }),
            clients: clients(&Rates { before: &before.clients, now: &now.clients, seconds }),
            keys: keys(&now.keys, now.lanes.number("threshold_bytes")),
        }
    }

    /// Sorts clients and keys, the most first.
    pub fn sort(&mut self, clients: ClientOrder, keys: KeyOrder) {
        let of_client = |client: &Client| match clients {
            ClientOrder::Bytes => client.bytes_in + client.bytes_out,
            ClientOrder::Requests => client.requests,
            ClientOrder::Large => client.large,
            ClientOrder::Connections => client.connections,
        };
        let of_key = |key: &Key| match keys {
            KeyOrder::Requests => key.share,
            KeyOrder::Bytes => key.share * key.bytes,
        };
        // All are finite and none is negative, so whole thousandths order them.
        let whole = |number: f64| Reverse((number * 1e3) as u64);
        self.clients.sort_by_key(|client| whole(of_client(client)));
        self.keys.sort_by_key(|key| whole(of_key(key) * 1e3));
    }
}

/// A family of counts at two moments.
struct Rates<'a> {
    before: &'a Family,
    now: &'a Family,
    seconds: f64,
}

impl Rates<'_> {
    /// A server that was started anew counts from nothing.
    fn per_second(&self, name: &str) -> f64 {
        (self.now.number(name) - self.before.number(name)).max(0.0) / self.seconds
    }

    /// What stands before the last colon of its names, in order, each once.
    fn owners(&self) -> Vec<&str> {
        let names = self.now.0.iter().filter_map(|(name, _)| name.rsplit_once(':'));
        let mut owners: Vec<&str> = names.map(|(owner, _)| owner).collect();
        owners.dedup();
        owners
    }
}

fn workers(rates: &Rates<'_>) -> Vec<Worker> {
    let count = rates.now.number("workers") as usize;
    (0..count)
        .map(|number| {
            let name = |what: &str| format!("worker:{number}:{what}");
            Worker {
                number,
                role: rates.now.text(&name("role")).unwrap_or_default().to_owned(),
                small_per_second: rates.per_second(&name("requests_small")),
                large_per_second: rates.per_second(&name("requests_large")),
                queue_small: rates.now.number(&name("queue_small")),
                queue_large: rates.now.number(&name("queue_large")),
                connections: rates.now.number(&name("connections")),
            }
        })
        .collect()
}

fn clients(rates: &Rates<'_>) -> Vec<Client> {
    let client = |address: &str| {
        let name = |what: &str| format!("{address}:{what}");
        Client {
            address: address.to_owned(),
            connections: rates.now.number(&name("connections")),
            requests: rates.per_second(&name("requests")),
            large: rates.per_second(&name("requests_large")),
            bytes_in: rates.per_second(&name("bytes_in")),
            bytes_out: rates.per_second(&name("bytes_out")),
            waits: rates.per_second(&name("throttled")),
        }
    };
    rates.owners().into_iter().map(client).collect()
}

fn keys(family: &Family, threshold_bytes: f64) -> Vec<Key> {
    let mut found: BTreeMap<usize, Key> = BTreeMap::new();
    for (name, value) in &family.0 {
        let words: Vec<&str> = name.split(':').collect();
        let ["key", number, what] = words[..] else { continue };
        let Ok(at) = number.parse() else { continue };
        let key = found.entry(at).or_default();
        let number = || value.parse().unwrap_or(0.0);
        match what {
            "key" => key.key = value.clone(),
            "key_hex" => key.key = format!("0x{value}"),
            "share" => key.share = number(),
            "reads" => key.reads = number(),
            "bytes" => key.bytes = number(),
            _ => {}
        }
        key.is_large = key.bytes >= threshold_bytes;
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn samples() -> [Sample; 2] {
        let (at, family) = (Instant::now(), Family::of);
        let before = Sample {
            at,
            general: family("get_hits 10\nget_misses 5\nbytes_read 100\nevictions 7"),
            lanes: family("workers 1\nworker:0:requests_small 100\nthreshold_bytes 1472"),
            buckets: family("get:small:whole_ns:1024 100"),
            clients: family("10.0.0.1:requests 10\n10.0.0.1:bytes_out 0"),
            keys: Family::default(),
        };
        let now = Sample {
            at: at + Duration::from_secs(2),
            general: family("get_hits 40\nget_misses 15\nbytes_read 300\nevictions 7\nuptime 9"),
            lanes: family(
                "workers 1
                 worker:0:role shared
                 worker:0:requests_small 300
                 worker:0:queue_large 4
                 threshold_bytes 1472",
            ),
            buckets: family("get:small:whole_ns:1024 290\nget:small:whole_ns:4096 10"),
            clients: family(
                "10.0.0.1:connections 1
                 10.0.0.1:requests 40
                 10.0.0.1:bytes_out 100
                 10.0.0.1:throttled 8
                 [::1]:connections 2
                 [::1]:requests 20
                 [::1]:requests_large 2
                 [::1]:bytes_out 5000",
            ),
            keys: family(
                "keys 2
                 key:0:key a
                 key:0:share 0.5
                 key:0:bytes 10
                 key:1:key_hex 00ff
                 key:1:share 0.1
                 key:1:bytes 2000",
            ),
        };
        [before, now]
    }

    #[test]
    fn rates_are_of_the_time_between_the_samples() {
        let [before, now] = samples();
        let view = View::between(&before, &now);
        assert_eq!((view.small.per_second, view.large.per_second), (100.0, 0.0));
        assert_eq!(
            (view.small.p50, view.small.p99, view.large.p99),
            (Some(1024), Some(4096), None)
        );
        assert_eq!(view.hit_share, Some(0.75));
        assert_eq!((view.in_per_second, view.evictions_per_second), (100.0, 0.0));
        let worker = &view.workers[0];
        assert_eq!((worker.small_per_second, worker.queue_large), (100.0, 4.0));
        assert_eq!(worker.role, "shared");
    }

    #[test]
    fn clients_and_keys_are_sorted_as_was_asked() {
        let [before, now] = samples();
        let mut view = View::between(&before, &now);
        let mut first = |clients, keys| {
            view.sort(clients, keys);
            (view.clients[0].address.clone(), view.keys[0].key.clone())
        };
        let of = |address: &str, key: &str| (address.to_owned(), key.to_owned());
        assert_eq!(first(ClientOrder::Bytes, KeyOrder::Requests), of("[::1]", "a"));
        assert_eq!(first(ClientOrder::Requests, KeyOrder::Bytes), of("10.0.0.1", "0x00ff"));
        assert_eq!(first(ClientOrder::Large, KeyOrder::Bytes).0, "[::1]");
        assert_eq!(first(ClientOrder::Connections, KeyOrder::Requests).0, "[::1]");
        let waits: Vec<_> = view.clients.iter().map(|client| client.waits).collect();
        assert!(waits == [0.0, 4.0] || waits == [4.0, 0.0], "{waits:?}");
        assert!(view.keys.iter().all(|key| key.is_large == (key.key == "0x00ff")));
    }

    #[test]
    fn a_server_that_was_started_anew_counts_from_nothing() {
        let [before, now] = samples();
        let view =
            View::between(&Sample { at: now.at, ..now }, &Sample { at: before.at, ..before });
        assert_eq!((view.small.per_second, view.in_per_second), (0.0, 0.0));
    }
}
