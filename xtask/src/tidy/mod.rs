//! stub
use crate::outcome::{Outcome, failed};
pub const HELP: &str = "\
stub

usage: cargo xtask tidy";
pub fn main(_parser: lexopt::Parser) -> Outcome {
    failed("not yet")
}
