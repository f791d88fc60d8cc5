use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::*;

#[test]
fn every_worker_runs_once_per_job() {
    for threads in 1..=4 {
        let pool = ThreadPool::new(threads);
        let calls: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
        for _ in 0..500 {
            pool.run(|worker, workers| {
                assert_eq!(workers, threads);
                calls[worker].fetch_add(1, Ordering::Relaxed);
            });
        }
        for count in &calls {
            assert_eq!(count.load(Ordering::Relaxed), 500);
        }
    }
}

#[test]
fn ranges_cover_every_item_once() {
    let pool = ThreadPool::new(3);
    for (items, grain) in [(0, 1), (1, 1), (10, 3), (10, 0), (1000, 7), (5, 100)] {
        let seen: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
        pool.parallel_for(items, grain, |range| {
            for i in range {
                seen[i].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{items} by {grain}");
    }
}

#[test]
fn rows_are_visited_with_their_index() {
    let pool = ThreadPool::new(2);
    let mut data = vec![0usize; 33 * 4];
    pool.for_each_row(&mut data, 4, 2, |row, values| values.fill(row));
    assert!(data.iter().enumerate().all(|(i, v)| *v == i / 4));
    pool.for_each_row(&mut [] as &mut [u8], 0, 1, |_, _| panic!("no rows"));
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = ThreadPool::new(4);
    for bad in 0..4 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(|worker, _| assert!(worker != bad, "worker {worker} fails"));
        }));
        let payload = caught.expect_err("the panic is passed on");
        let text = payload.downcast_ref::<String>().expect("a formatted panic");
        assert_eq!(text, &format!("worker {bad} fails"));
        let count = AtomicUsize::new(0);
        pool.run(|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }
}

#[test]
fn a_job_may_use_another_pool() {
    let outer = ThreadPool::new(2);
    let inner = [ThreadPool::new(2), ThreadPool::new(3)];
    let count = AtomicUsize::new(0);
    outer.run(|worker, _| {
        for _ in 0..50 {
            inner[worker].run(|_, workers| {
                count.fetch_add(workers, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(count.into_inner(), 50 * (2 * 2 + 3 * 3));
}

#[test]
fn nesting_is_refused_instead_of_hanging() {
    let pool = ThreadPool::new(2);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        pool.run(|_, _| pool.run(|_, _| {}));
    }));
    assert!(caught.is_err());
    pool.run(|_, _| {});
}

#[test]
fn callers_on_several_threads_take_turns() {
    let pool = ThreadPool::new(2);
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.parallel_for(10, 1, |range| {
                        total.fetch_add(range.len(), Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 3 * 100 * 10);
}

#[test]
fn sleeping_workers_wake_and_stop() {
    // More workers than cores: every wait goes through the sleeping path.
    let pool = ThreadPool::new(64);
    for _ in 0..50 {
        let count = AtomicUsize::new(0);
        pool.run(|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 64);
    }
}
