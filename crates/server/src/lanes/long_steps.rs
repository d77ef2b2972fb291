//! The steps of answers that are as long as there are items or connections ([`LongAnswer`]).

use crate::lanes::long_answer::LongAnswer;
use crate::shared::{Shared, lock};
use crate::stats::{self, Question};
use crate::stream::connection::{ConnectionKind, ConnectionStats};
use laneway_store::{ItemMeta, ListBudget, Listing, Moment, meter};
use laneway_wire::reply::{END, OK};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of one `stats cachedump`, at most (memcached's bound is the same).
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Steps of an answer that has no place for more turns, for each domain: the places of a chunk of
/// small items, most of them empty, are more than a step may look at.
const STEPS_AT_ONCE: usize = 3;

/// Connections that one step tells.
const CONNECTIONS_PER_STEP: usize = 64;

/// What is answered where an answer has no place for a second step.
const TOO_LONG: &[u8] = b"SERVER_ERROR too long for one message, ask over a stream\r\n";

impl<S> Shared<S> {
    /// The answer to this question, if it may be long; asked step by step. `asker`: the number of
    /// the connection, 0 where there is none.
    pub fn long_answer(&self, question: &Question, asker: u64) -> Option<LongAnswer> {
        let allowed = match question {
            Question::Dump { classes, .. } => self.settings.dump && *classes != 0,
            Question::Cachedump { .. } => self.settings.dump,
            _ => true,
        };
        LongAnswer::of(question, asker).filter(|_| allowed)
    }

    /// The next step of an answer, behind `out`. True: it was the last one.
    pub fn answer_step(&self, answer: &mut LongAnswer, now: Moment, out: &mut Vec<u8>) -> bool {
        let hidden = self.hidden();
        let is_over = match answer {
            LongAnswer::Items { class, store, walk, left, bytes } => {
                let is_over = self.list_on(1 << *class, (store, walk), now, |key, meta, _| {
                    if *left == 0 || !stats::is_of_text(key) || hidden(key) {
                        return;
                    }
                    let before = out.len();
                    stats::write_item(key, meta, out);
                    let item = out.len() - before;
                    if *bytes + item > CACHEDUMP_BYTES_MAX {
                        out.truncate(before);
                        *left = 0;
                        return;
                    }
                    *bytes += item;
                    *left -= 1;
                });
                *left == 0 || is_over
            }
            LongAnswer::Dump { form, classes, begun, store, walk } => {
                if !std::mem::replace(begun, true) {
                    out.extend_from_slice(OK);
                }
                let shows_cas = self.settings.cas;
                self.list_on(*classes, (store, walk), now, |key, meta, class| {
                    if hidden(key) {
                        return;
                    }
                    let cas = if shows_cas { meta.seq } else { 0 };
                    form.put(key, meta, (class, cas, now), out);
                })
            }
            LongAnswer::Connections { from, asker } => {
                let cards = lock(&self.connections.cards);
                let mut told = 0;
                for (number, card) in cards.range(*from..).take(CONNECTIONS_PER_STEP) {
                    let asks = *number == *asker;
                    stats::write_connection(&connection_snapshot(card, asks, now.seconds()), out);
                    (told, *from) = (told + 1, number + 1);
                }
                meter::items(told);
                told < CONNECTIONS_PER_STEP
            }
        };
        if is_over {
            out.extend_from_slice(match answer {
                LongAnswer::Dump { form, .. } => form.end(),
                _ => END,
            });
        }
        is_over
    }

    /// One step on over the items of all domains, from this place in this store. True: it has come
    /// to the end of the last.
    fn list_on(
        &self,
        classes: u64,
        (store, walk): (&mut usize, &mut Listing),
        now: Moment,
        mut tell: impl FnMut(&[u8], &ItemMeta, u32),
    ) -> bool {
        let mut budget = ListBudget::default();
        let all = std::iter::once(&self.store).chain(self.other_stores());
        for here in all.skip(*store) {
            if !here.list(classes, (&mut *walk, &mut budget), now, &mut tell) {
                return false;
            }
            (*store, *walk) = (*store + 1, Listing::default());
        }
        true
    }

    /// Says of keys whose items are found in memory from now on which must not be told: their last
    /// change is not durable yet, or was taken back between being found and this question.
    pub fn hidden(&self) -> impl Fn(&[u8]) -> bool {
        let kept = self.durable.get().map(|durable| &durable.pending_writes);
        let kept = kept.map(|pending_writes| (pending_writes, pending_writes.sight()));
        move |key| {
            kept.is_some_and(|(pending_writes, sight)| {
                pending_writes.hides_since(self.store.hash(key), sight)
            })
        }
    }

    /// The whole answer, if it is short; who asks has no place for more.
    pub fn answer_at_once(&self, mut answer: LongAnswer, now: Moment) -> Vec<u8> {
        let mut out = Vec::new();
        let steps = STEPS_AT_ONCE * (1 + self.other_stores().len());
        let is_whole = (0..steps).any(|_| self.answer_step(&mut answer, now, &mut out));
        if is_whole { out } else { TOO_LONG.to_vec() }
    }
}

/// What `stats conns` tells of one, in memcached's words.
fn connection_snapshot(
    card: &ConnectionStats,
    asks: bool,
    now_seconds: u32,
) -> stats::ConnectionSnapshot {
    let idle = now_seconds.saturating_sub(card.last_seconds.load(Relaxed));
    let large = card.large.load(Relaxed);
    let state = match card.kind {
        ConnectionKind::Listener => "conn_listening",
        ConnectionKind::Client if asks => "conn_parse_cmd",
        ConnectionKind::Client if card.receives.load(Relaxed) => "conn_nread",
        ConnectionKind::Client if large => "conn_mwrite",
        ConnectionKind::Client | ConnectionKind::Datagrams => "conn_read",
    };
    stats::ConnectionSnapshot {
        number: card.number,
        address: card.peer.clone(),
        listen_address: card.local.clone(),
        datagrams: card.kind == ConnectionKind::Datagrams,
        state,
        idle_seconds: u64::from(idle),
        large,
    }
}
