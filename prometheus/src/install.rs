//! Recording: an exporter built from the catalog, and handles that are resolved once.
//!
//! There is no global recorder: a `Registry` is a value, so that two engines in one process (or two
//! tests) do not share series. Nothing here runs by itself: somebody must call `run_upkeep` on a
//! timer, or raw histogram samples pile up between scrapes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Key, Label as KeyLabel, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::def::{self, Info, Kind, Label, LabelSet, Metric, Unit};
use crate::labels::{ModelName, Role};
use crate::server;

pub use page::filter;

mod page;
#[cfg(test)]
mod tests;

/// Raw samples kept between two upkeeps are bounded by calling it this often.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Why a registry could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A constant label is empty; an empty label is no label.
    #[error("the model name is empty")]
    EmptyModelName,
    /// The exporter refuses the declaration of a metric.
    #[error("cannot export {name}")]
    Exporter {
        /// The metric.
        name: &'static str,
        /// What the exporter says.
        source: BuildError,
    },
}

/// All series of one process.
///
/// Cheap to clone. Every metric whose labels are all closed has all its series, at 0, from the
/// start; a metric with open labels has those that handles were made for.
#[derive(Debug, Clone)]
pub struct Registry {
    exporter: Option<Arc<Exporter>>,
}

struct Exporter {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// The constant labels, as they stand in front of a series' own.
    constants: String,
    render_time: metrics::Histogram,
    series: metrics::Gauge,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter")
    }
}

impl Registry {
    /// A registry whose series all carry `engine_role` and `model_name`.
    pub fn new(role: Role, model_name: &str) -> Result<Self, InstallError> {
        if model_name.is_empty() {
            return Err(InstallError::EmptyModelName);
        }
        // The exporter could add constant labels as well, but formats them anew for every line,
        // which doubles the cost of a page.
        let constants = page::constants(&[
            (Role::INFO.name, role.as_str()),
            (ModelName::INFO.name, model_name),
        ]);
        let mut builder = PrometheusBuilder::new();
        for info in crate::all().filter(|info| info.kind == Kind::Histogram) {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(info.name.to_owned()), info.buckets)
                .map_err(|source| InstallError::Exporter { name: info.name, source })?;
        }
        let recorder = builder.build_recorder();
        for info in crate::all().filter(|info| info.roles.contains(&role)) {
            describe(&recorder, info);
            for values in info.combinations() {
                register(&recorder, info, values);
            }
        }
        let render_time = recorder
            .register_histogram(&key(server::METRICS_RENDER_DURATION.info, Vec::new()), &METADATA);
        let series = recorder.register_gauge(&key(server::METRICS_SERIES.info, vec![]), &METADATA);
        let handle = recorder.handle();
        let exporter = Arc::new(Exporter { recorder, handle, constants, render_time, series });
        Ok(Self { exporter: Some(exporter) })
    }

    /// A registry that records nothing and renders an empty page; its handles do nothing.
    ///
    /// For measuring what recording costs.
    pub const fn disabled() -> Self {
        Self { exporter: None }
    }

    /// The handle of one series of a counter.
    pub fn counter<L: LabelSet>(&self, metric: def::Counter<L>, labels: L) -> CounterHandle {
        CounterHandle(self.raw_counter(metric.info(), &labels))
    }

    /// A handle for every combination of closed values, in the order of [`LabelSet::all`]; `None`
    /// for those that the catalog says cannot occur.
    pub fn counters<L: LabelSet>(&self, metric: def::Counter<L>) -> Vec<Option<CounterHandle>> {
        let mut declared = metric.info().combinations().into_iter().peekable();
        let handle = |labels: L| {
            let known = declared.next_if(|values| *values == labels.values()).is_some();
            known.then(|| self.counter(metric, labels))
        };
        L::all().into_iter().map(handle).collect()
    }

    /// The handle of one series of a time counter.
    pub fn time<L: LabelSet>(&self, metric: def::TimeCounter<L>, labels: L) -> TimeHandle {
        TimeHandle(self.raw_counter(metric.info(), &labels))
    }

    /// The handle of one series of a gauge.
    pub fn gauge<L: LabelSet>(&self, metric: def::Gauge<L>, labels: L) -> GaugeHandle {
        GaugeHandle(match &self.exporter {
            Some(exporter) => {
                let key = key(metric.info(), labels.values());
                exporter.recorder.register_gauge(&key, &METADATA)
            }
            None => metrics::Gauge::noop(),
        })
    }

    /// The handle of one series of a histogram.
    pub fn histogram<L: LabelSet>(&self, metric: def::Histogram<L>, labels: L) -> HistogramHandle {
        HistogramHandle(match &self.exporter {
            Some(exporter) => {
                let key = key(metric.info(), labels.values());
                exporter.recorder.register_histogram(&key, &METADATA)
            }
            None => metrics::Histogram::noop(),
        })
    }

    fn raw_counter<L: LabelSet>(&self, info: &'static Info, labels: &L) -> metrics::Counter {
        match &self.exporter {
            Some(exporter) => {
                exporter.recorder.register_counter(&key(info, labels.values()), &METADATA)
            }
            None => metrics::Counter::noop(),
        }
    }

    /// The page in the Prometheus text format 0.0.4, families and series in a fixed order.
    ///
    /// Its own cost and size are on the next page. Set the gauges that are read at scrape time
    /// right before.
    pub fn render(&self) -> String {
        let Some(exporter) = &self.exporter else {
            return String::new();
        };
        #[expect(clippy::disallowed_methods, reason = "measures itself; decides nothing by it")]
        let start = Instant::now();
        let (page, samples) = page::tidy(&exporter.handle.render(), &exporter.constants);
        exporter.render_time.record(start.elapsed().as_secs_f64());
        exporter.series.set(samples as f64);
        page
    }

    /// Folds raw histogram samples into buckets; call it every `UPKEEP_INTERVAL`.
    pub fn run_upkeep(&self) {
        if let Some(exporter) = &self.exporter {
            exporter.handle.run_upkeep();
        }
    }
}

static METADATA: Metadata<'static> = Metadata::new("metric_catalog", Level::INFO, None);

fn key(info: &'static Info, values: Vec<Cow<'static, str>>) -> Key {
    let labels: Vec<_> = info
        .labels
        .iter()
        .zip(values)
        .map(|(label, value)| KeyLabel::new(label.name, value))
        .collect();
    Key::from_parts(info.name, labels)
}

fn describe(recorder: &PrometheusRecorder, info: &'static Info) {
    match info.kind {
        Kind::Counter => recorder.describe_counter(info.name.into(), None, info.help.into()),
        Kind::Gauge => recorder.describe_gauge(info.name.into(), None, info.help.into()),
        Kind::Histogram => recorder.describe_histogram(info.name.into(), None, info.help.into()),
    }
}

fn register(recorder: &PrometheusRecorder, info: &'static Info, values: Vec<Cow<'static, str>>) {
    let key = key(info, values);
    match info.kind {
        Kind::Counter => recorder.register_counter(&key, &METADATA).increment(0),
        Kind::Gauge => recorder.register_gauge(&key, &METADATA).set(0.0),
        Kind::Histogram => drop(recorder.register_histogram(&key, &METADATA)),
    }
}

/// Whether the exporter holds a counter in nanoseconds.
fn is_time(info: &Info) -> bool {
    info.kind == Kind::Counter && info.unit == Unit::Seconds
}

/// One series of a counter.
#[derive(Debug, Clone)]
pub struct CounterHandle(metrics::Counter);

impl CounterHandle {
    /// Adds one.
    pub fn increment(&self) {
        self.0.increment(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.increment(count);
    }
}

/// One series of a time counter; counted in nanoseconds, shown in seconds.
#[derive(Debug, Clone)]
pub struct TimeHandle(metrics::Counter);

impl TimeHandle {
    /// Adds a time.
    pub fn add(&self, time: Duration) {
        self.0.increment(nanoseconds(time));
    }

    /// Sets the total, for a total that somebody else keeps; it must not fall.
    pub fn set_total(&self, total: Duration) {
        self.0.absolute(nanoseconds(total));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One series of a gauge.
#[derive(Debug, Clone)]
pub struct GaugeHandle(metrics::Gauge);

impl GaugeHandle {
    /// Sets the value; it should be finite.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Sets a whole number.
    pub fn set_count(&self, value: u64) {
        self.0.set(value as f64);
    }

    /// Sets a duration, in seconds.
    pub fn set_duration(&self, value: Duration) {
        self.0.set(value.as_secs_f64());
    }

    /// Adds one.
    pub fn increment(&self) {
        self.0.increment(1.0);
    }

    /// Takes one away.
    pub fn decrement(&self) {
        self.0.decrement(1.0);
    }
}

/// One series of a histogram.
#[derive(Debug, Clone)]
pub struct HistogramHandle(metrics::Histogram);

impl HistogramHandle {
    /// Records one value.
    pub fn record(&self, value: f64) {
        self.0.record(value);
    }

    /// Records a whole number.
    pub fn record_count(&self, value: u64) {
        self.0.record(value as f64);
    }

    /// Records a duration, in seconds.
    pub fn record_duration(&self, value: Duration) {
        self.0.record(value.as_secs_f64());
    }

    /// Records a duration, in seconds, so many times.
    pub fn record_durations(&self, value: Duration, count: u64) {
        self.0.record_many(value.as_secs_f64(), usize::try_from(count).unwrap_or(usize::MAX));
    }
}
