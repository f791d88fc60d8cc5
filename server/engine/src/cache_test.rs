//! The prefix cache through the engine, with real models: what is answered never depends on it, and
//! it saves what it should.

mod host;
mod pair;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{AdmissionController, Limits};
use kv_cache::{HostTier, Namespace, WritePolicy};
use memory_pool::{CopyEngine, CopyHook, HostMemory, HostOptions, PageBytes};
use model::{LoadOptions, Loaded, SamplingParams, load};
use types::{Priority, RequestId, Time, TokenId};

use crate::step::{Core, Turn};
use crate::{
    EngineConfig, Handle, Observer, Outcome, PromptLogprob, RequestEnd, Scheduling, Sink,
    StepStats, Submission, TimeSource, TokenEvent, Verdict, prepare,
};

const PAGE_TOKENS: usize = 4;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was heard of one request: tokens with the bits of their log-probabilities, those of the
/// prompt, and the end.
#[derive(Debug, Default, Clone)]
struct Heard {
    answer: Vec<(TokenId, u32)>,
    prompt: Vec<u32>,
    end: Option<RequestEnd>,
}

type Book = Arc<Mutex<BTreeMap<u64, Heard>>>;

struct Ear(u64, Book);

impl Ear {
    fn note(&self, write: impl FnOnce(&mut Heard)) {
        write(self.1.lock().expect("one thread").entry(self.0).or_default());
    }
}

impl Sink for Ear {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        let logprob = event.logprob.expect("asked for").to_bits();
        self.note(|heard| heard.answer.push((event.token, logprob)));
        Verdict::Continue
    }

    fn prompt_logprob(&mut self, event: &PromptLogprob<'_>) -> Verdict {
        self.note(|heard| heard.prompt.push(event.logprob.to_bits()));
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        self.note(|heard| heard.end = Some(end.clone()));
    }
}

/// Sums of what the steps told.
#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    computed: u64,
    cached: u64,
    /// Those that a prefill worker has sent.
    remote: u64,
    /// Of the cached ones, those that came from the host.
    loaded: u64,
    recomputed: u64,
    preemptions: u64,
}

struct Sums(Arc<Mutex<Totals>>);

impl Observer for Sums {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let mut sums = self.0.lock().expect("one thread");
        sums.computed += stats.prompt_tokens;
        sums.cached += stats.cached_device_tokens + stats.cached_host_tokens;
        sums.loaded += stats.cached_host_tokens;
        sums.remote += stats.cached_remote_tokens;
        sums.recomputed += stats.recomputed_tokens;
        sums.preemptions += stats.preemptions.requests();
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

/// Time that only a test moves, in nanoseconds.
#[derive(Clone, Default)]
struct Still(Arc<AtomicU64>);

impl Still {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl TimeSource for Still {
    fn now(&mut self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    fn modelled(&mut self, _: Duration) {}
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    model: &'static str,
    /// Tokens of a page; texts grow with them.
    page_tokens: usize,
    cache: bool,
    pages: usize,
    /// Pages of the host tier; 0: there is none.
    host: usize,
    policy: WritePolicy,
    chunk: usize,
    max_running: usize,
}

struct Rig {
    core: Core,
    handle: Handle,
    admission: Arc<AdmissionController>,
    book: Book,
    sums: Arc<Mutex<Totals>>,
    time: Still,
    next: u64,
    /// The bytes of its pages.
    pages: Arc<dyn PageBytes>,
}

fn loaded(setup: &Setup) -> Loaded {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    let options = LoadOptions { page_tokens: Some(setup.page_tokens), ..LoadOptions::default() };
    load(&path.join(setup.model), options).expect("a fixture")
}

impl Rig {
    fn new(setup: Setup) -> Self {
        Self::with_hook(setup, Arc::new(|_| {}))
    }

    /// With a host tier whose copies pass `hook`.
    fn with_hook(setup: Setup, hook: CopyHook) -> Self {
        let loaded = loaded(&setup);
        let config = EngineConfig {
            max_running: setup.max_running,
            max_batch_tokens: 4 * setup.chunk + setup.max_running,
            prefill_chunk: setup.chunk,
            pool_pages: vec![setup.pages; loaded.spec.pools.len()],
            max_submissions: 100,
            prefix_cache: setup.cache,
            host: None,
            retention: kv_cache::Retention::default(),
            hit_curve: None,
            scheduling: Scheduling::default(),
            seed: 0,
        };
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let admission = AdmissionController::new(limits, 1.0);
        let sums = Arc::new(Mutex::new(Totals::default()));
        let mut prepared = prepare(config, loaded.runner, None).expect("good bounds");
        if setup.host > 0 {
            let pages = vec![setup.host; loaded.spec.pools.len()];
            let parts = loaded.spec.part_layouts(&pages);
            let memory = HostMemory::allocate(&parts, HostOptions::default(), &mut |_| {});
            let memory = Arc::new(memory.expect("room"));
            let devices = prepared.runner.memories().to_vec();
            let copier = CopyEngine::with_hook(devices, memory, 100, hook);
            prepared.copier = Some(Box::new(copier));
            prepared.config.host = Some(HostTier {
                pages,
                policy: setup.policy,
                load_back_threshold: HostTier::LOAD_BACK_THRESHOLD,
                storage: false,
            });
            prepared.config.check(&loaded.spec).expect("good bounds");
        }
        let bytes = prepared.page_bytes().expect("a real model has bytes");
        let (observer, time) = (Box::new(Sums(Arc::clone(&sums))), Still::default());
        let (core, handle) =
            prepared.into_core(Arc::clone(&admission), observer, Box::new(time.clone()));
        let (book, next, pages) = (Book::default(), 0, bytes);
        Self { core, handle, admission, book, sums, time, next, pages }
    }

    fn submit(&mut self, prompt: &[TokenId], max_tokens: usize, salt: Option<&str>) -> u64 {
        self.submit_scored(prompt, max_tokens, salt, false)
    }

    fn submit_scored(
        &mut self,
        prompt: &[TokenId],
        max_tokens: usize,
        salt: Option<&str>,
        prompt_logprobs: bool,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let submission = self.submission(id, prompt, max_tokens, salt);
        let submission = Submission { prompt_logprobs, ..submission };
        self.handle.submit(submission).expect("accepted");
        id
    }

    fn submission(
        &self,
        id: u64,
        prompt: &[TokenId],
        max_tokens: usize,
        salt: Option<&str>,
    ) -> Submission {
        let namespace = Namespace::new(None, salt);
        let permit = self.admission.try_admit(Priority::NORMAL, Time::ZERO).expect("no bounds");
        let cached = self.handle.cached_prefix(&namespace, prompt);
        let permit = permit.charge_cached(prompt.len() as u64, cached as u64, Time::ZERO);
        let sampling = SamplingParams { logprobs: Some(2), ..SamplingParams::default() };
        Submission {
            id: RequestId(id),
            permit: permit.expect("no bounds"),
            prompt: prompt.to_vec(),
            tenant: None,
            namespace,
            prompt_logprobs: false,
            sampling,
            constraint: None,
            follower: None,
            max_tokens,
            stop_tokens: Vec::new(),
            remote: None,
            send: None,
            sink: Box::new(Ear(id, Arc::clone(&self.book))),
            streaming: false,
            arrived: Time::ZERO,
            tokenized: Time::ZERO,
        }
    }

    fn run(&mut self) {
        loop {
            match self.core.turn() {
                Turn::Worked => {}
                Turn::Idle if self.core.scheduler.is_empty() => break,
                // Pages that are being copied are not to be had before they are.
                Turn::Idle => self.core.rest(PATIENCE),
                Turn::Ended => panic!("{:?}", self.handle.snapshot().failure),
            }
        }
        // Copies that nobody waits for.
        while self.pending() > 0 {
            self.core.rest(PATIENCE);
            assert_eq!(self.core.turn(), Turn::Idle);
        }
    }

    /// Copies that have not ended.
    fn pending(&self) -> usize {
        let copies = self.handle.snapshot().copies;
        copies.pending_backups + copies.pending_loads
    }

    fn heard(&self, id: u64) -> Heard {
        self.book.lock().expect("one thread")[&id].clone()
    }

    fn cached(&self, id: u64) -> usize {
        self.heard(id).end.expect("it has ended").cached_tokens
    }

    fn sums(&self) -> Totals {
        *self.sums.lock().expect("one thread")
    }
}

fn prompt(seed: u32, tokens: usize) -> Vec<TokenId> {
    let token = |at: u32| (at.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 7;
    (0..tokens as u32).map(|at| TokenId(token(at + 1) % 500)).collect()
}

/// Shared beginnings, bursts, further turns, and more than the pool holds at once; the answers.
fn conversations(setup: Setup) -> (Vec<Heard>, Totals) {
    let mut rig = Rig::new(setup);
    let scale = (setup.page_tokens / PAGE_TOKENS).div_ceil(2);
    let prompt = |seed: u32, tokens: usize| prompt(seed, tokens * scale);
    let system = prompt(1, 37);
    let mut histories: Vec<Vec<TokenId>> = Vec::new();
    for user in 0..3 {
        histories.push([&system[..], &prompt(10 + user, 5 + user as usize)].concat());
    }
    for turn in 0..3 {
        let ids: Vec<u64> = histories.iter().map(|text| rig.submit(text, 30, None)).collect();
        // The same once more, as for two answers, and by somebody who does not share.
        rig.submit(&histories[0], 9, None);
        rig.submit(&histories[0], 9, Some("private"));
        rig.run();
        for (history, id) in histories.iter_mut().zip(ids) {
            history.extend(rig.heard(id).answer.iter().map(|(token, _)| *token));
            history.extend(prompt(100 + turn, 6));
        }
    }
    let heard = (0..rig.next).map(|id| rig.heard(id)).collect();
    (heard, rig.sums())
}

const LLAMA: Setup = Setup {
    model: "tiny-llama",
    page_tokens: PAGE_TOKENS,
    cache: true,
    pages: 400,
    host: 0,
    policy: WritePolicy::WriteThrough,
    chunk: 16,
    max_running: 8,
};

#[test]
fn answers_are_equal_bit_for_bit_with_and_without_the_cache() {
    for model in ["tiny-llama", "tiny-qwen3", "tiny-gemma3"] {
        let roomy = Setup { model, cache: false, chunk: 64, ..LLAMA };
        let (expected, plain) = conversations(roomy);
        assert_eq!(plain.cached, 0);
        for (chunk, pages, cache) in
            [(64, 400, true), (7, 400, true), (7, 60, true), (7, 60, false), (64, 44, true)]
        {
            let setup = Setup { cache, pages, chunk, ..roomy };
            let (found, sums) = conversations(setup);
            for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.answer, expected.answer, "request {id} of {setup:?}");
                let end = found.end.as_ref().expect("it has ended");
                assert_eq!(end.outcome, Outcome::Length);
                assert!(end.cached_tokens < end.prompt_tokens);
            }
            assert_eq!(sums.cached > 0, cache, "{setup:?}: {sums:?}");
            assert_eq!(sums.preemptions > 0, pages < 400, "{setup:?}: {sums:?}");
            assert_eq!(sums.computed + sums.cached, plain.computed, "{setup:?}: {sums:?}");
        }
    }
}

#[test]
fn a_turn_computes_only_what_is_new() {
    let mut rig = Rig::new(LLAMA);
    let mut text = prompt(3, 40);
    let first = rig.submit(&text, 10, None);
    rig.run();
    assert_eq!((rig.cached(first), rig.sums().computed), (0, 40));
    let again = rig.submit(&text, 1, None);
    rig.run();
    assert_eq!((rig.cached(again), rig.sums().computed), (36, 44));
    // 49 tokens are computed, 48 of them in whole pages.
    text.extend(rig.heard(first).answer.iter().map(|(token, _)| *token));
    text.extend(prompt(4, 5));
    let turn = rig.submit(&text, 1, None);
    rig.run();
    assert_eq!((rig.cached(turn), rig.sums().computed), (48, 51));
    let stranger = rig.submit(&text, 1, Some("salt"));
    rig.run();
    assert_eq!(rig.cached(stranger), 0);
    assert_eq!(rig.sums().recomputed, 0);
}

#[test]
fn a_burst_computes_its_common_beginning_once() {
    let mut rig = Rig::new(LLAMA);
    let common = prompt(5, 80);
    let ids: Vec<u64> = (0..6)
        .map(|own| rig.submit(&[&common[..], &prompt(20 + own, 3)].concat(), 4, None))
        .collect();
    rig.run();
    let cached: Vec<usize> = ids.iter().map(|id| rig.cached(*id)).collect();
    assert_eq!(cached, [0, 80, 80, 80, 80, 80]);
    assert_eq!(rig.sums().computed, 83 + 5 * 3);
}

#[test]
fn whoever_waited_for_an_aborted_request_computes_itself() {
    let mut rig = Rig::new(LLAMA);
    let text = prompt(6, 80);
    let (first, second) = (rig.submit(&text, 4, None), rig.submit(&text, 4, None));
    rig.core.turn();
    rig.core.turn();
    rig.handle.abort(RequestId(first), crate::AbortReason::ClientGone);
    rig.run();
    assert_eq!(rig.cached(second), 32, "two chunks were there");
    assert_eq!(rig.sums().computed, 80);
}

#[test]
fn a_scored_prompt_is_computed_whole_and_shared_with_others() {
    let mut rig = Rig::new(LLAMA);
    let text = prompt(7, 40);
    let scored = rig.submit_scored(&text, 2, None, true);
    rig.run();
    let again = rig.submit_scored(&text, 2, None, true);
    rig.run();
    let plain = rig.submit(&text, 2, None);
    rig.run();
    assert_eq!((rig.cached(scored), rig.cached(again), rig.cached(plain)), (0, 0, 36));
    let (scored, again, plain) = (rig.heard(scored), rig.heard(again), rig.heard(plain));
    assert_eq!(scored.prompt.len(), 39);
    assert_eq!(scored.prompt, again.prompt);
    assert_eq!((&scored.answer, &scored.answer), (&again.answer, &plain.answer));
}

#[test]
fn only_uncached_tokens_are_pending() {
    let mut rig = Rig::new(Setup { max_running: 1, ..LLAMA });
    let text = prompt(8, 40);
    rig.submit(&text, 1, None);
    rig.run();
    rig.submit(&prompt(9, 40), 30, None);
    rig.core.turn();
    rig.submit(&text, 1, None);
    rig.core.turn();
    let queue = rig.admission.snapshot(Time::ZERO);
    // 8 of the running prompt are left after two chunks of 16; 4 of the waiting one.
    assert_eq!((queue.pending_tokens, queue.pending_uncached_tokens), (8 + 40, 8 + 4));
    rig.run();
    let queue = rig.admission.snapshot(Time::ZERO);
    assert_eq!((queue.pending_tokens, queue.pending_uncached_tokens), (0, 0));
}
