//! Figures as files: `NAME.json` (a row a line), `NAME.csv`, `NAME-CHART.svg`, what a figure has
//! for the documents, and one page that shows all pictures and tables.

use crate::row::{self, Row};
use crate::scenarios::Figure;
use crate::study::Effort;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Rows as JSON, one a line.
pub fn json_lines(rows: &[Row]) -> String {
    rows.iter().map(|row| row.json() + "\n").collect()
}

/// One figure, written.
#[derive(Debug, Clone)]
pub struct Written {
    name: String,
    about: String,
    svgs: Vec<String>,
    table: String,
}

/// Write rows as JSON and as CSV into a folder, which is there.
pub fn write_rows(folder: &Path, name: &str, rows: &[Row]) -> Result<(), String> {
    put(folder, format!("{name}.json"), &json_lines(rows))?;
    put(folder, format!("{name}.csv"), &row::csv(rows))
}

/// The whole file or the one before it.
fn put(folder: &Path, file: String, text: &str) -> Result<(), String> {
    let (path, new) = (folder.join(&file), folder.join(format!("{file}.new")));
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Write a figure into a folder, which is there.
pub fn write(
    folder: &Path,
    name: &str,
    about: &str,
    figure: &Figure,
    effort: Effort,
) -> Result<Written, String> {
    write_rows(folder, name, &figure.rows)?;
    let mut svgs = Vec::new();
    for chart in &figure.charts {
        if let Some(svg) = chart.svg(&figure.rows, effort)? {
            put(folder, format!("{name}-{}.svg", chart.name), &svg)?;
            svgs.push(svg);
        }
    }
    if let Some((file, text)) = &figure.page {
        put(folder, (*file).to_owned(), text)?;
    }
    let table = row::table(&figure.rows);
    Ok(Written { name: name.to_owned(), about: about.to_owned(), svgs, table })
}

/// The page: all figures, nothing fetched from anywhere.
pub fn write_page(folder: &Path, figures: &[Written], command: &str) -> Result<(), String> {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>laneway sim</title>\
         <style>body{font:15px sans-serif;margin:2em;max-width:84em}pre{overflow-x:auto;\
         font-size:12px;background:#f6f6f6;padding:1em}svg{margin:4px}</style>\
         <h1>laneway sim</h1>",
    );
    let _ = write!(page, "<p><code>{}</code></p>", escape(command));
    for figure in figures {
        let _ = write!(page, "<h2>{}</h2><p>{}</p>", escape(&figure.name), escape(&figure.about));
        figure.svgs.iter().for_each(|svg| page.push_str(svg));
        let table = escape(&figure.table);
        let _ = write!(page, "<details><summary>numbers</summary><pre>{table}</pre></details>");
    }
    let path = folder.join("index.html");
    fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
