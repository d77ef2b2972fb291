//! What `laneway bench verbs` tells, as data.

use crate::rivals::tally::Tally;
use serde::{Deserialize, Serialize};

/// Name and version of the report's form.
pub const SCHEMA: &str = "laneway-verbs/1";

/// Work requests that one side posts for a request, on average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Posts {
    /// WRITE.
    pub write: f64,
    /// SEND.
    pub send: f64,
    /// RECV.
    pub recv: f64,
    /// READ.
    pub read: f64,
}

impl Posts {
    /// Of a side that counted `tally` over so many requests.
    pub(super) fn of(tally: &Tally, requests: u64) -> Posts {
        let mean = |count: u64| count as f64 / requests.max(1) as f64;
        let verbs = tally.verbs;
        Posts {
            write: mean(verbs.writes),
            send: mean(verbs.sends),
            recv: mean(verbs.receives),
            read: mean(verbs.reads),
        }
    }

    /// All of them.
    pub fn sum(&self) -> f64 {
        self.write + self.send + self.recv + self.read
    }
}

/// What one kind of request costs. Everything but `requests`, `torn` and what describes the run is
/// per request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Which design.
    pub design: String,
    /// `GET` or `PUT`.
    pub operation: String,
    /// Length of every value.
    pub value_bytes: usize,
    /// Requests under way at a time.
    pub window: usize,
    /// How many there were.
    pub requests: u64,
    /// Times that something was asked and waited for.
    pub round_trips: f64,
    /// What the client posts.
    pub client: Posts,
    /// What the server's CPU posts.
    pub server: Posts,
    /// What the server's card has to do with: all of both but RECVs.
    pub server_card: f64,
    /// Payload that goes to the server.
    pub bytes_to_server: f64,
    /// Payload that comes back.
    pub bytes_to_client: f64,
    /// READs that met a write.
    pub torn: u64,
}

/// Both sides' tallies over some requests.
pub(super) struct Tallies {
    pub client: Tally,
    pub server: Tally,
    pub requests: u64,
    pub trips: u64,
    pub torn: u64,
}

impl Tallies {
    /// The same per request, of this design and kind.
    pub fn counted(
        &self,
        (design, operation): (&str, &str),
        value_bytes: usize,
        window: usize,
    ) -> Counted {
        let mean = |count: u64| count as f64 / self.requests.max(1) as f64;
        let Tallies { client, server, requests, trips, torn } = self;
        Counted {
            design: design.into(),
            operation: operation.into(),
            value_bytes,
            window,
            requests: *requests,
            round_trips: mean(*trips),
            client: Posts::of(client, *requests),
            server: Posts::of(server, *requests),
            server_card: mean(client.on_the_wire() + server.on_the_wire()),
            bytes_to_server: mean(client.bytes_sent),
            bytes_to_client: mean(client.bytes_read + server.bytes_sent),
            torn: *torn,
        }
    }
}

/// A closed loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Costs of a request of the mix; `operation` is `mix`.
    pub counted: Counted,
    /// Which time it was made, from 0 on.
    #[serde(default)]
    pub round: usize,
    /// Share of GETs.
    pub get_share: f64,
    /// How long it was measured.
    pub seconds: f64,
    /// Requests that ended then, a second.
    pub requests_per_s: f64,
    /// From the request's begin to its end.
    pub latency_us_p50: f64,
    /// The same.
    pub latency_us_p99: f64,
    /// GETs that were given up, for they never saw a whole value.
    pub given_up: u64,
    /// Values that came back and never were.
    pub corrupt: u64,
}

/// Work requests of one kind on a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Which, and on what.
    pub verb: String,
    /// Length of every message.
    pub bytes: usize,
    /// Whether messages travelled in their requests.
    pub inline: bool,
    /// Whether each request said when it had completed, or one in 32.
    pub signalled: bool,
    /// How many there were.
    pub operations: u64,
    /// Completions that said so.
    pub completions: u64,
    /// Messages that came otherwise than they were sent.
    pub wrong: u64,
    /// Messages that did not come.
    pub lost: u64,
    /// How many completed in a second, batches of 32 one after the other.
    pub operations_per_s: f64,
    /// Why the device does not do it, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a GET of one client costs, on average but for its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// From its begin to its end.
    pub latency_us_p50: f64,
    /// The same.
    pub latency_us_p99: f64,
    /// WRITEs, SENDs and RECVs of the client.
    pub client_posts: f64,
    /// SENDs of the server.
    pub server_sends: f64,
    /// Lists of them that it posted.
    pub server_doorbells: f64,
    /// Completions of RECVs that it looked at.
    pub server_completions: f64,
    /// Times that it asked a completion queue for some.
    pub server_polls: f64,
}

/// One client that asks for one item at a time, alone and beside others that ask for nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// How it was served.
    pub service: String,
    /// Length of every value.
    pub value_bytes: usize,
    /// How many there were with the others.
    pub clients: usize,
    /// Which time it was measured, from 0 on.
    pub round: usize,
    /// GETs in each of both.
    pub gets: u64,
    /// Before the others came.
    pub alone: Cost,
    /// While they were there.
    pub beside: Cost,
}

/// The report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Costs of each kind of request.
    pub counted: Vec<Counted>,
    /// Closed loops.
    pub timed: Vec<Timed>,
    /// Kinds of work requests on a device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// One client beside others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// What [`Self::ratios`] may be at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Report {
    /// Whether every value was right, every message came, and others cost no more than they may.
    pub fn is_good(&self) -> bool {
        let came = |tried: &Tried| tried.wrong == 0 && tried.lost == 0;
        let is_within = |most: f64| self.ratios().as_flattened().iter().all(|one| *one <= most);
        self.timed.iter().all(|timed| timed.corrupt == 0)
            && self.tried.iter().all(came)
            && self.at_most.is_none_or(is_within)
    }

    /// For each length of values what a GET takes beside others of what it takes alone, the median
    /// of the rounds: of its p50, of the server's SENDs, and of its completions.
    pub fn ratios(&self) -> Vec<[f64; 3]> {
        let lengths = self.beside.chunk_by(|one, next| one.value_bytes == next.value_bytes);
        lengths.map(ratios).collect()
    }
}

fn ratios(rounds: &[Beside]) -> [f64; 3] {
    let of = |cost: fn(&Cost) -> f64| {
        let each = |row: &Beside| match (cost(&row.beside), cost(&row.alone)) {
            // Who has slots sends nothing: no completion alone, and none beside others.
            (0.0, 0.0) => 1.0,
            (beside, alone) => beside / alone,
        };
        let mut all: Vec<f64> = rounds.iter().map(each).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    [
        of(|cost| cost.latency_us_p50),
        of(|cost| cost.server_sends),
        of(|cost| cost.server_completions),
    ]
}
