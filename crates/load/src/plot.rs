//! Line pictures of what was measured: SVG without a font of the system, by the plotting crate that
//! the simulator uses too. Knows no report.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

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
    /// Both.
    Both,
}

/// A line: its name and its points, in order.
pub type Line = (String, Vec<(f64, f64)>);

/// Of a picture, in points.
const SIZE: (u32, u32) = (680, 420);
/// Seven that people with any colour vision can tell apart (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// The picture; an error where there is no point to draw.
pub fn svg(chart: Chart<'_>, lines: &[Line]) -> Result<String, String> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    if points().next().is_none() {
        return Err(format!("{}: nothing to draw", chart.title));
    }
    let (x_low, x_high) = bounds(points().map(|point| point.0));
    let (y_low, y_high) = bounds(points().map(|point| point.1));
    let x_pad = ((x_high - x_low) * 0.03).max(1e-9);
    let x_linear = (x_low - x_pad)..(x_high + x_pad);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(text)?;
        let mut builder = ChartBuilder::on(&root);
        builder.margin(12).x_label_area_size(44).y_label_area_size(72);
        builder.caption(chart.title, ("sans-serif", 16));
        let y_linear = 0.0..(y_high * 1.08).max(1e-9);
        let y_log = (y_low.max(1e-3) / 1.3..y_high.max(1e-3) * 1.3).log_scale();
        match chart.log {
            Log::Neither => {
                draw(chart, builder.build_cartesian_2d(x_linear, y_linear).map_err(text)?, lines)?;
            }
            Log::Vertical => {
                draw(chart, builder.build_cartesian_2d(x_linear, y_log).map_err(text)?, lines)?;
            }
            Log::Both => {
                let x_log = (x_low.max(1e-3) / 1.2..x_high.max(1e-3) * 1.2).log_scale();
                draw(chart, builder.build_cartesian_2d(x_log, y_log).map_err(text)?, lines)?;
            }
        }
        root.present().map_err(text)?;
    }
    Ok(svg)
}

fn draw<'a, X, Y>(
    chart: Chart<'_>,
    mut context: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    lines: &[Line],
) -> Result<(), String>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = context.configure_mesh();
    mesh.x_desc(chart.x_label).y_desc(chart.y_label).light_line_style(WHITE);
    mesh.x_label_formatter(&number).y_label_formatter(&number);
    mesh.label_style(("sans-serif", 13)).draw().map_err(text)?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let style = COLORS[index % COLORS.len()].stroke_width(2);
        // A line of hundreds of points needs no mark at each.
        let mark = if points.len() > 60 { 0 } else { 3 };
        context
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(mark))
            .map_err(text)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let mut labels = context.configure_series_labels();
    labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3));
    labels.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 13));
    labels.draw().map_err(text)
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
        for log in [Log::Neither, Log::Vertical, Log::Both] {
            let chart = Chart { title: "latency", x_label: "load", y_label: "us", log };
            let svg = svg(chart, &lines).expect("drawn");
            for words in ["<svg", "latency", "load", "us", "one", "two", "polyline"] {
                assert!(svg.contains(words), "{log:?}: {words}");
            }
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
