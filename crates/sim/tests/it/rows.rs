//! Rows of `laneway sim run` against their JSON Schema, the form that other programs read.
#![allow(clippy::unwrap_used)]

#[path = "../../../load/tests/it/schema.rs"]
mod schema;

use laneway_sim::plan::{self, Question};
use laneway_sim::row::Row;
use laneway_sim::study::{Effort, Study};
use laneway_sim::sweep::{SCHEMA_TEXT, Sweep, help};
use serde_json::Value;

fn rows(flags: &[(&str, &str)]) -> Vec<Row> {
    let mut sweep = Sweep::default();
    for (name, values) in flags.iter().chain(&[("requests", "1000"), ("seeds", "1")]) {
        sweep.set(name, values).unwrap();
    }
    sweep.run(&Study::new(Effort::Quick, 1, 2), None).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA_TEXT).unwrap()
}

#[test]
fn every_row_is_of_the_schema() {
    let schema = schema();
    let designs = "lanes,minos,hkh,hkh-ws,sho,shinjuku,darc,tq,caladan";
    let runs: [&[(&str, &str)]; 7] = [
        &[("design", "hkh,lanes"), ("access", "erew"), ("keys", "900"), ("workers", "4")],
        &[("design", designs), ("load", "0.2,1"), ("quantum-us", "2,0.5"), ("threshold", "900")],
        &[("design", "lanes,hkh"), ("connections", "16"), ("depth", "4"), ("urgency", "true")],
        &[("nic-gbit", "none,40,12.5"), ("nic-order", "small-first"), ("network-us", "3.7")],
        &[("rx-queue", "none,8"), ("retry-us", "100"), ("k", "10"), ("steal-when-idle", "true")],
        &[("shared-lines", "0,2"), ("line-spread", "64"), ("line-ns", "100"), ("workers", "4")],
        &[
            ("numa", "2"),
            ("numa-strays", "0.5"),
            ("rate", "1e6"),
            ("design", "minos"),
            ("standby", "epoch"),
        ],
    ];
    let mut count = 0;
    for row in runs.iter().flat_map(|flags| rows(flags)) {
        let text = row.json();
        let value: Value = serde_json::from_str(&text).unwrap();
        schema::hold(&value, &schema, &schema, "").unwrap_or_else(|why| panic!("{why}: {text}"));
        let read: Row = serde_json::from_str(&text).unwrap();
        assert_eq!(read.json(), text, "a row that was read is written as it was");
        count += 1;
    }
    assert!(count > 20, "{count} rows");
}

#[test]
fn every_row_of_a_plan_is_of_its_own_schema() {
    let schema: Value = serde_json::from_str(&plan::schema()).unwrap();
    let mut sweep = Sweep::default();
    let flags = [("design", "all"), ("workload", "twitter-52"), ("requests", "2000")];
    for (name, values) in flags.iter().chain(&[("seeds", "1"), ("rate", "1e6,2e7")]) {
        sweep.set(name, values).unwrap();
    }
    let cases = sweep.cases(1.0).unwrap();
    let question = Question { slo_us: 100.0, workers_max: 16 };
    question.check(&cases).unwrap();
    let answers = plan::answers(&Study::new(Effort::Quick, 1, 2), &cases, question).unwrap();
    let refused = answers.iter().filter(|answer| answer.refusal.is_some()).count();
    assert_eq!((answers.len(), refused), (18, 9), "20 M/s are more than 16 cores");
    for row in answers.iter().flat_map(|answer| &answer.rows) {
        let text = row.json();
        let value: Value = serde_json::from_str(&text).unwrap();
        schema::hold(&value, &schema, &schema, "").unwrap_or_else(|why| panic!("{why}: {text}"));
    }
}

#[test]
fn what_is_not_of_the_schema_is_refused() {
    let (schema, text) = (schema(), rows(&[("load", "0.5")])[0].json());
    for (good, bad) in [
        ("laneway-sim-run/1", "laneway-sim-run/0"),
        ("\"load\":0.5", "\"load\":\"0.5\""),
        ("\"point\":0", "\"point\":0.5"),
        ("\"p99\":", "\"p98\":"),
        ("\"steady\"", "\"fine\""),
    ] {
        let changed = text.replacen(good, bad, 1);
        assert_ne!(changed, text, "no {good} to change");
        let value = serde_json::from_str(&changed).unwrap();
        assert!(schema::hold(&value, &schema, &schema, "").is_err(), "{bad} passes");
    }
}

#[test]
fn every_axis_is_in_the_schema_and_says_its_unit() {
    let (schema, help) = (schema(), help());
    let words = ["design", "service-file", "trace", "cost", "slice-order", "steal-when-idle"];
    let words = [&words[..], &["extra-large", "queue", "standby", "profile", "nic-order"]].concat();
    let words = [&words[..], &["tx-queues", "way", "reach", "urgency", "workload"]].concat();
    let words = [&words[..], &["access", "zipf"]].concat();
    for line in help.lines() {
        let name = line.trim_start_matches("  --").split(' ').next().unwrap();
        assert!(SCHEMA_TEXT.contains(&format!("asked: --{name}\"")), "--{name} is not in it");
        let has_unit = !line[23..31].trim().is_empty();
        assert_eq!(has_unit, !words.contains(&name), "{line}");
    }
    let asked = schema["properties"].as_object().unwrap().values().filter(|property| {
        property["description"].as_str().is_some_and(|words| words.starts_with("asked: "))
    });
    assert_eq!(asked.count(), help.lines().count(), "no axis has gone");
}
