//! `laneway fsck`, `compact`, `scan`, `dump` and `load`: tools for the folder of a durable store
//! that no server has open.

mod keys;
mod progress;

use self::keys::unescaped;
use self::progress::{Progress, size};
use crate::STATUS_USAGE;
use crate::flags::{self, Flags};
use crate::serve::tier::{self as settings, place};
use laneway_load::arguments::number;
use laneway_load::output::{MODE_OWNER, NewFile, unless_closed};
use laneway_server::durable::hands::SCHEDULE_KEY;
use laneway_tier::backup::WRITING;
use laneway_tier::dump::Dumped;
use laneway_tier::fsck::{Findings, Stage};
use laneway_tier::{Directory, DirectorySettings, Error, IndexKind, Item, Report, Usage, dump};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

const FSCK: &str = "\
laneway fsck: check the folder of serve --data-dir

Usage: laneway fsck DIR [--repair]

Reads everything in the order in which it lies on log and SSD, and writes
nothing. It names every item that cannot be read, and tells on stderr how far it
is. With --repair these items, and only they, are dropped; look first.
A load that did not come to its end is a problem, too: it must be done again.
";

const COMPACT: &str = "\
laneway compact: rewrite what is sparse in a folder of serve --data-dir

Usage: laneway compact DIR

Empties segments of the log and merges sort tables of which a ninth or more is
not current, and drops what has expired, until the bytes in use are close to those
that are current; it tells on stderr how far it is. No file becomes smaller: what
is gained is free for what is written next. It may be interrupted at any moment,
nothing is lost by that, and may be started again. A full SSD is an error (status
74); what could be done was done then. A server that has DIR open does the same by
the command compact of the text protocol.
";

const SCAN: &str = "\
laneway scan: list what the folder of serve --data-dir holds

Usage: laneway scan DIR [--from KEY] [--to KEY] [--limit N] [--values]

Keys in order, from --from on and below --to: key, bytes, flags, expiry; with
--values the values too, each behind its line. What is no printable ASCII in a
key is told as \\xNN, \\t, \\r or \\n, and a quote or a backslash behind a backslash.
--from and --to take keys as they are told.
";

const DUMP: &str = "\
laneway dump: write every item of a folder of serve --data-dir as one stream

Usage: laneway dump DIR [--output FILE]

To standard output, or to FILE, which its owner alone may read. It is called
FILE.part until it is whole and durable; a FILE that is there stays until then.
";

const LOAD: &str = "\
laneway load: put the items of a backup, or of laneway dump, into a folder

Usage: laneway load DIR [--input FILE] [--without-flush]

From standard input, or FILE, which is read twice: nothing is loaded of one that
is damaged. DIR is made if it is missing; items that it has already are replaced.
What interrupts a load leaves a folder that no server opens, until it is loaded.
Sizes may differ from the old ones: this is how a store is moved to larger media.
A store that is there, such as one that had no room for all of a load, grows to a
larger --pm-size or --ssd-size first, but for a log with --pm-index fair; what it
makes of both is told on stderr.
A store that is made here takes --pm-index, too, and values are stored as
--compress, --split-bytes and --pad-groups have it.
A flush_all that was still to come is told of: a server that opens DIR deletes
everything at its time, or as it starts if that is over. With --without-flush
none is to come any more, and the items stay.
";

const HELP_OF_ALL: &str = "
No server may have DIR open. --pm PATH, --pm-backend, --ssd PATH, --pm-size,
--ssd-size and --accept-lost-log are as laneway serve has them, if it was given
them; --data-dir DIR is DIR.

Exit status: 0 all is well; 1 damage was found, or an item could not be read;
2 the command line makes no sense; 74 a medium or the output refused, or there is
no store.
";

/// The tools, and the beginning of what each says of itself.
const TOOLS: [(&str, &str); 5] =
    [("fsck", FSCK), ("compact", COMPACT), ("scan", SCAN), ("dump", DUMP), ("load", LOAD)];

/// Damage was found.
const STATUS_DAMAGED: u8 = 1;
/// A medium or the output refused, or there is no store.
const STATUS_MEDIUM: u8 = 74;
/// What is told of while a store is opened.
const REPLAYED: &str = "of the log replayed";
/// Items read at once: so many, of so many bytes; one that is longer is read by itself.
const PAGE: usize = 256;
const PAGE_BYTES: u64 = 16 << 20;

#[derive(Default)]
struct Asked {
    folder: Option<OsString>,
    media: Flags,
    repair: bool,
    without_flush: bool,
    values: bool,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    limit: Option<usize>,
    file: Option<PathBuf>,
    help: bool,
}

/// What `--help` prints for one of them.
pub fn help(command: &str) -> String {
    let tool = TOOLS.iter().find(|(name, _)| *name == command);
    format!("{}{HELP_OF_ALL}", tool.map_or(FSCK, |(_, help)| help))
}

/// Runs one of them.
pub fn run(command: &str, args: Vec<OsString>) -> ExitCode {
    let asked = match parse(command, args) {
        Ok(asked) if asked.help => {
            print!("{}", help(command));
            return ExitCode::SUCCESS;
        }
        Ok(asked) => asked,
        Err(error) => return refuse(STATUS_USAGE, command, &error),
    };
    let Some(folder) = &asked.folder else {
        let which = format!("which folder? laneway {command} --help says more");
        return refuse(STATUS_USAGE, command, &which);
    };
    let media = Flags { data_dir: Some(folder.clone()), ..asked.media.clone() };
    let store = match settings::directory(&media) {
        Ok(Some(store)) => store,
        Ok(None) => return refuse(STATUS_USAGE, command, "which folder?"),
        Err(error) => return refuse(STATUS_USAGE, command, &error),
    };
    let done = match command {
        "fsck" => fsck(&asked, &store),
        "compact" => compact(&store),
        "scan" => scan(&asked, &store),
        "dump" => dump_all(&asked, &store),
        _ => load(&asked, &store),
    };
    done.unwrap_or_else(|error| refuse(STATUS_MEDIUM, command, &place(&store, &error)))
}

fn refuse(status: u8, command: &str, why: &str) -> ExitCode {
    eprintln!("laneway {command}: {why}");
    ExitCode::from(status)
}

fn parse(command: &str, args: Vec<OsString>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut parser = Parser::from_args(args);
    let sentence = |error: lexopt::Error| error.to_string();
    while let Some(arg) = parser.next().map_err(sentence)? {
        match (command, arg) {
            (_, Arg::Long("help") | Arg::Short('h')) => asked.help = true,
            (_, Arg::Value(folder)) if asked.folder.is_none() => asked.folder = Some(folder),
            ("fsck", Arg::Long("repair")) => asked.repair = true,
            ("load", Arg::Long("without-flush")) => asked.without_flush = true,
            ("scan", Arg::Long("values")) => asked.values = true,
            ("scan", Arg::Long("from")) => asked.from = key("--from", &mut parser)?,
            ("scan", Arg::Long("to")) => asked.to = Some(key("--to", &mut parser)?),
            ("scan", Arg::Long("limit")) => asked.limit = Some(number("limit", &mut parser)?),
            ("dump", Arg::Long("output") | Arg::Short('o'))
            | ("load", Arg::Long("input") | Arg::Short('i')) => {
                asked.file = Some(PathBuf::from(parser.value().map_err(sentence)?));
            }
            (_, Arg::Long(name)) => {
                let flag = format!("--{name}");
                if !flags::of_folder(&mut asked.media, &flag, &mut parser)
                    .map_err(|refused| refused.at(&flag).why)?
                {
                    return Err(format!("{flag}: not known here; see laneway {command} --help"));
                }
            }
            (_, arg) => return Err(arg.unexpected().to_string()),
        }
    }
    // As the server has it; of two folders one would be passed over.
    if let Some(folder) = asked.media.data_dir.take()
        && asked.folder.replace(folder).is_some()
    {
        return Err("--data-dir: the folder stands there already; name one".into());
    }
    let why = format!("is for a server, and not for laneway {command}; leave it out");
    flags::refuse(&asked.media, settings::OF_SERVER, &why)?;
    Ok(asked)
}

fn key(flag: &str, parser: &mut Parser) -> Result<Vec<u8>, String> {
    let value = parser.value().and_then(|value| value.string());
    let text = value.map_err(|error| error.to_string())?;
    unescaped(&text).ok_or_else(|| {
        format!(
            "{flag} {text}: a backslash stands before x and two digits, t, r, n, a quote or \
             another backslash, as laneway scan prints keys"
        )
    })
}

fn fsck(asked: &Asked, store: &DirectorySettings) -> Result<ExitCode, Error> {
    let mut progress = Progress::of("fsck");
    let mut hears = |stage, done, total| progress.hear(words(stage), done, total);
    let findings = match asked.repair {
        true => Directory::repair(store, &mut hears),
        false => Directory::check(store, &mut hears),
    };
    progress.end();
    let findings = findings?;
    // Whoever reads no further than the first lines is told by the status all the same.
    let told = unless_closed(tell_findings(&mut io::stdout().lock(), &findings, asked.repair));
    if findings.is_sound() || asked.repair {
        return told.map(|()| ExitCode::SUCCESS).map_err(stdout_error);
    }
    if let Err(error) = told {
        eprintln!("laneway fsck: {}", stdout_error(error));
    }
    Ok(ExitCode::from(STATUS_DAMAGED))
}

fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Opening => REPLAYED,
        Stage::Reading => "read",
    }
}

fn compact(store: &DirectorySettings) -> Result<ExitCode, Error> {
    let mut progress = Progress::of("compact");
    let mut store = store.clone();
    store.settings.background = false;
    let (directory, report) = Directory::open_existing(&store, &mut |done, total| {
        progress.hear(REPLAYED, done, total);
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    directory.tell_time(u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
    let before = directory.stats().usage;
    let done = directory.compact(&mut |done, total| progress.hear("rewritten", done, total));
    progress.end();
    let after = directory.stats().usage;
    for problem in &report.problems {
        eprintln!("laneway compact: {problem}; left as it is");
    }
    let held = |usage: &Usage| size(usage.log_used_bytes + usage.ssd_used_bytes);
    let current = size(after.live_bytes().unwrap_or(0));
    eprintln!(
        "laneway compact: {} of log and SSD were in use, and {} are; {current} of that is current",
        held(&before),
        held(&after)
    );
    done?;
    directory.close()?;
    Ok(ExitCode::from(if report.problems.is_empty() { 0 } else { STATUS_DAMAGED }))
}

fn tell_findings(out: &mut impl Write, findings: &Findings, repair: bool) -> io::Result<()> {
    for problem in &findings.report.problems {
        writeln!(out, "problem: {problem}")?;
    }
    if let Some(why) = &findings.half_loaded {
        writeln!(out, "problem: {why}")?;
    }
    for (key, why) in &findings.lost {
        let fate = if repair { "dropped" } else { "lost" };
        writeln!(out, "{fate}: {}: {why}", key.escape_ascii())?;
    }
    writeln!(out, "{} items can be read, {} cannot", findings.items, findings.lost.len())?;
    if findings.is_sound() || repair {
        return out.flush();
    }
    if 0 < findings.refused {
        writeln!(
            out,
            "the device refuses to give {} of these, and may give them another time: look at it \
             first; a repair drops nothing meanwhile",
            findings.refused
        )?;
    } else if findings.half_loaded.is_none() {
        writeln!(out, "laneway fsck --repair drops what is named above, and only that")?;
    }
    out.flush()
}

fn stdout_error(source: io::Error) -> Error {
    Error::Dump(format!("standard output: {source}"))
}

/// Opened for a tool: nothing moves by itself. Whether it was found to be damaged, too.
fn open(command: &str, store: &DirectorySettings) -> Result<(Directory, bool), Error> {
    let mut store = store.clone();
    store.settings.background = false;
    let (directory, report) = Directory::open_existing(&store, &mut |_, _| {})?;
    Ok((directory, tell_problems(command, &report)))
}

/// Tells what a start of the store has found damaged; whether there was anything. An item of which
/// nobody knows the key, or an older value in its place, is told of here alone.
fn tell_problems(command: &str, report: &Report) -> bool {
    for problem in &report.problems {
        eprintln!("laneway {command}: {problem}");
    }
    !report.problems.is_empty()
}

fn scan(asked: &Asked, store: &DirectorySettings) -> Result<ExitCode, Error> {
    let (directory, mut damaged) = open("scan", store)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let told = list(&mut out, asked, &directory, &mut damaged).and_then(|()| out.flush());
    unless_closed(told).map_err(stdout_error)?;
    Ok(if damaged { ExitCode::from(STATUS_DAMAGED) } else { ExitCode::SUCCESS })
}

/// Writes the list. An item that cannot be read is told on stderr.
fn list(
    out: &mut impl Write,
    asked: &Asked,
    directory: &Directory,
    damaged: &mut bool,
) -> io::Result<()> {
    let (mut from, mut left) = (asked.from.clone(), asked.limit.unwrap_or(usize::MAX));
    while left > 0 {
        let to = asked.to.as_deref();
        let found = directory.range(&from, to, left.min(PAGE));
        let page = directory.scan(&from, to, read_at_once(&found, |item| item.look().value_bytes));
        let Some((last, _)) = page.last() else { break };
        from = [last, &[0][..]].concat();
        // The time of a `flush_all` to come is the server's, and no client's item.
        for (key, item) in page.into_iter().filter(|(key, _)| key[..] != SCHEDULE_KEY) {
            left -= 1;
            match item {
                Ok(item) => tell(out, &key, &item, asked.values)?,
                Err(error) => {
                    *damaged = true;
                    eprintln!("laneway scan: {error}");
                }
            }
        }
    }
    Ok(())
}

/// How many of these items, from the first on, are read at once: of all that were found the values
/// may be longer than memory.
fn read_at_once<T>(found: &[T], bytes_of: impl Fn(&T) -> u64) -> usize {
    let mut bytes: u64 = 0;
    let fits = found.iter().take_while(|item| {
        bytes = bytes.saturating_add(bytes_of(item));
        bytes <= PAGE_BYTES
    });
    fits.count().max(1)
}

fn tell(out: &mut impl Write, key: &[u8], item: &Item, values: bool) -> io::Result<()> {
    let Item { value, meta, .. } = item;
    let (key, flags, expires) = (key.escape_ascii(), meta.flags, meta.expires_at_seconds);
    writeln!(out, "{key} {} {flags} {expires}", value.len())?;
    if values {
        out.write_all(value)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn dump_all(asked: &Asked, store: &DirectorySettings) -> Result<ExitCode, Error> {
    if let Some(path) = asked.file.as_ref().filter(|path| store.has(path)) {
        // It would be written over, or the dump named in its place.
        let path = path.display();
        return Err(Error::Dump(format!("--output {path}: belongs to the store; name another")));
    }
    let (directory, damaged) = open("dump", store)?;
    let dumped = match &asked.file {
        None => dump::dump(&directory, &mut BufWriter::new(io::stdout().lock()))
            .map_err(|error| of_output(error, "standard output"))?,
        Some(path) => dump_to(&directory, path)?,
    };
    for (key, why) in &dumped.lost.named {
        eprintln!("laneway dump: lost: {}: {why}", key.escape_ascii());
    }
    if 0 < dumped.lost.unnamed() {
        let more = dumped.lost.unnamed();
        eprintln!("laneway dump: lost: {more} more; laneway fsck names them all");
    }
    eprintln!("laneway dump: {} items", dumped.items);
    let is_all = dumped.lost.items == 0 && !damaged;
    Ok(ExitCode::from(if is_all { 0 } else { STATUS_DAMAGED }))
}

fn dump_to(directory: &Directory, path: &Path) -> Result<Dumped, Error> {
    let name = format!("--output {}", path.display());
    let told = |error: io::Error| Error::Dump(format!("{name}: {error}"));
    // Every value is in it: for its owner alone, as the folder's own files are.
    let mut out = BufWriter::new(NewFile::create(path, MODE_OWNER).map_err(told)?);
    let dumped = dump::dump(directory, &mut out).map_err(|error| of_output(error, &name))?;
    let file = out.into_inner().map_err(|error| told(error.into_error()))?;
    file.finish().map_err(told)?;
    Ok(dumped)
}

/// Has an error of what a dump is written to told as one of that, and not of the folder.
fn of_output(error: Error, name: &str) -> Error {
    match error {
        Error::Io { what: WRITING, source } => Error::Dump(format!("{name}: {source}")),
        error => error,
    }
}

fn load(asked: &Asked, store: &DirectorySettings) -> Result<ExitCode, Error> {
    let (input, name): (Box<dyn Read>, _) = match &asked.file {
        None => (Box::new(io::stdin().lock()), "standard input".to_string()),
        Some(path) => {
            let told = |error| Error::Dump(format!("--input {}: {error}", path.display()));
            (Box::new(File::open(path).map_err(told)?), format!("--input {}", path.display()))
        }
    };
    let told = |error| match error {
        Error::Dump(what) => Error::Dump(format!("{name}: {what}")),
        Error::Io { what: dump::READING, source } => Error::Dump(format!("{name}: {source}")),
        error => error,
    };
    let mut given_out = 0;
    if let Some(path) = asked.file.as_ref().filter(|path| path.is_file()) {
        let file =
            File::open(path).map_err(|source| Error::Io { what: "open the dump", source })?;
        let mut all = dump::Stream::open(BufReader::new(file)).map_err(told)?;
        all.verify().map_err(told)?;
        given_out = all.given_out();
    }
    let mut stream = dump::Stream::open(BufReader::new(input)).map_err(told)?;
    // Nobody else makes room here.
    let mut store = store.clone();
    store.settings.background = true;
    // A load that found no room goes on in a store that is larger.
    store.pm_grows = asked.media.pm_bytes.is_some();
    store.ssd_grows = asked.media.ssd_bytes.is_some();
    let (directory, report) = Directory::open_to_load(&store, &mut |_, _| {})?;
    for told in settings::grown(&report).into_iter().chain(settings::sizes_kept(&store, &report)) {
        eprintln!("laneway load: {told}");
    }
    let damaged = tell_problems("load", &report);
    let no_room = |error| no_room(told(error), || directory.stats().index);
    // First, where it is known: whatever interrupts this, no CAS id comes again.
    directory.pass_over(given_out).map_err(no_room)?;
    let items = stream.load(&directory).map_err(no_room)?;
    if asked.without_flush {
        directory.delete(&SCHEDULE_KEY).map_err(no_room)?;
    }
    let flush = flush_to_come(&directory);
    directory.close_loaded().map_err(told)?;
    eprintln!("laneway load: {items} items");
    if let Some(at) = flush {
        eprintln!(
            "laneway load: a flush_all is still to come: a server deletes all of them at unix time \
             {at}, or as it starts if that is over; load with --without-flush to keep them"
        );
    }
    Ok(ExitCode::from(if damaged { STATUS_DAMAGED } else { 0 }))
}

/// When everything is to be flushed, if that was asked for. Of one that cannot be read a start of
/// the server tells.
fn flush_to_come(directory: &Directory) -> Option<u32> {
    let item = directory.get(&SCHEDULE_KEY).ok().flatten()?;
    Some(u32::from_le_bytes(item.value.as_slice().try_into().ok()?))
}

/// What helps where a load finds no room in a store with such an index.
fn no_room(error: Error, index: impl Fn() -> IndexKind) -> Error {
    let medium = match error {
        Error::PmFull if index() == IndexKind::Fair => {
            return Error::Setting(
                "the log, or the index behind it, has no room for all of it, and neither grows \
                 with --pm-index fair: load into a new folder with a larger --pm-size"
                    .into(),
            );
        }
        Error::PmFull => "log",
        Error::SsdFull { .. } => "SSD",
        error => return error,
    };
    Error::Setting(format!(
        "the {medium} has no room for all of it: load again with a larger --pm-size or \
         --ssd-size, by which this store grows, or load into a new folder"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_values_of_bounded_bytes_at_a_time_and_a_longer_one_by_itself() {
        let at_once = |lengths: &[u64]| read_at_once(lengths, |bytes| *bytes);
        assert_eq!(at_once(&[100; PAGE]), PAGE);
        assert_eq!(at_once(&[PAGE_BYTES / 4; PAGE]), 4);
        assert_eq!(at_once(&[1, PAGE_BYTES, 1]), 1);
        assert_eq!(at_once(&[1 << 30; PAGE]), 1);
        assert_eq!(at_once(&[]), 1);
    }

    #[test]
    fn a_flag_that_is_for_a_server_alone_is_refused() {
        let parsed = |command: &str, line: &str| {
            parse(command, line.split(' ').map(OsString::from).collect()).map(drop)
        };
        for (command, line, flag) in [
            ("compact", "DIR --migrate-rate 16m", "--migrate-rate"),
            ("fsck", "DIR --scrub-rate 16m", "--scrub-rate"),
            ("fsck", "DIR --scrub-every off", "--scrub-every"),
            ("dump", "--backup-dir COPIES DIR", "--backup-dir"),
            ("dump", "DIR --backup-rate 1m", "--backup-rate"),
            ("load", "DIR --durability interval:50", "--durability"),
            ("load", "DIR --when-full evict", "--when-full"),
            ("compact", "DIR --when-full evict", "--when-full"),
            ("scan", "DIR --read-threads 2", "--read-threads"),
        ] {
            let why = parsed(command, line).expect_err(line);
            assert!(why.starts_with(flag) && why.contains(command), "{line}: {why}");
        }
        for (command, line) in [
            ("fsck", "DIR --pm LOG --pm-backend wal --ssd-size 1g --accept-lost-log"),
            ("load", "DIR --pm-size 1g --compress lz4 --split-bytes 8k --pad-groups"),
        ] {
            assert_eq!(parsed(command, line), Ok(()), "{line}");
        }
    }

    #[test]
    fn a_list_begins_at_a_key_as_lists_name_it() {
        let from = |key: &str| {
            let args = ["DIR", "--from", key].map(OsString::from).to_vec();
            parse("scan", args).map(|asked| asked.from)
        };
        assert_eq!(from("a\\x00\\\\b"), Ok(b"a\0\\b".to_vec()));
        let why = from("a\\b").expect_err("it is no escape");
        assert!(why.starts_with("--from a\\b: "), "{why}");
    }

    #[test]
    fn no_size_is_asked_for_by_which_a_store_does_not_grow() {
        let told = |error, index| no_room(error, || index).to_string();
        let again = "load again with a larger --pm-size or --ssd-size";
        let fair = told(Error::PmFull, IndexKind::Fair);
        assert!(fair.contains("load into a new folder") && !fair.contains(again), "{fair}");
        let log = told(Error::PmFull, IndexKind::BTree);
        assert!(log.contains("the log has no room") && log.contains(again), "{log}");
        let ssd = told(Error::SsdFull { blocks: 1 }, IndexKind::Fair);
        assert!(ssd.contains("the SSD has no room") && ssd.contains(again), "{ssd}");
    }
}
