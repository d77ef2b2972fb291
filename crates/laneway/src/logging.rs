//! The server's log: one line per event on stderr, as text or as JSON, with time and level.
//!
//! The `log` crate is the interface, so that the server's crates know nothing of the form; this
//! backend is all there is behind it. A line is written by one call, and one that cannot be written
//! (the reader of the pipe is gone, the disk is full) is dropped: a log must never end a server.

use laneway_load::pairs::record::utc;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value as Scalar;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The form of a line (`--log-format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `2026-11-23T10:15:00.123Z INFO message name=value`
    Text,
    /// `{"time":"...","level":"info","message":"...","name":"value"}`
    Json,
}

impl Format {
    /// The form that `--log-format` names.
    pub fn named(name: Option<&str>) -> Result<Format, String> {
        match name {
            None | Some("text") => Ok(Format::Text),
            Some("json") => Ok(Format::Json),
            Some(other) => Err(format!(
                "--log-format {other}: must be text or json; leave the flag out for text"
            )),
        }
    }
}

struct Stderr(Format);

static TEXT: Stderr = Stderr(Format::Text);
static JSON: Stderr = Stderr(Format::Json);

/// Nobody waits any more until the log's reader takes a line.
static WAITS_FOR_NOBODY: AtomicBool = AtomicBool::new(false);

/// Leave out lines that the log's reader has no room for, from now on: a server that ends must not
/// wait for one that hangs.
pub fn wait_for_nobody() {
    WAITS_FOR_NOBODY.store(true, Ordering::Relaxed); // it orders nothing
}

/// Whether a line of at most a page is taken at once. It is not where the log is a pipe that is
/// full, since its reader hangs.
pub fn has_room() -> bool {
    let stderr = std::io::stderr();
    let mut asked = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    // Where `poll` fails, the line is written all the same: the write tells what is wrong.
    !matches!(poll(&mut asked, PollTimeout::ZERO), Ok(0))
}

/// Log from now on, down to `level`; once per process.
pub fn start(format: Format, level: LevelFilter) {
    // An error says that a logger is there already, which only a second call could have made.
    let _ = log::set_logger(match format {
        Format::Text => &TEXT,
        Format::Json => &JSON,
    });
    log::set_max_level(level);
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if WAITS_FOR_NOBODY.load(Ordering::Relaxed) && !has_room() {
            return; // see `wait_for_nobody`
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = line(self.0, now.as_millis() as u64, record);
        let _ = std::io::stderr().lock().write_all(line.as_bytes()); // see above
    }

    fn flush(&self) {}
}

/// A line, with its end.
pub fn line(format: Format, unix_milliseconds: u64, record: &Record<'_>) -> String {
    let (time, level) = (timestamp(unix_milliseconds), record.level());
    let message = record.args().to_string();
    let mut fields = Fields(Vec::new());
    let _ = record.key_values().visit(&mut fields); // ours never fails
    let pairs = fields.0.into_iter();
    match format {
        // One event is one line, whatever a peer put into it.
        Format::Text => {
            let plain = |value: Scalar| value.as_str().map_or(value.to_string(), str::to_owned);
            let pairs = pairs.map(|(name, value)| format!(" {name}={}", plain(value)));
            let pairs: String = pairs.collect();
            let text = format!("{message}{pairs}").replace(['\n', '\r'], " ");
            format!("{time} {:<5} {text}\n", level_name(level).to_uppercase())
        }
        Format::Json => {
            let head = [("time", time), ("level", level_name(level).into()), ("message", message)];
            let head = head.map(|(name, value)| (name.to_owned(), Scalar::from(value)));
            let object: serde_json::Map<_, _> = head.into_iter().chain(pairs).collect();
            format!("{}\n", Scalar::Object(object))
        }
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// A record's names and values, in their order.
struct Fields(Vec<(String, Scalar)>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, name: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let scalar = value.to_u64().map_or_else(|| value.to_string().into(), Scalar::from);
        self.0.push((name.to_string(), scalar));
        Ok(())
    }
}

/// RFC 3339, in UTC.
fn timestamp(unix_milliseconds: u64) -> String {
    let (seconds, milliseconds) = (unix_milliseconds / 1000, unix_milliseconds % 1000);
    format!("{}.{milliseconds:03}Z", utc(seconds).trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_told_as_the_calendar_has_it() {
        for (seconds, told) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_709_164_800, "2024-02-29T00:00:00.007Z"),
            (1_767_225_599, "2025-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(timestamp(seconds * 1000 + 7), told);
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        let fields = [("peer", "a\"b\nc")];
        let line_in = |format| {
            let mut record = Record::builder();
            record.level(Level::Warn).key_values(&fields);
            line(format, 0, &record.args(format_args!("two\nlines")).build())
        };
        assert_eq!(line_in(Format::Text), "1970-01-01T00:00:00.000Z WARN  two lines peer=a\"b c\n");
        let json = line_in(Format::Json);
        assert!(json.ends_with("}\n") && json.trim_end().lines().count() == 1, "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(read["level"], "warn");
        assert_eq!(read["message"], "two\nlines");
        assert_eq!(read["peer"], "a\"b\nc");
    }
}
