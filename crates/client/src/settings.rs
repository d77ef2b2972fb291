//! What a client may hold and how long it waits. Times are nanoseconds, sizes bytes.

use laneway_wire::udp::MESSAGE_BYTES_MAX;

/// A millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;
/// A second.
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;

/// Bounds and patience of a [`crate::Core`], and of the [`crate::Client`] around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Requests held: waiting, under way, and answered but not yet taken; one at least.
    pub requests_max: usize,
    /// Bytes of the requests held, keys and values. One request is always taken, however long.
    pub request_bytes_max: usize,
    /// Requests under way at once, those that leave as one counted as one; fewer while datagrams
    /// are being lost.
    pub window_max: usize,
    /// Keys of `get`s that wait together and leave as one request, in one datagram: 1 to 16 make
    /// sense, and no more are put together than one datagram has held the values of lately. Over
    /// shared memory and RDMA each leaves by itself.
    pub get_keys_max: usize,
    /// Bytes of replies that are not whole yet.
    pub reply_bytes_max: usize,
    /// Longest reply.
    pub reply_message_bytes_max: usize,
    /// When a request is given up, counted from [`crate::Core::push`]. However long that is, a
    /// `set`, `delete` or `touch` is not sent again later than nine seconds behind the first time:
    /// the server might have forgotten it.
    pub deadline_nanos: u64,
    /// How long a reply is waited for before the request is sent again, until round trips have
    /// been measured.
    pub retry_nanos_first: u64,
    /// The same at least, however short the round trips.
    pub retry_nanos_min: u64,
    /// The same at most, however often it was sent.
    pub retry_nanos_max: u64,
    /// How long the rest of a reply is waited for before the missing frames are asked for.
    pub resend_nanos: u64,
    /// How fast a request of many datagrams leaves, in bytes a second, at most. The rate halves
    /// when the server misses many of them, and grows again.
    pub rate_max: u64,
    /// How long the id of a read is not used again that was answered when it had been sent once, so
    /// that a late reply meets nobody.
    pub id_rest_nanos_read: u64,
    /// The same for a write, and for a read that was sent again or given up, which may be answered
    /// yet: longer than the ten seconds for which the server knows a repeated
    /// request by its id.
    pub id_rest_nanos_write: u64,
    /// How long [`crate::Client`] waits over TCP for the server to accept it, and then for what it
    /// tells of its topology. Over UDP that is a request like any other.
    pub topology_nanos: u64,
}

impl Settings {
    /// For a server that shares memory with its client. Nothing is late there for long: the id of a
    /// read rests for less, and large requests leave as fast as they are copied.
    pub fn in_memory() -> Settings {
        Settings {
            window_max: 32,
            rate_max: 1 << 36,
            id_rest_nanos_read: 50 * MILLISECOND,
            ..Settings::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            requests_max: 4096,
            request_bytes_max: 64 << 20,
            window_max: 64,
            get_keys_max: 16,
            reply_bytes_max: 128 << 20,
            reply_message_bytes_max: MESSAGE_BYTES_MAX,
            deadline_nanos: 5 * SECOND,
            retry_nanos_first: 100 * MILLISECOND,
            retry_nanos_min: 20 * MILLISECOND,
            retry_nanos_max: SECOND,
            resend_nanos: 5 * MILLISECOND,
            rate_max: 1 << 30,
            id_rest_nanos_read: SECOND,
            id_rest_nanos_write: 12 * SECOND,
            topology_nanos: 5 * SECOND,
        }
    }
}
