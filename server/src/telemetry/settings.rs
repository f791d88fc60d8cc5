//! What is recorded of settings that can change, by a server and by a router.

use std::sync::{Mutex, PoisonError};

use metric_catalog::install::{CounterHandle, GaugeHandle, Registry};
use metric_catalog::labels::{ConfigGeneration, ConfigHash, ReloadResult};
use metric_catalog::server as catalog;
use types::Clock;

use super::all;

/// The settings in force, as metrics show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// How often they have changed, from 1.
    pub generation: u64,
    /// A hash of all of them.
    pub hash: u64,
    /// Those that flags and file say otherwise.
    pub drift: u64,
}

/// The series about settings.
#[derive(Debug)]
pub struct SettingsMetrics {
    registry: Registry,
    clock: Clock,
    /// By result.
    reloads: Vec<CounterHandle>,
    successful: GaugeHandle,
    timestamp: GaugeHandle,
    drift: GaugeHandle,
    /// The generation that has a series.
    shown: Mutex<Option<u64>>,
}

impl SettingsMetrics {
    /// Handles in `registry`.
    #[must_use]
    pub fn new(registry: &Registry, clock: Clock) -> Self {
        Self {
            registry: registry.clone(),
            clock,
            reloads: all(|result| registry.counter(catalog::CONFIG_RELOADS, (result,))),
            successful: registry.gauge(catalog::CONFIG_LAST_RELOAD_SUCCESSFUL, ()),
            timestamp: registry.gauge(catalog::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, ()),
            drift: registry.gauge(catalog::CONFIG_DRIFT, ()),
            shown: Mutex::new(None),
        }
    }

    /// These are the settings that the process starts with.
    pub(crate) fn begin(&self, now: InForce) {
        self.successful.set(1.0);
        self.show(true, now);
    }

    /// Somebody wanted to change settings.
    pub(crate) fn changed(&self, done: bool, now: InForce) {
        let result = if done { ReloadResult::Ok } else { ReloadResult::Failed };
        self.reloads[result.index()].increment();
        self.show(done, now);
    }

    /// The file was read again.
    pub(crate) fn read(&self, done: bool, now: InForce) {
        self.successful.set(f64::from(u8::from(done)));
        self.changed(done, now);
    }

    fn show(&self, done: bool, now: InForce) {
        if done {
            self.timestamp.set(self.clock.unix_seconds(self.clock.now()));
        }
        self.drift.set_count(now.drift);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.replace(now.generation);
        if before == Some(now.generation) {
            return;
        }
        let label = |generation: u64| ConfigGeneration::new(generation.to_string());
        let hash = ConfigHash::new(format!("{:016x}", now.hash));
        let labels = (label(now.generation), hash);
        self.registry.gauge(catalog::CONFIG_GENERATION_INFO, labels).set(1.0);
        if let Some(before) = before {
            self.registry.remove(&label(before));
        }
    }
}
