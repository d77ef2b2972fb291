//! `stats large`: the last requests that were large or slow, the newest first.

use super::hot::key_shown;
use super::lines::{Lines, Micros};
use crate::latency::noted::NotedRequest;
use crate::latency::{Operation, ROWS};
use std::cmp::Reverse;
use std::fmt::Display;

/// Requests told at most, of all workers together: so many slow ones, and as many others.
const TOLD: usize = 64;
const MILLISECOND_NANOS: u64 = 1_000_000;
/// Rows of the books that an operation has, one for each lane.
const ROWS_EACH: usize = ROWS / Operation::ALL.len();

/// What `stats large` tells.
#[derive(Debug, Clone, Default)]
pub struct LargeSnapshot {
    /// What takes so long is slow.
    pub slow_nanos: u64,
    /// Requests noted so far.
    pub noted: u64,
    /// And not noted: there were too many.
    pub left_out: u64,
    /// Keys may be told.
    pub keys: bool,
    /// What the server's clock shows now.
    pub now_nanos: u64,
    /// Those that the workers remember, each with its worker's number.
    pub requests: Vec<(u64, NotedRequest)>,
}

/// Answer `stats large`.
pub fn write_large(mut snapshot: LargeSnapshot, out: &mut Vec<u8>) {
    let newest = |(_, request): &(u64, NotedRequest)| Reverse(request.times.ended_nanos);
    snapshot.requests.sort_by_key(newest);
    let mut told = [0; 2];
    snapshot.requests.retain(|(_, request)| {
        let told = &mut told[usize::from(request.is_slow)];
        *told += 1;
        *told <= TOLD
    });
    let mut lines = Lines::new(out);
    lines.shown("slow_us", Micros(snapshot.slow_nanos));
    lines.number("noted", snapshot.noted);
    lines.number("left_out", snapshot.left_out);
    lines.number("requests", snapshot.requests.len() as u64);
    for (number, request) in snapshot.requests.iter().enumerate() {
        write_request(number, request, &snapshot, &mut lines);
    }
    lines.end();
}

fn write_request(
    number: usize,
    (worker, request): &(u64, NotedRequest),
    snapshot: &LargeSnapshot,
    lines: &mut Lines<'_>,
) {
    let mut line =
        |name: &str, value: &dyn Display| lines.shown(&format!("request:{number}:{name}"), value);
    let times = &request.times;
    line("operation", &operation_of(times.row));
    line("lane", &if times.is_large() { "large" } else { "small" });
    line("requests", &times.requests);
    line("bytes", &times.bytes);
    line("wait_us", &Micros(times.wait_nanos));
    line("service_us", &Micros(times.service_nanos()));
    line("drain_us", &Micros(times.drain_nanos));
    // An address of a unix socket may have what would end a line.
    let client = request.client.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
    line("client", &client);
    line("worker", worker);
    line("unix_time", &times.unix_seconds);
    line("age_ms", &(snapshot.now_nanos.saturating_sub(times.ended_nanos) / MILLISECOND_NANOS));
    if snapshot.keys && !request.key.is_empty() {
        let (name, text) = key_shown(&request.key);
        line(name, &text);
    }
}

/// The operation of a row of the books.
pub fn operation_of(row: usize) -> &'static str {
    Operation::ALL[row / ROWS_EACH].name()
}
