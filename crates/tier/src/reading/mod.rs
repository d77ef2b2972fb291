//! Reading items: one, several, ranges, at once or later.

pub(crate) mod ahead;
pub(crate) mod read;
pub(crate) mod reads;
pub(crate) mod scan;
