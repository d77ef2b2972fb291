//! The server's log: one line per event on stderr, as text or as JSON, with time and level.
//!
//! The `log` crate is the interface, so that the server's crates know nothing of the form; this
//! backend is all there is behind it. A line that cannot be written (the reader of the pipe is
//! gone, the disk is full) is dropped: a log must never end a server.
//!
//! Nor may it hold one up. Once the server has threads, a line is handed to a thread that does
//! nothing but write them ([`begin`]), through a queue of the standard library that has an end. A
//! line that finds it full, since the log's reader hangs or is slow, is dropped and counted. Until
//! then a line is written by who has the event, who serves nobody yet.

use laneway_load::pairs::record::utc;
use laneway_server::shared::Shared;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value as Scalar;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

struct Stderr;

/// The form of all lines.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Lines that wait for the thread that writes them.
const LINES_MAX: usize = 1024;
/// What a pipe that has any room takes at once (PIPE_BUF).
const PIECE_BYTES: usize = 4096;
/// How long the log's reader is waited for before somebody is asked again whether to go on.
const STEP_MS: u16 = 100;
/// Steps that it is waited for where somebody is in haste.
const STEPS_MAX: u32 = 10;

/// For the thread that writes.
enum Word {
    /// A line, with its end.
    Line(String),
    /// Tell when everything before it is written or left out.
    Flush(Sender<()>),
}

/// Where lines are handed over, once that thread is there.
static WRITER: OnceLock<SyncSender<Word>> = OnceLock::new();
/// Lines that were dropped because the log's reader did not take those before them.
static DROPPED: AtomicU64 = AtomicU64::new(0); // it orders nothing
/// So many wait for the log who must not wait for a reader that hangs.
static HASTES: AtomicUsize = AtomicUsize::new(0); // it orders nothing

/// Have this server's `stats` tell how many lines were dropped.
pub fn told_by<S>(shared: &Shared<S>) {
    shared.each_domain(|shared| {
        let _ = shared.log_dropped.set(&DROPPED); // an error says that it was set before
    });
}

/// Leave out lines that the log's reader has no room for within a second, from now on: a server
/// that ends must not wait for one that hangs.
pub fn wait_for_nobody() {
    HASTES.fetch_add(1, Relaxed);
}

/// Whether a line of at most a page is taken at once. It is not where the log is a pipe that is
/// full, since its reader hangs.
pub fn has_room() -> bool {
    has_room_within(0)
}

fn has_room_within(milliseconds: u16) -> bool {
    let stderr = std::io::stderr();
    let mut asked = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    // Where `poll` fails, the line is written all the same: the write tells what is wrong.
    !matches!(poll(&mut asked, PollTimeout::from(milliseconds)), Ok(0) | Err(Errno::EINTR))
}

/// Make the thread that writes lines; once per process. Nobody who logs waits from now on.
pub fn begin() -> Result<(), String> {
    let (writer, words) = sync_channel(LINES_MAX);
    let builder = thread::Builder::new().name("log".to_owned());
    builder
        .spawn(move || LogWriter { told: 0, steps: STEPS_MAX }.write_until_end(&words))
        .map_err(|error| format!("no thread can be made that writes the log: {error}"))?;
    let _ = WRITER.set(writer); // an error says that a second call was made
    // What was logged before a panic that ends the process is most of what is known of it.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        flush();
        usual(panic);
    }));
    Ok(())
}

/// Wait until what was logged is written, or its reader has not taken it for a second.
pub fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (done, is_done) = channel();
    HASTES.fetch_add(1, Relaxed);
    if writer.send(Word::Flush(done)).is_ok() {
        // Twice what it waits itself: the thread that panics may be the one that writes.
        let longest = 2 * STEPS_MAX * u32::from(STEP_MS);
        let _ = is_done.recv_timeout(Duration::from_millis(longest.into()));
    }
    HASTES.fetch_sub(1, Relaxed);
}

/// The thread that writes lines.
struct LogWriter {
    /// Of the lines dropped, those that the log has told of.
    told: u64,
    /// Steps that are left to wait for the log's reader where somebody is in haste.
    steps: u32,
}

impl LogWriter {
    fn write_until_end(mut self, words: &Receiver<Word>) {
        let mut lines = 0_usize;
        loop {
            let next = match words.try_recv() {
                Ok(word) => Ok(word),
                Err(_) => {
                    self.tell_dropped();
                    words.recv()
                }
            };
            match next {
                Ok(Word::Line(line)) => {
                    self.write(&line);
                    lines += 1;
                    // A reader that is always behind is told, too.
                    if lines.is_multiple_of(LINES_MAX) {
                        self.tell_dropped();
                    }
                }
                Ok(Word::Flush(done)) => {
                    self.tell_dropped();
                    self.steps = STEPS_MAX;
                    let _ = done.send(()); // who asked may have waited for long enough
                }
                Err(_) => return, // nobody can log any more
            }
        }
    }

    /// Say in the log how many lines it lacks.
    fn tell_dropped(&mut self) {
        let dropped = DROPPED.load(Relaxed);
        let fresh = dropped - self.told;
        if fresh == 0 {
            return;
        }
        self.told = dropped;
        self.write(&now(&Record::builder()
            .level(Level::Warn)
            .args(format_args!(
                "{fresh} lines of the log were dropped: its reader does not keep up"
            ))
            .build()));
    }

    fn write(&mut self, line: &str) {
        // A piece that a pipe has room for blocks nobody, so that a stop is never held up. Nobody
        // is told whether there is room for more: a line of several pieces, which hardly any is,
        // may end within. A line of one piece is there as a whole or not at all.
        for piece in line.as_bytes().chunks(PIECE_BYTES) {
            if !self.awaits_room() {
                DROPPED.fetch_add(1, Relaxed);
                return;
            }
            let _ = std::io::stderr().lock().write_all(piece); // see the head of this file
        }
    }

    /// Wait until the log's reader has room; false if somebody is in haste, and it has none.
    fn awaits_room(&mut self) -> bool {
        loop {
            let in_haste = HASTES.load(Relaxed) > 0;
            let is_over = in_haste && self.steps == 0;
            if has_room_within(if is_over { 0 } else { STEP_MS }) {
                return true;
            }
            if is_over {
                return false;
            }
            self.steps -= u32::from(in_haste);
        }
    }
}

/// Log from now on, down to `level`; once per process.
pub fn start(format: Format, level: LevelFilter) {
    // An error says that a logger is there already, which only a second call could have made.
    let _ = FORMAT.set(format);
    let _ = log::set_logger(&Stderr);
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
        let line = now(record);
        match WRITER.get() {
            None => {
                let _ = std::io::stderr().lock().write_all(line.as_bytes()); // see above
            }
            Some(writer) => {
                if writer.try_send(Word::Line(line)).is_err() {
                    DROPPED.fetch_add(1, Relaxed);
                }
            }
        }
    }

    fn flush(&self) {
        flush();
    }
}

/// A line of what happens now, as `--log-format` says.
fn now(record: &Record<'_>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let format = FORMAT.get().copied().unwrap_or(Format::Text); // it is set before any line
    line(format, now.as_millis() as u64, record)
}

/// A line, with its end.
pub fn line(format: Format, unix_milliseconds: u64, record: &Record<'_>) -> String {
    let (time, level) = (timestamp(unix_milliseconds), record.level().as_str());
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
            format!("{time} {level:<5} {text}\n")
        }
        Format::Json => {
            let head = [("time", time), ("level", level.to_lowercase()), ("message", message)];
            let head = head.map(|(name, value)| (name.to_owned(), Scalar::from(value)));
            let object: serde_json::Map<_, _> = head.into_iter().chain(pairs).collect();
            format!("{}\n", Scalar::Object(object))
        }
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
