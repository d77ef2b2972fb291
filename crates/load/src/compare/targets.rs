//! Who takes part: the servers of the definition that this machine has, those that were left out,
//! and those that run already at an address.

use crate::admin;
use crate::connection::Target;
use crate::dialect::Dialect;
use crate::pairs::definition::{Definition, Figure, Kind, RunDefinition, ServerDefinition};
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
        // What is between " @ " in a run's name is split there again.
        if name.is_empty() || name.contains('@') || host.is_empty() || port.parse::<u16>().is_err()
        {
            return Err(wrong());
        }
        Ok(Peer { name: name.into(), address: address.into() })
    }
}

/// Where a run's name is cut: the line of the pictures, and the load.
pub const AT: &str = " @ ";

/// Takes the server `name` out, with its runs and the figures that need them.
pub fn leave_out(definition: &mut Definition, name: &str) -> Result<(), String> {
    if !definition.servers.iter().any(|server| server.name == name) {
        let names: Vec<&str> = definition.servers.iter().map(|s| s.name.as_str()).collect();
        return Err(format!("--without {name}: there are {}", names.join(" ")));
    }
    definition.servers.retain(|server| server.name != name);
    definition.runs.retain(|run| run.server != name);
    drop_lonely_figures(definition);
    Ok(())
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

/// Puts in servers that run already: in the place of the one of the same name, or beside the one
/// that speaks the same language, with the same runs and figures. Their memory is not measured:
/// that needs a fresh server.
pub fn put_in(
    definition: &mut Definition,
    peers: &[Peer],
    speaks: impl Fn(&Target) -> std::io::Result<Dialect>,
) -> Result<(), String> {
    for Peer { name, address } in peers {
        let target = Target::Tcp(address.clone());
        let dialect =
            speaks(&target).map_err(|error| format!("--peer {name}={address}: {error}"))?;
        let own = ServerDefinition {
            name: name.clone(),
            address: Some(address.clone()),
            dialect,
            ..Default::default()
        };
        if let Some(server) = definition.servers.iter_mut().find(|server| server.name == *name) {
            *server = own;
        } else {
            // Its runs are those of a server that is not ours, if one speaks the same.
            let ours = |server: &ServerDefinition| server.command.starts_with("{laneway}");
            let all = || definition.servers.iter().filter(|server| server.dialect == dialect);
            let like = all().find(|server| !ours(server)).or_else(|| all().next());
            let like = like.map(|server| server.name.clone()).ok_or_else(|| {
                format!(
                    "--peer {name}={address}: the definition has no server that speaks the same"
                )
            })?;
            copy_runs(definition, &like, name);
            definition.servers.push(own);
        }
        let Definition { runs, kind, .. } = definition;
        runs.retain(|run| run.server != *name || run.kind.unwrap_or(*kind) == Kind::Bench);
        drop_lonely_figures(definition);
    }
    Ok(())
}

/// As [`put_in`], asking the servers themselves what they speak.
pub fn put_in_peers(definition: &mut Definition, peers: &[Peer]) -> Result<(), String> {
    put_in(definition, peers, admin::dialect)
}

fn copy_runs(definition: &mut Definition, like: &str, name: &str) {
    let renamed = |run: &str| match run.split_once(AT) {
        Some((line, at)) if line == like => format!("{name}{AT}{at}"),
        _ => run.replace(like, name),
    };
    let of_like = |run: &str| definition.runs.iter().any(|r| r.name == run && r.server == like);
    let figures: Vec<Figure> = definition
        .figures
        .iter()
        .filter(|figure| figure.over.as_deref().is_some_and(of_like))
        .map(|figure| Figure {
            name: figure.name.replace(like, name),
            over: figure.over.as_deref().map(renamed),
            ..figure.clone()
        })
        .collect();
    let runs: Vec<RunDefinition> = definition
        .runs
        .iter()
        .filter(|run| run.server == like)
        .map(|run| RunDefinition { name: renamed(&run.name), server: name.into(), ..run.clone() })
        .collect();
    definition.runs.extend(runs);
    definition.figures.extend(figures);
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
    use crate::pairs::{builtin, definition};

    fn compare() -> Definition {
        definition::parse(builtin::text("compare").expect("built in")).expect("good")
    }

    fn runs_of<'a>(definition: &'a Definition, server: &str) -> Vec<&'a str> {
        let runs = definition.runs.iter().filter(|run| run.server == server);
        runs.map(|run| run.name.as_str()).collect()
    }

    #[test]
    fn a_peer_needs_a_name_and_a_port() {
        let peer = Peer::parse("valkey=127.0.0.1:6379").expect("good");
        assert_eq!((peer.name.as_str(), peer.address.as_str()), ("valkey", "127.0.0.1:6379"));
        for wrong in ["valkey", "=1:2", "a=b", "a=:1", "a=b:c", "a=b:70000", "a @ b=c:1"] {
            let words = Peer::parse(wrong).expect_err(wrong);
            assert!(words.starts_with(&format!("--peer {wrong}: NAME=HOST:PORT")), "{words}");
        }
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
    }

    #[test]
    fn a_new_peer_has_the_runs_of_who_speaks_the_same() {
        let mut definition = compare();
        let peer = Peer::parse("keydb=127.0.0.1:1").expect("good");
        put_in(&mut definition, &[peer], |_| Ok(Dialect::Resp)).expect("put in");
        let runs = runs_of(&definition, "keydb");
        assert!(runs.contains(&"keydb @ 20000") && !runs.contains(&"keydb @ memory"), "{runs:?}");
        let over = |figure: &&Figure| figure.over.as_deref() == Some("keydb @ 20000");
        let figure = definition.figures.iter().find(over).expect("a figure of its own");
        assert!(figure.name.ends_with("of keydb's"), "{}", figure.name);
        let text = toml::to_string(&definition).expect("written");
        assert_eq!(definition::parse(&text).expect("still good"), definition);
    }

    #[test]
    fn a_peer_that_does_not_answer_is_named() {
        let peer = Peer::parse("gone=127.0.0.1:1").expect("good");
        let words = put_in_peers(&mut compare(), &[peer]).expect_err("nobody listens there");
        assert!(words.starts_with("--peer gone=127.0.0.1:1: "), "{words}");
    }

    #[test]
    fn who_is_left_out_leaves_no_figure_behind() {
        let mut definition = compare();
        leave_out(&mut definition, "memcached").expect("it was there");
        assert!(runs_of(&definition, "memcached").is_empty());
        assert!(definition.figures.iter().all(|figure| !figure.name.contains("memcached")));
        let words = leave_out(&mut definition, "memcached").expect_err("it is gone");
        assert!(words.contains("there are laneway laneway-resp redis valkey floor"), "{words}");
    }

    #[test]
    fn a_program_that_is_not_here_is_told() {
        let mut definition = compare();
        definition.servers[2].command = "laneway-no-such-program -p {port}".into();
        let told = leave_out_missing(&mut definition, Path::new("/none/such")).expect("one less");
        assert!(told.iter().any(|words| words.contains("apt-get install laneway-no-such-program")));
        assert!(runs_of(&definition, "memcached").is_empty());
        assert!(!runs_of(&definition, "laneway").is_empty());
    }
}
