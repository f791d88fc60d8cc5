//! The loop body: drain events, schedule, execute, sample, commit, observe.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use admission::{AdmissionController, Rank};
use kv_cache::PoolSet;
use memory_pool::LoadGate;
use model::{Logits, ModelRunner, RunError, Sampled, Scorer};
use types::{RequestId, Time};

use crate::commit::Report;
use crate::config::EngineConfig;
use crate::event::{AbortReason, Event};
use crate::handle::{Handle, Shared, SubmitError};
use crate::host::Host;
use crate::mailbox::Mailbox;
use crate::output::{Abort, Outcome, RequestError};
use crate::plan::StepPlan;
use crate::prepare::Prepared;
use crate::request::Request;
use crate::scheduler::{Limits, Scheduler};
use crate::scores::rows_per_step;
use crate::stats::{
    EngineSnapshot, EngineState, HeldSnapshot, LoopStage, Observer, PoolSnapshot, QueueExitCause,
    QueueSnapshot,
};
use crate::storage::StorageTier;
use crate::submission::Submission;
use crate::time::{StageClock, TimeSource};

/// What a turn of the loop did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Ran a batch.
    Worked,
    /// Had nothing to run.
    Idle,
    /// Was the last one.
    Ended,
}

/// Where the engine is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Life {
    Ready,
    Draining(Time),
    Stopped,
    Failed(String),
}

/// The engine without its thread: everything that happens in a turn, given the time.
pub(crate) struct Core {
    pub(crate) scheduler: Scheduler,
    pub(crate) plan: StepPlan,
    pub(crate) sampled: Vec<Result<Sampled, RunError>>,
    pub(crate) report: Report,
    pub(crate) admission: Arc<AdmissionController>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) life: Life,
    pub(crate) runner: Box<dyn ModelRunner>,
    pub(crate) host: Option<Host>,
    pub(crate) logits: Logits,
    pub(crate) scorer: Scorer,
    time: Box<dyn TimeSource>,
    pub(crate) clock: StageClock,
    seed: u64,
    inbox: Vec<Event>,
    /// The last turn ran nothing, and the next one would not either.
    idle: bool,
    /// Scratch: who was evicted.
    evicted: Vec<Rank>,
    /// Nothing is left that could still go to storage.
    pub(crate) flushed: bool,
}

impl Core {
    pub(crate) fn new(
        prepared: Prepared,
        pools: PoolSet,
        admission: Arc<AdmissionController>,
        observer: Box<dyn Observer>,
        mut time: Box<dyn TimeSource>,
    ) -> (Self, Handle) {
        let max_request_tokens = prepared.max_request_tokens();
        let Prepared { config, runner, copier, storage } = prepared;
        let now = time.now();
        let snapshot = first_snapshot(&config, &pools, now);
        let shared = Arc::new(Shared::new(snapshot, max_request_tokens, runner.spec().vocab));
        shared.set_queue_timeout(config.scheduling.queue_timeout);
        let mailbox = Arc::new(Mailbox::new(config.max_submissions));
        let handle = Handle::new(
            Arc::clone(&mailbox),
            Arc::clone(&shared),
            Arc::clone(&admission),
            pools.clone(),
        );
        let limits = Limits {
            max_running: config.max_running,
            max_batch_tokens: config.max_batch_tokens,
            prefill_chunk: config.prefill_chunk,
            scored_tokens: rows_per_step(runner.spec().vocab),
            scheduling: config.scheduling,
        };
        let host = copier.map(|copier| {
            let mailbox = Arc::clone(&mailbox);
            let queue = crate::host::queue(config.max_running);
            Host::new(copier, queue, Arc::new(move || mailbox.nudge()))
        });
        let mut scheduler = Scheduler::new(limits, pools);
        scheduler.storage = storage.zip(config.host).map(|((storage, policy), host)| {
            let threshold = host.load_back_threshold;
            let mut storage = StorageTier::new(storage, policy, threshold, &scheduler.pools);
            let mailbox = Arc::clone(&mailbox);
            storage.woken_by(Box::new(move || mailbox.nudge()));
            storage
        });
        let core = Self {
            scheduler,
            plan: StepPlan::default(),
            sampled: Vec::new(),
            report: Report::default(),
            admission,
            observer,
            mailbox,
            shared,
            life: Life::Ready,
            runner,
            host,
            logits: Logits::new(),
            scorer: Scorer::default(),
            time,
            clock: StageClock::new(now),
            seed: config.seed,
            inbox: Vec::new(),
            idle: false,
            evicted: Vec::new(),
            flushed: false,
        };
        (core, handle)
    }

    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.life, Life::Draining(_))
    }

    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.life, Life::Stopped | Life::Failed(_))
    }

    /// Whether nothing can run before something happens outside of the engine.
    pub(crate) const fn is_idle(&self) -> bool {
        self.idle
    }

    /// Sleeps until there is something to do, at most `nap`; returns at once when there is. Where
    /// requests wait for pages that are being copied, the end of a copy is something to do.
    pub(crate) fn rest(&mut self, nap: Duration) {
        self.mark(LoopStage::Observe);
        if (self.scheduler.is_empty() && !self.plan.again) || self.idle {
            let until = self.scheduler.storage.as_ref().and_then(StorageTier::next_deadline);
            let left = until.map_or(nap, |until| until.since(self.clock.last()));
            self.mailbox.wait(nap.min(left));
        }
    }

    /// One turn.
    pub(crate) fn turn(&mut self) -> Turn {
        self.mark(LoopStage::Wait);
        let started = self.clock.last();
        self.drain_events();
        let settled = self.settle_copies();
        let told = self.host.as_ref().map(Host::told);
        self.mark(LoopStage::Events);
        self.schedule();
        if !self.report.queue_exits.is_empty() {
            self.publish_queues();
        }
        self.mark(LoopStage::Schedule);
        let begun = settled.and_then(|()| self.begin_copies());
        let outcome = begun.and_then(|()| {
            self.scheduler.tell_landed(&mut self.plan);
            self.execute()
        });
        let busy = self.mark(LoopStage::Forward);
        match outcome {
            Ok(()) => self.commit(busy),
            Err(why) => self.fail(&why),
        }
        self.stop_when_drained();
        self.mark(LoopStage::Commit);
        self.observe(started, busy);
        let idle = self.plan.rows.is_empty();
        // A copy that has ended since may have freed what they wait for.
        self.idle = idle && !self.plan.again && told == self.host.as_ref().map(Host::told);
        match self.life {
            Life::Stopped | Life::Failed(_) => Turn::Ended,
            Life::Ready | Life::Draining(_) if idle => Turn::Idle,
            Life::Ready | Life::Draining(_) => Turn::Worked,
        }
    }

    fn drain_events(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.mailbox.take(&mut inbox);
        let now = self.clock.last();
        let mut stop = None;
        for event in inbox.drain(..) {
            match event {
                Event::Submit(submission) => self.accept(*submission),
                Event::Abort(id, reason) => self.abort(id, reason),
                Event::News(id, news) => self.hear(id, news),
                Event::Drain(deadline) => match self.life {
                    Life::Ready => self.life = Life::Draining(deadline),
                    Life::Draining(before) => self.life = Life::Draining(before.min(deadline)),
                    Life::Stopped | Life::Failed(_) => {}
                },
                Event::Shutdown => stop = Some(AbortReason::Shutdown),
            }
        }
        self.inbox = inbox;
        self.refuse_evicted();
        self.refuse_late(now);
        self.abort_overdue(now);
        if let Life::Draining(deadline) = self.life
            && now >= deadline
        {
            stop.get_or_insert(AbortReason::DrainDeadline);
        }
        if let Some(reason) = stop {
            self.stop(reason);
        }
    }

    fn accept(&mut self, submission: Submission) {
        let table = self.scheduler.pools.table();
        let (vocab, now) = (self.shared.vocab, self.clock.last());
        let request = Request::new(submission, table, vocab, self.seed, now);
        self.scheduler.enqueue(request, now);
    }

    fn abort(&mut self, id: RequestId, reason: AbortReason) {
        self.end(id, |request| Outcome::Aborted(Abort { stage: request.stage(), reason }));
    }

    /// Learns which copies between the tiers have ended.
    fn settle_copies(&mut self) -> Result<(), String> {
        let Some(host) = &mut self.host else { return Ok(()) };
        host.settle(&self.scheduler.pools)?;
        if let Some(storage) = &mut self.scheduler.storage {
            storage.back_up(&self.scheduler.pools);
        }
        Ok(())
    }

    /// Begins the copies that the planned step has ordered; the step waits for its loads.
    fn begin_copies(&mut self) -> Result<(), String> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let now = self.clock.last();
        let begun = host.begin(&self.scheduler.pools, now, &mut *self.time);
        self.report.copy_waits = host.take_waits();
        self.plan.batch.loads = begun?;
        // What the last request left is on its way when it ends: first to the host.
        let quiet = host.is_quiet();
        if let Some(storage) = &mut self.scheduler.storage {
            storage.back_up(&self.scheduler.pools);
            self.flushed = quiet && !storage.backs_up() && self.scheduler.is_empty();
        }
        Ok(())
    }

    fn schedule(&mut self) {
        let now = self.clock.last();
        self.scheduler.pools.set_now(now);
        self.scheduler.patient = self.host.as_ref().is_some_and(|host| !host.is_late(now));
        self.scheduler.schedule(now, &mut self.plan, &mut self.report.queue_exits);
        while let Some((request, refusal)) = self.plan.refused.pop() {
            self.end_request(request, |_| Outcome::Rejected(refusal));
        }
        if let Some((id, why)) = self.plan.given_up {
            self.end(id, |_| Outcome::Error(RequestError::Transfer(why)));
        }
    }

    /// Ends those whose places were taken by better ones.
    fn refuse_evicted(&mut self) {
        let mut evicted = std::mem::take(&mut self.evicted);
        self.admission.evicted(&mut evicted);
        // Who is not in the queue is still at the front door and learns it there.
        for rank in evicted.drain(..) {
            let Some(request) = self.scheduler.waiting.get(rank) else { continue };
            if let Some(refusal) = request.evicted() {
                let id = request.id;
                self.end(id, |_| Outcome::Rejected(refusal));
            }
        }
        self.evicted = evicted;
    }

    /// Ends those that have waited longer than they may.
    fn refuse_late(&mut self, now: Time) {
        let Some(limit) = self.shared.queue_timeout() else { return };
        while let Some((since, rank)) = self.scheduler.waiting.waits_since()
            && now.since(since) > limit
        {
            let request = self.scheduler.waiting.get_mut(rank).expect("it is in the queue");
            let id = request.id;
            match request.expire(limit, now) {
                Some(refusal) => self.end(id, |_| Outcome::Rejected(refusal)),
                None => self.scheduler.waiting.excuse(rank),
            }
        }
    }

    /// Ends those that have run longer than they may.
    fn abort_overdue(&mut self, now: Time) {
        while let Some(id) = self.scheduler.overdue(now) {
            self.abort(id, AbortReason::RunningTimeout);
        }
    }

    /// Runs the planned batch; an error or a panic of the model is fatal for the engine.
    fn execute(&mut self) -> Result<(), String> {
        if self.plan.rows.is_empty() {
            return Ok(());
        }
        self.send_chunks();
        let Self { runner, logits, plan, .. } = self;
        let ran = catch_unwind(AssertUnwindSafe(|| runner.execute(&plan.batch, logits)));
        let loads = plan.batch.loads.as_ref().map(LoadGate::waited);
        self.report.copy_waits.loads = loads.unwrap_or_default();
        self.end_pass(matches!(ran, Ok(Ok(()))));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("the model failed: {error}")),
            Err(panic) => return Err(format!("the model panicked: {}", panic_text(&*panic))),
        }
        let (rows, wanted) = (self.logits.rows(), self.plan.batch.logits_rows());
        if rows != wanted {
            return Err(format!("the model gave {rows} rows of logits instead of {wanted}"));
        }
        if let Some(busy) = self.runner.modelled_time(&self.plan.batch) {
            self.time.modelled(busy);
        }
        Ok(())
    }

    /// Chooses a token for each row that wants one, from its last row of logits.
    pub(crate) fn sample(&mut self) {
        self.sampled.clear();
        let mut end = 0;
        for row in &self.plan.rows {
            end += row.logits_rows;
            if row.logits {
                let running = &mut self.scheduler.running;
                let request = running.get_mut(row.rank).expect("a planned row runs");
                self.sampled.push(request.sampler.sample(self.logits.row(end - 1)));
            }
        }
        self.mark(LoopStage::Sample);
    }

    /// Takes a request out and ends it; nothing happens when it has ended before.
    pub(crate) fn end(&mut self, id: RequestId, outcome: impl FnOnce(&Request) -> Outcome) {
        if let Some(request) = self.scheduler.remove(id) {
            self.end_request(request, outcome);
        }
    }

    /// Ends a request that the scheduler does not have any more.
    fn end_request(&mut self, mut request: Request, outcome: impl FnOnce(&Request) -> Outcome) {
        let now = self.clock.last();
        let outcome = outcome(&request);
        self.report.queue_exits.extend(request.leave_queue(now, QueueExitCause::Ended));
        let stays = self.part_from_link(&mut request, &outcome);
        let (sink, end, table) = request.end(outcome, now);
        #[cfg(test)]
        if table.tokens() > 0 && crate::testing::leaks_now() {
            std::mem::forget(table);
            return self.report.ended.push((sink, end));
        }
        if stays {
            self.scheduler.held.keep(end.id, table, &self.scheduler.pools);
        }
        self.report.ended.push((sink, end));
    }

    /// Ends everything that is here or on its way, and takes nothing any more.
    fn end_all(&mut self, closed: SubmitError, outcome: impl Fn(&Request) -> Outcome) {
        for event in self.mailbox.close(closed) {
            match event {
                Event::Submit(submission) => self.accept(*submission),
                Event::Abort(id, reason) => self.abort(id, reason),
                Event::News(id, news) => self.hear(id, news),
                Event::Drain(_) | Event::Shutdown => {}
            }
        }
        for id in self.scheduler.ids() {
            self.end(id, &outcome);
        }
        self.forget_held();
        if let Some(host) = self.host.take() {
            host.close(&self.scheduler.pools);
        }
        if let Some(storage) = &mut self.scheduler.storage {
            storage.close(&self.scheduler.pools);
        }
    }

    fn stop(&mut self, reason: AbortReason) {
        self.life = Life::Stopped;
        self.admission.set_draining(true);
        self.end_all(SubmitError::Draining, |request| {
            Outcome::Aborted(Abort { stage: request.stage(), reason })
        });
    }

    /// A drain is complete when nobody is here, nobody who was promised a place can come, and what
    /// was computed is where it outlives the process.
    fn stop_when_drained(&mut self) {
        if self.is_draining()
            && self.scheduler.is_empty()
            && (self.flushed || self.scheduler.storage.is_none())
            && self.admission.snapshot(self.clock.last()).requests == 0
        {
            self.stop(AbortReason::DrainDeadline);
        }
    }

    fn fail(&mut self, why: &str) {
        self.life = Life::Failed(why.to_owned());
        self.plan.drop_rows();
        self.admission.set_unhealthy(true);
        self.end_all(SubmitError::Unhealthy, |_| {
            Outcome::Error(RequestError::Engine(why.to_owned()))
        });
    }

    /// The last act after a panic of the engine itself: every request hears of its end, even when
    /// the observer is what panics.
    pub(crate) fn perish(&mut self, why: &str) {
        let now = self.clock.last();
        let told = catch_unwind(AssertUnwindSafe(|| {
            self.fail(why);
            self.observe(now, Duration::ZERO);
        }));
        if told.is_err() {
            self.publish(now);
            self.finish_ended();
        }
    }

    pub(crate) fn mark(&mut self, stage: LoopStage) -> Duration {
        let now = self.time.now();
        self.clock.mark(stage, now)
    }
}

/// An engine that has done nothing yet.
fn first_snapshot(config: &EngineConfig, pools: &PoolSet, now: Time) -> EngineSnapshot {
    EngineSnapshot {
        state: EngineState::Ready,
        failure: None,
        running: 0,
        running_limit: config.max_running,
        waiting: 0,
        retracted: crate::stats::RetractedSnapshot::default(),
        bootstrap: QueueSnapshot::default(),
        inflight_send: QueueSnapshot::default(),
        prealloc: QueueSnapshot::default(),
        transfer: QueueSnapshot::default(),
        landed: QueueSnapshot::default(),
        held: HeldSnapshot::default(),
        pools: pools.stats().map(|device| PoolSnapshot { device, host: None }).collect(),
        copies: memory_pool::CopyStats::default(),
        storage: None,
        last_iteration: now,
        iterations: 0,
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
