//! Recognises datagrams that no client of ours sends, such as replies and requests of the binary
//! protocol. They are dropped without an answer.

use super::state::At;
use laneway_wire::limits::BINARY_REQUEST;

/// Whether this is nothing that a client of ours sends, and is counted.
pub(super) fn is_passed_over(at: At<'_>, bytes: &[u8]) -> bool {
    let reply = is_reply(bytes);
    let count = if reply { &at.counts.replies_received } else { &at.counts.binary_requests };
    let is = reply || is_binary(bytes);
    if is {
        count.add_owner(1);
    }
    is
}

/// Whether a line begins as replies do: with a capital letter or a digit, as every reply does and
/// no request. Answering it by `ERROR`, as a stream would be, lets one datagram with a false source
/// run between two servers for ever, each taking the other's error for a request.
fn is_reply(line: &[u8]) -> bool {
    line.first().is_some_and(|first| first.is_ascii_uppercase() || first.is_ascii_digit())
}

/// Whether a request of the binary protocol is next: dropped, as a datagram answers nobody who does
/// not speak as we do.
fn is_binary(line: &[u8]) -> bool {
    line.first() == Some(&BINARY_REQUEST)
}
