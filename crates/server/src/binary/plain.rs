//! Requests without a value, except those that read one.

use crate::binary::value::pass_over;
use crate::core::Core;
use crate::execute::{Outcome, VERSION, binary};
use crate::latency::Operation;
use crate::resp::state::{Dialect, Unproven};
use crate::stats::{self, Question};
use crate::stream::connection::Connection;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::binary::reply::{Status, put, put_done, put_error};
use laneway_wire::binary::{Frame, Request};
use laneway_wire::reply::ERROR;

/// The highest level that `verbosity` sets.
const VERBOSITY_MAX: u32 = 2;

impl<T: Transport> Streams<T> {
    /// Such a request, at the front of `rest`.
    pub(crate) fn binary_plain(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        rest: &[u8],
    ) -> Step {
        match frame.request {
            Request::Arith(_)
            | Request::Delete { .. }
            | Request::Touch { .. }
            | Request::Flush { .. }
            | Request::Get(_)
                if core.keeps() =>
            {
                self.binary_keep(core, connection, frame, rest)
            }
            Request::Get(get) => {
                let step = self.binary_get(core, connection, (frame, &get), rest);
                step.unwrap_or(Step::Took(frame.bytes()))
            }
            Request::Arith(_) | Request::Delete { .. } | Request::Touch { .. } => {
                self.binary_change(core, connection, frame)
            }
            Request::Flush { delay } => {
                match binary::flush(&core.context(), frame, delay, &mut self.out) {
                    Outcome::Again => return Step::Stop(0, Stop::Quota), // others come first
                    Outcome::FlushAt(at) => core.shared.flush_at(at),
                    _ => {}
                }
                self.binary_other(core, connection, frame)
            }
            Request::Stat { name } => self.binary_stat(core, connection, (frame, name), rest),
            Request::SaslList | Request::Sasl { .. } if core.shared.settings.auth.is_some() => {
                // Whoever says anew who he is has not said it until it is found right.
                connection.dialect = Dialect::Unproven(Unproven::binary());
                Step::Stop(0, Stop::Quota)
            }
            _ => self.binary_about_nothing(core, connection, frame),
        }
    }

    /// A request that changes an item.
    fn binary_change(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
    ) -> Step {
        let (key, operation) = key_and_operation(&frame.request);
        let context = core.context_for(key);
        let outcome = match &frame.request {
            Request::Arith(arith) => binary::arith(&context, frame, arith, &mut self.out),
            Request::Touch { key, expiration } => {
                binary::touch(&context, frame, (key, *expiration), &mut self.out)
            }
            _ => binary::delete(&context, frame, key, &mut self.out),
        };
        assert!(matches!(outcome, Outcome::Done), "the executor alone is asked again");
        core.sample_uncounted(key, true);
        core.account(connection, operation, core.touched.get());
        Step::Took(frame.bytes())
    }

    /// A request about no item.
    fn binary_about_nothing(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
    ) -> Step {
        let echo = frame.echo;
        match frame.request {
            Request::Noop => put_done(&mut self.out, echo, 0),
            Request::Version => {
                put(&mut self.out, echo, Status::Done, b"", VERSION.as_bytes());
            }
            Request::Verbosity { level } => {
                core.shared.set_verbosity(level.min(VERBOSITY_MAX));
                put_done(&mut self.out, echo, 0);
            }
            Request::Quit => {
                if !frame.quiet {
                    put_done(&mut self.out, echo, 0);
                }
                return Step::Stop(frame.bytes(), Stop::Close);
            }
            _ => {
                put_error(&mut self.out, echo, Status::UnknownCommand);
                core.counters().malformed.bump_owner();
                return pass_over(connection, frame);
            }
        }
        self.binary_other(core, connection, frame)
    }

    /// A request that is about no item is served.
    fn binary_other(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
    ) -> Step {
        core.account(connection, Operation::Other, 0);
        Step::Took(frame.bytes())
    }

    /// Statistics: of those that come in lines `STAT name value`.
    fn binary_stat(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (frame, name): (&Frame<'_>, &[u8]),
        rest: &[u8],
    ) -> Step {
        let reply = match stats::question(name) {
            Ok(Question::Tier) if core.keeps() => {
                return self.binary_keep(core, connection, frame, rest);
            }
            Ok(Question::Cachedump { .. }) => ERROR.to_vec(), // a list of items
            Ok(question) => core.answer_question(&question),
            Err(words) => words.to_vec(),
        };
        binary::put_stats(frame.echo, &reply, &mut self.out);
        self.binary_other(core, connection, frame);
        Step::Stop(frame.bytes(), Stop::Quota) // it was much work: others come first
    }
}

/// The key of a request that changes an item, and as what it is counted.
fn key_and_operation<'a>(request: &Request<'a>) -> (&'a [u8], Operation) {
    match *request {
        Request::Arith(arith) => (arith.key, Operation::Arith),
        Request::Touch { key, .. } => (key, Operation::Touch),
        Request::Delete { key } => (key, Operation::Delete),
        _ => unreachable!("it changes no item"),
    }
}
