//! The tier as an embedded library: `cargo run -p laneway-tier --example embedded [FOLDER]`

#![forbid(unsafe_code)]

use laneway_tier::{Directory, DirectorySettings, ItemMeta};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("laneway-embedded"), std::path::PathBuf::from);
    let mut settings = DirectorySettings::new(&folder);
    (settings.pm_bytes, settings.ssd_bytes) = (32 << 20, 64 << 20);
    let (store, report) = Directory::open(&settings, &mut |_, _| {})?;
    println!("{}: {} items from before", folder.display(), report.items);
    for problem in &report.problems {
        println!("problem: {problem}");
    }

    // Durable when it returns: the small one in the log, the large one on the SSD.
    store.put(b"a small one", b"value", ItemMeta::default())?;
    store.put(b"a large one", &vec![7; 100_000], ItemMeta::default())?;
    let item = store.get(b"a large one")?.ok_or("it was just put")?;
    println!("a large one: {} bytes, sequence {}", item.value.len(), item.sequence);

    // Many in one group.
    for number in 0..1000 {
        let key = format!("many-{number:04}");
        store.submit_put(key.as_bytes(), b"one of many", ItemMeta::default(), None)?;
    }
    store.commit()?;
    for (key, item) in store.scan(b"many-0500", Some(b"many-0503"), 10) {
        println!("{}: {} bytes", key.escape_ascii(), item?.value.len());
    }
    store.delete(b"many-0501")?;
    println!("{:.2} bytes written for each of the user's", store.stats().write_amplification());
    store.close()?;
    Ok(())
}
