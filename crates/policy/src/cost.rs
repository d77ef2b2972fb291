//! What serving a request costs, by its size (Minos §3.1 "How to choose the number of small
//! cores").
//!
//! The paper counts packets and names bytes and constant + bytes as alternatives. A pure packet
//! cost starves the large workers at high load: it says that a request of one packet costs one
//! unit and a request of 100 packets a hundred, while in truth each request also has a price of
//! its own, which small requests pay many times. Our default is therefore constant + packets; its
//! two numbers make the paper's own default mix come to its 6.2 Mops on 8 cores.
//!
//! It knows no machine: only the ratio of two costs of the same model means anything.

use crate::histogram::{SizeClass, SmoothHistogram};
use crate::names::named;
use crate::units::ItemBytes;

/// Nanoseconds a request costs whatever its size ([`CostModel::ConstantPackets`]).
pub const REQUEST_COST_NS: u64 = 441;

/// Nanoseconds each packet of it costs ([`CostModel::ConstantPackets`]).
pub const PACKET_COST_NS: u64 = 700;

/// A cost, in the unit of the model that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cost(pub u64);

/// How a request's cost follows from its size (`--cost`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CostModel {
    /// Packets handled: the paper's choice.
    Packets,
    /// Bytes moved.
    Bytes,
    /// 0.441 µs and 0.7 µs for each packet.
    #[default]
    ConstantPackets,
}

impl CostModel {
    /// All models, in the order the help names them.
    pub const ALL: [CostModel; 3] =
        [CostModel::Packets, CostModel::Bytes, CostModel::ConstantPackets];

    /// The model's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CostModel::Packets => "packets",
            CostModel::Bytes => "bytes",
            CostModel::ConstantPackets => "constant-packets",
        }
    }

    /// Cost of one request: packets, bytes or nanoseconds.
    pub const fn of(self, size: ItemBytes) -> Cost {
        match self {
            CostModel::Packets => Cost(size.packets().0),
            CostModel::Bytes => Cost(size.0),
            CostModel::ConstantPackets => Cost(REQUEST_COST_NS + PACKET_COST_NS * size.packets().0),
        }
    }

    /// Cost of all requests of a class, each taken to be of the class's middle size.
    pub(crate) fn of_class(self, sizes: &SmoothHistogram, class: SizeClass) -> f64 {
        sizes.weight(class) * self.of(class.middle()).0 as f64
    }

    /// The part of the cost of all requests that those below `threshold` make: 0 to 1, and 1 when
    /// there were none. A class that the threshold cuts through is shared out by width.
    pub fn small_share(self, sizes: &SmoothHistogram, threshold: ItemBytes) -> f64 {
        let mut small = 0.0;
        let mut all = 0.0;
        for class in SizeClass::all() {
            let cost = self.of_class(sizes, class);
            small += cost * class.share_below(threshold);
            all += cost;
        }
        if all > 0.0 { small / all } else { 1.0 }
    }
}

named! {
    CostModel,
    /// A name that no cost model has.
    UnknownCostModel: "must be packets, bytes or constant-packets; leave the flag out for \
                       constant-packets"
}
