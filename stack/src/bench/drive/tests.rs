//! On virtual time: the clock moves only when everything waits.

use std::sync::Mutex;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::*;
use crate::bench::judge::Objectives;
use crate::bench::length::Length;
use crate::bench::record::Refusal;
use crate::bench::schedule::{Bursts, Gaps, Pattern, Steady};
use crate::bench::text::{Source as Known, Vocabulary};
use crate::bench::wire::Usage;
use crate::bench::workload::{Endpoint, Source, Synthetic, Template};

/// A server of one place: requests wait for it, are served in turn, and may be refused.
struct Fake {
    place: Semaphore,
    /// Time for the first token, and between the others.
    prefill: Duration,
    step: Duration,
    /// It stands still until then.
    stalled_until: Option<Instant>,
    /// Refuses so many requests, with this Retry-After.
    refuse: Mutex<(u32, u64)>,
    bodies: Mutex<Vec<Value>>,
}

impl Fake {
    fn new(prefill: u64, step: u64) -> Self {
        Self {
            place: Semaphore::new(1),
            prefill: Duration::from_millis(prefill),
            step: Duration::from_millis(step),
            stalled_until: None,
            refuse: Mutex::new((0, 0)),
            bodies: Mutex::new(Vec::new()),
        }
    }

    fn refuses(&self) -> Option<Refusal> {
        let mut refuse = self.refuse.lock().expect("no holder panics");
        refuse.0 = refuse.0.checked_sub(1)?;
        let reason = "queue_requests_full".to_owned();
        Some(Refusal { status: 429, reason, retry_after: Some(refuse.1) })
    }
}

impl Target for Fake {
    async fn exchange(&self, ask: &Ask, patience: Option<Instant>, seen: &mut Seen) -> Ended {
        let body = serde_json::from_slice(&ask.body).expect("JSON");
        self.bodies.lock().expect("no holder panics").push(body);
        if let Some(refusal) = self.refuses() {
            return Ended::Refused(refusal);
        }
        let place = self.place.acquire();
        let _place = match patience {
            None => place.await.expect("never closed"),
            Some(at) => match timeout_at(at, place).await {
                Ok(place) => place.expect("never closed"),
                Err(_) => return Ended::GaveUp,
            },
        };
        let start = Instant::now().max(self.stalled_until.unwrap_or(Instant::now()));
        seen.status = Some(200);
        for token in 0..ask.output_tokens {
            let passed = self.prefill + self.step * u32::try_from(token).expect("few tokens");
            sleep_until(start + passed).await;
            seen.event(Instant::now());
            if ask.leave_after == Some(token + 1) {
                return Ended::Left;
            }
        }
        seen.usage = Some(Usage::new(10, ask.output_tokens, 0));
        seen.text = " and so on".to_owned();
        Ended::Complete
    }
}

fn workload(turns: u64, abort_rate: f64) -> Arc<Workload> {
    let template = Template {
        endpoint: Endpoint::Chat,
        model: "m".to_owned(),
        stream: true,
        ignore_eos: true,
        temperature: 0.0,
        extra: Map::new(),
    };
    let source = Source::Synthetic(Synthetic {
        prompt: Length::Fixed(10),
        output: Length::Fixed(4),
        prefix: None,
        turns: Length::Fixed(turns),
        think: Duration::from_secs(2),
    });
    let vocabulary = Vocabulary::average(1.0, 0, Known::Guess);
    Arc::new(Workload { seed: 3, template, vocabulary, source, abort_rate })
}

fn limits(requests: Option<u64>, seconds: Option<u64>) -> Limits {
    Limits {
        requests,
        duration: seconds.map(Duration::from_secs),
        clients: 1_000,
        timeout: Duration::from_secs(300),
        patience: None,
        retries: 0,
    }
}

fn constant(rate: f64) -> Feed {
    let steady = Some(Steady { rate, gaps: Gaps::Constant });
    Feed::Open(Arrivals::new(Pattern::Open { steady, bursts: None }, 1))
}

async fn drive(
    target: &Arc<Fake>,
    workload: &Arc<Workload>,
    feed: Feed,
    limits: Limits,
    stop: CancellationToken,
) -> Tally {
    let mut tally = Tally::new(Objectives::default(), Duration::ZERO);
    let (target, workload) = (Arc::clone(target), Arc::clone(workload));
    run(target, workload, feed, limits, &mut tally, stop, |_| {}).await;
    tally
}

fn on_virtual_time<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread")
        .block_on(test)
}

/// Timers have a resolution of a millisecond.
fn about(time: Duration, millis: u64) -> bool {
    time.as_millis().abs_diff(u128::from(millis)) <= 5
}

#[test]
fn a_stalled_server_shows_in_the_time_to_first_token() {
    on_virtual_time(async {
        // One request each 100 ms, served in 40 ms; but nothing moves for the first 10 s.
        let mut fake = Fake::new(10, 10);
        fake.stalled_until = Some(Instant::now() + Duration::from_secs(10));
        let (target, workload) = (Arc::new(fake), workload(1, 0.0));
        let stop = CancellationToken::new();
        let tally = drive(&target, &workload, constant(10.0), limits(Some(100), None), stop).await;
        assert_eq!((tally.completed, tally.offered), (100, 100));
        assert!(tally.lag.max() < Duration::from_millis(5), "the plan was kept");
        // The first was planned at 100 ms and has its token at 10,010 ms.
        assert!(about(tally.ttft.max(), 9_910), "{:?}", tally.ttft.max());
        // A client that waits for answers would have sent one request and called the rest fast.
        assert!(tally.ttft.quantile(0.5) > Duration::from_secs(5));
        assert!(about(tally.itl.max(), 10), "between tokens there was no delay");
    });
}

#[test]
fn a_closed_loop_sends_when_it_is_answered() {
    on_virtual_time(async {
        let (target, workload) = (Arc::new(Fake::new(10, 10)), workload(1, 0.0));
        let stop = CancellationToken::new();
        let limits = limits(None, Some(4));
        let tally = drive(&target, &workload, Feed::Closed(3), limits, stop).await;
        // One place: 40 ms each, whatever the number of clients.
        assert!((99..=104).contains(&tally.completed), "{}", tally.completed);
        assert!(about(tally.ttft.quantile(0.5), 90), "two wait: {:?}", tally.ttft.quantile(0.5));
    });
}

#[test]
fn a_generator_at_its_limit_of_clients_says_so() {
    on_virtual_time(async {
        let (target, workload) = (Arc::new(Fake::new(10, 10)), workload(1, 0.0));
        let limits = Limits { clients: 2, ..limits(Some(10), None) };
        let bursts = Some(Bursts { size: 10, every: Duration::from_secs(2) });
        let feed = Feed::Open(Arrivals::new(Pattern::Open { steady: None, bursts }, 1));
        let tally = drive(&target, &workload, feed, limits, CancellationToken::new()).await;
        assert_eq!(tally.completed, 10);
        assert!(about(tally.lag.max(), 320), "{:?}", tally.lag.max());
        assert!(about(tally.ttft.max(), 370), "still from the plan: {:?}", tally.ttft.max());
    });
}

#[test]
fn a_retry_waits_as_told_and_counts_from_the_plan() {
    on_virtual_time(async {
        let target = Arc::new(Fake::new(10, 10));
        *target.refuse.lock().expect("no holder panics") = (2, 7);
        let workload = workload(1, 0.0);
        let stop = CancellationToken::new;
        let feed = || constant(1.0);
        let patient = Limits { retries: 2, ..limits(Some(1), None) };
        let tally = drive(&target, &workload, feed(), patient, stop()).await;
        assert_eq!((tally.completed, tally.refused, tally.retries), (1, 0, 2));
        assert!(about(tally.ttft.max(), 14_010), "{:?}", tally.ttft.max());
        *target.refuse.lock().expect("no holder panics") = (1, 7);
        let tally = drive(&target, &workload, feed(), limits(Some(1), None), stop()).await;
        assert_eq!((tally.completed, tally.refused, tally.retries), (0, 1, 0));
        assert!(tally.refusal.max() < Duration::from_millis(5));
        *target.refuse.lock().expect("no holder panics") = (1, 7);
        let patience = Some(Duration::from_secs(6));
        let hasty = Limits { retries: 2, patience, ..limits(Some(1), None) };
        let tally = drive(&target, &workload, feed(), hasty, stop()).await;
        assert_eq!((tally.refused, tally.gave_up, tally.retries), (1, 0, 0), "not sent again");
    });
}

#[test]
fn clients_leave_give_up_and_time_out() {
    on_virtual_time(async {
        let target = Arc::new(Fake::new(1_000, 10));
        let stop = CancellationToken::new;
        let all_leave = workload(1, 1.0);
        let tally = drive(&target, &all_leave, constant(0.1), limits(Some(5), None), stop()).await;
        assert_eq!((tally.left, tally.completed, tally.judged()), (5, 0, 0));
        let stay = workload(1, 0.0);
        let bursts = Some(Bursts { size: 5, every: Duration::from_secs(2) });
        let burst = || Feed::Open(Arrivals::new(Pattern::Open { steady: None, bursts }, 1));
        let hasty =
            Limits { patience: Some(Duration::from_millis(2_500)), ..limits(Some(5), None) };
        let tally = drive(&target, &stay, burst(), hasty, stop()).await;
        assert_eq!((tally.completed, tally.gave_up), (3, 2));
        assert!(tally.goodput() < 0.61, "who gave up was not served well");
        let short = Limits { timeout: Duration::from_millis(2_200), ..limits(Some(5), None) };
        let tally = drive(&target, &stay, burst(), short, stop()).await;
        assert_eq!((tally.completed, tally.failed), (2, 3));
        assert_eq!(tally.errors["timeout"].count, 3);
    });
}

#[test]
fn turns_follow_each_other_with_all_that_was_said() {
    on_virtual_time(async {
        let (target, workload) = (Arc::new(Fake::new(10, 10)), workload(3, 0.0));
        let stop = CancellationToken::new();
        let tally = drive(&target, &workload, Feed::Closed(1), limits(Some(6), None), stop).await;
        assert_eq!(tally.completed, 6);
        assert!(tally.lag.max() < Duration::from_millis(5), "a pause is no lag");
        let bodies = target.bodies.lock().expect("no holder panics");
        let said: Vec<usize> =
            bodies.iter().map(|body| body["messages"].as_array().map_or(0, Vec::len)).collect();
        assert_eq!(said, [1, 3, 5, 1, 3, 5]);
        let longest = &bodies[2];
        assert_eq!(longest["messages"][1]["content"], " and so on");
        assert_eq!(longest["messages"][1]["role"], "assistant");
    });
}

#[test]
fn a_stop_ends_everything_at_once_and_keeps_what_there_is() {
    on_virtual_time(async {
        let (target, workload) = (Arc::new(Fake::new(10, 500)), workload(1, 0.0));
        let stop = CancellationToken::new();
        let cancel = stop.clone();
        let start = Instant::now();
        let end = start + Duration::from_secs(10);
        let mut tally = Tally::default();
        let (target, workload) = (Arc::clone(&target), Arc::clone(&workload));
        let limits = limits(None, Some(3_600));
        let running = run(target, workload, constant(2.0), limits, &mut tally, stop, |progress| {
            if Instant::now() >= end && !cancel.is_cancelled() {
                assert!(progress.in_flight > 0 && progress.sent > 10);
                cancel.cancel();
            }
        });
        running.await;
        assert!(start.elapsed() < Duration::from_secs(11));
        assert!((6..=8).contains(&tally.completed), "{}", tally.completed);
        assert_eq!(tally.offered, tally.completed + tally.unfinished);
    });
}

#[test]
fn the_warm_up_is_sent_but_not_measured() {
    on_virtual_time(async {
        let (target, workload) = (Arc::new(Fake::new(10, 10)), workload(1, 0.0));
        let mut tally = Tally::new(Objectives::default(), Duration::from_secs(5));
        let (limits, stop) = (limits(None, Some(10)), CancellationToken::new());
        run(target, workload, constant(2.0), limits, &mut tally, stop, |_| {}).await;
        assert_eq!((tally.warmed, tally.offered), (9, 11));
        assert!(about(tally.measured(), 5_040), "{:?}", tally.measured());
    });
}
