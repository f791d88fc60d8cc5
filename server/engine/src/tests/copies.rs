//! The engine's thread and the threads that copy.

use std::sync::{Condvar, Mutex};

use kv_cache::{HostTier, WritePolicy};
use memory_pool::{CopyEngine, CopyHook, HostMemory, HostOptions};

use super::*;
use crate::witness::Witness;

/// Holds every copy until it is opened.
#[derive(Default)]
struct Valve(Mutex<bool>, Condvar);

impl Valve {
    fn open(&self) {
        *self.0.lock().expect("nobody panics while holding it") = true;
        self.1.notify_all();
    }
}

#[test]
fn who_waits_for_a_copy_neither_spins_nor_looks_dead() {
    let runner = Witness::new(FakeOptions { page_tokens: 4, ..FakeOptions::default() });
    let config = EngineConfig { pool_pages: vec![12], ..bounds() };
    let mut prepared = prepare(config, Box::new(runner), None).expect("good bounds");
    let tier = HostTier {
        pages: vec![40],
        policy: WritePolicy::WriteThrough,
        load_back_threshold: 1,
        storage: false,
    };
    let parts = prepared.spec().part_layouts(&tier.pages);
    let memory = HostMemory::allocate(&parts, HostOptions::default(), &mut |_| {}).expect("room");
    let valve = Arc::new(Valve::default());
    let hook: CopyHook = {
        let valve = Arc::clone(&valve);
        Arc::new(move |_| {
            let open = valve.0.lock().expect("nobody panics while holding it");
            drop(valve.1.wait_while(open, |open| !*open));
        })
    };
    let devices = prepared.runner.memories().to_vec();
    prepared.copier = Some(Box::new(CopyEngine::with_hook(devices, Arc::new(memory), 9, hook)));
    prepared.config.host = Some(tier);

    let limits =
        Limits { max_queued_requests: 0, max_queued_tokens: Some(0), ttft_objective: PATIENCE };
    let admission = AdmissionController::new(limits, 1.0);
    let clock = Clock::start();
    let (sender, steps) = channel();
    let observer = Box::new(Steps(sender));
    let (handle, join) = prepared.spawn(Arc::clone(&admission), observer, clock).expect("a thread");
    let submit = |id: u64, token: u32| {
        let (submission, ears) = submission(&admission, clock.now(), id, &[token; 40], 1);
        handle.submit(submission).expect("accepted");
        ears
    };
    // All but two pages of the device are being copied, and it needs ten.
    submit(1, 1).end();
    let second = submit(2, 2);
    let step = || steps.recv_timeout(PATIENCE).expect("it shows that it lives");
    while handle.snapshot().waiting == 0 {
        step();
    }
    while steps.try_recv().is_ok() {}
    let (first, next) = (step(), step());
    assert_eq!((first.0, next.0), (StepPhase::Idle, StepPhase::Idle));
    assert!(next.1.since(first.1) > Duration::from_millis(300), "{first:?}, {next:?}");
    assert_eq!(handle.snapshot().waiting, 1);
    let before = clock.now();
    valve.open();
    assert_eq!(second.end().0.len(), 1);
    assert!(clock.now().since(before) < PATIENCE / 2);
    handle.shutdown();
    join.join().expect("the thread ends without a panic");
}
