//! A step that only decodes allocates nothing on the engine's thread, once it is warm.
//!
//! Every allocation of this program is counted by the thread that makes it; the observer, which
//! runs on the engine's thread, reads the counter at the end of each step.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{AdmissionController, Limits};
use engine::{
    EngineConfig, Handle, Observer, RequestEnd, Scheduling, Sink, StepPhase, StepStats, Submission,
    TokenEvent, Verdict, prepare,
};
use kv_cache::{HostTier, Namespace, WritePolicy};
use memory_pool::{HostMemory, HostOptions};
use model::{FakeOptions, FakeRunner, LoadOptions, ModelRunner, SamplingParams};
use types::{Clock, Priority, RequestId, TokenId};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Far longer than anything here takes; a hang fails instead of blocking.
const PATIENCE: Duration = Duration::from_secs(120);

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches only a cell of
// the thread, which needs no allocation and no drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A step that only decoded: its requests, and what was allocated since the step before.
struct Decoded {
    requests: usize,
    allocations: u64,
}

/// Sends what steps allocated; what sending takes is not counted.
struct Watcher {
    before: u64,
    steps: Sender<Decoded>,
    gate: Arc<Mutex<()>>,
}

impl Observer for Watcher {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let allocations = ALLOCATIONS.get() - self.before;
        drop(self.gate.lock().expect("nobody panics while holding it"));
        if stats.phase == StepPhase::Decode {
            let decoded = Decoded { requests: stats.requests, allocations };
            self.steps.send(decoded).unwrap_or_default();
        }
        self.before = ALLOCATIONS.get();
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

/// Counts tokens and tells when it is over.
struct Counter {
    end: Sender<usize>,
}

impl Sink for Counter {
    fn token(&mut self, _: &TokenEvent<'_>) -> Verdict {
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        self.end.send(end.generated_tokens).unwrap_or_default();
    }
}

#[derive(Clone, Copy)]
struct Tier {
    policy: WritePolicy,
    /// Whether the model has bytes to copy.
    has_bytes: bool,
}

/// An engine with its watchers.
struct Rig {
    clock: Clock,
    admission: Arc<AdmissionController>,
    handle: Handle,
    decoded: Receiver<Decoded>,
    /// Whoever holds it keeps the engine from its next step.
    gate: Arc<Mutex<()>>,
    next_id: u64,
}

impl Rig {
    /// With a host tier of twice the device's pages where a policy says when it is written.
    fn new(runner: Box<dyn ModelRunner>, requests: usize, tier: Option<Tier>) -> Self {
        let clock = Clock::start();
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let admission = AdmissionController::new(limits, 1000.0);
        let config = EngineConfig {
            max_running: requests,
            max_batch_tokens: 64 * requests,
            prefill_chunk: 64,
            pool_pages: vec![64 * requests; runner.spec().pools.len()],
            max_submissions: requests,
            prefix_cache: true,
            host: tier.map(|Tier { policy, .. }| HostTier {
                pages: vec![128 * requests; runner.spec().pools.len()],
                policy,
                load_back_threshold: HostTier::LOAD_BACK_THRESHOLD,
                storage: false,
            }),
            retention: engine::Retention::default(),
            hit_curve: None,
            scheduling: Scheduling { fair_share: true, ..Scheduling::default() },
            seed: 0,
        };
        let (steps, decoded) = channel();
        let gate = Arc::new(Mutex::new(()));
        let observer = Box::new(Watcher { before: 0, steps, gate: Arc::clone(&gate) });
        let host = config.host.as_ref().filter(|_| tier.is_some_and(|tier| tier.has_bytes));
        let memory = host.map(|host| {
            let parts = runner.spec().part_layouts(&host.pages);
            HostMemory::allocate(&parts, HostOptions::default(), &mut |_| {}).expect("room")
        });
        let memory = memory.map(Arc::new);
        let prepared = prepare(config, runner, memory).expect("good bounds");
        let (handle, _) =
            prepared.spawn(Arc::clone(&admission), observer, clock).expect("a thread");
        Self { clock, admission, handle, decoded, gate, next_id: 0 }
    }

    /// Runs `requests` answers of `tokens` tokens; returns what each step allocated that decoded
    /// for all of them, the first one, in which they begin, and the last one, in which they end
    /// and leave their pages to the cache, aside.
    fn run(&mut self, requests: usize, tokens: usize) -> Vec<u64> {
        let (end, ended) = channel();
        // They begin together, so that most steps decode for all of them.
        let gate = Arc::clone(&self.gate);
        let held = gate.lock().expect("nobody panics while holding it");
        for index in 0..requests {
            let now = self.clock.now();
            let permit = self.admission.try_admit(Priority::NORMAL, now).expect("no limit");
            let prompt = (0..40).map(|place| TokenId((7 * place + index as u32) % 200)).collect();
            let submission = Submission {
                id: RequestId(self.next_id),
                permit: permit.charge(40, now).expect("no limit"),
                prompt,
                tenant: None,
                namespace: Namespace::default(),
                prompt_logprobs: false,
                sampling: SamplingParams::default(),
                constraint: None,
                follower: None,
                max_tokens: tokens,
                stop_tokens: Vec::new(),
                remote: None,
                send: None,
                sink: Box::new(Counter { end: end.clone() }),
                streaming: true,
                arrived: now,
                tokenized: now,
            };
            self.next_id += 1;
            self.handle.submit(submission).expect("accepted");
        }
        drop(held);
        for _ in 0..requests {
            let generated = ended.recv_timeout(PATIENCE).expect("all requests end");
            assert_eq!(generated, tokens);
        }
        let full = self.decoded.try_iter().filter(|step| step.requests == requests);
        let mut allocations: Vec<u64> = full.map(|step| step.allocations).skip(1).collect();
        allocations.pop();
        allocations
    }
}

/// The second time around, buffers that are kept from step to step have their size.
fn check(runner: Box<dyn ModelRunner>, requests: usize, tokens: usize, tier: Option<Tier>) {
    let mut rig = Rig::new(runner, requests, tier);
    rig.run(requests, tokens);
    let warm = rig.run(requests, tokens);
    assert!(warm.len() > tokens / 2, "{} steps with all of them", warm.len());
    assert_eq!(warm.iter().sum::<u64>(), 0, "by step: {warm:?}");
}

#[test]
fn allocations_are_counted() {
    let before = ALLOCATIONS.get();
    let words: Vec<String> = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(ALLOCATIONS.get() - before, 3, "{words:?}");
}

fn fake() -> Box<dyn ModelRunner> {
    Box::new(FakeRunner::new(FakeOptions { max_context: 512, ..FakeOptions::default() }))
}

fn llama() -> Box<dyn ModelRunner> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    let loaded = model::load(&models.join("tiny-llama"), LoadOptions::default());
    loaded.expect("the fixture is sound").runner
}

#[test]
fn decoding_allocates_nothing() {
    check(fake(), 24, 400, None);
}

#[test]
fn decoding_with_a_real_model_allocates_nothing() {
    check(llama(), 3, 60, None);
}

/// Copies of the prompts end while they are answered.
#[test]
fn decoding_with_a_host_tier_allocates_nothing() {
    let policies =
        [WritePolicy::WriteThrough, WritePolicy::WriteThroughSelective, WritePolicy::WriteBack];
    for policy in policies {
        check(fake(), 24, 400, Some(Tier { policy, has_bytes: false }));
        check(llama(), 3, 60, Some(Tier { policy, has_bytes: true }));
    }
}
