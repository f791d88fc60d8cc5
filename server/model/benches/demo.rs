//! Tokens per second of a model: one prompt of 512 tokens, then 128 tokens one at a time; also 16
//! requests side by side. `cargo bench -p model --bench demo -- MODEL [THREADS...]`
//!
//! Rounds go through all cases in turn, so that a busy machine disturbs them alike; medians and
//! extremes are printed, per second and per second of processor time.
#![expect(clippy::print_stdout, reason = "this is a command")]

use std::path::Path;

use model::{Batch, LoadOptions, Logits, ModelRunner, PageList, load};
use rustix::time::{ClockId, clock_gettime};
use types::{Clock, PageId, Time, TokenId};

const ROUNDS: usize = 3;
const PREFILL: usize = 512;
const DECODE: usize = 128;
const STREAMS: usize = 16;

/// Tokens that exist in any vocabulary and are not all alike.
fn prompt(len: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId((i * 7 % 487) as u32)).collect()
}

fn pages(stream: usize, tokens: usize) -> Vec<PageId> {
    let count = tokens.div_ceil(16);
    (0..count).map(|page| PageId((stream * count + page) as u32)).collect()
}

/// Seconds by the clock and seconds of processor time, all threads together.
#[derive(Clone, Copy)]
struct Stopwatch {
    clock: Clock,
    wall: Time,
    processor: f64,
}

impl Stopwatch {
    fn start(clock: Clock) -> Self {
        Self { clock, wall: clock.now(), processor: processor_seconds() }
    }

    /// Tokens per second of either kind since the start.
    fn rates(&self, tokens: usize) -> Rates {
        let wall = self.clock.now().since(self.wall).as_secs_f64();
        let processor = processor_seconds() - self.processor;
        Rates { wall: tokens as f64 / wall, processor: tokens as f64 / processor }
    }
}

#[derive(Clone, Copy)]
struct Rates {
    wall: f64,
    processor: f64,
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

struct Case {
    name: &'static str,
    run: fn(&mut dyn ModelRunner, Clock) -> Rates,
    rates: Vec<Rates>,
}

fn prefill(runner: &mut dyn ModelRunner, clock: Clock) -> Rates {
    let mut logits = Logits::new();
    let mut batch = Batch::default();
    batch.push(&prompt(PREFILL), 0, 1, [PageList::whole(&pages(0, PREFILL))]);
    let watch = Stopwatch::start(clock);
    runner.execute(&batch, &mut logits).expect("the batch is good");
    watch.rates(PREFILL)
}

fn decode(runner: &mut dyn ModelRunner, clock: Clock, streams: usize) -> Rates {
    let mut logits = Logits::new();
    let mut batch = Batch::default();
    let length = 16 + DECODE;
    for stream in 0..streams {
        batch.push(&prompt(16), 0, 1, [PageList::whole(&pages(stream, length))]);
    }
    runner.execute(&batch, &mut logits).expect("the batch is good");
    let watch = Stopwatch::start(clock);
    for step in 0..DECODE {
        batch.clear();
        for stream in 0..streams {
            let token = TokenId((step % 400) as u32);
            batch.push(&[token], 16 + step, 1, [PageList::whole(&pages(stream, length))]);
        }
        runner.execute(&batch, &mut logits).expect("the batch is good");
    }
    watch.rates(streams * DECODE)
}

fn measure(path: &Path, threads: usize, clock: Clock) {
    let watch = Stopwatch::start(clock);
    let options = LoadOptions { threads, ..LoadOptions::default() };
    let mut loaded = load(path, options).unwrap_or_else(|error| panic!("{error}"));
    println!("{threads} threads, loaded in {:.2} s", 1.0 / watch.rates(1).wall);
    for kernel in &loaded.spec.kernels {
        println!("  {} {}: {}", kernel.op, kernel.format, kernel.kernel);
    }
    loaded.runner.allocate(&[STREAMS * 16]).expect("small");
    let case = |name, run| Case { name, run, rates: Vec::new() };
    let mut cases = [
        case("prefill 512", prefill),
        case("decode 128", |runner, clock| decode(runner, clock, 1)),
        case("decode 128, 16 streams", |runner, clock| decode(runner, clock, STREAMS)),
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            case.rates.push((case.run)(&mut *loaded.runner, clock));
        }
    }
    for case in &cases {
        print!("{:24}", case.name);
        show("tok/s", case.rates.iter().map(|rates| rates.wall).collect());
        show("tok/CPU-s", case.rates.iter().map(|rates| rates.processor).collect());
        println!();
    }
}

fn show(unit: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (low, median, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
    print!(" {median:8.1} {unit} ({low:.1} to {high:.1})");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let Some((path, threads)) = arguments.split_first() else {
        println!("give a model: cargo bench -p model --bench demo -- MODEL [THREADS...]");
        return;
    };
    let threads: Vec<usize> = threads.iter().filter_map(|n| n.parse().ok()).collect();
    let clock = Clock::start();
    for threads in if threads.is_empty() { vec![1, 2] } else { threads } {
        measure(Path::new(path), threads, clock);
    }
}
