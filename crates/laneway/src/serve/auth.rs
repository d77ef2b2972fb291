//! Who may ask: the file of `-Y`, read at the start and again at SIGHUP; and a word where everybody
//! may.

use super::hot;
use crate::flags::Flags;
use laneway_server::boot::Server;
use laneway_server::settings::{Auth, Users, Verify};
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// May be read by whoever is on the machine.
const OTHERS_READ: u32 = 0o004;

/// The users, if only they may ask.
pub fn settings(flags: &Flags, has_udp: bool) -> Result<Option<Arc<Auth>>, String> {
    let Some(path) = &flags.auth_file else { return Ok(None) };
    let name = path.display();
    let open = [
        ("-U and --udp-base", has_udp, "over UDP"),
        ("--shm", flags.shm.is_some(), "in shared memory"),
        ("--rdma", flags.rdma.is_some(), "over RDMA"),
    ];
    if let Some((flag, _, clients)) = open.into_iter().find(|(_, is_open, _)| *is_open) {
        return Err(format!(
            "-Y {name}: clients {clients} cannot say who they are, and would need no password; \
             leave {flag} out, or -Y"
        ));
    }
    let users = read(path).map_err(|error| format!("-Y {name}: {error}"))?;
    Ok(Some(Arc::new(Auth::new(users, hot::seed()))))
}

fn read(path: &OsStr) -> Result<Users, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    Users::read(&text)
}

/// Read the file again. If it is wrong, the users stay.
pub fn reload(path: &OsStr, auth: &Auth) {
    let (name, before) = (path.display(), auth.count());
    match read(path) {
        Ok(users) => {
            let now = users.count();
            auth.replace(users);
            log::info!("SIGHUP: -Y {name}: {now} users from now on, {before} before");
        }
        Err(error) => {
            log::error!("SIGHUP: -Y {name}: {error}; the {before} users before it stay");
        }
    }
}

/// Say so where everybody may ask, or may read the passwords.
pub fn warn(flags: &Flags, server: &Server) {
    match &flags.auth_file {
        Some(path) => {
            let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
            if mode & OTHERS_READ != 0 {
                log::warn!(
                    "-Y {}: everybody on this machine may read the passwords; chmod 600 it",
                    path.display()
                );
            }
        }
        None => {
            let open = |places: [Vec<SocketAddr>; 2]| {
                open_to_strangers(&places.concat(), &server.read_only_addresses())
            };
            // Encryption alone keeps nobody out.
            let tls = server.shared().settings.tls.as_ref();
            let asks_nobody = tls.is_some_and(|tls| tls.acceptor.terms.verify != Verify::Always);
            if let Some((place, may)) = open([server.addresses(), server.resp_addresses()]) {
                log::warn!(
                    "whoever reaches {place} may {may} every item: there is no password, and \
                     nothing is encrypted. If strangers could, listen on 127.0.0.1 (-l), name \
                     users (-Y), or have a firewall keep them away; docs/security.md says more"
                );
            } else if asks_nobody
                && let Some((place, may)) =
                    open([server.tls_addresses(), server.tls_resp_addresses()])
            {
                log::warn!(
                    "whoever reaches {place} may {may} every item: it is encrypted, but there is \
                     no password, and no client's certificate is asked for. If strangers could, \
                     name users (-Y) or authorities (--tls-client-ca); docs/security.md says more"
                );
            }
        }
    }
}

/// An address beyond this machine, and what may be done there: rather one where everything may.
fn open_to_strangers(
    places: &[SocketAddr],
    read_only: &[SocketAddr],
) -> Option<(SocketAddr, &'static str)> {
    let open = |readers| {
        let is_one = |place: &&SocketAddr| read_only.contains(place) == readers;
        places.iter().filter(|place| !place.ip().is_loopback()).find(is_one).copied()
    };
    let writer = open(false).map(|place| (place, "read, change and delete"));
    writer.or_else(|| open(true).map(|place| (place, "read")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_listens_beyond_this_machine_is_warned() {
        let places = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|one| one.parse().expect(one)).collect()
        };
        for (text, told) in [
            ("127.0.0.1:1 [::1]:2 127.9.9.9:3", None),
            ("127.0.0.1:1 0.0.0.0:2", Some("0.0.0.0:2")),
            ("[::]:2", Some("[::]:2")),
            ("192.0.2.1:3 10.0.0.1:4", Some("192.0.2.1:3")),
        ] {
            let found = open_to_strangers(&places(text), &[]);
            assert_eq!(found.map(|(place, _)| place.to_string()).as_deref(), told, "{text}");
        }
        let both = places("192.0.2.1:3 10.0.0.1:4");
        let found = |read_only: &[SocketAddr]| open_to_strangers(&both, read_only);
        assert_eq!(found(&both[..1]), Some((both[1], "read, change and delete")));
        assert_eq!(found(&both), Some((both[0], "read")));
    }
}
