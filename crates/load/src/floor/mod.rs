//! The floor: servers that do nothing but answer, so that a page shows how near a server comes to
//! the kernel's own price of a request. `laneway bench floor`.
//!
//! They read no key and look nothing up: every GET gets the same reply, with its key copied in,
//! of as many bytes as the flag says; over TCP a GET of many keys gets as many values. All values
//! are one byte repeated, which `laneway bench --floor` expects and checks. [`tcp`] is an epoll
//! loop, [`udp`] a recvmmsg and sendmmsg loop; each has one thread, and neither spins. What a
//! server does beyond this is its own.

pub mod flags;
pub mod tcp;
pub mod udp;

use crate::workload::KEY_BYTES;

/// Every byte of every value.
pub const VALUE_BYTE: u8 = b'.';
/// Bytes of a request: `get`, a key, the end of the line.
pub const REQUEST_BYTES: usize = 4 + KEY_BYTES + 2;
/// Largest value served.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// A reply, and where its key goes.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
}

/// Where the key stands in a request and in a reply.
const KEY_AT_REQUEST: usize = 4;
const KEY_AT_REPLY: usize = 6;
/// Behind the last value of a reply.
const END: &[u8] = b"END\r\n";

impl Template {
    /// For values of `value_bytes`.
    pub fn new(value_bytes: usize) -> Self {
        let mut bytes = b"VALUE ".to_vec();
        bytes.extend_from_slice(&[b'-'; KEY_BYTES]);
        bytes.extend_from_slice(format!(" 0 {value_bytes}\r\n").as_bytes());
        bytes.resize(bytes.len() + value_bytes, VALUE_BYTE);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(END);
        Template { bytes }
    }

    /// Appends the reply to `request`.
    #[inline]
    pub fn answer(&self, request: &[u8; REQUEST_BYTES], out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        out[begin + KEY_AT_REPLY..][..KEY_BYTES]
            .copy_from_slice(&request[KEY_AT_REQUEST..][..KEY_BYTES]);
    }

    /// Appends the reply to the GET that `input` begins with, of one key or many; returns the bytes
    /// of that GET. Appends nothing while its end has not come.
    pub fn answer_line(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let (item, end) = self.bytes.split_at(self.bytes.len() - END.len());
        let begin = out.len();
        let mut at = KEY_AT_REQUEST;
        loop {
            let Some((key, behind)) =
                input.get(at..).and_then(|rest| rest.split_at_checked(KEY_BYTES))
            else {
                out.truncate(begin);
                return None;
            };
            let begin = out.len();
            out.extend_from_slice(item);
            out[begin + KEY_AT_REPLY..][..KEY_BYTES].copy_from_slice(key);
            at += KEY_BYTES + 1;
            if !behind.starts_with(b" ") {
                break;
            }
        }
        // The line ends in two bytes, of which one is behind the last key.
        if at >= input.len() {
            out.truncate(begin);
            return None;
        }
        out.extend_from_slice(end);
        Some(at + 1)
    }

    /// Bytes of a reply.
    pub fn reply_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The answer to what is no GET, if it is a whole line: a client asks who it speaks to and how much
/// it holds before it measures.
fn answer_question(line: &[u8]) -> &'static [u8] {
    match line.trim_ascii_end() {
        b"version" => b"VERSION floor\r\n",
        b"stats" => b"END\r\n",
        _ => b"ERROR\r\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_keys_is_answered_once_it_is_whole() {
        let (template, line) = (Template::new(3), b"get 0123abcd 4567efgh\r\nget");
        let whole = line.len() - 3;
        for begun in 4..whole {
            let mut out = b"x".to_vec();
            assert_eq!(template.answer_line(&line[..begun], &mut out), None, "{begun} bytes");
            assert_eq!(out, b"x", "{begun} bytes");
        }
        let mut out = b"x".to_vec();
        assert_eq!(template.answer_line(line, &mut out), Some(whole));
        let reply = "xVALUE 0123abcd 0 3\r\n...\r\nVALUE 4567efgh 0 3\r\n...\r\nEND\r\n";
        assert_eq!(String::from_utf8_lossy(&out), reply);
    }
}
