//! `CLIENT`: who is connected, and what each says of itself.

use crate::core::Core;
use crate::resp::options::{Refusal, SYNTAX, is, name_of};
use crate::shared::lock;
use crate::stream::connection::{Connection, ConnectionKind, ConnectionStats};
use laneway_transport::Transport;
use laneway_wire::resp::reply::{
    OK, Version, put_bulk, put_error, put_integer, put_null, put_verbatim,
};
use laneway_wire::resp::{Args, integer};
use std::sync::atomic::Ordering::Relaxed;

/// Connections that `CLIENT LIST` tells of.
const CLIENTS_MAX: usize = 256;

const BAD_ID: &[u8] = b"-ERR Invalid client ID\r\n";
const MANY_IDS: &[u8] = b"-ERR CLIENT LIST takes 256 ids at most\r\n";

impl<T: Transport> Core<T> {
    /// `CLIENT part ...`; the words were counted.
    pub(crate) fn resp_client(
        &self,
        connection: &mut Connection<T::Stream>,
        mut args: Args<'_>,
        out: &mut Vec<u8>,
    ) {
        let part = args.next().unwrap_or_default();
        let card = connection.card.clone();
        let session = connection.session();
        let version = session.version;
        match () {
            () if is(part, "list") => match self.client_list(args) {
                Ok(text) => put_verbatim(out, version, &text),
                Err(words) => out.extend_from_slice(&words),
            },
            () if is(part, "id") => put_integer(out, card.number as i64),
            () if is(part, "getname") => match session.name.is_empty() {
                true => put_null(out, version),
                false => put_bulk(out, &session.name),
            },
            () if is(part, "setname") => match name_of(args.next().unwrap_or_default()) {
                Ok(name) => {
                    session.name = name.to_vec();
                    card.set_name(name);
                    out.extend_from_slice(OK);
                }
                Err(words) => out.extend_from_slice(words),
            },
            () if is(part, "setinfo") => {
                let what = args.next().unwrap_or_default();
                set_info(&card, what, args.next().unwrap_or_default(), out);
            }
            () if is(part, "no-evict") || is(part, "no-touch") => {
                let on = args.next().unwrap_or_default();
                let is_known = is(on, "on") || is(on, "off");
                out.extend_from_slice(if is_known { OK } else { SYNTAX });
            }
            () => {
                let mut line = self.client_line(&card);
                let resp = if version == Version::Three { 3 } else { 2 };
                line.extend_from_slice(format!(" resp={resp}\n").as_bytes());
                put_verbatim(out, version, &line);
            }
        }
    }

    /// `CLIENT LIST [TYPE type] [ID id ...]`, of the first connections.
    fn client_list(&self, mut args: Args<'_>) -> Result<Vec<u8>, Refusal> {
        let cards = lock(&self.shared.connections.cards);
        let mut text = Vec::new();
        let mut tell = |card: &ConnectionStats| {
            text.extend(self.client_line(card));
            text.push(b'\n');
        };
        let is_client =
            |card: &&std::sync::Arc<ConnectionStats>| card.kind == ConnectionKind::Client;
        match args.next() {
            None => {
                cards.values().filter(is_client).take(CLIENTS_MAX).for_each(|card| tell(card));
            }
            Some(option) if is(option, "type") && args.left() == 1 => {
                let kind = args.next().unwrap_or_default();
                let others = ["master", "replica", "slave", "pubsub"];
                if is(kind, "normal") {
                    cards.values().filter(is_client).take(CLIENTS_MAX).for_each(|card| tell(card));
                } else if !others.iter().any(|other| is(kind, other)) {
                    let mut words = Vec::new();
                    let kind = kind[..kind.len().min(128)].escape_ascii();
                    put_error(&mut words, format!("ERR Unknown client type '{kind}'").as_bytes());
                    return Err(words.into());
                }
            }
            Some(option) if is(option, "id") && args.left() > 0 => {
                if args.left() as usize > CLIENTS_MAX {
                    return Err(MANY_IDS.into());
                }
                for id in args {
                    let id = integer(id).and_then(|id| u64::try_from(id).ok());
                    let id = id.filter(|id| *id > 0).ok_or(Refusal::from(BAD_ID))?;
                    cards.get(&id).filter(is_client).into_iter().for_each(|card| tell(card));
                }
            }
            Some(_) => return Err(SYNTAX.into()),
        }
        Ok(text)
    }

    /// What is told of one connection.
    fn client_line(&self, card: &ConnectionStats) -> Vec<u8> {
        let idle = self.now.seconds().saturating_sub(card.last_seconds.load(Relaxed));
        let said = card.introduction();
        let (peer, local) = (address(&card.peer), card.local.as_deref().unwrap_or_default());
        let head = format!("id={} addr={peer} laddr={} name=", card.number, address(local));
        let middle = format!(" idle={idle} flags=N db=0 lib-name=");
        let parts: [&[u8]; 6] = [
            head.as_bytes(),
            &said.name,
            middle.as_bytes(),
            &said.library,
            b" lib-ver=",
            &said.library_version,
        ];
        parts.concat()
    }
}

/// An address as Redis writes it.
fn address(text: &str) -> &str {
    ["tcp:", "tcp6:"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text)
}

/// `CLIENT SETINFO`
fn set_info(card: &ConnectionStats, what: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let is_name = is(what, "lib-name");
    if !is_name && !is(what, "lib-ver") {
        let what = what[..what.len().min(128)].escape_ascii();
        return put_error(out, format!("ERR Unrecognized option '{what}'").as_bytes());
    }
    match name_of(text) {
        Ok(text) => {
            let mut said = card.said();
            let told = if is_name { &mut said.library } else { &mut said.library_version };
            *told = text.into();
            out.extend_from_slice(OK);
        }
        Err(_) => {
            let what = String::from_utf8_lossy(what);
            let words =
                format!("ERR {what} cannot contain spaces, newlines or special characters.");
            put_error(out, words.as_bytes());
        }
    }
}
