//! An engine on a fake model and virtual time, and what it told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::{AdmissionController, Limits, Rejected};
use kv_cache::Namespace;
use model::{FakeOptions, FakeRunner, SamplingParams};
use transfer::{Landing, Sending};
use types::{Priority, RequestId, Time, TokenId};

use crate::step::{Core, Turn};
use crate::{
    EngineConfig, Handle, Observer, PreemptReason, QueueExitCause, RequestEnd, Scheduling, Sink,
    StepStats, Submission, TimeSource, TokenEvent, Verdict, prepare,
};

/// Time that only the model and the test move.
#[derive(Debug, Clone, Default)]
pub(super) struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    pub(super) fn read(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a short time");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl TimeSource for VirtualTime {
    fn now(&mut self) -> Time {
        self.read()
    }

    fn modelled(&mut self, busy: Duration) {
        self.pass(busy);
    }
}

/// What the engine told.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Requests in the order in which they started or resumed, with how long they had waited.
    pub(super) starts: Vec<(RequestId, Duration)>,
    /// When each first token came, in order.
    pub(super) firsts: Vec<(RequestId, Time)>,
    pub(super) gaps: Vec<Duration>,
    /// Prompt tokens computed.
    pub(super) computed: u64,
    pub(super) ends: HashMap<RequestId, RequestEnd>,
    /// Retractions by reason.
    pub(super) preempted: [u64; 2],
}

#[derive(Debug, Clone, Default)]
struct Watcher(Arc<Mutex<Log>>);

impl Observer for Watcher {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let mut log = self.0.lock().expect("one thread");
        let started = stats.queue_exits.iter().filter(|e| e.cause == QueueExitCause::Scheduled);
        log.starts.extend(started.map(|exit| (exit.id, exit.waited)));
        log.firsts.extend(stats.first_tokens.iter().map(|first| (first.id, stats.now)));
        log.gaps.extend(stats.inter_token);
        log.computed += stats.prompt_tokens;
        for reason in PreemptReason::ALL {
            log.preempted[reason as usize] += stats.preemptions.of(reason);
        }
    }

    fn on_request_end(&mut self, end: &RequestEnd) {
        let before = self.0.lock().expect("one thread").ends.insert(end.id, end.clone());
        assert!(before.is_none(), "request {} ended twice", end.id);
    }
}

struct Silent;

impl Sink for Silent {
    fn token(&mut self, _: &TokenEvent<'_>) -> Verdict {
        Verdict::Continue
    }

    fn finish(self: Box<Self>, _: &RequestEnd) {}
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) level: i64,
    pub(super) tenant: Option<&'static str>,
    pub(super) prompt: usize,
    pub(super) answer: usize,
}

impl Job {
    /// Of nobody, without priority.
    pub(super) const fn plain(prompt: usize, answer: usize) -> Self {
        Self { level: 0, tenant: None, prompt, answer }
    }

    pub(super) const fn at(level: i64, prompt: usize, answer: usize) -> Self {
        Self { level, ..Self::plain(prompt, answer) }
    }
}

pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) time: VirtualTime,
    pub(super) admission: Arc<AdmissionController>,
    pub(super) handle: Handle,
    watcher: Watcher,
    next_id: u64,
}

/// Tokens that the second pool of a model with two looks back.
pub(super) const WINDOW: usize = 40;

/// Bounds with `running` slots, steps of 64 tokens, and pages for all.
pub(super) fn bounds(running: usize, scheduling: Scheduling) -> EngineConfig {
    EngineConfig {
        max_running: running,
        max_batch_tokens: 64,
        prefill_chunk: 64,
        pool_pages: vec![4000],
        max_submissions: 100_000,
        prefix_cache: false,
        host: None,
        retention: kv_cache::Retention::default(),
        hit_curve: None,
        scheduling,
        seed: 0,
    }
}

impl Rig {
    pub(super) fn new(config: EngineConfig) -> Self {
        Self::with_queue(config, 0)
    }

    /// An engine in front of which `places` requests may wait.
    pub(super) fn with_queue(config: EngineConfig, places: usize) -> Self {
        let limits = Limits {
            max_queued_requests: places,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let admission = AdmissionController::new(limits, 1000.0);
        let (time, watcher) = (VirtualTime::default(), Watcher::default());
        // Pages for a second pool ask for a model that has one.
        let window = (config.pool_pages.len() > 1).then_some(WINDOW);
        let options = FakeOptions { window, ..FakeOptions::default() };
        let runner = Box::new(FakeRunner::new(options));
        let prepared = prepare(config, runner, None).expect("good bounds");
        let (core, handle) = prepared.into_core(
            Arc::clone(&admission),
            Box::new(watcher.clone()),
            Box::new(time.clone()),
        );
        Self { core, time, admission, handle, watcher, next_id: 0 }
    }

    pub(super) fn try_submit(&mut self, job: &Job) -> Result<RequestId, Rejected> {
        self.try_submit_linked(job, None, None)
    }

    /// A request whose prompt is computed elsewhere, or for somebody else.
    pub(super) fn try_submit_linked(
        &mut self,
        job: &Job,
        remote: Option<Box<dyn Landing>>,
        send: Option<Box<dyn Sending>>,
    ) -> Result<RequestId, Rejected> {
        let now = self.time.read();
        let priority = Priority::new(job.level).expect("a level of a test");
        let permit = self.admission.try_admit(priority, now)?;
        let permit = permit.charge(job.prompt as u64, now)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let submission = Submission {
            id,
            permit,
            prompt: vec![TokenId(1); job.prompt],
            tenant: job.tenant.map(Arc::from),
            namespace: Namespace::default(),
            prompt_logprobs: false,
            sampling: SamplingParams::default(),
            constraint: None,
            follower: None,
            max_tokens: job.answer,
            stop_tokens: Vec::new(),
            remote,
            send,
            sink: Box::new(Silent),
            streaming: true,
            arrived: now,
            tokenized: now,
        };
        self.handle.submit(submission).expect("accepted");
        Ok(id)
    }

    pub(super) fn submit(&mut self, job: &Job) -> RequestId {
        self.try_submit(job).expect("there is room")
    }

    pub(super) fn turn(&mut self) -> Turn {
        let turn = self.core.turn();
        let queue = self.admission.snapshot(self.time.read());
        let waiting = &self.core.scheduler.waiting;
        let depth = waiting.len() + waiting.bootstrap().len() + waiting.prealloc().len();
        assert_eq!(queue.requests, depth, "permits are the depth");
        turn
    }

    /// Turns until nothing is left.
    pub(super) fn finish(&mut self) {
        for _ in 0..1_000_000 {
            if self.turn() == Turn::Idle {
                return;
            }
        }
        panic!("requests do not end");
    }

    /// Turns until `time` from the start.
    pub(super) fn run_until(&mut self, time: Duration) {
        while self.time.read() < Time::ZERO + time {
            if self.turn() == Turn::Idle {
                let rest = (Time::ZERO + time).since(self.time.read());
                self.time.pass(rest);
            }
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.watcher.0.lock().expect("one thread")
    }

    pub(super) fn end_of(&self, id: RequestId) -> RequestEnd {
        self.log().ends.get(&id).cloned().unwrap_or_else(|| panic!("request {id} has not ended"))
    }

    pub(super) fn runs(&self, id: RequestId) -> bool {
        self.core.scheduler.running.iter().any(|request| request.id == id)
    }

    pub(super) fn is_retracted(&self, id: RequestId) -> bool {
        self.core.scheduler.retracted.iter().any(|request| request.id == id)
    }
}
