//! Pictures of what was measured or simulated, lines and bars: SVG by plotters' SVG backend alone,
//! which needs no font of the system; the viewer's sans-serif is used. Each line has a marker of
//! its own, and earlier lines are wider, so that equal ones do not hide each other. It knows no
//! report.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting};
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
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
    /// The horizontal one, too; the vertical one has shares, of which each step up leaves a tenth
    /// of the step before: 90 %, 99 %, 99.9 %.
    Nines,
}

/// A line: its name and its points, in order.
pub type Line = (String, Vec<(f64, f64)>);

/// Of a picture, in points.
const SIZE: (u32, u32) = (680, 420);
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
pub fn svg(chart: Chart<'_>, lines: &[Line]) -> Result<String, String> {
    svg_with(chart, lines, &Extras::default())
}

/// The same, with more in it.
pub fn svg_with(chart: Chart<'_>, lines: &[Line], extras: &Extras) -> Result<String, String> {
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
        let (low, high) = (y_low.max(1e-3) / 1.1, y_high.max(1e-3) * 1.1);
        let x = match chart.log.axes().0 {
            true => Axis::log(x_low.max(1e-3) / 1.2..x_high.max(1e-3) * 1.2),
            false => Axis::linear(x_linear),
        };
        let y = match chart.log {
            Log::Neither | Log::Horizontal => Axis::linear(0.0..(y_high * 1.08).max(1e-9)),
            Log::Vertical | Log::Both => {
                Axis::log(decade(low, f64::floor)..decade(high, f64::ceil))
            }
            Log::Nines => Axis::Nines(Nines(y_high)),
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
    let share = |value: &f64| format!("{} %", number(&(100.0 * value)));
    let (log_x, log_y) = chart.log.axes();
    let label = |log: bool, value: &f64| match log && !one_two_or_five(*value) {
        true => String::new(), // between labels, where they would overlap
        false => number(value),
    };
    let (x_label, y_label) = (|x: &f64| label(log_x, x), |y: &f64| label(log_y, y));
    mesh.x_label_formatter(&x_label);
    match chart.log {
        Log::Nines => mesh.x_labels(6).y_label_formatter(&share),
        _ => mesh.y_label_formatter(&y_label),
    };
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
            Log::Horizontal | Log::Nines => (true, false),
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
        let of = |value: f64| if log { value.max(1e-3).ln() } else { value };
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
    Nines(Nines),
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
            Axis::Nines(axis) => axis.map(value, limit),
        }
    }
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Axis::Linear(axis) => axis.key_points(hint),
            Axis::Log(axis) => axis.key_points(hint),
            Axis::Nines(axis) => axis.key_points(),
        }
    }
    fn range(&self) -> Range<f64> {
        match self {
            Axis::Linear(axis) => axis.range(),
            Axis::Log(axis) => axis.range(),
            Axis::Nines(axis) => 0.0..axis.0,
        }
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        RangedCoordf64::format(value)
    }
}

/// Shares from 0 up to the one held, on a scale of what they leave.
struct Nines(f64);

impl Nines {
    /// Decades below 1 of what a share leaves.
    fn height(share: f64) -> f64 {
        -(1.0 - share.min(1.0 - 1e-9)).log10()
    }

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = Self::height(*value) / Self::height(self.0).max(1e-9);
        limit.0 + (f64::from(limit.1 - limit.0) * share) as i32
    }

    fn key_points(&self) -> Vec<f64> {
        let all = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
        all.into_iter().filter(|&share| share <= self.0).collect()
    }
}

/// Bars in groups: one group for each of `groups`, in it one bar for each line that has a value
/// there. An error where there is none.
pub fn bars(
    title: &str,
    unit: &str,
    groups: &[String],
    lines: &[(String, Vec<Option<f64>>)],
) -> Result<String, String> {
    let values = lines.iter().flat_map(|(_, values)| values.iter().flatten().copied());
    let (_, high) = bounds(values);
    if !high.is_finite() {
        return Err(format!("{title}: nothing to draw"));
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(text)?;
        let mut builder = ChartBuilder::on(&root);
        builder.margin(12).x_label_area_size(34).y_label_area_size(72);
        builder.caption(title, ("sans-serif", 16));
        let x = Axis::linear(0.0..groups.len() as f64);
        // The legend stands above the highest bar: a line of it takes a tenth of that.
        let y = -0.1 * high..high.max(1e-9) * (1.1 + 0.1 * lines.len() as f64);
        let y = Axis::linear(y);
        let mut context = builder.build_cartesian_2d(x, y).map_err(text)?;
        let mut mesh = context.configure_mesh();
        mesh.disable_x_mesh().disable_x_axis().y_desc(unit).light_line_style(WHITE);
        // Below the bars stand the groups' names.
        let above = |value: &f64| if *value < 0.0 { String::new() } else { number(value) };
        mesh.y_label_formatter(&above).label_style(("sans-serif", 13)).draw().map_err(text)?;
        let width = 0.8 / lines.len() as f64;
        for (index, (name, values)) in lines.iter().enumerate() {
            if values.iter().all(Option::is_none) {
                continue;
            }
            let color = COLORS[index % COLORS.len()];
            let left = |group: usize| group as f64 + 0.1 + width * index as f64;
            let there = || values.iter().enumerate().filter_map(|(at, v)| Some((at, (*v)?)));
            let bar = |(group, value): (usize, f64)| {
                let corners = [(left(group), 0.0), (left(group) + 0.92 * width, value)];
                Rectangle::new(corners, color.filled())
            };
            let series = context.draw_series(there().map(bar)).map_err(text)?;
            series.label(name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled())
            });
            let style = ("sans-serif", 12).into_font().color(&BLACK);
            let words = |(group, value): (usize, f64)| {
                let place = (left(group), value + high * 0.05);
                let digits = if value < 10.0 { 2 } else { 1 };
                Text::new(format!("{value:.digits$}"), place, style.clone())
            };
            context.draw_series(there().map(words)).map_err(text)?;
        }
        let style = ("sans-serif", 14).into_font().color(&BLACK);
        let names = groups.iter().enumerate().map(|(group, name)| {
            Text::new(name.clone(), (group as f64 + 0.1, -high * 0.02), style.clone())
        });
        context.draw_series(names).map_err(text)?;
        let mut labels = context.configure_series_labels();
        labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3));
        labels.position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 13));
        labels.draw().map_err(text)?;
        root.present().map_err(text)?;
    }
    Ok(svg)
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
        for log in [Log::Neither, Log::Vertical, Log::Horizontal, Log::Both, Log::Nines] {
            let chart = Chart { title: "latency", x_label: "load", y_label: "us", log };
            let svg = svg(chart, &lines).expect("drawn");
            for words in ["<svg", "latency", "load", "us", "one", "two", "polyline"] {
                assert!(svg.contains(words), "{log:?}: {words}");
            }
        }
    }

    #[test]
    fn every_bar_has_its_number_and_missing_ones_have_none() {
        let groups = ["alone".to_owned(), "together".to_owned()];
        let lines = vec![
            ("one".to_owned(), vec![Some(7.25), Some(3.0)]),
            ("two".to_owned(), vec![None, Some(41.5)]),
        ];
        let svg = bars("cost", "us", &groups, &lines).expect("drawn");
        for words in ["cost", "us", "alone", "together", "one", "two", "7.25", "41.5"] {
            assert!(svg.contains(words), "{words}");
        }
        assert!(bars("cost", "us", &groups, &[("one".into(), vec![None, None])]).is_err());
    }

    #[test]
    fn each_nine_is_a_step() {
        let heights = [0.0, 0.9, 0.99, 0.999].map(Nines::height);
        for (height, wanted) in heights.into_iter().zip([0.0, 1.0, 2.0, 3.0]) {
            assert!((height - wanted).abs() < 1e-9, "{heights:?}");
        }
        assert!(Nines::height(1.0).is_finite());
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

    #[test]
    fn nothing_makes_no_picture() {
        let chart = Chart { title: "empty", x_label: "", y_label: "", log: Log::Neither };
        assert!(svg(chart, &[("one".into(), vec![])]).is_err());
    }

    #[test]
    fn numbers_read_well() {
        for (value, words) in [(0.0, "0"), (0.125, "0.125"), (50.0, "50"), (1_234.5, "1234")] {
            assert_eq!(number(&value), words);
        }
    }
}
