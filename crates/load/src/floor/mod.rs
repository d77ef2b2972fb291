//! The floor: servers that do nothing but answer, so that a page shows how near a server comes to
//! the kernel's own price of a request. `laneway bench floor`.
//!
//! They read no key and look nothing up: every GET gets the same reply, with its key copied in, of
//! as many bytes as the flag says. All values are one byte repeated, which `laneway bench --floor`
//! expects and checks. [`tcp`] is an epoll loop, [`udp`] a recvmmsg and sendmmsg loop; each has one
//! thread, and neither spins. What a server does beyond this is its own.

pub mod flags;
pub mod tcp;
pub mod udp;

use crate::workload::KEY_BYTES;

/// Every byte of every value.
pub const VALUE_BYTE: u8 = b'.';
/// Bytes of the only request there is: `get`, a key, the end of the line.
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

impl Template {
    /// For values of `value_bytes`.
    pub fn new(value_bytes: usize) -> Self {
        let mut bytes = b"VALUE ".to_vec();
        bytes.extend_from_slice(&[b'-'; KEY_BYTES]);
        bytes.extend_from_slice(format!(" 0 {value_bytes}\r\n").as_bytes());
        bytes.resize(bytes.len() + value_bytes, VALUE_BYTE);
        bytes.extend_from_slice(b"\r\nEND\r\n");
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
    fn a_reply_has_the_key_and_the_bytes() {
        let mut out = b"x".to_vec();
        Template::new(3).answer(b"get 0123abcd\r\n", &mut out);
        assert_eq!(out, b"xVALUE 0123abcd 0 3\r\n...\r\nEND\r\n");
        assert_eq!(Template::new(3).reply_bytes(), out.len() - 1);
    }
}
