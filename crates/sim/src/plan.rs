//! The operator's question: how many cores does this need to keep p99 within an SLO, what is to be
//! expected then, and how much headroom is left? Asked of any combination of a sweep's parameters.
//!
//! A number of cores holds if p99 over all requests is within the SLO on every seed and the run is
//! steady. The fewest are found by counting up from what the CPU time alone takes: that more cores
//! hold where fewer do is not taken for granted, for a hash may divide keys badly among them. Where
//! none holds, the reason is looked for in what no number of cores changes. Unit: microseconds.

use crate::machine::WORKERS_MAX;
use crate::row::Row;
use crate::search::highest;
use crate::stats::{SECOND, US};
use crate::study::{Point, Study, warmup};
use crate::sweep::{Case, SCHEMA_TEXT, measure};
use crate::workload::Draw;
use laneway_load::random::Random;
use laneway_policy::Access;
use std::collections::HashMap;

/// Name and number of the form of rows.
pub const SCHEMA: &str = "laneway-sim-plan/1";

/// A wire that is busy for a larger share of the time is one that a wider one would help.
const WIRE_FULL: f64 = 0.9;

/// What every case must keep, and with what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// p99 is to be at most so much.
    pub slo_us: f64,
    /// Most cores there are.
    pub workers_max: u16,
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The fewest cores, and a quarter more; or the most there are, which do not hold.
    pub rows: Vec<Row>,
    /// Why none holds, and what to change.
    pub refusal: Option<String>,
}

impl Question {
    /// Whether all of these can be asked: what is wrong with one is wrong with so many cores, too.
    pub fn check(&self, cases: &[Case]) -> Result<(), String> {
        for case in cases {
            let (domains, most) = (case.domains(), self.workers_max);
            if domains > most {
                return Err(format!("--numa {domains}: must be at most --workers-max ({most})"));
            }
            case.clone().at(most - most % domains, case.rate)?;
        }
        Ok(())
    }
}

/// The answers to all cases, in their order, which were checked.
pub fn answers(study: &Study, cases: &[Case], question: Question) -> Result<Vec<Answer>, String> {
    let found = study
        .parallel("plan", cases, |case| Search { study, case: case.clone(), question }.answer());
    found.into_iter().collect()
}

/// The fewest cores that hold what the case asks for, which was checked; `None` where none do.
pub fn fewest(study: &Study, case: &Case, question: Question) -> Result<Option<u16>, String> {
    let mut search = Search { study, case: case.clone(), question };
    Ok(search.fewest()?.ok())
}

struct Search<'a> {
    study: &'a Study,
    case: Case,
    question: Question,
}

impl Search<'_> {
    /// The most cores there are that the domains divide.
    fn most(&self) -> u16 {
        self.question.workers_max - self.question.workers_max % self.case.domains()
    }

    /// The fewest cores that hold; or why no number of them could, where one can tell.
    fn fewest(&mut self) -> Result<Result<u16, Option<String>>, String> {
        let domains = self.case.domains();
        let point = self.case.at(self.most(), self.case.rate)?;
        let never = Floor::of(&point, domains).why(&point, self.question.slo_us);
        if never.is_some() {
            return Ok(Err(never));
        }
        let least = cpu_cores(&point, domains, point.machine.costs.spared()).floor();
        let numbers = (domains..=self.most()).step_by(domains.into());
        let mut enough = numbers.filter(|&workers| f64::from(workers) >= least);
        let rate = self.case.rate;
        Ok(enough.find(|&workers| self.holds(workers, rate)).ok_or(None))
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let (domains, most) = (self.case.domains(), self.most());
        let workers = match self.fewest()? {
            Ok(workers) => workers,
            Err(never) => {
                let point = self.case.at(most, self.case.rate)?;
                return Ok(self.refused(point, most, never));
            }
        };
        let more = (workers + workers.div_ceil(4)).next_multiple_of(domains).min(most);
        let mut rows = vec![self.held(workers)?];
        if more > workers {
            rows.push(self.held(more)?);
        }
        Ok(Answer { rows, refusal: None })
    }

    /// Whether so many cores keep the SLO at this rate; so few that there is no such machine do
    /// not.
    fn holds(&mut self, workers: u16, rate: f64) -> bool {
        let slo_us = self.question.slo_us;
        let Ok(point) = self.case.at(workers, rate) else { return false };
        self.study.say(&format!("plan: do {workers} cores hold {rate:.0} requests a second?"));
        let slo = Some((slo_us * US as f64) as u64);
        let mut seeds = self.study.seed..self.study.seed + self.case.seeds();
        seeds.all(|seed| self.study.one_until(&point, seed, slo).holds(slo_us))
    }

    /// What a row begins with.
    fn row(&self, point: &Point, workers: u16, holds: bool) -> Row {
        let row = Row::of("plan").with("schema", SCHEMA).and(point.row.clone());
        let row = row.with("slo_us", self.question.slo_us).with("workers", workers);
        row.with("holds", holds)
    }

    /// The row of so many cores, and up to what rate they hold; by how much that is more than what
    /// was asked for. A quarter more cores than hold need not.
    fn held(&mut self, workers: u16) -> Result<Row, String> {
        let rate = self.case.rate;
        let point = self.case.at(workers, rate)?;
        let top = 2.0 * f64::from(workers) * rate / cpu_cores(&point, self.case.domains(), 0);
        let holds = self.holds(workers, rate);
        let most = highest(rate, top.max(rate), |rate| self.holds(workers, rate));
        let most = if holds { most.unwrap_or(rate) } else { f64::NAN };
        let row = self.row(&point, workers, holds);
        let row = row.with("headroom", most / rate - 1.0).with("rate_max", most);
        Ok(measure(self.study, &Point { row, ..point }, self.case.seeds()))
    }

    /// The row of the most cores, and that none holds; why, if no number of cores could.
    fn refused(&self, point: Point, most: u16, never: Option<String>) -> Answer {
        let Question { slo_us, workers_max } = self.question;
        let cores = cpu_cores(&point, self.case.domains(), 0);
        let owned = point.machine.settings.access != Access::Crcw;
        let row = self.row(&point, most, false);
        let row = row.with("headroom", f64::NAN).with("rate_max", f64::NAN);
        let row = measure(self.study, &Point { row, ..point }, self.case.seeds());
        let why = match (never, row.number("p99")) {
            (Some(why), _) => why,
            _ if cores > f64::from(most) => format!("the CPU time is that of {cores:.1} cores"),
            (None, Some(p99)) => {
                format!("with {most} it is {p99:.1} us on average ({})", row.text("state"))
            }
            (None, None) => {
                format!("{most} answer {} a second (overload)", row.text("answered_per_s"))
            }
        };
        let more = if workers_max < WORKERS_MAX { "raise --workers-max, " } else { "" };
        let or = match row.number("wire_busy") {
            Some(busy) if busy > WIRE_FULL => ", or --nic-gbit for a wider wire",
            _ if owned => ", or another --access",
            _ => "",
        };
        let refusal = format!(
            "{}: no number of cores up to {most} keeps p99 within {slo_us} us at {} requests a \
             second: {why}; raise --slo-us, {more}lower --rate{or}",
            row.text("design"),
            self.case.rate,
        );
        Answer { rows: vec![row], refusal: Some(refusal) }
    }
}

/// Cores that would be busy all the time with what arrives, where each request is spared so much.
fn cpu_cores(point: &Point, domains: u16, spared: u64) -> f64 {
    let requests = warmup(&point.machine, &point.mix, point.requests) + point.requests;
    let service = point.machine.costs.mean_service_of(&point.mix, requests);
    let service = (service - spared as f64).max(0.0);
    f64::from(domains) * point.rate * service / SECOND as f64
}

/// What no number of cores changes.
struct Floor {
    /// Of requests that meet no other, one in a hundred takes so long or longer, whatever a design
    /// may spare it.
    alone_us: f64,
    reply_gigabits: f64,
    /// Of the key with the most work; 0 where any core serves any key.
    hottest_cores: f64,
}

impl Floor {
    fn of(point: &Point, domains: u16) -> Floor {
        const DRAWS: usize = 200_000;
        let machine = &point.machine;
        let rate = point.rate * f64::from(domains) / DRAWS as f64;
        let mut costs = machine.costs;
        if !machine.profiles {
            costs.request -= costs.profile;
        }
        let (mut draw, mut random) = (Draw::new(&point.mix), Random::new(1));
        let (mut services, mut bytes) = (Vec::with_capacity(DRAWS), 0_u64);
        let mut of_keys: HashMap<u32, u64> = HashMap::new();
        for _ in 0..DRAWS {
            let drawn = draw.draw(&mut random);
            let service = costs.of(&drawn);
            let spared = if drawn.measured.is_some() { 0 } else { costs.spared() };
            services.push(service.saturating_sub(spared));
            bytes += if drawn.put || !drawn.replied { 0 } else { u64::from(drawn.bytes) };
            if let Some(key) = drawn.key.filter(|_| machine.settings.access.is_owners(drawn.put)) {
                *of_keys.entry(key).or_default() += service;
            }
        }
        services.sort_unstable();
        let hottest = of_keys.into_values().max().unwrap_or(0);
        Floor {
            alone_us: (services[DRAWS * 99 / 100] + machine.network) as f64 / US as f64,
            reply_gigabits: bytes as f64 * 8.0 * rate / 1e9,
            hottest_cores: hottest as f64 * rate / SECOND as f64,
        }
    }

    /// Why no number of cores keeps this SLO, if one can tell.
    fn why(&self, point: &Point, slo_us: f64) -> Option<String> {
        let Floor { alone_us, reply_gigabits, hottest_cores } = self;
        let wire = point.machine.nic.map(|nic| nic.gigabits);
        if *alone_us > slo_us {
            Some(format!("one request in a hundred takes {alone_us:.1} us or more by itself"))
        } else if let Some(wire) = wire.filter(|wire| reply_gigabits > wire) {
            Some(format!("replies are {reply_gigabits:.1} Gb/s, and the wire carries {wire}"))
        } else if *hottest_cores > 1.0 {
            Some(format!("the hottest key alone needs {hottest_cores:.1} cores and has one"))
        } else {
            None
        }
    }
}

/// The JSON Schema of a row: that of `laneway sim run`, but for what names its points, and with
/// what is asked and answered here.
pub fn schema() -> String {
    let number =
        |about: &str| serde_json::json!({"type": ["number", "null"], "description": about});
    let mut schema: serde_json::Value = serde_json::from_str(SCHEMA_TEXT).expect("it is ours");
    schema["title"] = "A row of laneway sim plan --json: so many cores, and whether they do".into();
    let own = [
        ("figure", serde_json::json!({"const": "plan"})),
        ("schema", serde_json::json!({"const": SCHEMA})),
        ("rate", serde_json::json!({"type": "number", "description": "1/s, asked"})),
        ("slo_us", serde_json::json!({"type": "number", "description": "us, asked: --slo-us"})),
        ("workers", serde_json::json!({"type": "integer", "description": "cores"})),
        ("holds", serde_json::json!({"type": "boolean", "description": "p99 is within the SLO"})),
        ("headroom", number("share of the rate: how much more would hold; null: it does not")),
        ("rate_max", number("1/s: the highest rate that would hold")),
    ];
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !["sweep", "point", "load"].contains(&name.as_str()));
        properties.extend(own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name != "sweep" && name != "point");
        let further = own.iter().filter(|(name, _)| !["figure", "schema"].contains(name));
        required.extend(further.map(|(name, _)| serde_json::Value::from(*name)));
    }
    format!("{schema:#}\n")
}
