//! Whether a server that is to look after hot keys found any: where it did not, a run says nothing
//! of what finding and moving them costs, however good its latencies are.
//!
//! By the server's own `stats hotkeys`, asked before the run and after it, never during it.

use super::Measured;
use super::balance::ask_stats;
use super::definition::ServerDefinition;
use super::server::{Server, words};
use serde_json::json;
use std::collections::BTreeMap;

/// What a server has counted since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    found: u64,
    moved: u64,
    slots: u64,
}

/// What a server has counted so far, where its command says that it looks after hot keys.
pub fn counts(definition: &ServerDefinition, server: &Server) -> Result<Option<Counts>, String> {
    match is_asked_for(&definition.command) {
        true => read(&definition.name, &ask_stats(server, "hotkeys")?).map(Some),
        false => Ok(None),
    }
}

/// Whether a server's command has `--hot`, and not `--hot off`.
fn is_asked_for(command: &str) -> bool {
    let words = words(command);
    let rule = words.iter().enumerate().find_map(|(place, word)| match word.as_str() {
        "--hot" => words.get(place + 1).map(String::as_str),
        _ => word.strip_prefix("--hot="),
    });
    rule.is_some_and(|rule| rule != "off")
}

fn read(name: &str, stats: &BTreeMap<String, String>) -> Result<Counts, String> {
    let count = |what: &str| {
        let value = stats.get(what).and_then(|value| value.parse().ok());
        value.ok_or_else(|| format!("server {name}: its `stats hotkeys` tells no {what}"))
    };
    Ok(Counts { found: count("found")?, moved: count("moved")?, slots: count("slots")? })
}

/// Puts what was counted during the run beside what it measured. An error where nothing has been
/// hot since the server started: what carries over is found once.
pub fn put(
    name: &str,
    (before, after): (Counts, Counts),
    measured: &mut Measured,
) -> Result<(), String> {
    if after.found == 0 {
        return Err(format!(
            "server {name}: found 0 hot keys in {} slots, so the run shows nothing of them; lower \
             --hot-threshold, raise --slot-requests, or have it run longer",
            after.slots
        ));
    }
    let (found, moved) = (after.found - before.found, after.moved - before.moved);
    measured["hot"] = json!({
        "found": found,
        "moved": moved,
        // What KeySched calls scheduling: a key is given to a worker, anew or at a slot's end.
        "placed": found + moved,
        "slots": after.slots - before.slots,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Target;
    use crate::dialect::Dialect;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn it_is_the_command_that_asks_for_hot_keys() {
        for (command, asked) in [
            ("{laneway} serve --design hkh --hot default -t 4", true),
            ("{laneway} serve --hot=keysched-2018", true),
            ("{laneway} serve --hot off", false),
            ("{laneway} serve --hot-threshold 5", false),
            ("memcached", false),
            ("", false),
        ] {
            assert_eq!(is_asked_for(command), asked, "{command}");
        }
    }

    #[test]
    fn who_found_nothing_is_refused_and_who_did_tells_it() {
        let counts = |found, moved, slots| Counts { found, moved, slots };
        let mut measured = json!({ "latency_us": 1 });
        let none = put("one", (counts(0, 0, 1), counts(0, 0, 9)), &mut measured);
        assert!(none.is_err_and(|words| words.starts_with("server one: found 0 hot keys in 9")));
        assert_eq!(measured.get("hot"), None);
        let some = put("one", (counts(7, 1, 1), counts(7, 12, 9)), &mut measured);
        assert_eq!(some, Ok(()), "what carries over need not be found again");
        assert_eq!(measured["hot"], json!({ "found": 0, "moved": 11, "placed": 11, "slots": 8 }));
        assert_eq!(measured["latency_us"], 1);
    }

    /// Somebody else's server, that answers one question after the other.
    fn server(answers: &'static [&'static str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("who asks");
                let mut question = [0; 64];
                let bytes = stream.read(&mut question).expect("a question");
                assert_eq!(&question[..bytes], b"stats hotkeys\r\n");
                stream.write_all(answer.as_bytes()).expect("it listens");
            }
        });
        Server::elsewhere(Target::Tcp(address))
    }

    #[test]
    fn only_who_is_to_look_after_hot_keys_is_asked() {
        let definition = |command: &str| ServerDefinition {
            name: "one".into(),
            command: command.into(),
            address: None,
            dialect: Dialect::Text,
            spins: false,
        };
        let server = server(&[
            "STAT hot default\r\nSTAT slots 4\r\nSTAT found 2\r\nSTAT moved 3\r\nEND\r\n",
        ]);
        assert_eq!(counts(&definition("serve"), &server), Ok(None));
        let told = counts(&definition("serve --hot default"), &server);
        assert_eq!(told, Ok(Some(Counts { found: 2, moved: 3, slots: 4 })));
    }

    #[test]
    fn a_server_that_tells_nothing_is_an_error() {
        let stats = |lines: &[(&str, &str)]| -> BTreeMap<String, String> {
            lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let off = read("one", &stats(&[("hot", "off")]));
        assert!(off.is_err_and(|words| words.contains("server one") && words.contains("found")));
        let told = read("one", &stats(&[("found", "3"), ("moved", "2"), ("slots", "1")]));
        assert_eq!(told, Ok(Counts { found: 3, moved: 2, slots: 1 }));
    }
}
