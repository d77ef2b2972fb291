//! Who may know whom, and who may depend on nothing, read from the manifests.

use super::words::push;
use super::{Finding, RULES, Source, Tree};

const OURS: &str = "laneway-";

pub fn check(tree: &Tree, found: &mut Vec<Finding>) {
    for file in &tree.files {
        let parts: Vec<&str> = file.path.split('/').collect();
        if let ["crates", name, "Cargo.toml"] = parts[..] {
            manifest(file, name, found);
        }
    }
}

fn manifest(file: &Source, name: &str, found: &mut Vec<Finding>) {
    let mut complain = |rule, text: String| push(found, rule, file, 0, text);
    let Ok(table) = file.text.parse::<toml::Table>() else {
        return complain("manifest", "is not TOML".into());
    };
    let Some(known) = RULES.knows.get(name) else {
        return complain("who-knows", format!("{name} is not in the map of who may know whom"));
    };
    let lints = table.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        complain("lints", format!("{name} does not take the lints of the workspace"));
    }
    for dependency in dependencies(&table) {
        let loom = dependency.name == "loom" && dependency.condition == "cfg(loom)";
        let is_alone = RULES.alone.iter().any(|room| room == name);
        if is_alone && !dependency.for_tests && !loom {
            complain("alone", format!("{name} depends on nothing, not on {}", dependency.name));
        }
        let Some(other) = dependency.name.strip_prefix(OURS) else {
            if dependency.name == "laneway" {
                complain("who-knows", format!("nobody knows laneway, and {name} does"));
            }
            continue;
        };
        if !known.iter().any(|room| room == other) && !dependency.for_tests {
            complain("who-knows", format!("{name} may know {known:?}, not {other}"));
        }
    }
}

struct Dependency {
    name: String,
    /// `cfg(loom)`, or empty.
    condition: String,
    for_tests: bool,
}

fn dependencies(manifest: &toml::Table) -> Vec<Dependency> {
    let table_of = |table: &toml::Table, name: &str| table.get(name)?.as_table().cloned();
    let mut tables = vec![(String::new(), manifest.clone())];
    for (condition, table) in table_of(manifest, "target").unwrap_or_default() {
        tables.extend(table.as_table().map(|table| (condition, table.clone())));
    }
    let mut all = Vec::new();
    for (condition, table) in &tables {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let for_tests = section == "dev-dependencies";
            for (name, _) in table_of(table, section).unwrap_or_default() {
                all.push(Dependency { name, condition: condition.clone(), for_tests });
            }
        }
    }
    all
}
