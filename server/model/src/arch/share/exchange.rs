//! The all-reduce of ranks in one process, and what happens when one of them gives up.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use kernels::{ThreadPool, add};

use crate::runner::RunError;

/// How often a rank looks for the others before it sleeps; tens of microseconds.
const SPINS: u32 = 1_500;
/// After so many looks it lets others have its core.
const SPINS_PER_YIELD: u32 = 64;

/// Where ranks leave their partial sums for each other.
pub(crate) struct Exchange {
    /// Two sets, used in turn, of one list per rank: a set is written again only after a meeting
    /// that every rank reaches when it has read it.
    partial: [Vec<RwLock<Vec<f32>>>; 2],
    arrived: AtomicUsize,
    /// How many meetings there were.
    met: AtomicUsize,
    /// Some rank will not come.
    broken: AtomicBool,
    spins: u32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// A rank's view of the others, for one step.
pub(crate) struct Peers<'a> {
    rank: usize,
    exchange: Option<&'a Exchange>,
    sums: usize,
}

impl Exchange {
    pub(crate) fn new(ranks: usize) -> Self {
        let set = || (0..ranks).map(|_| RwLock::default()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            partial: [set(), set()],
            arrived: AtomicUsize::new(0),
            met: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            spins: if ranks <= cores { SPINS } else { 1 },
            lock: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Begins a step. No rank is inside one.
    pub(crate) fn begin(&self) {
        self.arrived.store(0, Ordering::SeqCst);
        self.broken.store(false, Ordering::SeqCst);
    }

    /// A rank gives up: all others stop waiting, now and until the next step.
    pub(crate) fn give_up(&self) {
        let lock = self.lock();
        self.broken.store(true, Ordering::SeqCst);
        drop(lock);
        self.changed.notify_all();
    }

    /// Whether a rank of this step gave up.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Waits until every rank is here.
    fn meet(&self) -> Result<(), RunError> {
        let ranks = self.partial[0].len();
        let met = self.met.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == ranks {
            self.arrived.store(0, Ordering::Relaxed);
            let lock = self.lock();
            self.met.store(met.wrapping_add(1), Ordering::Release);
            drop(lock);
            self.changed.notify_all();
            return Ok(());
        }
        let over = || self.met.load(Ordering::Acquire) != met;
        let broken = || self.broken.load(Ordering::Acquire);
        for spin in 0..self.spins {
            if over() || broken() {
                break;
            } else if spin % SPINS_PER_YIELD == SPINS_PER_YIELD - 1 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        let mut lock = self.lock();
        while !over() && !broken() {
            lock = self.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        if over() { Ok(()) } else { Err(RunError::Backend("another rank gave up".to_owned())) }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Peers<'a> {
    /// Nobody else.
    pub(crate) const fn none() -> Self {
        Self { rank: 0, exchange: None, sums: 0 }
    }

    /// The others of `rank`, at the beginning of a step.
    pub(crate) const fn of(rank: usize, exchange: &'a Exchange) -> Self {
        Self { rank, exchange: Some(exchange), sums: 0 }
    }

    /// The rank itself.
    pub(crate) const fn rank(&self) -> usize {
        self.rank
    }

    /// Replaces the partial sums of all ranks by their sum, added up from the first rank to the
    /// last, so that every rank has the same bits and a row's depend on that row alone. Every rank
    /// calls it with as many values.
    ///
    /// # Errors
    /// Another rank gave up.
    pub(crate) fn add_up(
        &mut self,
        values: &mut Vec<f32>,
        threads: &ThreadPool,
    ) -> Result<(), RunError> {
        let Some(exchange) = self.exchange else { return Ok(()) };
        let set = &exchange.partial[self.sums % 2];
        self.sums += 1;
        let len = values.len();
        let own = set[self.rank].write();
        std::mem::swap(&mut *own.unwrap_or_else(PoisonError::into_inner), values);
        exchange.meet()?;
        values.resize(len, 0.0);
        for (rank, partial) in set.iter().enumerate() {
            let partial = partial.read().unwrap_or_else(PoisonError::into_inner);
            if rank == 0 {
                values.copy_from_slice(&partial);
            } else {
                add(values, &partial, threads);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `rank(number, peers)` on a thread per rank; a rank that fails gives up.
    fn together<R: Send>(
        exchange: &Exchange,
        ranks: usize,
        rank: impl Fn(usize, &mut Peers<'_>) -> Result<R, RunError> + Sync,
    ) -> Vec<Result<R, RunError>> {
        exchange.begin();
        std::thread::scope(|scope| {
            let run = |number| {
                let rank = &rank;
                scope.spawn(move || {
                    let outcome = rank(number, &mut Peers::of(number, exchange));
                    if outcome.is_err() {
                        exchange.give_up();
                    }
                    outcome
                })
            };
            let threads: Vec<_> = (0..ranks).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn sums_go_from_the_first_rank_to_the_last_on_every_rank() {
        let exchange = Exchange::new(3);
        // In f32, (1 + 1e8) - 1e8 is 0, and any other order gives 1.
        let partial = [1.0, 1e8, -1e8];
        let sums = together(&exchange, 3, |rank, peers| {
            let threads = ThreadPool::new(1);
            let mut all = Vec::new();
            for round in 0..200 {
                let mut values = vec![partial[rank]; 1 + round % 3];
                values[0] = (round * (rank + 1)) as f32;
                peers.add_up(&mut values, &threads)?;
                all.extend(values);
            }
            Ok(all)
        });
        let sums: Vec<Vec<f32>> = sums.into_iter().map(Result::unwrap).collect();
        let expect = (0..200).flat_map(|round| {
            let mut values = vec![0.0; 1 + round % 3];
            values[0] = (round * 6) as f32;
            values
        });
        let expect: Vec<f32> = expect.collect();
        assert!(sums.iter().all(|sum| *sum == expect));
    }

    #[test]
    fn a_rank_that_gives_up_stops_the_others_and_the_next_step_works() {
        let exchange = Exchange::new(3);
        let threads = ThreadPool::new(1);
        let outcomes = together(&exchange, 3, |rank, peers| {
            peers.add_up(&mut vec![1.0], &threads)?;
            if rank == 1 {
                return Err(RunError::Backend("ill".to_owned()));
            }
            peers.add_up(&mut vec![1.0], &threads)
        });
        let text: Vec<_> = outcomes.into_iter().map(|o| o.unwrap_err().to_string()).collect();
        assert_eq!(text, ["another rank gave up", "ill", "another rank gave up"]);
        let again = together(&exchange, 3, |_, peers| {
            let mut values = vec![2.0];
            peers.add_up(&mut values, &threads).map(|()| values[0])
        });
        assert!(again.into_iter().all(|sum| sum == Ok(6.0)));
    }
}
