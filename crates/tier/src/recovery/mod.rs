//! A start: a new store on media that hold none, or one that is found on them.

pub(crate) mod census;
pub(crate) mod ending;
pub(crate) mod filling;
pub(crate) mod gather;
pub(crate) mod grow;
pub(crate) mod ledger;
pub(crate) mod lost;
pub(crate) mod make;
pub(crate) mod recover;
pub(crate) mod survey;
pub(crate) mod tree;
