//! The bound on bytes: kept at every moment, over restarts, and by evicting what was used least
//! recently.

use crate::{OBJECT, has, open, options, page, put};
use kv_store::KvStore;
use kv_store::backend::{Fault, MemoryBackend, Operation};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::Arc;

#[tokio::test]
async fn the_least_recently_read_or_written_leaves_first() {
    let backend = Arc::new(MemoryBackend::default());
    let store = open(&backend, options(3)).await;
    for number in 1..=3 {
        put(&store, number).await;
    }
    assert!(has(&store, 1).await);
    put(&store, 2).await;
    put(&store, 4).await;
    assert!(!has(&store, 3).await);
    put(&store, 5).await;
    assert!(!has(&store, 1).await, "read before 2 was written again");
    assert!(has(&store, 2).await && has(&store, 4).await && has(&store, 5).await);
    let stats = store.stats();
    assert_eq!((stats.entries, stats.evictions, stats.held_bytes), (3, 2, 3 * OBJECT));
    assert!(backend.most_bytes() <= stats.max_bytes);
}

#[tokio::test]
async fn opening_again_keeps_entries_their_order_and_the_bound() {
    let backend = Arc::new(MemoryBackend::default());
    let store = open(&backend, options(4)).await;
    for number in [3, 1, 4, 2] {
        put(&store, number).await;
    }
    drop(store);
    let store = open(&backend, options(4)).await;
    put(&store, 9).await;
    assert_eq!((store.stats().entries, store.stats().held_bytes), (4, 4 * OBJECT));
    for (number, there) in [(3, false), (1, true), (4, true), (2, true), (9, true)] {
        assert_eq!(has(&store, number).await, there, "page {number}");
    }
    drop(store);
    // A smaller bound evicts at once, before anything is written.
    let store = open(&backend, options(2)).await;
    while store.stats().evictions < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.stats().held_bytes, 2 * OBJECT);
    assert_eq!(backend.paths().len(), 2);
}

#[tokio::test]
async fn pages_of_other_scopes_count_and_leave_first() {
    let backend = Arc::new(MemoryBackend::default());
    let mut other = crate::scope();
    other.model[0] ^= 1;
    let there: Arc<dyn kv_store::backend::Backend> = Arc::<MemoryBackend>::clone(&backend);
    let old = KvStore::with_backend(there, "memory", other, options(3)).await.expect("it opens");
    put(&old, 1).await;
    put(&old, 2).await;
    drop(old);
    let store = open(&backend, options(3)).await;
    assert!(!has(&store, 1).await, "another model's");
    for number in 1..=3 {
        put(&store, number).await;
    }
    assert_eq!((store.stats().entries, store.stats().evictions), (3, 2));
    assert!(has(&store, 1).await && has(&store, 2).await && has(&store, 3).await);
}

#[tokio::test]
async fn what_another_process_wrote_is_read_and_counted_where_it_fits() {
    let backend = Arc::new(MemoryBackend::default());
    let (one, two) = (open(&backend, options(9)).await, open(&backend, options(2)).await);
    put(&two, 1).await;
    put(&one, 2).await;
    put(&one, 3).await;
    assert!(has(&two, 2).await && has(&two, 3).await);
    let stats = two.stats();
    assert_eq!((stats.entries, stats.held_bytes), (2, 2 * OBJECT), "never more than the bound");
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u32),
    Get(u32),
    FailDelete,
    FailWrite,
    FailRead,
    Break(u32),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u32..12).prop_map(Step::Put),
        6 => (0_u32..12).prop_map(Step::Get),
        1 => Just(Step::FailDelete),
        1 => Just(Step::FailWrite),
        1 => Just(Step::FailRead),
        1 => (0_u32..12).prop_map(Step::Break),
        1 => Just(Step::Reopen),
    ]
}

async fn take(store: &mut KvStore, backend: &Arc<MemoryBackend>, step: Step, objects: u64) {
    match step {
        // No waiting for it: writes, evictions and reads run at once.
        Step::Put(number) => {
            let (hash, tokens, content) = page(number);
            store.put(hash, tokens, content).expect("the queue is large");
        }
        Step::Get(number) => {
            has(store, number).await;
        }
        Step::FailDelete => backend.inject(Operation::Delete, Fault::Fail),
        Step::FailWrite => backend.inject(Operation::Write, Fault::Fail),
        Step::FailRead => backend.inject(Operation::Read, Fault::Fail),
        Step::Break(number) => {
            let paths = backend.paths();
            let Some(path) = paths.get(number as usize) else { return };
            // An eviction that runs at the same time may have taken it.
            let Some(object) = backend.object(path) else { return };
            let mut bytes = object.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            backend.replace(path, bytes.into());
        }
        Step::Reopen => {
            store.flush().await;
            *store = reopen(backend, objects).await;
        }
    }
}

async fn reopen(backend: &Arc<MemoryBackend>, objects: u64) -> KvStore {
    loop {
        let there: Arc<dyn kv_store::backend::Backend> = Arc::<MemoryBackend>::clone(backend);
        // An injected failure may hit the test object: then it is used up.
        let opened = KvStore::with_backend(there, "m", crate::scope(), options(objects)).await;
        if let Ok(store) = opened {
            return store;
        }
    }
}

/// Any order of writes, reads, failures, broken objects and restarts: a page that is read is the
/// one that was written (`has` compares), and there are never more bytes than the bound, neither
/// counted nor in the backend.
#[test]
fn pages_are_right_and_bytes_are_bounded_whatever_happens() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("threads start");
    let cases = (proptest::collection::vec(step(), 1..60), 2_u64..6);
    let mut runner = TestRunner::new(Config { cases: 96, ..Config::default() });
    let result = runner.run(&cases, |(steps, objects)| {
        runtime.block_on(async {
            let backend = Arc::new(MemoryBackend::default());
            let mut store = open(&backend, options(objects)).await;
            let max = store.stats().max_bytes;
            for step in steps {
                take(&mut store, &backend, step, objects).await;
                prop_assert!(store.stats().held_bytes <= max, "{step:?}: {:?}", store.stats());
            }
            store.flush().await;
            let stats = store.stats();
            prop_assert!(stats.held_bytes <= max, "{stats:?}");
            prop_assert!(backend.most_bytes() <= max + 9, "{} {stats:?}", backend.most_bytes());
            prop_assert_eq!(stats.queued_bytes, 0);
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_read_write_and_evict_at_once() {
    let backend = Arc::new(MemoryBackend::default());
    let store = open(&backend, options(7)).await;
    let tasks = tokio_util::task::TaskTracker::new();
    for task in 0..8_u32 {
        let store = store.clone();
        tasks.spawn(async move {
            for turn in 0..200_u32 {
                let number = (task * 7 + turn * 3) % 20;
                if turn % 2 == 0 {
                    let (hash, tokens, content) = page(number);
                    store.put(hash, tokens, content).expect("the queue is large");
                } else {
                    has(&store, number).await;
                }
            }
        });
    }
    tasks.close();
    tasks.wait().await;
    store.flush().await;
    // Whether a task read before somebody wrote is chance; what is there now is found.
    for number in 0..20 {
        has(&store, number).await;
    }
    let stats = store.stats();
    assert!(backend.most_bytes() <= stats.max_bytes, "{} {stats:?}", backend.most_bytes());
    let there: u64 =
        backend.paths().iter().map(|path| backend.object(path).map_or(0, |b| b.len() as u64)).sum();
    assert!(there <= stats.held_bytes, "nothing is there that does not count");
    assert_eq!(stats.drops.iter().sum::<u64>(), stats.drops_by(kv_store::DropReason::NoRoom));
    assert!(stats.evictions > 0 && stats.hits > 0);
}
