//! Draws a view as a picture in a terminal.

use super::view::{Lane, View};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Sparkline, Table};

const SMALL: Color = Color::Cyan;
const LARGE: Color = Color::Yellow;
/// Rows of the workers' table at most; there may be hundreds.
const WORKERS_SHOWN: u16 = 8;
const KEYS_SHOWN: u16 = 8;
const NO_TIME: &str = "-";

/// What is drawn.
pub struct Picture<'a> {
    pub place: &'a str,
    pub view: &'a View,
    /// p99 of both lanes in nanoseconds, of the last samples, the oldest first.
    pub small_p99: &'a [u64],
    pub large_p99: &'a [u64],
    /// What stands in the last line.
    pub said: &'a str,
}

/// Draw it.
pub fn draw(frame: &mut Frame<'_>, picture: &Picture<'_>) {
    let view = picture.view;
    let workers = (view.workers.len() as u16).min(WORKERS_SHOWN);
    let keys = (view.keys.len() as u16).min(KEYS_SHOWN);
    let heights = [3, 4, 4, 3, workers + 2, keys + 2].map(Constraint::Length);
    let rest = [Constraint::Min(3), Constraint::Length(1)];
    let areas: [Rect; 8] = Layout::vertical(heights.into_iter().chain(rest)).areas(frame.area());
    let [head, lanes, history, store, of_workers, of_keys, of_clients, said] = areas;
    frame.render_widget(Paragraph::new(heading(picture)), head);
    frame.render_widget(of_lanes(view), lanes);
    draw_history(frame, picture, history);
    frame.render_widget(Paragraph::new(of_store(view)), store);
    frame.render_widget(worker_table(view), of_workers);
    frame.render_widget(key_table(view), of_keys);
    frame.render_widget(client_table(view), of_clients);
    frame.render_widget(Paragraph::new(picture.said).dim(), said);
}

fn heading(picture: &Picture<'_>) -> Vec<Line<'static>> {
    let view = picture.view;
    let uptime = view.uptime_seconds as u64;
    let server = format!("laneway at {} (it calls itself {})", picture.place, view.version);
    vec![
        Line::from(server).bold(),
        Line::from(format!(
            "design {} ({})   large from {} on   up {}:{:02}:{:02}",
            view.design,
            view.form,
            bytes(view.threshold_bytes),
            uptime / 3600,
            uptime / 60 % 60,
            uptime % 60
        )),
    ]
}

fn head_row(words: impl IntoIterator<Item = &'static str>) -> Row<'static> {
    Row::new(words).style(Style::new().bold().underlined())
}

fn of_lanes(view: &View) -> Table<'static> {
    let row = |name: &'static str, lane: &Lane, color| {
        let [wait, service, drain] = lane.parts.map(time);
        let (p50, p99, p99_9) = (time(lane.p50), time(lane.p99), time(lane.p99_9));
        let rate = count(lane.per_second);
        Row::new([name.into(), rate, p50, p99, p99_9, wait, service, drain]).fg(color)
    };
    let rows = [row("small", &view.small, SMALL), row("large", &view.large, LARGE)];
    let widths = [8, 12, 10, 10, 10, 10, 12, 10].map(Constraint::Length);
    let head =
        ["lane", "requests/s", "p50", "p99", "p99.9", "wait p99", "service p99", "drain p99"];
    Table::new(rows, widths).header(head_row(head))
}

/// Both lanes' p99 over time. Heights are logarithms, so that both lanes can be read.
fn draw_history(frame: &mut Frame<'_>, picture: &Picture<'_>, area: Rect) {
    let rows: [Rect; 2] = Layout::vertical([Constraint::Length(2); 2]).areas(area);
    let lanes = [("small p99", picture.small_p99, SMALL), ("large p99", picture.large_p99, LARGE)];
    for ((name, times, color), row) in lanes.into_iter().zip(rows) {
        let [label, chart] =
            Layout::horizontal([Constraint::Length(11), Constraint::Min(1)]).areas(row);
        frame.render_widget(Paragraph::new(format!("\n{name}")).fg(color), label);
        let shown = &times[times.len().saturating_sub(chart.width.into())..];
        // From half a microsecond to half a second: 20 powers of two.
        let height = |nanos: &u64| u64::from(nanos.max(&1).ilog2()).saturating_sub(9).min(20);
        let heights: Vec<u64> = shown.iter().map(height).collect();
        frame.render_widget(Sparkline::default().data(&heights).max(20).fg(color), chart);
    }
}

fn of_store(view: &View) -> Vec<Line<'static>> {
    let full = if view.bytes_max > 0.0 { 100.0 * view.bytes / view.bytes_max } else { 0.0 };
    let hits = view.hit_share.map_or(NO_TIME.into(), |share| format!("{:.1} %", 100.0 * share));
    vec![
        Line::from(format!(
            "memory {} of {} ({full:.0} %)   items {}   hits {hits}   evictions/s {}",
            bytes(view.bytes),
            bytes(view.bytes_max),
            count(view.items),
            count(view.evictions_per_second)
        )),
        Line::from(format!(
            "connections {}   in {}/s   out {}/s",
            count(view.connections),
            bytes(view.in_per_second),
            bytes(view.out_per_second)
        )),
    ]
}

fn worker_table(view: &View) -> Table<'static> {
    let row = |worker: &super::view::Worker| {
        Row::new([
            worker.number.to_string(),
            worker.role.clone(),
            count(worker.small_per_second),
            count(worker.large_per_second),
            count(worker.queue_small),
            count(worker.queue_large),
            count(worker.connections),
        ])
    };
    let rows = view.workers.iter().take(WORKERS_SHOWN.into()).map(row);
    let widths = [8, 10, 12, 12, 13, 13, 12].map(Constraint::Length);
    let head =
        ["worker", "role", "small/s", "large/s", "queued small", "queued large", "connections"];
    Table::new(rows, widths).header(head_row(head))
}

fn key_table(view: &View) -> Table<'static> {
    let row = |key: &super::view::Key| {
        let color = if key.is_large { LARGE } else { SMALL };
        Row::new([
            format!("{:.1} %", 100.0 * key.share),
            format!("{:.0} %", 100.0 * key.reads),
            bytes(key.bytes),
            key.key.clone(),
        ])
        .fg(color)
    };
    let rows = view.keys.iter().take(KEYS_SHOWN.into()).map(row);
    let widths = [Constraint::Length(10), Constraint::Length(8), Constraint::Length(10)];
    let widths = widths.into_iter().chain([Constraint::Min(10)]);
    Table::new(rows, widths).header(head_row(["requests", "reads", "bytes", "key"]))
}

fn client_table(view: &View) -> Table<'static> {
    // Where nobody is, there is no room for it.
    let is_limited = view.clients.iter().any(|client| client.waits > 0.0);
    let row = |client: &super::view::Client| {
        let mut cells = vec![
            count(client.connections),
            count(client.requests),
            count(client.large),
            bytes(client.bytes_in) + "/s",
            bytes(client.bytes_out) + "/s",
        ];
        cells.extend(is_limited.then(|| count(client.waits)));
        cells.push(client.address.clone());
        Row::new(cells)
    };
    let columns = [("connections", 12), ("requests/s", 12), ("large/s", 10), ("in", 12)];
    let columns = columns.into_iter().chain([("out", 12)]);
    let columns = columns.chain(is_limited.then_some(("throttled/s", 12)));
    let (mut head, widths): (Vec<&str>, Vec<u16>) = columns.unzip();
    head.push("client");
    let widths = widths.into_iter().map(Constraint::Length).chain([Constraint::Min(10)]);
    Table::new(view.clients.iter().map(row), widths).header(head_row(head))
}

/// A number with at most four digits before its letter.
fn count(number: f64) -> String {
    scaled(number, 1_000.0, ["", " k", " M", " G", " T"])
}

/// In powers of 1024, as `-m` reads them.
fn bytes(number: f64) -> String {
    scaled(number, 1_024.0, [" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(number: f64, step: f64, units: [&str; 5]) -> String {
    let (mut number, mut at) = (number, 0);
    while number >= 10.0 * step && at + 1 < units.len() {
        number /= step;
        at += 1;
    }
    let digits = if number.fract() > 0.0 && number < 100.0 { 1 } else { 0 };
    format!("{number:.digits$}{}", units[at])
}

/// Nanoseconds, in the unit that is read most easily.
fn time(nanos: Option<u64>) -> String {
    match nanos {
        None => NO_TIME.into(),
        Some(u64::MAX) => "over 17 s".into(),
        Some(nanos) => {
            let micros = nanos as f64 / 1e3;
            match micros {
                ..100.0 => format!("{micros:.1} us"),
                ..10_000.0 => format!("{micros:.0} us"),
                ..10_000_000.0 => format!("{:.0} ms", micros / 1e3),
                _ => format!("{:.1} s", micros / 1e6),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([count(0.0), count(9_999.0), count(12_345.0)], ["0", "9999", "12.3 k"]);
        assert_eq!([bytes(100.0), bytes(1e6), bytes(1.5e9)], ["100 B", "977 KiB", "1431 MiB"]);
        let times = [None, Some(1_024), Some(1_310_720), Some(30_000_000), Some(u64::MAX)];
        assert_eq!(times.map(time), ["-", "1.0 us", "1311 us", "30 ms", "over 17 s"]);
    }
}
