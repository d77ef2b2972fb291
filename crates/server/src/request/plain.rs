//! A request without a value, and what its outcome asks for besides the reply.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::{self, Context, Outcome};
use crate::request::batches::goes_along;
use crate::request::requests::{key_of, operation};
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::{KEY_BYTES_MAX, Request};

impl<T: Transport> Streams<T> {
    /// A request without a value behind it, whose line is so much of the input.
    pub(crate) fn plain(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        request: &Request<'_>,
        (input, head): (&[u8], usize),
    ) -> Step {
        let line = &input[..head];
        if let Some(to) = core.queue_for_unseen(request) {
            if to == EXECUTOR
                && goes_along(request)
                && let Some(step) = self.batch(core, connection, input)
            {
                return step;
            }
            return self.hand_request(core, connection, to, line, 0);
        }
        let before = self.out.len();
        let context = Context { read_only: connection.read_only, ..core.context() };
        let outcome = execute::command(&context, request, &mut self.out);
        let size = core.touched.get();
        if matches!(outcome, Outcome::Kept) {
            return self.hand_request(core, connection, EXECUTOR, line, size);
        }
        if matches!(outcome, Outcome::Elsewhere) {
            return self.elsewhere(core, connection, line, size);
        }
        if matches!(outcome, Outcome::Again) {
            return Step::Stop(0, Stop::Quota); // others come first
        }
        core.count_hot_request(request);
        if matches!(outcome, Outcome::Transfer(_)) {
            self.send_before_large(core, connection, before);
            if let Some((key, _)) = key_of(request, &mut [0; KEY_BYTES_MAX]) {
                core.note_key(connection, key, size);
            }
        }
        core.account(connection, operation(request), size);
        self.conclude(core, connection, outcome, head, true)
    }

    /// The next step of the answer that a connection is given; others come before the one after.
    pub(crate) fn answer_on(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> Step {
        if let Mode::Answering(answer) = &mut connection.mode
            && core.shared.answer_step(answer, core.now, &mut self.out)
        {
            connection.mode = Mode::Requests;
        }
        Step::Stop(0, Stop::Quota)
    }

    /// What an outcome asks for besides its reply.
    fn conclude(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        outcome: Outcome,
        consumed: usize,
        last: bool,
    ) -> Step {
        match outcome {
            Outcome::Done => {}
            Outcome::Elsewhere | Outcome::Kept => return Step::Stop(0, Stop::Hand),
            Outcome::Again => return Step::Stop(0, Stop::Quota),
            Outcome::Transfer(transfer) => {
                self.begin_transfer(core, connection, transfer, last);
                return Step::Stop(consumed, Stop::Large);
            }
            Outcome::Close => return Step::Stop(consumed, Stop::Close),
            Outcome::Shutdown { graceful: _ } => {
                core.shared.request_stop();
                return Step::Stop(consumed, Stop::Close);
            }
            Outcome::FlushAt(at) => core.shared.flush_at(at),
            Outcome::Stats(question) => {
                if let Some(answer) = core.shared.long_answer(&question, connection.card.number) {
                    connection.mode = Mode::Answering(Box::new(answer));
                    return Step::Stop(consumed, Stop::Quota);
                }
                let reply = core.answer_question(&question);
                self.out.extend_from_slice(&reply);
                return Step::Stop(consumed, Stop::Quota); // it was much work: others come first
            }
            Outcome::Backup(asked) => {
                let reply = core.shared.answer_backup(&asked, connection.card.number);
                self.out.extend_from_slice(reply);
            }
            Outcome::Tier(asked) => self.out.extend_from_slice(core.shared.answer_tier(asked)),
            Outcome::ClientLimit(limited, most) => {
                self.out.extend_from_slice(core.shared.answer_client_limit(limited, most));
                return Step::Stop(consumed, Stop::Quota); // all buckets were filled
            }
            Outcome::Watch(asked) => self.begin_watching(core, connection, asked),
            Outcome::Verbosity(level) => core.shared.set_verbosity(level),
        }
        Step::Took(consumed)
    }
}
