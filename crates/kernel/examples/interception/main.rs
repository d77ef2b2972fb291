//! Where a GET is best met (Hippos, "Locating a Place to Hook"): the same datagrams, at a given
//! rate over virtual Ethernet between two network namespaces made here, answered or dropped at XDP,
//! at tc ingress, at the UDP socket or by a worker of the server. Prints one line of JSON: CPU time
//! of a request, and its round trip. And what the lane costs its neighbours: the same requests at
//! another port, with the lane at the interface.
//!
//! Departs from the paper, which tells the CPU utilization of a machine that only serves: on one
//! machine what precedes the socket runs inside the sender's own call. So a request costs what its
//! sending took, what receiving its reply took, and what the server's threads used meanwhile. Wakes
//! of an idle CPU are nobody's, and missing. Unit: nanoseconds inside, microseconds in what is
//! told.
//!
//! usage: interception PLACE FATE RATE SECONDS [LANEWAY], as root
#![forbid(unsafe_code)]

#[allow(dead_code)] // a part of it is used
#[path = "../../tests/common/hosts.rs"]
mod hosts;
mod sender;
mod site;
#[allow(dead_code)]
#[path = "../../tests/common/writer.rs"]
mod writer;

use sender::{Outcome, Sender};
use site::{Place, Site};
use std::process::ExitCode;

const USAGE: &str = "\
usage: interception PLACE FATE RATE SECONDS [LANEWAY]

  PLACE    xdp, tc, queue (a socket that nobody reads), socket (one that is read), worker;
           socket+lane, worker+lane: the same at another port than the lane's, which is at tc of
           the interface meanwhile
  FATE     answered or dropped; at `queue` only dropped; `worker`: by a GET whose miss is not told
  RATE     requests a second
  LANEWAY  the server's program, for `worker`";

/// The client's CPU; the site has the other.
const CLIENT_CPU: usize = 1;
const SERVER_CPU: usize = 0;
/// Served and not measured.
const WARM_UP_SECONDS: f64 = 0.3;

/// What is asked for.
struct Wanted {
    place: Place,
    /// Whether the lane is there for another port.
    beside_lane: bool,
    answered: bool,
    rate: f64,
    seconds: f64,
    laneway: Option<String>,
}

impl Wanted {
    fn parse(words: &[String]) -> Option<Wanted> {
        let [place, fate, rate, seconds, laneway @ ..] = words else { return None };
        let answered = match fate.as_str() {
            "answered" => true,
            "dropped" => false,
            _ => return None,
        };
        let (place, beside_lane) = match place.strip_suffix("+lane") {
            Some(place) => (place, true),
            None => (place.as_str(), false),
        };
        let place = Place::named(place)?;
        let (rate, seconds): (f64, f64) = (rate.parse().ok()?, seconds.parse().ok()?);
        let is_good = (1.0..=1e7).contains(&rate)
            && (0.0..=600.0).contains(&seconds)
            && !(place == Place::Queue && answered)
            && (!beside_lane || matches!(place, Place::Socket | Place::Worker))
            && (place == Place::Worker) == (laneway.len() == 1);
        let laneway = laneway.first().cloned();
        is_good.then_some(Wanted { place, beside_lane, answered, rate, seconds, laneway })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = Wanted::parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match measure(&wanted) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("interception {}: {why}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn measure(wanted: &Wanted) -> site::Result<String> {
    site::pin(SERVER_CPU)?;
    let Wanted { place, beside_lane, answered, .. } = *wanted;
    let site = Site::new(place, beside_lane, answered, wanted.laneway.as_deref())?;
    site::pin(CLIENT_CPU)?;
    let mut sender = Sender::new(&site.client, &site.address, site.request(), answered)?;
    sender.send(wanted.rate, WARM_UP_SECONDS)?;
    let before = site.server_busy_ns();
    let outcome = sender.send(wanted.rate, wanted.seconds)?;
    let server_ns = site.server_busy_ns().saturating_sub(before);
    site.check(outcome.answered)?;
    tell(answered, &outcome, server_ns)
}

/// One line. Lines of a picture are those runs that have its number: so what was answered and what
/// was dropped stand under names of their own.
fn tell(answered: bool, outcome: &Outcome, server_ns: u64) -> site::Result<String> {
    if outcome.sent == 0 {
        return Err("nothing was sent".into());
    }
    let each = |ns: u64| ns as f64 / outcome.sent as f64 / 1e3;
    let (send, receive, server) =
        (each(outcome.send_ns), each(outcome.receive_ns), each(server_ns));
    let cpu = send + receive + server;
    let common = format!(
        "\"sent\": {}, \"sent_per_s\": {:.0}, \"cpu_us\": {cpu:.3}, \"send_us\": {send:.3}, \
         \"receive_us\": {receive:.3}, \"server_us\": {server:.3}",
        outcome.sent, outcome.sent_per_s
    );
    if !answered {
        return Ok(format!("{{\"dropped\": {{{common}}}}}"));
    }
    let share = outcome.answered as f64 / outcome.sent as f64;
    let quantile = |q: f64| match outcome.latencies_ns.len() {
        0 => 0.0,
        count => outcome.latencies_ns[((count - 1) as f64 * q) as usize] as f64 / 1e3,
    };
    Ok(format!(
        "{{\"answered\": {{{common}, \"answered_share\": {share:.4}, \"p50_us\": {:.2}, \
         \"p99_us\": {:.2}}}}}",
        quantile(0.5),
        quantile(0.99)
    ))
}
