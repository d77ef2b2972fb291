//! By which data words the kernel tells of what is in a worker's epoll set. Streams have those of
//! their slots, which are small numbers; all else has words from the other end on.

/// Data word of the eventfd in the epoll set; no slot has this number.
pub(crate) const WORD_WAKE: u64 = u64::MAX;
/// Listener `i` has the data word `WORD_LISTENERS + i`.
pub(crate) const WORD_LISTENERS: u64 = u64::MAX - 0xFFFF;
/// The sockets of queue `i` have the data words `WORD_QUEUES + 2 * i` and the one behind it.
pub(crate) const WORD_QUEUES: u64 = WORD_LISTENERS - 0x2_0000;
/// RX queue `i` of the way past the stack has the data word `WORD_PLACES - i`; no slot has these.
pub(crate) const WORD_PLACES: u64 = WORD_QUEUES - 1;
/// There are fewer.
pub(crate) const PLACES_MAX: u64 = 0x1_0000;
/// Data word of the alarm; no slot has this.
pub(crate) const WORD_ALARM: u64 = WORD_PLACES - PLACES_MAX;
/// Doorbell `i` of the clients in memory has the data word `WORD_DOORBELLS + i`; 65 536 clients
/// have one in each of 128 lanes at most. No slot has these, either.
pub(crate) const WORD_DOORBELLS: u64 = WORD_ALARM - DOORBELLS_MAX;
/// See above.
pub(crate) const DOORBELLS_MAX: u64 = 128 << 16;
/// Lane `i` of the clients that send datagrams over RDMA has the data word `WORD_CHANNELS + i`. No
/// slot has these, either.
pub(crate) const WORD_CHANNELS: u64 = WORD_DOORBELLS - CHANNELS_MAX;
/// There are no more lanes.
pub(crate) const CHANNELS_MAX: u64 = 128;
