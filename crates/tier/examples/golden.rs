//! Writes the golden images of the format as this program has it, for a new version:
//! `cargo run -p laneway-tier --example golden -- crates/tier/tests/golden`.

#[path = "../tests/golden/mod.rs"]
mod golden;

use laneway_tier::IndexKind;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default();
    for (index, version) in [(IndexKind::BTree, 2), (IndexKind::Fair, 3)] {
        let image = golden::make(index);
        assert_eq!(golden::Image::decode(&image.encode()).log, image.log);
        std::fs::write(folder.join(format!("format-{version}.image")), image.encode())?;
        println!("format {version}: {} items", golden::items().len());
    }
    Ok(())
}
