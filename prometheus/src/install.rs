//! Recording: an exporter built from the catalog, and handles that are resolved once.
//!
//! There is no global recorder: a `Registry` is a value, so that two engines in one process (or two
//! tests) do not share series. Nothing here runs by itself: somebody must call `run_upkeep` on a
//! timer, or raw histogram samples pile up between scrapes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Key, Label as KeyLabel, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::def::{self, Info, Kind, Label, LabelSet, Metric, Unit};
use crate::labels::{ModelName, Role};
use crate::roles::Per;
use crate::server;
use leaving::Leaving;
use undeclared::Undeclared;

pub use handle::{CounterHandle, GaugeHandle, HistogramHandle, TimeHandle};
pub use members::{LINGER, MEMBERS_MAX, Members, OTHER};
pub use page::filter;

mod handle;
mod leaving;
mod members;
mod page;
#[cfg(test)]
mod tests;
mod undeclared;

/// Raw samples kept between two upkeeps are bounded by calling it this often.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Why a registry could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A constant label is empty; an empty label is no label.
    #[error("the model name is empty")]
    EmptyModelName,
    /// A router serves several models; its registry is made otherwise.
    #[error("a router has no one model")]
    RouterOfOneModel,
    /// The exporter refuses the declaration of a metric.
    #[error("cannot export {name}")]
    Exporter {
        /// The metric.
        name: &'static str,
        /// What the exporter says.
        source: BuildError,
    },
}

/// All series of one process, or those of one model of a router.
///
/// Cheap to clone. Every metric of the role whose labels are all closed has all its series, at 0,
/// from the start; a metric with open labels has those that handles were made for. The handle of a
/// metric that the role does not export does nothing.
#[derive(Debug, Clone)]
pub struct Registry {
    exporter: Option<Arc<Exporter>>,
    /// The model that series of a router are of.
    model: Option<Arc<str>>,
}

struct Exporter {
    role: Role,
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    leaving: Leaving,
    /// Models of a router whose series are there.
    models: Mutex<BTreeSet<Arc<str>>>,
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

/// Where a series is kept.
enum Place<'a> {
    /// Nowhere: the role does not export it.
    Absent,
    /// Nowhere: the role exports the metric, but never with this value.
    Undeclared,
    /// With the exporter.
    Exporter(&'a PrometheusRecorder, Key),
    /// With the series that are removed when their values leave.
    Leaving(&'a Leaving, Vec<Cow<'static, str>>),
}

impl Registry {
    /// A registry of an engine, whose series all carry `engine_role` and `model_name`.
    pub fn new(role: Role, model_name: &str) -> Result<Self, InstallError> {
        if model_name.is_empty() {
            return Err(InstallError::EmptyModelName);
        }
        if role == Role::Router {
            return Err(InstallError::RouterOfOneModel);
        }
        let model = (ModelName::INFO.name, model_name);
        Self::with_constants(role, &[(Role::INFO.name, role.as_str()), model])
    }

    /// A registry of a router: its series carry `engine_role`, and `model_name` those that were
    /// made through [`model`](Self::model).
    pub fn router() -> Result<Self, InstallError> {
        Self::with_constants(Role::Router, &[(Role::INFO.name, Role::Router.as_str())])
    }

    fn with_constants(role: Role, constants: &[(&str, &str)]) -> Result<Self, InstallError> {
        let mut builder = PrometheusBuilder::new();
        for info in crate::all().filter(|info| info.kind == Kind::Histogram) {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(info.name.to_owned()), info.buckets)
                .map_err(|source| InstallError::Exporter { name: info.name, source })?;
        }
        let recorder = builder.build_recorder();
        for info in crate::all().filter(|info| info.is_of(role)) {
            describe(&recorder, info);
        }
        let own = |info| key(info, Vec::new(), None);
        let time = own(server::METRICS_RENDER_DURATION.info);
        let render_time = recorder.register_histogram(&time, &METADATA);
        let series = recorder.register_gauge(&own(server::METRICS_SERIES.info), &METADATA);
        let exporter = Arc::new(Exporter {
            role,
            handle: recorder.handle(),
            recorder,
            leaving: Leaving::default(),
            models: Mutex::default(),
            // The exporter could add constant labels as well, but formats them anew for every line,
            // which doubles the cost of a page.
            constants: page::constants(constants),
            render_time,
            series,
        });
        let registry = Self { exporter: Some(exporter), model: None };
        registry.register_closed(|per| role != Role::Router || per == Per::Process);
        Ok(registry)
    }

    /// The series of one model of a router; they are there at 0 from the first call on.
    ///
    /// The caller keeps to a list of models and folds all others into one name, since names come
    /// from clients.
    ///
    /// # Panics
    ///
    /// When the registry is not a router's.
    pub fn model(&self, name: &str) -> Self {
        let name: Arc<str> = name.into();
        let of_model = Self { exporter: self.exporter.clone(), model: Some(Arc::clone(&name)) };
        if let Some(exporter) = &self.exporter {
            assert!(exporter.role == Role::Router, "an engine serves one model");
            let mut models = exporter.models.lock().unwrap_or_else(PoisonError::into_inner);
            if models.insert(name) {
                of_model.register_closed(|per| per == Per::Model);
            }
        }
        of_model
    }

    /// A registry that records nothing and renders an empty page; its handles do nothing.
    ///
    /// For measuring what recording costs.
    pub const fn disabled() -> Self {
        Self { exporter: None, model: None }
    }

    /// Whether the role exports the series with these labels.
    pub fn exports<M: Metric>(&self, metric: M, labels: &M::Labels) -> bool {
        let role = self.exporter.as_ref().map(|exporter| exporter.role);
        role.is_some_and(|role| metric.info().is_of(role) && labels.occurs(role))
    }

    /// The handle of one series of a counter.
    pub fn counter<L: LabelSet>(&self, metric: def::Counter<L>, labels: L) -> CounterHandle {
        CounterHandle(self.raw_counter(metric.info(), &labels))
    }

    /// A handle for every combination of closed values, in the order of [`LabelSet::all`]; `None`
    /// for those that the catalog says cannot occur.
    pub fn counters<L: LabelSet>(&self, metric: def::Counter<L>) -> Vec<Option<CounterHandle>> {
        let Some(exporter) = &self.exporter else {
            return L::all().into_iter().map(|set| Some(self.counter(metric, set))).collect();
        };
        let declared = metric.info().combinations(exporter.role);
        let mut declared = declared.into_iter().peekable();
        let handle = |labels: L| {
            let known = declared.next_if(|values| *values == labels.values()).is_some();
            let mine = known && self.is_mine(metric.info(), &labels.values());
            mine.then(|| self.counter(metric, labels))
        };
        L::all().into_iter().map(handle).collect()
    }

    /// The handle of one series of a time counter.
    pub fn time<L: LabelSet>(&self, metric: def::TimeCounter<L>, labels: L) -> TimeHandle {
        TimeHandle(self.raw_counter(metric.info(), &labels))
    }

    /// The handle of one series of a gauge.
    pub fn gauge<L: LabelSet>(&self, metric: def::Gauge<L>, labels: L) -> GaugeHandle {
        let info = metric.info();
        GaugeHandle(match self.place(info, &labels) {
            Place::Absent => metrics::Gauge::noop(),
            Place::Undeclared => metrics::Gauge::from_arc(Arc::new(Undeclared(info.name))),
            Place::Exporter(recorder, key) => recorder.register_gauge(&key, &METADATA),
            Place::Leaving(leaving, values) => {
                metrics::Gauge::from_arc(leaving.series(info, values))
            }
        })
    }

    /// The handle of one series of a histogram.
    ///
    /// # Panics
    ///
    /// When a label of the metric has values that leave: only counters and gauges can be removed.
    pub fn histogram<L: LabelSet>(&self, metric: def::Histogram<L>, labels: L) -> HistogramHandle {
        let info = metric.info();
        HistogramHandle(match self.place(info, &labels) {
            Place::Absent => metrics::Histogram::noop(),
            Place::Undeclared => metrics::Histogram::from_arc(Arc::new(Undeclared(info.name))),
            Place::Exporter(recorder, key) => recorder.register_histogram(&key, &METADATA),
            Place::Leaving(..) => panic!("{} is a histogram and cannot leave", info.name),
        })
    }

    fn raw_counter<L: LabelSet>(&self, info: &'static Info, labels: &L) -> metrics::Counter {
        match self.place(info, labels) {
            Place::Absent => metrics::Counter::noop(),
            Place::Undeclared => metrics::Counter::from_arc(Arc::new(Undeclared(info.name))),
            Place::Exporter(recorder, key) => recorder.register_counter(&key, &METADATA),
            Place::Leaving(leaving, values) => {
                metrics::Counter::from_arc(leaving.series(info, values))
            }
        }
    }

    /// Removes every series with this value of a label whose values leave.
    pub fn remove<L: Label>(&self, value: &L) {
        if let Some(exporter) = &self.exporter {
            exporter.leaving.remove(L::INFO.name, &value.value());
        }
    }

    /// Whether series with these values belong here: on a router to a model or to none.
    fn is_mine(&self, info: &'static Info, values: &[Cow<'static, str>]) -> bool {
        let router = self.exporter.as_ref().is_some_and(|e| e.role == Role::Router);
        !router || (info.per(values) == Per::Model) == self.model.is_some()
    }

    fn place<L: LabelSet>(&self, info: &'static Info, labels: &L) -> Place<'_> {
        let Some(exporter) = self.exporter.as_ref().filter(|e| info.is_of(e.role)) else {
            return Place::Absent;
        };
        if !labels.occurs(exporter.role) {
            return Place::Undeclared;
        }
        let values = labels.values();
        assert!(self.is_mine(info, &values), "{} {values:?}: by model, or not", info.name);
        if info.leaves() {
            return Place::Leaving(&exporter.leaving, values);
        }
        Place::Exporter(&exporter.recorder, key(info, values, self.model_of(info)))
    }

    /// The model of series that belong here. All series of a family have the same labels, so on a
    /// router those without a model say so where others of the family have one.
    fn model_of(&self, info: &'static Info) -> Option<&str> {
        let router = self.exporter.as_ref().is_some_and(|e| e.role == Role::Router);
        self.model.as_deref().or((router && info.per == Per::Model).then_some(NO_MODEL))
    }

    /// Registers all closed series that belong here.
    fn register_closed(&self, belongs: impl Fn(Per) -> bool) {
        let Some(exporter) = &self.exporter else { return };
        for info in crate::all() {
            for values in info.combinations(exporter.role) {
                if belongs(info.per(&values)) {
                    let key = key(info, values, self.model_of(info));
                    register(&exporter.recorder, info.kind, &key);
                }
            }
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
        let mut text = exporter.handle.render();
        exporter.leaving.render(&mut text);
        let (page, samples) = page::tidy(&text, &exporter.constants);
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

/// The model of a router's HTTP requests that are for none.
const NO_MODEL: &str = "none";

static METADATA: Metadata<'static> = Metadata::new("metric_catalog", Level::INFO, None);

fn key(info: &'static Info, values: Vec<Cow<'static, str>>, model: Option<&str>) -> Key {
    let model = model.map(|name| KeyLabel::new(ModelName::INFO.name, name.to_owned()));
    let own = info.labels.iter().zip(values);
    let own = own.map(|(label, value)| KeyLabel::new(label.name, value));
    Key::from_parts(info.name, model.into_iter().chain(own).collect::<Vec<_>>())
}

fn describe(recorder: &PrometheusRecorder, info: &'static Info) {
    match info.kind {
        Kind::Counter => recorder.describe_counter(info.name.into(), None, info.help.into()),
        Kind::Gauge => recorder.describe_gauge(info.name.into(), None, info.help.into()),
        Kind::Histogram => recorder.describe_histogram(info.name.into(), None, info.help.into()),
    }
}

fn register(recorder: &PrometheusRecorder, kind: Kind, key: &Key) {
    match kind {
        Kind::Counter => recorder.register_counter(key, &METADATA).increment(0),
        Kind::Gauge => recorder.register_gauge(key, &METADATA).set(0.0),
        Kind::Histogram => drop(recorder.register_histogram(key, &METADATA)),
    }
}

/// Whether the exporter holds a counter in nanoseconds.
fn is_time(info: &Info) -> bool {
    info.kind == Kind::Counter && info.unit == Unit::Seconds
}
