//! `laneway top`: what a running server does, in a terminal, once a second.

mod draw;
mod latency;
mod sample;
mod view;

use crate::STATUS_USAGE;
use crate::asking::whom::{self, Other, Whom};
use crate::asking::{Failure, Server};
use draw::{Picture, draw};
use lexopt::ValueExt;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use sample::Sample;
use std::ffi::OsString;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use view::{ClientOrder, KeyOrder, View};

/// What `--help` prints; `{flags}` stands for those that say whom to ask.
pub const HELP: &str = "\
laneway top: what a running server does: both lanes, workers, hot keys, clients

Usage: laneway top [--server HOST:PORT | --socket PATH] [--interval SECONDS]
                   [--once] [FLAGS]

{flags}  --interval SECONDS   between two pictures, from 0.1 on                         [1]
  --once               print one picture, of one interval, and end; for scripts
                       and where there is no terminal

Keys: q quits    space pauses    + - change the interval
      clients are sorted by b bytes, r requests, l large requests, c connections
      keys are sorted by k requests, K bytes (share of the requests times size)

Rates and times are of the last interval. A time is the end of the bucket that it
was counted in: at most a quarter too long. The chart of p99 has a logarithmic
scale: each eighth of a row is a little more than a factor of two.
";

/// Samples that the chart remembers.
const HISTORY: usize = 512;
/// The picture of `--once`, in columns and rows.
const ONCE: (u16, u16) = (100, 48);
const HINT: &str = "q quit  space pause  +/- interval  clients: b r l c  keys: k K";

struct Flags {
    whom: Whom,
    interval: Duration,
    once: bool,
}

fn flags(args: Vec<OsString>) -> Result<Option<Flags>, lexopt::Error> {
    let (mut interval, mut once) = (Duration::from_secs(1), false);
    let whom = Whom::read(args, |other, parser| {
        match other {
            Other::Flag("interval") => {
                let seconds: f64 = parser.value()?.parse()?;
                if !(0.1..=3600.0).contains(&seconds) {
                    return Err("--interval is from 0.1 to 3600 seconds".into());
                }
                interval = Duration::from_secs_f64(seconds);
            }
            Other::Flag("once") => once = true,
            other => return Err(other.unexpected()),
        }
        Ok(())
    })?;
    Ok(whom.map(|whom| Flags { whom, interval, once }))
}

/// Run. Exit status 1 if the server cannot be asked, 2 for a command line that makes no sense.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let flags = match whom::words("top", HELP, flags(args)) {
        Ok(flags) => flags,
        Err(status) => return status,
    };
    if !flags.once && !stdout().is_terminal() {
        eprintln!("laneway top: standard output is no terminal; --once prints one picture");
        return ExitCode::from(STATUS_USAGE);
    }
    match watch(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("laneway top: {words}");
            ExitCode::FAILURE
        }
    }
}

fn watch(flags: &Flags) -> Result<(), String> {
    let mut source = Source { server: None, whom: flags.whom.clone() };
    let first = source.sample().map_err(|failure| match failure {
        Failure::Unknown => format!("the server at {} is no Laneway", flags.whom.place),
        failure => failure.told(&flags.whom),
    })?;
    let watch = Watch::begin(first);
    if flags.once { once(watch, source, flags) } else { live(watch, source, flags) }
}

/// A server that is asked for samples.
struct Source {
    server: Option<Server>,
    whom: Whom,
}

impl Source {
    /// One more. A server that cannot be asked is connected to anew the next time.
    fn sample(&mut self) -> Result<Sample, Failure> {
        let mut server = match self.server.take() {
            Some(server) => server,
            None => Server::of(&self.whom)?,
        };
        let sample = Sample::of(&mut server)?;
        self.server = Some(server);
        Ok(sample)
    }
}

/// What was seen of a server.
struct Watch {
    before: Sample,
    view: View,
    small_p99: Vec<u64>,
    large_p99: Vec<u64>,
}

impl Watch {
    fn begin(before: Sample) -> Watch {
        // Before an interval is over there are no rates: this view has the rest.
        let view = View::between(&before, &before);
        Watch { before, view, small_p99: Vec::new(), large_p99: Vec::new() }
    }

    fn see(&mut self, now: Sample) {
        self.view = View::between(&self.before, &now);
        self.before = now;
        let lanes = [
            (&mut self.small_p99, self.view.small.p99),
            (&mut self.large_p99, self.view.large.p99),
        ];
        for (history, p99) in lanes {
            if history.len() == HISTORY {
                history.remove(0);
            }
            history.push(p99.unwrap_or(0));
        }
    }

    fn picture<'a>(&'a self, place: &'a str, said: &'a str) -> Picture<'a> {
        let (small_p99, large_p99) = (&self.small_p99, &self.large_p99);
        Picture { place, view: &self.view, small_p99, large_p99, said }
    }
}

/// `--once`: two samples, an interval apart, since rates are of the time between two.
fn once(mut watch: Watch, mut source: Source, flags: &Flags) -> Result<(), String> {
    std::thread::sleep(flags.interval);
    watch.see(source.sample().map_err(|failure| failure.told(&flags.whom))?);
    watch.view.sort(ClientOrder::Bytes, KeyOrder::Requests);
    let mut terminal = Terminal::new(TestBackend::new(ONCE.0, ONCE.1)).expect("it is in memory");
    let place = flags.whom.place.to_string();
    let drawn = terminal.draw(|frame| draw(frame, &watch.picture(&place, "")));
    let buffer = drawn.expect("it is in memory").buffer;
    let text: Vec<String> = (0..ONCE.1)
        .map(|row| (0..ONCE.0).map(|column| buffer[(column, row)].symbol()).collect::<String>())
        .map(|line| line.trim_end().to_owned())
        .collect();
    println!("{}", text.join("\n").trim_end());
    Ok(())
}

/// What a key asks for.
enum Act {
    Quit,
    Redraw,
    Nothing,
}

struct Controls {
    clients: ClientOrder,
    keys: KeyOrder,
    paused: bool,
    interval: Duration,
}

impl Controls {
    fn pressed(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Act {
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Act::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Act::Quit,
            KeyCode::Char('b') => self.clients = ClientOrder::Bytes,
            KeyCode::Char('r') => self.clients = ClientOrder::Requests,
            KeyCode::Char('l') => self.clients = ClientOrder::Large,
            KeyCode::Char('c') => self.clients = ClientOrder::Connections,
            KeyCode::Char('k') => self.keys = KeyOrder::Requests,
            KeyCode::Char('K') => self.keys = KeyOrder::Bytes,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.interval = (self.interval * 2).min(MAX),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(MIN),
            _ => return Act::Nothing,
        }
        Act::Redraw
    }
}

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether a sample has come.
const LOOK: Duration = Duration::from_millis(10);
/// A server that has not answered for so long is told of.
const SLOW: Duration = Duration::from_secs(2);

fn live(watch: Watch, source: Source, flags: &Flags) -> Result<(), String> {
    let mut terminal = ratatui::try_init().map_err(|error| error.to_string())?;
    let ended = follow(&mut terminal, watch, source, flags);
    ratatui::restore();
    ended.map_err(|error| error.to_string())
}

/// Asks for samples on a thread of its own, one for each word that it is sent: a server that does
/// not answer keeps nobody from the keyboard.
fn sampler(mut source: Source) -> (Sender<()>, Receiver<Result<Sample, Failure>>) {
    let (ask, asked) = channel();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        // Over when the other end is gone.
        while asked.recv().is_ok() && tell.send(source.sample()).is_ok() {}
    });
    (ask, told)
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    mut watch: Watch,
    source: Source,
    flags: &Flags,
) -> std::io::Result<()> {
    let place = flags.whom.place.to_string();
    let mut controls = Controls {
        clients: ClientOrder::Bytes,
        keys: KeyOrder::Requests,
        paused: false,
        interval: flags.interval,
    };
    let (ask, told) = sampler(source);
    let (mut asked, mut due, mut trouble) = (None, Instant::now() + controls.interval, None);
    loop {
        let said = match (&trouble, asked.map(|at: Instant| at.elapsed())) {
            (_, Some(waited)) if SLOW < waited => {
                format!("no answer for {} s  q quit", waited.as_secs())
            }
            (Some(words), _) => format!("{words} (asked again every {:?})", controls.interval),
            (None, _) if controls.paused => format!("paused  {HINT}"),
            (None, _) => format!("every {:?}  {HINT}", controls.interval),
        };
        watch.view.sort(controls.clients, controls.keys);
        terminal.draw(|frame| draw(frame, &watch.picture(&place, &said)))?;
        // Keys come between the samples; one that does nothing draws nothing.
        loop {
            if asked.is_none() && due <= Instant::now() {
                due = Instant::now() + controls.interval;
                asked = (!controls.paused && ask.send(()).is_ok()).then(Instant::now);
            }
            if let Ok(sample) = told.try_recv() {
                asked = None;
                let seen = sample.map(|sample| watch.see(sample));
                trouble = seen.err().map(|failure| failure.told(&flags.whom));
                break;
            }
            let is_slow = asked.is_some_and(|at| SLOW < at.elapsed());
            let left = due.saturating_duration_since(Instant::now());
            let wait = if asked.is_some() { LOOK } else { left.min(MAX) };
            if !event::poll(wait)? {
                if is_slow {
                    break;
                }
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    match controls.pressed(key.code, key.modifiers) {
                        Act::Quit => return Ok(()),
                        Act::Redraw => break,
                        Act::Nothing => {}
                    }
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
    }
}
