//! What lies in `contrib/` for Prometheus and Grafana asks for series that a server has, with the
//! labels that they have, and Prometheus takes it.

mod rig;

use rig::watched::Watched;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Labels that Prometheus adds by itself.
const ADDED: [&str; 2] = ["instance", "job"];

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(contrib(name)).expect("it is part of the repository")
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

#[test]
fn what_alerts_and_the_grafana_dashboard_ask_for_is_in_a_scrape() {
    let folder = std::env::temp_dir().join(format!("laneway-contrib-{}", std::process::id()));
    let data = folder.to_str().expect("temp paths are text");
    let flags = ["--data-dir", data, "--pm-size", "64m", "--ssd-size", "64m", "-U", "-1"];
    let server = Watched::start(&flags);
    let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let scrape = server.scrape();
    // A text may name a family.
    there.extend(scrape.types.into_keys().map(|family| (family, BTreeSet::new())));
    for series in scrape.samples.keys() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let keys = labels.split(',').filter_map(|label| label.split_once('=')).map(|(key, _)| key);
        there.entry(name.to_owned()).or_default().extend(keys.map(str::to_owned));
    }
    for (file, least) in [("prometheus-alerts.yml", 10), ("grafana-dashboard.json", 20)] {
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
    std::fs::remove_dir_all(folder).expect("it was made");
}

#[test]
fn the_grafana_dashboard_is_whole() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana-dashboard.json")).expect("it is JSON");
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
fn promtool_takes_the_rules_and_they_fire_when_they_should() {
    for arguments in [["check", "rules"], ["test", "rules"]] {
        let file = match arguments[0] {
            "check" => "prometheus-alerts.yml",
            _ => "prometheus-alerts-test.yml",
        };
        let output = Command::new("promtool").args(arguments).arg(contrib(file)).output();
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
