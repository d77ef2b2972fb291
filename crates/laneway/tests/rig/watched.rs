//! A server whose admin endpoint is asked, and what a scrape of it holds.

use super::{Process, stat};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

pub struct Watched {
    pub process: Process,
    pub admin: String,
}

impl Watched {
    pub fn start(flags: &[&str]) -> Watched {
        let process = Process::here(&[&["--admin", "127.0.0.1:0"], flags].concat());
        let address = process.said.split("metrics on http://").nth(1).expect("it says where");
        let admin = address.split('/').next().expect("a path follows").to_owned();
        Watched { process, admin }
    }

    pub fn client(&self) -> TcpStream {
        TcpStream::connect(self.process.places()[0]).expect("it listens")
    }

    pub fn admin(&self) -> TcpStream {
        TcpStream::connect(&self.admin).expect("it listens")
    }

    /// The status and the body of what is answered to this request line.
    pub fn request(&self, line: &str) -> (u16, String, String) {
        let mut stream = self.admin();
        let host = &self.admin;
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("headers end");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.expect("a status"), head.to_owned(), body.to_owned())
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.request(&format!("GET {path}"));
        (status, body)
    }

    /// A scrape that is whole and keeps the rules of OpenMetrics.
    pub fn scrape(&self) -> Scrape {
        let (status, head, body) = self.request("GET /metrics");
        assert_eq!(status, 200);
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        Scrape::of(&body)
    }

    /// A number of `stats`.
    pub fn stat(&self, family: &str, name: &str) -> u64 {
        stat(&mut self.client(), family, name)
    }
}

/// The samples of a scrape by their names and labels, and the families by their types.
pub struct Scrape {
    pub samples: BTreeMap<String, f64>,
    pub types: BTreeMap<String, String>,
}

impl Scrape {
    pub fn of(text: &str) -> Scrape {
        let body = text.strip_suffix("# EOF\n").expect("a scrape ends so");
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        let mut family = String::new();
        for line in body.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["#", "HELP", name, _, ..] => {
                    family = name.to_owned();
                    assert!(name.starts_with("laneway_"), "{line}");
                }
                ["#", "TYPE", name, kind] => {
                    assert_eq!(name, family);
                    assert!(types.insert(family.clone(), kind.to_owned()).is_none(), "{line}");
                }
                ["#", "UNIT", name, unit] => {
                    assert!(name == family && name.ends_with(unit), "{line}");
                }
                [series, value] => {
                    assert!(series.starts_with(&family), "{line} under {family}");
                    let value: f64 = value.parse().expect("a number");
                    assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
                }
                _ => panic!("no line of OpenMetrics: {line}"),
            }
        }
        Scrape { samples, types }
    }

    pub fn value(&self, series: &str) -> u64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series}")) as u64
    }

    /// Whatever is counted has not become less since.
    pub fn grew_from(&self, before: &Scrape) {
        for (series, value) in &before.samples {
            let name = series.split('{').next().expect("a name");
            let counts = ["_total", "_count", "_sum", "_bucket"].iter().any(|s| name.ends_with(s));
            assert!(!counts || self.samples[series] >= *value, "{series} was {value}");
        }
    }

    /// Buckets are cumulative, and the last one has all.
    pub fn histograms_are_whole(&self) {
        let mut all = 0;
        for (series, count) in self.samples.iter().filter(|(series, _)| series.contains("_count")) {
            let (name, labels) = series.split_once("_count").expect("it is there");
            if self.types.get(name).is_none_or(|kind| kind != "histogram") {
                continue;
            }
            let rest = labels.trim_start_matches('{').trim_end_matches('}');
            let mut buckets: Vec<(f64, f64)> = Vec::new();
            for (bucket, value) in &self.samples {
                let Some(labels) = bucket.strip_prefix(&format!("{name}_bucket{{le=\"")) else {
                    continue;
                };
                let (end, others) = labels.split_once('"').expect("it is quoted");
                if others.trim_start_matches(',').trim_end_matches('}') == rest {
                    let end = if end == "+Inf" { f64::INFINITY } else { end.parse().unwrap() };
                    buckets.push((end, *value));
                }
            }
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{series}: {buckets:?}");
            assert_eq!(buckets.last().map(|last| last.1), Some(*count), "{series}");
            all += 1;
        }
        assert!(all > 20, "there are histograms, not {all}");
    }
}
