//! What a client says before it may ask, where the server has users: now and then something that
//! must be refused, then who it is. Were a refused request executed, the item that it names would
//! tell.

use crate::ask;
use crate::binary;
use crate::books::Books;
use crate::request::{Expect, Request, Voice};
use crate::resp;
use laneway_tier::disk::sim::Random;

/// The users.
pub const USERS: &str = "vopr:a secret\nother:password\n";

/// Wrong passwords of a run at most: far fewer than are looked at from one address.
const WRONG_MAX: u64 = 6;

/// The beginning of a connection, the last request first: they go before what is asked already.
pub fn introduction(random: &mut Random, books: &mut Books, voice: Voice) -> Vec<Request> {
    let wrong_passwords = &mut books.counts.wrong_passwords;
    let mut requests = Vec::new();
    for _ in 0..random.below(3) {
        requests.push(match (random.below(3), voice) {
            (0, _) if *wrong_passwords < WRONG_MAX => {
                *wrong_passwords += 1;
                match voice {
                    Voice::Resp => resp::refused(&[b"AUTH", b"vopr", b"flush_all"]),
                    Voice::Text => ask::refused("set k0 0 0 14", b"vopr\r\nk0 other"),
                    Voice::Binary => binary::wrong_login(b"PLAIN", b"\0vopr\0flush_all"),
                }
            }
            // What else it asked would end the connection.
            (_, Voice::Binary) => binary::wrong_login(b"LOGIN", b"\0vopr\0a secret"),
            (1, Voice::Resp) => resp::refused(&[b"DEL", b"k0"]),
            (1, Voice::Text) => refused("delete k0"),
            (_, Voice::Resp) => resp::refused(&[b"FLUSHALL"]),
            (_, Voice::Text) => refused("flush_all"),
        });
    }
    requests.push(match voice {
        Voice::Resp => resp::other("HELLO 2 AUTH other password"),
        Voice::Binary => binary::login(b"\0vopr\0a secret"),
        Voice::Text => {
            let bytes = b"set k0 0 0 13\r\nvopr a secret\r\n".to_vec();
            Request::of(bytes, Vec::new(), Expect::Stored, "user and password")
        }
    });
    requests.reverse();
    requests
}

fn refused(line: &str) -> Request {
    ask::other(line, Expect::Refusal)
}
