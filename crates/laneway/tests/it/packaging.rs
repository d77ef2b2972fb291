//! What lies in `packaging/` for Prometheus and Grafana asks for series that a server has, with the
//! labels that they have, and Prometheus takes it.

use crate::rig::watched::{Scrape, Watched};
use crate::rig::{BINARY, SIZES, Scratch, ask};
use laneway_certs::{Authority, Folder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Labels that Prometheus adds by itself.
const ADDED: [&str; 2] = ["instance", "job"];

const ALERTS: &str = "prometheus/alerts.yaml";
const ALERTS_TEST: &str = "prometheus/alerts-test.yaml";
const DASHBOARD: &str = "grafana/laneway.json";

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaged(name)).expect("it is part of the repository")
}

/// Each `laneway_...` in a text, and the labels that stand in braces behind it.
fn series(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("laneway_") {
        if text[..at].ends_with(is_name) {
            continue;
        }
        let rest = &text[at..];
        let (name, behind) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let braces = behind.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = braces.map_or("", |(inside, _)| inside).split(',');
        let labels = labels.filter_map(|label| label.split_once('=')).map(|(key, _)| key.trim());
        found.push((name.to_owned(), labels.map(str::to_owned).collect()));
    }
    found
}

/// What a server with a certificate tells; its admin endpoint is not encrypted.
fn scrape_of_encrypted() -> Scrape {
    let (folder, authority) = (Folder::new(), Authority::new("laneway's tests"));
    let pair = authority.pair();
    let (cert, key) = (folder.write("cert.pem", &pair.chain), folder.write("key.pem", &pair.key));
    let cert = cert.to_str().expect("temp paths are text");
    let key = key.to_str().expect("temp paths are text");
    let server = Watched::start(&["--tls-cert", cert, "--tls-key", key]);
    let scrape = server.scrape();
    server.process.stop();
    scrape
}

#[test]
fn what_alerts_and_the_grafana_dashboard_ask_for_is_in_a_scrape() {
    let (folder, backups) = (Scratch::new("packaging"), Scratch::folder("packaging-backups"));
    let own = ["--data-dir", folder.path(), "--backup-dir", backups.path(), "-U", "-1"];
    let server = Watched::start(&[&own[..], &SIZES].concat());
    let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Clients are told by address once there are any.
    ask(&mut server.client(), b"version\r\n", b"\r\n");
    for scrape in [server.scrape(), scrape_of_encrypted()] {
        // A text may name a family.
        for family in scrape.types.into_keys() {
            there.entry(family).or_default();
        }
        for series in scrape.samples.keys() {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            let keys = labels.map(|(key, _)| key.to_owned());
            there.entry(name.to_owned()).or_default().extend(keys);
        }
    }
    for (file, least) in [(ALERTS, 10), (DASHBOARD, 20)] {
        let asked = series(&read(file).replace("\\\"", "\""));
        assert!(asked.len() >= least, "{file} asks for {} series only", asked.len());
        for (name, labels) in asked {
            let Some(known) = there.get(&name) else { panic!("{file}: no scrape has {name}") };
            for label in labels.iter().filter(|label| !ADDED.contains(&label.as_str())) {
                assert!(known.contains(label), "{file}: {name} has {known:?}, not {label}");
            }
        }
    }
    server.process.stop();
}

#[test]
fn the_grafana_dashboard_is_whole() {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(!panel["title"].as_str().unwrap_or_default().is_empty());
        assert!(!panel["description"].as_str().unwrap_or_default().is_empty());
        assert!(!panel["targets"].as_array().expect("it asks").is_empty(), "{}", panel["title"]);
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("it has a place");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
    }
}

#[test]
fn operating_md_says_what_to_do_about_each_alert_and_about_no_other() {
    let alerts = read(ALERTS);
    let named = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let named: BTreeSet<&str> = named.collect();
    let manual = read("../docs/operating.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `Laneway"));
    let mut told = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && cells[1..3].iter().all(|cell| !cell.is_empty()), "{row}");
        told.insert(format!("Laneway{}", cells[0].trim_end_matches('`')));
    }
    let told: BTreeSet<&str> = told.iter().map(String::as_str).collect();
    assert_eq!(named, told);
    assert!(named.len() > 5);
}

/// The settings that would be in force with this file, defaults too.
fn settings(file: &Path) -> BTreeMap<String, String> {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--print-config", "--config"]).arg(file);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = printed.lines().map(|line| line.trim_start_matches("# "));
    // What has no default that could be written has a word instead.
    let pairs = lines.filter_map(|line| line.split_once(" = ").or_else(|| line.split_once(": ")));
    // `key = value # where it stands`
    let value = |value: &str| value.split(" #").next().unwrap_or_default().trim().to_owned();
    pairs.map(|(key, text)| (key.to_owned(), value(text))).collect()
}

#[test]
fn the_settings_that_are_installed_tell_defaults_and_their_examples_are_taken() {
    /// Examples; every other line behind a # holds the default.
    const EXAMPLES: [&str; 6] =
        ["auth-file", "threads", "data-dir", "admin", "slow-ms", "migrate-rate"];
    let folder = std::env::temp_dir().join(format!("laneway-settings-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("temp is writable");
    let (file, users) = (folder.join("laneway.toml"), folder.join("users"));
    std::fs::write(&users, "app:secret\n").expect("temp is writable");
    let installed = read("laneway.toml");
    std::fs::write(&file, &installed).expect("temp is writable");
    let defaults = settings(&file);
    let users = users.to_str().expect("temp paths are text");
    let is_setting = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line != "#";
    let taken: Vec<&str> = installed.lines().filter(|line| is_setting(line)).collect();
    assert!(taken.len() > 10);
    let all: Vec<&str> = installed.lines().map(|line| line.trim_start_matches('#')).collect();
    let all: Vec<&str> = all.into_iter().filter(|line| !line.starts_with(' ')).collect();
    let all = all.join("\n").replace("/etc/laneway/users", users);
    std::fs::write(&file, all).expect("temp is writable");
    let changed = settings(&file);
    for line in taken {
        let (key, _) = line[1..].split_once(" = ").expect("it is a setting");
        assert!(changed.contains_key(key), "{line}: the server knows no {key}");
        if !EXAMPLES.contains(&key)
            && let Some(default) = defaults.get(key)
        {
            assert_eq!(&changed[key], default, "{line}");
        }
    }
    std::fs::remove_dir_all(folder).expect("it was made");
}

#[test]
fn promtool_takes_the_rules_and_they_fire_when_they_should() {
    for arguments in [["check", "rules"], ["test", "rules"]] {
        let file = match arguments[0] {
            "check" => ALERTS,
            _ => ALERTS_TEST,
        };
        let output = Command::new("promtool").args(arguments).arg(packaged(file)).output();
        let Ok(output) = output else {
            let why = "SKIPPED: alert rules: there is no promtool (Debian: prometheus)\n";
            std::io::stderr().write_all(why.as_bytes()).expect("stderr is open");
            return;
        };
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "promtool {arguments:?} {file}: {said}");
    }
}
