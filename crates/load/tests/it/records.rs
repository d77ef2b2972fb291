//! Every record of bench/record against bench/record/schema.json, the form other programs read.

use crate::schema::hold;
use laneway_load::pairs::record::Record;
use serde_json::Value;
use std::path::Path;

fn of_record(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/record");
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn schema() -> Value {
    serde_json::from_str(&of_record("schema.json")).expect("JSON")
}

#[test]
fn every_record_is_of_the_one_schema_and_so_is_what_is_made_of_it() {
    let (schema, mut records) = (schema(), 0);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/record");
    for entry in std::fs::read_dir(folder).expect("the records' folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_suffix(".jsonl") else {
            assert_eq!(name, "schema.json", "no record");
            continue;
        };
        for (index, line) in of_record(&name).lines().enumerate() {
            let at = format!("{name}:{}", index + 1);
            let record = Record::parse(line).unwrap_or_else(|why| panic!("{at}: {why}"));
            assert_eq!(record.id, id, "{at}");
            let read: Value = serde_json::from_str(line).expect("it was read before");
            for value in [read, serde_json::to_value(&record).expect("JSON")] {
                hold(&value, &schema, &schema, &at).unwrap_or_else(|why| panic!("{why:.400}"));
            }
            records += 1;
        }
    }
    assert!(records > 0, "no record was looked at");
}

#[test]
fn what_is_not_of_the_schema_is_refused() {
    let (schema, text) = (schema(), of_record("compare.jsonl"));
    let line = text.lines().next().expect("a line");
    for (good, bad) in [
        ("\"commit\":", "\"mood\":1,\"commit\":"),
        ("\"cpus\":", "\"mood\":1,\"cpus\":"),
        ("\"netns\":", "\"mood\":1,\"netns\":"),
        ("\"dialect\":\"text\"", "\"dialect\":\"prose\""),
        ("laneway-pairs/1", "laneway-pairs/0"),
        ("\"pairs\":3", "\"pairs\":3.5"),
        ("\"good\":", "\"bad\":"),
    ] {
        let changed = line.replacen(good, bad, 1);
        assert_ne!(changed, line, "no {good} to change");
        let value = serde_json::from_str(&changed).expect("JSON");
        assert!(hold(&value, &schema, &schema, "").is_err(), "{bad} passes");
    }
}
