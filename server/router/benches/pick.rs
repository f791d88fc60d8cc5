//! Cost of choosing a worker: `cargo bench -p router`.
//!
//! 64 workers that tell their load, 10,000 prompts remembered of 60,000 bytes each, half of which
//! is the same in groups of 100. `route` is all of a request's choice: hashing the prompt, finding
//! it at all workers, the policy, the counts, and remembering it. `retry` is what a refused request
//! costs beside. Allocations are counted too: they do not grow with the workers.

use std::time::Duration;

use divan::{AllocProfiler, Bencher, black_box};
use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use router::{
    Answer, Attempt, Config, Core, Failure, FailureKind, PolicyKind, PrefixConfig, Request, Source,
    WorkerName, WorkerRole, WorkerSpec,
};
use types::Time;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const PROMPTS: u64 = 10_000;
const BYTES: usize = 60_000;

fn main() {
    divan::main();
}

fn prompt(number: u64) -> Vec<u8> {
    let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut prompt = spread(number / 100).repeat(BYTES / 16);
    prompt.extend(spread(number + PROMPTS).repeat(BYTES / 16));
    prompt
}

fn request(prompt: &[u8]) -> Request<'_> {
    Request { model: "m", prompt, namespace: "", repeatable: true }
}

fn report(queued: u64) -> LoadReport {
    LoadReport {
        instance_id: "1".into(),
        role: LoadRole::Unified,
        model: "m".into(),
        fingerprint: "f".into(),
        state: LoadState::Ready,
        queued: LoadQueued { requests: 1, tokens: queued, uncached_tokens: queued },
        limits: LoadLimits { requests: 64, tokens: 100_000, drain_ms: 30_000 },
        drain_ms: queued / 3,
        prefill_rate: 3000.0,
        running: 4,
        running_limit: 64,
        free_tokens: 1 << 20,
        place_ms: None,
        peers_up: None,
    }
}

/// A core with `workers` workers that remembers all prompts.
fn core(policy: PolicyKind, workers: usize) -> Core {
    let prefixes = PrefixConfig { bytes_max: 256 << 20, pieces_per_worker: 1 << 20 };
    let mut core = Core::new(Config { policy, prefixes, ..Config::default() }, 1);
    let spec = |at: usize| WorkerSpec {
        name: WorkerName::new(format!("10.0.0.{at}:8000")),
        base: format!("http://10.0.0.{at}:8000").into(),
        role: WorkerRole::Unified,
        model: None,
    };
    let specs: Vec<WorkerSpec> = (0..workers).map(spec).collect();
    core.relist(Source::Flags, &specs).expect("they are few");
    for (at, spec) in specs.iter().enumerate() {
        let poll = core.poll_began(&spec.name, Time::ZERO).expect("it is listed");
        let load = Box::new(report(1000 + at as u64));
        core.poll_ended(&poll, Ok(Answer::Load(load)), Time::ZERO);
    }
    for number in 0..PROMPTS {
        core.route(&request(&prompt(number)), &mut Attempt::new(), Time::ZERO).expect("ready");
    }
    core
}

#[divan::bench(args = PolicyKind::ALL, sample_count = 50, sample_size = 50)]
fn route(bencher: Bencher<'_, '_>, policy: PolicyKind) {
    measure(bencher, core(policy, 64));
}

#[divan::bench(args = [1, 4, 16, 64, 256], sample_count = 50, sample_size = 50)]
fn route_by_workers(bencher: Bencher<'_, '_>, workers: usize) {
    measure(bencher, core(PolicyKind::CacheAware, workers));
}

fn measure(bencher: Bencher<'_, '_>, mut core: Core) {
    let mut number = 0;
    let prompts: Vec<Vec<u8>> = (0..500).map(|at| prompt(at * 19)).collect();
    bencher.bench_local(|| {
        number += 1;
        let prompt = &prompts[number % prompts.len()];
        let route = core.route(&request(black_box(prompt)), &mut Attempt::new(), Time::ZERO);
        drop(black_box(route));
    });
}

#[divan::bench(sample_count = 50, sample_size = 50)]
fn retry(bencher: Bencher<'_, '_>) {
    let mut core = core(PolicyKind::CacheAware, 64);
    let prompt = prompt(7);
    let asked = request(&prompt);
    let kind = FailureKind::Rejected { status: 429, retry_after: Some(Duration::ZERO) };
    let failure = Failure { kind, by_prefill: false, answer_begun: false };
    bencher.bench_local(|| {
        let mut attempt = Attempt::new();
        let route = core.route(&asked, &mut attempt, Time::ZERO).expect("ready");
        drop(black_box(core.failed(route, failure, &asked, &mut attempt, Time::ZERO)));
    });
}
