//! The estimator: what it counts, what it loses, how it ends. `flush` stands for waiting.

use super::*;

fn options() -> CurveOptions {
    CurveOptions {
        page_tokens: 4,
        device_pages: 2,
        window: None,
        ratios: vec![2.0],
        computes_last_token: true,
        max_pages: 100,
    }
}

fn estimator(queue: usize) -> Estimator {
    Estimator::new(options(), queue).expect("a thread")
}

fn keys(keys: &[u64]) -> Arc<[u64]> {
    keys.into()
}

fn lookup(pages: &[u64]) -> CurveEvent {
    CurveEvent::Lookup { keys: keys(pages), prompt_tokens: 4 * pages.len() + 1 }
}

fn published(pages: &[u64]) -> CurveEvent {
    CurveEvent::Publish { keys: keys(pages), pages: pages.len(), prompt_pages: pages.len() }
}

fn hits(snapshot: &CurveSnapshot) -> Vec<u64> {
    snapshot.candidates.iter().map(|candidate| candidate.hit_tokens).collect()
}

/// A sender whose queue nobody empties.
fn stuck(queue: usize) -> (CurveSender, Receiver<Message>) {
    let (sender, receiver) = sync_channel(queue);
    (CurveSender { queue: sender, shared: Arc::default() }, receiver)
}

#[test]
fn a_new_one_has_its_candidates_and_no_counts() {
    let snapshot = estimator(1).snapshot();
    let sizes: Vec<_> = snapshot.candidates.iter().map(|each| (each.ratio, each.pages)).collect();
    assert_eq!(sizes, [(0.0, 2), (2.0, 4)]);
    assert_eq!(hits(&snapshot), [0, 0]);
    assert_eq!((snapshot.requests, snapshot.sampling_ratio), (0, 1.0));
}

#[test]
fn events_are_in_the_snapshot_after_a_flush() {
    let estimator = estimator(1_000);
    let sender = estimator.sender();
    for _ in 0..2 {
        assert!(sender.try_send(lookup(&[1, 2, 3])));
        assert!(sender.try_send(published(&[1, 2, 3])));
    }
    estimator.flush();
    let snapshot = estimator.snapshot();
    assert_eq!(hits(&snapshot), [8, 12], "the front of a prompt longer than the device stays");
    assert_eq!((snapshot.requests, snapshot.lookup_tokens, snapshot.cold_tokens), (2, 26, 12));
    assert_eq!((snapshot.tracked_pages, snapshot.dropped_requests), (3, 0));
    assert!(snapshot.cpu > Duration::ZERO);
}

#[test]
fn only_the_published_part_of_an_aborted_request_is_found() {
    let estimator = estimator(1_000);
    let sender = estimator.sender();
    let pages = keys(&[1, 2, 3]);
    sender.try_send(lookup(&pages));
    sender.try_send(CurveEvent::Publish { keys: Arc::clone(&pages), pages: 1, prompt_pages: 3 });
    sender.try_send(CurveEvent::Abort { keys: pages });
    sender.try_send(lookup(&[1, 2, 3]));
    estimator.flush();
    assert_eq!(hits(&estimator.snapshot()), [4, 4]);
}

#[test]
fn resets_forget_pages_and_are_counted() {
    let estimator = estimator(1_000);
    let sender = estimator.sender();
    sender.try_send(lookup(&[1]));
    sender.try_send(published(&[1]));
    sender.reset(ResetReason::Weights);
    sender.try_send(lookup(&[1]));
    estimator.flush();
    let snapshot = estimator.snapshot();
    assert_eq!((hits(&snapshot), snapshot.resets), (vec![0, 0], [0, 1, 0]));
}

#[test]
fn a_full_queue_counts_what_it_loses_and_loses_no_reset() {
    let (sender, receiver) = stuck(1);
    assert!(sender.try_send(lookup(&[1])));
    assert!(!sender.try_send(lookup(&[2])));
    assert!(!sender.try_send(published(&[2])));
    assert!(!sender.try_send(CurveEvent::Abort { keys: keys(&[2]) }));
    assert_eq!(sender.shared.dropped_requests.load(Ordering::Relaxed), 2);
    sender.reset(ResetReason::Resize);
    let shared = Arc::clone(&sender.shared);
    drop(sender);
    run(HitCurve::new(options()), &receiver, &shared);
    let snapshot = shared.snapshot();
    assert_eq!((snapshot.requests, snapshot.resets), (1, [0, 0, 1]));
}

#[test]
fn dropping_it_ends_the_thread_and_senders_live_on() {
    let estimator = estimator(1_000);
    let sender = estimator.sender();
    sender.try_send(lookup(&[1]));
    drop(estimator);
    assert_eq!(sender.shared.snapshot().requests, 1, "what was in the queue was applied");
    assert!(!sender.try_send(lookup(&[2])));
    sender.reset(ResetReason::Flush);
}

#[test]
fn more_events_than_a_batch_are_all_applied() {
    let (sender, receiver) = stuck(3 * BATCH);
    (0..2 * BATCH + 1).for_each(|_| assert!(sender.try_send(lookup(&[1]))));
    let shared = Arc::clone(&sender.shared);
    drop(sender);
    run(HitCurve::new(options()), &receiver, &shared);
    assert_eq!(shared.snapshot().requests, 2 * BATCH as u64 + 1);
}
