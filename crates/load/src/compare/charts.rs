//! Draws the pictures of a comparison, each with its words. A line has the same colour in all of
//! them.

use super::results::{Results, Spread, parts};
use super::table;
use crate::pairs::definition::{Kind, RunDefinition};
use crate::plot::{self, Chart, Extras, Line, Log, Span};

/// A picture as SVG, and what it shows and how it is read.
type Picture = (String, String);

/// Every picture that there are numbers for.
pub fn all(results: Results<'_>) -> Vec<Picture> {
    let latency = |class: &str| against_throughput(results, class);
    let distribution = |class: &str| distribution(results, class);
    [
        latency("small"),
        latency("large"),
        distribution("small"),
        distribution("large"),
        cpu(results),
        memory(results),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// p99 against throughput (Minos, figure 3).
fn against_throughput(results: Results<'_>, class: &str) -> Option<Picture> {
    let pointer = format!("/quiet/{class}/p99");
    let mut lines: Vec<Line> = Vec::new();
    let mut spans: Vec<Vec<Span>> = Vec::new();
    for line in results.lines() {
        let point = |(_, at): &(f64, &str)| {
            let run = results.run(line, at)?;
            let answered = results.spread(run, "/requests/answered_per_s")?;
            let p99 = results.spread(run, &pointer).filter(|p99| p99.least > 0.0)?;
            Some((answered.median / 1e3, p99))
        };
        let points: Vec<(f64, Spread)> = results.rates().iter().filter_map(point).collect();
        spans.push(points.iter().map(|&(x, p99)| (x, p99.least, p99.most)).collect());
        lines.push((line.into(), points.iter().map(|&(x, p99)| (x, p99.median)).collect()));
    }
    let title = format!("p99 of {class} values against throughput");
    let chart = Chart {
        title: &title,
        x_label: "answered, thousands of requests per second",
        y_label: "p99 (µs)",
        log: Log::Vertical,
    };
    let caption = format!(
        "The nearer to the bottom right, the better: much is answered, and of a hundred requests \
         for {class} values ninety-nine within the time shown. A line ends where its server no \
         longer keeps up. Points are medians over the rounds, bars their spread."
    );
    let svg = plot::svg_with(chart, &lines, &Extras { spans, ..Extras::default() }).ok()?;
    Some((svg, caption))
}

/// The whole distribution at one rate.
fn distribution(results: Results<'_>, class: &str) -> Option<Picture> {
    let at = results.rate_of_all()?;
    let of_line = |line: &str| {
        let run = results.run(line, at);
        run.map_or(Vec::new(), |run| results.distribution(run, class))
    };
    let turned = |line: &str| of_line(line).into_iter().map(|(share, us)| (us, share)).collect();
    let lines: Vec<Line> =
        results.lines().into_iter().map(|line| (line.into(), turned(line))).collect();
    let title = format!("Latency of {class} values at {at} requests/s");
    let chart = Chart {
        title: &title,
        x_label: "latency (µs)",
        y_label: "share of the requests answered by then",
        log: Log::Nines,
    };
    let caption = format!(
        "The further left, the better. Each labelled step up leaves a tenth of the requests that \
         the step below left. Every request for a {class} value of the whole run counts, from the \
         moment it was due."
    );
    let svg = plot::svg(chart, &lines).ok()?;
    Some((svg, caption))
}

/// What a request costs the server.
fn cpu(results: Results<'_>) -> Option<Picture> {
    let is_rate = |at: &str| at.parse::<f64>().is_ok();
    let mut loads: Vec<&str> = Vec::new();
    for run in table::rows(results) {
        let (_, at) = parts(&run.name);
        if !is_rate(at) && !loads.contains(&at) {
            loads.push(at);
        }
    }
    loads.extend(results.rate_of_all());
    let groups: Vec<String> = loads
        .iter()
        .map(|at| if is_rate(at) { format!("mix, {at}/s") } else { (*at).to_owned() })
        .collect();
    let value = |run: &RunDefinition| {
        results.spread(run, "/server/cpu_us_per_request").map(|found| found.median)
    };
    let lines = by_line(results, &loads, value);
    let svg = plot::bars("CPU of the server per request", "µs", &groups, &lines).ok()?;
    let caption = "Lower is better. With one request in flight most of it is the kernel's price \
                   of receiving and sending; the floor is a server that does nothing else, and \
                   answers the same bytes. The mix has large values in it."
        .into();
    Some((svg, caption))
}

/// What an item costs beyond its key and its value.
fn memory(results: Results<'_>) -> Option<Picture> {
    let value = |run: &RunDefinition| {
        results.spread(run, "/beyond_bytes_per_item").map(|found| found.median)
    };
    let run = results.runs().iter().find(|run| results.kind(run) == Kind::Memory)?;
    let (_, at) = parts(&run.name);
    let RunDefinition { requests: items, key_bytes, value_bytes, .. } = run;
    let groups = [format!("{items} items of {key_bytes} + {value_bytes} bytes")];
    let lines = by_line(results, &[at], value);
    let title = "Memory per item beyond key and value";
    let svg = plot::bars(title, "bytes", &groups, &lines).ok()?;
    let caption = "Lower is better. What the kernel says is resident, with the items less without \
                   them, divided by their number, less the bytes of key and value."
        .into();
    Some((svg, caption))
}

fn by_line(
    results: Results<'_>,
    loads: &[&str],
    value: impl Fn(&RunDefinition) -> Option<f64>,
) -> Vec<(String, Vec<Option<f64>>)> {
    let of = |line: &str, at: &str| results.run(line, at).and_then(&value);
    let lines = results.lines().into_iter();
    lines.map(|line| (line.to_owned(), loads.iter().map(|at| of(line, at)).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn there_is_a_picture_for_everything_measured() {
        let record = example::record();
        let pictures = all(Results { record: &record });
        let titles = [
            "p99 of small values against throughput",
            "p99 of large values against throughput",
            "Latency of small values at 1000 requests/s",
            "Latency of large values at 1000 requests/s",
            "CPU of the server per request",
            "Memory per item beyond key and value",
        ];
        assert_eq!(pictures.len(), titles.len());
        for (picture, title) in pictures.iter().zip(titles) {
            assert!(picture.0.contains(title) && picture.0.contains("laneway"), "{title}");
        }
        // The floor answers GETs of one size: it is no line of the mix.
        assert!(!pictures[0].0.contains("floor") && pictures[4].0.contains("floor"));
    }

    #[test]
    fn without_numbers_there_are_no_pictures() {
        let mut record = example::record();
        record.rounds.clear();
        assert!(all(Results { record: &record }).is_empty());
    }
}
