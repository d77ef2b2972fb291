//! Service times that `laneway bench --service-times` has written are read by `laneway sim run
//! --service-file`. It measures a process, and so is a program of its own.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the load generator's tests use all of it")]
#[path = "../../load/tests/it/scripted.rs"]
mod scripted;

use laneway_load::{cli, service};
use laneway_sim::study::{Effort, Study};
use laneway_sim::sweep::Sweep;

#[test]
fn what_bench_measures_sim_simulates() {
    let (address, _) = scripted::serve(scripted::Fault::None);
    let pid = std::process::id();
    let path = std::env::temp_dir().join(format!("laneway-times-{pid}"));
    let file = path.to_str().unwrap();
    let line = format!(
        "--server {address} --server-pid {pid} --keys 200 --keys-large 10 --p-large 20 --s-large \
         50000 --duration 0.02 --warmup 0 --drain 60 --service-times {file}"
    );
    let plan = cli::plan(line.split_ascii_whitespace()).unwrap();
    // Whether each run counts hangs on the machine; that all are there does not.
    service::measure(&plan, &path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<u64>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').map(|cell| cell.parse().unwrap()).collect())
        .collect();
    assert!(rows.is_sorted_by_key(|row| row[0]) && rows.iter().all(|row| row[1] > 0), "{text}");
    let weight = |large: bool| -> u64 {
        rows.iter().filter(|row| (row[0] >= 1_500) == large).map(|row| row[2]).sum()
    };
    assert_eq!(weight(true) + weight(false), 1_000_000);
    assert!(weight(true).abs_diff(200_000) < 5_000, "{text}");
    let mut sweep = Sweep::default();
    let flags = [("service-file", file), ("requests", "5000"), ("seeds", "1"), ("design", "hkh")];
    for (name, value) in flags {
        sweep.set(name, value).unwrap();
    }
    let rows = sweep.run(&Study::new(Effort::Quick, 1, 1), None).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(rows[0].number("requests"), Some(5_000.0), "{}", rows[0].json());
}
