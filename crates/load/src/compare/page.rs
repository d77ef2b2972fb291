//! A comparison as one HTML page that needs nothing else: pictures are inline, there is no script,
//! no font and no address that a browser would fetch.

use super::charts;
use super::neighbour;
use super::results::{Results, commands};
use super::table;
use crate::pairs::definition::{Definition, RunDefinition};
use crate::pairs::record::Record;
use crate::pairs::statistics::Judged;
use crate::report::table::spread;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn render(record: &Record) -> String {
    let results = Results { record };
    let mut out = String::new();
    let names = results.lines().into_iter().filter(|line| *line != "floor").map(capital);
    let title = format!("{} compared", neighbour::listed(&names.collect::<Vec<_>>()));
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n",
        title = escaped(&title)
    );
    neighbour(results, &mut out);
    lead(results, &mut out);
    figures(results, &mut out);
    let _ = writeln!(out, "<div class=\"pictures\">");
    for (svg, caption) in charts::all(results) {
        let caption = escaped(&caption);
        let _ = writeln!(out, "<figure>\n{svg}<figcaption>{caption}</figcaption></figure>");
    }
    let _ = writeln!(out, "</div>");
    runs(results, &mut out);
    machine(record, &mut out);
    exact_commands(record, &mut out);
    let _ = writeln!(out, "{}\n</main>\n</body>\n</html>", include_str!("page_method.html"));
    out
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The heads of a table.
fn heads(words: &[&str]) -> String {
    let heads: String = words.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    format!("<tr>{heads}</tr>\n")
}

/// A row of a table: so many cells of words, and behind them numbers.
fn row<C: AsRef<str>>(words: usize, cells: impl IntoIterator<Item = C>) -> String {
    let cell = |(index, text): (usize, C)| {
        let class = if index < words { "" } else { " class=\"number\"" };
        format!("<td{class}>{}</td>", escaped(text.as_ref()))
    };
    let cells: String = cells.into_iter().enumerate().map(cell).collect();
    format!("<tr>{cells}</tr>\n")
}

/// The notes on these runs, as a list of the page; the text is empty where there is no note.
fn notes<'a>(results: Results<'_>, runs: impl Iterator<Item = &'a RunDefinition>) -> String {
    let mut notes = String::new();
    for run in runs {
        for note in results.notes(run) {
            let _ = writeln!(notes, "<li>{}: {}</li>", escaped(&run.name), escaped(&note));
        }
    }
    if notes.is_empty() { notes } else { format!("<ul>\n{notes}</ul>\n") }
}

fn capital(name: &str) -> String {
    match name {
        // It writes itself so.
        "memcached" => name.into(),
        _ => {
            let mut letters = name.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            first.chain(letters).collect()
        }
    }
}

/// The noisy neighbour: in a sentence, as a picture and in numbers.
fn neighbour(results: Results<'_>, out: &mut String) {
    let Some(sentence) = neighbour::sentence(results) else { return };
    let _ = writeln!(out, "<p class=\"lead\"><strong>{}</strong></p>", escaped(&sentence));
    if let Some(svg) = neighbour::picture(results) {
        let rows: String =
            neighbour::rows(results).into_iter().map(|cells| row(0, cells)).collect();
        let heads = heads(&neighbour::HEADS);
        let caption = neighbour::disturbance(results).unwrap_or_default();
        let _ = writeln!(
            out,
            "<div class=\"first\"><figure>\n{svg}<figcaption>Each server was measured alone, for \
             as long as the others. Lower is better, and each step up is ten times as long. The \
             noisy client has connections of its own. {}</figcaption></figure>\n\
             <div class=\"wide\"><table>\n{heads}{rows}</table>\n<p>Percentiles are over all \
             requests of a part, by the time at which they were sent.</p></div></div>",
            escaped(&caption)
        );
    }
    out.push_str(&notes(results, results.runs().iter().filter(|run| neighbour::is_one(run))));
}

/// What was measured, when, how often, and the first thing that one wants to know.
fn lead(results: Results<'_>, out: &mut String) {
    let record = results.record;
    let Definition { about, .. } = &record.definition;
    let _ = writeln!(
        out,
        "<p class=\"lead\">{}. {}; in each, all servers were measured one right after the \
         other on the same machine by the same client, which checked every byte of every value. \
         Measured until {}.</p>",
        escaped(about),
        match record.rounds.len() {
            1 => "One round".into(),
            rounds => format!("{rounds} rounds"),
        },
        escaped(&record.ended)
    );
    let Some(at) = results.rate_of_all() else { return };
    let of_line = |line: &str| {
        let p99 = results.spread(results.run(line, at)?, "/quiet/small/p99");
        let words = p99.map_or("not known".into(), |p99| format!("{:.0} µs", p99.median));
        Some(format!("{} {words}", escaped(&capital(line))))
    };
    let all: Vec<String> = results.lines().into_iter().filter_map(of_line).collect();
    let _ = writeln!(
        out,
        "<p class=\"lead\">At {at} requests a second, ninety-nine of a hundred requests for small \
         values were answered within: <strong>{}</strong>.</p>",
        all.join(", ")
    );
}

fn figures(results: Results<'_>, out: &mut String) {
    if results.record.figures.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Ratios</h2>\n<p>Laneway's number divided by the other's of the same round; below 1 \
         is better for Laneway. A machine's speed drifts from minute to minute, so these say more \
         than the times themselves.</p>\n<table>\n",
    );
    out.push_str(&heads(&["figure", "median [least..most] over the rounds"]));
    for Judged { figure, values, .. } in &results.record.figures {
        out.push_str(&row(1, [figure.name.clone(), spread(values.iter().copied())]));
    }
    out.push_str("</table>\n");
}

fn runs(results: Results<'_>, out: &mut String) {
    if table::rows(results).next().is_none() {
        return;
    }
    out.push_str(
        "<h2>Every run</h2>\n<p>Medians over the rounds, [least..most]. Percentiles are those of \
         the quiet laps: tenths of a second in which the client kept its schedule; beside them the \
         same of the whole run. <em>Waited</em> is how long a side was ready to run while others \
         had its CPU.</p>\n<div class=\"wide\"><table>\n",
    );
    out.push_str(&heads(&table::heads()));
    out.extend(table::rows(results).map(|run| row(1, table::cells(results, run))));
    out.push_str("</table></div>\n");
    let notes = notes(results, table::rows(results));
    if !notes.is_empty() {
        let _ = write!(
            out,
            "<h2>What must be said of runs</h2>\n<p>Where the client could not keep its \
             schedule, or the server could not keep up, latencies would say nothing of the server, \
             so there are none.</p>\n{notes}"
        );
    }
}

fn machine(record: &Record, out: &mut String) {
    let crate::cpu::Machine { cpu_model, cpus, kernel, halt_poll_ns } = &record.machine;
    let idle = match halt_poll_ns {
        None => String::new(),
        Some(0) => ", virtual; idle ones halt at once, and the host may keep them".into(),
        Some(ns) => {
            format!(", virtual; idle ones poll for up to {} µs before they halt", ns / 1000)
        }
    };
    let scheduler = match record.real_time {
        Some(true) => "SCHED_FIFO, so that no other program delays them",
        _ => "the ordinary scheduler: the slowest requests may be other programs' doing",
    };
    let mut rows = vec![
        ["processor".into(), format!("{cpu_model}, {cpus} CPUs{idle}")],
        ["kernel".into(), format!("Linux {kernel}")],
        ["servers".into(), format!("on CPU 0, one thread each, under {scheduler}")],
        ["client".into(), "spinning on CPU 1, over loopback".into()],
    ];
    rows.extend(record.versions.iter().map(|(name, version)| [capital(name), version.clone()]));
    // A page made outside of the repository knows no commit; the version stands above.
    if record.commit != "unknown" {
        rows.push(["commit".into(), record.commit.clone()]);
    }
    let rows: String = rows.into_iter().map(|cells| row(2, cells)).collect();
    let _ = writeln!(out, "<h2>Machine and versions</h2>\n<table>\n{rows}</table>");
}

fn exact_commands(record: &Record, out: &mut String) {
    let _ = writeln!(
        out,
        "<h2>The exact commands</h2>\n<p>Ports were free ones of the moment. Each client also had \
         the server's process number, and in each round another schedule \
         (<code>--first-run</code>).</p>\n<div class=\"wide\"><table class=\"commands\">"
    );
    for (name, line) in commands(record) {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td><code>{}</code></td></tr>",
            escaped(&name),
            escaped(&line)
        );
    }
    let _ = writeln!(out, "</table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn the_page_holds_everything_and_fetches_nothing() {
        let page = render(&example::record());
        for words in [
            "<h1>Laneway and memcached compared</h1>",
            "two servers &amp; &lt;a floor&gt;",
            "<strong>Laneway 80 µs, memcached 160 µs</strong>",
            "A CPU, 2 CPUs",
            "1.6.45 (laneway)",
            "SCHED_FIFO",
            "<code>taskset -c 0 chrt -f 1 memcached -u root -l 127.0.0.1 -p 11221 -U 0 -m 64",
            "<code>laneway bench --server 127.0.0.1:11211 --dialect text --cpu 1 --distribution",
            "the client limited this run",
            "0.50 [0.50..0.56]",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<svg").count(), 6);
        for fetched in ["src=", "href=", "@import", "url(", "<script", "<link"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }

    #[test]
    fn the_page_opens_with_the_noisy_neighbour() {
        let record = example::beside_a_neighbour(&[
            ("laneway", Some(80.0)),
            ("memcached", Some(2_000.0)),
            ("redis", None),
        ]);
        // As it comes out of a file that was written with --json.
        let text = serde_json::to_string(&record).expect("data");
        let page = render(&Record::parse(&text).expect("the same"));
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}\n{page}"));
        let order = [
            "<h1>",
            "went from 50 µs to 80 µs with laneway and from 50 µs to 2.0 ms with memcached.",
            "There is no figure of redis",
            "p99 of small requests over time",
            "p99 of small requests (µs)",
            "time (s)",
            "CPU in 2 of 12 slices",
            "<th>small p99.9 µs</th>",
            "<td class=\"number\">during</td><td class=\"number\">40</td>",
            "redis @ noisy neighbour: FAILED: it has ended",
            "<h2>Ratios</h2>",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        // The picture's ground is grey in the middle, and disturbed slices have hollow marks.
        assert_eq!(page.matches("<svg").count(), 1, "nothing else was measured");
        let picture = &page[at("<svg")..at("</svg>")];
        assert_eq!(picture.matches("<polygon").count(), 2 * 6 + 2, "six slices each, and legends");
        assert_eq!(picture.matches("<polygon opacity=\"1\" fill=\"#FFFFFF\"").count(), 2);
        assert!(!page.contains("<h2>Every run</h2>"), "it would be empty");
    }

    #[test]
    fn words_from_outside_stay_words() {
        let mut record = example::record();
        record.versions.insert("peer".into(), "<script>alert(1)</script>".into());
        let page = render(&record);
        assert!(!page.contains("<script"), "a version is what a stranger's server says");
        assert!(page.contains("&lt;script&gt;"));
    }
}
