//! Draws the pictures of a comparison, each with its words. A line has the same colour in all of
//! them.

use super::results::{Results, Spread};
use crate::plot::{self, Chart, Extras, Line, Log, Span};

/// A picture as SVG, and what it shows and how it is read.
type Picture = (String, String);

/// Every picture that there are numbers for.
pub fn all(results: Results<'_>) -> Vec<Picture> {
    ["small", "large"].into_iter().filter_map(|class| against_throughput(results, class)).collect()
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
    let svg = plot::svg(chart, &lines, &Extras { spans, ..Extras::default() }).ok()?;
    Some((svg, caption))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn without_numbers_there_are_no_pictures() {
        let mut record = example::record();
        record.rounds.clear();
        assert!(all(Results { record: &record }).is_empty());
    }
}
