//! Draws pictures of a figure. A line ends where its design is no longer steady: what p99 is beyond
//! depends on how long one looks. Such points are drawn hollow and unconnected, or, where the
//! design is overloaded, not at all. Bars are intervals over seeds.

use crate::machine::State;
use crate::row::Row;
use crate::study::Effort;
use laneway_load::plot::{self, Extras, Log, Span};

/// What a picture shows: one line for each value of `series`, over `x`.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Part of the file's name.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// Column of the horizontal axis.
    pub x: &'static str,
    /// Its caption.
    pub x_label: &'static str,
    /// Column of the vertical axis.
    pub y: &'static str,
    /// Its caption.
    pub y_label: &'static str,
    /// Column that tells lines apart.
    pub series: &'static str,
    /// Whether the vertical axis is logarithmic.
    pub log: bool,
    /// Whether the horizontal one is.
    pub log_x: bool,
    /// Only rows whose columns have these values.
    pub only: Vec<(&'static str, String)>,
}

impl Chart {
    /// Latency against load, logarithmic.
    pub fn latency(name: impl Into<String>, title: impl Into<String>) -> Chart {
        Chart {
            name: name.into(),
            title: title.into(),
            x: "load",
            x_label: "load",
            y: "p99",
            y_label: "p99 (us)",
            series: "design",
            log: true,
            log_x: false,
            only: Vec::new(),
        }
    }

    /// The same over another axis.
    pub fn over(self, x: &'static str, x_label: &'static str) -> Chart {
        Chart { x, x_label, ..self }
    }

    /// The same of another column.
    pub fn of(self, y: &'static str, y_label: &'static str) -> Chart {
        Chart { y, y_label, ..self }
    }

    /// Only rows with this value.
    pub fn only(mut self, column: &'static str, value: impl ToString) -> Chart {
        self.only.push((column, value.to_string()));
        self
    }

    fn lines(&self, rows: &[Row]) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let interval = format!("{}_ci", self.y);
        for row in rows {
            let fits = self.only.iter().all(|(column, value)| row.text(column) == *value);
            let (Some(x), Some(y)) = (row.number(self.x), row.number(self.y)) else { continue };
            let state = row.text("state");
            if !fits || state == State::Overload.name() || (self.log && y <= 0.0) {
                continue;
            }
            let steady = state.is_empty() || state == State::Steady.name();
            let point = Mark { x, y, steady, half_width: row.number(&interval).unwrap_or(0.0) };
            let series = row.text(self.series);
            match lines.iter_mut().find(|(name, _)| *name == series) {
                Some((_, points)) => points.push(point),
                None => lines.push((series, vec![point])),
            }
        }
        lines
    }

    /// The picture; `None` if no row fits.
    pub fn svg(&self, rows: &[Row], effort: Effort) -> Result<Option<String>, String> {
        let marked = self.lines(rows);
        if marked.is_empty() {
            return Ok(None);
        }
        let mut extras = Extras::default();
        let mut lines = Vec::new();
        for (index, (name, marks)) in marked.iter().enumerate() {
            let known = DESIGNS.iter().position(|designs| designs.contains(&name.as_str()));
            extras.colors.push(known.unwrap_or(index));
            extras.joined.push(marks.iter().take_while(|mark| mark.steady).count());
            extras.hollow.push(marks.iter().map(|mark| !mark.steady).collect());
            let sure = marks.iter().filter(|mark| mark.steady && mark.half_width > 0.0);
            extras.spans.push(sure.map(|mark| self.span(mark)).collect());
            let label = match name.parse::<f64>() {
                Ok(_) => format!("{} {name}", self.series),
                Err(_) => name.clone(),
            };
            lines.push((label, marks.iter().map(|mark| (mark.x, mark.y)).collect()));
        }
        let title = format!("{}{}", self.title, effort.pick(" (quick: 3 seeds)", ""));
        let chart = plot::Chart {
            title: &title,
            x_label: self.x_label,
            y_label: self.y_label,
            log: match (self.log_x, self.log) {
                (false, false) => Log::Neither,
                (false, true) => Log::Vertical,
                (true, false) => Log::Horizontal,
                (true, true) => Log::Both,
            },
        };
        plot::svg(chart, &lines, &extras).map(Some)
    }

    /// A point's interval; on a logarithmic axis it goes down by a half at most.
    fn span(&self, mark: &Mark) -> Span {
        let lowest = if self.log { mark.y / 2.0 } else { 0.0 };
        (mark.x, (mark.y - mark.half_width).max(lowest), mark.y + mark.half_width)
    }
}

/// A name and its points.
type Line = (String, Vec<Mark>);

/// A point, with the half-width of its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    x: f64,
    y: f64,
    half_width: f64,
    steady: bool,
}

/// Designs have the same colour in every picture, those of a line here the colour of its number;
/// others take those that are left, in order.
const DESIGNS: [&[&str]; 8] = [
    &["minos"],
    &["hkh", "lanes-2"],
    &["hkh-ws"],
    &["lanes"],
    &["sho 1", "M/G/k", "lanes-split"],
    &["sho 2", "chunks", "lanes-long", "lanes-32"],
    &["sho 3", "SRPT", "hkh-ws uncounted", "lanes-alone"],
    &["M/G/1", "hkh uncounted", "lanes-1", "hash-alone"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_its_design_is_not_steady() {
        let row = |load: f64, p99: f64, state: &str| {
            let row = Row::of("f").with("design", "minos").with("load", load);
            row.with("p99", p99).with("p99_ci", 0.5).with("state", state)
        };
        let states = ["steady", "steady", "growing", "overload"];
        let rows: Vec<Row> = (0..4).map(|i| row(f64::from(i as u32), 2.0, states[i])).collect();
        let chart = Chart::latency("name", "title");
        let lines = chart.lines(&rows);
        let mark = |x, steady| Mark { x, y: 2.0, half_width: 0.5, steady };
        assert_eq!(lines[0].1, [mark(0.0, true), mark(1.0, true), mark(2.0, false)]);
        let svg = |effort| chart.svg(&rows, effort).expect("a picture").expect("rows");
        let quick = svg(Effort::Quick);
        assert!(quick.contains("minos") && quick.contains("p99 (us)"));
        assert!(quick.contains("title (quick"), "a quick run says so");
        assert!(!svg(Effort::Full).contains("quick"));
        let hollow = |svg: &str| {
            svg.lines().filter(|l| l.starts_with("<polygon") && l.contains("#FFFFFF")).count()
        };
        let steady = chart.svg(&rows[..2], Effort::Full).expect("a picture").expect("rows");
        assert_eq!((hollow(&quick), hollow(&steady)), (1, 0), "{quick}");
        let none = Chart::latency("name", "title").only("load", 7);
        assert_eq!(none.svg(&rows, Effort::Full), Ok(None));
    }
}
