//! The report, for people.

use super::report::{Counted, Posts, Report, Timed};
use std::fmt::Write as _;

/// The tables, in Markdown.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    if !report.counted.is_empty() {
        let head = [
            "design",
            "operation",
            "value bytes",
            "window",
            "round trips",
            "client posts",
            "server's CPU posts",
            "server's card",
            "bytes to server",
            "bytes back",
        ];
        let rows = report.counted.iter().map(counted);
        align(&mut out, head, rows.collect());
    }
    if !report.timed.is_empty() {
        let head = [
            "design",
            "GETs",
            "value bytes",
            "window",
            "requests/s",
            "p50 us",
            "p99 us",
            "round trips",
            "verbs client + server",
            "torn, given up, corrupt",
        ];
        align(&mut out, head, report.timed.iter().map(timed).collect());
        out.push_str("\nOver shared memory: a READ takes no time of a card there.\n");
    }
    out
}

fn counted(row: &Counted) -> [String; 10] {
    [
        row.design.clone(),
        row.operation.clone(),
        row.value_bytes.to_string(),
        row.window.to_string(),
        short(row.round_trips),
        posts(&row.client),
        posts(&row.server),
        short(row.server_card),
        short(row.bytes_to_server),
        short(row.bytes_to_client),
    ]
}

fn timed(row: &Timed) -> [String; 10] {
    let Timed { counted, given_up, corrupt, .. } = row;
    [
        counted.design.clone(),
        format!("{} %", short(100.0 * row.get_share)),
        counted.value_bytes.to_string(),
        counted.window.to_string(),
        format!("{:.0}", row.requests_per_s),
        format!("{:.2}", row.latency_us_p50),
        format!("{:.2}", row.latency_us_p99),
        short(counted.round_trips),
        format!("{} + {}", short(counted.client.sum()), short(counted.server.sum())),
        format!("{}, {given_up}, {corrupt}", counted.torn),
    ]
}

fn posts(posts: &Posts) -> String {
    let all =
        [(posts.write, "WRITE"), (posts.send, "SEND"), (posts.recv, "RECV"), (posts.read, "READ")];
    let some = all.iter().filter(|(count, _)| *count > 0.0);
    let words: Vec<String> =
        some.map(|(count, name)| format!("{} {name}", short(*count))).collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// With two digits behind the point, where they are not zeroes.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn align<const N: usize>(out: &mut String, head: [&str; N], rows: Vec<[String; N]>) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut line = |cells: [&str; N]| {
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(out, "| {cell:width$} ");
        }
        out.push_str("|\n");
    };
    line(head);
    line(widths.map(|width| &DASHES[..width.min(DASHES.len())]));
    rows.iter().for_each(|row| line(std::array::from_fn(|column| row[column].as_str())));
}

const DASHES: &str = "------------------------------------------------------------";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_may_be() {
        let rows = [(0.0, "0"), (1.0, "1"), (2.6, "2.6"), (2.618, "2.62"), (100.0, "100")];
        for (number, text) in rows {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn a_row_says_what_was_counted() {
        let row = Counted {
            design: "herd".into(),
            operation: "GET".into(),
            round_trips: 1.0,
            client: Posts { write: 1.0, recv: 1.0, ..Posts::default() },
            ..Counted::default()
        };
        let report =
            Report { counted: vec![row], timed: vec![Timed::default()], ..Report::default() };
        let text = render(&report);
        assert!(text.contains("| 1 WRITE, 1 RECV | nothing "), "{text}");
        assert!(text.contains("| 0, 0, 0 "), "{text}");
    }
}
