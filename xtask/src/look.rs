//! What a server shows a client of a key that a judge knows: read off a connection, and judged.

use crate::Client;
use crate::judge::{Stamp, View};

/// Takes the bytes of a value of `key` off the connection, and has them judged.
pub fn take(
    view: &mut View<'_>,
    connection: &mut Client,
    key: u32,
    length: usize,
) -> Result<Stamp, String> {
    let mut read = None;
    let told = connection.body(length, |bytes| read.insert(Stamp::read(key, bytes)).is_ok());
    let Some(read) = read else { return Err(told.err().unwrap_or_default()) };
    let stamp = read?;
    view.found(key, stamp).map(|()| stamp)
}

/// The same of the whole reply to `mg KEY v`; whether the key held a value.
pub fn look(view: &mut View<'_>, connection: &mut Client, key: u32) -> Result<bool, String> {
    let line = connection.line()?;
    if line == "EN" {
        return view.missing(key).map(|()| false);
    }
    let length = line.strip_prefix("VA ").and_then(|length| length.parse().ok());
    let length = length.ok_or_else(|| format!("mg of key {key} is answered by `{line}`"))?;
    take(view, connection, key, length).map(|_| true)
}
