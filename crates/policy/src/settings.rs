//! What the operator may set about the policies, and the check that the settings fit together.
//!
//! Minos gives its parameters in §5; the defaults here are the same where the paper has the
//! parameter. An error names the flag, the value, the limit and the way out. It knows no command
//! line: flags as typed are somebody else's struct.

use crate::cores::Form;
use crate::cost::CostModel;
use crate::design::{Access, Design};
use crate::hot::routes::ROUTES_MAX;
use crate::hot::settings::{COUNTERS_MAX, Detector, HOT_THRESHOLD_MAX, HotSettings, HotThreshold};
use crate::units::{FRAME_BYTES, ITEM_BYTES_MAX, ItemBytes, SLICE_BYTES, WORKERS_MAX};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// The target percentile, in percent (Minos §5).
pub const PERCENTILE: f64 = 99.0;

/// The weight of the newest epoch (Minos §3.1).
pub const ALPHA: f64 = 0.9;

/// Requests an epoch must hold to be believed at once: with fewer, a mix with 0.125 % of large
/// requests shows so few of them that the number of workers comes out wrong half the time.
pub const SAMPLES_MIN: u64 = 60_000;

/// Thinner epochs that must agree before the number of large workers changes. One is enough: it
/// asks for no more than its requests can tell.
pub const HYSTERESIS_EPOCHS: u16 = 1;

/// All that the policies can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `--design`
    pub design: Design,
    /// `--form`; `None` follows the number of workers.
    pub form: Option<Form>,
    /// `--workers`
    pub workers: u16,
    /// `--percentile`: requests up to this percentile of sizes are small.
    pub percentile: f64,
    /// `--alpha`: weight of the newest epoch in the smoothed histogram.
    pub alpha: f64,
    /// `--cost`
    pub cost: CostModel,
    /// `--threshold`: fixes it.
    pub threshold_fixed: Option<ItemBytes>,
    /// `--slice`: the most a large transfer moves in one turn.
    pub slice_bytes: ItemBytes,
    /// Requests an epoch must hold to be believed at once.
    pub samples_min: u64,
    /// Thinner epochs that must agree before roles change.
    pub hysteresis_epochs: u16,
    /// `--handoff-workers`: workers that only receive and hand over (design `sho`).
    pub workers_handoff: u16,
    /// `--access`: who may serve a key (design `hkh`).
    pub access: Access,
    /// `--extra-large`: one more large worker than the paper's rule, and taking small requests one
    /// at a time (design `minos`; `lanes` does it anyway).
    pub extra_large: bool,
    /// `--hot`: hot keys are found and moved (design `hkh` where keys have owners).
    pub hot: Option<HotSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            design: Design::Lanes,
            form: None,
            workers: 1,
            percentile: PERCENTILE,
            alpha: ALPHA,
            cost: CostModel::ConstantPackets,
            threshold_fixed: None,
            slice_bytes: SLICE_BYTES,
            samples_min: SAMPLES_MIN,
            hysteresis_epochs: HYSTERESIS_EPOCHS,
            workers_handoff: 1,
            access: Access::default(),
            extra_large: false,
            hot: None,
        }
    }
}

impl Settings {
    /// The form: as set, or as so many workers and this design take by themselves.
    pub fn form(&self) -> Form {
        match (self.design, self.form) {
            (Design::Hkh | Design::HkhWs, _) => Form::TimeShare,
            (Design::Minos | Design::Sho, _) if self.workers > 1 => Form::Roles,
            (Design::Minos | Design::Sho, _) => Form::TimeShare,
            (Design::Lanes, Some(form)) => form,
            (Design::Lanes, None) => Form::of_workers(self.workers),
        }
    }

    /// Whether the settings fit together; the first that does not, otherwise.
    pub fn check(&self) -> Result<(), SettingsError> {
        let refuse = |flag, value, limit: String, way_out| {
            Err(SettingsError { flag, value, limit, way_out })
        };
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            let limit = format!("must be from 1 to {WORKERS_MAX}");
            let way_out = "leave the flag out to have one worker per CPU";
            return refuse("--workers", self.workers.to_string(), limit, way_out);
        }
        self.check_form()?;
        self.check_handoff()?;
        self.check_variants()?;
        self.check_hot()?;
        if !(self.percentile > 0.0 && self.percentile < 100.0) {
            let limit = "must be above 0 and below 100".to_string();
            let way_out = "to call every request small use --threshold, or --design hkh";
            return refuse("--percentile", self.percentile.to_string(), limit, way_out);
        }
        if !(self.alpha > 0.0 && self.alpha <= 1.0) {
            let limit = "must be above 0, or nothing new is ever learnt, and at most 1".to_string();
            let way_out = "leave the flag out for 0.9";
            return refuse("--alpha", self.alpha.to_string(), limit, way_out);
        }
        if let Some(threshold) = self.threshold_fixed
            && !(1..=ITEM_BYTES_MAX.0).contains(&threshold.0)
        {
            let limit = format!("must be from 1 to {ITEM_BYTES_MAX} bytes");
            let way_out = "leave the flag out to let the policy choose";
            return refuse("--threshold", threshold.to_string(), limit, way_out);
        }
        if !(FRAME_BYTES..=ITEM_BYTES_MAX).contains(&self.slice_bytes) {
            let limit = format!("must be from {FRAME_BYTES} (one frame) to {ITEM_BYTES_MAX} bytes");
            let way_out = "leave the flag out for 32768";
            return refuse("--slice", self.slice_bytes.to_string(), limit, way_out);
        }
        if self.hysteresis_epochs == 0 {
            let limit = "must be at least 1".to_string();
            let way_out = "to believe every epoch at once use --samples-min 1";
            return refuse("--hysteresis-epochs", "0".to_string(), limit, way_out);
        }
        Ok(())
    }

    fn check_form(&self) -> Result<(), SettingsError> {
        let Some(form) = self.form else { return Ok(()) };
        let roles = "leave the flag out, or choose --design lanes";
        let (limit, way_out) = match (self.design, form) {
            (Design::Hkh | Design::HkhWs, Form::Roles) => {
                let limit =
                    format!("{} knows no roles, every worker serves what it receives", self.design);
                (limit, roles)
            }
            (Design::Minos | Design::Sho, Form::TimeShare) => {
                (format!("{} knows nothing but roles", self.design), roles)
            }
            (Design::Hkh | Design::HkhWs | Design::Lanes, Form::TimeShare) => return Ok(()),
            (_, Form::Roles) if self.workers < 2 => (
                "needs --workers 2 or more, one for each lane".to_string(),
                "leave the flag out to let a single worker time-share",
            ),
            (_, Form::Roles) => return Ok(()),
        };
        Err(SettingsError { flag: "--form", value: form.to_string(), limit, way_out })
    }

    fn check_variants(&self) -> Result<(), SettingsError> {
        let (flag, value, limit, way_out) = if self.access != Access::Crcw
            && self.design != Design::Hkh
        {
            let limit = format!("{} lets every worker read and write every key", self.design);
            ("--access", self.access.to_string(), limit, "leave the flag out, or add --design hkh")
        } else if self.extra_large && self.design != Design::Minos {
            let limit = "is a variant of minos".to_string();
            ("--extra-large", String::new(), limit, "leave the flag out, or add --design minos")
        } else {
            return Ok(());
        };
        Err(SettingsError { flag, value, limit, way_out })
    }

    fn check_hot(&self) -> Result<(), SettingsError> {
        let Some(hot) = &self.hot else { return Ok(()) };
        let (flag, value, limit, way_out) = if self.design != Design::Hkh
            || self.access == Access::Crcw
        {
            let limit = "moves keys between their owners, and here they have none".to_string();
            ("--hot", String::new(), limit, "leave it out, or add --design hkh --access erew")
        } else if hot.slot.requests == 0 {
            let limit = "must be at least 1, or a slot says nothing".to_string();
            ("--slot-requests", "0".to_string(), limit, "leave the flag out for 2000")
        } else if hot.threshold == HotThreshold::Requests(0) {
            let limit = "must be at least 1, or every key is hot".to_string();
            let way_out = "leave the flag out to have what --hot says";
            ("--hot-threshold", "0".to_string(), limit, way_out)
        } else if let HotThreshold::Requests(requests) = hot.threshold
            && requests > HOT_THRESHOLD_MAX
        {
            let limit =
                format!("must be at most {HOT_THRESHOLD_MAX}: the table has 16 bits for it");
            let way_out = "leave the flag out to have what --hot says";
            ("--hot-threshold", requests.to_string(), limit, way_out)
        } else if !(1..=ROUTES_MAX).contains(&hot.keys_max) {
            let limit = format!("must be from 1 to {ROUTES_MAX}: every worker reads the table");
            let way_out = "leave the flag out for 32, or as many as workers, up to 128";
            ("--hot-keys", hot.keys_max.to_string(), limit, way_out)
        } else if hot.alone && self.workers < 2 {
            let limit = "needs --workers 2 or more, one for the key and one for the others";
            let way_out = "leave it out, a single worker has every key";
            ("--hot-alone", String::new(), limit.to_string(), way_out)
        } else if let Detector::SpaceSaving(counters) = hot.detector
            && !(1..=COUNTERS_MAX).contains(&counters)
        {
            let limit = format!("must be from 1 to {COUNTERS_MAX}: every request looks at them");
            ("--hot-counters", counters.to_string(), limit, "leave the flag out for a sketch")
        } else {
            return Ok(());
        };
        Err(SettingsError { flag, value, limit, way_out })
    }

    fn check_handoff(&self) -> Result<(), SettingsError> {
        if self.design != Design::Sho || (1..self.workers).contains(&self.workers_handoff) {
            return Ok(());
        }
        if self.workers < 2 {
            return Err(SettingsError {
                flag: "--design",
                value: self.design.to_string(),
                limit: "needs --workers 2 or more, one to hand over and one to serve".to_string(),
                way_out: "choose --design hkh for a single worker",
            });
        }
        Err(SettingsError {
            flag: "--handoff-workers",
            value: self.workers_handoff.to_string(),
            limit: format!("must be at least 1 and below --workers ({})", self.workers),
            way_out: "leave the flag out for 1",
        })
    }
}

/// A setting that cannot be: which flag, its value, the limit, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// The flag as typed.
    pub flag: &'static str,
    /// Its value.
    pub value: String,
    /// What the value must be.
    pub limit: String,
    /// What to do instead.
    pub way_out: &'static str,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingsError { flag, value, limit, way_out } = self;
        let space = if value.is_empty() { "" } else { " " };
        write!(f, "{flag}{space}{value}: {limit}; {way_out}")
    }
}

impl core::error::Error for SettingsError {}
