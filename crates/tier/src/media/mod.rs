//! The two media, how bytes are read from them, and the folder that holds them.

pub(crate) mod bytes;
pub(crate) mod directory;
pub mod disk;
pub(crate) mod fetch;
pub(crate) mod flushes;
pub mod pm;
pub(crate) mod priority;
