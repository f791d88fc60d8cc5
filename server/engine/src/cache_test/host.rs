//! The host tier behind the cache: answers never depend on it, it saves what it should, and who
//! waits for a copy sleeps.

use std::sync::Condvar;

use types::PoolId;

use super::*;
use crate::host::LATE;
use crate::{AbortReason, EngineState};

/// Holds copies of one direction while it is closed.
#[derive(Default)]
struct Valve {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Valve {
    fn hook(self: &Arc<Self>, held: memory_pool::Direction) -> CopyHook {
        let valve = Arc::clone(self);
        Arc::new(move |step| {
            if step.direction == held {
                let open = valve.open.lock().expect("nobody panics while holding it");
                drop(valve.changed.wait_while(open, |open| !*open));
            }
        })
    }

    fn open(&self) {
        *self.open.lock().expect("nobody panics while holding it") = true;
        self.changed.notify_all();
    }
}

/// Opens a valve at the end, so that a test that fails does not wait for its copies.
struct Opens(Arc<Valve>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A rig whose backups wait, and what opens their way.
fn held(setup: Setup) -> (Rig, Opens) {
    let valve = Arc::new(Valve::default());
    let rig = Rig::with_hook(setup, valve.hook(memory_pool::Direction::Backup));
    (rig, Opens(valve))
}

const POLICIES: [WritePolicy; 3] =
    [WritePolicy::WriteThrough, WritePolicy::WriteThroughSelective, WritePolicy::WriteBack];

/// The device holds less than the conversations, which are preempted, too; the host all, or some.
fn equal_bit_for_bit(model: &'static str, page_tokens: usize, sizes: &[(usize, usize, usize)]) {
    let roomy = Setup { model, page_tokens, cache: false, chunk: 64, ..LLAMA };
    let roomy = Setup { pages: 400, ..roomy };
    let (expected, _) = conversations(roomy);
    let work = |sums: Totals| sums.computed + sums.recomputed;
    let alone = sizes.iter().map(|(chunk, pages, _)| {
        work(conversations(Setup { pages: *pages, chunk: *chunk, cache: true, ..roomy }).1)
    });
    let alone: u64 = alone.sum();
    for policy in POLICIES {
        let setup = Setup { policy, cache: true, ..roomy };
        let (mut loaded, mut preempted, mut worked) = (0, 0, 0);
        for (chunk, pages, host) in sizes.iter().copied() {
            let (found, sums) = conversations(Setup { pages, host, chunk, ..setup });
            for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let what = format!("{model}, {policy:?}, {pages}, {host}: {id}");
                assert_eq!(found.answer, expected.answer, "{what}");
                assert_eq!(
                    found.end.as_ref().map(|e| &e.outcome),
                    Some(&Outcome::Length),
                    "{what}"
                );
            }
            loaded += sums.loaded;
            preempted += sums.preemptions;
            worked += work(sums);
        }
        assert!(loaded > 0, "{model}, {policy:?}: nothing came from the host");
        // Answers rarely go beyond a long page.
        assert!(preempted > 0 || page_tokens > PAGE_TOKENS, "{model}, {policy:?}: none preempted");
        assert!(worked < alone, "{model}, {policy:?}: computed {worked}, without a host {alone}");
    }
}

const SIZES: [(usize, usize, usize); 3] = [(7, 60, 400), (64, 44, 400), (64, 44, 100)];

#[test]
fn answers_are_equal_bit_for_bit_when_their_beginnings_come_from_the_host() {
    for model in ["tiny-llama", "tiny-qwen3"] {
        equal_bit_for_bit(model, PAGE_TOKENS, &SIZES);
    }
}

#[test]
fn answers_of_two_pools_are_equal_bit_for_bit_when_their_beginnings_come_from_the_host() {
    equal_bit_for_bit("tiny-gemma3", PAGE_TOKENS, &SIZES);
}

#[test]
fn answers_of_deepseek_v4_are_equal_bit_for_bit_when_their_beginnings_come_from_the_host() {
    equal_bit_for_bit("tiny-deepseek-v4", 128, &[(100, 14, 200), (256, 10, 200)]);
}

/// Two requests that do not fit together: the second is preempted, the first goes on, and then the
/// second goes on where it was.
#[test]
fn the_pages_of_a_preempted_request_come_back_from_the_host() {
    for (model, page_tokens, pages, tokens, answer) in [
        ("tiny-llama", 4, 30, 40, 60),
        ("tiny-qwen3", 4, 30, 40, 60),
        ("tiny-gemma3", 4, 30, 40, 60),
        ("tiny-deepseek-v4", 128, 6, 250, 140),
    ] {
        let setup = Setup { model, page_tokens, pages, host: 3 * pages, chunk: 32, ..LLAMA };
        let both = |setup: Setup| {
            let mut rig = Rig::new(setup);
            rig.submit(&prompt(1, tokens), answer, None);
            rig.submit(&prompt(2, tokens), answer, None);
            rig.run();
            (rig.heard(0), rig.heard(1), rig.sums())
        };
        let (first, second, sums) = both(setup);
        let (expected_first, expected_second, _) = both(Setup { pages: 400, host: 0, ..setup });
        assert_eq!(first.answer, expected_first.answer, "{model}");
        assert_eq!(second.answer, expected_second.answer, "{model}");
        let end = second.end.expect("it has ended");
        assert!(end.preemptions > 0 && sums.preemptions > 0, "{model}: {end:?}");
        // Of each page that was not whole, and never more.
        let most = end.preemptions * page_tokens;
        assert!(end.recomputed_tokens <= most, "{model}: {end:?}");
        let (.., without) = both(Setup { host: 0, ..setup });
        assert!(sums.recomputed < without.recomputed, "{model}: {sums:?}, {without:?}");
    }
}

const PROMPT: usize = 40;

/// Runs one request whose pages are then held by its backup.
fn with_held_pages(rig: &mut Rig) {
    rig.submit(&prompt(1, PROMPT), 1, None);
    assert_eq!(rig.core.turn(), Turn::Worked);
    while !rig.core.scheduler.is_empty() {
        assert_eq!(rig.core.turn(), Turn::Worked);
    }
    assert_eq!(rig.core.scheduler.pools.copying(PoolId(0)), PROMPT / PAGE_TOKENS);
}

#[test]
fn who_waits_for_a_copy_sleeps_and_is_woken_by_its_end() {
    let (mut rig, valve) = held(Setup { pages: 12, host: 40, ..LLAMA });
    with_held_pages(&mut rig);
    let second = rig.submit(&prompt(2, PROMPT), 3, None);
    assert_eq!(rig.core.turn(), Turn::Idle);
    let clock = types::Clock::start();
    // Nothing ends: it sleeps as long as it may.
    let nap = Duration::from_millis(20);
    rig.core.rest(nap);
    assert!(clock.now().since(Time::ZERO) >= nap, "it did not sleep");
    assert_eq!(rig.core.turn(), Turn::Idle);
    valve.0.open();
    let before = clock.now();
    rig.core.rest(PATIENCE);
    assert!(clock.now().since(before) < PATIENCE / 2, "nobody woke it");
    rig.run();
    assert_eq!(rig.heard(second).answer.len(), 3);
}

#[test]
fn a_backup_that_never_ends_stops_nobody_who_can_do_without_its_pages() {
    let (mut rig, valve) = held(Setup { pages: 40, host: 80, ..LLAMA });
    with_held_pages(&mut rig);
    // From now on it is late: no backup is begun behind it, whose pages it would hold as well.
    rig.time.pass(2 * LATE);
    // These find room beside the pages of the backup, one after the other or together, until they
    // have grown; then one has to give way.
    let others: Vec<u64> = (2..6).map(|seed| rig.submit(&prompt(seed, PROMPT), 50, None)).collect();
    for turn in 0.. {
        if rig.core.turn() == Turn::Idle {
            rig.time.pass(LATE / 4);
        }
        if rig.core.scheduler.is_empty() {
            break;
        }
        assert!(turn < 5000, "they do not end");
    }
    let alone = |seed: u32| {
        let mut rig = Rig::new(LLAMA);
        rig.submit(&prompt(seed, PROMPT), 50, None);
        rig.run();
        rig.heard(0).answer
    };
    for (seed, id) in (2..).zip(&others) {
        assert_eq!(rig.heard(*id).answer, alone(seed));
    }
    assert!(rig.sums().preemptions > 0);
    // Who needs its pages waits, and the engine shows that it lives.
    let large = rig.submit(&prompt(9, 150), 1, None);
    for _ in 0..3 {
        let before = rig.handle.snapshot().iterations;
        assert_eq!(rig.core.turn(), Turn::Idle);
        assert_eq!(rig.handle.snapshot().iterations, before + 1);
    }
    rig.handle.abort(RequestId(large), AbortReason::ClientGone);
    rig.core.turn();
    assert!(rig.core.scheduler.is_empty());
    let large = rig.submit(&prompt(9, 150), 1, None);
    assert_eq!(rig.core.turn(), Turn::Idle);
    valve.0.open();
    rig.run();
    assert_eq!(rig.heard(large).answer.len(), 1);
}

#[test]
fn a_copy_that_fails_fails_the_engine_with_its_cause() {
    let hook: CopyHook = Arc::new(|_| std::panic::resume_unwind(Box::new("planned".to_owned())));
    let mut rig = Rig::with_hook(Setup { pages: 12, host: 40, ..LLAMA }, hook);
    rig.submit(&prompt(1, PROMPT), 1, None);
    loop {
        match rig.core.turn() {
            Turn::Worked => {}
            Turn::Idle => rig.core.rest(PATIENCE),
            Turn::Ended => break,
        }
    }
    let snapshot = rig.handle.snapshot();
    assert_eq!(snapshot.state, EngineState::Failed);
    assert_eq!(snapshot.failure.as_deref(), Some("copying KV pages failed: planned"));
}
