//! Commands about several keys, one key after the other: a large value in the middle makes the rest
//! wait for its transfer, a full reply buffer for the next turn.

use crate::core::Core;
use crate::execute::redis;
use crate::latency::Operation;
use crate::resp::gets::Halt;
use crate::resp::state::{EachKey, Under};
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::Quota;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_store::GROUP;
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::put_integer;

impl<T: Transport> Streams<T> {
    /// The next keys of such a command, which stand at the front of `rest`: all that are left.
    pub(crate) fn resp_keys(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let Mode::Resp(Under::Keys { what, left, count, bytes }) = connection.mode else {
            return Step::Took(0);
        };
        let mut args = Args::new(rest, left);
        let (mut keys, mut ends) = ([&[][..]; GROUP], [0; GROUP]);
        let mut found = 0;
        // At least one, or it would never come to an end.
        let room = quota.left().clamp(1, GROUP);
        while found < room
            && let Some(key) = args.next()
        {
            (keys[found], ends[found]) = (key, rest.len() - args.rest().len());
            found += 1;
        }
        let keys = &keys[..found];
        let EachKey::Count(of) = what else {
            let (served, stop) = self.resp_values(core, connection, keys);
            quota.begun += served.max(1);
            let taken = served.checked_sub(1).map_or(0, |last| ends[last]);
            let left = left - served as u32;
            connection.mode = match left {
                0 => Mode::Requests,
                left => Mode::Resp(Under::Keys { what, left, count, bytes: bytes - taken }),
            };
            return match stop {
                None => Step::Took(taken),
                Some(stop) => Step::Stop(taken, stop),
            };
        };
        let mut count = count;
        for key in keys {
            let asking = core.asking(connection, key);
            let counts = redis::count_key(&asking, of, key);
            count += i64::from(counts.expect("the executor counts where items are kept"));
            let operation = match of {
                redis::Count::Deleted => Operation::Delete,
                redis::Count::There => Operation::Other,
                redis::Count::Touched => Operation::Touch,
            };
            core.sample_uncounted(key, !matches!(of, redis::Count::There));
            core.account(connection, operation, 0);
        }
        quota.begun += found;
        let taken = found.checked_sub(1).map_or(0, |last| ends[last]);
        connection.mode = match left - found as u32 {
            0 => {
                put_integer(&mut self.out, count);
                Mode::Requests
            }
            left => Mode::Resp(Under::Keys { what, left, count, bytes: bytes - taken }),
        };
        Step::Took(taken)
    }

    /// The values of some keys of an `MGET`: of how many, and how the turn stops, if it does.
    fn resp_values(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        keys: &[&[u8]],
    ) -> (usize, Option<Stop>) {
        let (stopped, simple) = self.resp_group(core, connection, keys);
        core.account_simple(connection, &simple);
        match stopped {
            None => (keys.len(), None),
            Some((number, Halt::Served(stop))) => (number + 1, Some(stop)),
            Some((number, Halt::Hand)) => (number, Some(Stop::Hand)),
            Some((number, Halt::Kept(_))) => {
                match self.resp_ask_keys(core, connection, &keys[number..]) {
                    Some(given) => (number + given, Some(Stop::Ticket)),
                    None => (number, Some(Stop::Quota)),
                }
            }
        }
    }
}
