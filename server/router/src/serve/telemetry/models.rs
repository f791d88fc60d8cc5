//! Requests for one model: where they went, what became of them, how long clients waited.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metric_catalog::install::{CounterHandle, GaugeHandle, HistogramHandle, Registry};
use metric_catalog::labels::{
    self, AbortInitiator, AbortReason, AbortStage, EngineState, HoldOutcome, Outcome, Priority,
    RejectReason, RetryReason, RouterBranch, RouterOutcome, RouterPolicy, Slo, SloResult,
    Streaming,
};
use metric_catalog::{router as ours, server as catalog};

use super::{Http, all};
use crate::policy::{Branch, PolicyKind};
use crate::serve::settings::Objectives;

/// Models with series of their own; requests for others share one.
const MODELS_MAX: usize = 32;
/// The name of what is shared, which is also that of requests without a known model.
pub const OTHER: &str = "other";

/// The handles of all models.
#[derive(Debug)]
pub struct Models {
    registry: Registry,
    /// The index of the policy in force.
    policy: Arc<AtomicUsize>,
    objectives: Objectives,
    known: RwLock<BTreeMap<Arc<str>, Arc<Model>>>,
    other: Arc<Model>,
}

impl Models {
    /// No model is known yet.
    #[must_use]
    pub fn new(registry: &Registry, policy: PolicyKind, objectives: Objectives) -> Self {
        let policy = Arc::new(AtomicUsize::new(self::policy(policy).index()));
        let other = Arc::new(Model::new(&registry.model(OTHER), &policy, objectives));
        let (registry, known) = (registry.clone(), RwLock::default());
        Self { registry, policy, objectives, known, other }
    }

    /// From now on requests are counted for this policy.
    pub(super) fn choose_by(&self, kind: PolicyKind) {
        self.policy.store(policy(kind).index(), Ordering::Relaxed);
    }

    /// The handles of a model that `served` workers serve, or of all others.
    pub fn of(&self, name: &str) -> Arc<Model> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.get(name).unwrap_or(&self.other))
    }

    /// These models are served: they have series from now on.
    pub fn serve(&self, names: &[Arc<str>]) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let fresh: Vec<_> = names.iter().filter(|name| !known.contains_key(*name)).collect();
        drop(known);
        if fresh.is_empty() {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for name in fresh {
            if known.len() >= MODELS_MAX || name.is_empty() || **name == *OTHER {
                continue;
            }
            let make = || Model::new(&self.registry.model(name), &self.policy, self.objectives);
            known.entry(Arc::clone(name)).or_insert_with(|| Arc::new(make()));
        }
    }

    /// All that have series.
    pub fn each(&self, mut visit: impl FnMut(&str, &Model)) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().for_each(|(name, model)| visit(name, model));
        visit(OTHER, &self.other);
    }
}

const fn policy(kind: PolicyKind) -> RouterPolicy {
    match kind {
        PolicyKind::CacheAware => RouterPolicy::CacheAware,
        PolicyKind::LeastPendingTokens => RouterPolicy::LeastPendingTokens,
        PolicyKind::PowerOfTwo => RouterPolicy::PowerOfTwo,
        PolicyKind::RoundRobin => RouterPolicy::RoundRobin,
        PolicyKind::PrefixHash => RouterPolicy::PrefixHash,
    }
}

const fn branch(branch: Branch) -> RouterBranch {
    match branch {
        Branch::CacheHit => RouterBranch::CacheHit,
        Branch::LeastLoad => RouterBranch::LeastLoad,
        Branch::LoadGuard => RouterBranch::LoadGuard,
        Branch::Hash => RouterBranch::Hash,
        Branch::Turn => RouterBranch::Turn,
        Branch::Only => RouterBranch::Only,
    }
}

const fn retry(reason: crate::request::RetryReason) -> RetryReason {
    use crate::request::RetryReason as Reason;
    match reason {
        Reason::Connect => RetryReason::Connect,
        Reason::Broken => RetryReason::Broken,
        Reason::Rejected => RetryReason::Rejected,
        Reason::Error => RetryReason::Error,
        Reason::Timeout => RetryReason::Timeout,
    }
}

/// The handles of one model.
#[derive(Debug)]
pub struct Model {
    pub(crate) http: Arc<Http>,
    objectives: Objectives,
    admitted: CounterHandle,
    rejected: Vec<CounterHandle>,
    retry_after: HistogramHandle,
    finished: Vec<CounterHandle>,
    aborted: Vec<Option<CounterHandle>>,
    slo: Vec<[CounterHandle; 2]>,
    ttft: Vec<HistogramHandle>,
    gap: HistogramHandle,
    per_token: HistogramHandle,
    duration: Vec<HistogramHandle>,
    generated: HistogramHandle,
    policy: Arc<AtomicUsize>,
    /// By policy and outcome.
    routed: Vec<CounterHandle>,
    /// By policy and branch; `None` where the policy never chooses so.
    decisions: Vec<Option<CounterHandle>>,
    holds: Vec<CounterHandle>,
    hold_time: HistogramHandle,
    retries: Vec<CounterHandle>,
    prefix_match: HistogramHandle,
    declared: Vec<GaugeHandle>,
    state: Vec<GaugeHandle>,
}

impl Model {
    fn new(registry: &Registry, policy: &Arc<AtomicUsize>, objectives: Objectives) -> Self {
        let Objectives { ttft, itl, e2e } = objectives;
        for (slo, objective) in [(Slo::Ttft, ttft), (Slo::Itl, itl), (Slo::E2e, e2e)] {
            registry.gauge(catalog::SLO_OBJECTIVE, (slo,)).set_duration(objective);
        }
        registry.gauge(catalog::SERVED_MODEL_INFO, ()).set(1.0);
        let normal = Priority::Normal;
        let slo = |slo: Slo| {
            [SloResult::Good, SloResult::Bad]
                .map(|result| registry.counter(catalog::SLO_REQUESTS, (slo, result)))
        };
        Self {
            http: Arc::new(Http::new(registry, true)),
            objectives,
            admitted: registry.counter(catalog::REQUESTS_ADMITTED, (normal,)),
            rejected: all(|reason| registry.counter(catalog::REQUESTS_REJECTED, (reason, normal))),
            retry_after: registry.histogram(catalog::ADMISSION_RETRY_AFTER, ()),
            finished: all(|outcome| registry.counter(catalog::REQUESTS_FINISHED, (outcome,))),
            aborted: registry.counters(catalog::REQUESTS_ABORTED),
            slo: all(slo),
            ttft: all(|streaming| registry.histogram(catalog::TIME_TO_FIRST_TOKEN, (streaming,))),
            gap: registry.histogram(catalog::INTER_TOKEN_LATENCY, ()),
            per_token: registry.histogram(catalog::REQUEST_TIME_PER_OUTPUT_TOKEN, ()),
            duration: all(|outcome| registry.histogram(catalog::REQUEST_DURATION, (outcome,))),
            generated: registry.histogram(catalog::REQUEST_GENERATED_TOKENS, ()),
            policy: Arc::clone(policy),
            routed: registry.counters(ours::ROUTER_REQUESTS).into_iter().flatten().collect(),
            decisions: registry.counters(ours::ROUTER_DECISIONS),
            holds: all(|outcome| registry.counter(ours::ROUTER_HOLDS, (outcome,))),
            hold_time: registry.histogram(ours::ROUTER_HOLD_DURATION, ()),
            retries: all(|reason| registry.counter(ours::ROUTER_RETRIES, (reason,))),
            prefix_match: registry.histogram(ours::ROUTER_PREFIX_MATCH, ()),
            declared: all(|role| registry.gauge(ours::ROUTER_WORKERS_DECLARED, (role,))),
            state: all(|state| registry.gauge(catalog::ENGINE_STATE, (state,))),
        }
    }

    /// A worker was chosen.
    pub(crate) fn chosen(&self, by: PolicyKind, how: Branch, prefix_match: f64) {
        let place = policy(by).index() * RouterBranch::ALL.len() + branch(how).index();
        match self.decisions.get(place) {
            Some(Some(counter)) => counter.increment(),
            Some(None) | None => tracing::error!(
                policy = by.as_str(),
                branch = how.as_str(),
                "The catalog does not declare this decision."
            ),
        }
        self.prefix_match.record(prefix_match);
    }

    /// A request is sent again.
    pub fn again(&self, reason: crate::request::RetryReason) {
        self.retries[retry(reason).index()].increment();
    }

    /// What the router did with a request.
    pub fn routed(&self, outcome: RouterOutcome) {
        let policy = self.policy.load(Ordering::Relaxed);
        self.routed[policy * RouterOutcome::ALL.len() + outcome.index()].increment();
    }

    /// A request waited for a worker to come back, or there was no room to.
    pub(crate) fn held(&self, outcome: HoldOutcome, waited: Option<Duration>) {
        self.holds[outcome.index()].increment();
        if let Some(waited) = waited {
            self.hold_time.record_duration(waited);
        }
    }

    /// A request was refused before a head was sent. Its client's fault where it is invalid;
    /// otherwise no first token comes in time.
    pub fn rejected(&self, reason: RejectReason, retry_after: Option<Duration>) {
        self.rejected[reason.index()].increment();
        if reason != RejectReason::Invalid {
            self.judge(Slo::Ttft, false);
        }
        if let Some(told) = retry_after {
            self.retry_after.record_duration(told);
        }
    }

    /// A worker has taken a request.
    pub fn admitted(&self) {
        self.admitted.increment();
    }

    /// A part of a stream went out so long after the one before.
    pub fn gap(&self, time: Duration) {
        self.gap.record_duration(time);
    }

    /// The first part of an answer went out after `time`.
    pub fn first(&self, time: Duration, streaming: bool) {
        let streaming = if streaming { Streaming::True } else { Streaming::False };
        self.ttft[streaming.index()].record_duration(time);
    }

    /// A request ended.
    pub fn finished(&self, end: &Finished) {
        self.finished[end.outcome.index()].increment();
        self.duration[end.outcome.index()].record_duration(end.duration);
        self.generated.record_count(end.tokens);
        let limits = self.objectives;
        let within = |time: Duration, limit: Duration| limit.is_zero() || time <= limit;
        if let Some((stage, initiator, reason)) = end.abort {
            self.abort(stage, initiator, reason);
        }
        let complete = !matches!(end.outcome, Outcome::Aborted | Outcome::Error);
        let in_time = end.first.is_some_and(|first| within(first, limits.ttft));
        self.judge(Slo::Ttft, complete && in_time);
        if !complete {
            return;
        }
        if let Some(gap) = end.mean_gap {
            self.per_token.record_duration(gap);
            self.judge(Slo::Itl, within(gap, limits.itl));
        }
        self.judge(Slo::E2e, within(end.duration, limits.e2e));
    }

    fn abort(&self, stage: AbortStage, initiator: AbortInitiator, reason: AbortReason) {
        let place = (stage.index() * AbortInitiator::ALL.len() + initiator.index())
            * AbortReason::ALL.len()
            + reason.index();
        match self.aborted.get(place) {
            Some(Some(counter)) => counter.increment(),
            Some(None) | None => tracing::error!(
                stage = stage.as_str(),
                reason = reason.as_str(),
                "The catalog does not declare this kind of abort."
            ),
        }
    }

    fn judge(&self, slo: Slo, good: bool) {
        self.slo[slo.index()][usize::from(!good)].increment();
    }

    /// Workers that the configuration declares for it.
    pub fn declare(&self, role: labels::WorkerRole, workers: usize) {
        self.declared[role.index()].set_count(workers as u64);
    }

    /// Whether it can be answered, or is being drained.
    pub fn state(&self, now: EngineState) {
        for state in EngineState::ALL {
            self.state[state.index()].set(f64::from(u8::from(*state == now)));
        }
    }
}

/// How a request that was taken ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// How.
    pub outcome: Outcome,
    /// Who gave it up where and why, where somebody did.
    pub abort: Option<(AbortStage, AbortInitiator, AbortReason)>,
    /// From accept to the first part with something of the answer in it.
    pub first: Option<Duration>,
    /// From accept to the end.
    pub duration: Duration,
    /// Mean gap between tokens, where there were several.
    pub mean_gap: Option<Duration>,
    /// Tokens that the worker counted, or parts where it did not.
    pub tokens: u64,
}
