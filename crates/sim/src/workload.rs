//! What arrives: sizes, reads and writes, drawn in a few nanoseconds (Minos §5).
//!
//! The classes and their bounds are the load generator's. It departs from it in drawing a size for
//! each request where it has a size for each key: the mix over all requests is the same, but for
//! what the few most popular keys happen to weigh, which here is averaged out; and as there, of
//! [`Keys`] small requests ask for the popular ones and large ones for any. The generator's named
//! workloads are drawn by its own code, key by key. A size includes the 8 bytes of the key. It
//! knows no clock or queue.

use crate::bursts::Bursts;
use laneway_load::random::{Random, scale};
use laneway_load::workload::{
    Ask, Draws, KEY_BYTES, LARGE_BYTES_MIN, Operation, SMALL_BYTES_MAX, TINY_BYTES_MAX, TINY_SHARE,
    Workload, WorkloadOptions,
};
use laneway_load::zipf::Zipf;
use laneway_policy::{FRAME_BYTES, ITEM_BYTES_MAX};
use std::sync::Arc;

/// How sizes and service times come about.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// Tiny, small and large, each spread evenly; the largest value has so many bytes.
    Etc {
        /// The paper's s_L.
        large_bytes_max: u64,
    },
    /// Small requests of one frame, large ones of so many (Minos §2.2).
    Bimodal {
        /// The paper's K.
        large_frames: u64,
    },
    /// One frame each, and an exponentially distributed service time with a mean of one packet's:
    /// for the cross-checks.
    Exponential,
    /// As counted: (item bytes, weight up to and including this row, of 2^32).
    Counted(Vec<(u32, u32)>),
    /// Sizes with what they were measured to cost.
    Measured(Arc<Measured>),
    /// The requests of a trace in their order, over and over.
    Trace(Arc<[Replayed]>),
    /// Those of a workload of the load generator, with their keys.
    Named(Arc<Workload>),
}

/// Kinds of requests with their service times.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Bytes, picoseconds, and the weight up to and including this row, of 2^32.
    rows: Vec<(u32, u64, u32)>,
    mean_service: f64,
}

impl Measured {
    /// Of rows with bytes, picoseconds and a weight; at least one.
    pub fn new(kinds: &[(u32, u64, f64)]) -> Measured {
        let all: f64 = kinds.iter().map(|kind| kind.2).sum();
        let mut up_to = 0.0;
        let mut row = |&(bytes, service, weight): &(u32, u64, f64)| {
            up_to += weight;
            (bytes, service, (up_to / all * f64::from(u32::MAX)).round() as u32)
        };
        let rows: Vec<_> = kinds.iter().map(&mut row).collect();
        let sum: f64 = kinds.iter().map(|kind| kind.1 as f64 * kind.2).sum();
        Measured { rows, mean_service: sum / all }
    }
}

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Key and value.
    pub bytes: u32,
    /// A write.
    pub put: bool,
    /// Its number.
    pub key: u32,
}

/// The keys that small requests are for, where sizes have none of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keys {
    /// How many.
    pub count: u64,
    /// Exponent of their popularity; 0: all alike.
    pub zipf_exponent: f64,
}

impl Default for Keys {
    /// The load generator's.
    fn default() -> Keys {
        let WorkloadOptions { keys, zipf_exponent, .. } = WorkloadOptions::default();
        Keys { count: keys, zipf_exponent }
    }
}

impl Sizes {
    /// The mean service time that was measured, in picoseconds, where any was.
    pub fn mean_service(&self) -> Option<f64> {
        match self {
            Sizes::Measured(measured) => Some(measured.mean_service),
            _ => None,
        }
    }
}

/// A mix of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Sizes.
    pub sizes: Sizes,
    /// Percentage of large requests: the paper's p_L.
    pub large_percent: f64,
    /// Share of reads, 0 to 1.
    pub get_share: f64,
    /// Share of requests whose reply is sent at all, 0 to 1 (Minos §6: sampling S).
    pub reply_share: f64,
    /// What the arrivals are, if they are no Poisson process.
    pub bursts: Option<Bursts>,
    /// Keys, where anybody asks whose they are.
    pub keys: Option<Keys>,
}

impl Mix {
    /// The paper's default workload (Minos §5).
    pub fn etc() -> Mix {
        Mix {
            sizes: Sizes::Etc { large_bytes_max: 500_000 },
            large_percent: 0.125,
            get_share: 0.95,
            reply_share: 1.0,
            bursts: None,
            keys: None,
        }
    }

    /// The paper's bimodal workload (Minos §2.2).
    pub fn bimodal(large_frames: u64) -> Mix {
        Mix { sizes: Sizes::Bimodal { large_frames }, get_share: 1.0, ..Mix::etc() }
    }

    /// The default with another p_L.
    pub fn with_large_percent(self, large_percent: f64) -> Mix {
        Mix { large_percent, ..self }
    }

    /// The default with another s_L.
    pub fn with_large_bytes_max(self, large_bytes_max: u64) -> Mix {
        Mix { sizes: Sizes::Etc { large_bytes_max }, ..self }
    }
}

/// One request, drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Key and value.
    pub bytes: u32,
    /// Of the large class.
    pub large: bool,
    /// A write.
    pub put: bool,
    /// Its reply is sent.
    pub replied: bool,
    /// What serving it costs, in picoseconds, where that was measured.
    pub measured: Option<u64>,
    /// Its key, where keys are known; a large request's is any, and so is not told.
    pub key: Option<u32>,
    /// Sixteen random bits left over, for whoever needs them.
    pub spare: u16,
}

impl Drawn {
    /// One that is large if its size says so.
    fn by_size(bytes: u32, put: bool, replied: bool, spare: u16) -> Drawn {
        let large = u64::from(bytes) >= LARGE_BYTES_MIN;
        Drawn { bytes, large, put, replied, measured: None, key: None, spare }
    }
}

/// Draws requests of a mix.
#[derive(Debug, Clone)]
pub struct Draw {
    sizes: Sizes,
    /// Shares of 2^32.
    large_below: u64,
    tiny_below: u64,
    /// Shares of 2^16.
    get_below: u32,
    reply_below: u32,
    /// Requests drawn, of a trace.
    place: usize,
    /// What a named workload remembers of them.
    draws: Draws,
    keys: Option<Zipf>,
}

const KEY: u64 = KEY_BYTES as u64;

impl Draw {
    /// Ready to draw.
    pub fn new(mix: &Mix) -> Draw {
        let of = |share: f64, all: f64| (share.clamp(0.0, 1.0) * all).round();
        let whole = (1_u64 << 32) as f64;
        let large = mix.large_percent / 100.0;
        Draw {
            sizes: mix.sizes.clone(),
            large_below: of(large, whole) as u64,
            tiny_below: of(large + (1.0 - large) * TINY_SHARE, whole) as u64,
            get_below: of(mix.get_share, 65_536.0) as u32,
            reply_below: of(mix.reply_share, 65_536.0) as u32,
            place: 0,
            draws: Draws::default(),
            keys: mix.keys.map(|keys| Zipf::new(keys.count, keys.zipf_exponent)),
        }
    }

    /// How sizes come about.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The next request.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> Drawn {
        let drawn = self.draw_sizes(random);
        match &self.keys {
            Some(keys) if !drawn.large => Drawn { key: Some(keys.rank(random) as u32), ..drawn },
            _ => drawn,
        }
    }

    #[inline]
    fn draw_sizes(&mut self, random: &mut Random) -> Drawn {
        let word = random.word();
        let class = word >> 32;
        let put = (word as u32 & 0xffff) >= self.get_below;
        let replied = (word as u32 >> 16) < self.reply_below;
        let large = class < self.large_below;
        let rest = random.word();
        let spare = rest as u16;
        let bytes = match &self.sizes {
            Sizes::Etc { large_bytes_max } => {
                let (low, high) = if large {
                    (LARGE_BYTES_MIN, *large_bytes_max)
                } else if class < self.tiny_below {
                    (1, TINY_BYTES_MAX)
                } else {
                    (TINY_BYTES_MAX + 1, SMALL_BYTES_MAX)
                };
                KEY + low + scale(rest, high - low + 1)
            }
            Sizes::Bimodal { large_frames } if large => FRAME_BYTES.0 * large_frames,
            Sizes::Bimodal { .. } | Sizes::Exponential => FRAME_BYTES.0,
            Sizes::Counted(rows) => {
                let row = rows.partition_point(|&(_, up_to)| u64::from(up_to) < class);
                let bytes = rows[row.min(rows.len() - 1)].0;
                return Drawn::by_size(bytes, put, replied, spare);
            }
            Sizes::Measured(measured) => {
                let rows = &measured.rows;
                let row = rows.partition_point(|&(_, _, up_to)| u64::from(up_to) < class);
                let (bytes, service, _) = rows[row.min(rows.len() - 1)];
                let drawn = Drawn::by_size(bytes, put, replied, spare);
                return Drawn { measured: Some(service), ..drawn };
            }
            Sizes::Trace(rows) => {
                let Replayed { bytes, put, key } = rows[self.place];
                self.place = (self.place + 1) % rows.len();
                return Drawn { key: Some(key), ..Drawn::by_size(bytes, put, replied, spare) };
            }
            Sizes::Named(workload) => {
                let ask = workload.draw(random, &mut self.draws);
                let bytes = bytes_of(workload, &ask, rest as u32);
                let put = ask.operation != Operation::Get;
                let key = Some(ask.key.0);
                return Drawn { key, ..Drawn::by_size(bytes, put, replied, spare) };
            }
        };
        Drawn { bytes: bytes as u32, large, put, replied, measured: None, key: None, spare }
    }
}

/// Bytes of a request with its items: keys and values, of a deletion the key alone. What
/// `version` is decides for which further keys a GET of several is.
fn bytes_of(workload: &Workload, ask: &Ask, version: u32) -> u32 {
    let item = |key| {
        let value = if ask.operation == Operation::Delete { 0 } else { workload.value_bytes(key) };
        workload.key_name(key).len() as u64 + value
    };
    let bytes: u64 = match ask.keys {
        1 => item(ask.key),
        keys => workload.keys_of(ask.key, keys, version).map(item).sum(),
    };
    bytes.clamp(1, ITEM_BYTES_MAX.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_in_their_shares_and_within_their_bounds() {
        let mut draw = Draw::new(&Mix::etc().with_large_percent(1.0));
        let mut random = Random::new(1);
        let count = 1_000_000;
        let mut counts = [0_u32; 3];
        let mut puts = 0;
        for _ in 0..count {
            let drawn = draw.draw(&mut random);
            let value = u64::from(drawn.bytes) - KEY;
            let class = match value {
                1..=TINY_BYTES_MAX => 0,
                14..=SMALL_BYTES_MAX => 1,
                LARGE_BYTES_MIN..=500_000 => 2,
                _ => panic!("{value} bytes belong to no class"),
            };
            assert_eq!(drawn.large, class == 2);
            counts[class] += 1;
            puts += u32::from(drawn.put);
        }
        for (got, share) in counts.into_iter().chain([puts]).zip([0.396, 0.594, 0.01, 0.05]) {
            let expected = share * f64::from(count);
            let off = (f64::from(got) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "{got}, expected {expected}");
        }
    }

    #[test]
    fn small_requests_are_for_popular_keys_and_keys_change_nothing_else() {
        let mix = Mix::etc().with_large_percent(10.0);
        let keys = Some(Keys { count: 1_000, zipf_exponent: 0.99 });
        let mut draw = Draw::new(&Mix { keys, ..mix.clone() });
        let mut random = Random::new(1);
        let (mut hottest, mut small) = (0_u32, 0_u32);
        for _ in 0..100_000 {
            let drawn = draw.draw(&mut random);
            assert_eq!(drawn.key.is_none(), drawn.large);
            assert!(drawn.key.is_none_or(|key| key < 1_000));
            small += u32::from(!drawn.large);
            hottest += u32::from(drawn.key == Some(0));
        }
        let share = (1..=1_000).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>().recip();
        let expected = share * f64::from(small);
        assert!((f64::from(hottest) - expected).abs() < 5.0 * expected.sqrt(), "{hottest}");
        assert_eq!(Draw::new(&mix).draw(&mut Random::new(1)).key, None);
    }

    #[test]
    fn a_named_workload_is_drawn_as_the_load_generator_draws_it() {
        use laneway_load::workload::named::named;
        let options = named("twitter-4").expect("published");
        let workload = Arc::new(Workload::new(options).expect("good"));
        let mut draw = Draw::new(&Mix { sizes: Sizes::Named(workload.clone()), ..Mix::etc() });
        let mut random = Random::new(1);
        let (mut puts, mut large) = (0_u32, 0_u32);
        for _ in 0..100_000 {
            let drawn = draw.draw(&mut random);
            let key = laneway_load::workload::Key(drawn.key.expect("each has one"));
            let item = workload.key_name(key).len() as u64 + workload.value_bytes(key);
            assert_eq!(u64::from(drawn.bytes), item, "a key has one size");
            assert_eq!(drawn.large, item >= LARGE_BYTES_MIN);
            puts += u32::from(drawn.put);
            large += u32::from(drawn.large);
        }
        assert!(puts.abs_diff(7_000) < 400, "{puts}");
        assert!((20_000..90_000).contains(&large), "values of 2.4 KB: {large}");
    }

    /// A scan's items come in one reply.
    #[test]
    fn a_get_of_several_keys_has_all_their_bytes() {
        use laneway_load::workload::named::named;
        let workload = Workload::new(named("ycsb-e").expect("there")).expect("good");
        let sizes = Sizes::Named(Arc::new(workload));
        let mut draw = Draw::new(&Mix { sizes, ..Mix::etc() });
        let mut random = Random::new(1);
        let drawn = (0..10_000).map(|_| draw.draw(&mut random)).filter(|drawn| !drawn.put);
        let bytes: Vec<f64> = drawn.map(|drawn| f64::from(drawn.bytes)).collect();
        let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
        assert!((mean / (50.5 * 1_023.0) - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn counted_sizes_follow_their_weights() {
        let half = 1 << 31;
        let sizes = Sizes::Counted(vec![(100, half), (5_000, half + half / 2), (9, u32::MAX)]);
        let mut draw = Draw::new(&Mix { sizes, ..Mix::etc() });
        let mut random = Random::new(1);
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            let drawn = draw.draw(&mut random);
            let row = [100, 5_000, 9].iter().position(|&b| b == drawn.bytes).expect("a row");
            assert_eq!(drawn.large, row == 1);
            counts[row] += 1;
        }
        for (got, expected) in counts.into_iter().zip([50_000_u32, 25_000, 25_000]) {
            assert!(got.abs_diff(expected) < 1_000, "{counts:?}");
        }
    }
}
