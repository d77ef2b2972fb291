//! Metrics of what clients ask, how long that takes, and what goes wrong.

use super::page::{Buckets, Labels, Page};
use crate::causes::causes;
use laneway_server::counts::clients::ClientWatch;
use laneway_server::counts::watch::{LatencyWatch, TlsCause, TlsWatch, WatchSnapshot};
use laneway_server::latency::Part;
use laneway_server::latency::histogram::Reading;
use prometheus_client::registry::Unit;
use std::cmp::Reverse;
use std::fmt;

/// Ends of the latency buckets: each power of two from 2^10 ns, a microsecond, to 2^34 ns, 17 s.
/// The server's own buckets end there too, so that nothing is estimated.
const ENDS: std::ops::RangeInclusive<u32> = 10..=34;
/// The size classes of an octave are one bucket, from 16 bytes to the largest item.
const SIZE_BITS: std::ops::RangeInclusive<u32> = 4..=30;

/// Clients that are told apart in a scrape.
const CLIENTS_MAX: usize = 64;

pub fn write(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    latencies(&snapshot.latencies, page)?;
    sizes(&snapshot.sizes, page)?;
    lookups(snapshot, page)?;
    connections(snapshot, page)?;
    clients(&snapshot.clients, page)?;
    errors(snapshot, page)?;
    if let Some(watch) = &snapshot.tls {
        tls(watch, page)?;
    }
    let totals = &snapshot.totals;
    page.counter_bytes("received", "Bytes received", totals.bytes_read)?;
    page.counter_bytes("sent", "Bytes sent", totals.bytes_written)?;
    let help = "Turns of a connection that were cut short to let others in";
    page.counter("connection_yields", help, totals.conn_yields)?;
    let help = "Times that a connection waited because its listener was over its limit";
    page.counter("listener_throttles", help, totals.listener_holds)?;
    let help = "How long connections waited so";
    let held = [(Labels::new(), totals.listener_held_nanos as f64 / 1e9)];
    page.counters("listener_throttled", help, Some(Unit::Seconds), held)?;
    if !snapshot.udp.is_empty() {
        let events =
            snapshot.udp.iter().map(|(name, count)| (vec![("event", *name)], *count as f64));
        let help = "What was seen of datagrams and became of them, by the names of stats udp";
        page.counters("udp_events", help, None, events)?;
    }
    Ok(())
}

/// Clients by address: those that have moved most bytes, so that a scrape is bounded.
fn clients(clients: &[ClientWatch], page: &mut Page<'_>) -> fmt::Result {
    let mut shown: Vec<&ClientWatch> = clients.iter().collect();
    shown.sort_by_key(|client| Reverse(client.sums.bytes_in + client.sums.bytes_out));
    shown.truncate(CLIENTS_MAX);
    let by_address = |number: fn(&ClientWatch) -> u64| {
        shown.iter().map(move |client| (vec![("client", client.address.as_str())], number(client)))
    };
    let counted = |number| by_address(number).map(|(labels, value)| (labels, value as f64));
    let help = "Connections that are open, by address of the client: the 64 with most bytes";
    page.gauges("client_connections", help, None, by_address(|client| client.connections))?;
    let help = "Requests by address of the client; each key of a get is one";
    page.counters("client_requests", help, None, counted(|client| client.sums.requests))?;
    let help = "Of these, requests of the large lane";
    page.counters(
        "client_requests_large",
        help,
        None,
        counted(|client| client.sums.requests_large),
    )?;
    let unit = || Some(Unit::Bytes);
    let help = "Bytes received by address of the client";
    page.counters("client_received", help, unit(), counted(|client| client.sums.bytes_in))?;
    let help = "Bytes sent by address of the client";
    page.counters("client_sent", help, unit(), counted(|client| client.sums.bytes_out))?;
    let help = "Times that a connection waited because its client was over its limit, by address \
                of the client";
    page.counters("client_throttles", help, None, counted(|client| client.sums.holds))?;
    let help = "How long connections waited so, by address of the client";
    let held = by_address(|client| client.sums.held_nanos);
    let held = held.map(|(labels, nanos)| (labels, nanos as f64 / 1e9));
    page.counters("client_throttled", help, Some(Unit::Seconds), held)
}

fn lane(large: bool) -> &'static str {
    if large { "large" } else { "small" }
}

fn latencies(kinds: &[LatencyWatch], page: &mut Page<'_>) -> fmt::Result {
    let labels = |kind: &LatencyWatch| -> Labels<'static> {
        vec![("operation", kind.operation.name()), ("lane", lane(kind.large))]
    };
    page.histograms(
        "request_duration",
        "From when a request was found to have arrived to its reply's last byte handed to the \
         kernel",
        Unit::Seconds,
        kinds.iter().map(|kind| (labels(kind), buckets(&kind.latencies.whole))),
    )?;
    page.histograms(
        "request_part_duration",
        "Of a request's duration: wait for its first turn, service, and drain, while the client \
         took no more of the reply",
        Unit::Seconds,
        kinds.iter().flat_map(|kind| {
            Part::ALL.into_iter().map(move |part| {
                let labels = [labels(kind), vec![("part", part.name())]].concat();
                (labels, buckets(&kind.latencies.parts[part as usize]))
            })
        }),
    )
}

fn buckets(reading: &Reading) -> Buckets {
    let below = reading.below(ENDS.map(|bits| 1 << bits));
    let ends = ENDS.map(|bits| (1u64 << bits) as f64 / 1e9).chain([f64::INFINITY]);
    let count = reading.count();
    let sum = reading.sum_nanos() as f64 / 1e9;
    Buckets { sum, count, counts: apart(ends, below.into_iter().chain([count])) }
}

/// Buckets from how many are below their ends.
fn apart(ends: impl Iterator<Item = f64>, below: impl Iterator<Item = u64>) -> Vec<(f64, u64)> {
    let mut before = 0;
    let one = |(end, below): (f64, u64)| {
        let count = below - before;
        before = below;
        (end, count)
    };
    ends.zip(below).map(one).collect()
}

/// The sum is that of the first sizes of each class: at most an eighth too small.
fn sizes(classes: &[(u64, u64)], page: &mut Page<'_>) -> fmt::Result {
    let below = |end: u64| -> u64 {
        classes.iter().filter(|(first, _)| *first < end).map(|(_, count)| count).sum()
    };
    let count = classes.iter().map(|(_, count)| count).sum();
    let sum = classes.iter().map(|(first, count)| *first as f64 * *count as f64).sum();
    let ends = SIZE_BITS.map(|bits| (1u64 << bits) as f64).chain([f64::INFINITY]);
    let below = SIZE_BITS.map(|bits| below(1 << bits)).chain([count]);
    page.histograms(
        "request_size",
        "Key and value bytes of the items that requests were for, those not found left out",
        Unit::Bytes,
        [(Labels::new(), Buckets { sum, count, counts: apart(ends, below) })],
    )
}

fn lookups(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let totals = &snapshot.totals;
    page.counters(
        "get_hits",
        "Keys found by reads, by the lane of their item",
        None,
        [
            (vec![("lane", "small")], snapshot.small_hits as f64),
            (vec![("lane", "large")], totals.get_hits_large as f64),
            (vec![("lane", "kernel")], snapshot.kernel_hits as f64),
        ],
    )?;
    let help = "Keys not found by reads; what is not there has no lane";
    page.counter("get_misses", help, totals.get_misses)?;
    page.counters(
        "commands",
        "Commands, by the words of memcached's stats; a key of a multiget is one",
        None,
        [
            (vec![("command", "get")], (totals.cmd_get + snapshot.kernel_hits) as f64),
            (vec![("command", "set")], totals.cmd_set as f64),
            (vec![("command", "touch")], totals.cmd_touch as f64),
            (vec![("command", "flush")], totals.cmd_flush as f64),
            (vec![("command", "meta")], totals.cmd_meta as f64),
            (vec![("command", "delete")], (totals.delete_hits + totals.delete_misses) as f64),
            (vec![("command", "incr")], (totals.incr_hits + totals.incr_misses) as f64),
            (vec![("command", "decr")], (totals.decr_hits + totals.decr_misses) as f64),
        ],
    )
}

fn connections(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let connections = &snapshot.connections;
    page.gauge("connections", "Connections that are open, now", connections.open)?;
    page.gauge("connections_max", "Connections that may be open (-c)", connections.most)?;
    page.counter("connections_opened", "Connections ever opened", connections.total)
}

/// Where TLS is spoken.
fn tls(watch: &TlsWatch, page: &mut Page<'_>) -> fmt::Result {
    let kind = |kind: &'static str, count: u64| (vec![("kind", kind)], count as f64);
    page.counters(
        "tls_handshakes",
        "TLS handshakes that succeeded: with a certificate, by version, or of a session that was \
         taken up again",
        None,
        [
            kind("tls12", watch.full_1_2),
            kind("tls13", watch.full_1_3),
            kind("resumed", watch.resumed),
        ],
    )?;
    let failed = TlsCause::ALL.into_iter().zip(watch.failed);
    page.counters(
        "tls_handshake_failures",
        "TLS handshakes that came to nothing, by cause",
        None,
        failed.map(|(cause, count)| (vec![("cause", cause.name())], count as f64)),
    )?;
    page.gauge("tls_handshakes_under_way", "TLS handshakes under way, now", watch.underway)?;
    page.gauges(
        "tls_certificate_expiry_timestamp",
        "When the server's certificate expires, in Unix time",
        Some(Unit::Seconds),
        [(Labels::new(), watch.expires_seconds)],
    )
}

fn errors(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let each = causes(snapshot).into_iter();
    let each = each.map(|(cause, count)| (vec![("cause", cause)], count as f64));
    page.counters("errors", "What was refused or given up, by its cause", None, each)
}
