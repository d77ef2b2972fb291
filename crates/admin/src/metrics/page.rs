//! How families of metrics are written: a description, then a sample for each set of labels.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// Labels of a sample.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A scrape is written here, metric by metric.
pub struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// A histogram's sample: the sum, the count, and how many are in each bucket by its end.
pub struct Buckets {
    pub sum: f64,
    pub count: u64,
    pub counts: Vec<(f64, u64)>,
}

impl<'a> Page<'a> {
    pub fn new(encoder: DescriptorEncoder<'a>) -> Page<'a> {
        Page { encoder }
    }

    /// A count that only grows; `_total` is added to its name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, None, [(Labels::new(), value as f64)])
    }

    /// The same, of bytes.
    pub fn counter_bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, Some(Unit::Bytes), [(Labels::new(), value as f64)])
    }

    /// Counts that only grow, by their labels.
    pub fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        let write = |sample: &mut MetricEncoder<'_>, value: f64| match is_whole(value) {
            true => sample.encode_counter::<NoLabelSet, _, u64>(&(value as u64), None),
            false => sample.encode_counter::<NoLabelSet, _, u64>(&value, None),
        };
        samples.into_iter().try_for_each(|(labels, value)| match labels.is_empty() {
            true => write(&mut family, value),
            false => write(&mut family.encode_family(&labels)?, value),
        })
    }

    /// A number that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, None, [(Labels::new(), value)])
    }

    /// The same, of bytes.
    pub fn gauge_bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, Some(Unit::Bytes), [(Labels::new(), value)])
    }

    /// Numbers that go up and down, by their labels.
    pub fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl IntoIterator<Item = (Labels<'l>, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        samples.into_iter().try_for_each(|(labels, value)| match labels.is_empty() {
            true => family.encode_gauge(&value),
            false => family.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    /// Histograms, by their labels.
    pub fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        samples: impl IntoIterator<Item = (Labels<'l>, Buckets)>,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        let mut family = self.encoder.encode_descriptor(name, help, Some(&unit), kind)?;
        samples.into_iter().try_for_each(|(labels, Buckets { sum, count, counts })| {
            let write = |sample: &mut MetricEncoder<'_>| {
                sample.encode_histogram::<NoLabelSet>(sum, count, &counts, None)
            };
            match labels.is_empty() {
                true => write(&mut family),
                false => write(&mut family.encode_family(&labels)?),
            }
        })
    }

    /// What is always 1, and says something by its labels.
    pub fn info(&mut self, name: &str, help: &str, labels: &impl EncodeLabelSet) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        family.encode_info(labels)
    }
}

/// Counts are written as integers, so that none is rounded on its way.
fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value < (1u64 << 53) as f64
}
