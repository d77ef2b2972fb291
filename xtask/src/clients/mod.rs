//! Real clients of memcached against Laneway, each by a script of its own that verifies what it
//! gets back (tests-external/clients), and the table of them in docs/clients.md.
//!
//! Pinned clients are fetched by the package manager of their language; Debian's come with
//! `cargo xtask setup`. Whose tools are not here is left out by name.

mod list;
mod table;

use crate::languages::Place;
use crate::outcome::{Failure, Outcome, SKIPPED_PREFIX, passed, skipped};
use crate::{Executable, process};
use list::{CLIENTS, Client};
use std::path::PathBuf;
use table::Row;

const USER: &str = "app";
const PASSWORD: &str = "a long one";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut only, mut write, mut server) = (String::new(), false, None);
    flags!(parser, {
        Long("only") => only = parser.value()?.string()?,
        Long("write") => write = true,
        Long("server") => server = Some(PathBuf::from(parser.value()?)),
    });
    if write && server.is_some() {
        return Err(Failure::Usage("--write: the table is Laneway's".into()));
    }
    let subject = Executable::named_or_laneway(server.as_deref())?;
    let chosen: Vec<&Client> = CLIENTS.iter().filter(|one| one.name.contains(&only)).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!("--only {only}: no client is called so")));
    }
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    let server = subject.start("clients", &[])?;
    for client in &chosen {
        let place = place(&server.address().port().to_string())?;
        match place.run(&client.name, |place| client.run(place))? {
            Ok(said) => rows.push(Row::of(client, &said)?),
            Err(why) => left_out.push(format!("{}: {why}", client.name)),
        }
    }
    server.stop()?;
    let users = match subject.is_memcached() {
        true => 0,
        false => with_users(&subject, &chosen, &mut left_out)?,
    };
    if rows.is_empty() {
        return skipped(left_out.join("; "));
    }
    if !subject.is_memcached() {
        table::keep(&rows, write)?;
    }
    left_out.iter().for_each(|why| println!("{SKIPPED_PREFIX}{why}"));
    passed(format!("{} clients, {users} of them with users, too", rows.len()))
}

/// Those that know SASL, against a server that asks for it; how many there were.
fn with_users(
    subject: &Executable,
    chosen: &[&Client],
    left_out: &mut Vec<String>,
) -> Result<usize, Failure> {
    let chosen: Vec<_> = chosen.iter().filter(|client| client.knows_sasl).collect();
    if chosen.is_empty() {
        return Ok(0);
    }
    let users = process::scratch_dir("clients")?.join("users");
    process::write(&users, format!("{USER}:{PASSWORD}\n"))?;
    let server = subject.start("clients-users", &["-S", "-Y", &users.to_string_lossy()])?;
    let mut place = place(&server.address().port().to_string())?;
    place.further = [USER, PASSWORD].map(str::to_owned).to_vec();
    let mut count = 0;
    for client in chosen {
        match place.run(&client.name, |place| client.run(place))? {
            // What a script leaves out it has told already.
            Ok(said) => count += usize::from(!said.starts_with(SKIPPED_PREFIX)),
            Err(why) => left_out.push(format!("{} with users: {why}", client.name)),
        }
    }
    server.stop()?;
    Ok(count)
}

fn place(port: &str) -> Result<Place, String> {
    Ok(Place {
        scripts: process::external("clients"),
        built: process::scratch_dir("clients")?,
        port: port.to_owned(),
        further: Vec::new(),
    })
}
