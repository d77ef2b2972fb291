//! `MULTI`, `EXEC`, `DISCARD`: requests are kept as they came until `EXEC` comes. They are executed
//! in one moment where that can be ([`super::watch`]). Otherwise they are served one after the
//! other, as if they came then: no other request of the connection comes between, those of other
//! connections may, and a connection that closes takes those with it that were not served yet.

use crate::resp::state::{Front, Session, Transaction};
use crate::resp::table::Command;
use laneway_store::{Store, meter};
use laneway_wire::resp::reply::{OK, Version, put_array_head, put_null};
use std::sync::Arc;

/// Most bytes of requests that wait for `EXEC`.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

const QUEUED: &[u8] = b"+QUEUED\r\n";
const NESTED: &[u8] = b"-ERR MULTI calls can not be nested\r\n";
/// There is nothing to execute.
pub const NO_EXEC: &[u8] = b"-ERR EXEC without MULTI\r\n";
const NO_DISCARD: &[u8] = b"-ERR DISCARD without MULTI\r\n";
/// A request of it was refused.
pub const ABORTED: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
/// Behind `WATCH` it cannot be executed in one moment with the others.
pub const NOT_AT_ONCE: &[u8] =
    b"-ERR behind WATCH a transaction has commands about keys alone, without OBJECT and MEMORY\r\n";
/// The requests are more than may wait.
pub const TOO_LONG: &[u8] =
    b"-ERR the transaction is longer than 1 MiB, or memory is short; it is discarded by EXEC\r\n";

/// Writes that a transaction was not executed, since what was watched has changed.
pub fn put_nothing(out: &mut Vec<u8>, version: Version) {
    match version {
        Version::Two => out.extend_from_slice(b"*-1\r\n"),
        Version::Three => put_null(out, version),
    }
}

/// Whether a command waits for `EXEC`.
pub fn is_queued(command: Command) -> bool {
    use Command::{Discard, Exec, Multi, Quit, Reset, Watch};
    !matches!(command, Multi | Exec | Discard | Watch | Quit | Reset)
}

impl Session {
    /// A request was refused: a transaction that it would belong to is not executed.
    pub(crate) fn break_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_broken = true;
            (transaction.bytes, transaction.charge) = (Vec::new(), None);
        }
    }

    /// Say why a request is refused. An `EXEC` that is wrong ends its transaction.
    pub(crate) fn refuse_in_transaction(&mut self, words: &[u8], is_exec: bool, out: &mut Vec<u8>) {
        if !is_exec {
            self.break_transaction();
            return out.extend_from_slice(words);
        }
        (self.transaction, self.watched) = (None, Vec::new());
        let why = words.strip_prefix(b"-ERR ").unwrap_or(words);
        out.extend_from_slice(b"-EXECABORT Transaction discarded because of: ");
        out.extend_from_slice(why);
    }

    /// What waits for `EXEC` now was charged for: it is not charged for again when it is executed.
    pub(crate) fn is_charged(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.charged = transaction.requests;
        }
    }

    /// Of so many requests, those that are to be charged for.
    pub(crate) fn uncharged(&mut self, requests: u64) -> u64 {
        let paid = self.prepaid.min(requests);
        self.prepaid -= paid;
        requests - paid
    }

    /// Keep a request until `EXEC`: `budget` bytes of it are copied now, at most, behind those that
    /// were copied in turns before. Whether it is answered.
    pub(crate) fn queue(
        &mut self,
        request: &[u8],
        budget: usize,
        store: &Arc<Store>,
        out: &mut Vec<u8>,
    ) -> bool {
        let copied = std::mem::take(&mut self.queued_bytes);
        let Some(transaction) = &mut self.transaction else { return true };
        if transaction.is_broken {
            out.extend_from_slice(QUEUED); // it is kept nowhere, and counted nowhere
            return true;
        }
        let bytes = transaction.bytes.len() - copied + request.len();
        let charge = transaction.charge.get_or_insert_with(|| store.charge());
        let fits = bytes <= TRANSACTION_BYTES_MAX
            && charge.grow_to(bytes.next_power_of_two() as u64).is_ok();
        if !fits {
            self.break_transaction();
            out.extend_from_slice(TOO_LONG);
            return true;
        }
        let end = request.len().min(copied.saturating_add(budget));
        meter::bytes(end - copied);
        transaction.bytes.extend_from_slice(&request[copied..end]);
        if end < request.len() {
            self.queued_bytes = end;
            return false;
        }
        transaction.requests += 1;
        out.extend_from_slice(QUEUED);
        true
    }

    /// One of the commands of this file.
    pub(crate) fn transact(&mut self, command: Command, out: &mut Vec<u8>) {
        match (command, self.transaction.take()) {
            (Command::Multi, None) => {
                self.transaction = Some(Transaction::default());
                out.extend_from_slice(OK);
            }
            (Command::Multi, Some(before)) => {
                self.transaction = Some(before);
                out.extend_from_slice(NESTED);
            }
            (Command::Discard, Some(_)) => {
                self.watched.clear();
                out.extend_from_slice(OK);
            }
            (Command::Discard, None) => out.extend_from_slice(NO_DISCARD),
            (Command::Exec, None) => out.extend_from_slice(NO_EXEC),
            (Command::Exec, Some(Transaction { is_broken: true, .. })) => {
                out.extend_from_slice(ABORTED);
            }
            (Command::Exec, Some(Transaction { bytes, requests, charged, charge, .. })) => {
                self.prepaid += u64::from(charged);
                put_array_head(out, requests as usize);
                self.front = Front::new(bytes, charge);
            }
            (_, before) => {
                (self.transaction, self.watched) = (before, Vec::new());
                out.extend_from_slice(OK); // `UNWATCH`
            }
        }
    }
}
