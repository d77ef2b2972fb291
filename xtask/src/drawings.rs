//! The drawings of docs/drawings: the generator makes `NAME.svg` from the text `NAME.txt`.
//!
//! A text has one statement a line; `#` begins a comment, and texts stand in double quotes. A
//! statement counts in columns and rows of ten pixels, from the top left:
//!
//! ```text
//! title "what a screen reader says first"      desc "the drawing in words"
//! area COL ROW WIDE HIGH ["label"]             a dashed frame; its label stands at the top right
//! box NAME KIND COL ROW WIDE HIGH "line" ...   KIND is plain, small or large
//! arrow FROM TO ["label"]                      straight where it can be, else with one bend
//! text COL ROW "line"                          COL is the left edge, ROW the base line
//! ```
//!
//! Whoever writes the text chooses the places, because they mean something: columns are time, or
//! who does the work. So the generator needs no layout. It counts in whole pixels, so that the same
//! text gives the same bytes on every machine, and `cargo xtask tidy` compares them.

use crate::{Outcome, flags, passed, process};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the texts and the drawings are.
pub const FOLDER: &str = "docs/drawings/";
/// Pixels of a column, and of a row.
const UNIT: i64 = 10;
/// Pixels from one line of a box to the next.
const LINE: i64 = 18;
/// No character of the font is expected to be wider on the average; in pixels.
const CHARACTER: i64 = 8;
/// From the middle of a line to where its letters stand.
const BASE: i64 = 5;
const KINDS: [&str; 3] = ["plain", "small", "large"];

/// The arrow's head, and colours for light and for dark pages.
const STYLE: &str = include_str!("drawings/head.svg");

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    let folder = process::root().join(FOLDER);
    let names = process::named(&folder, ".txt")?;
    for name in &names {
        let text = process::read(folder.join(format!("{name}.txt")))?;
        let made = svg(&text).map_err(|why| format!("{FOLDER}{name}.txt: {why}"))?;
        process::write(folder.join(format!("{name}.svg")), made)?;
    }
    passed(format!("{} drawings are as their texts make them", names.len()))
}

/// A rectangle, in pixels.
#[derive(Clone, Copy)]
struct Frame {
    left: i64,
    top: i64,
    width: i64,
    height: i64,
}

impl Frame {
    fn right(self) -> i64 {
        self.left + self.width
    }

    fn bottom(self) -> i64 {
        self.top + self.height
    }
}

/// What has been drawn so far.
#[derive(Default)]
struct Drawing {
    title: String,
    description: String,
    body: String,
    boxes: BTreeMap<String, Frame>,
    right: i64,
    bottom: i64,
}

/// The SVG that a text makes, or what is wrong in which line.
pub fn svg(text: &str) -> Result<String, String> {
    let mut drawing = Drawing::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            drawing.statement(line).map_err(|why| format!("line {}: {why}", index + 1))?;
        }
    }
    drawing.finished()
}

impl Drawing {
    fn statement(&mut self, line: &str) -> Result<(), String> {
        let mut pieces = line.split('"');
        let words: Vec<&str> = pieces.next().unwrap_or_default().split_whitespace().collect();
        let quoted: Vec<&str> = pieces.step_by(2).collect();
        match (&words[..], &quoted[..]) {
            (["title"], [title]) => self.title = escaped(title),
            (["desc"], [description]) => self.description = escaped(description),
            (["area", place @ ..], [] | [_]) => self.area(frame(place)?, quoted.first().copied()),
            (["box", name, kind, place @ ..], [_, ..]) if KINDS.contains(kind) => {
                self.a_box(name, kind, frame(place)?, &quoted)?;
            }
            (["arrow", from, to], [] | [_]) => {
                let (from, to) = (self.found(from)?, self.found(to)?);
                self.arrow(from, to, quoted.first().copied());
            }
            (["text", column, row], [text]) => {
                let (x, y) = (pixels(column)?, pixels(row)?);
                self.text("", x, y, text);
                self.reach(x + width(text), y);
            }
            _ => return Err(format!("no such statement: {line}")),
        }
        Ok(())
    }

    fn finished(self) -> Result<String, String> {
        if self.title.is_empty() || self.description.is_empty() {
            return Err("a drawing has a title and a desc".into());
        }
        let (width, height) = (self.right + UNIT, self.bottom + UNIT);
        let Drawing { title, description, body, .. } = self;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n{STYLE}\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        ))
    }

    fn found(&self, name: &str) -> Result<Frame, String> {
        self.boxes.get(name).copied().ok_or_else(|| format!("there is no box {name}"))
    }

    fn area(&mut self, frame: Frame, label: Option<&str>) {
        self.rectangle("area", frame);
        if let Some(label) = label {
            self.text("end", frame.right() - 10, frame.top + 22, label);
        }
    }

    fn a_box(
        &mut self,
        name: &str,
        kind: &str,
        frame: Frame,
        lines: &[&str],
    ) -> Result<(), String> {
        self.rectangle(kind, frame);
        let (middle, mut y) = (frame.left + frame.width / 2, frame.top + frame.height / 2 + BASE);
        y -= (lines.len() as i64 - 1) * (LINE / 2);
        for (index, line) in lines.iter().enumerate() {
            if frame.width < width(line) {
                return Err(format!("{line:?} is wider than its box"));
            }
            let is_heading = index == 0 && 1 < lines.len();
            self.text(if is_heading { "middle first" } else { "middle" }, middle, y, line);
            y += LINE;
        }
        match self.boxes.insert(name.into(), frame) {
            Some(_) => Err(format!("there are two boxes {name}")),
            None => Ok(()),
        }
    }

    /// Down or up where the boxes have columns in common, sideways where they have rows, and else
    /// first down or up, then sideways.
    fn arrow(&mut self, from: Frame, to: Frame, label: Option<&str>) {
        let column = common(from.left, from.right(), to.left, to.right());
        let row = common(from.top, from.bottom(), to.top, to.bottom());
        let is_down = from.top < to.top;
        let is_rightward = from.left < to.left;
        let from_y = if is_down { from.bottom() } else { from.top };
        let to_x = if is_rightward { to.left } else { to.right() };
        let (path, class, x, y) = match (column, row) {
            (Some(x), _) => {
                let to_y = if is_down { to.top } else { to.bottom() };
                let path = format!("M{x} {from_y}V{to_y}");
                (path, "label", x + 8, i64::midpoint(from_y, to_y) + 4)
            }
            (None, Some(y)) => {
                let from_x = if is_rightward { from.right() } else { from.left };
                let path = format!("M{from_x} {y}H{to_x}");
                (path, "label middle", i64::midpoint(from_x, to_x), y - 7)
            }
            (None, None) => {
                let (x, y) = (from.left + from.width / 2, to.top + to.height / 2);
                let path = format!("M{x} {from_y}V{y}H{to_x}");
                (path, "label middle", i64::midpoint(x, to_x), y - 7)
            }
        };
        let _ =
            writeln!(self.body, "<path class=\"arrow\" d=\"{path}\" marker-end=\"url(#head)\"/>");
        if let Some(label) = label {
            self.text(class, x, y, label);
        }
    }

    fn rectangle(&mut self, class: &str, frame: Frame) {
        let Frame { left, top, width, height } = frame;
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" \
             height=\"{height}\" rx=\"4\"/>"
        );
        self.reach(frame.right(), frame.bottom());
    }

    fn text(&mut self, class: &str, x: i64, y: i64, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    fn reach(&mut self, right: i64, bottom: i64) {
        self.right = self.right.max(right);
        self.bottom = self.bottom.max(bottom);
    }
}

fn frame(place: &[&str]) -> Result<Frame, String> {
    let [left, top, width, height] = place else {
        return Err("a place is COL ROW WIDE HIGH".into());
    };
    Ok(Frame {
        left: pixels(left)?,
        top: pixels(top)?,
        width: pixels(width)?,
        height: pixels(height)?,
    })
}

/// The pixels of so many columns or rows.
fn pixels(word: &str) -> Result<i64, String> {
    let units: u16 = word.parse().map_err(|_| format!("{word} is no number of columns or rows"))?;
    Ok(i64::from(units) * UNIT)
}

/// The most that a text is expected to take.
fn width(text: &str) -> i64 {
    text.chars().count() as i64 * CHARACTER
}

/// The middle of what two stretches have in common.
fn common(from: i64, to: i64, other_from: i64, other_to: i64) -> Option<i64> {
    let (from, to) = (from.max(other_from), to.min(other_to));
    (from < to).then(|| i64::midpoint(from, to))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::svg;

    const HEAD: &str = "title \"A\"\ndesc \"B\"\n";
    const BOXES: &str = "box a plain 1 1 5 3 \"a\"\nbox b small 1 7 5 3 \"b\"\n";

    fn drawn(statements: &str) -> Result<String, String> {
        svg(&format!("{HEAD}{statements}"))
    }

    #[test]
    fn boxes_texts_and_arrows_have_their_places() {
        let two = "box a large 0 0 9 5 \"one\" \"two\"";
        // Down, up, to either side, and with one bend.
        let beside = |row, arrow| format!("{BOXES}box c plain 9 {row} 5 3 \"c\"\narrow {arrow}");
        let rows: [(String, &str); 10] = [
            (BOXES.into(), "<rect class=\"plain\" x=\"10\" y=\"10\" width=\"50\" height=\"30\""),
            (BOXES.into(), "viewBox=\"0 0 70 110\""),
            (two.into(), "<text class=\"middle first\" x=\"45\" y=\"21\">one<"),
            (two.into(), "<text class=\"middle\" x=\"45\" y=\"39\">two<"),
            ("text 1 2 \"a < b & c\"".into(), "x=\"10\" y=\"20\">a &lt; b &amp; c</text>"),
            (format!("{BOXES}arrow a b \"l\""), "d=\"M35 40V70\""),
            (format!("{BOXES}arrow b a"), "d=\"M35 70V40\""),
            (beside(2, "a c"), "d=\"M60 30H90\""),
            (beside(2, "c a"), "d=\"M90 30H60\""),
            (beside(7, "a c"), "d=\"M35 40V85H90\""),
        ];
        for (statements, piece) in rows {
            let drawing = drawn(&statements).expect("a drawing");
            assert!(drawing.contains(piece), "{drawing}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (statements, why) in [
            ("circle 1 1", "line 3: no such statement: circle 1 1"),
            ("box a green 1 1 5 3 \"a\"", "line 3: no such statement"),
            ("box a plain 1 1 5 \"a\"", "line 3: a place is"),
            ("area 1 1 5 x", "line 3: x is no number"),
            ("\n\narrow a b", "line 5: there is no box a"),
            ("box a plain 1 1 5 3 \"too wide\"", "is wider than its box"),
            (
                "box a plain 1 1 5 3 \"a\"\nbox a plain 1 1 5 3 \"a\"",
                "line 4: there are two boxes a",
            ),
        ] {
            let told = drawn(statements).expect_err(statements);
            assert!(told.contains(why), "{told}");
        }
        assert!(svg("title \"A\"\n").is_err_and(|why| why.contains("a title and a desc")));
    }
}
