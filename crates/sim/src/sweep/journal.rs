//! The rows of a sweep on the disk: each is written as its point ends, so that a sweep that was
//! broken off goes on where it stopped. A row says of which form it is, of which sweep and which
//! point; rows of another form or sweep are refused, and never stand beside these.

use crate::row::Row;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Name and number of the form of rows; schema.json tells other programs of it.
pub(super) const SCHEMA: &str = "laneway-sim-run/1";

/// A number for these bytes, from one for those before (FNV-1a, 64 bits).
pub(super) fn fingerprint(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A number for the program that runs, by all its bytes: a version has many commits, and a commit
/// what was changed since; either may have other results.
pub(super) fn program() -> Result<u64, String> {
    const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
    static KNOWN: OnceLock<Result<u64, String>> = OnceLock::new();
    let read = || std::env::current_exe().and_then(std::fs::read);
    let known = KNOWN.get_or_init(|| match read() {
        Ok(bytes) => Ok(fingerprint(FIRST, &bytes)),
        Err(why) => Err(format!("the program's own file, which rows are marked with: {why}")),
    });
    known.clone()
}

/// The file that is written.
pub(super) struct Journal {
    file: Mutex<File>,
    name: String,
}

impl Journal {
    /// The file of the folder, and what it has of these points already: the beginnings of their
    /// rows.
    pub(super) fn open(
        folder: &Path,
        beginnings: &[Row],
    ) -> Result<(Journal, Vec<Option<Row>>), String> {
        let path = folder.join("run.json");
        let name = path.display().to_string();
        let failed = |error: std::io::Error| format!("--out {name}: {error}");
        std::fs::create_dir_all(folder).map_err(failed)?;
        let options = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut file = options.map_err(failed)?;
        file.try_lock().map_err(|_| format!("--out {name}: another run writes there"))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // What has no end was being written when the run was broken off.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        let mut rows = vec![None; beginnings.len()];
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let (point, row) = read(line, beginnings).map_err(|why| {
                format!("--out {name}: line {number}: {why}; give another folder, or remove it")
            })?;
            rows[point] = Some(row);
        }
        Ok((Journal { file: Mutex::new(file), name }, rows))
    }

    /// One more row.
    pub(super) fn add(&self, row: &Row) -> Result<(), String> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all((row.json() + "\n").as_bytes());
        written.map_err(|error| format!("--out {}: {error}", self.name))
    }
}

/// A row of one of these points.
fn read(line: &str, beginnings: &[Row]) -> Result<(usize, Row), String> {
    let row: Row = serde_json::from_str(line).map_err(|error| format!("no row: {error}"))?;
    let schema = row.text("schema");
    if schema != SCHEMA {
        return Err(format!("a row of form {schema:?}, not {SCHEMA:?}"));
    }
    let known = |beginning: &Row| beginning.text("sweep") == row.text("sweep");
    if !beginnings.first().is_some_and(known) {
        return Err("a row of another sweep: other values, seeds, input files or program".into());
    }
    let begins = |beginning: &Row| line.starts_with(beginning.json().trim_end_matches('}'));
    let point = row.number("point").map_or(usize::MAX, |point| point as usize);
    if !beginnings.get(point).is_some_and(begins) {
        return Err(format!("a row of no point of this sweep: point {}", row.text("point")));
    }
    Ok((point, row))
}
