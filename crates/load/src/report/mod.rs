//! How a run is shown: [`json`] for programs, [`table`] for people.

pub mod json;
pub mod quantiles;
pub mod table;
