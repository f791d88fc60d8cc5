//! Slots: where a collector leaves what it read, and where everybody else looks it up.
//!
//! A slot outlives every failure of its collector and says how fresh it is. Values are dropped, not
//! frozen: what is older than three intervals, or was followed by a failure, is gone from
//! [`View::facts`]. It starts no collector (see [`run`]) and names no metric.

pub mod run;

use std::ops::Add;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub use metric_catalog::labels::{Collector as CollectorName, CollectorError as ErrorKind};
pub use run::{Stop, run_async, run_blocking};

/// Intervals after which the last good facts are too old to be shown.
pub const FRESH_INTERVALS: u32 = 3;

/// One moment on both clocks: ages are counted on the monotonic one, timestamps are of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For ages and deadlines.
    pub mono: Instant,
    /// For timestamps on the page.
    pub wall: SystemTime,
}

impl Now {
    /// Reads both clocks. For rims only: cores are handed their `now`.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place of the exporter that does")]
    pub fn read() -> Self {
        Self { mono: Instant::now(), wall: SystemTime::now() }
    }

    /// Time since an earlier moment; zero if it is a later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.mono.saturating_duration_since(earlier.mono)
    }
}

impl Add<Duration> for Now {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { mono: self.mono + time, wall: self.wall + time }
    }
}

/// What came of a collection that brought no facts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// This node lacks what the collector reads, or nothing was configured for it: no failure.
    #[error("not supported here: {0}")]
    Unsupported(String),
    /// It should have worked.
    #[error("{}: {detail}", .kind.as_str())]
    Failed {
        /// Closed name, for the metric.
        kind: ErrorKind,
        /// What happened to what, for the log and for `/health`.
        detail: String,
    },
}

impl CollectError {
    /// A failure.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self::Failed { kind, detail: detail.into() }
    }

    /// No failure: there is nothing to collect here.
    pub fn unsupported(why: impl Into<String>) -> Self {
        Self::Unsupported(why.into())
    }

    /// From a failed call of the system, about `what`.
    #[must_use]
    pub fn io(what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = error.kind();
        let kind = if kind == Io::NotFound {
            ErrorKind::Missing
        } else if kind == Io::PermissionDenied {
            ErrorKind::Permission
        } else if kind == Io::TimedOut || kind == Io::WouldBlock {
            ErrorKind::Timeout
        } else if kind == Io::InvalidData {
            ErrorKind::Malformed
        } else {
            ErrorKind::Gone
        };
        Self::new(kind, format!("{what}: {error}"))
    }
}

impl From<node_info::FactError> for CollectError {
    fn from(error: node_info::FactError) -> Self {
        Self::from(node_info::Problem::from(error))
    }
}

impl From<node_info::Problem> for CollectError {
    fn from(problem: node_info::Problem) -> Self {
        use node_info::FactKind;
        let kind = match problem.kind {
            FactKind::Missing => ErrorKind::Missing,
            FactKind::Permission => ErrorKind::Permission,
            FactKind::Malformed => ErrorKind::Malformed,
            FactKind::Failed => ErrorKind::Gone,
            FactKind::Unsupported => return Self::unsupported(problem.reason),
        };
        Self::new(kind, problem.reason)
    }
}

/// What is known of a collector at one moment, without its facts.
#[derive(Debug, Clone)]
pub struct Status {
    /// Whose it is.
    pub name: CollectorName,
    /// How often it collects.
    pub interval: Duration,
    /// Why this node cannot have it; `None` when it can.
    pub unsupported: Option<String>,
    /// Whether the last collection that ended brought all of its facts.
    pub success: bool,
    /// How long that one took.
    pub last_duration: Duration,
    /// When facts came last, all or some.
    pub last_success: Option<SystemTime>,
    /// How old those are.
    pub age: Option<Duration>,
    /// How long the collection has been running that runs now, once that is longer than an
    /// interval; else zero.
    pub stuck: Duration,
    /// What failed last, until something works again.
    pub error: Option<CollectError>,
    /// Failures since the start, by [`ErrorKind::index`].
    pub errors: [u64; ErrorKind::ALL.len()],
}

impl Status {
    /// Whether facts came within the last three intervals.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.age.is_some_and(|age| age <= self.interval * FRESH_INTERVALS)
    }

    /// Whether the node has what it reads.
    #[must_use]
    pub const fn is_supported(&self) -> bool {
        self.unsupported.is_none()
    }
}

/// What is known of a collector at one moment.
#[derive(Debug, Clone)]
pub struct View<T> {
    /// What was read, if the last collection brought facts and is younger than three intervals: for
    /// gauges and judgements.
    pub facts: Option<Arc<T>>,
    /// What was read last, however long ago: for counters and constants only.
    pub last_good: Option<Arc<T>>,
    /// How the collector does.
    pub status: Status,
}

#[derive(Debug)]
struct State<T> {
    facts: Option<Arc<T>>,
    unsupported: Option<String>,
    success: bool,
    /// Whether the last collection that ended brought facts, all or some.
    shown: bool,
    /// What failed in the collection that runs, while the rest of it may work.
    part: Option<CollectError>,
    started: Option<Now>,
    hung: Option<Now>,
    last_duration: Duration,
    last_success: Option<Now>,
    error: Option<CollectError>,
    errors: [u64; ErrorKind::ALL.len()],
}

#[derive(Debug)]
struct Inner<T> {
    name: CollectorName,
    interval: Duration,
    state: Mutex<State<T>>,
}

/// Where a collector leaves what it read. Clones share the place; nobody holds its lock for longer
/// than it takes to copy a few words.
#[derive(Debug)]
pub struct Slot<T>(Arc<Inner<T>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    /// An empty one, for a collector that collects every `interval`.
    #[must_use]
    pub fn new(name: CollectorName, interval: Duration) -> Self {
        let state = State {
            facts: None,
            unsupported: None,
            success: false,
            shown: false,
            part: None,
            started: None,
            hung: None,
            last_duration: Duration::ZERO,
            last_success: None,
            error: None,
            errors: [0; ErrorKind::ALL.len()],
        };
        Self(Arc::new(Inner { name, interval, state: Mutex::new(state) }))
    }

    /// Whose it is.
    #[must_use]
    pub fn name(&self) -> CollectorName {
        self.0.name
    }

    /// How often it is to be filled.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.0.interval
    }

    /// A collection starts.
    pub fn begin(&self, now: Now) {
        self.state().started = Some(now);
    }

    /// The collection that began last has ended. Facts replace the earlier ones; a failure hides
    /// them.
    pub fn finish(&self, now: Now, result: Result<T, CollectError>) {
        let mut state = self.state();
        let started = state.started.take();
        state.last_duration = started.map_or(Duration::ZERO, |started| now.since(started));
        let part = state.part.take();
        state.shown = result.is_ok();
        match result {
            Ok(facts) => {
                state.facts = Some(Arc::new(facts));
                state.last_success = Some(now);
                state.success = part.is_none();
                (state.error, state.unsupported) = (part, None);
            }
            Err(CollectError::Unsupported(why)) => {
                (state.success, state.error, state.unsupported) = (false, None, Some(why));
            }
            Err(error @ CollectError::Failed { kind, .. }) => {
                state.errors[kind.index()] += 1;
                (state.success, state.error, state.unsupported) = (false, Some(error), None);
            }
        }
    }

    /// Facts that carry their own times and are worth having whatever became of the collection:
    /// they replace the earlier ones. Whether the collection worked, [`Slot::finish`] says.
    pub fn amend(&self, facts: T) {
        self.state().facts = Some(Arc::new(facts));
    }

    /// There is nothing to collect here, and why.
    pub fn unsupported(&self, why: impl Into<String>) {
        let mut state = self.state();
        (state.success, state.shown, state.error) = (false, false, None);
        state.unsupported = Some(why.into());
    }

    /// A part of what is collected (one card of several) has been stuck since then; `None` when
    /// nothing is any more. Facts of the other parts stay.
    pub fn hung_since(&self, since: Option<Now>) {
        self.state().hung = since;
    }

    /// A part of what is collected failed, while facts of the others came: counted, nothing is
    /// hidden.
    pub fn count_error(&self, kind: ErrorKind) {
        self.state().errors[kind.index()] += 1;
    }

    /// Some of what the running collection reads (one file of many) cannot be had, while it brings
    /// facts of the rest: they are shown, the collection counts as failed, and this is why. The
    /// first of several stands for all; each is counted.
    pub fn incomplete(&self, error: CollectError) {
        let mut state = self.state();
        if let CollectError::Failed { kind, .. } = &error {
            state.errors[kind.index()] += 1;
        }
        state.part.get_or_insert(error);
    }

    /// What is known at `now`.
    #[must_use]
    pub fn view(&self, now: Now) -> View<T> {
        let state = self.state();
        let interval = self.0.interval;
        let running = state.started.map(|started| now.since(started));
        let hung = state.hung.map(|since| now.since(since)).unwrap_or_default();
        let status = Status {
            name: self.0.name,
            interval,
            unsupported: state.unsupported.clone(),
            success: state.success,
            last_duration: state.last_duration,
            last_success: state.last_success.map(|at| at.wall),
            age: state.last_success.map(|at| now.since(at)),
            stuck: running.filter(|time| *time > interval).unwrap_or_default().max(hung),
            error: state.error.clone(),
            errors: state.errors,
        };
        let shown = state.shown && status.is_fresh();
        View {
            facts: state.facts.clone().filter(|_| shown),
            last_good: state.facts.clone(),
            status,
        }
    }

    /// A collector that panicked did not do so while it held the lock; its state is whole.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
