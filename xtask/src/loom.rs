//! Every loom model, and the canaries that show that the models can fail.
//!
//! Models are the test files `loom_*.rs` of any crate. A canary (`laneway_sync::canary`) takes away
//! one fence, order or check, after which the model that its name begins with must fail. It sings
//! in the model's one program, which is built for all of them.

use crate::{Outcome, failed, passed, process};
use laneway_sync::canary::{Canary, VARIABLE};
use std::process::Command;

/// One model: a test file of a crate.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    package: String,
    test: String,
}

impl Model {
    /// Whether a canary is its own: `seqlock-fence-reader` is that of `loom_seqlock`.
    fn has(&self, canary: &str) -> bool {
        let name = self.test.trim_start_matches("loom_").replace('_', "-");
        let rest = canary.strip_prefix(&name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut canary = false;
    let mut only = String::new();
    flags!(parser, {
        Long("canary") => canary = true,
        Value(name) => only = name.to_string_lossy().into_owned(),
    });
    let models = models()?;
    match canary {
        false => explore(&models, &only),
        true => canaries(&models, &only),
    }
}

fn explore(models: &[Model], only: &str) -> Outcome {
    let chosen: Vec<&Model> = models.iter().filter(|m| m.test.contains(only)).collect();
    if chosen.is_empty() {
        return failed(format!("no loom model matches `{only}`"));
    }
    for model in &chosen {
        println!("loom: {}", model.test);
        process::run(cargo_test(model).args(["--", "--nocapture"]))?;
    }
    passed(format!("{} models explored", chosen.len()))
}

fn canaries(models: &[Model], only: &str) -> Outcome {
    let names: Vec<&str> = Canary::ALL.iter().map(|(_, name)| *name).collect();
    if let Some(name) = names.iter().find(|name| !models.iter().any(|model| model.has(name))) {
        return failed(format!("`{name}` names no model: no tests/loom_*.rs of that name"));
    }
    let (mut sung, mut silent) = (0, Vec::new());
    for model in models {
        let own = names.iter().filter(|name| model.has(name) && name.contains(only));
        let own: Vec<&str> = own.copied().collect();
        if own.is_empty() {
            continue;
        }
        // Built by itself: what cannot be built is no canary that sings.
        process::run(cargo_test(model).arg("--no-run"))?;
        for canary in own {
            let (status, text) = process::capture(cargo_test(model).env(VARIABLE, canary))?;
            // Cargo names the program as it starts it: what never ran has not failed.
            if !text.contains(&format!("tests/{}.rs (", model.test)) {
                return failed(format!("{canary}: its model did not run: {}", text.trim()));
            }
            let found = !status.success();
            println!("canary: {canary}: {}", if found { "fails, as it must" } else { "PASSES" });
            match found {
                true => sung += 1,
                false => {
                    println!("{text}");
                    silent.push(canary);
                }
            }
        }
    }
    match (silent.is_empty(), sung) {
        (true, 0) => failed(format!("no canary matches `{only}`")),
        (true, _) => passed(format!("{sung} canaries make their model fail")),
        (false, _) => failed(format!("a model passes without what it checks: {silent:?}")),
    }
}

fn cargo_test(model: &Model) -> Command {
    let mut command = process::cargo();
    command.env("CARGO_TARGET_DIR", process::target_dir().join("loom"));
    command.env("RUSTFLAGS", "--cfg loom");
    // Optimised, or the models take minutes; without what only the linker would spend time on.
    command.envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")]);
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.args(["test", "--release", "-p", &model.package, "--test", &model.test]);
    command
}

fn models() -> Result<Vec<Model>, String> {
    let folder = process::root().join("crates");
    let mut models = Vec::new();
    for name in process::named(&folder, "")? {
        let package = format!("laneway-{name}");
        let mut tests = process::named(&folder.join(name).join("tests"), ".rs").unwrap_or_default();
        tests.retain(|name| name.starts_with("loom_"));
        models.extend(tests.into_iter().map(|test| Model { package: package.clone(), test }));
    }
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_canary_belongs_to_the_one_model_that_its_name_begins_with() {
        let models = models().expect("the crates are there");
        for (_, canary) in Canary::ALL {
            let own = models.iter().filter(|model| model.has(canary)).count();
            assert_eq!(own, 1, "{canary}");
        }
        let model = |test: &str| Model { package: "laneway-sync".into(), test: test.into() };
        assert!(model("loom_seqlock").has("seqlock-fence-reader"));
        assert!(!model("loom_ring").has("rings-order") && !model("loom_ring").has("lost-order"));
    }
}
