//! Writes the golden images of the format as this program has it, and their manifests, for a new
//! version: `cargo run -p laneway-tier --example golden -- crates/tier/tests/golden`.

#[path = "../tests/golden/mod.rs"]
mod golden;

use golden::Image;
use laneway_tier::IndexKind;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default();
    for (index, version) in [(IndexKind::BTree, 2), (IndexKind::Fair, 3)] {
        let (cut, said) = golden::make_cut(index);
        write(&folder, &format!("format-{version}"), &golden::make(index), &golden::manifest())?;
        write(&folder, &format!("format-{version}-cut"), &cut, &said)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, image: &Image, manifest: &str) -> std::io::Result<()> {
    assert_eq!(Image::decode(&image.encode()).log, image.log);
    std::fs::write(folder.join(format!("{name}.image")), image.encode())?;
    std::fs::write(folder.join(format!("{name}.manifest")), manifest)?;
    println!("{name}: {} keys", manifest.lines().count() - 1);
    Ok(())
}
