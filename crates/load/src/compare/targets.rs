//! Who takes part: the servers of the definition that this machine has, those that were left out,
//! and those that run already at an address.

use crate::connection::Target;
use crate::dialect::Dialect;
use crate::pairs::definition::{Definition, Kind, ServerDefinition};
use crate::pairs::server::{find_program, words};
use std::path::Path;

/// A server that somebody else started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name on the page.
    pub name: String,
    /// Where it is.
    pub address: String,
}

impl Peer {
    /// Reads `NAME=HOST:PORT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("--peer {text}: NAME=HOST:PORT, such as valkey=127.0.0.1:6379");
        let (name, address) = text.split_once('=').ok_or_else(wrong)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        match name.is_empty() || host.is_empty() || port.parse::<u16>().is_err() {
            true => Err(wrong()),
            false => Ok(Peer { name: name.into(), address: address.into() }),
        }
    }
}

/// Takes the server `name` out, with its runs and the figures that need them.
pub fn leave_out(definition: &mut Definition, name: &str) -> Result<(), String> {
    if !definition.servers.iter().any(|server| server.name == name) {
        return Err(format!("--without {name}: there are {}", names(definition)));
    }
    definition.servers.retain(|server| server.name != name);
    definition.runs.retain(|run| run.server != name);
    drop_lonely_figures(definition);
    Ok(())
}

fn names(definition: &Definition) -> String {
    let names: Vec<&str> = definition.servers.iter().map(|server| server.name.as_str()).collect();
    names.join(" ")
}

/// Takes out the servers whose program neither `peers` nor this machine has; says which, and how to
/// get it.
pub fn leave_out_missing(definition: &mut Definition, peers: &Path) -> Result<Vec<String>, String> {
    let mut told = Vec::new();
    for server in definition.servers.clone() {
        let Some(program) = words(&server.command).into_iter().next() else { continue };
        if program.starts_with('{') || find_program(&program, peers).is_some() {
            continue;
        }
        leave_out(definition, &server.name)?;
        told.push(format!(
            "{}: there is no {program} here, so it is left out (in the repository: cargo xtask \
             peers; Debian: apt-get install {program})",
            server.name
        ));
    }
    Ok(told)
}

/// Puts in servers that run already, each in the place of the one of the same name. Their memory is
/// not measured: that needs a fresh server.
pub fn put_in(
    definition: &mut Definition,
    peers: &[Peer],
    speaks: impl Fn(&Target) -> std::io::Result<Dialect>,
) -> Result<(), String> {
    for Peer { name, address } in peers {
        let wrong = |why: String| format!("--peer {name}={address}: {why}");
        let there = names(definition);
        let server = definition.servers.iter_mut().find(|server| server.name == *name);
        let server = server.ok_or_else(|| {
            wrong(format!("there are {there}; another one needs a definition of your own"))
        })?;
        let dialect = speaks(&Target::Tcp(address.clone()));
        *server = ServerDefinition {
            name: name.clone(),
            address: Some(address.clone()),
            dialect: dialect.map_err(|error| wrong(error.to_string()))?,
            ..Default::default()
        };
        let Definition { runs, kind, .. } = definition;
        runs.retain(|run| run.server != *name || run.kind.unwrap_or(*kind) == Kind::Bench);
        drop_lonely_figures(definition);
    }
    Ok(())
}

/// Takes out figures of runs that are no more.
pub fn drop_lonely_figures(definition: &mut Definition) {
    let Definition { runs, figures, .. } = definition;
    let there = |name: &String| runs.iter().any(|run| run.name == *name);
    figures.retain(|figure| figure.runs().all(there));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin;
    use crate::pairs::{builtin, definition};

    fn compare() -> Definition {
        definition::parse(builtin::text("compare").expect("built in")).expect("good")
    }

    fn runs_of<'a>(definition: &'a Definition, server: &str) -> Vec<&'a str> {
        let runs = definition.runs.iter().filter(|run| run.server == server);
        runs.map(|run| run.name.as_str()).collect()
    }

    #[test]
    fn a_peer_of_the_same_name_takes_the_place() {
        let mut definition = compare();
        let before = runs_of(&definition, "memcached").len();
        let peer = Peer::parse("memcached=127.0.0.1:1").expect("good");
        put_in(&mut definition, &[peer], |_| Ok(Dialect::Text)).expect("put in");
        let server = definition.servers.iter().find(|s| s.name == "memcached").expect("there");
        assert_eq!((server.command.as_str(), server.address.as_deref()), ("", Some("127.0.0.1:1")));
        // All but the one of its memory, whose figure is gone too.
        assert_eq!(runs_of(&definition, "memcached").len(), before - 1);
        assert!(
            !definition.figures.iter().any(|f| f.over.as_deref() == Some("memcached @ memory"))
        );
        let text = toml::to_string(&definition).expect("written");
        assert_eq!(definition::parse(&text).expect("still good"), definition);
    }

    #[test]
    fn a_peer_that_does_not_answer_or_has_no_place_is_named() {
        for (peer, why) in
            [("valkey=127.0.0.1:1", ""), ("keydb=127.0.0.1:1", "there are laneway laneway-resp")]
        {
            let peer = Peer::parse(peer).expect("good");
            // Nobody listens there.
            let refused = put_in(&mut compare(), std::slice::from_ref(&peer), admin::dialect);
            let words = refused.expect_err("it is refused");
            let begins = format!("--peer {}=127.0.0.1:1: {why}", peer.name);
            assert!(words.starts_with(&begins), "{words}");
        }
    }

    #[test]
    fn a_program_that_is_not_here_is_told_and_leaves_no_figure_behind() {
        let mut definition = compare();
        definition.servers[2].command = "laneway-no-such-program -p {port}".into();
        let told = leave_out_missing(&mut definition, Path::new("/none/such")).expect("one less");
        assert!(told.iter().any(|words| words.contains("apt-get install laneway-no-such-program")));
        assert!(runs_of(&definition, "memcached").is_empty());
        assert!(!runs_of(&definition, "laneway").is_empty());
        assert!(definition.figures.iter().all(|figure| !figure.name.contains("memcached")));
        let words = leave_out(&mut definition, "memcached").expect_err("it is gone");
        assert!(words.contains("there are laneway laneway-resp"), "{words}");
    }
}
