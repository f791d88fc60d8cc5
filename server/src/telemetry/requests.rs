//! What the front door decides about inference requests: admitted, refused, why.

use admission::{RejectReason, Rejected};
use metric_catalog::install::{CounterHandle, HistogramHandle, Registry};
use metric_catalog::labels::{self, Slo, SloResult};
use metric_catalog::server as catalog;
use types::PriorityClass;

use super::all;

/// Handles of the front door, resolved once.
#[derive(Debug)]
pub struct RequestMetrics {
    /// By priority.
    admitted: Vec<CounterHandle>,
    /// By reason and priority.
    rejected: Vec<Vec<CounterHandle>>,
    retry_after: HistogramHandle,
    prompt_tokens: HistogramHandle,
    late: CounterHandle,
}

impl RequestMetrics {
    /// Handles in `registry`.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let rejected = |reason: labels::RejectReason| {
            all(|priority| registry.counter(catalog::REQUESTS_REJECTED, (reason, priority)))
        };
        Self {
            admitted: all(|priority| registry.counter(catalog::REQUESTS_ADMITTED, (priority,))),
            rejected: all(rejected),
            retry_after: registry.histogram(catalog::ADMISSION_RETRY_AFTER, ()),
            prompt_tokens: registry.histogram(catalog::REQUEST_PROMPT_TOKENS, ()),
            late: registry.counter(catalog::SLO_REQUESTS, (Slo::Ttft, SloResult::Bad)),
        }
    }

    /// A request with a prompt of `tokens` was accepted into the queue.
    pub fn admitted(&self, tokens: usize, priority: PriorityClass) {
        self.admitted[label(priority).index()].increment();
        self.prompt_tokens.record_count(tokens as u64);
    }

    /// A request for `choices` answers was refused, at once or after a wait: none will see its
    /// first token in time.
    pub fn rejected(&self, refusal: &Rejected, choices: usize, priority: PriorityClass) {
        let reason = match refusal.reason {
            RejectReason::QueueRequestsFull => labels::RejectReason::QueueRequestsFull,
            RejectReason::QueueTokensFull => labels::RejectReason::QueueTokensFull,
            RejectReason::DrainTime => labels::RejectReason::DrainTime,
            RejectReason::Draining => labels::RejectReason::Draining,
            RejectReason::Unhealthy => labels::RejectReason::Unhealthy,
            RejectReason::PriorityEvicted => labels::RejectReason::PriorityEvicted,
            RejectReason::QueueTimeout => labels::RejectReason::QueueTimeout,
        };
        self.rejected[reason.index()][label(priority).index()].add(choices as u64);
        self.late.add(choices as u64);
        self.retry_after.record_duration(refusal.retry_after);
    }

    /// A request for `choices` answers was refused because of what it asks: the client's fault,
    /// so no objective is hurt.
    pub fn invalid(&self, choices: usize, priority: PriorityClass) {
        let by_priority = &self.rejected[labels::RejectReason::Invalid.index()];
        by_priority[label(priority).index()].add(choices as u64);
    }
}

const fn label(class: PriorityClass) -> labels::Priority {
    match class {
        PriorityClass::High => labels::Priority::High,
        PriorityClass::Normal => labels::Priority::Normal,
        PriorityClass::Low => labels::Priority::Low,
    }
}
