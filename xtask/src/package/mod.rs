//! What a release is made of, checked with the binary that is there: the Debian package in a clean
//! Debian root, the image's root as its user, the unit's rights, the manifests of Kubernetes.
//!
//! Each part can fail by itself, and says by name why it cannot be tried here.

pub mod deb;
mod debian;
mod guide;
mod image;
pub mod kubernetes;
pub mod sbom;
mod unit;
mod user;

use crate::outcome::{Failure, Outcome, SKIPPED_PREFIX, passed, skipped};
use crate::{Executable, place};
use std::path::{Path, PathBuf};

struct Part {
    name: &'static str,
    run: fn(&Path) -> Outcome,
}

const PARTS: &[Part] = &[
    Part { name: "unit", run: |_| unit::check() },
    Part { name: "sbom", run: |_| sbom::check() },
    Part { name: "kubernetes", run: kubernetes::check },
    Part { name: "image", run: image::check },
    Part { name: "deb", run: debian_package },
];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut only = None;
    flags!(parser, { Long("only") => only = Some(parser.value()?.string()?), });
    let is_meant = |part: &&Part| only.as_deref().is_none_or(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(is_meant).collect();
    if parts.is_empty() {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(Failure::Usage(format!("--only: one of {}", names.join(", "))));
    }
    // These are judged without it, so that their check needs no build.
    let binary = match parts.iter().any(|part| !["unit", "sbom"].contains(&part.name)) {
        true => Executable::laneway()?.path().to_path_buf(),
        false => PathBuf::new(),
    };
    let (mut good, mut left_out) = (Vec::new(), Vec::new());
    for part in parts {
        match (part.run)(&binary) {
            Ok(note) => {
                println!("{}: {note}", part.name);
                good.push(part.name);
            }
            Err(Failure::Skipped(why)) => {
                println!("{SKIPPED_PREFIX}{}: {why}", part.name);
                left_out.push(part.name);
            }
            Err(failure) => return Err(failure),
        }
    }
    match good.is_empty() {
        true => skipped(format!("nothing of {} can be tried here", left_out.join(", "))),
        false => passed(format!("good: {}", good.join(", "))),
    }
}

/// Built, and then everything that can be done with it in a clean root.
fn debian_package(binary: &Path) -> Outcome {
    place::need_root("installing a package into a root")?;
    let base = debian::base()?;
    let folder = place::Folder::make("package-deb")?;
    let package = deb::build(binary, Path::new(&folder.file("")), deb::QUICK)?;
    let root = debian::Root::of(&base, &folder)?;
    let commands = guide::commands()?;
    debian::install(&root, &package, &commands)?;
    let served = debian::serve(&root)?;
    debian::remove(&root)?;
    passed(format!("{} commands of docs/install.md ran, {served}", commands.len()))
}
