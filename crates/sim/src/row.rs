//! A figure's numbers: rows that name their axes, as JSON lines, CSV or a table.

use crate::stats::Estimate;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// Any number; what is not finite has no value.
    Number(f64),
    /// A number that was asked for, or read: all of its digits.
    Exact(f64),
    /// Yes or no.
    Truth(bool),
}

macro_rules! cells {
    ($($from:ty, $value:ident => $cell:expr;)*) => {
        $(impl From<$from> for Cell {
            fn from($value: $from) -> Cell {
                $cell
            }
        })*
    };
}

cells! {
    &str, text => Cell::Text(text.to_owned());
    String, text => Cell::Text(text);
    u64, number => Cell::Whole(number);
    u16, number => Cell::Whole(u64::from(number));
    f64, number => Cell::Number(number);
    bool, truth => Cell::Truth(truth);
}

impl Cell {
    /// What was asked for, as the text says it.
    pub fn asked(text: &str) -> Cell {
        if let Ok(truth) = text.parse() {
            return Cell::Truth(truth);
        }
        if let Ok(number) = text.parse() {
            return Cell::Whole(number);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Cell::Exact(number),
            _ => Cell::Text(text.to_owned()),
        }
    }

    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Whole(number) => Some(*number as f64),
            Cell::Number(number) | Cell::Exact(number) if number.is_finite() => Some(*number),
            Cell::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// For people: no quotes.
    pub fn plain(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Whole(number) => number.to_string(),
            Cell::Truth(truth) => truth.to_string(),
            Cell::Exact(number) => number.to_string(),
            Cell::Number(number) if !number.is_finite() => "-".to_owned(),
            Cell::Number(number) => shortest(*number),
        }
    }

    fn json(&self) -> String {
        match self {
            Cell::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
            Cell::Number(number) if !number.is_finite() => "null".to_owned(),
            _ => self.plain(),
        }
    }
}

/// Five significant digits; more would claim what no seed supports.
fn shortest(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let magnitude = number.abs().log10().floor() as i32;
    let decimals = (4 - magnitude).clamp(0, 9) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// One row: names and values, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    cells: Vec<(Cow<'static, str>, Cell)>,
}

impl Row {
    /// A row of this figure.
    pub fn of(figure: &str) -> Row {
        Row::default().with("figure", figure)
    }

    /// The same with one more value.
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cell>) -> Row {
        self.cells.push((name.into(), value.into()));
        self
    }

    /// With a mean, and behind it how far that is sure.
    pub fn sure(self, name: &'static str, estimate: Estimate) -> Row {
        self.with(name, estimate.mean).with(format!("{name}_ci"), estimate.half_width)
    }

    /// The same with another's values after its own.
    pub fn and(mut self, other: Row) -> Row {
        self.cells.extend(other.cells);
        self
    }

    /// The names of its values, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|(name, _)| &**name)
    }

    /// Of its values, those of these names, in their order.
    pub fn only(&self, names: &[&str]) -> Row {
        let cells = names.iter().filter_map(|name| self.cells.iter().find(|(own, _)| own == name));
        Row { cells: cells.cloned().collect() }
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|(own, _)| own == name).map(|(_, cell)| cell)
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.number()
    }

    /// The text of that name, or what stands for it.
    pub fn text(&self, name: &str) -> String {
        self.get(name).map(Cell::plain).unwrap_or_default()
    }

    /// As one line of JSON.
    pub fn json(&self) -> String {
        let mut line = String::from("{");
        for (index, (name, cell)) in self.cells.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(line, "{comma}\"{name}\":{}", cell.json());
        }
        line.push('}');
        line
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Row, D::Error> {
        from.deserialize_map(InOrder)
    }
}

/// Reads an object with its fields in their order.
struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Row;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a row: an object of numbers and words")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
        let mut row = Row::default();
        while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
            let cell = match value {
                serde_json::Value::String(text) => Cell::Text(text),
                serde_json::Value::Bool(truth) => Cell::Truth(truth),
                serde_json::Value::Number(number) => number
                    .as_u64()
                    .map_or_else(|| Cell::Exact(number.as_f64().unwrap_or(f64::NAN)), Cell::Whole),
                _ => Cell::Number(f64::NAN),
            };
            row = row.with(name, cell);
        }
        Ok(row)
    }
}

/// Names of all columns, in the order they first appear.
fn columns(rows: &[Row]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.cells) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    names
}

/// All rows as CSV, with a line of names. No value holds a comma.
pub fn csv(rows: &[Row]) -> String {
    let names = columns(rows);
    let mut text = names.join(",");
    text.push('\n');
    for row in rows {
        let line: Vec<String> = names.iter().map(|name| row.text(name)).collect();
        text.push_str(&line.join(","));
        text.push('\n');
    }
    text
}

/// Units, and the columns that have them.
const UNITS: [(&str, &str); 20] = [
    ("us", "p50 p90 p99 p999 small_p99 large_p99 tx_backlog_p90 us_per_request"),
    ("share", "load cpu_busy wire_busy small_growth large_growth headroom lost numa_strays"),
    ("%", "p_l s large_percent percentile requests_percent packets_percent"),
    ("M/s", "mops"),
    ("1/s", "answered_per_s requests_per_s rate rate_max"),
    ("times", "small_drift large_drift burst_factor"),
    ("s", "time_s"),
    ("kB", "s_l_kb"),
    ("Gb/s", "gigabits_per_s nic_gbit"),
    ("B", "threshold large_bytes_max slice_bytes"),
    ("G/day", "billions_per_day"),
    ("h/G", "core_hours_per_billion"),
    ("cores", "workers workers_large workers_large_fixed cores cores_granted handoff_workers"),
    ("frames", "k nic_burst"),
    ("slices", "small_slices small_bound large_slices large_bound slices_unsent_max"),
    (
        "requests",
        "requests small_unfinished large_unfinished large_backlog rx_queue depth batch \
         epoch_requests requests_per_seed steal_queue_min steal_requests_max",
    ),
    ("conns", "connections"),
    ("runs", "seeds seeds_asked"),
    ("lines", "shared_lines line_spread"),
    ("domains", "numa"),
];

/// The unit of a column; empty for a name or a number of things.
pub fn unit(column: &str) -> &'static str {
    let name = column.strip_suffix("_ci").unwrap_or(column);
    let has = |(_, names): &&(&str, &str)| names.split(' ').any(|own| own == name);
    match UNITS.iter().find(has) {
        Some(&(unit, _)) => unit,
        None if name == "keys" => "keys",
        None if name.ends_with("_us") => "us",
        None if name.ends_with("_ns") => "ns",
        None if name.ends_with("_share") => "share",
        None if name.contains("_over_") || name.starts_with("max_") => "times",
        None => "",
    }
}

/// What says of a row whose it is; no table needs it.
const OF_ROWS: [&str; 4] = ["figure", "schema", "sweep", "point"];

/// Columns of a table: what does not fit is in the JSON and in the CSV.
const TABLE_WIDTH: usize = 100;

/// A longer word in a table ends so much before its beginning: of a file's name the end says most.
const WORD_WIDTH: usize = 32;

/// A value as a table has it.
fn shown(text: String) -> String {
    match text.chars().count().saturating_sub(WORD_WIDTH) {
        0 => text,
        more => "..".chars().chain(text.chars().skip(more + 2)).collect(),
    }
}

/// Left out first, the last of them first: what is known of a point beside its answer.
const LEFT_OUT: &str = "\
    network_us large_backlog cpu_busy workers_large wire_busy p50 p999 small_p99_ci large_p99_ci \
    p99_ci large_unfinished small_unfinished answered_per_s p90 tx_backlog_p90 large_growth \
    small_growth large_drift small_drift small_over_minos_ci large_over_minos_ci requests seeds \
    seed requests_per_seed seeds_asked figure";

/// All rows as a table for a terminal: names, units, values; as many columns as fit.
pub fn table(rows: &[Row]) -> String {
    let mut names: Vec<&str> =
        columns(rows).into_iter().filter(|name| !OF_ROWS.contains(name)).collect();
    let width = |name: &&str| {
        let cells = rows.iter().map(|row| shown(row.text(name)).chars().count());
        cells.chain([name.len(), unit(name).len()]).max().unwrap_or(0)
    };
    let fits =
        |names: &[&str]| names.iter().map(|name| width(name) + 2).sum::<usize>() <= TABLE_WIDTH + 2;
    let mut left_out = Vec::new();
    for candidate in LEFT_OUT.split(' ').rev() {
        if !fits(&names) && names.contains(&candidate) {
            names.retain(|name| *name != candidate);
            left_out.push(candidate);
        }
    }
    while !fits(&names) && names.len() > 1 {
        left_out.extend(names.pop());
    }
    let widths: Vec<usize> = names.iter().map(width).collect();
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "{cell:>width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(names.iter().map(|name| (*name).to_owned()).collect());
    line(names.iter().map(|name| unit(name).to_owned()).collect());
    for row in rows {
        line(names.iter().map(|name| shown(row.text(name))).collect());
    }
    if !left_out.is_empty() {
        let _ = writeln!(text, "({} columns more with --json or --out)", left_out.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_of_json_in_its_own_order() {
        let row = Row::of("minos-fig2").with("design", "early").with("k", 100_u64);
        let row = row.with("p99", 22.941_27).with("ci", f64::INFINITY).with("overloaded", false);
        let expected = "{\"figure\":\"minos-fig2\",\"design\":\"early\",\"k\":100,\
                        \"p99\":22.941,\"ci\":null,\"overloaded\":false}";
        assert_eq!(row.json(), expected);
    }

    #[test]
    fn a_table_fits_a_terminal_and_says_its_units() {
        let row = LEFT_OUT
            .split(' ')
            .fold(Row::of("a").with("load", 0.9), |row, name| row.with(name, 123_456.0));
        let text = table(&[row.with("p99", 12.5).with("state", "steady")]);
        assert!(text.lines().all(|line| line.len() <= TABLE_WIDTH), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains("load") && lines[0].contains("p99") && lines[0].contains("state")
        );
        assert!(lines[1].trim_start().starts_with("share") && lines[1].contains("us"), "{text}");
        assert!(lines[2].contains("0.9") && lines[3].contains("columns more with --json"));
    }

    #[test]
    fn a_long_name_of_a_file_does_not_drive_the_answer_out_of_a_table() {
        let path = format!("/{}/requests.csv", "folder/".repeat(20));
        let text = table(&[Row::of("a").with("trace", path).with("p99", 12.5)]);
        let row = text.lines().nth(2).expect("a row");
        assert!(
            row.contains("..") && row.contains("/requests.csv") && row.contains("12.5"),
            "{text}"
        );
    }

    #[test]
    fn numbers_keep_five_digits() {
        for (number, text) in
            [(0.0, "0"), (1.0, "1"), (123_456.7, "123457"), (0.000_123_456, "0.00012346")]
        {
            assert_eq!(Cell::from(number).plain(), text);
        }
    }

    #[test]
    fn rows_with_different_columns_share_a_csv() {
        let rows = [Row::of("a").with("x", 1_u64), Row::of("a").with("y", 2_u64)];
        assert_eq!(csv(&rows), "figure,x,y\na,1,\na,,2\n");
        assert_eq!(table(&rows), "x  y\n1\n   2\n");
    }
}
