//! What lies on the SSD: large values, sort tables and the blocks that are free; and which path a
//! value takes.

pub(crate) mod boundary;
pub(crate) mod compress;
pub(crate) mod large;
pub(crate) mod pointer;
pub(crate) mod space;
pub(crate) mod split;
pub(crate) mod tables;
pub(crate) mod value;
