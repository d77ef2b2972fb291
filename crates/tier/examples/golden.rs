//! Writes the golden images of the format as this program has it, and their manifests, for a new
//! version, or for one that a store has by what is in it:
//! `cargo run -p laneway-tier --example golden -- crates/tier/tests/golden`.

#[path = "../tests/golden/mod.rs"]
mod golden;

use golden::Image;
use laneway_tier::IndexKind;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default();
    for index in [IndexKind::BTree, IndexKind::Fair] {
        let (cut, said) = golden::make_cut(index);
        write(&folder, "", &golden::make(index), &golden::manifest())?;
        write(&folder, "-cut", &cut, &said)?;
    }
    for features in golden::FEATURES {
        let (image, said) = golden::make_more(features);
        write(&folder, "", &image, &said)?;
    }
    Ok(())
}

/// Under the version that it says; one that is there stays as it is.
fn write(folder: &Path, kind: &str, image: &Image, manifest: &str) -> std::io::Result<()> {
    assert_eq!(Image::decode(&image.encode()).log, image.log);
    let name = format!("format-{}{kind}", image.version());
    let path = |end: &str| folder.join(format!("{name}.{end}"));
    if path("image").exists() && path("manifest").exists() {
        println!("{name} is there");
        return Ok(());
    }
    let both = [("image", &image.encode()[..]), ("manifest", manifest.as_bytes())];
    for (end, bytes) in both {
        let there = |error| std::io::Error::other(format!("{}: {error}", path(end).display()));
        File::create_new(path(end)).and_then(|mut file| file.write_all(bytes)).map_err(there)?;
    }
    println!("{name}: {} keys", manifest.lines().count() - 1);
    Ok(())
}
