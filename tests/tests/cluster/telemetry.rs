//! What the processes of a cluster say about themselves: recorded by the server's own code and the
//! router's, from the values that engines, links, admission and the router's core tell, and scraped
//! in virtual time.
//!
//! Left out is what rules do not read and only a real process has: HTTP of workers, memory, the
//! runtime.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::Rejected;
use engine::Observer;
use metric_catalog::install::{CounterHandle, Registry};
use metric_catalog::labels::{
    AbortInitiator, AbortReason, AbortStage, EngineState, Method, Outcome, RejectReason,
    Role as RoleLabel, Route, RouterOutcome, StatusCode, WorkerRole as WorkerLabel,
};
use metric_catalog::server as catalog;
use router::serve::Objectives;
use router::serve::telemetry::{Finished, Model, Models};
use router::{Core, PolicyKind};
use server::cli::{Cli, Command};
use server::config::{Host, Resolved, resolve};
use server::lifecycle::Phase;
use server::source::Source;
use server::telemetry::gauges::{Gauges, Snapshot};
use server::telemetry::observe::{EngineObserver, Objectives as EngineObjectives};
use server::telemetry::requests::RequestMetrics;
use server::telemetry::{record_build, role};
use tests::replay::{Recording, Target};
use transfer::{PeerName, TransferObserver};
use types::{Bytes, Clock, Priority, Time};

use super::event::{Event, Which};
use super::rig::lock;
use super::worker::{Plan, Port, Worker};
use super::world::World;

/// The name of the model that is served.
pub(crate) const MODEL: &str = "fake";

/// What one life of a worker says about itself.
pub(crate) struct Recorder {
    registry: Registry,
    gauges: Gauges,
    requests: RequestMetrics,
    resolved: Resolved,
    objective: Duration,
    /// What was told of links and of the front door so far.
    told: AtomicU64,
    /// What the last page showed.
    shown: Mutex<Option<Shown>>,
}

/// What an idle process shows: while it is the same, its page is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    phase: Phase,
    told: u64,
    iterations: u64,
    /// Links that are up.
    up: Vec<bool>,
}

impl Recorder {
    /// A process that has just started.
    pub(crate) fn new(
        which: Which,
        plan: &Plan,
        peers: &[PeerName],
        watch: &Watch,
    ) -> Result<Arc<Self>, String> {
        let resolved = resolved(which, plan, peers)?;
        let registry = Registry::new(role(resolved.roles.role), MODEL);
        let registry = registry.map_err(|error| error.to_string())?;
        record_build(&registry);
        let gauges = Gauges::new(&registry, watch.clock, &resolved);
        let requests = RequestMetrics::new(&registry);
        let objective = watch.objective;
        // All series are there from the first scrape on, as those of a process that loads.
        drop(Self::observer_of(&registry, objective, &resolved));
        let (told, shown) = (AtomicU64::new(0), Mutex::new(None));
        Ok(Arc::new(Self { registry, gauges, requests, resolved, objective, told, shown }))
    }

    fn observer_of(
        registry: &Registry,
        objective: Duration,
        resolved: &Resolved,
    ) -> Box<dyn Observer> {
        let objectives =
            EngineObjectives { ttft: objective, itl: Duration::ZERO, e2e: Duration::ZERO };
        Box::new(EngineObserver::new(registry, objectives, resolved))
    }

    /// Who records what the engine tells.
    pub(crate) fn observer(&self) -> Box<dyn Observer> {
        Self::observer_of(&self.registry, self.objective, &self.resolved)
    }

    pub(crate) fn admitted(&self, tokens: usize, priority: Priority) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.requests.admitted(tokens, priority.class());
    }

    pub(crate) fn rejected(&self, refusal: &Rejected, priority: Priority) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.requests.rejected(refusal, 1, priority.class());
    }

    /// The page of a process; of one that loads where there is no `worker` yet. `None` where it is
    /// that of the last time: nothing ages in a process that has nothing to do.
    fn page(&self, worker: Option<&Worker>, now: Time) -> Option<String> {
        let phase = match worker {
            Some(worker) if worker.draining => Phase::Draining,
            Some(_) => Phase::Ready,
            None => Phase::Loading,
        };
        let link = worker.map(|worker| match &worker.port {
            Port::Prefill(port) => port.snapshot(),
            Port::Decode(port) => transfer::Backend::snapshot(&**port),
        });
        let engine = worker.map(|worker| worker.handle.snapshot());
        let up = link.iter().flat_map(|link| &link.peers).map(|peer| peer.up).collect();
        let (told, iterations) =
            (self.told.load(Ordering::Relaxed), engine.as_ref().map_or(0, |one| one.iterations));
        let shows = Shown { phase, told, iterations, up };
        let idle = worker.is_none_or(Worker::is_at_rest);
        if lock(&self.shown).replace(shows.clone()) == Some(shows) && idle {
            return None;
        }
        self.gauges.set(&Snapshot {
            now,
            phase,
            queue: worker.map(|worker| worker.admission.snapshot(now)),
            engine,
            curve: None,
            tier: None,
            store: None,
            link,
        });
        Some(self.registry.render())
    }
}

/// The flags of a worker, settled as the server does.
fn resolved(which: Which, plan: &Plan, peers: &[PeerName]) -> Result<Resolved, String> {
    let own = match which {
        Which::Prefill(_) => {
            let peers = peers.iter().map(|peer| format!("--decode-peer {peer}"));
            format!("--role prefill --transfer-port 9000 {}", peers.collect::<Vec<_>>().join(" "))
        }
        Which::Decode(_) => {
            let peers = peers.iter().map(|peer| format!("--prefill-peer {peer}@9000"));
            format!("--role decode {}", peers.collect::<Vec<_>>().join(" "))
        }
    };
    let (context, pages) = (plan.model.max_context, plan.model.page_tokens);
    let flags = format!(
        "sightline-server serve --model fake:context={context} --page-tokens {pages} \
         --kv-pool-bytes 1GiB {own}"
    );
    let parsed = Cli::parse_args(flags.split_whitespace()).map_err(|error| error.to_string())?;
    let Command::Serve(settings) = parsed.command else { unreachable!("serve was asked for") };
    let host = Host {
        cores: 1,
        usable: Some(Bytes(64 << 30)),
        available: Some(Bytes(64 << 30)),
        group: None,
        files: 4096,
        numa_nodes: 1,
        nodes: Vec::new(),
        lockable: None,
        assumed: None,
    };
    let facts = Source::parse(&settings).and_then(|source| source.inspect(&settings));
    let facts = facts.map_err(|finding| finding.to_string())?;
    resolve(&settings, &facts, &host).map_err(|findings| findings.to_string())
}

/// What the router says about itself.
pub(crate) struct RouterRecorder {
    registry: Registry,
    models: Models,
    /// Answers by status, as far as a status occurs here.
    answers: BTreeMap<u16, CounterHandle>,
    /// What was recorded so far, and what the last page showed of it.
    told: AtomicU64,
    shown: Mutex<Option<(u64, bool)>>,
}

impl RouterRecorder {
    fn new(objective: Duration) -> Result<Self, String> {
        let registry = Registry::router().map_err(|error| error.to_string())?;
        let objectives = Objectives { ttft: objective, itl: Duration::ZERO, e2e: Duration::ZERO };
        let models = Models::new(&registry, PolicyKind::CacheAware, objectives);
        models.serve(&[MODEL.into()]);
        let of_model = registry.model(MODEL);
        let answer = |status: u16| {
            let labels = (Route::Completions, Method::Post, StatusCode::from_code(status));
            (status, of_model.counter(catalog::HTTP_REQUESTS, labels))
        };
        let answers = [200, 429, 499, 500, 502, 503].map(answer).into();
        let (told, shown) = (AtomicU64::new(0), Mutex::new(None));
        Ok(Self { registry, models, answers, told, shown })
    }

    fn model(&self) -> Arc<Model> {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.models.of(MODEL)
    }

    fn status(&self, status: u16) {
        self.answers[&status].increment();
    }

    /// As the router sets its gauges before a page is rendered; `None` where it is that of the last
    /// time.
    fn page(&self, core: &Core, now: Time) -> Option<String> {
        let ready = core.readiness(now).is_ok();
        let shows = (self.told.load(Ordering::Relaxed), ready);
        if lock(&self.shown).replace(shows) == Some(shows) {
            return None;
        }
        let (state, declared) =
            (if ready { EngineState::Ready } else { EngineState::Loading }, core.declared());
        let model = self.models.of(MODEL);
        model.state(state);
        for (role, label) in [
            (router::WorkerRole::Prefill, WorkerLabel::Prefill),
            (router::WorkerRole::Decode, WorkerLabel::Decode),
        ] {
            let of = declared.iter().filter(|one| one.role == role);
            model.declare(label, of.map(|one| one.workers).sum());
        }
        Some(self.registry.render())
    }

    /// A request was refused, with the time after which it may come again.
    pub(crate) fn refused(&self, reason: RejectReason, retry_after: Duration) {
        self.status(429);
        let model = self.model();
        model.routed(RouterOutcome::UpstreamRejected);
        model.rejected(reason, Some(retry_after));
    }

    /// A worker has begun to answer.
    pub(crate) fn first(&self, time: Duration) {
        let model = self.model();
        model.admitted();
        model.first(time, true);
    }

    /// A part more of an answer.
    pub(crate) fn gap(&self, time: Duration) {
        self.model().gap(time);
    }

    /// A request ended, which was not refused.
    pub(crate) fn ended(&self, end: &super::client::End, trip: &Trip) {
        use super::client::End;
        let model = self.model();
        let client = |stage| Some((stage, AbortInitiator::Client, AbortReason::ClientGone));
        let stage = if trip.first.is_some() { AbortStage::Decode } else { AbortStage::Queued };
        let (status, routed, outcome, abort) = match end {
            End::Answered => (200, RouterOutcome::Ok, Outcome::Length, None),
            End::Left => (499, RouterOutcome::ClientGone, Outcome::Aborted, client(stage)),
            End::NoWorker => {
                self.status(503);
                model.routed(RouterOutcome::NoWorker);
                model.rejected(RejectReason::Unhealthy, Some(Duration::from_secs(1)));
                return;
            }
            End::Failed => (502, RouterOutcome::UpstreamError, Outcome::Error, None),
            End::Cut => (500, RouterOutcome::UpstreamError, Outcome::Error, None),
            End::Refused => return,
        };
        self.status(status);
        model.routed(routed);
        if trip.first.is_none() {
            model.admitted();
        }
        let between = u32::try_from(trip.tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        let mean_gap =
            trip.first.and_then(|first| trip.duration.saturating_sub(first).checked_div(between));
        let (first, duration, tokens) = (trip.first, trip.duration, trip.tokens);
        model.finished(&Finished { outcome, abort, first, duration, mean_gap, tokens });
    }
}

/// A request as it was when it ended.
#[derive(Debug)]
pub(crate) struct Trip {
    pub(crate) first: Option<Duration>,
    pub(crate) duration: Duration,
    pub(crate) tokens: u64,
}

/// Watches a cluster: scrapes all its processes.
pub(crate) struct Watch {
    clock: Clock,
    objective: Duration,
    pub(crate) every: Duration,
    recording: Recording,
    pub(crate) router: RouterRecorder,
    /// The router does not answer the next scrape.
    router_away: bool,
    /// Processes that read their weights.
    pub(crate) loading: BTreeMap<Which, Arc<Recorder>>,
}

impl Watch {
    /// Scrapes every `every`, whole seconds, for rules that are evaluated every `evaluation`;
    /// requests are judged against `objective`.
    pub(crate) fn new(
        every: Duration,
        evaluation: Duration,
        objective: Duration,
    ) -> Result<Self, String> {
        let clock = Clock::start();
        let zero = clock.unix_seconds(Time::ZERO);
        Ok(Self {
            clock,
            objective,
            every,
            recording: Recording::new(every.as_secs())
                .counted_from(zero)
                .evaluated_every(evaluation.as_secs()),
            router: RouterRecorder::new(objective)?,
            router_away: false,
            loading: BTreeMap::new(),
        })
    }

    /// Another router, which has counted nothing; the old one was gone at the next scrape.
    pub(crate) fn renew_router(&mut self) -> Result<(), String> {
        self.router = RouterRecorder::new(self.objective)?;
        self.router_away = true;
        Ok(())
    }

    /// A scrape of a process: no answer, what it showed before, or a page.
    fn record(&mut self, target: &Target, page: Option<Option<String>>) -> Result<(), String> {
        let scraped = match page {
            None => self.recording.scrape(target, None),
            Some(None) => {
                self.recording.again(target);
                Ok(())
            }
            Some(Some(page)) => self.recording.scrape(target, Some(&page)),
        };
        scraped.map_err(|error| error.to_string())
    }

    /// What was scraped.
    pub(crate) fn into_recording(self) -> Recording {
        self.recording
    }
}

fn target(which: Which) -> Target {
    let name = World::peer_name(which);
    match which {
        Which::Prefill(index) => {
            Target::new(RoleLabel::Prefill.as_str(), &format!("p{index}"), name.as_str())
        }
        Which::Decode(index) => {
            Target::new(RoleLabel::Decode.as_str(), &format!("d{index}"), name.as_str())
        }
    }
}

impl World {
    /// All processes are scraped.
    pub(crate) fn scrape(&mut self) -> Result<(), String> {
        let Some(mut watch) = self.watch.take() else { return Ok(()) };
        let now = self.now;
        for which in self.all() {
            let page = match self.worker(which) {
                Some(worker) => worker.recorder.as_ref().map(|one| one.page(Some(worker), now)),
                None => watch.loading.get(&which).map(|one| one.page(None, now)),
            };
            watch.record(&target(which), page)?;
        }
        let away = std::mem::take(&mut watch.router_away);
        let page = (!away).then(|| watch.router.page(&self.router, now));
        watch.record(&Target::new(RoleLabel::Router.as_str(), "r0", "router:8000"), page)?;
        if self.goes_on() {
            self.agenda.plan(now + watch.every, Event::Scrape);
        }
        self.watch = Some(watch);
        Ok(())
    }
}

/// Sees to it that what happens on a link is recorded and counted.
pub(crate) struct Both {
    ends: super::worker::Ends,
    links: Arc<dyn TransferObserver>,
    recorder: Arc<Recorder>,
}

impl Both {
    pub(crate) fn new(ends: super::worker::Ends, recorder: &Arc<Recorder>) -> Self {
        let links = recorder.gauges.transfer_observer();
        Self { ends, links, recorder: Arc::clone(recorder) }
    }

    fn tell(&self) {
        self.recorder.told.fetch_add(1, Ordering::Relaxed);
    }
}

impl TransferObserver for Both {
    fn on_bytes(&self, side: transfer::Side, peer: &PeerName, part: &'static str, bytes: u64) {
        self.tell();
        self.links.on_bytes(side, peer, part, bytes);
    }

    fn on_end(&self, end: &transfer::TransferEnd) {
        self.tell();
        lock(&self.ends.0).push(end.clone());
        self.links.on_end(end);
    }

    fn on_busy(&self, side: transfer::Side, peer: &PeerName, busy: Duration) {
        self.tell();
        self.links.on_busy(side, peer, busy);
    }
}
