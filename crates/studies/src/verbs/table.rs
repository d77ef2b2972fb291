//! The report, for people.

use super::report::{Beside, Cost, Counted, Posts, Report, Timed, Tried};
use laneway_load::report::table::spread;
use std::fmt::Write as _;

/// The tables, in Markdown.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    if !report.counted.is_empty() {
        let head = "\
            design | operation | value bytes | window | round trips | client posts | \
            server's CPU posts | server's card | bytes to server | bytes back";
        let rows = report.counted.iter().map(counted);
        align(&mut out, head, rows.collect());
    }
    if !report.timed.is_empty() {
        let head = "\
            design | GETs | value bytes | window | requests/s | p50 us | p99 us | round trips | \
            verbs client + server | torn, given up, corrupt";
        align(&mut out, head, rounds(&report.timed).iter().map(|rows| timed(rows)).collect());
        out.push_str(
            "\nMedian [least..largest] of the rounds. Over shared memory: a READ takes no time of\n\
             a card there, and a round trip none of a wire.\n",
        );
    }
    if !report.tried.is_empty() {
        let head = "\
            verb | bytes | inline | signalled | operations | completions | wrong, lost | \
            operations/s";
        align(&mut out, head, report.tried.iter().map(tried).collect());
        out.push_str("\nBoth ends are here, behind one port; 32 at a time, each waited for.\n");
        let refused = |tried: &Tried| {
            let Tried { verb, bytes, refused, .. } = tried;
            refused.as_ref().map(|why| format!("{verb}, {bytes} bytes: {why}\n"))
        };
        out.extend(report.tried.iter().filter_map(refused));
    }
    if !report.beside.is_empty() {
        many(&mut out, report);
    }
    out
}

fn many(out: &mut String, report: &Report) {
    let head = "\
        service | value bytes | clients | p50 us alone | p50 us beside | p99 us alone, beside | \
        server's SENDs | completions | polls | p50, SENDs, completions of those alone";
    let lengths = report.beside.chunk_by(|one, next| one.value_bytes == next.value_bytes);
    let rows = lengths.zip(report.ratios()).map(|(rounds, ratios)| beside(rounds, ratios));
    align(out, head, rows.collect());
    out.push_str(
        "\nOne client that GETs one item at a time, alone and beside the others, which ask for\n\
         nothing. SENDs, completions and polls are of a GET, alone and beside the others. Median\n\
         [least..largest] of the rounds.\n",
    );
}

fn beside(rounds: &[Beside], ratios: [f64; 3]) -> [String; 10] {
    let alone = |cost: fn(&Cost) -> f64| spread(rounds.iter().map(|row| cost(&row.alone)));
    let beside = |cost: fn(&Cost) -> f64| spread(rounds.iter().map(|row| cost(&row.beside)));
    let both = |cost: fn(&Cost) -> f64| format!("{}, {}", alone(cost), beside(cost));
    let Beside { service, value_bytes, clients, .. } = &rounds[0];
    [
        service.clone(),
        value_bytes.to_string(),
        clients.to_string(),
        alone(|cost| cost.latency_us_p50),
        beside(|cost| cost.latency_us_p50),
        both(|cost| cost.latency_us_p99),
        both(|cost| cost.server_sends),
        both(|cost| cost.server_completions),
        both(|cost| cost.server_polls),
        ratios.map(short).join(", "),
    ]
}

fn tried(row: &Tried) -> [String; 8] {
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_string();
    let signalled = if row.signalled { "each" } else { "1 in 32" };
    let speed = match row.refused {
        Some(_) => "refused".to_string(),
        None => format!("{:.0}", row.operations_per_s),
    };
    [
        row.verb.clone(),
        row.bytes.to_string(),
        yes(row.inline),
        signalled.to_string(),
        row.operations.to_string(),
        row.completions.to_string(),
        format!("{}, {}", row.wrong, row.lost),
        speed,
    ]
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

/// The rounds of each loop, in the order in which the loops came.
fn rounds(all: &[Timed]) -> Vec<Vec<&Timed>> {
    let loop_of = |timed: &Timed| {
        let Counted { design, value_bytes, window, .. } = &timed.counted;
        (design.clone(), *value_bytes, *window)
    };
    let mut loops: Vec<Vec<&Timed>> = Vec::new();
    for timed in all {
        match loops.iter_mut().find(|rounds| loop_of(rounds[0]) == loop_of(timed)) {
            Some(rounds) => rounds.push(timed),
            None => loops.push(vec![timed]),
        }
    }
    loops
}

fn timed(rounds: &[&Timed]) -> [String; 10] {
    let Timed { counted, get_share, .. } = rounds[0];
    let across = |value: fn(&Timed) -> f64| spread(rounds.iter().map(|timed| value(timed)));
    let sum = |count: fn(&Timed) -> u64| rounds.iter().map(|timed| count(timed)).sum::<u64>();
    let mean = |value: fn(&Timed) -> f64| {
        short(rounds.iter().map(|timed| value(timed)).sum::<f64>() / rounds.len() as f64)
    };
    let (client, server) =
        (mean(|timed| timed.counted.client.sum()), mean(|timed| timed.counted.server.sum()));
    let (torn, given_up) = (sum(|timed| timed.counted.torn), sum(|timed| timed.given_up));
    [
        counted.design.clone(),
        format!("{} %", short(100.0 * get_share)),
        counted.value_bytes.to_string(),
        counted.window.to_string(),
        across(|timed| timed.requests_per_s),
        across(|timed| timed.latency_us_p50),
        across(|timed| timed.latency_us_p99),
        mean(|timed| timed.counted.round_trips),
        format!("{client} + {server}"),
        format!("{torn}, {given_up}, {}", sum(|timed| timed.corrupt)),
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

/// Rows under their heads, which have ` | ` between them.
fn align<const N: usize>(out: &mut String, head: &str, rows: Vec<[String; N]>) {
    let head: Vec<&str> = head.split(" | ").collect();
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
    line(std::array::from_fn(|column| head[column]));
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

    #[test]
    fn what_a_device_does_and_what_it_does_not_is_told() {
        let done = Tried { verb: "READ, RC".into(), operations: 64, ..Tried::default() };
        let refused = Tried { refused: Some("too long".into()), bytes: 9, ..done.clone() };
        let mut report = Report { tried: vec![done, refused], ..Report::default() };
        let text = render(&report);
        assert!(text.contains("| READ, RC | 0     | no     | 1 in 32   | 64 "), "{text}");
        assert!(text.contains("| refused "), "{text}");
        assert!(text.ends_with("\nREAD, RC, 9 bytes: too long\n"), "{text}");
        assert!(report.is_good());
        report.tried[0].lost = 1;
        assert!(!report.is_good());
    }

    #[test]
    fn what_others_cost_is_told_and_held_to_a_bound() {
        let cost = |us: f64, sends: f64| Cost {
            latency_us_p50: us,
            server_sends: sends,
            ..Cost::default()
        };
        let row = |value_bytes: usize, us: f64, sends: f64| Beside {
            service: "ud".into(),
            value_bytes,
            clients: 500,
            alone: cost(100.0, 1.0),
            beside: cost(us, sends),
            ..Beside::default()
        };
        // One round of three was disturbed.
        let beside = vec![row(32, 105.0, 1.0), row(32, 900.0, 1.0), row(32, 104.0, 1.0)];
        let mut report = Report { beside, ..Report::default() };
        assert_eq!(report.ratios(), [[1.05, 1.0, 1.0]]);
        let text = render(&report);
        assert!(text.contains("| ud ") && text.contains("| 1.05, 1, 1 "), "{text}");
        assert!(report.is_good(), "nothing is asked of it");
        report.at_most = Some(1.1);
        assert!(report.is_good());
        report.at_most = Some(1.04);
        assert!(!report.is_good());
        report.at_most = Some(1.1);
        report.beside.push(row(1024, 100.0, 1.2));
        assert_eq!(report.ratios()[1], [1.0, 1.2, 1.0]);
        assert!(!report.is_good(), "SENDs are held to it, too, at every length");
    }

    #[test]
    fn rounds_of_one_loop_are_one_row() {
        let timed = |design: &str, round: usize, us: f64| {
            let design = design.into();
            let counted = Counted { design, torn: 2, round_trips: us, ..Counted::default() };
            Timed { counted, round, latency_us_p50: us, corrupt: 1, ..Timed::default() }
        };
        let rows = [("herd", 0, 1.0), ("farm", 0, 8.0), ("farm", 1, 6.0), ("herd", 1, 2.0)];
        let one_more = timed("herd", 2, 6.0);
        let timed = rows.map(|(design, round, us)| timed(design, round, us)).into_iter();
        let timed = timed.chain([one_more]).collect();
        let text = render(&Report { timed, ..Report::default() });
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" 0 % ")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("| herd ") && lines[0].contains("| 2 [1..6] "), "{text}");
        assert!(lines[0].contains("| 3 ") && lines[0].contains("| 6, 0, 3 "), "{text}");
        assert!(lines[1].starts_with("| farm ") && lines[1].contains("| 7 [6..8] "), "{text}");
    }
}
