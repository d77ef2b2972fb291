//! Statistics: the lines of the text protocol, each as a reply of its own, and an empty one behind
//! the last.

use crate::execute::reply::words_of;
use laneway_wire::binary::Echo;
use laneway_wire::binary::reply::{Status, put, put_done, put_error};
use laneway_wire::reply::{END, ERROR};

/// Puts the statistics that the text protocol answers by `text`.
pub fn put_stats(echo: Echo, text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let words = words_of(line);
        match words.strip_prefix(b"STAT ") {
            Some(stat) => {
                let end = stat.iter().position(|byte| *byte == b' ').unwrap_or(stat.len());
                let (name, value) = stat.split_at(end);
                let value = value.strip_prefix(b" ").unwrap_or(value);
                put(out, echo, Status::Done, name, value);
            }
            None if matches!(line, END | b"RESET\r\n" | b"OK\r\n") => {}
            // The text protocol has an error of its own for what the server does not know.
            None => {
                out.truncate(start);
                return match line {
                    ERROR => put_error(out, echo, Status::NotFound),
                    _ => put(out, echo, Status::NotFound, b"", words),
                };
            }
        }
    }
    put_done(out, echo, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::binary::answer::parse_reply;

    #[test]
    fn lines_become_replies_with_an_empty_one_behind_them() {
        let echo = Echo { opcode: 0x10, opaque: *b"1234" };
        for (text, told) in [
            ("STAT pid 7\r\nSTAT a:b c d\r\nEND\r\n", "pid=7 a:b=c d = "),
            ("STAT empty \r\nEND\r\n", "empty= = "),
            ("END\r\n", "= "),
            ("RESET\r\n", "= "),
            ("OK\r\n", "= "),
            ("ERROR\r\n", "=Not found "),
            ("CLIENT_ERROR stats hotkeys not allowed\r\n", "=stats hotkeys not allowed "),
            ("STAT a 1\r\nSERVER_ERROR too long\r\n", "=too long "),
        ] {
            let (mut out, mut seen, mut at) = (Vec::new(), String::new(), 0);
            put_stats(echo, text.as_bytes(), &mut out);
            while let Some(reply) = parse_reply(&out[at..]).expect("replies") {
                assert_eq!(reply.echo, echo);
                let word = |bytes| String::from_utf8_lossy(bytes).into_owned();
                seen += &format!("{}={} ", word(reply.key), word(reply.value));
                at += reply.bytes;
            }
            assert_eq!((&*seen, at), (told, out.len()), "{text}");
        }
    }
}
