use super::*;
use crate::bench::wire::Usage;
use crate::dice::Dice;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A complete answer of 5 tokens: first after 100 ms, then one each 10 ms.
pub(crate) fn complete(planned: u64) -> Record {
    Record {
        planned: ms(planned),
        sent: ms(planned + 1),
        first: Some(ms(planned + 100)),
        last: Some(ms(planned + 140)),
        end: ms(planned + 150),
        status: Some(200),
        events: 5,
        gaps: vec![10_000; 4],
        usage: Some(Usage::new(32, 5, 16)),
        prompt_tokens: Some(30),
        stream: true,
        ended: Ended::Complete,
        refusals: Vec::new(),
    }
}

pub(crate) fn refused(planned: u64, retry_after: u64) -> Record {
    let reason = "queue_requests_full".to_owned();
    let refusal = Refusal { status: 429, reason, retry_after: Some(retry_after) };
    Record {
        first: None,
        last: None,
        end: ms(planned + 2),
        status: Some(429),
        events: 0,
        gaps: Vec::new(),
        usage: None,
        ended: Ended::Refused(refusal.clone()),
        refusals: vec![refusal],
        ..complete(planned)
    }
}

#[test]
fn percentiles_are_those_of_sorting() {
    let mut dice = Dice::new(4);
    for count in [1, 2, 10, 999, 5_000] {
        let mut times = Times::default();
        let mut sorted: Vec<u64> =
            (0..count).map(|_| (2_000.0 * (1.5 * dice.normal()).exp()) as u64 + 1).collect();
        for micros in &sorted {
            times.record(Duration::from_micros(*micros));
        }
        sorted.sort_unstable();
        for quantile in [0.5, 0.9, 0.95, 0.99, 1.0] {
            // Nearest rank: the smallest value that enough others do not exceed.
            let rank = (quantile * count as f64).ceil().max(1.0) as usize;
            let expect = sorted[rank - 1] as f64;
            let found = times.quantile(quantile).as_micros() as f64;
            assert!((found - expect).abs() <= 0.001 * expect + 1.0, "{quantile} of {count}");
        }
        let mean = sorted.iter().sum::<u64>() as f64 / f64::from(count);
        assert!((times.mean().as_secs_f64() * 1e6 - mean).abs() < 1.0);
        assert_eq!(times.max().as_micros(), u128::from(sorted[sorted.len() - 1]));
    }
    let none = Times::default();
    assert_eq!((none.quantile(0.5), none.mean(), none.count()), (ms(0), ms(0), 0));
}

#[test]
fn times_beyond_an_hour_keep_their_maximum() {
    let mut times = Times::default();
    times.record(Duration::from_secs(7_200));
    times.record(Duration::ZERO);
    assert_eq!((times.max(), times.count()), (Duration::from_secs(7_200), 2));
}

#[test]
fn a_run_adds_up() {
    let objectives = Objectives { ttft: Some(ms(120)), itl: Some(ms(20)), e2e: None };
    let mut tally = Tally::new(objectives, ms(1_000));
    tally.add(&complete(999));
    tally.add(&complete(1_000));
    let slow = Record { first: Some(ms(1_130)), ..complete(1_000) };
    tally.add(&slow);
    let uneven = Record { last: Some(ms(2_300)), end: ms(2_310), ..complete(2_000) };
    tally.add(&uneven);
    tally.add(&refused(2_000, 3));
    tally.add(&Record { ended: Ended::Left, usage: None, ..complete(2_500) });
    let timeout = Ended::Failed(Failure::Timeout);
    tally.add(&Record { ended: timeout, end: ms(6_000), ..complete(3_000) });
    assert_eq!((tally.warmed, tally.offered, tally.completed), (1, 6, 3));
    assert_eq!((tally.good, tally.missed), (1, [1, 1, 0]));
    // Five are judged: the one that left on purpose is not.
    assert_eq!((tally.judged(), tally.goodput()), (5, 0.2));
    assert_eq!((tally.failed_share(), tally.refused_share()), (1.0 / 6.0, 1.0 / 6.0));
    assert_eq!(tally.errors["timeout"].count, 1);
    assert_eq!((tally.prompt_tokens, tally.output_tokens, tally.cached_tokens), (96, 15, 48));
    assert_eq!(tally.lengths, (3, 90, 96));
    assert_eq!(tally.measured(), ms(5_000));
    assert_eq!(tally.per_second(tally.output_tokens), 3.0);
    assert_eq!((tally.ttft.count(), tally.itl.count(), tally.tpot.count()), (5, 20, 3));
    assert_eq!(tally.lag.max(), ms(1));
}

#[test]
fn refusals_are_told_apart_and_bounded() {
    let mut tally = Tally::default();
    for seconds in [4, 1, 9] {
        tally.add(&refused(0, seconds));
    }
    let served = Record { refusals: refused(0, 2).refusals, ..complete(0) };
    tally.add(&served);
    let entry = &tally.refusals[&(429, "queue_requests_full".to_owned())];
    assert_eq!((entry.count, entry.retry_after), (4, Some((1, 9))));
    assert_eq!((tally.refused, tally.completed, tally.retries), (3, 1, 1));
    for number in 0..1_000 {
        let mut other = refused(0, 1);
        other.refusals[0].reason = format!("reason {number}");
        tally.add(&other);
    }
    assert!(tally.refusals.len() <= KINDS_MAX + 1);
    assert_eq!(tally.refusals.values().map(|kind| kind.count).sum::<u64>(), 1_004);
}
