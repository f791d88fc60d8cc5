//! The engine on its thread, with a real clock: what the simulation cannot see.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use admission::{AdmissionController, Limits};
use model::{FakeOptions, FakeRunner, FakeTiming, SamplingParams};
use types::{Clock, Priority, RequestId, Time, TokenId};

use crate::{
    Abort, AbortReason, EngineConfig, EngineState, Handle, Observer, Outcome, RequestEnd,
    RequestError, Scheduling, Sink, Stage, StepPhase, StepStats, Submission, SubmitError,
    TimeSource, TokenEvent, Verdict, prepare,
};

mod busy;
mod copies;
mod scores;
mod stepper;
mod together;

/// Far longer than anything here takes; a hang fails instead of blocking.
const PATIENCE: Duration = Duration::from_secs(60);

fn bounds() -> EngineConfig {
    EngineConfig {
        max_running: 4,
        max_batch_tokens: 64,
        prefill_chunk: 32,
        pool_pages: vec![16],
        max_submissions: 8,
        prefix_cache: true,
        host: None,
        retention: kv_cache::Retention::default(),
        hit_curve: None,
        scheduling: Scheduling::default(),
        seed: 0,
    }
}

/// Sends what a sink hears.
struct Collect {
    tokens: Vec<TokenId>,
    first: Sender<()>,
    end: Sender<(Vec<TokenId>, RequestEnd)>,
}

impl Sink for Collect {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        self.tokens.push(event.token);
        if event.index == 0 {
            // The test may not be listening for it.
            self.first.send(()).unwrap_or_default();
        }
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        self.end.send((self.tokens, end.clone())).expect("the test waits for the end");
    }
}

/// Sends the phase and time of every step.
struct Steps(Sender<(StepPhase, Time)>);

impl Observer for Steps {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        self.0.send((stats.phase, stats.now)).unwrap_or_default();
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

/// Breaks at the end of the first request, or at the first step that ran.
struct Broken {
    at_end: bool,
}

impl Observer for Broken {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        if !self.at_end && stats.phase != StepPhase::Idle {
            std::panic::resume_unwind(Box::new("planned"));
        }
    }

    fn on_request_end(&mut self, _: &RequestEnd) {
        if self.at_end {
            std::panic::resume_unwind(Box::new("planned"));
        }
    }
}

struct Rig {
    clock: Clock,
    admission: Arc<AdmissionController>,
    handle: Handle,
    join: Option<JoinHandle<()>>,
    steps: Receiver<(StepPhase, Time)>,
}

/// What a test hears of one request.
struct Ears {
    first: Receiver<()>,
    end: Receiver<(Vec<TokenId>, RequestEnd)>,
}

impl Ears {
    fn end(&self) -> (Vec<TokenId>, RequestEnd) {
        self.end.recv_timeout(PATIENCE).expect("the request ends")
    }
}

impl Rig {
    fn new(options: FakeOptions) -> Self {
        let (sender, steps) = channel();
        Self::observed(options, Box::new(Steps(sender)), steps)
    }

    fn observed(
        options: FakeOptions,
        observer: Box<dyn Observer>,
        steps: Receiver<(StepPhase, Time)>,
    ) -> Self {
        let clock = Clock::start();
        let limits = Limits {
            max_queued_requests: 8,
            max_queued_tokens: None,
            ttft_objective: Duration::from_secs(30),
        };
        let admission = AdmissionController::new(limits, 1000.0);
        let runner = Box::new(FakeRunner::new(options));
        let prepared = prepare(bounds(), runner, None).expect("good bounds");
        let (handle, join) =
            prepared.spawn(Arc::clone(&admission), observer, clock).expect("a thread");
        Self { clock, admission, handle, join: Some(join), steps }
    }

    fn submission(&self, id: u64, prompt: &[u32], max_tokens: usize) -> (Submission, Ears) {
        submission(&self.admission, self.clock.now(), id, prompt, max_tokens)
    }

    fn submit(&self, id: u64, prompt: &[u32], max_tokens: usize) -> Ears {
        let (submission, ears) = self.submission(id, prompt, max_tokens);
        self.handle.submit(submission).expect("accepted");
        ears
    }

    fn joins(&mut self) {
        let join = self.join.take().expect("joined once");
        join.join().expect("the thread ends without a panic");
    }

    fn refusal(&self, id: u64, prompt: &[u32], max_tokens: usize) -> SubmitError {
        let (submission, _ears) = self.submission(id, prompt, max_tokens);
        self.handle.submit(submission).expect_err("refused").error
    }
}

fn submission(
    admission: &Arc<AdmissionController>,
    now: Time,
    id: u64,
    prompt: &[u32],
    max_tokens: usize,
) -> (Submission, Ears) {
    let permit = admission.try_admit(Priority::NORMAL, now).expect("room");
    let permit = permit.charge(prompt.len() as u64, now).expect("room");
    let ((first, first_heard), (end, end_heard)) = (channel(), channel());
    let submission = Submission {
        id: RequestId(id),
        permit,
        prompt: prompt.iter().copied().map(TokenId).collect(),
        tenant: None,
        namespace: kv_cache::Namespace::SHARED,
        prompt_logprobs: false,
        sampling: SamplingParams::default(),
        constraint: None,
        follower: None,
        max_tokens,
        stop_tokens: Vec::new(),
        remote: None,
        send: None,
        sink: Box::new(Collect { tokens: Vec::new(), first, end }),
        streaming: true,
        arrived: now,
        tokenized: now,
    };
    (submission, Ears { first: first_heard, end: end_heard })
}

/// Steps slow enough in real time that a test can act in between.
fn slow() -> FakeOptions {
    let step = Duration::from_millis(5);
    let timing = FakeTiming { step, ..FakeTiming::default() };
    FakeOptions { real_time: true, timing, ..FakeOptions::default() }
}

#[test]
fn a_request_gets_its_tokens_and_the_gauges_are_back_before_its_end() {
    let rig = Rig::new(FakeOptions::default());
    let ears = rig.submit(7, &[1, 2, 3], 5);
    let (tokens, end) = ears.end();
    let mut context = [1, 2, 3].map(TokenId).to_vec();
    for token in &tokens {
        assert_eq!(*token, FakeRunner::next_token(&FakeOptions::default(), &context));
        context.push(*token);
    }
    assert_eq!((end.outcome.clone(), tokens.len()), (Outcome::Length, 5));
    assert!(end.streaming && end.time_per_output_token().is_some());
    let snapshot = rig.handle.snapshot();
    assert_eq!((snapshot.running, snapshot.waiting), (0, 0));
    assert_eq!(snapshot.pools[0].device.used_active.0, 0);
    assert_eq!(rig.admission.snapshot(rig.clock.now()).requests, 0);
    // The same id may come again once it has ended.
    rig.submit(7, &[1], 1).end();
    let Rig { handle, join, .. } = rig;
    drop(handle);
    join.expect("not joined yet").join().expect("the thread ends with the last handle");
}

#[test]
fn an_idle_engine_sleeps_and_still_shows_that_it_lives() {
    let rig = Rig::new(FakeOptions::default());
    let (mut last, mut before) = (None, None);
    for _ in 0..4 {
        let (phase, now) = rig.steps.recv_timeout(PATIENCE).expect("a heartbeat");
        assert_eq!(phase, StepPhase::Idle);
        before = last.replace(now);
        if let Some(before) = before {
            let gap = now.since(before);
            assert!(gap >= Duration::from_millis(400), "a busy loop: {gap:?}");
        }
    }
    // The snapshot follows the observer, so the step before the last one is certainly in it.
    assert!(Some(rig.handle.snapshot().last_iteration) >= before);
    rig.submit(0, &[1], 1).end();
}

#[test]
fn what_can_never_run_is_refused_by_name() {
    let rig = Rig::new(slow());
    assert_eq!(rig.handle.max_request_tokens(), 256);
    assert!(rig.handle.fits(256) && !rig.handle.fits(257));
    let too_long = rig.refusal(0, &[1; 250], 7);
    assert_eq!(
        too_long.to_string(),
        "the prompt has 250 tokens and up to 7 were asked for, but a request may have 256 in all"
    );
    assert!(matches!(rig.refusal(0, &[], 7), SubmitError::Invalid(_)));
    assert!(matches!(rig.refusal(0, &[512], 1), SubmitError::Invalid(_)));
    let running = rig.submit(0, &[1], 250);
    assert_eq!(rig.refusal(0, &[1], 1), SubmitError::Duplicate);
    rig.handle.abort(RequestId(99), AbortReason::ClientGone);
    rig.handle.abort(RequestId(0), AbortReason::ClientGone);
    assert!(matches!(running.end().1.outcome, Outcome::Aborted(_)));
    let queue = rig.admission.snapshot(rig.clock.now());
    assert_eq!((queue.requests, queue.pending_tokens), (0, 0), "refusals gave their places back");
}

#[test]
fn an_abort_ends_a_running_request_at_once() {
    let rig = Rig::new(slow());
    let ears = rig.submit(1, &[1, 2], 200);
    ears.first.recv_timeout(PATIENCE).expect("it runs");
    rig.handle.abort(RequestId(1), AbortReason::ClientGone);
    let (tokens, end) = ears.end();
    let abort = Abort { stage: Stage::Decode, reason: AbortReason::ClientGone };
    assert_eq!(end.outcome, Outcome::Aborted(abort));
    assert_eq!(tokens.len(), end.generated_tokens);
    assert!(tokens.len() < 200);
}

#[test]
fn a_failing_model_ends_every_request_and_the_front_door_closes() {
    for (options, why) in [
        (FakeOptions { fail_at_step: Some(3), ..slow() }, "injected failure at step 3"),
        (FakeOptions { panic_at_step: Some(3), ..slow() }, "injected panic at step 3"),
    ] {
        let mut rig = Rig::new(options);
        let ears = [rig.submit(1, &[1, 2], 100), rig.submit(2, &[3], 100)];
        for ears in ears {
            let Outcome::Error(RequestError::Engine(found)) = ears.end().1.outcome else {
                panic!("another outcome");
            };
            assert!(found.contains(why), "{found}");
        }
        rig.joins();
        let snapshot = rig.handle.snapshot();
        assert_eq!(snapshot.state, EngineState::Failed);
        assert!(snapshot.failure.is_some_and(|found| found.contains(why)));
        assert!(rig.admission.try_admit(Priority::NORMAL, rig.clock.now()).is_err());
        rig.admission.set_unhealthy(false);
        assert_eq!(rig.refusal(3, &[1], 1), SubmitError::Unhealthy);
    }
}

#[test]
fn a_panic_of_the_engine_itself_is_an_end_and_not_a_hang() {
    for at_end in [false, true] {
        let (_, steps) = channel();
        let mut rig = Rig::observed(slow(), Box::new(Broken { at_end }), steps);
        let ears = [rig.submit(1, &[1, 2], 2), rig.submit(2, &[3], 2)];
        for ears in &ears {
            let outcome = ears.end().1.outcome;
            let engine = matches!(outcome, Outcome::Error(RequestError::Engine(_)));
            assert!(engine || (at_end && outcome == Outcome::Length), "{outcome:?}");
        }
        rig.joins();
        assert_eq!(rig.handle.snapshot().state, EngineState::Failed);
    }
}

#[test]
fn a_drain_waits_for_those_who_have_a_permit() {
    let mut rig = Rig::new(FakeOptions::default());
    let (late, ears) = rig.submission(1, &[1, 2], 3);
    rig.handle.drain(rig.clock.now() + PATIENCE);
    assert!(rig.admission.try_admit(Priority::NORMAL, rig.clock.now()).is_err());
    rig.handle.submit(late).expect("it holds a permit from before the drain");
    assert_eq!(ears.end().1.outcome, Outcome::Length);
    rig.joins();
    assert_eq!(rig.handle.snapshot().state, EngineState::Stopped);
    rig.admission.set_draining(false);
    assert_eq!(rig.refusal(2, &[1], 1), SubmitError::Draining);
}

#[test]
fn a_drain_cuts_off_at_its_deadline() {
    let mut rig = Rig::new(slow());
    let ears = rig.submit(1, &[1, 2], 200);
    ears.first.recv_timeout(PATIENCE).expect("it runs");
    rig.handle.drain(rig.clock.now());
    let abort = Abort { stage: Stage::Decode, reason: AbortReason::DrainDeadline };
    assert_eq!(ears.end().1.outcome, Outcome::Aborted(abort));
    rig.joins();
}

/// Time that only the model moves.
struct Modelled(Time);

impl TimeSource for Modelled {
    fn now(&mut self) -> Time {
        self.0
    }

    fn modelled(&mut self, busy: Duration) {
        self.0 = self.0 + busy;
    }
}

#[test]
fn a_step_costs_the_same_however_many_wait() {
    let walked = [10, 10_000].map(|waiting| {
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let admission = AdmissionController::new(limits, 1.0);
        let config = EngineConfig { max_submissions: 20_000, ..bounds() };
        let runner = Box::new(FakeRunner::new(FakeOptions::default()));
        let prepared = prepare(config, runner, None).expect("good bounds");
        let (sender, _steps) = channel();
        let time = Box::new(Modelled(Time::ZERO));
        let (mut core, handle) =
            prepared.into_core(Arc::clone(&admission), Box::new(Steps(sender)), time);
        let mut ears = Vec::new();
        for id in 0..waiting {
            let (submission, ear) = submission(&admission, Time::ZERO, id, &[1, 2, 3], 40);
            handle.submit(submission).expect("accepted");
            ears.push(ear);
        }
        core.turn();
        crate::testing::walked();
        for id in 0..30 {
            // The front runs; one in the middle and one at the end are given up.
            handle.abort(RequestId(waiting / 2 + id % 3), AbortReason::ClientGone);
            core.turn();
        }
        crate::testing::walked()
    });
    assert_eq!(walked[0], walked[1], "requests walked over in 30 steps");
    assert!(walked[0] > 0, "the running ones are walked over");
}

#[test]
fn the_warm_up_measures_the_second_step() {
    // 2 ms a step and 0.5 ms a token: 64 tokens take 34 ms.
    let config = EngineConfig { prefill_chunk: 64, ..bounds() };
    let runner = Box::new(FakeRunner::new(FakeOptions::default()));
    let mut prepared = prepare(config, runner, None).expect("good bounds");
    let rate = prepared.warm_up(&mut Modelled(Time::ZERO)).expect("the fake model runs");
    assert!((rate - 64.0 / 0.034).abs() < 1e-6, "{rate}");
    // A model of a token per second is not asked for 64 of them.
    let timing = FakeTiming { prefill_token: Duration::from_secs(1), ..FakeTiming::default() };
    let options = FakeOptions { timing, ..FakeOptions::default() };
    let config = EngineConfig { prefill_chunk: 64, ..bounds() };
    let mut prepared =
        prepare(config, Box::new(FakeRunner::new(options)), None).expect("good bounds");
    let mut time = Modelled(Time::ZERO);
    let rate = prepared.warm_up(&mut time).expect("the fake model runs");
    assert!((rate - 1.0).abs() < 0.01, "{rate}");
    assert!(time.0.since(Time::ZERO) < Duration::from_secs(70));
}
