//! What may be built in: the licence and the source of every package that cargo would build.
//!
//! The rules stand in `deny.toml`, which is cargo-deny's file. cargo-deny checks the same, and
//! advisories besides; but it has to be compiled first and needs the network, and this has not.

use super::Finding;
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

const RULES: &str = include_str!("../../../deny.toml");

/// The texts of a list of `deny.toml`.
fn texts(list: &Value) -> Result<Vec<String>, String> {
    serde_json::from_value(list.clone()).map_err(|error| format!("deny.toml: {list}: {error}"))
}

/// Complain about packages in what `cargo metadata` printed.
pub fn check(metadata: &str, found: &mut Vec<Finding>) -> Result<(), String> {
    let rules: Value = toml::from_str(RULES).map_err(|error| format!("deny.toml: {error}"))?;
    let allow = texts(&rules["licenses"]["allow"])?;
    let registries = texts(&rules["sources"]["allow-registry"])?;
    let bans = rules["bans"]["deny"].as_array().ok_or("deny.toml bans nothing")?;
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().filter(|packages| !packages.is_empty());
    let allowed: Vec<Licensee> =
        allow.iter().filter_map(|name| Licensee::parse(name).ok()).collect();
    assert_eq!(allowed.len(), allow.len(), "a licence of the list has no such name");
    for package in packages.ok_or("cargo metadata names no package")? {
        let name = package["name"].as_str().unwrap_or_default();
        let mut complain = |rule, text| {
            let subject = format!("the package {name}");
            found.push(Finding { rule, subject, line: 0, text });
        };
        if let Err(why) = licensed(package["license"].as_str(), &allowed) {
            complain("licence", why);
        }
        // Our own have no source.
        let is_allowed = |source: &&str| {
            let url = source.strip_prefix("registry+");
            url.is_some_and(|url| registries.iter().any(|allowed| allowed == url))
        };
        if let Some(source) = package["source"].as_str().filter(|source| !is_allowed(source)) {
            complain("source", format!("comes from {source}, which deny.toml does not allow"));
        }
        if let Some(ban) = bans.iter().find(|ban| ban["crate"] == name) {
            complain("banned", format!("is not built in: {}", ban["reason"]));
        }
    }
    Ok(())
}

/// Whether what an expression demands is met by licences that are allowed.
fn licensed(expression: Option<&str>, allowed: &[Licensee]) -> Result<(), String> {
    let text = expression.ok_or("names no licence")?;
    // `MIT/Apache-2.0`, as packages of old have it.
    let parsed = Expression::parse_mode(text, ParseMode::LAX);
    let parsed = parsed.map_err(|error| format!("the licence {text} cannot be read: {error}"))?;
    let is_allowed = |wanted: &spdx::LicenseReq| allowed.iter().any(|one| one.satisfies(wanted));
    match parsed.evaluate(is_allowed) {
        true => Ok(()),
        false => Err(format!("the licence {text} is not among those that deny.toml allows")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

    /// The rules that complain about one package.
    fn rules(name: &str, license: Value, source: Value) -> Vec<&'static str> {
        let package = serde_json::json!({ "name": name, "license": license, "source": source });
        let metadata = serde_json::json!({ "packages": [package] }).to_string();
        let mut found = Vec::new();
        check(&metadata, &mut found).expect("it is metadata");
        found.into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn licences_are_allowed_as_their_expressions_say() {
        for (license, allowed) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("AGPL-3.0-or-later", false),
            ("as you like", false),
        ] {
            let expected: &[&str] = if allowed { &[] } else { &["licence"] };
            assert_eq!(rules("a", license.into(), REGISTRY.into()), expected, "{license}");
        }
        assert_eq!(rules("a", Value::Null, Value::Null), ["licence"]);
    }

    #[test]
    fn sources_and_banned_packages_are_told() {
        assert_eq!(rules("a", "MIT".into(), Value::Null), [""; 0]);
        assert_eq!(rules("a", "MIT".into(), "git+https://example.org/a".into()), ["source"]);
        assert_eq!(rules("openssl-sys", "MIT".into(), REGISTRY.into()), ["banned"]);
        assert!(check("{}", &mut Vec::new()).is_err() && check("", &mut Vec::new()).is_err());
    }
}
