//! Twitter's cache clusters by their published means (Yang, Yue and Vinayak, OSDI 2020;
//! bench/data/README.md).
//!
//! What a mean does not say is made up, and always the same way: keys are all as long as their
//! mean, values are spread exponentially around theirs, and requests are drawn independently by a
//! Zipf distribution of the published exponent, so bursts and drifts of popularity are lost.

use super::keys::KeySizes;
use super::sizes::{Sizes, Spread};
use super::{Pattern, WorkloadOptions};

const TABLE: &str = include_str!("../../../../bench/data/twitter-2020Mar-clusters.csv");

/// Cluster `number` as a workload of `keys` keys; the error says what is not published of it. Every
/// operation that writes is a SET there, and `incr` too: the load generator has no other.
pub fn cluster(number: u32, keys: u64) -> Result<WorkloadOptions, String> {
    let name = format!("cluster{number}");
    let mut lines = TABLE.lines();
    let head = cells(lines.next().unwrap_or_default());
    let row = lines.map(cells).find(|row| row[0] == name);
    let row = row.ok_or(format!("twitter-{number}: there are clusters 1 to 54"))?;
    let cell = |column: &str| {
        let at = head.iter().position(|name| name == column);
        at.and_then(|at| row.get(at)).map_or("", String::as_str)
    };
    let missing = |column: &str| format!("twitter-{number}: its {column} is not published");
    let whole_number = |column: &str| {
        let value = cell(column).parse().ok().filter(|&value: &f64| value > 0.0);
        value.map(f64::trunc).ok_or_else(|| missing(column))
    };
    // Operations by their names in the traces, with the share of each: `name:0.95 other:0.05`, with
    // or without commas.
    let words = cell("operations").split([' ', ',']).filter_map(|word| word.split_once(':'));
    let operations: Vec<(&str, f64)> =
        words.filter_map(|(name, share)| Some((name, share.parse().ok()?))).collect();
    if operations.is_empty() {
        return Err(missing("operations"));
    }
    let all: f64 = operations.iter().map(|(_, share)| share).sum();
    let share = |names: &[&str]| {
        let wanted = operations.iter().filter(|(name, _)| names.contains(name));
        wanted.map(|(_, share)| share).sum::<f64>() / all
    };
    let key_sizes = KeySizes::Fixed { key_bytes: whole_number("key_bytes")? as u64 };
    Ok(WorkloadOptions {
        keys,
        keys_large: 0,
        large_percent: 0.0,
        sizes: Sizes::Spread(Spread::with_mean(1, whole_number("value_bytes")?)),
        get_share: share(&["get", "gets"]),
        delete_share: share(&["delete"]),
        // An exponent of 0 is published where no Zipf distribution fits.
        zipf_exponent: cell("zipf_alpha").parse().map_err(|_| missing("zipf_alpha"))?,
        pattern: Pattern::Popular,
        key_sizes,
        ..WorkloadOptions::default()
    })
}

/// The cells of a line of CSV, of which some are quoted.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().into_iter().for_each(|cell| cell.push(letter)),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_as_it_was_published() {
        let four = cluster(4, 1_000).expect("published");
        assert_eq!((four.keys, four.key_sizes), (1_000, KeySizes::Fixed { key_bytes: 67 }));
        assert_eq!(four.sizes, Sizes::Spread(Spread::with_mean(1, 2_439.0)));
        assert_eq!((four.zipf_exponent, four.get_share, four.delete_share), (1.1004, 0.93, 0.0));
        // get 0.96, add 0.01, gets 0.01, cas 0.01: of 0.99.
        let eighteen = cluster(18, 1_000).expect("published");
        assert!((eighteen.get_share - 0.97 / 0.99).abs() < 1e-12);
        for number in [4, 8, 12, 13, 18, 52] {
            let options = cluster(number, 1_000).expect("those that have names are whole");
            let shares = options.get_share + options.delete_share;
            assert!((0.0..=1.0 + 1e-9).contains(&shares), "{number}: {shares}");
        }
    }
}
