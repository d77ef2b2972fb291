//! The variables: `LANEWAY_` and a flag's long name in capitals, with `_` for `-`. A value is
//! written as it would be typed; several are separated by commas; a switch is `true` or `false`.

use super::command_line::{all, row};
use super::flag::{Flag, VARIABLES};
use super::foreign::{Refused, meant};
use super::table::Flags;
use std::ffi::OsString;

/// A variable with its value.
pub struct Variable {
    /// The row of its flag.
    pub flag: &'static Flag<Flags>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: OsString,
}

/// Variables of the process in the background, of the build and of the tests: no flags.
const OTHERS: [&str; 4] = ["IN_BACKGROUND", "CLANG", "SEED", "FAULTS_NAMESPACE"];

/// Those of ours among all variables.
pub fn variables(
    all: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Variable>, Refused> {
    let mut found: Vec<Variable> = Vec::new();
    let ours = all.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(VARIABLES))?;
        Some((name, value))
    });
    for (name, value) in ours {
        let word = &name[VARIABLES.len()..];
        if OTHERS.contains(&word) || is_service_link(word, &value) {
            continue;
        }
        let flag = known(word).ok_or_else(|| unknown(&name))?;
        if let Some(other) = found.iter().find(|other| other.flag.name == flag.name) {
            let why = format!("is the same as {}, which is set too; unset one of them", other.name);
            return Err(Refused::from(why).at(name));
        }
        // Whoever wrote LANEWAY_LISTEN= must not get what the flag's absence means.
        if value.is_empty() {
            return Err(Refused::from("is empty; give it a value, or unset it".to_owned()).at(name));
        }
        found.push(Variable { flag, name, value });
    }
    Ok(found)
}

fn known(word: &str) -> Option<&'static Flag<Flags>> {
    let is_spelled = word.chars().all(|c| !c.is_lowercase() && c != '-');
    let flag = row(&format!("--{}", word.to_lowercase().replace('_', "-")))?;
    (is_spelled && flag.name != "print-config").then_some(flag)
}

fn unknown(name: &str) -> Refused {
    let known = all().filter(|flag| flag.name != "print-config").map(Flag::variable);
    Refused::unknown(format!(
        "{name}: not a variable of this server; {}a variable is {VARIABLES} and a long flag of \
         laneway serve --help in capitals, with _ for -; unset this one",
        meant(name, known)
    ))
}

/// What Kubernetes puts into the environment of each pod beside a service that is called laneway:
/// `LANEWAY_SERVICE_HOST`, `LANEWAY_PORT=tcp://10.0.0.1:11211`, `LANEWAY_PORT_11211_TCP_ADDR`. They
/// are no flags, though one has a flag's name.
fn is_service_link(word: &str, value: &OsString) -> bool {
    let words: Vec<&str> = word.split('_').collect();
    let is_pair = |first: &str, then: &[&str]| {
        words.windows(2).any(|pair| pair[0] == first && then.contains(&pair[1]))
    };
    let is_numbered = words.windows(3).any(|three| {
        let number = three[1].bytes().all(|byte| byte.is_ascii_digit());
        three[0] == "PORT" && number && ["TCP", "UDP", "SCTP"].contains(&three[2])
    });
    let value = value.to_string_lossy();
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|way| value.starts_with(way));
    is_pair("SERVICE", &["HOST", "PORT"]) || is_numbered || words.ends_with(&["PORT"]) && is_address
}
