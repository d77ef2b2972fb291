//! Authentication as all workers share it: the users of `-Y` and their passwords, and a limit on
//! how often an address may send a wrong one.
//!
//! A connection of a server with users begins as one that has not said who it is; behind that it
//! is like any other, so nothing of this is on the way of a request.

use super::limit::Limit;
use super::users::Users;
use crate::counts::counters::Counters;
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What becomes of a user and a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They belong together.
    Right,
    /// They do not.
    Wrong,
    /// Nobody looked: too many wrong ones came from this address.
    Limited,
}

/// The users of a server, and the addresses that were wrong lately.
pub struct Auth {
    users: Mutex<Arc<Users>>,
    limit: Limit,
}

impl Auth {
    /// These users. `seed` is secret.
    pub fn new(users: Users, seed: u64) -> Auth {
        Auth { users: Mutex::new(Arc::new(users)), limit: Limit::new(seed) }
    }

    /// Others from now on. Who has said who he is stays so.
    pub fn replace(&self, users: Users) {
        *self.users() = Arc::new(users);
    }

    fn users(&self) -> MutexGuard<'_, Arc<Users>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.users().count()
    }

    /// Somebody at `peer` says who he is.
    pub fn attempt(&self, peer: &str, user: &[u8], password: &[u8], now_seconds: u32) -> Verdict {
        let address = address_of(peer);
        if !self.limit.allows(&address, now_seconds) {
            return Verdict::Limited;
        }
        let users = self.users().clone();
        if users.has(user, password) {
            return Verdict::Right;
        }
        if let Some(left_out) = self.limit.wrong(&address, now_seconds) {
            log::warn!(
                "-Y: too many wrong passwords from {address}; what comes from there is refused \
                 until a second has passed for each ({left_out} such warnings about others were \
                 left out before)"
            );
        }
        Verdict::Wrong
    }
}

/// Who looks at passwords, for one connection at one moment.
pub struct Door<'a> {
    /// The users.
    pub auth: &'a Auth,
    /// Who asks.
    pub peer: &'a str,
    /// The number of the connection.
    pub number: u64,
    /// When.
    pub now_seconds: u32,
    /// Where it is counted.
    pub counters: &'a Counters,
}

impl Door<'_> {
    /// Look at a user and a password.
    pub fn attempt(&self, user: &[u8], password: &[u8]) -> Verdict {
        let verdict = self.auth.attempt(self.peer, user, password, self.now_seconds);
        self.counters.auth_cmds.bump_owner();
        match verdict {
            Verdict::Right => {}
            Verdict::Wrong => self.counters.auth_errors.bump_owner(),
            Verdict::Limited => self.counters.auth_limited.bump_owner(),
        }
        verdict
    }
}

/// Nothing of a password.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.count())
    }
}

/// A peer without its port: `tcp:10.0.0.1` of `tcp:10.0.0.1:5000`. Of an IPv6 address it is the
/// first half, as a host chooses the other half at will; all peers of a unix socket are one.
pub(crate) fn address_of(peer: &str) -> Cow<'_, str> {
    let address = match peer.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => address,
        _ => peer,
    };
    match network_of(address) {
        Some(network) => Cow::Owned(network),
        None => Cow::Borrowed(address),
    }
}

/// The /64 of `tcp6:[ADDRESS]`; where that holds an IPv4 address, this one.
fn network_of(address: &str) -> Option<String> {
    let inner = address.strip_prefix("tcp6:[")?.strip_suffix(']')?;
    let inner = inner.split_once('%').map_or(inner, |(address, _)| address); // without its zone
    let whole: Ipv6Addr = inner.parse().ok()?;
    Some(match whole.to_ipv4_mapped() {
        Some(v4) => format!("tcp:{v4}"),
        None => format!("tcp6:[{}]/64", Ipv6Addr::from_bits(whole.to_bits() >> 64 << 64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::limit;

    #[test]
    fn an_address_is_a_peer_without_its_port_or_the_first_half_of_it() {
        for (peer, address) in [
            ("tcp:10.0.0.1:5000", "tcp:10.0.0.1"),
            ("tcp6:[::1]:5000", "tcp6:[::]/64"),
            ("tcp6:[2001:db8:1:2:3:4:5:6]:5000", "tcp6:[2001:db8:1:2::]/64"),
            ("tcp6:[fe80::7%3]:5000", "tcp6:[fe80::]/64"),
            ("tcp6:[::ffff:10.0.0.1]:5000", "tcp:10.0.0.1"),
            ("unix:/run/x", "unix:/run/x"),
            ("unix", "unix"),
        ] {
            assert_eq!(address_of(peer), address);
        }
    }

    #[test]
    fn who_guesses_is_refused_unseen_until_time_has_passed_and_others_are_not() {
        let auth = Auth::new(Users::read("alice:secret\n").expect("a user"), 7);
        let attempt = |peer: &str, password: &str, now| {
            auth.attempt(peer, b"alice", password.as_bytes(), now)
        };
        let guesses = (0..limit::WRONG_MAX).map(|_| attempt("tcp:10.0.0.1:1", "guess", 100));
        assert!(guesses.collect::<Vec<_>>().iter().all(|verdict| *verdict == Verdict::Wrong));
        assert_eq!(attempt("tcp:10.0.0.1:2", "secret", 100), Verdict::Limited, "another port");
        assert_eq!(attempt("tcp:10.0.0.2:1", "secret", 100), Verdict::Right, "another address");
        assert_eq!(attempt("tcp:10.0.0.1:2", "secret", 101), Verdict::Right, "a second later");
        for host in 1..=limit::WRONG_MAX {
            let peer = format!("tcp6:[2001:db8::{host:x}]:1");
            assert_eq!(attempt(&peer, "guess", 101), Verdict::Wrong);
        }
        let guest = "tcp6:[2001:db8::ffff]:1";
        assert_eq!(attempt(guest, "secret", 101), Verdict::Limited, "a neighbour of these");
        assert_eq!(attempt("tcp6:[2001:db8:0:1::1]:1", "secret", 101), Verdict::Right);
        auth.replace(Users::read("alice:new\n").expect("a user"));
        assert_eq!(attempt("tcp:10.0.0.3:1", "secret", 101), Verdict::Wrong);
        assert_eq!(attempt("tcp:10.0.0.3:1", "new", 101), Verdict::Right);
        assert_eq!(format!("{auth:?}"), "1 users", "no password is told");
    }
}
