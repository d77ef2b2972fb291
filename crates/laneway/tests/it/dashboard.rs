//! The dashboard in a real browser, of a server that clients keep busy: numbers appear.

use crate::rig::watched::Watched;
use crate::rig::{Scratch, ask, set, skip};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// The browser as distributions name it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const LARGE: usize = 200_000;

/// What stands between the tag with this id and the end of its element.
fn element<'a>(page: &'a str, id: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let (_, rest) = rest.split_once('>').expect("the tag ends");
    rest.split_once(end).expect("the element ends").0
}

/// The page after half a minute of its own time, which passes as fast as the server answers; none
/// where there is no browser, which is told.
fn page_in_browser(name: &str, url: &str) -> Option<String> {
    let profile = Scratch::new(&format!("dashboard-{name}"));
    let browser = BROWSERS.iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(browser) = browser else {
        skip("the dashboard in a browser", "there is no chromium");
        return None;
    };
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
    command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
    command.arg(format!("--user-data-dir={}", profile.path()));
    command.args(["--virtual-time-budget=30000", "--dump-dom", url]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("a page is text"))
}

#[test]
fn numbers_appear_on_the_dashboard_of_a_busy_server() {
    let server = Watched::start(&["-t", "2", "--threshold", "32k"]);
    let over = AtomicBool::new(false);
    let page = thread::scope(|scope| {
        for client in 0..2 {
            let mut stream = server.client();
            let over = &over;
            scope.spawn(move || {
                let big = format!("big{client}");
                ask(&mut stream, &set(&big, &[b'x'; LARGE]), b"STORED\r\n");
                ask(&mut stream, b"set small 0 0 5\r\nvalue\r\n", b"STORED\r\n");
                while !over.load(SeqCst) {
                    for _ in 0..50 {
                        ask(&mut stream, b"get small\r\n", b"END\r\n");
                    }
                    ask(&mut stream, format!("get {big}\r\n").as_bytes(), b"END\r\n");
                }
            });
        }
        let page = page_in_browser("live", &format!("http://{}/", server.admin));
        over.store(true, SeqCst);
        page
    });
    let Some(page) = page else { return };
    assert_eq!(element(&page, "state", "</span>"), "live");
    // The last second of the page's time may have been too short for a request: charts have all.
    let figures = element(&page, "figures", "</dl>");
    assert!(
        figures.contains("of 64.0 MiB") && figures.contains("<dd class=\"\">2</dd>"),
        "{figures}"
    );
    let latency = element(&page, "latency", "</svg>");
    assert!(latency.matches("d=\"M").count() == 6, "each line has a point: {latency}");
    assert!(latency.contains(" µs</text>"), "{latency}");
    assert!(element(&page, "sizes", "</svg>").contains("threshold 32.0 KiB"));
    assert!(element(&page, "sizes", "</svg>").matches("<rect").count() >= 2, "two sizes");
    assert_eq!(element(&page, "small-workers", "</ul>").matches("Worker ").count(), 2);
    assert!(element(&page, "traffic", "</table>").contains("2 of 1,024"), "its two clients");
    assert!(element(&page, "errors", "</table>").contains("Out of memory"));
    let clients = element(&page, "clients", "</table>");
    assert!(clients.contains("127.0.0.1"), "who asks has a name: {clients}");
}

#[test]
fn a_saved_page_replays_what_it_carries_without_a_server() {
    let server = Watched::start(&["-t", "1", "--threshold", "32k"]);
    let mut client = server.client();
    ask(&mut client, &set("big", &[b'x'; LARGE]), b"STORED\r\n");
    ask(&mut client, b"set small 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    let state = |at: u64| {
        let (status, text) = server.get("/api/state");
        assert_eq!(status, 200);
        let mut state: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        state["at"] = at.into();
        state
    };
    let before = state(1_000_000);
    for round in 0..1_000 {
        let key = if round % 4 == 0 { "none" } else { "small" };
        ask(&mut client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
    }
    for _ in 0..20 {
        ask(&mut client, b"get big\r\n", b"END\r\n");
    }
    ask(&mut client, b"mn\r\n", b"MN\r\n"); // all before it is counted
    let recording = serde_json::json!([before, state(1_010_000)]).to_string();
    let (_, page) = server.get("/");
    server.process.stop();
    let saved = page.replacen("id=\"recording\">[]", &format!("id=\"recording\">{recording}"), 1);
    assert!(saved.len() > page.len() + 1_000, "the page has a place for a recording");
    let folder = Scratch::folder("dashboard");
    let file = folder.file("saved.html");
    std::fs::write(&file, saved).expect("temp is writable");
    let Some(page) = page_in_browser("saved", &format!("file://{file}")) else { return };
    assert!(element(&page, "state", "</span>").starts_with("recorded 1970-01-01 00:16"));
    let figures = element(&page, "figures", "</dl>");
    for told in [">100/s<", ">2/s<", ">75.5 %<"] {
        assert!(figures.contains(told), "{told} in {figures}"); // in ten seconds
    }
    let sizes = element(&page, "sizes-said", "</p>");
    assert!(sizes.starts_with("750 small and 20 large (2.60 %)"), "{sizes}");
}
