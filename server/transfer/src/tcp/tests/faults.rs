//! Networks that drop, delay, cut, corrupt and fall silent, at places a seed decides.
//! `SIGHTLINE_LINK_SEED=n` runs seed `n` alone: the same faults at the same places of the bytes, as
//! far as the operating system's threads come by in the same order.

use super::pages::PAGE_TOKENS;
use super::proxy::{Fault, Plan, Proxy};
use super::random::Random;
use super::workers::{Decode, Prefill, at, options, until};
use crate::tcp::LinkOptions;
use crate::{Failure, NotOffered};
use futures_util::future::join_all;
use std::time::Duration;

/// A worker that notices soon when a peer is silent. Where the machine is so slow that a peer only
/// seems to be, transfers fail, which these tests bear.
fn watchful(advertise: &str) -> LinkOptions {
    let mut options = options(advertise);
    options.limits.heartbeat = Duration::from_millis(200);
    options
}

struct Outcome {
    faults: Vec<Fault>,
    results: Vec<Result<(), NotOffered>>,
}

/// Two decode workers through one bad network to one prefill worker: every transfer ends once on
/// each side, nothing is left of those that failed, and afterwards everything works.
async fn run(seed: u64, plan: Plan, options: fn(&str) -> LinkOptions) -> Outcome {
    println!("SIGHTLINE_LINK_SEED={seed}");
    let prefill = Prefill::start(options("prefill"), 0).await.unwrap();
    let proxy = Proxy::start(prefill.address(), seed, plan).await;
    let peer = at("prefill:1", proxy.address);
    let start = |own| Decode::start(options(own), std::slice::from_ref(&peer)).unwrap();
    let decodes = [start("decode:1"), start("decode:2")];
    let mut random = Random::new(seed ^ 0xfa17);
    let mut transfers = Vec::new();
    for (number, decode) in decodes.iter().enumerate() {
        for text in 0..5 {
            let tokens = 1 + random.below(10 * PAGE_TOKENS as u64) as usize;
            let skip = PAGE_TOKENS * random.below(1 + (tokens / PAGE_TOKENS) as u64 / 2) as usize;
            let text = 100 * number as u64 + text;
            transfers.push(decode.transfer(&peer.name, text, tokens, skip));
        }
    }
    let results = join_all(transfers).await;
    proxy.heal();
    for (number, decode) in decodes.iter().enumerate() {
        // A connection may be lost just now, or not be found to be dead yet.
        let mut text = 1000 * (1 + number as u64);
        while decode.transfer(&peer.name, text, 50, 0).await.is_err() {
            text += 1;
            until("it is connected", || decode.peer(&peer.name).0).await;
        }
        until("the decode worker is at rest", || decode.at_rest()).await;
    }
    until("the prefill worker is at rest", || prefill.at_rest()).await;
    check(seed, &prefill, &decodes);
    for decode in &decodes {
        decode.client.shut_down().await;
    }
    prefill.server.shut_down().await;
    until("no connection is left", || proxy.open() == 0).await;
    Outcome { faults: proxy.done(), results }
}

/// Counts of both sides, where the last word may have been lost on its way.
fn check(seed: u64, prefill: &Prefill, decodes: &[Decode; 2]) {
    let sent = prefill.ledger.ends();
    let received: Vec<_> = decodes.iter().flat_map(|decode| decode.ledger.ends()).collect();
    let answered: usize = decodes.iter().map(|decode| decode.ledger.answered()).sum();
    let good = |ends: &[Result<(), Failure>]| ends.iter().filter(|end| end.is_ok()).count();
    let counts = format!("seed {seed}: {sent:?} and {received:?}");
    // A success of which the confirmation was lost is one on the receiving side only.
    assert!(good(&sent) <= good(&received), "{counts}");
    // An answer that was lost is a transfer on the sending side only.
    assert!(answered <= sent.len() && sent.len() <= received.len(), "{counts}");
    for end in received.iter().chain(&sent) {
        let known = [Ok(()), Err(Failure::PeerGone), Err(Failure::Connect), Err(Failure::Checksum)];
        // Bytes that are missing make everything behind them something else.
        let shifted = *end == Err(Failure::Protocol);
        assert!(known.contains(end) || shifted, "{counts}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is told which seed to replay")]
fn seed() -> Option<u64> {
    std::env::var("SIGHTLINE_LINK_SEED").ok().and_then(|seed| seed.parse().ok())
}

fn seeds() -> std::ops::Range<u64> {
    seed().map_or(0..8, |seed| seed..seed + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transfer_ends_once_whatever_the_network_does() {
    let all = [
        Fault::Corrupt,
        Fault::Drop,
        Fault::Cut,
        Fault::Delay(Duration::from_millis(3)),
        Fault::Silence,
    ];
    let (mut faults, mut good, mut bad) = (0, 0, 0);
    for seed in seeds() {
        let plan = Plan { faults: all.to_vec(), every_bytes: 1 << 20, at_most: 8 };
        let outcome = run(seed, plan, watchful).await;
        faults += outcome.faults.len();
        good += outcome.results.iter().filter(|result| result.is_ok()).count();
        bad += outcome.results.iter().filter(|result| result.is_err()).count();
    }
    let enough = faults > 10 && good > 10 && bad > 10;
    assert!(enough || seed().is_some(), "{faults} faults, {good} good, {bad} bad");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_that_break_are_sent_again() {
    let mut corrupted = 0;
    for seed in seeds() {
        // Rarely: a bit in a head or a message costs the connection, one in a payload does not.
        let plan = Plan { faults: vec![Fault::Corrupt], every_bytes: 4 << 20, at_most: 2 };
        let outcome = run(seed, plan, watchful).await;
        corrupted += outcome.faults.len();
        let failed = outcome.results.iter().filter(|result| result.is_err()).count();
        println!("{} corrupted, {failed} failed", outcome.faults.len());
    }
    assert!(corrupted > 3 || seed().is_some(), "{corrupted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_is_not_broken() {
    let plan = Plan {
        faults: vec![Fault::Delay(Duration::from_millis(10))],
        every_bytes: 256 << 10,
        at_most: 20,
    };
    let outcome = run(77, plan, options).await;
    assert!(outcome.results.iter().all(Result::is_ok), "{:?}", outcome.results);
    assert!(!outcome.faults.is_empty());
}
