//! What the tests of this crate share: a core with workers that answer their polls.

use std::sync::Arc;
use std::time::Duration;

use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use types::Time;

use crate::worker::{Event, Source, WorkerName, WorkerRole, WorkerSpec, WorkerState};
use crate::{
    Answer, Attempt, CircuitState, Config, Core, Failure, FailureKind, Refusal, Request, Route,
    Verdict, WorkerView,
};

pub(crate) fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

pub(crate) fn name(text: &str) -> WorkerName {
    WorkerName::new(text)
}

pub(crate) fn spec(text: &str, role: WorkerRole) -> WorkerSpec {
    WorkerSpec { name: name(text), base: format!("http://{text}").into(), role, model: None }
}

pub(crate) fn report(role: LoadRole) -> LoadReport {
    LoadReport {
        instance_id: "first".into(),
        role,
        model: "m".into(),
        fingerprint: "f".into(),
        state: LoadState::Ready,
        queued: LoadQueued::default(),
        limits: LoadLimits { requests: 32, tokens: 100_000, drain_ms: 30_000 },
        drain_ms: 0,
        prefill_rate: 3300.0,
        running: 0,
        running_limit: 16,
        free_tokens: 1_000_000,
        place_ms: None,
        peers_up: None,
    }
}

/// A report with so many uncached tokens in the queue.
pub(crate) fn busy(role: LoadRole, requests: u64, tokens: u64) -> LoadReport {
    let queued = LoadQueued { requests, tokens, uncached_tokens: tokens };
    let drain_ms = tokens * 1000 / 3300;
    LoadReport { queued, drain_ms, running: 16, ..report(role) }
}

/// A request for the model `m`.
pub(crate) fn request(prompt: &[u8]) -> Request<'_> {
    Request { model: "m", prompt, namespace: "", repeatable: true }
}

pub(crate) fn failure(kind: FailureKind) -> Failure {
    Failure { kind, by_prefill: false, answer_begun: false }
}

/// A refusal with 429 and `Retry-After`.
pub(crate) fn refusal(seconds: u64) -> Failure {
    let retry_after = Some(Duration::from_secs(seconds));
    failure(FailureKind::Rejected { status: 429, retry_after })
}

/// A core and its clock.
pub(crate) struct Bed {
    pub(crate) core: Core,
    pub(crate) now: Time,
}

impl Bed {
    /// Workers that are listed by flags and have not answered yet.
    pub(crate) fn listed(config: Config, workers: &[(&str, WorkerRole)]) -> Self {
        let mut core = Core::new(config, 1);
        let specs: Vec<WorkerSpec> = workers.iter().map(|(name, role)| spec(name, *role)).collect();
        core.relist(Source::Flags, &specs).expect("they are few");
        Self { core, now: at(1.0) }
    }

    /// Workers that have said that they are ready.
    pub(crate) fn ready(config: Config, workers: &[(&str, WorkerRole)]) -> Self {
        let mut bed = Self::listed(config, workers);
        for (worker, role) in workers {
            bed.tell(worker, report(load_role(*role)));
        }
        bed
    }

    /// Unified workers that are ready.
    pub(crate) fn unified(names: &[&str]) -> Self {
        let workers: Vec<_> = names.iter().map(|name| (*name, WorkerRole::Unified)).collect();
        Self::ready(Config::default(), &workers)
    }

    /// Prefill and decode workers that are ready; names tell the role.
    pub(crate) fn pairs(names: &[&str]) -> Self {
        let role = |name: &str| match name.starts_with('p') {
            true => WorkerRole::Prefill,
            false => WorkerRole::Decode,
        };
        let workers: Vec<_> = names.iter().map(|name| (*name, role(name))).collect();
        Self::ready(Config::default(), &workers)
    }

    pub(crate) fn pass(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
    }

    /// A worker answers a poll.
    pub(crate) fn tell(&mut self, worker: &str, load: LoadReport) -> Vec<Event> {
        let poll = self.core.poll_began(&name(worker), self.now).expect("it is known");
        self.core.poll_ended(&poll, Ok(Answer::Load(Box::new(load))), self.now)
    }

    /// A worker does not answer a poll.
    pub(crate) fn silent(&mut self, worker: &str) -> Vec<Event> {
        let poll = self.core.poll_began(&name(worker), self.now).expect("it is known");
        self.core.poll_ended(&poll, Err("connection refused".into()), self.now)
    }

    pub(crate) fn route(&mut self, prompt: &[u8]) -> Result<Route, Refusal> {
        self.core.route(&request(prompt), &mut Attempt::new(), self.now)
    }

    /// A request that fails at the first worker: what is done then.
    pub(crate) fn fails(&mut self, prompt: &[u8], failure: Failure) -> (String, Verdict) {
        let mut attempt = Attempt::new();
        let request = request(prompt);
        let route = self.core.route(&request, &mut attempt, self.now).expect("a worker is ready");
        let worker = route.serve.name.to_string();
        (worker, self.core.failed(route, failure, &request, &mut attempt, self.now).0)
    }

    pub(crate) fn view(&self, worker: &str) -> WorkerView {
        let mut views = self.core.workers(self.now).into_iter();
        views.find(|view| view.name.as_str() == worker).expect("it is known")
    }

    pub(crate) fn state(&self, worker: &str) -> WorkerState {
        self.view(worker).state
    }

    pub(crate) fn circuit(&self, worker: &str) -> CircuitState {
        self.view(worker).circuit
    }
}

pub(crate) fn load_role(role: WorkerRole) -> LoadRole {
    match role {
        WorkerRole::Unified | WorkerRole::Plain => LoadRole::Unified,
        WorkerRole::Prefill => LoadRole::Prefill,
        WorkerRole::Decode => LoadRole::Decode,
    }
}

/// Where a verdict sends the request.
pub(crate) fn next(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Again(route, _) => Some(route.serve.name.as_str()),
        Verdict::Pass { .. } => None,
    }
}

/// Where a route goes: the serving worker and the prefill worker.
pub(crate) fn names(route: &Route) -> (String, Option<String>) {
    (route.serve.name.to_string(), route.prefill.as_ref().map(|leg| leg.name.to_string()))
}

pub(crate) fn models(core: &Core) -> Vec<Arc<str>> {
    core.models()
}
