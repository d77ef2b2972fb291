//! Pictures of what was measured or simulated, as lines: SVG by plotters' SVG backend alone, which
//! needs no font of the system; the viewer's sans-serif is used. Each line has a marker of its own,
//! and earlier lines are wider, so that equal ones do not hide each other. It knows no report.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

/// How a picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chart<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub x_label: &'a str,
    /// Beside the vertical axis.
    pub y_label: &'a str,
    /// Which axes are logarithmic.
    pub log: Log,
}

/// Which axes are logarithmic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// None.
    Neither,
    /// The vertical one.
    Vertical,
    /// The horizontal one.
    Horizontal,
    /// Both.
    Both,
}

/// A line: its name and its points, in order.
pub type Line = (String, Vec<(f64, f64)>);

/// Of a picture, in points.
const SIZE: (u32, u32) = (680, 420);
/// The least that a logarithmic axis shows.
const LEAST: f64 = 1e-3;
/// More points than this on a line would hide it behind their marks.
const POINTS_WITH_MARKS_MAX: usize = 60;
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

/// From where to where the values at a point went: its place, the least and the largest.
pub type Span = (f64, f64, f64);

/// What may be drawn beside the lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    /// Spans of each line's points, in its colour.
    pub spans: Vec<Vec<Span>>,
    /// Which of each line's points have hollow marks.
    pub hollow: Vec<Vec<bool>>,
    /// How many of each line's points the line joins, from the first on; all where nothing is said.
    pub joined: Vec<usize>,
    /// Each line's colour, by number; its own place where nothing is said.
    pub colors: Vec<usize>,
    /// From where to where on the horizontal axis the ground is grey.
    pub band: Option<(f64, f64)>,
}

/// The picture; an error where there is no point to draw.
pub fn svg(chart: Chart<'_>, lines: &[Line], extras: &Extras) -> Result<String, String> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    if points().next().is_none() {
        return Err(format!("{}: nothing to draw", chart.title));
    }
    let (x_low, x_high) = bounds(points().map(|point| point.0));
    let ends = extras.spans.iter().flatten().flat_map(|&(_, low, high)| [low, high]);
    let (y_low, y_high) = bounds(points().map(|point| point.1).chain(ends));
    let (width, height) = ((x_low, x_high), (y_low, y_high));
    let corner = corner(&shares(chart.log, points(), width, height), lines.len());
    // A single place has room around it, or its axis would have one number only.
    let x_pad = ((x_high - x_low) * 0.03).max(x_high.abs() * 0.02).max(1e-9);
    let x_linear = (x_low - x_pad)..(x_high + x_pad);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(text)?;
        let mut builder = ChartBuilder::on(&root);
        builder.margin(12).x_label_area_size(44).y_label_area_size(72);
        builder.caption(chart.title, ("sans-serif", 16));
        // Whole decades: between two of them an axis would have no number.
        let decade = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.log10()));
        let (low, high) = (y_low.max(LEAST) / 1.1, y_high.max(LEAST) * 1.1);
        let (log_x, log_y) = chart.log.axes();
        let x = match log_x {
            true => Axis::log(x_low.max(LEAST) / 1.2..x_high.max(LEAST) * 1.2),
            false => Axis::linear(x_linear),
        };
        let y = match log_y {
            true => Axis::log(decade(low, f64::floor)..decade(high, f64::ceil)),
            false => Axis::linear(0.0..(y_high * 1.08).max(1e-9)),
        };
        let context = builder.build_cartesian_2d(x, y).map_err(text)?;
        draw(chart, context, lines, extras, height, corner)?;
        root.present().map_err(text)?;
    }
    Ok(svg)
}

/// Draws what has its axes: the legend in a corner, and a band as high as the values go.
fn draw<'a>(
    chart: Chart<'_>,
    mut context: ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>,
    lines: &[Line],
    extras: &Extras,
    (low, high): (f64, f64),
    corner: SeriesLabelPosition,
) -> Result<(), String> {
    let mut mesh = context.configure_mesh();
    mesh.x_desc(chart.x_label).y_desc(chart.y_label).light_line_style(WHITE);
    let (log_x, log_y) = chart.log.axes();
    let label = |log: bool, value: &f64| match log && !one_two_or_five(*value) {
        true => String::new(), // between labels, where they would overlap
        false => number(value),
    };
    let (x_label, y_label) = (|x: &f64| label(log_x, x), |y: &f64| label(log_y, y));
    mesh.x_label_formatter(&x_label).y_label_formatter(&y_label);
    mesh.label_style(("sans-serif", 13)).draw().map_err(text)?;
    let Extras { spans, hollow, joined, colors, band } = extras;
    if let Some((from, to)) = *band {
        // Ten times as far either way: the axis ends before that, and so does what is drawn.
        let corners = [(from, low / 10.0), (to, high * 10.0)];
        let ground = Rectangle::new(corners, BLACK.mix(0.07).filled());
        context.draw_series([ground]).map_err(text)?;
    }
    for (index, (name, points)) in lines.iter().enumerate() {
        // It keeps its colour for where it has points, and stands in no legend here.
        if points.is_empty() {
            continue;
        }
        let color = COLORS[colors.get(index).unwrap_or(&index) % COLORS.len()];
        let spans = spans.get(index).into_iter().flatten();
        let whisker = |&(x, low, high): &Span| {
            PathElement::new([(x, low), (x, high)], color.mix(0.4).stroke_width(4))
        };
        context.draw_series(spans.map(whisker)).map_err(text)?;
        let style = color.stroke_width(4_u32.saturating_sub(index as u32).max(1));
        let is_long = points.len() > POINTS_WITH_MARKS_MAX;
        let marked = if is_long { &[] } else { points.as_slice() };
        let hollow = hollow.get(index);
        let mut outline = corners(index);
        outline.push(outline[0]);
        let marks = marked.iter().enumerate().map(|(at, &point)| {
            let is_hollow = hollow.is_some_and(|hollow| hollow.get(at) == Some(&true));
            EmptyElement::at(point)
                + mark(index, if is_hollow { WHITE } else { color })
                + PathElement::new(outline.clone(), style.stroke_width(1))
        });
        let joined = *joined.get(index).unwrap_or(&points.len());
        context
            .draw_series(LineSeries::new(points[..joined].iter().copied(), style))
            .map_err(text)?
            .label(name)
            .legend(move |(x, y)| {
                EmptyElement::at((x + 9, y))
                    + PathElement::new([(-9, 0), (9, 0)], style)
                    + mark(index, color)
            });
        context.draw_series(marks).map_err(text)?;
    }
    let mut labels = context.configure_series_labels();
    labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3));
    labels.position(corner).label_font(("sans-serif", 13));
    labels.draw().map_err(text)
}

impl Log {
    /// Whether the horizontal axis is, and the vertical one.
    fn axes(self) -> (bool, bool) {
        match self {
            Log::Neither => (false, false),
            Log::Vertical => (false, true),
            Log::Horizontal => (true, false),
            Log::Both => (true, true),
        }
    }
}

/// Where points lie, as shares of width and height.
fn shares(
    log: Log,
    points: impl Iterator<Item = (f64, f64)>,
    x: (f64, f64),
    y: (f64, f64),
) -> Vec<(f64, f64)> {
    let share = |log: bool, (low, high): (f64, f64), value: f64| {
        let of = |value: f64| if log { value.max(LEAST).ln() } else { value };
        (of(value) - of(low)) / (of(high) - of(low)).max(1e-9)
    };
    let (log_x, log_y) = log.axes();
    let y = if log_y { y } else { (y.0.min(0.0), y.1) };
    points.map(|point| (share(log_x, x, point.0), share(log_y, y, point.1))).collect()
}

/// The corners of a line's mark: a shape of its own, for who does not see colours.
fn corners(index: usize) -> Vec<(i32, i32)> {
    match index % 5 {
        0 => vec![(-4, -2), (-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2)],
        1 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
        2 => vec![(0, -5), (5, 4), (-5, 4)],
        3 => vec![(0, -6), (5, 0), (0, 6), (-5, 0)],
        _ => vec![(0, 5), (5, -4), (-5, -4)],
    }
}

fn mark(index: usize, color: RGBColor) -> Polygon<(i32, i32)> {
    Polygon::new(corners(index), color.filled())
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

/// An axis: one type for all, so that what draws on two of them is compiled once.
enum Axis {
    Linear(RangedCoordf64),
    Log(LogCoord<f64>),
}

impl Axis {
    fn linear(range: Range<f64>) -> Axis {
        Axis::Linear(range.into())
    }

    fn log(range: Range<f64>) -> Axis {
        Axis::Log(range.log_scale().into())
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Axis::Linear(axis) => axis.map(value, limit),
            Axis::Log(axis) => axis.map(value, limit),
        }
    }
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Axis::Linear(axis) => axis.key_points(hint),
            Axis::Log(axis) => axis.key_points(hint),
        }
    }
    fn range(&self) -> Range<f64> {
        match self {
            Axis::Linear(axis) => axis.range(),
            Axis::Log(axis) => axis.range(),
        }
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        RangedCoordf64::format(value)
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(start, |(low, high), value| (low.min(value), high.max(value)))
}

fn number(value: &f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        let words = format!("{value:.3}");
        words.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_in_the_picture() {
        let lines = vec![
            ("one".to_owned(), vec![(1.0, 2.0), (10.0, 30.0)]),
            ("two".to_owned(), vec![(1.0, 0.0), (10.0, 4.0)]),
        ];
        for log in [Log::Neither, Log::Vertical, Log::Horizontal, Log::Both] {
            let chart = Chart { title: "latency", x_label: "load", y_label: "us", log };
            let svg = svg(chart, &lines, &Extras::default()).expect("drawn");
            for words in ["<svg", "latency", "load", "us", "one", "two", "polyline"] {
                assert!(svg.contains(words), "{log:?}: {words}");
            }
            assert!(super::svg(chart, &[], &Extras::default()).is_err());
        }
    }

    #[test]
    fn a_logarithmic_axis_has_few_labels() {
        for (value, labelled) in
            [(0.1, true), (5e3, true), (0.2, true), (9.0, false), (40.0, false)]
        {
            assert_eq!(one_two_or_five(value), labelled, "{value}");
        }
    }

    #[test]
    fn numbers_read_well() {
        for (value, words) in [(0.0, "0"), (0.125, "0.125"), (50.0, "50"), (1_234.5, "1234")] {
            assert_eq!(number(&value), words);
        }
    }
}
