//! The flags of the durable tier, which the server and its tools share.

use super::{bytes, number, sentence, text};
use lexopt::Parser;
use std::ffi::OsString;

/// As typed; `None` where a flag was left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TierFlags {
    /// `--data-dir`
    pub data_dir: Option<OsString>,
    /// `--pm`
    pub pm: Option<OsString>,
    /// `--pm-backend`
    pub pm_backend: Option<String>,
    /// `--pm-index`
    pub pm_index: Option<String>,
    /// `--pm-size`, bytes
    pub pm_bytes: Option<u64>,
    /// `--ssd`
    pub ssd: Option<OsString>,
    /// `--ssd-size`, bytes
    pub ssd_bytes: Option<u64>,
    /// `--split-bytes`
    pub split: Option<String>,
    /// `--durability`
    pub durability: Option<String>,
    /// `--migrate-by`
    pub migrate_by: Option<String>,
    /// `--read-threads`
    pub read_threads: Option<usize>,
    /// `--unsafe-volatile-pm`
    pub volatile_pm: bool,
    /// `--pad-groups`
    pub pad_groups: bool,
    /// `--accept-lost-log`
    pub accept_lost_log: bool,
}

impl TierFlags {
    /// A flag that means nothing without `--data-dir`, if one was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--pm", self.pm.is_some()),
            ("--pm-backend", self.pm_backend.is_some()),
            ("--pm-index", self.pm_index.is_some()),
            ("--pm-size", self.pm_bytes.is_some()),
            ("--ssd", self.ssd.is_some()),
            ("--ssd-size", self.ssd_bytes.is_some()),
            ("--split-bytes", self.split.is_some()),
            ("--durability", self.durability.is_some()),
            ("--migrate-by", self.migrate_by.is_some()),
            ("--read-threads", self.read_threads.is_some()),
            ("--unsafe-volatile-pm", self.volatile_pm),
            ("--pad-groups", self.pad_groups),
            ("--accept-lost-log", self.accept_lost_log),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Takes `flag` if it is one of these; false if it is not.
pub fn tier(flags: &mut TierFlags, flag: &str, parser: &mut Parser) -> Result<bool, String> {
    let path = |parser: &mut Parser| parser.value().map_err(sentence);
    match flag {
        "--data-dir" => flags.data_dir = Some(path(parser)?),
        "--pm" => flags.pm = Some(path(parser)?),
        "--pm-backend" => flags.pm_backend = Some(text(parser)?),
        "--pm-index" => flags.pm_index = Some(text(parser)?),
        "--pm-size" => flags.pm_bytes = Some(bytes(&text(parser)?)?),
        "--ssd" => flags.ssd = Some(path(parser)?),
        "--ssd-size" => flags.ssd_bytes = Some(bytes(&text(parser)?)?),
        "--split-bytes" => flags.split = Some(text(parser)?),
        "--durability" => flags.durability = Some(text(parser)?),
        "--migrate-by" => flags.migrate_by = Some(text(parser)?),
        "--read-threads" => flags.read_threads = Some(number(parser)?),
        "--unsafe-volatile-pm" => flags.volatile_pm = true,
        "--pad-groups" => flags.pad_groups = true,
        "--accept-lost-log" => flags.accept_lost_log = true,
        _ => return Ok(false),
    }
    Ok(true)
}
