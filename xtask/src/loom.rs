//! Every loom model, and the canaries that show that the models can fail.
//!
//! Models are the test files `loom_*.rs` of any crate; a canary is a feature `canary-MODEL-...`
//! that takes away one fence, order or check, after which the model of that name must fail.
//! A canary that does not compile counts as broken, not as failing as it should.

use crate::outcome::{Outcome, failed, passed};
use crate::process;
use std::path::PathBuf;
use std::process::Command;

pub const HELP: &str = "\
Model-check the lock-free primitives with loom, or show that the models can fail.

usage: cargo xtask loom [--canary] [NAME]

  --canary   build each model with each of its canary features; every one must FAIL
  NAME       only the models or canaries whose name contains NAME

The build lies in its own folder, target/loom, because `--cfg loom` changes every crate.";

/// One model: a test file of a crate.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    package: String,
    test: String,
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut canary = false;
    let mut only = String::new();
    flags!(parser, {
        Long("canary") => canary = true,
        Value(name) => only = name.to_string_lossy().into_owned(),
    });
    let crates = crates()?;
    match canary {
        false => models(&crates, &only),
        true => canaries(&crates, &only),
    }
}

fn models(crates: &[Crate], only: &str) -> Outcome {
    let models: Vec<Model> = crates.iter().flat_map(Crate::models).collect();
    let chosen: Vec<&Model> = models.iter().filter(|m| m.test.contains(only)).collect();
    if chosen.is_empty() {
        return failed(format!("no loom model matches `{only}`"));
    }
    for model in &chosen {
        println!("loom: {}", model.test);
        process::run(cargo_test(model, &[]).arg("--").arg("--nocapture"))?;
    }
    passed(format!("{} models explored", chosen.len()))
}

fn canaries(crates: &[Crate], only: &str) -> Outcome {
    let mut sung = 0;
    let mut silent = Vec::new();
    for (model, feature) in crates.iter().flat_map(Crate::canaries) {
        if !feature.contains(only) {
            continue;
        }
        let Some(model) = model else {
            return failed(format!("`{feature}` names no model: no tests/loom_*.rs of that name"));
        };
        let mut build = cargo_test(&model, &["--no-run", "--quiet", "--features", &feature]);
        process::run(&mut build)?;
        let (status, text) = process::capture(&mut cargo_test(&model, &["--features", &feature]))?;
        let found = !status.success();
        println!("canary: {feature}: {}", if found { "fails, as it must" } else { "PASSES" });
        match found {
            true => sung += 1,
            false => {
                println!("{text}");
                silent.push(feature);
            }
        }
    }
    match (silent.is_empty(), sung) {
        (true, 0) => failed(format!("no canary feature matches `{only}`")),
        (true, _) => passed(format!("{sung} canaries make their model fail")),
        (false, _) => failed(format!("a model passes without what it checks: {silent:?}")),
    }
}

fn cargo_test(model: &Model, flags: &[&str]) -> Command {
    let mut command = process::cargo();
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", loom_dir());
    // Optimised, or the models take minutes; without what only the linker would spend time on.
    command.envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")]);
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.args(["test", "--release", "-p", &model.package, "--test", &model.test]).args(flags);
    command
}

fn loom_dir() -> PathBuf {
    process::target_dir().join("loom")
}

/// What a crate says about loom: its test files and its features.
struct Crate {
    package: String,
    tests: Vec<String>,
    features: Vec<String>,
}

impl Crate {
    fn models(&self) -> Vec<Model> {
        let model = |test: &String| Model { package: self.package.clone(), test: test.clone() };
        self.tests.iter().map(model).collect()
    }

    /// `canary-seqlock-fence-reader` belongs to the model `loom_seqlock`.
    fn canaries(&self) -> Vec<(Option<Model>, String)> {
        let canaries = self.features.iter().filter_map(|feature| {
            let rest = feature.strip_prefix("canary-")?;
            let belongs = |m: &Model| {
                let name = m.test.trim_start_matches("loom_").replace('_', "-");
                rest == name || rest.starts_with(&format!("{name}-"))
            };
            Some((self.models().into_iter().find(belongs), feature.clone()))
        });
        canaries.collect()
    }
}

fn crates() -> Result<Vec<Crate>, String> {
    let folder = process::root().join("crates");
    let mut crates = Vec::new();
    for name in process::named(&folder, "")? {
        let path = folder.join(name);
        let Ok(text) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let manifest: toml::Table =
            text.parse().map_err(|e| format!("{}/Cargo.toml: {e}", path.display()))?;
        let features = manifest.get("features").and_then(|f| f.as_table());
        let features = features.into_iter().flat_map(|f| f.keys().cloned()).collect();
        let mut tests = process::named(&path.join("tests"), ".rs").unwrap_or_default();
        tests.retain(|name| name.starts_with("loom_"));
        let package = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
        let Some(package) = package.map(String::from) else { continue };
        crates.push(Crate { package, tests, features });
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_belongs_to_the_model_of_its_second_word() {
        let room = Crate {
            package: "laneway-sync".into(),
            tests: vec!["loom_ring".into(), "loom_seqlock".into()],
            features: vec![
                "canary-seqlock-fence-reader".into(),
                "canary-lost-order".into(),
                "plain".into(),
            ],
        };
        let canaries = room.canaries();
        assert_eq!(canaries.len(), 2);
        assert_eq!(canaries[0].0.as_ref().map(|m| m.test.as_str()), Some("loom_seqlock"));
        assert_eq!(canaries[1].0, None);
    }
}
