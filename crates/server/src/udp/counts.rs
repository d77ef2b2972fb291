//! What each worker has seen of datagrams, and what became of them: one [`UdpCounts`] per worker,
//! which alone writes it; `stats udp` sums them. Every way in which input can be bad has its count.
//!
//! It knows no socket. Counts are datagrams where the name does not say otherwise.

use crate::counts::counters::Counter;
use laneway_wire::udp::reassembly::Counts;

macro_rules! udp_counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One worker's counts. Aligned so that no two workers write one cache line.
        #[derive(Default)]
        #[repr(align(128))]
        pub struct UdpCounts {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl UdpCounts {
            /// Every count and its name, in the order of `stats udp`.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.get()),)*].into_iter()
            }
        }
    };
}

udp_counts! {
    /// Calls that brought at least one datagram.
    bursts,
    /// Received.
    datagrams,
    /// Times that the kernel failed to receive, whatever its reason.
    receive_failures,
    /// Requests executed here that came in datagrams (a datagram may hold several).
    requests,
    /// Messages sent, each the reply to one request.
    replies,
    /// Replies of more than one datagram.
    replies_of_many,
    /// Trains of large replies handed to the kernel.
    trains,
    /// Too short for a header.
    truncated,
    /// Said to be part 0 of 0, or of a number not below the total.
    wrong_sequence,
    /// Of a kind nobody knows.
    unknown_kind,
    /// From one of our own queues, as their source says: thrown away.
    from_ourselves,
    /// Lines that begin as replies do, not as requests: not answered, nor what stands behind them.
    replies_received,
    /// Requests of the binary protocol: not answered, nor what stands behind them.
    binary_requests,
    /// Requests without a newline: not answered.
    half_requests,
    /// Values that do not end where their message does.
    size_mismatches,
    /// Requests of one message beyond what is served of one.
    requests_beyond_limit,
    /// Datagrams of requests that came when the server was stopping already.
    requests_while_stopping,
    /// Requests thrown away because one burst made too many bytes of replies.
    requests_over_budget,
    /// Requests thrown away because the queue of the worker that serves them was full.
    requests_queue_full,
    /// Requests that were put into another worker's queue.
    requests_handed_over,
    /// Replies that no number of frames can carry; answered by an error.
    replies_too_long,
    /// Replies thrown away because the send buffer stayed full.
    replies_dropped,
    /// Replies that the kernel refused to send: no route, no such address.
    replies_refused,
    /// Frames given to the worker that puts their message together.
    frames_forwarded,
    /// Frames thrown away because that worker did not keep up.
    frames_queue_full,
    /// Frames thrown away because the memory for datagrams was full.
    frames_no_room,
    /// Requests and replies thrown away for the same reason.
    messages_no_room,
    /// Messages copied from memory that their clients lent.
    messages_lent,
    /// Messages that were lent and did not arrive as their clients sealed them, or not at all.
    messages_lent_lost,
    /// Messages put together from several frames.
    messages_whole,
    /// Frames of a message that had another total before.
    frames_total_changed,
    /// Frames whose length does not fit that of the others.
    frames_uneven,
    /// Frames that had come already.
    frames_duplicate,
    /// Frames of a message that was whole, or given up.
    frames_stale,
    /// Messages longer than any item may be.
    messages_too_long,
    /// Messages given up, the one that stood still longest first, because memory was full.
    messages_dropped_for_room,
    /// Messages given up because frames stayed away.
    messages_timed_out,
    /// Messages given up because their worker changed its role.
    messages_dropped_role_change,
    /// Times that a client was asked to send missing frames again.
    resends_asked,
    /// Times that a client asked for frames of a reply, and got them.
    resends_answered,
    /// Times that it asked for a reply that is no longer kept.
    resends_unknown,
    /// Replies that a client said it has whole.
    forgets,
    /// Requests to be carried out once that came again: answered from memory.
    repeats_answered,
    /// The same, while the first one was still under way: not answered again.
    repeats_under_way,
    /// Cookies sent to peers that had not proved their address.
    cookies_sent,
    /// Peers that echoed their cookie.
    peers_proved,
    /// Cookies that were not the peer's.
    cookies_wrong,
    /// What was not answered at all, since not even a cookie was small enough.
    unproved_unanswered,
}

impl UdpCounts {
    /// What this worker's reassembly counts.
    pub(super) fn set_reassembly_owner(&self, counts: &Counts) {
        self.messages_whole.set_owner(counts.whole);
        self.frames_total_changed.set_owner(counts.total_changed);
        self.frames_uneven.set_owner(counts.uneven);
        self.frames_duplicate.set_owner(counts.duplicate);
        self.frames_stale.set_owner(counts.stale);
        self.messages_too_long.set_owner(counts.too_long);
        self.messages_dropped_for_room.set_owner(counts.dropped_for_room);
        self.messages_timed_out.set_owner(counts.timed_out);
    }
}
