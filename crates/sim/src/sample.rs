//! What draws with fixed seeds say of a mix: its mean number of packets, and the sizes that the
//! policies are taught before a run begins. Both follow from the mix alone, and every run asks for
//! them, so they are remembered by mix.

use crate::workload::{Draw, Mix, Sizes};
use laneway_load::random::Random;
use laneway_policy::{ItemBytes, SizeHistogram};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Draws for the mean, but for a trace, which has a mean of its own.
const DRAWS: usize = 1_000_000;

/// Requests of which the sizes are a lesson.
const LESSON_REQUESTS: u32 = 200_000;

/// Mixes that are remembered; a figure goes through its mixes one after the other.
const MIXES_MAX: usize = 64;

static KNOWN: Mutex<Vec<(Mix, Arc<Sample>)>> = Mutex::new(Vec::new());

/// What is known of one mix.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    packets: OnceLock<Packets>,
    sizes: OnceLock<SizeHistogram>,
}

/// Packets of so many requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packets {
    pub(crate) packets: u64,
    pub(crate) requests: u64,
}

impl Sample {
    /// Of this mix.
    pub(crate) fn of(mix: &Mix) -> Arc<Sample> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sample)) = known.iter().find(|(other, _)| other == mix) {
            return sample.clone();
        }
        if known.len() == MIXES_MAX {
            known.remove(0);
        }
        let sample = Arc::new(Sample::default());
        known.push((mix.clone(), sample.clone()));
        sample
    }

    /// Packets of a trace's requests, or of a million requests of a mix that is drawn.
    pub(crate) fn packets(&self, mix: &Mix) -> Packets {
        *self.packets.get_or_init(|| {
            let requests = if let Sizes::Trace(rows) = &mix.sizes { rows.len() } else { DRAWS };
            let (mut draw, mut random) = (Draw::new(mix), Random::new(1));
            let mut packets = |_| ItemBytes(u64::from(draw.draw(&mut random).bytes)).packets().0;
            Packets { packets: (0..requests).map(&mut packets).sum(), requests: requests as u64 }
        })
    }

    /// The sizes that the policies are taught, so that a short run is not about its first epochs.
    pub(crate) fn sizes(&self, mix: &Mix) -> &SizeHistogram {
        self.sizes.get_or_init(|| {
            let (mut draw, mut random) = (Draw::new(mix), Random::new(0));
            let mut sizes = SizeHistogram::new();
            for _ in 0..LESSON_REQUESTS {
                sizes.record(ItemBytes(u64::from(draw.draw(&mut random).bytes)));
            }
            sizes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_drawn_from_once_and_others_are_told_apart() {
        let [one, same, other] = [0.125, 0.125, 0.25].map(|p| Mix::etc().with_large_percent(p));
        let first = Sample::of(&one);
        assert!(Arc::ptr_eq(&first, &Sample::of(&same)));
        let of_other = Sample::of(&other);
        assert!(of_other.packets(&other).packets > first.packets(&one).packets);
        assert!(of_other.sizes(&other) != first.sizes(&one));
        let mut counted = SizeHistogram::new();
        let (mut draw, mut random) = (Draw::new(&one), Random::new(0));
        for _ in 0..LESSON_REQUESTS {
            counted.record(ItemBytes(u64::from(draw.draw(&mut random).bytes)));
        }
        assert_eq!(*Sample::of(&one).sizes(&one), counted);
    }

    #[test]
    fn what_is_forgotten_comes_to_the_same_again() {
        let mix = |number: usize| Mix::bimodal(1_000 + number as u64);
        let before = Sample::of(&mix(0)).packets(&mix(0)).packets;
        (1..=MIXES_MAX).for_each(|number| drop(Sample::of(&mix(number))));
        assert_eq!(Sample::of(&mix(0)).packets(&mix(0)).packets, before);
    }
}
