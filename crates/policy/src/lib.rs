//! Laneway's policies: who serves which request, decided by arithmetic alone.
//!
//! Counts and times come in as arguments, a plan goes out, and somebody else carries it out; that
//! is what lets the server and a simulator share this code. The control loop is the one of Minos
//! (§3.1, §3.2, parameters §5); where a design departs from the paper, its module says so.
//!
//! In the order a request meets them: [`units`] and [`histogram`] (what was asked for), [`cost`]
//! (what that costs), [`threshold`] (where large begins), [`cores`] (how many workers serve
//! which), [`ranges`] (which large worker serves which sizes), [`plan`] (all of it, published once
//! per epoch), [`mod@route`] (one request against the plan), [`turn`] (what a worker does next),
//! [`share`] and [`pace`] (how its lanes share its time, and how long a slice is), [`migrate`]
//! (when a connection goes back home), [`owner`] (to whom a key belongs), [`designs`] (the complete
//! rules) and, beside them, [`hot`] (keys asked for so often that they are moved about) and
//! [`rate`] (how much a client may ask for).
//!
//! It knows no clock, thread, I/O or connection; of keys, [`owner`] apart, only hashes. Sizes are
//! bytes of key + value.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cores;
pub mod cost;
pub mod design;
pub mod designs;
pub mod evidence;
pub mod histogram;
pub mod hot;
pub mod migrate;
mod names;
pub mod owner;
pub mod pace;
pub mod plan;
pub mod ranges;
pub mod rate;
pub mod route;
pub mod settings;
pub mod share;
pub mod threshold;
pub mod turn;
pub mod units;

pub use cores::{Form, Role};
pub use cost::{Cost, CostModel};
pub use design::{Access, Design};
pub use designs::{CorePolicy, build};
pub use histogram::{SizeClass, SizeHistogram, SmoothHistogram};
pub use owner::{OwnerHash, Placement};
pub use plan::{CorePlan, EpochLoad, LargeLane, Steal};
pub use route::{Asked, Lane, Route, WorkerTarget, hand, route};
pub use settings::{Settings, SettingsError};
pub use turn::{Move, Others, Readers, Sight, Turn};
pub use units::{BATCH, BATCH_BESIDE_LARGE, FRAME_BYTES, ITEM_BYTES_MAX, SLICE_BYTES};
pub use units::{ItemBytes, Nanos, Packets, WorkerId};
