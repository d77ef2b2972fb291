//! A comparison as one HTML page that needs nothing else: pictures are inline, there is no script,
//! no font and no address that a browser would fetch.

use super::charts;
use super::neighbour;
use super::results::Results;
use super::table;
use crate::pairs::record::Record;
use crate::pairs::statistics;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const METHOD: &str = include_str!("page_method.html");

/// The page.
pub fn render(record: &Record) -> String {
    let results = Results { record };
    let names = results.lines().into_iter().filter(|line| *line != "floor");
    let names = neighbour::listed(&names.collect::<Vec<_>>());
    let title = escaped(&format!("{names} compared"));
    let picture = |(svg, caption): (String, String)| {
        let caption = escaped(&caption);
        format!("<figure>\n{svg}<figcaption>{caption}</figcaption></figure>\n")
    };
    let pictures: String = charts::all(results).into_iter().map(picture).collect();
    let parts = [
        neighbour(results),
        lead(results),
        figures(record),
        format!("<div class=\"pictures\">\n{pictures}</div>\n"),
        runs(results),
        machine(record),
        definition(record),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{}{METHOD}\n</main>\n</body>\n</html>\n",
        parts.concat()
    )
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A table: its heads, and rows of so many cells of words, behind which stand numbers.
fn table(heads: &[&str], words: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    let mut out = format!("<div class=\"wide\"><table>\n<tr>{heads}</tr>\n");
    for row in rows {
        let cell = |(index, text): (usize, &String)| {
            let class = if index < words { "" } else { " class=\"number\"" };
            format!("<td{class}>{}</td>", escaped(text))
        };
        let cells: String = row.iter().enumerate().map(cell).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out + "</table></div>\n"
}

/// What the terminal shows.
fn as_shown(text: &str) -> String {
    format!("<pre class=\"wide\">{}</pre>\n", escaped(text))
}

/// The noisy neighbour: in a sentence, as a picture and in numbers.
fn neighbour(results: Results<'_>) -> String {
    let Some(sentence) = neighbour::sentence(results) else { return String::new() };
    let mut out = format!("<p class=\"lead\"><strong>{}</strong></p>\n", escaped(&sentence));
    if let Some(svg) = neighbour::picture(results) {
        let table = table(&neighbour::HEADS, 0, neighbour::rows(results));
        let caption = escaped(&neighbour::disturbance(results).unwrap_or_default());
        let _ = writeln!(
            out,
            "<div class=\"first\"><figure>\n{svg}<figcaption>Each server was measured alone, for \
             as long as the others. Lower is better, and each step up is ten times as long. The \
             noisy client has connections of its own. {caption}</figcaption></figure>\n\
             <div>{table}<p>Percentiles are over all requests of a part, by the time at which \
             they were sent.</p></div></div>"
        );
    }
    let notes = table::notes(results, neighbour::is_one).into_iter();
    let items: String = notes.map(|note| format!("<li>{}</li>\n", escaped(&note))).collect();
    if items.is_empty() { out } else { format!("{out}<ul>\n{items}</ul>\n") }
}

/// What was measured, when, how often, and the first thing that one wants to know.
fn lead(results: Results<'_>) -> String {
    let record = results.record;
    let rounds = match record.rounds.len() {
        1 => "One round".into(),
        rounds => format!("{rounds} rounds"),
    };
    let mut out = format!(
        "<p class=\"lead\">{}. {rounds}; in each, all servers were measured one right after the \
         other on the same machine by the same client, which checked every byte of every value. \
         Measured until {}.</p>\n",
        escaped(&record.definition.about),
        escaped(&record.ended)
    );
    let Some(at) = results.rate_of_all() else { return out };
    let of_line = |line: &str| {
        let p99 = results.spread(results.run(line, at)?, "/quiet/small/p99");
        let words = p99.map_or("not known".into(), |p99| format!("{:.0} µs", p99.median));
        Some(format!("{} {words}", escaped(line)))
    };
    let all: Vec<String> = results.lines().into_iter().filter_map(of_line).collect();
    let _ = writeln!(
        out,
        "<p class=\"lead\">At {at} requests a second, ninety-nine of a hundred requests for small \
         values were answered within: <strong>{}</strong>.</p>",
        all.join(", ")
    );
    out
}

fn figures(record: &Record) -> String {
    if record.figures.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Ratios</h2>\n<p>Laneway's number divided by the other's of the same round; below 1 \
         is better for Laneway. A machine's speed drifts from minute to minute, so these say more \
         than the times themselves.</p>\n{}",
        as_shown(&statistics::render(record.rounds.len(), &record.figures))
    )
}

fn runs(results: Results<'_>) -> String {
    // What is said of the noisy neighbours' runs stands above.
    let shown = table::render(results, |run| !neighbour::is_one(run));
    if shown.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Every run</h2>\n<p>Medians over the rounds, [least..most]. Percentiles are those of \
         the quiet laps: tenths of a second in which the client kept its schedule; beside them the \
         same of the whole run. <em>Waited</em> is how long a side was ready to run while others \
         had its CPU. Where the client could not keep its schedule, or the server could not keep \
         up, latencies would say nothing of the server, so there are none.</p>\n{}",
        as_shown(&shown)
    )
}

fn machine(record: &Record) -> String {
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
    rows.extend(record.versions.iter().map(|(name, version)| [name.clone(), version.clone()]));
    // A page made outside of the repository knows no commit; the version stands above.
    if record.commit != "unknown" {
        rows.push(["commit".into(), record.commit.clone()]);
    }
    let table = table(&[], 2, rows.into_iter().map(Vec::from));
    format!("<h2>Machine and versions</h2>\n{table}")
}

/// The commands and flags, as a file by which the same is measured again.
fn definition(record: &Record) -> String {
    let text = toml::to_string(&record.definition).unwrap_or_default();
    format!(
        "<h2>The exact commands</h2>\n<p>As a file for <code>laneway bench compare \
         FILE.toml</code>. What stands in braces is of the moment, such as a free port. Each \
         client is <code>laneway bench</code> with the flags of <code>load</code> and the server's \
         process number, and in each round another schedule (<code>--first-run</code>).</p>\n{}",
        as_shown(&text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn the_page_holds_everything_and_fetches_nothing() {
        let page = render(&example::record());
        for words in [
            "<h1>laneway, memcached, and redis compared</h1>",
            "<strong>laneway 58 µs, memcached 73 µs, redis 86 µs</strong>",
            "Processor, 2 CPUs",
            "1.6.45-laneway",
            "SCHED_FIFO",
            "p99 of small values against throughput",
            "p99 of large values against throughput",
            "memcached -u root -l 127.0.0.1 -p {port} -U 0 -m {memory} -t 1",
            "laneway @ memory: 44.1 bytes per item beyond key and value",
            "the client limited this run",
            "memcached @ 60000: the server fell behind",
            "0.73 [0.34..0.92]",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        for fetched in ["src=", "href=", "@import", "url(", "<script", "<link"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }

    #[test]
    fn the_page_opens_with_the_noisy_neighbour() {
        let record = example::beside_a_neighbour("laneway=80 memcached=2000 redis=-");
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
    fn memory_alone_has_its_place_on_the_page() {
        let mut record = example::record();
        record.definition.runs.retain(|run| run.name.ends_with(" @ memory"));
        let page = render(&record);
        assert!(page.contains("laneway @ memory: 44.1 bytes per item beyond key and value"));
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
