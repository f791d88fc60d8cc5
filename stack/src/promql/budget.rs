//! What one evaluation may use: samples, and time by way of a switch that ends it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{LOOKBACK_MS, QueryError};

/// Samples that a query may read and values that it may compute, all together; 16 bytes each.
pub(crate) const SAMPLES_MAX: usize = 20_000_000;

/// Bytes of a label value that a query makes.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// The bounds of one evaluation. Clones share the switch.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub(crate) samples_max: usize,
    /// How far back an instant selector looks for a sample.
    pub(crate) lookback_ms: i64,
    pub(super) stop: Arc<AtomicBool>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { samples_max: SAMPLES_MAX, lookback_ms: LOOKBACK_MS, stop: Arc::default() }
    }
}

impl Budget {
    /// Ends the evaluation at its next step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What is left while a query is evaluated; its parts share it.
#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) budget: &'a Budget,
    used: Cell<usize>,
}

impl<'a> Account<'a> {
    pub(super) const fn new(budget: &'a Budget) -> Self {
        Self { budget, used: Cell::new(0) }
    }

    /// Samples that may still be used.
    pub(super) fn left(&self) -> usize {
        self.budget.samples_max.saturating_sub(self.used.get())
    }

    /// Takes `series` times `steps` samples, before room is made for them.
    pub(super) fn charge(&self, series: usize, steps: usize) -> Result<(), QueryError> {
        self.check()?;
        let more = series.saturating_mul(steps);
        if more > self.left() {
            return Err(self.too_many());
        }
        self.used.set(self.used.get() + more);
        Ok(())
    }

    pub(super) fn too_many(&self) -> QueryError {
        QueryError::Execution(format!(
            "query processing would load too many samples into memory in query execution: more \
             than {} read and computed; a shorter range, a longer step or a selector of fewer \
             series would work",
            self.budget.samples_max
        ))
    }

    /// An error once the evaluation is told to stop.
    pub(super) fn check(&self) -> Result<(), QueryError> {
        if self.budget.stop.load(Ordering::Relaxed) {
            return Err(QueryError::Stopped);
        }
        Ok(())
    }
}

/// Refuses a label value that has grown beyond all use.
pub(super) fn label_value(value: &str) -> Result<&str, QueryError> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(value);
    }
    Err(QueryError::Execution(format!(
        "a label value of {} bytes would be made, more than {VALUE_BYTES_MAX}",
        value.len()
    )))
}
