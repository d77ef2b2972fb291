//! Traces of requests in the form that Twitter published theirs in: rows of
//! `ts,key,ksize,vsize,client,op,ttl` (Yang, Yue and Vinayak, OSDI 2020). [`replay`] makes a
//! schedule of one.

pub mod replay;

use crate::workload::Operation;

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// When, in whole seconds from any beginning.
    pub at_s: u64,
    /// The key's (anonymous) name.
    pub key: &'a str,
    /// Its length.
    pub key_bytes: u64,
    /// Length of the value; 0 where the trace does not tell.
    pub value_bytes: u64,
    /// Who asks.
    pub client: &'a str,
    /// By the name that memcached has for it.
    pub operation: &'a str,
    /// Seconds to live, 0 for ever.
    pub ttl_s: u64,
}

impl<'a> Row<'a> {
    /// Reads a row; the error says which cell is wrong.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let cells: Vec<&str> = line.trim_end().split(',').collect();
        let [at_s, key, key_bytes, value_bytes, client, operation, ttl_s] = cells[..] else {
            return Err(format!(
                "{} cells, where ts,key,ksize,vsize,client,op,ttl are 7",
                cells.len()
            ));
        };
        let number = |name: &str, cell: &str| {
            cell.parse::<u64>().map_err(|_| format!("{name} {cell:?}: not a whole number"))
        };
        if key.is_empty() {
            return Err("an empty key".into());
        }
        Ok(Row {
            at_s: number("ts", at_s)?,
            key,
            key_bytes: number("ksize", key_bytes)?,
            value_bytes: number("vsize", value_bytes)?,
            client,
            operation,
            ttl_s: number("ttl", ttl_s)?,
        })
    }

    /// What the load generator makes of the operation: every one that writes is a SET.
    pub fn kind(&self) -> Result<Operation, String> {
        match self.operation {
            "get" | "gets" => Ok(Operation::Get),
            "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => {
                Ok(Operation::Set)
            }
            "delete" => Ok(Operation::Delete),
            other => Err(format!("op {other:?}: not one of memcached's")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read() {
        let line = "3,q:1:8WTfjZU14ee,17,213,4,add,86400";
        let row = Row::parse(line).expect("good");
        assert_eq!((row.at_s, row.key_bytes, row.value_bytes, row.ttl_s), (3, 17, 213, 86_400));
        assert_eq!((row.key, row.client, row.operation), ("q:1:8WTfjZU14ee", "4", "add"));
        assert_eq!(row.kind(), Ok(Operation::Set));
    }

    #[test]
    fn a_wrong_row_says_what_is_wrong() {
        for (line, words) in [
            ("3,k,1,2,4,get", "6 cells"),
            ("3,k,1,2,4,get,0,9", "8 cells"),
            ("x,k,1,2,4,get,0", "ts \"x\""),
            ("1,k,-1,2,4,get,0", "ksize \"-1\""),
            ("1,,1,2,4,get,0", "an empty key"),
        ] {
            assert!(Row::parse(line).is_err_and(|said| said.contains(words)), "{line}");
        }
        let touch = Row::parse("1,k,1,2,4,touch,0").expect("good");
        assert!(touch.kind().is_err_and(|said| said.contains("op \"touch\"")));
    }
}
