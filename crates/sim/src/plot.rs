//! Pictures of a figure: SVG, drawn by plotters' SVG backend alone, which needs no font of the
//! system; the viewer's sans-serif is used.

use crate::row::Row;
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
    /// Only rows whose columns have these values.
    pub only: Vec<(&'static str, String)>,
    /// A horizontal line.
    pub limit: Option<f64>,
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
            only: Vec::new(),
            limit: None,
        }
    }

    /// Only rows with this value.
    pub fn only(mut self, column: &'static str, value: impl ToString) -> Chart {
        self.only.push((column, value.to_string()));
        self
    }

    fn lines(&self, rows: &[Row]) -> Vec<(String, Vec<(f64, f64)>)> {
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for row in rows {
            let fits = self.only.iter().all(|(column, value)| row.text(column) == *value);
            let (Some(x), Some(y)) = (row.number(self.x), row.number(self.y)) else { continue };
            if !fits || (self.log && y <= 0.0) {
                continue;
            }
            let series = row.text(self.series);
            match lines.iter_mut().find(|(name, _)| *name == series) {
                Some((_, points)) => points.push((x, y)),
                None => lines.push((series, vec![(x, y)])),
            }
        }
        lines
    }

    /// The picture; `None` if no row fits.
    pub fn svg(&self, rows: &[Row]) -> Result<Option<String>, String> {
        let lines = self.lines(rows);
        let points = || lines.iter().flat_map(|(_, points)| points);
        if points().next().is_none() {
            return Ok(None);
        }
        let bounds = |of: fn(&(f64, f64)) -> f64| {
            let values = points().map(of);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (x_low, x_high) = bounds(|point| point.0);
        let (y_low, y_high) = bounds(|point| point.1);
        let x_pad = ((x_high - x_low) * 0.03).max(1e-9);
        let x = (x_low - x_pad)..(x_high + x_pad);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(text)?;
            let mut builder = ChartBuilder::on(&root);
            builder.margin(12).x_label_area_size(44).y_label_area_size(66);
            builder.caption(&self.title, ("sans-serif", 17));
            if self.log {
                let y = (y_low / 1.3..y_high * 1.3).log_scale();
                let mut chart = builder.build_cartesian_2d(x, y).map_err(text)?;
                self.draw(&mut chart, &lines)?;
            } else {
                let y = 0.0..(y_high * 1.06).max(1e-9);
                let mut chart = builder.build_cartesian_2d(x, y).map_err(text)?;
                self.draw(&mut chart, &lines)?;
            }
            root.present().map_err(text)?;
        }
        Ok(Some(svg))
    }

    fn draw<'a, Y>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedF64, Y>>,
        lines: &[(String, Vec<(f64, f64)>)],
    ) -> Result<(), String>
    where
        Y: plotters::coord::ranged1d::Ranged<ValueType = f64>
            + plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x_label).y_desc(self.y_label).light_line_style(WHITE);
        mesh.x_label_formatter(&number).y_label_formatter(&number);
        mesh.label_style(("sans-serif", 13)).draw().map_err(text)?;
        for (index, (name, points)) in lines.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))
                .map_err(text)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        if let Some(limit) = self.limit {
            let ends = lines.iter().flat_map(|(_, points)| points).map(|point| point.0);
            let (low, high) =
                ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(x), h.max(x)));
            chart
                .draw_series(LineSeries::new([(low, limit), (high, limit)], BLACK.mix(0.4)))
                .map_err(text)?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .position(if falls(lines) {
                SeriesLabelPosition::UpperRight
            } else {
                SeriesLabelPosition::UpperLeft
            })
            .label_font(("sans-serif", 13))
            .draw()
            .map_err(text)
    }
}

type RangedF64 = plotters::coord::types::RangedCoordf64;

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

/// Whether most lines end below where they begin: then the legend has room on the right.
fn falls(lines: &[(String, Vec<(f64, f64)>)]) -> bool {
    let falling = |points: &[(f64, f64)]| match (points.first(), points.last()) {
        (Some(first), Some(last)) => last.1 < first.1,
        _ => false,
    };
    2 * lines.iter().filter(|(_, points)| falling(points)).count() > lines.len()
}

fn number(value: &f64) -> String {
    crate::row::Cell::Number((value * 1e6).round() / 1e6).plain()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
