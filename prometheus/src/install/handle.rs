//! Handles: one series each, cheap to record to and to clone.

use std::time::Duration;

/// One series of a counter.
#[derive(Debug, Clone)]
pub struct CounterHandle(pub(super) metrics::Counter);

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
pub struct TimeHandle(pub(super) metrics::Counter);

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
pub struct GaugeHandle(pub(super) metrics::Gauge);

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
pub struct HistogramHandle(pub(super) metrics::Histogram);

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
