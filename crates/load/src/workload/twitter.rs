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

/// One cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Mean bytes of a key.
    pub key_bytes: u64,
    /// Mean bytes of a value.
    pub value_bytes: u64,
    /// Operations by their names in the traces, with the share of each.
    pub operations: Vec<(String, f64)>,
    /// Exponent of the popularity.
    pub zipf_exponent: f64,
}

impl Cluster {
    /// Cluster `number`; the error says what is not published of it.
    pub fn new(number: u32) -> Result<Self, String> {
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
        let number_of = |column: &str| {
            let value = cell(column).parse().ok().filter(|&value: &f64| value > 0.0);
            value.ok_or_else(|| missing(column))
        };
        let operations = shares(cell("operations"));
        if operations.is_empty() {
            return Err(missing("operations"));
        }
        Ok(Cluster {
            key_bytes: number_of("key_bytes")? as u64,
            value_bytes: number_of("value_bytes")? as u64,
            operations,
            // An exponent of 0 is published where no Zipf distribution fits.
            zipf_exponent: cell("zipf_alpha").parse().map_err(|_| missing("zipf_alpha"))?,
        })
    }

    /// Share of the operations in `names`.
    pub fn share(&self, names: &[&str]) -> f64 {
        let all: f64 = self.operations.iter().map(|(_, share)| share).sum();
        let wanted = self.operations.iter().filter(|(name, _)| names.contains(&name.as_str()));
        wanted.map(|(_, share)| share).sum::<f64>() / all
    }

    /// The same as a workload of `keys` keys. Every operation that writes is a SET there, and
    /// `incr` too: the load generator has no other.
    pub fn workload(&self, keys: u64) -> WorkloadOptions {
        WorkloadOptions {
            keys,
            keys_large: 0,
            large_percent: 0.0,
            sizes: Sizes::Spread(Spread::with_mean(1, self.value_bytes as f64)),
            get_share: self.share(&["get", "gets"]),
            delete_share: self.share(&["delete"]),
            zipf_exponent: self.zipf_exponent,
            pattern: Pattern::Popular,
            key_sizes: KeySizes::Fixed { key_bytes: self.key_bytes },
            ..WorkloadOptions::default()
        }
    }
}

/// The cells of a line of CSV, of which some are quoted.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => {
                if let Some(cell) = cells.last_mut() {
                    cell.push(letter);
                }
            }
        }
    }
    cells
}

/// `name:0.95 other:0.05`, with or without commas.
fn shares(text: &str) -> Vec<(String, f64)> {
    let words = text.split([' ', ',']).filter_map(|word| word.split_once(':'));
    words.filter_map(|(name, share)| Some((name.to_owned(), share.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_as_it_was_published() {
        let four = Cluster::new(4).expect("published");
        assert_eq!((four.key_bytes, four.value_bytes), (67, 2_439));
        assert_eq!(four.zipf_exponent, 1.1004);
        assert_eq!(four.operations, [("get".to_owned(), 0.93), ("set".to_owned(), 0.07)]);
        let eighteen = Cluster::new(18).expect("published");
        // get 0.96, add 0.01, gets 0.01, cas 0.01: of 0.99.
        assert!((eighteen.share(&["get", "gets"]) - 0.97 / 0.99).abs() < 1e-12);
        assert!((eighteen.share(&["add", "cas"]) - 0.02 / 0.99).abs() < 1e-12);
    }

    #[test]
    fn the_clusters_that_have_names_are_whole() {
        for number in [4, 8, 12, 13, 18, 52] {
            let cluster = Cluster::new(number).expect("published");
            let options = cluster.workload(1_000);
            let shares = options.get_share + options.delete_share;
            assert!((0.0..=1.0 + 1e-9).contains(&shares), "{number}: {shares}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (number, words) in [(0, "clusters 1 to 54"), (55, "clusters 1 to 54")] {
            assert!(Cluster::new(number).is_err_and(|said| said.contains(words)), "{number}");
        }
        // Cluster 5 has no operations in the table.
        assert!(Cluster::new(5).is_err_and(|said| said.contains("is not published")));
    }
}
