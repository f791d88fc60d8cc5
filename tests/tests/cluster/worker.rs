//! A worker process: an engine, its admission, and its end of the links.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{AdmissionController, Limits as Bounds};
use engine::{
    EngineConfig, Handle, Namespace, PrepareError, RequestEnd, Sink, Stepper, Submission,
    TokenEvent, Verdict, prepare,
};
use memory_pool::PageBytes;
use model::{FakeOptions, FakeRunner, SamplingParams};
use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use transfer::{
    Accepted, DecodeEnd, DecodePort, Limits, News, Offer, Offers, PeerName, PrefillEnd,
    PrefillPort, Random, Rejected, Sending, Surroundings, TransferEnd, TransferObserver,
};
use types::RequestId;

use super::event::Which;
use super::rig::{Dice, Nobody, Told, WorkerClock, lock};
use super::telemetry::{Both, Recorder};

/// Names of requests, unique over all workers.
pub(crate) type Ids = Arc<AtomicU64>;

/// A fault that a test plants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    /// No engine hears that a link has let go.
    LostSettled,
    /// No engine hears that everything has arrived.
    LostDelivered,
}

/// What both kinds of workers are made of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) engine: EngineConfig,
    pub(crate) model: FakeOptions,
    pub(crate) bounds: Bounds,
    /// Prompt tokens per second, as a warm-up would find.
    pub(crate) rate: f64,
    pub(crate) limits: Limits,
    pub(crate) plant: Plant,
}

/// The end of a worker's links.
#[derive(Debug, Clone)]
pub(crate) enum Port {
    Prefill(Arc<PrefillPort>),
    Decode(Arc<DecodePort>),
}

/// Ends of transfers on one side, by peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends(pub(crate) Arc<Mutex<Vec<TransferEnd>>>);

impl TransferObserver for Ends {
    fn on_bytes(&self, _: transfer::Side, _: &PeerName, _: &'static str, _: u64) {}

    fn on_end(&self, end: &TransferEnd) {
        lock(&self.0).push(end.clone());
    }

    fn on_busy(&self, _: transfer::Side, _: &PeerName, _: Duration) {}
}

/// One life of a worker.
pub(crate) struct Worker {
    pub(crate) which: Which,
    pub(crate) life: u64,
    pub(crate) clock: WorkerClock,
    pub(crate) admission: Arc<AdmissionController>,
    pub(crate) handle: Handle,
    pub(crate) stepper: Stepper,
    pub(crate) pages: Arc<dyn PageBytes>,
    page_tokens: u64,
    pub(crate) port: Port,
    pub(crate) told: Told,
    pub(crate) ends: Ends,
    /// Offers that this life accepted; prefill.
    pub(crate) accepted: Arc<AtomicU64>,
    /// Requests that have been submitted and whose ends nobody has seen.
    pub(crate) live: Arc<AtomicU64>,
    /// A turn is on the agenda.
    pub(crate) turns: bool,
    /// Something was woken since somebody last looked.
    pub(crate) woken: Arc<AtomicU64>,
    /// It finishes what it has.
    pub(crate) draining: bool,
    /// What it says about itself, where somebody looks.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// What a prefill worker does with an offer, as the server does.
struct Door {
    admission: Arc<AdmissionController>,
    handle: Handle,
    clock: WorkerClock,
    ids: Ids,
    accepted: Arc<AtomicU64>,
    live: Arc<AtomicU64>,
    recorder: Option<Arc<Recorder>>,
}

/// The sink of a request without a client.
struct NoClient(Arc<AtomicU64>);

impl Sink for NoClient {
    fn token(&mut self, _: &TokenEvent<'_>) -> Verdict {
        Verdict::Continue
    }

    fn finish(self: Box<Self>, _: &RequestEnd) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Offers for Door {
    fn offer(
        &self,
        _: &PeerName,
        offer: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected> {
        let (now, tokens) = (self.clock.read(), offer.tokens.len() as u64);
        let priority = offer.priority;
        let refused = |refusal: admission::Rejected| {
            if let Some(recorder) = &self.recorder {
                recorder.rejected(&refusal, priority);
            }
            let admission::Rejected { reason, retry_after, value, limit } = refusal;
            let reason = admission::RejectReason::ALL.iter().position(|known| *known == reason);
            let reason = reason.and_then(|at| u8::try_from(at).ok()).expect("a listed reason");
            Rejected { reason, retry_after, value, limit }
        };
        let cached = self.handle.cached_prefix(&Namespace::SHARED, &offer.tokens) as u64;
        let permit = self.admission.try_admit(offer.priority, now).map_err(refused)?;
        let permit = permit.charge_cached(tokens, cached, now).map_err(refused)?;
        let request = RequestId(self.ids.fetch_add(1, Ordering::Relaxed));
        let submission = Submission {
            id: request,
            permit,
            prompt: offer.tokens,
            tenant: None,
            namespace: Namespace::SHARED,
            prompt_logprobs: false,
            sampling: SamplingParams::default(),
            constraint: None,
            max_tokens: 0,
            stop_tokens: Vec::new(),
            follower: None,
            remote: None,
            send: Some(sending),
            sink: Box::new(NoClient(Arc::clone(&self.live))),
            streaming: false,
            arrived: now,
            tokenized: now,
        };
        let drain = self.admission.snapshot(now).drain;
        self.live.fetch_add(1, Ordering::Relaxed);
        if self.handle.submit(submission).is_err() {
            self.live.fetch_sub(1, Ordering::Relaxed);
            let retry_after = Duration::from_secs(1);
            return Err(Rejected { reason: Rejected::ROOMS_FULL, retry_after, value: 0, limit: 0 });
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.admitted(usize::try_from(tokens).unwrap_or(usize::MAX), priority);
        }
        Ok(Accepted { request, drain })
    }
}

struct Draws(Dice);

impl Random for Draws {
    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.0.next().to_le_bytes()[..part.len()]);
        }
    }
}

impl Worker {
    /// Starts a life. `peers` are the names of those on the other side.
    #[expect(clippy::too_many_arguments, reason = "what a process is given by its surroundings")]
    pub(crate) fn start(
        which: Which,
        life: u64,
        plan: &Plan,
        peers: &[PeerName],
        ids: &Ids,
        clock: WorkerClock,
        seed: u64,
        recorder: Option<Arc<Recorder>>,
    ) -> Result<Self, PrepareError> {
        let runner = FakeRunner::new(plan.model.clone());
        let prepared = prepare(plan.engine.clone(), Box::new(runner), None)?;
        let pages = prepared.page_bytes().expect("fakes have bytes");
        let admission = AdmissionController::new(plan.bounds, plan.rate);
        admission.set_step_tokens(plan.engine.max_batch_tokens as u64);
        let (stepper, handle) = prepared.into_stepper(
            Arc::clone(&admission),
            recorder.as_ref().map_or_else(|| Box::new(Nobody) as _, |one| one.observer()),
            Box::new(clock.clone()),
        );
        let (woken, accepted, live) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let ends = Ends::default();
        let observer: Arc<dyn TransferObserver> = match &recorder {
            Some(recorder) => Arc::new(Both::new(ends.clone(), recorder)),
            None => Arc::new(ends.clone()),
        };
        let around = surroundings(&clock, &woken, &handle, observer, plan.plant);
        let page_tokens = u32::try_from(plan.model.page_tokens).expect("small pages");
        let port = match which {
            Which::Prefill(_) => {
                let end = PrefillEnd::new(plan.limits, &*pages, page_tokens, peers);
                let door = Door {
                    admission: Arc::clone(&admission),
                    handle: handle.clone(),
                    clock: clock.clone(),
                    ids: Arc::clone(ids),
                    accepted: Arc::clone(&accepted),
                    live: Arc::clone(&live),
                    recorder: recorder.clone(),
                };
                Port::Prefill(PrefillPort::new(end, around, Arc::new(door)))
            }
            Which::Decode(_) => {
                let random = Box::new(Draws(Dice::new(seed)));
                let end = DecodeEnd::new(plan.limits, &*pages, peers, random);
                Port::Decode(DecodePort::new("simulated", end, around))
            }
        };
        Ok(Self {
            which,
            life,
            clock,
            admission,
            handle,
            stepper,
            pages,
            page_tokens: page_tokens.into(),
            port,
            told: Told::default(),
            ends,
            accepted,
            live,
            turns: false,
            woken,
            draining: false,
            recorder,
        })
    }

    /// Whether something happened since this was last asked that its thread would wake up for.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(0, Ordering::Relaxed) > 0
    }

    /// Nothing is left that a stop would wait for.
    pub(crate) fn is_at_rest(&self) -> bool {
        let links = match &self.port {
            Port::Prefill(port) => port.snapshot(),
            Port::Decode(port) => transfer::Backend::snapshot(&**port),
        };
        let open = links.peers.iter().any(|peer| peer.waiting + peer.wire > 0);
        let queued = self.admission.snapshot(self.clock.read()).requests;
        self.live() == 0 && queued == 0 && !open
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The answer to `GET /internal/load`.
    pub(crate) fn load(&self, names: &HashMap<Which, PeerName>) -> LoadReport {
        let now = self.clock.read();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (queue, engine) = (self.admission.snapshot(now), self.handle.snapshot());
        let free = engine.pools.first().map_or(0, |pool| {
            let pages = pool.device.capacity.0 - pool.device.used_active.0;
            pages * self.page_tokens
        });
        let (role, peers_up) = match &self.port {
            Port::Prefill(_) => (LoadRole::Prefill, None),
            Port::Decode(port) => {
                let links = transfer::Backend::snapshot(&**port);
                let up = links.peers.iter().filter(|peer| peer.up);
                (LoadRole::Decode, Some(up.map(|peer| peer.peer.to_string()).collect()))
            }
        };
        LoadReport {
            instance_id: format!("{}#{}", names[&self.which], self.life),
            role,
            model: "fake".to_owned(),
            fingerprint: "the same".to_owned(),
            state: if self.draining { LoadState::Draining } else { LoadState::Ready },
            queued: LoadQueued {
                requests: queue.requests as u64,
                tokens: queue.pending_tokens,
                uncached_tokens: queue.pending_uncached_tokens,
            },
            limits: LoadLimits {
                requests: queue.limit_requests as u64,
                tokens: queue.limit_tokens,
                drain_ms: 0,
            },
            drain_ms: millis(queue.drain),
            prefill_rate: queue.prefill_rate,
            running: engine.running as u64,
            running_limit: engine.running_limit as u64,
            free_tokens: free,
            place_ms: (!queue.next_place.is_zero()).then(|| millis(queue.next_place)),
            peers_up,
        }
    }
}

fn surroundings(
    clock: &WorkerClock,
    woken: &Arc<AtomicU64>,
    handle: &Handle,
    observer: Arc<dyn TransferObserver>,
    plant: Plant,
) -> Surroundings {
    let (clock, wake) = (clock.clone(), Arc::clone(woken));
    let (heard, told) = (handle.clone(), Arc::clone(woken));
    Surroundings {
        now: Box::new(move || clock.read()),
        wake: Arc::new(move || {
            wake.fetch_add(1, Ordering::Relaxed);
        }),
        news: Arc::new(move |request, news| {
            told.fetch_add(1, Ordering::Relaxed);
            let lost = match plant {
                Plant::Nothing => false,
                Plant::LostSettled => news == News::Settled,
                Plant::LostDelivered => news == News::Delivered,
            };
            if !lost {
                heard.news(request, news);
            }
        }),
        observer,
    }
}
