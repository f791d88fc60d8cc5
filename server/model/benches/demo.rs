//! Tokens per second of a model: one prompt of 512 tokens, then 128 tokens one at a time; also 16
//! requests side by side. `cargo bench -p model --bench demo -- MODEL [THREADS...]`
//!
//! Rounds go through all cases in turn, so that a busy machine disturbs them alike; medians and
//! extremes are printed.
#![expect(clippy::print_stdout, reason = "this is a command")]

use std::path::{Path, PathBuf};

use model::{Batch, LoadOptions, Logits, ModelRunner, load};
use types::{Clock, PageId, TokenId};

const ROUNDS: usize = 5;
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

struct Case {
    name: &'static str,
    run: fn(&mut dyn ModelRunner, &Clock) -> f64,
    rates: Vec<f64>,
}

fn prefill(runner: &mut dyn ModelRunner, clock: &Clock) -> f64 {
    let mut logits = Logits::new();
    let mut batch = Batch::default();
    batch.push(&prompt(PREFILL), 0, &pages(0, PREFILL), true);
    let start = clock.now();
    runner.execute(&batch, &mut logits).expect("the batch is good");
    PREFILL as f64 / clock.now().since(start).as_secs_f64()
}

fn decode(runner: &mut dyn ModelRunner, clock: &Clock, streams: usize) -> f64 {
    let mut logits = Logits::new();
    let mut batch = Batch::default();
    let length = 16 + DECODE;
    for stream in 0..streams {
        batch.push(&prompt(16), 0, &pages(stream, length), true);
    }
    runner.execute(&batch, &mut logits).expect("the batch is good");
    let start = clock.now();
    for step in 0..DECODE {
        batch.clear();
        for stream in 0..streams {
            let token = TokenId((step % 400) as u32);
            batch.push(&[token], 16 + step, &pages(stream, length), true);
        }
        runner.execute(&batch, &mut logits).expect("the batch is good");
    }
    (streams * DECODE) as f64 / clock.now().since(start).as_secs_f64()
}

fn measure(path: &Path, threads: usize, clock: &Clock) {
    let start = clock.now();
    let options = LoadOptions { threads, ..LoadOptions::default() };
    let mut loaded = load(path, options).unwrap_or_else(|error| panic!("{error}"));
    let seconds = clock.now().since(start).as_secs_f64();
    println!("{threads} threads, loaded in {seconds:.2} s");
    loaded.runner.allocate(STREAMS * 16).expect("small");
    let mut cases = [
        Case { name: "prefill 512", run: prefill, rates: Vec::new() },
        Case { name: "decode 128", run: |r, c| decode(r, c, 1), rates: Vec::new() },
        Case {
            name: "decode 128, 16 streams",
            run: |r, c| decode(r, c, STREAMS),
            rates: Vec::new(),
        },
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            case.rates.push((case.run)(&mut *loaded.runner, clock));
        }
    }
    for case in &mut cases {
        case.rates.sort_by(f64::total_cmp);
        let (low, median, high) = (case.rates[0], case.rates[ROUNDS / 2], case.rates[ROUNDS - 1]);
        println!("{:24} {median:8.1} tok/s  ({low:.1} to {high:.1})", case.name);
    }
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
        measure(&PathBuf::from(path), threads, &clock);
    }
}
