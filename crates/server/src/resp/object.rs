//! `OBJECT` and `MEMORY USAGE`: what is known of an item besides its value.

use crate::core::Core;
use crate::resp::options::{self, OPTIONS_MAX, Refusal, SYNTAX};
use crate::stream::connection::Connection;
use laneway_store::{Got, HEADER_BYTES, ItemMeta};
use laneway_transport::Transport;
use laneway_wire::resp::reply::{put_bulk, put_integer, put_null};
use laneway_wire::resp::{Args, integer};

/// Redis' word for a value that is short.
const SHORT_BYTES_MAX: usize = 44;
/// What the index takes for an item, at every size of it.
const INDEX_BYTES: usize = 13;

const NO_FREQUENCY: &[u8] = b"-ERR how often a key is used is not counted; \
OBJECT IDLETIME tells when it was used last\r\n";
const NOT_IN_MEMORY: &[u8] = b"-ERR the item is on the disk alone, or is being changed: \
this is known of items in memory\r\n";

impl<T: Transport> Core<T> {
    /// `OBJECT part key`, `MEMORY USAGE key [SAMPLES count]`; the words were counted.
    pub(crate) fn resp_object(
        &self,
        connection: &mut Connection<T::Stream>,
        mut args: Args<'_>,
        out: &mut Vec<u8>,
    ) {
        let part = args.next().unwrap_or_default();
        let key = match options::key(args.next().unwrap_or_default()) {
            Ok(key) => key,
            Err(words) => return out.extend_from_slice(&words),
        };
        let is = |name: &str| part.eq_ignore_ascii_case(name.as_bytes());
        if let Err(words) = check_samples(args) {
            return out.extend_from_slice(&words);
        }
        // Whether there is an item is looked at before, as in Redis.
        let unknown = if is("freq") { NO_FREQUENCY } else { NOT_IN_MEMORY };
        let context = self.context_for(key);
        let (hash, sight) = (context.store.hash(key), context.sight());
        let mut value = Vec::new();
        let found = context.store.peek_value(hash, key, context.now, &mut value);
        let meta: ItemMeta = match found {
            Got::Miss if self.is_kept(key) => return out.extend_from_slice(unknown),
            Got::Miss => return put_null(out, connection.session().version),
            Got::Copied(meta) => meta,
            Got::Large(meta, _) => meta,
        };
        if context.is_hidden(hash, sight) {
            return out.extend_from_slice(unknown);
        }
        match () {
            () if is("freq") => out.extend_from_slice(NO_FREQUENCY),
            () if is("refcount") => put_integer(out, 1),
            () if is("idletime") => put_integer(out, meta.idle_seconds.into()),
            () if is("encoding") => put_bulk(out, encoding(&value, meta.value_bytes as usize)),
            () => {
                let bytes = key.len() + meta.value_bytes as usize + HEADER_BYTES + INDEX_BYTES;
                put_integer(out, bytes as i64);
            }
        }
    }

    /// Whether the tier has an item of this key.
    fn is_kept(&self, key: &[u8]) -> bool {
        let durable = self.shared.durable.get();
        durable.is_some_and(|durable| durable.pending_writes.value_bytes(key, self.now).is_some())
    }
}

/// `SAMPLES count`: there is nothing to be sampled, but what is wrong is told. `OBJECT` has nothing
/// behind its key.
fn check_samples(mut behind: Args<'_>) -> Result<(), Refusal> {
    if behind.left() > OPTIONS_MAX {
        return Err(SYNTAX.into());
    }
    while let Some(option) = behind.next() {
        let count = behind.next().filter(|_| options::is(option, "samples"));
        if options::number(count.ok_or(Refusal::from(SYNTAX))?)? < 0 {
            return Err(SYNTAX.into());
        }
    }
    Ok(())
}

/// How Redis would keep a value of that length; a long one was not read.
fn encoding(value: &[u8], length: usize) -> &'static [u8] {
    match value {
        _ if length != value.len() => b"raw",
        value if integer(value).is_some() => b"int",
        value if value.len() <= SHORT_BYTES_MAX => b"embstr",
        _ => b"raw",
    }
}
