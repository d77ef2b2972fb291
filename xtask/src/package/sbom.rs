//! What the binary is made of (a software bill of materials): every package of others that is
//! built into it, by version, licence and checksum, as CycloneDX 1.5.
//!
//! cargo-cyclonedx writes the same, and has to be compiled by whoever asks. This is what `cargo
//! tree` tells of a release's features on this machine, and the checksums of Cargo.lock.

use crate::features::RELEASED;
use crate::package::deb;
use crate::{Outcome, failed, passed, process};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of a package that is certainly in it.
const ALWAYS: &str = "rustls";

/// The text of the file.
pub fn text() -> Result<String, String> {
    let mut cargo = process::cargo();
    cargo.args(["tree", "--quiet", "--locked", "--package", "laneway", "--edges", "normal"]);
    cargo.args(["--features", RELEASED]);
    let tree = process::printed(cargo.args(["--prefix", "none", "--format", "{p}\t{l}"]))?;
    let sums = checksums(&process::read(process::root().join("Cargo.lock"))?)?;
    let bill = bill(&tree, &sums)?;
    Ok(format!("{bill:#}\n"))
}

/// Whether it can be written, and names what is built in.
pub fn check() -> Outcome {
    let bill: Value = serde_json::from_str(&text()?).map_err(|error| error.to_string())?;
    let components = bill["components"].as_array().map_or(&[][..], Vec::as_slice);
    let whole = |one: &&Value| one["hashes"][0]["content"].is_string();
    if components.iter().filter(whole).count() < components.len() {
        return failed("a package of the bill of materials has no checksum");
    }
    match components.iter().any(|one| one["name"] == ALWAYS) {
        true => passed(format!("{} packages of others are built in", components.len())),
        false => failed(format!("the bill of materials does not name {ALWAYS}")),
    }
}

/// By name and version, of every package that came from a registry.
type Checksums = BTreeMap<(String, String), String>;

fn checksums(lock: &str) -> Result<Checksums, String> {
    let lock: toml::Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.ok_or("Cargo.lock names no package")?;
    let of = |package: &toml::Value| {
        let field = |name| Some(package.get(name)?.as_str()?.to_owned());
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    Ok(packages.iter().filter_map(of).collect())
}

/// The bill, of lines of `NAME vVERSION ...`, a tab and the licence. What has no checksum is ours.
fn bill(tree: &str, sums: &Checksums) -> Result<Value, String> {
    let mut components = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("cargo tree told {line:?}");
        let (package, licence) = line.split_once('\t').ok_or_else(wrong)?;
        let mut words = package.split(' ');
        let (name, version) = words.next().zip(words.next()).ok_or_else(wrong)?;
        let version = version.strip_prefix('v').ok_or_else(wrong)?;
        let key = (name.to_owned(), version.to_owned());
        let Some(sum) = sums.get(&key) else { continue };
        let place = format!("pkg:cargo/{name}@{version}");
        // `MIT/Apache-2.0`, as packages of old have it, is no expression of SPDX.
        let licence = licence.replace('/', " OR ");
        let component = json!({
            "type": "library",
            "bom-ref": place,
            "name": name,
            "version": version,
            "licenses": [{ "expression": licence }],
            "purl": place,
            "hashes": [{ "alg": "SHA-256", "content": sum }],
        });
        components.insert(key, component);
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": format!("pkg:cargo/laneway@{}", deb::VERSION),
                "name": "laneway",
                "version": deb::VERSION,
                "licenses": [{ "expression": "Apache-2.0" }],
            },
        },
        "components": components.into_values().collect::<Vec<Value>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\
        [[package]]\nname = \"log\"\nversion = \"0.4.2\"\nchecksum = \"ab\"\n\
        [[package]]\nname = \"laneway\"\nversion = \"0.1.0\"\n";

    #[test]
    fn packages_of_others_are_named_once_and_ours_are_not() {
        let sums = checksums(LOCK).expect("it is whole");
        let tree = "laneway v0.1.0 (/here)\tApache-2.0\nlog v0.4.2\tMIT/Apache-2.0\n\n\
                    log v0.4.2 (*)\tMIT/Apache-2.0\n";
        let bill = bill(tree, &sums).expect("it is sound");
        let components = bill["components"].as_array().expect("a list");
        assert_eq!(components.len(), 1);
        let log = &components[0];
        assert_eq!(log["purl"], "pkg:cargo/log@0.4.2");
        assert_eq!(log["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(log["hashes"][0]["content"], "ab");
        assert_eq!(bill["metadata"]["component"]["name"], "laneway");
    }

    #[test]
    fn what_cargo_did_not_tell_is_an_error() {
        let sums = Checksums::new();
        for tree in ["log v0.4.2", "log\tMIT", "log 0.4.2\tMIT"] {
            assert!(bill(tree, &sums).is_err(), "{tree}");
        }
        assert!(checksums("package = 1").is_err() && checksums("[").is_err());
    }
}
