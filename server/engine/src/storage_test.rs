//! Storage behind the host tier, through the whole engine on virtual time: pages that outlive an
//! engine save the next one work, and whatever the storage does, answers are right, nobody waits
//! longer than the policy says, and no page is lost. A witness computes: any row that is not what
//! it should be fails its step.
//!
//! `SIGHTLINE_STORAGE_SEED=n` runs seed `n` alone.

mod fake;
mod random;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{AdmissionController, Limits};
use kv_cache::{HostTier, Namespace, Retention, WritePolicy};
use memory_pool::{HostMemory, HostOptions};
use model::{FakeOptions, ModelRunner, SamplingParams};
use types::{Priority, RequestId, Time, TokenId};

use crate::copier::NoBytes;
use crate::dice::Dice;
use crate::step::{Core, Turn};
use crate::storage::{PrefetchPolicy, PrefetchTimeout, StorageStats};
use crate::witness::Witness;
use crate::{
    AbortReason, EngineConfig, Handle, Observer, Outcome, RequestEnd, Scheduling, Sink, StepStats,
    Submission, TimeSource, TokenEvent, Verdict, prepare,
};
use fake::{Disk, FakeStorage, Faults, Mover, Shared};

const PAGE_TOKENS: usize = 4;

/// Time that only the test moves.
#[derive(Debug, Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn read(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    fn pass(&self, millis: u64) {
        self.0.fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

impl TimeSource for Hand {
    fn now(&mut self) -> Time {
        self.read()
    }

    fn modelled(&mut self, _: Duration) {}
}

/// What was heard of a request.
#[derive(Debug, Default, Clone)]
struct Heard {
    answer: Vec<TokenId>,
    started: Option<Time>,
    end: Option<RequestEnd>,
}

type Book = Arc<Mutex<BTreeMap<u64, Heard>>>;

struct Ear(u64, Book);

impl Sink for Ear {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        let mut book = self.1.lock().expect("one thread");
        let heard = book.entry(self.0).or_default();
        heard.answer.push(event.token);
        heard.started.get_or_insert(event.now);
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        let mut book = self.1.lock().expect("one thread");
        let before = book.entry(self.0).or_default().end.replace(end.clone());
        assert!(before.is_none(), "request {} ended twice", self.0);
    }
}

/// Prompt tokens by where they came from.
#[derive(Debug, Default, Clone, Copy)]
struct Sources {
    computed: u64,
    device: u64,
    host: u64,
    storage: u64,
}

struct Sums(Arc<Mutex<Sources>>);

impl Observer for Sums {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let mut sums = self.0.lock().expect("one thread");
        sums.computed += stats.prompt_tokens;
        sums.device += stats.cached_device_tokens;
        sums.host += stats.cached_host_tokens;
        sums.storage += stats.cached_storage_tokens;
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    window: Option<usize>,
    device_pages: usize,
    host_pages: usize,
    /// Of a pool with a window on the device, and twice as many on the host; `None`: as the others.
    window_pages: Option<usize>,
    policy: PrefetchPolicy,
}

const ROOMY: Setup = Setup {
    window: None,
    device_pages: 200,
    host_pages: 400,
    window_pages: None,
    policy: PrefetchPolicy::WaitComplete,
};

/// One engine in front of a disk.
struct Life {
    core: Core,
    handle: Handle,
    admission: Arc<AdmissionController>,
    time: Hand,
    disk: Shared,
    book: Book,
    sums: Arc<Mutex<Sources>>,
    options: FakeOptions,
    texts: BTreeMap<u64, Vec<TokenId>>,
    next: u64,
}

impl Life {
    fn new(setup: Setup, disk: &Shared) -> Self {
        let options = FakeOptions {
            page_tokens: PAGE_TOKENS,
            window: setup.window,
            eos: Vec::new(),
            ..FakeOptions::default()
        };
        let witness = Witness::new(options.clone());
        let pools = witness.spec().pools.len();
        let sizes = |pages, windows: Option<usize>| {
            let mut sizes = vec![pages; pools];
            sizes[1..].fill(windows.unwrap_or(pages));
            sizes
        };
        let host_pages = sizes(setup.host_pages, setup.window_pages.map(|pages| 2 * pages));
        let parts = witness.spec().part_layouts(&host_pages);
        let host = HostMemory::allocate(&parts, HostOptions::default(), &mut |_| {});
        let host = Arc::new(host.expect("a little memory"));
        disk.lock().expect("one thread").attach(Arc::clone(&host));
        let config = EngineConfig {
            max_running: 4,
            max_batch_tokens: 64,
            prefill_chunk: 32,
            pool_pages: sizes(setup.device_pages, setup.window_pages),
            max_submissions: 1000,
            prefix_cache: true,
            host: Some(HostTier {
                pages: host_pages,
                policy: WritePolicy::WriteThrough,
                load_back_threshold: 8,
                storage: true,
            }),
            retention: Retention::All,
            hit_curve: None,
            scheduling: Scheduling::default(),
            seed: 0,
        };
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let (time, sums) = (Hand::default(), Arc::<Mutex<Sources>>::default());
        let admission = AdmissionController::new(limits, 1000.0);
        let device = witness.bytes();
        let prepared = prepare(config, Box::new(witness), Some(Arc::clone(&host)));
        let mut prepared = prepared.expect("good bounds");
        prepared.copier = Some(Box::new(NoBytes::new(Some(Arc::new(Mover { device, host })))));
        let storage = Box::new(FakeStorage(Arc::clone(disk)));
        let prepared = prepared.with_storage(storage, setup.policy).expect("there is a tier");
        let observer = Box::new(Sums(Arc::clone(&sums)));
        let (core, handle) =
            prepared.into_core(Arc::clone(&admission), observer, Box::new(time.clone()));
        let (disk, book, texts) = (Arc::clone(disk), Book::default(), BTreeMap::new());
        Self { core, handle, admission, time, disk, book, sums, options, texts, next: 0 }
    }

    fn submit(&mut self, prompt: &[TokenId], answer: usize, salt: Option<&str>) -> u64 {
        self.submit_as(prompt, answer, salt, false)
    }

    fn submit_as(
        &mut self,
        prompt: &[TokenId],
        answer: usize,
        salt: Option<&str>,
        prompt_logprobs: bool,
    ) -> u64 {
        let (id, now) = (self.next, self.time.read());
        self.next += 1;
        let permit = self.admission.try_admit(Priority::NORMAL, now).expect("no bounds");
        let permit = permit.charge(prompt.len() as u64, now).expect("no bounds");
        let submission = Submission {
            id: RequestId(id),
            permit,
            prompt: prompt.to_vec(),
            tenant: None,
            namespace: Namespace::new(None, salt),
            prompt_logprobs,
            sampling: SamplingParams::default(),
            constraint: None,
            follower: None,
            max_tokens: answer,
            stop_tokens: Vec::new(),
            remote: None,
            send: None,
            sink: Box::new(Ear(id, Arc::clone(&self.book))),
            streaming: false,
            arrived: now,
            tokenized: now,
        };
        self.handle.submit(submission).expect("accepted");
        self.texts.insert(id, prompt.to_vec());
        id
    }

    /// One turn of the engine and of the disk, and 1 ms.
    fn turn(&mut self) -> Turn {
        let turn = self.core.turn();
        let depth = self.admission.snapshot(self.time.read()).requests;
        assert_eq!(depth, self.core.scheduler.waiting.len(), "permits are the depth");
        let stats = self.stats();
        assert!(stats.reading + stats.queued <= self.core.scheduler.waiting.len(), "{stats:?}");
        self.disk.lock().expect("one thread").tick();
        self.time.pass(1);
        turn
    }

    fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Turns until no request is left.
    fn until_ended(&mut self) {
        self.turn();
        while !self.core.scheduler.is_empty() {
            self.turn();
        }
    }

    /// Turns until no request is left and nothing is on its way to the disk.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            let idle = self.turn() == Turn::Idle && self.core.scheduler.is_empty();
            if idle && self.core.flushed && self.disk.lock().expect("ours").open() == 0 {
                return;
            }
        }
        panic!("requests do not end: {:?}", self.stats());
    }

    /// Drains, and checks what must hold then.
    fn end(mut self) -> (Sources, StorageStats) {
        self.handle.drain(self.time.read() + Duration::from_secs(3600));
        for _ in 0.. {
            if self.turn() == Turn::Ended {
                break;
            }
            assert!(self.time.read() < Time::ZERO + Duration::from_secs(600), "it does not end");
        }
        let stats = self.stats();
        assert_eq!((stats.reading, stats.queued, stats.backups), (0, 0, 0), "{stats:?}");
        self.check_answers();
        let pools = &self.core.scheduler.pools;
        pools.flush();
        for pool in pools.stats() {
            let used = (pool.used_active.0, pool.used_cached.0);
            assert_eq!(used, (0, 0), "device pages of {}", pool.name);
        }
        for pool in pools.host_stats().expect("there is a tier") {
            let used = (pool.used_active.0, pool.used_cached.0);
            assert_eq!(used, (0, 0), "host pages of {}", pool.name);
        }
        let sums = *self.sums.lock().expect("one thread");
        (sums, stats)
    }

    fn check_answers(&self) {
        let book = self.book.lock().expect("one thread");
        assert_eq!(book.len(), self.texts.len(), "every request ends");
        for (id, heard) in book.iter() {
            let end = heard.end.as_ref().expect("it has ended");
            assert!(
                matches!(end.outcome, Outcome::Length | Outcome::Aborted(_)),
                "request {id}: {end:?}"
            );
            let mut text = self.texts[id].clone();
            let mut row = vec![0.0; self.options.vocab];
            for token in &heard.answer {
                Witness::answer(&self.options, Witness::text(&text), &mut row);
                let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
                assert_eq!(best, Some(token.index()), "request {id}");
                text.push(*token);
            }
        }
    }

    fn stats(&self) -> StorageStats {
        self.core.scheduler.storage.as_ref().expect("there is one").stats()
    }

    fn heard(&self, id: u64) -> Heard {
        self.book.lock().expect("one thread")[&id].clone()
    }

    fn cached(&self, id: u64) -> usize {
        self.heard(id).end.expect("it has ended").cached_tokens
    }
}

fn text(seed: u64, tokens: usize) -> Vec<TokenId> {
    let mut dice = Dice::new(seed);
    (0..tokens).map(|_| TokenId(dice.below(200) as u32)).collect()
}

/// A disk with the pages of a prompt of `tokens` tokens, and the prompt.
fn kept(setup: Setup, tokens: usize) -> (Shared, Vec<TokenId>) {
    let disk = Disk::new(Dice::new(1), Faults::default());
    let prompt = text(7, tokens);
    let mut first = Life::new(setup, &disk);
    first.submit(&prompt, 3, None);
    first.settle();
    first.end();
    assert!(disk.lock().expect("ours").kept() >= tokens / PAGE_TOKENS);
    (disk, prompt)
}

#[test]
fn the_next_engine_takes_what_the_first_one_kept() {
    for window in [None, Some(10)] {
        let (disk, prompt) = kept(Setup { window, ..ROOMY }, 82);
        let mut life = Life::new(Setup { window, ..ROOMY }, &disk);
        let id = life.submit(&prompt, 5, None);
        // Who has other texts finds nothing, and somebody else's are not found.
        life.submit(&text(8, 40), 5, None);
        let salted = life.submit(&prompt, 5, Some("salt"));
        life.settle();
        assert_eq!((life.cached(id), life.cached(salted)), (80, 0));
        let (sums, stats) = life.end();
        assert_eq!((sums.storage, sums.host, sums.device), (80, 0, 0), "{stats:?}");
        assert_eq!((stats.lookups, stats.found), (3, 1), "{stats:?}");
        assert_eq!((stats.asked_pages, stats.arrived_pages, stats.entered_pages), (20, 20, 20));
    }
}

#[test]
fn requests_with_one_prompt_read_its_pages_once() {
    let (disk, prompt) = kept(ROOMY, 100);
    let mut life = Life::new(ROOMY, &disk);
    let longer = [&prompt[..60], &text(9, 30)[..]].concat();
    let ids: Vec<u64> = (0..5).map(|_| life.submit(&prompt, 2, None)).collect();
    let other = life.submit(&longer, 2, None);
    life.turn();
    assert_eq!((life.stats().reading, life.stats().queued), (1, 5));
    life.settle();
    assert!(ids.iter().all(|id| life.cached(*id) >= 96), "{:?}", life.book);
    assert_eq!(life.cached(other), 60);
    let (_, stats) = life.end();
    assert_eq!(disk.lock().expect("ours").read, 24, "{stats:?}");
}

#[test]
fn a_storage_that_hangs_costs_the_bound_and_others_nothing() {
    let (disk, prompt) = kept(ROOMY, 100);
    disk.lock().expect("ours").faults.slow = 1000;
    let timeout = PrefetchTimeout {
        base: Duration::from_millis(100),
        per_ki_tokens: Duration::ZERO,
        max: Duration::from_secs(1),
    };
    let setup = Setup { policy: PrefetchPolicy::Timeout(timeout), ..ROOMY };
    let mut life = Life::new(setup, &disk);
    let (waits, short) = (life.submit(&prompt, 2, None), life.submit(&text(3, 7), 2, None));
    life.until_ended();
    let started = |id| life.heard(id).started.expect("it started").since(Time::ZERO).as_millis();
    assert!(started(short) < 5, "{}", started(short));
    assert!((100..110).contains(&started(waits)), "{}", started(waits));
    assert_eq!((life.cached(waits), life.stats().timeouts), (0, 1));
    // Nor do requests wait where the policy is not to.
    let mut eager = Life::new(Setup { policy: PrefetchPolicy::BestEffort, ..ROOMY }, &disk);
    let id = eager.submit(&prompt, 2, None);
    eager.until_ended();
    let started = eager.heard(id).started.expect("it started").since(Time::ZERO);
    assert!(started < Duration::from_millis(8), "{started:?}");
}

#[test]
fn what_came_in_time_is_used() {
    let (disk, prompt) = kept(ROOMY, 100);
    let timeout = PrefetchTimeout {
        base: Duration::from_millis(12),
        per_ki_tokens: Duration::ZERO,
        max: Duration::from_secs(1),
    };
    let mut life = Life::new(Setup { policy: PrefetchPolicy::Timeout(timeout), ..ROOMY }, &disk);
    // One page in each turn.
    let id = life.submit(&prompt, 2, None);
    life.settle();
    assert!((20..60).contains(&life.cached(id)), "{}", life.cached(id));
    let (sums, stats) = life.end();
    assert_eq!(sums.storage, stats.entered_pages * PAGE_TOKENS as u64);
    assert_eq!((stats.timeouts, stats.asked_pages), (1, 24), "{stats:?}");
}

#[test]
fn what_was_computed_meanwhile_does_not_count_as_stored() {
    let (disk, prompt) = kept(ROOMY, 97);
    let mut life = Life::new(ROOMY, &disk);
    // One page in each turn.
    let id = life.submit(&prompt, 2, None);
    life.turns(4);
    assert_eq!(life.stats().reading, 1);
    // Who has the scores of a prompt takes nothing from storage, and does not wait for who does.
    let other = life.submit_as(&prompt[..41], 2, None, true);
    life.settle();
    assert!(life.heard(other).started < life.heard(id).started);
    assert_eq!((life.cached(other), life.cached(id)), (0, 96));
    let (sums, stats) = life.end();
    assert_eq!((stats.arrived_pages, stats.entered_pages), (24, 14), "{stats:?}");
    assert_eq!((sums.device, sums.host, sums.storage), (40, 0, 56));
}

#[test]
fn pages_that_lost_their_window_alone_get_it_from_storage() {
    let setup = Setup { window: Some(10), window_pages: Some(48), ..ROOMY };
    let mut life = Life::new(setup, &Disk::new(Dice::new(1), Faults::default()));
    let prompt = text(7, 82);
    for tokens in (7..14).map(|seed| text(seed, 82)) {
        life.submit(&tokens, 3, None);
        life.settle();
    }
    let id = life.submit(&prompt, 3, None);
    life.settle();
    assert_eq!(life.cached(id), 80, "{:?}", life.stats());
    let (sums, stats) = life.end();
    // Three pages have a part of the window; the rest of them is where it was.
    assert_eq!((stats.found, stats.arrived_pages, stats.entered_pages), (1, 3, 0), "{stats:?}");
    assert_eq!((sums.storage, sums.host), (0, 80), "{stats:?}");
}

#[test]
fn an_abort_lets_go_of_its_pages_and_those_behind_read_on() {
    let (disk, prompt) = kept(ROOMY, 100);
    let mut life = Life::new(ROOMY, &disk);
    let first = life.submit(&prompt, 2, None);
    let second = life.submit(&prompt, 2, None);
    life.turns(5);
    assert_eq!((life.stats().reading, life.stats().queued), (1, 1));
    life.handle.abort(RequestId(first), AbortReason::ClientGone);
    life.settle();
    assert!(life.cached(second) >= 96);
    let (_, stats) = life.end();
    assert_eq!(stats.lookups, 2);
}
