//! Scrapes a server's metrics while it is measured, and tells how much of the CPU the one thread
//! took that answers: by the kernel's account of that thread, in which the server has no say.
//! Clients of many addresses are connected meanwhile, so that a scrape tells of as many as it may.
//!
//! It knows no metrics but those that say whether the run was what it is said to be. A scrape's
//! time is from one reading of the account to the next; what the last one did behind its last byte
//! is in none.

use super::Measured;
use super::server::Server;
use crate::connection::Target;
use crate::cpu;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long between two scrapes: less than anybody waits.
const EVERY: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The name of the thread that answers.
const THREAD: &str = "admin";
/// Addresses that clients come from beside that of the client that measures: a server tells 255 of
/// them apart.
const ADDRESSES: u8 = 254;

/// Does something while the server's metrics at `admin` are scraped; with what that came to.
pub fn meanwhile<T>(
    server: &Server,
    admin: &str,
    act: impl FnOnce() -> Result<T, String>,
) -> Result<(T, Measured), String> {
    let pid = server.pid().ok_or("the threads of a server that we did not start are not known")?;
    let clients = clients(&server.target)?;
    let (running, ended) = channel();
    let both: Result<(T, Measured), String> = thread::scope(|scope| {
        let scraper = scope.spawn(move || scrape_until(admin, pid, &ended));
        let done = act();
        drop(running);
        let told = scraper.join().map_err(|_| "the scraper panicked".to_owned())?;
        Ok((done?, told?))
    });
    drop(clients);
    both
}

/// Clients that ask nothing, each of an address of its own.
fn clients(target: &Target) -> Result<Vec<TcpStream>, String> {
    let Target::Tcp(address) = target else {
        return Err(format!("{target}: clients of many addresses come by TCP alone"));
    };
    let to: SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let each = (1..=ADDRESSES).map(|last| client_from(Ipv4Addr::new(127, 0, 1, last), to));
    each.collect::<io::Result<_>>().map_err(|error| format!("{address}: {error}"))
}

fn client_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// What a page tells: its bytes, connections, items, clients by address, and samples of the tier
/// and of datagrams.
fn told(page: &str) -> [f64; 6] {
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    };
    let samples = |name: &str| page.lines().filter(|line| line.starts_with(name)).count() as f64;
    [
        page.len() as f64,
        value("laneway_connections"),
        value("laneway_items"),
        samples("laneway_client_connections{"),
        samples("laneway_tier_"),
        samples("laneway_udp_events_total{"),
    ]
}

/// Scrapes until whoever holds the other end is done.
fn scrape_until(admin: &str, pid: u32, ended: &Receiver<()>) -> Result<Measured, String> {
    let busy = || match cpu::of_thread_named(pid, THREAD) {
        Ok(time) => Ok(time.busy_ns),
        Err(error) => Err(format!("the thread {THREAD} of process {pid}: {error}")),
    };
    let first = busy()?;
    let (mut before, mut most, mut scrapes, mut most_told) = (first, 0, 0_u32, [0.0; 6]);
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let page = scrape(admin).map_err(|error| format!("http://{admin}/metrics: {error}"))?;
        most_told.iter_mut().zip(told(&page)).for_each(|(most, told)| *most = told.max(*most));
        let now = busy()?;
        most = most.max(now - before);
        (before, scrapes) = (now, scrapes + 1);
    }
    if scrapes == 0 {
        return Err("the run was over before the first scrape".into());
    }
    let [bytes, connections, items, clients, tier, udp] = most_told;
    Ok(json!({
        "scrapes": scrapes,
        "cpu_ms_mean": (before - first) as f64 / 1e6 / f64::from(scrapes),
        "cpu_ms_max": most as f64 / 1e6,
        "bytes": bytes,
        "connections": connections,
        "items": items,
        "clients": clients,
        "tier_samples": tier,
        "udp_samples": udp,
    }))
}

/// A whole page of metrics.
fn scrape(admin: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, page)) if head.starts_with("HTTP/1.1 200 ") && page.ends_with("# EOF\n") => {
            Ok(page.to_owned())
        }
        _ => {
            let first = answer.lines().next().unwrap_or_default();
            Err(io::Error::other(format!("no whole page: {first:?}, {} bytes", answer.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PAGE: &str = "# TYPE laneway_connections gauge\nlaneway_connections 1001\n\
        laneway_connections_max 2048\nlaneway_items 100000\n\
        laneway_client_connections{client=\"127.0.0.1\"} 1000\n\
        laneway_client_connections{client=\"127.0.1.1\"} 1\n\
        laneway_tier_faults_total 0\nlaneway_udp_events_total{event=\"bursts\"} 0\n# EOF\n";

    #[test]
    fn a_page_is_read() {
        assert_eq!(told(PAGE), [PAGE.len() as f64, 1001.0, 100_000.0, 2.0, 1.0, 1.0]);
    }

    /// What a scrape makes of an answer.
    fn scraped(head: &str, page: &str) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("it asks");
                let mut request = [0; 4096];
                let bytes = stream.read(&mut request).expect("it asks");
                assert!(request[..bytes].starts_with(b"GET /metrics HTTP/1.1\r\n"));
                let answer = format!("{head}\r\n\r\n{page}");
                stream.write_all(answer.as_bytes()).expect("it reads");
            });
            scrape(&address)
        })
    }

    #[test]
    fn a_page_that_is_refused_or_not_whole_is_no_scrape() {
        assert_eq!(scraped("HTTP/1.1 200 OK", PAGE).expect("it is whole"), PAGE);
        assert!(scraped("HTTP/1.1 503 Service Unavailable", PAGE).is_err());
        assert!(scraped("HTTP/1.1 200 OK", &PAGE[..PAGE.len() - 1]).is_err());
    }
}
