//! A request that has not arrived whole: it waits for the rest, or its value streams into its item,
//! or it is longer than a request may be.

use crate::core::Core;
use crate::resp::multi::TOO_LONG;
use crate::resp::state::Under;
use crate::resp::table::{Command, READ_ONLY, Spec, find};
use crate::resp::values::value_at;
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::resp::{BULK_END, Scan, Skip};

/// Longest request, but for the values that stream into their items.
const REQUEST_BYTES_MAX: usize = 1 << 20;

const REQUEST_TOO_LONG: &[u8] = b"-ERR the request is longer than 1 MiB\r\n";

impl<T: Transport> Streams<T> {
    /// What there is of such a request stands in `rest`, and was looked at.
    pub(crate) fn resp_partial(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Step {
        let read_only = connection.read_only;
        let session = connection.session();
        let scan = session.scan;
        let waits = session.transaction.is_some();
        let words = if waits { TOO_LONG } else { REQUEST_TOO_LONG };
        let Some(pending) = scan.pending(rest) else {
            if rest.len() <= REQUEST_BYTES_MAX || scan.announced() == 0 {
                return Step::Stop(0, Stop::Starved);
            }
            self.out.extend_from_slice(words);
            session.break_transaction();
            session.scan = Scan::default();
            connection.mode = Mode::Resp(Under::Skip(Skip::arguments(scan.missing())));
            return Step::Took(scan.at());
        };
        let whole = pending.at.saturating_add(pending.bytes + BULK_END.len());
        if whole <= READ_BYTES {
            return Step::Stop(0, Stop::Starved);
        }
        let mut args = pending.before;
        let spec = args.next().and_then(find).filter(|spec| spec.takes(scan.announced()));
        if read_only && spec.is_some_and(Spec::writes) {
            core.counters().refused_read_only.bump_owner();
            session.break_transaction();
            return self.resp_refuse(connection, READ_ONLY, pending, pending.behind);
        }
        if let Some(spec) = spec.filter(|_| !waits) {
            if value_at(spec.command) == Some(pending.before.left()) {
                return self.resp_begin(core, connection, spec, pending, rest);
            }
            // One pair after the other, whatever of it is there.
            if spec.command == Command::SetMany && scan.announced() % 2 == 1 {
                session.scan = Scan::default();
                connection.mode = Mode::Resp(Under::Pairs(scan.announced() / 2));
                return Step::Took(pending.at - args.rest().len());
            }
        }
        if whole <= REQUEST_BYTES_MAX {
            return Step::Stop(0, Stop::Starved);
        }
        session.break_transaction();
        self.resp_refuse(connection, words, pending, pending.behind)
    }
}
