//! What choosing a batch costs, by how many wait: `cargo bench -p engine`.
//!
//! 1,000 requests run on a model that computes nothing, and so many more wait; with priorities,
//! tenants and time limits in force. The engine's own stage clock measures, on its own thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use admission::{AdmissionController, Limits};
use engine::{
    EngineConfig, LoopStage, Observer, RequestEnd, Scheduling, Sink, StepPhase, StepStats,
    Submission, TokenEvent, Verdict, prepare,
};
use kv_cache::Namespace;
use model::{FakeOptions, FakeRunner, FakeTiming, SamplingParams};
use types::{Clock, Priority, RequestId, TokenId};

const RUNNING: usize = 1000;
const STEPS: usize = 300;
const TENANTS: usize = 100;

/// Sends, for every step that decoded for all that run, the time of choosing it.
struct Watcher(Sender<Duration>);

impl Observer for Watcher {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        if stats.phase != StepPhase::Idle && stats.requests == RUNNING {
            let of = |stage| stats.stages.of(stage);
            self.0.send(of(LoopStage::Schedule) + of(LoopStage::Events)).unwrap_or_default();
        }
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

struct Silent;

impl Sink for Silent {
    fn token(&mut self, _: &TokenEvent<'_>) -> Verdict {
        Verdict::Continue
    }

    fn finish(self: Box<Self>, _: &RequestEnd) {}
}

/// The times of `STEPS` steps in the middle of a run with so many waiting.
fn measure(waiting: usize, fair_share: bool) -> Vec<Duration> {
    let clock = Clock::start();
    let limits = Limits {
        max_queued_requests: 0,
        max_queued_tokens: Some(0),
        ttft_objective: Duration::ZERO,
    };
    let admission = AdmissionController::new(limits, 1000.0);
    let config = EngineConfig {
        max_running: RUNNING,
        max_batch_tokens: 4 * RUNNING,
        prefill_chunk: 64,
        pool_pages: vec![100 * RUNNING],
        max_submissions: RUNNING + waiting,
        prefix_cache: false,
        host: None,
        retention: engine::Retention::default(),
        hit_curve: None,
        scheduling: Scheduling {
            fair_share,
            queue_timeout: Some(Duration::from_secs(3600)),
            request_timeout: Some(Duration::from_secs(3600)),
            ..Scheduling::default()
        },
        seed: 0,
    };
    let zero = Duration::ZERO;
    let timing = FakeTiming { step: zero, prefill_token: zero, decode_row: zero };
    let eos = vec![TokenId(127)];
    let options = FakeOptions { vocab: 128, eos, timing, ..FakeOptions::default() };
    let (sender, times): (_, Receiver<Duration>) = channel();
    let prepared = prepare(config, Box::new(FakeRunner::new(options)), None).expect("good bounds");
    let observer = Box::new(Watcher(sender));
    let (handle, join) = prepared.spawn(Arc::clone(&admission), observer, clock).expect("a thread");
    let names: Vec<Arc<str>> = (0..TENANTS).map(|name| name.to_string().into()).collect();
    for index in 0..RUNNING + waiting {
        let now = clock.now();
        // Answers differ in length, so that requests end and start in most steps.
        let max_tokens = 600 + 7 * index % 500;
        let level = if index < RUNNING { 0 } else { (index % 7) as i64 - 3 };
        let priority = Priority::new(level).expect("a small level");
        let permit = admission.try_admit(priority, now).expect("no limit");
        let submission = Submission {
            id: RequestId(index as u64),
            permit: permit.charge(8, now).expect("no limit"),
            prompt: vec![TokenId(1); 8],
            namespace: Namespace::default(),
            tenant: Some(Arc::clone(&names[index % TENANTS])),
            prompt_logprobs: false,
            sampling: SamplingParams::default(),
            constraint: None,
            follower: None,
            max_tokens,
            stop_tokens: Vec::new(),
            remote: None,
            send: None,
            sink: Box::new(Silent),
            streaming: false,
            arrived: now,
            tokenized: now,
        };
        handle.submit(submission).expect("accepted");
    }
    // The first steps still take submissions in.
    let measured = times.iter().skip(50).take(STEPS).collect();
    handle.shutdown();
    join.join().expect("the engine ends");
    measured
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its result")]
fn main() {
    println!("{RUNNING} running; time to take in events and choose a step, {STEPS} steps");
    println!("{:>8} {:>11} {:>10} {:>10} {:>10}", "waiting", "fair share", "median", "p99", "max");
    for waiting in [0, 1000, 10_000] {
        for fair_share in [false, true] {
            let mut times = measure(waiting, fair_share);
            times.sort_unstable();
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let micros = |time: Duration| format!("{:.0} us", time.as_secs_f64() * 1e6);
            println!(
                "{waiting:>8} {:>11} {:>10} {:>10} {:>10}",
                if fair_share { "on" } else { "off" },
                micros(at(0.5)),
                micros(at(0.99)),
                micros(at(1.0)),
            );
        }
    }
}
