//! Has every lock-free primitive and every memory ordering of Laneway.
//!
//! - [`prim`]: the atomics, from std, or from loom under `cfg(loom)`.
//! - [`version`]: the 64-bit version that guards a bucket (a sequence lock that several writers may
//!   enter).
//! - [`ring`]: a bounded queue, many producers, many consumers.
//! - [`notice`]: a few words that one posts and many read, without waiting.
//! - [`journal`]: the last entries that many write, and many read at their own pace.
//! - [`pin`]: one word that counts readers of memory which a writer may kill meanwhile.
//! - [`descriptors`]: the ends of a ring of descriptors, one who puts in and one who takes out.
//! - [`slot`]: a message in memory that two processes share, its doorbell, and memory on loan.
//! - [`place`]: whether a message in memory that two processes share is still the one told of.
//! - [`sleep`]: who sleeps is woken for what is put down.
//! - [`cover`]: whether what is seen may be told, or is a change that is under way.
//! - [`edition`]: whether those for whom something was put down still come for it.
//! - [`idle`]: whether several workers have nothing left to do.
//! - [`append`]: pieces put behind a vector, kept together or not at all.
//! - `lines`: the cache lines that atomics touch, for tests.
//! - [`meter`]: how much work a thread did, for tests.
//! - [`words`]: copying bytes into and out of words that other threads may be writing.
//!
//! It knows nothing of items, keys or requests. The models in `tests/loom_*.rs` check each
//! primitive, and one [`canary`] per ordering shows that the models would notice its absence.

pub mod append;
pub mod canary;
pub mod cover;
pub mod descriptors;
pub mod edition;
pub mod idle;
pub mod journal;
#[cfg(all(feature = "lines", not(loom)))]
pub mod lines;
pub mod meter;
pub mod notice;
pub mod pin;
pub mod place;
pub mod planted;
pub mod prim;
pub mod ring;
pub mod sleep;
pub mod slot;
pub mod version;
pub mod words;
