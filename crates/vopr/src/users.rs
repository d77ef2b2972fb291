//! What a client says before it may ask, where the server has users: now and then something that
//! must be refused, then who it is. Were a refused request executed, the item that it names would
//! tell.

use crate::ask;
use crate::books::Books;
use crate::request::{Expect, Request};
use crate::resp;
use laneway_tier::disk::sim::Random;

/// The users.
pub const USERS: &str = "vopr:a secret\nother:password\n";

/// Wrong passwords of a run at most: far fewer than are looked at from one address.
const WRONG_MAX: u64 = 6;

/// The beginning of a connection, the last request first: they go before what is asked already.
pub fn introduction(random: &mut Random, books: &mut Books, is_redis: bool) -> Vec<Request> {
    let wrong_passwords = &mut books.counts.wrong_passwords;
    let mut requests = Vec::new();
    for _ in 0..random.below(3) {
        requests.push(match (random.below(3), is_redis) {
            (0, _) if *wrong_passwords < WRONG_MAX => {
                *wrong_passwords += 1;
                match is_redis {
                    true => resp::refused(&[b"AUTH", b"vopr", b"flush_all"]),
                    false => ask::refused("set k0 0 0 14", b"vopr\r\nk0 other"),
                }
            }
            (1, true) => resp::refused(&[b"DEL", b"k0"]),
            (1, false) => refused("delete k0"),
            (_, true) => resp::refused(&[b"FLUSHALL"]),
            (_, false) => refused("flush_all"),
        });
    }
    requests.push(match is_redis {
        true => resp::other("HELLO 2 AUTH other password"),
        false => {
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
