//! Reads the flags of TLS.

use crate::arguments::text;
use crate::connection::Target;
use laneway_tls::ClientFiles;
use lexopt::Parser;
use std::path::PathBuf;

/// Takes a flag's value, if the flag is one of these.
pub(super) fn flag(
    files: &mut ClientFiles,
    name: &str,
    parser: &mut Parser,
) -> Result<bool, String> {
    match name {
        "tls-ca" => files.ca = Some(text(name, parser)?.into()),
        "tls-cert" => files.cert = Some(text(name, parser)?.into()),
        "tls-key" => files.key = Some(text(name, parser)?.into()),
        "tls-name" => files.name = Some(text(name, parser)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Where the server listens, and whether that is encrypted.
pub(super) fn target(
    server: &str,
    socket: Option<&PathBuf>,
    files: &ClientFiles,
    is_udp: bool,
) -> Result<Target, String> {
    match (socket, files.is_asked_for()) {
        (None, false) => Ok(Target::Tcp(server.to_owned())),
        (Some(path), false) => Ok(Target::Unix(path.clone())),
        (None, true) if !is_udp => Ok(Target::Tls(server.to_owned(), files.read(server)?)),
        (_, true) => Err("--tls-ca: TCP alone is encrypted; leave out --socket and --udp".into()),
    }
}
