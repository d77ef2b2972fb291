//! Traces of requests in the form that Twitter published theirs in (Yang, Yue and Vinayak, OSDI
//! 2020), as a schedule: rows of `ts,key,ksize,vsize,client,op,ttl`, of which keys become numbers,
//! and seconds due times.
//!
//! Rows of one second are spread evenly over it: the traces have no finer clock. Each key has one
//! size, the first that the trace tells of it, and the first of its times to live; values can then
//! be checked whoever wrote them. A value's length of 0 is one that the trace does not tell. Names
//! are the load generator's, as long as the trace says. `speed` shortens the trace and the times to
//! live alike.

use crate::arrivals::Arrival;
use crate::workload::keys::KEY_BYTES_MAX;
use crate::workload::{Ask, Item, Key, Operation, VALUE_BYTES_MAX};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

const SECOND_NS: f64 = 1e9;
/// Longest time to live: beyond 30 days memcached takes it for a date.
const TTL_S_MAX: f64 = 30.0 * 86_400.0;

/// What a trace asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Its items, by the numbers of their keys.
    pub items: Vec<Item>,
    /// When what is due.
    pub arrivals: Vec<Arrival>,
    /// From its first second to the end of its last.
    pub duration_ns: u64,
}

impl Trace {
    /// Reads the file at `path`; the error says the line.
    pub fn open(path: &Path, speed: f64) -> Result<Self, String> {
        let file = std::fs::File::open(path).map_err(|error| error.to_string());
        file.and_then(|file| Self::read(std::io::BufReader::new(file), speed))
            .map_err(|error| format!("--trace {}: {error}", path.display()))
    }

    /// Reads rows in the order of their times. A first line that begins with `ts,` names columns.
    pub fn read(mut rows: impl BufRead, speed: f64) -> Result<Self, String> {
        let mut reader = Reader { speed, ..Reader::default() };
        let mut line = String::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            number += 1;
            let read =
                rows.read_line(&mut line).map_err(|error| format!("line {number}: {error}"))?;
            if read == 0 {
                break;
            }
            let is_head = number == 1 && line.starts_with("ts,");
            if !is_head && !line.trim().is_empty() {
                let cut = if line.ends_with('\n') { "" } else { "; the file ends in this line" };
                reader.take(&line).map_err(|error| format!("line {number}: {error}{cut}"))?;
            }
        }
        reader.finish()
    }
}

#[derive(Default)]
struct Reader {
    speed: f64,
    numbers: HashMap<String, u32>,
    items: Vec<Item>,
    /// The second of each row, from the first one's.
    seconds: Vec<u64>,
    asks: Vec<Ask>,
    first_s: u64,
}

impl Reader {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let cells: Vec<&str> = line.trim_end().split(',').collect();
        let [at_s, key, key_bytes, value_bytes, _, operation, ttl_s] = cells[..] else {
            let cells = cells.len();
            return Err(format!("{cells} cells, where ts,key,ksize,vsize,client,op,ttl are 7"));
        };
        let number = |name: &str, cell: &str| {
            cell.parse::<u64>().map_err(|_| format!("{name} {cell:?}: not a whole number"))
        };
        if key.is_empty() {
            return Err("an empty key".into());
        }
        let (at_s, ttl_s) = (number("ts", at_s)?, number("ttl", ttl_s)?);
        let (key_bytes, value_bytes) = (number("ksize", key_bytes)?, number("vsize", value_bytes)?);
        // Every one that writes is a SET.
        let operation = match operation {
            "get" | "gets" => Operation::Get,
            "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => {
                Operation::Set
            }
            "delete" => Operation::Delete,
            other => return Err(format!("op {other:?}: not one of memcached's")),
        };
        if value_bytes > VALUE_BYTES_MAX {
            return Err(format!("vsize {value_bytes}: at most {VALUE_BYTES_MAX}"));
        }
        if self.asks.is_empty() {
            self.first_s = at_s;
        }
        let latest_s = self.first_s + self.seconds.last().copied().unwrap_or(0);
        if at_s < latest_s {
            return Err(format!("ts {at_s} after {latest_s}: rows are in the order of time"));
        }
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(key.into()).or_insert(next);
        if number == next {
            let key_bytes = key_bytes.min(KEY_BYTES_MAX as u64) as u8;
            self.items.push(Item { key_bytes, ..Item::default() });
        }
        let ttl_s = match ttl_s {
            0 => 0,
            // In the end: a slow replay makes them longer.
            ttl_s => (ttl_s as f64 / self.speed).clamp(1.0, TTL_S_MAX) as u32,
        };
        let item = &mut self.items[number as usize];
        for (own, told) in [(&mut item.value_bytes, value_bytes as u32), (&mut item.ttl_s, ttl_s)] {
            if *own == 0 {
                *own = told;
            }
        }
        self.asks.push(Ask::one(Key(number), operation));
        self.seconds.push(at_s - self.first_s);
        Ok(())
    }

    fn finish(self) -> Result<Trace, String> {
        let Some(&last) = self.seconds.last() else { return Err("no rows".into()) };
        let mut arrivals = Vec::with_capacity(self.asks.len());
        for rows in self.seconds.chunk_by(|one, other| one == other) {
            for (index, &second) in rows.iter().enumerate() {
                let within = (index as f64 + 0.5) / rows.len() as f64;
                let due_ns = ((second as f64 + within) * SECOND_NS / self.speed) as u64;
                arrivals.push(Arrival { due_ns, ask: self.asks[arrivals.len()] });
            }
        }
        let duration_ns = ((last + 1) as f64 * SECOND_NS / self.speed) as u64;
        Ok(Trace { items: self.items, arrivals, duration_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, speed: f64) -> Result<Trace, String> {
        Trace::read(text.as_bytes(), speed)
    }

    const ROWS: &str = "\
ts,key,ksize,vsize,client,op,ttl
100,a,20,0,1,get,0
100,b,30,500,1,set,86400
101,a,20,70,2,add,60
103,a,20,71,2,gets,0
103,b,30,0,1,delete,0
";

    #[test]
    fn rows_are_spread_over_their_second() {
        let trace = read(ROWS, 1.0).expect("good");
        let due: Vec<f64> = trace.arrivals.iter().map(|one| one.due_ns as f64 / 1e9).collect();
        assert_eq!(due, [0.25, 0.75, 1.5, 3.25, 3.75]);
        assert_eq!(trace.duration_ns, 4_000_000_000);
        let asks: Vec<(u32, Operation)> =
            trace.arrivals.iter().map(|one| (one.ask.key.0, one.ask.operation)).collect();
        use Operation::{Delete, Get, Set};
        assert_eq!(asks, [(0, Get), (1, Set), (0, Set), (0, Get), (1, Delete)]);
        // A key has the first size and the first time to live that are told of it.
        let item = |key_bytes, value_bytes, ttl_s| Item { key_bytes, value_bytes, ttl_s };
        assert_eq!(trace.items, [item(20, 70, 60), item(30, 500, 86_400)]);
    }

    #[test]
    fn speed_shortens_everything() {
        let trace = read(ROWS, 10.0).expect("good");
        assert_eq!(trace.duration_ns, 400_000_000);
        assert_eq!(trace.arrivals[4].due_ns, 375_000_000);
        let ttls_s = |trace: &Trace| trace.items.iter().map(|item| item.ttl_s).collect::<Vec<_>>();
        assert_eq!(ttls_s(&trace), [6, 8_640]);
        // What is longer than 30 days would be taken for a date, at which everything is over.
        let slow = read(ROWS, 0.01).expect("good");
        assert_eq!(ttls_s(&slow), [6_000, 30 * 86_400]);
    }

    #[test]
    fn a_wrong_trace_says_the_line() {
        for (text, words) in [
            ("", "no rows"),
            ("ts,key,ksize,vsize,client,op,ttl\n", "no rows"),
            ("1,a,1,1,1,get,0\n0,a,1,1,1,get,0\n", "line 2: ts 0 after 1"),
            ("1,a,1,1,1,fetch,0\n", "line 1: op \"fetch\""),
            ("1,a,1,99999999999,1,get,0\n", "line 1: vsize 99999999999"),
            ("3,k,1,2,4,touch,0\n", "line 1: op \"touch\""),
            ("1,a,1\n", "line 1: 3 cells"),
            ("3,k,1,2,4,get,0,9\n", "line 1: 8 cells"),
            ("x,k,1,2,4,get,0\n", "line 1: ts \"x\""),
            ("1,k,-1,2,4,get,0\n", "line 1: ksize \"-1\""),
            ("1,,1,2,4,get,0\n", "line 1: an empty key"),
            ("1,a,1,2,4,get,0\n2,b,30,500", "line 2: 4 cells, where"),
            ("1,a,1,2,4,get,0\n2,b,30,500,1,se", "line 2: 6 cells, where"),
            ("1,a,1,2,4,get,0\n2,b,30,500,1,set,", "\"\": not a whole number; the file ends in"),
        ] {
            assert!(read(text, 1.0).is_err_and(|said| said.contains(words)), "{words}");
        }
    }
}
