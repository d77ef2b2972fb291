//! Pictures of a figure: SVG, drawn by plotters' SVG backend alone, which needs no font of the
//! system; the viewer's sans-serif is used. A line ends where its design is no longer steady: what
//! p99 is beyond depends on how long one looks. Such points are drawn hollow and unconnected, or,
//! where the design is overloaded, not at all. Bars are intervals over seeds. Each line has a
//! marker of its own, and earlier lines are wider, so that equal ones do not hide each other.

use crate::machine::State;
use crate::row::Row;
use crate::study::Effort;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

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
        let lines = self.lines(rows);
        let points = || lines.iter().flat_map(|(_, points)| points);
        if points().next().is_none() {
            return Ok(None);
        }
        let bounds = |of: fn(&Mark) -> f64| {
            let values = points().map(of);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (x_low, x_high) = bounds(|point| point.x);
        let (y_low, y_high) = bounds(|point| point.y);
        let corner = corner(&self.shares(&lines, (x_low, x_high), (y_low, y_high)), lines.len());
        let x_pad = ((x_high - x_low) * 0.03).max(1e-9);
        let x = (x_low - x_pad)..(x_high + x_pad);
        let x_log = (x_low / 1.2..x_high * 1.2).log_scale();
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(text)?;
            let mut builder = ChartBuilder::on(&root);
            builder.margin(12).x_label_area_size(44).y_label_area_size(66);
            let title = format!("{}{}", self.title, effort.pick(" (quick: 3 seeds)", ""));
            builder.caption(title, ("sans-serif", 17));
            let y = 0.0..(y_high * 1.06).max(1e-9);
            let y_log = (y_low / 1.3..y_high * 1.3).log_scale();
            macro_rules! draw {
                ($x:expr, $y:expr) => {{
                    let mut chart = builder.build_cartesian_2d($x, $y).map_err(text)?;
                    self.draw(&mut chart, &lines, corner)?;
                }};
            }
            match (self.log_x, self.log) {
                (false, false) => draw!(x, y),
                (false, true) => draw!(x, y_log),
                (true, false) => draw!(x_log, y),
                (true, true) => draw!(x_log, y_log),
            }
            root.present().map_err(text)?;
        }
        Ok(Some(svg))
    }

    /// How far down an interval may be drawn.
    fn lowest(&self, point: &Mark) -> f64 {
        if self.log { point.y / 2.0 } else { 0.0 }
    }

    /// Where the points lie, as shares of width and height.
    fn shares(&self, lines: &[Line], x: (f64, f64), y: (f64, f64)) -> Vec<(f64, f64)> {
        let share = |log: bool, (low, high): (f64, f64), value: f64| {
            let low = if log { low } else { 0.0_f64.min(low) };
            let of = |value: f64| if log { value.ln() } else { value };
            (of(value) - of(low)) / (of(high) - of(low)).max(1e-9)
        };
        let x_share = |value| match self.log_x {
            true => share(true, x, value),
            false => (value - x.0) / (x.1 - x.0).max(1e-9),
        };
        let points = lines.iter().flat_map(|(_, points)| points);
        points.map(|point| (x_share(point.x), share(self.log, y, point.y))).collect()
    }

    fn draw<'a, X, Y>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
        lines: &[Line],
        corner: SeriesLabelPosition,
    ) -> Result<(), String>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x_label).y_desc(self.y_label).light_line_style(WHITE);
        let label = |log: bool, value: &f64| match log && !one_two_or_five(*value) {
            true => String::new(), // between labels, where they would overlap
            false => number(value),
        };
        let (x_label, y_label) = (|x: &f64| label(self.log_x, x), |y: &f64| label(self.log, y));
        mesh.x_label_formatter(&x_label).y_label_formatter(&y_label);
        mesh.label_style(("sans-serif", 13)).draw().map_err(text)?;
        for (index, (name, points)) in lines.iter().enumerate() {
            let style = color(name, index).stroke_width(stroke_width(index));
            let label = match name.parse::<f64>() {
                Ok(_) => format!("{} {name}", self.series),
                Err(_) => name.clone(),
            };
            let steady = points.iter().take_while(|point| point.steady);
            chart
                .draw_series(LineSeries::new(steady.map(|point| (point.x, point.y)), style))
                .map_err(text)?
                .label(label)
                .legend(move |(x, y)| {
                    EmptyElement::at((x, y))
                        + PathElement::new([(0, 0), (18, 0)], style)
                        + Polygon::new(corners(index, (9, 0)), style.filled())
                });
            if points.len() > POINTS_WITH_DOTS_MAX {
                continue;
            }
            let bars = points.iter().filter(|point| point.steady && point.half_width > 0.0);
            let low = |point: &Mark| (point.y - point.half_width).max(self.lowest(point));
            let bar = |point: &Mark| {
                let ends = [(point.x, low(point)), (point.x, point.y + point.half_width)];
                PathElement::new(ends, style.stroke_width(1))
            };
            chart.draw_series(bars.map(bar)).map_err(text)?;
            let dot = |point: &Mark| {
                let corners = corners(index, (0, 0));
                EmptyElement::at((point.x, point.y))
                    + Polygon::new(corners.clone(), inside(style, point.steady))
                    + PathElement::new(corners, style.stroke_width(1))
            };
            chart.draw_series(points.iter().map(dot)).map_err(text)?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .position(corner)
            .label_font(("sans-serif", 13))
            .draw()
            .map_err(text)
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

/// Of the line with this place.
fn stroke_width(index: usize) -> u32 {
    4_u32.saturating_sub(index as u32).max(1)
}

/// Corners of what marks the points of the line with this place, around `(x, y)`; the last is the
/// first.
fn corners(index: usize, (x, y): (i32, i32)) -> Vec<(i32, i32)> {
    const MARKERS: [&[(i32, i32)]; 5] = [
        &[(-4, -2), (-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2)],
        &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        &[(0, -5), (5, 4), (-5, 4)],
        &[(0, -5), (5, 0), (0, 5), (-5, 0)],
        &[(0, 5), (5, -4), (-5, -4)],
    ];
    let corners = MARKERS[index % MARKERS.len()];
    corners.iter().chain(&corners[..1]).map(|corner| (x + corner.0, y + corner.1)).collect()
}

/// A marker's inside: white where it is hollow.
fn inside(style: ShapeStyle, filled: bool) -> ShapeStyle {
    if filled { style.filled() } else { WHITE.filled() }
}

/// More points than this on a line hide it behind their dots.
const POINTS_WITH_DOTS_MAX: usize = 40;

/// Of a picture, in points.
const SIZE: (u32, u32) = (640, 420);

/// Eight that people with any colour vision can tell apart (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

/// Designs have the same colour in every picture; others take those that are left, in order.
const DESIGNS: [(&str, usize); 20] = [
    ("minos", 0),
    ("hkh", 1),
    ("hkh-ws", 2),
    ("lanes", 3),
    ("sho 1", 4),
    ("sho 2", 5),
    ("sho 3", 6),
    ("M/G/1", 7),
    ("M/G/k", 4),
    ("chunks", 5),
    ("SRPT", 6),
    ("hkh uncounted", 7),
    ("hkh-ws uncounted", 6),
    ("lanes-1", 7),
    ("lanes-2", 1),
    ("lanes-long", 5),
    ("lanes-split", 4),
    ("lanes-32", 5),
    ("lanes-alone", 6),
    ("hash-alone", 7),
];

fn color(name: &str, index: usize) -> RGBColor {
    let known = DESIGNS.iter().find(|(design, _)| *design == name);
    COLORS[known.map_or(index % COLORS.len(), |&(_, color)| color)]
}

/// The corner where a legend of so many lines covers the fewest points, which are given as shares
/// of width and height.
fn corner(points: &[(f64, f64)], lines: usize) -> SeriesLabelPosition {
    let (width, height) = (0.33, 0.08 + 0.065 * lines as f64);
    let covered = |right: bool, upper: bool| {
        let inside = |&&(x, y): &&(f64, f64)| {
            (if right { x > 1.0 - width } else { x < width })
                && (if upper { y > 1.0 - height } else { y < height })
        };
        points.iter().filter(inside).count()
    };
    let corners = [
        (covered(false, true), SeriesLabelPosition::UpperLeft),
        (covered(true, true), SeriesLabelPosition::UpperRight),
        (covered(true, false), SeriesLabelPosition::LowerRight),
        (covered(false, false), SeriesLabelPosition::LowerLeft),
    ];
    let best = corners.into_iter().min_by_key(|(covered, _)| *covered);
    best.map_or(SeriesLabelPosition::UpperLeft, |(_, corner)| corner)
}

fn one_two_or_five(value: f64) -> bool {
    let digit = value / 10_f64.powf((value.log10() + 1e-9).floor());
    [1.0, 2.0, 5.0].iter().any(|wanted| (digit - wanted).abs() < 1e-6)
}

fn number(value: &f64) -> String {
    crate::row::Cell::Number((value * 1e6).round() / 1e6).plain()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

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

    #[test]
    fn the_legend_goes_where_nothing_is() {
        let rising: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i) / 9.0, 1.0)).collect();
        assert!(matches!(corner(&rising, 3), SeriesLabelPosition::LowerRight));
        assert!(matches!(corner(&[(0.1, 0.1)], 3), SeriesLabelPosition::UpperLeft));
        assert!(matches!(corner(&[(0.1, 0.9)], 3), SeriesLabelPosition::UpperRight));
    }

    #[test]
    fn a_logarithmic_axis_has_few_labels() {
        for (value, labelled) in
            [(0.1, true), (5e3, true), (0.2, true), (9.0, false), (40.0, false)]
        {
            assert_eq!(one_two_or_five(value), labelled, "{value}");
        }
    }
}
