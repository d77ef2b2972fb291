//! Commands about one key, without a value to be stored.

use crate::core::Core;
use crate::execute::Outcome;
use crate::latency::Operation;
use crate::resp::one;
use crate::resp::options;
use crate::resp::table::Spec;
use crate::stream::connection::Connection;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::resp::Args;

impl<T: Transport> Streams<T> {
    /// Such a command, whose key is the first of the `args`; all of it are so many bytes at the
    /// front of `rest`.
    pub(crate) fn resp_plain(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        mut args: Args<'_>,
        (bytes, rest): (usize, &[u8]),
    ) -> Step {
        let key = match options::key(args.next().unwrap_or_default()) {
            Ok(key) => key,
            Err(words) => {
                self.out.extend_from_slice(&words);
                return Step::Took(bytes);
            }
        };
        let before = self.out.len();
        let asking = core.asking(connection, key);
        let outcome = match one::plain(&asking, spec, key, args, &mut self.out) {
            Ok(outcome) => outcome,
            Err(words) => {
                self.out.extend_from_slice(&words);
                Outcome::Done
            }
        };
        let size = core.touched.get();
        if matches!(outcome, Outcome::Elsewhere) {
            return Step::Stop(0, Stop::Hand);
        }
        if matches!(outcome, Outcome::Kept) {
            return self.resp_ask(core, connection, (bytes, rest), size);
        }
        let operation = one::operation(spec.command);
        let asked = (key, operation, !matches!(operation, Operation::Get));
        match self.answered(core, connection, asked, (outcome, size, before)) {
            true => Step::Stop(bytes, Stop::Large),
            false => Step::Took(bytes),
        }
    }
}
