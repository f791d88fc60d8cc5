//! Sums and joins over the ranks of one process, and what happens when one of them gives up.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use kernels::{ThreadPool, add};
use memory_pool::{LayerProgress, LoadGate};
use types::{Clock, Time};

use super::part;
use crate::runner::RunError;

/// How often a rank looks for the others before it sleeps; tens of microseconds.
const SPINS: u32 = 1_500;
/// After so many looks it lets others have its core.
const SPINS_PER_YIELD: u32 = 64;

/// Where ranks leave what the others need of them.
pub(crate) struct Exchange {
    /// Two sets, used in turn, of one list per rank: a set is written again only after a meeting
    /// that every rank reaches when it has read it.
    left: [Vec<RwLock<Vec<f32>>>; 2],
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
    /// How often it left something.
    left: usize,
    clock: Clock,
    /// How long it waited, for the others and for loads.
    waited: Duration,
}

/// What every rank left, until the rank leaves something the next but one time.
pub(crate) struct Left<'a>(&'a [RwLock<Vec<f32>>]);

impl Left<'_> {
    /// What `rank` left.
    pub(crate) fn of(&self, rank: usize) -> RwLockReadGuard<'_, Vec<f32>> {
        self.0[rank].read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange {
    pub(crate) fn new(ranks: usize) -> Self {
        let set = || (0..ranks).map(|_| RwLock::default()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            left: [set(), set()],
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
        let ranks = self.left[0].len();
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
    pub(crate) const fn none(clock: Clock) -> Self {
        Self { rank: 0, exchange: None, left: 0, clock, waited: Duration::ZERO }
    }

    /// The others of `rank`, at the beginning of a step.
    pub(crate) const fn of(rank: usize, exchange: &'a Exchange, clock: Clock) -> Self {
        Self { rank, exchange: Some(exchange), left: 0, clock, waited: Duration::ZERO }
    }

    /// Whether there are no others.
    pub(crate) const fn is_alone(&self) -> bool {
        self.exchange.is_none()
    }

    /// How many ranks there are, the rank itself included.
    pub(crate) fn ranks(&self) -> usize {
        self.exchange.map_or(1, |exchange| exchange.left[0].len())
    }

    /// Now.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// How long the rank has waited in this step, for the others and for loads.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    /// The rank's part of `count` things, as [`Share::of`](super::Share::of).
    pub(crate) fn part(&self, count: usize) -> Range<usize> {
        part(count, self.rank, self.ranks())
    }

    /// Waits until the rows of `layer` that `loads` bring are there.
    ///
    /// # Errors
    /// They will never be.
    pub(crate) fn wait(&mut self, loads: Option<&LoadGate>, layer: usize) -> Result<(), RunError> {
        let Some(loads) = loads else { return Ok(()) };
        let start = self.clock.now();
        let outcome = loads.wait(self.rank, layer);
        self.waited += self.clock.now().since(start);
        Ok(outcome?)
    }

    /// Tells that the rows of the first `layers` layers are in the pages of this rank.
    pub(crate) fn tell(&self, progress: Option<&LayerProgress>, layers: usize) {
        if let Some(progress) = progress {
            progress.advance(self.rank, layers);
        }
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
        if self.is_alone() {
            return Ok(());
        }
        let len = values.len();
        let all = self.leave(|own| std::mem::swap(own, values))?;
        values.resize(len, 0.0);
        for rank in 0..self.ranks() {
            let partial = all.of(rank);
            if rank == 0 {
                values.copy_from_slice(&partial);
            } else {
                add(values, &partial, threads);
            }
        }
        Ok(())
    }

    /// Joins matrices of `rows` rows whose columns the ranks have shared out: `compute` fills the
    /// rank's [`part`](Self::part) of the `columns` of each, and `whole` is all of them in the end.
    /// No number is added to another, so every rank has the bits that a single one computes.
    ///
    /// # Errors
    /// Another rank gave up.
    ///
    /// # Panics
    /// Where a whole has another length than `rows` x its columns.
    pub(crate) fn join<const N: usize>(
        &mut self,
        rows: usize,
        columns: [usize; N],
        mut whole: [&mut [f32]; N],
        compute: impl FnOnce([&mut [f32]; N]),
    ) -> Result<(), RunError> {
        if self.is_alone() {
            compute(whole);
            return Ok(());
        }
        let lens = |rank: usize, ranks: usize| columns.map(|c| rows * part(c, rank, ranks).len());
        let (rank, ranks) = (self.rank, self.ranks());
        let all = self.leave(|own| {
            let lens = lens(rank, ranks);
            own.resize(lens.iter().sum(), 0.0);
            let mut rest = own.as_mut_slice();
            compute(lens.map(|len| rest.split_off_mut(..len).expect("as long as all lengths")));
        })?;
        for rank in 0..ranks {
            let left = all.of(rank);
            let mut rest = left.as_slice();
            for (whole, columns) in whole.iter_mut().zip(columns) {
                let own = part(columns, rank, ranks);
                let (values, others) = rest.split_at(rows * own.len());
                rest = others;
                assert_eq!(whole.len(), rows * columns, "a whole matrix");
                let from = values.chunks_exact(own.len().max(1));
                for (to, from) in whole.chunks_exact_mut(columns.max(1)).zip(from) {
                    to[own.clone()].copy_from_slice(from);
                }
            }
        }
        Ok(())
    }

    /// Leaves what `fill` writes for the others, and returns what each has left. Every rank calls
    /// it as often.
    ///
    /// # Errors
    /// Another rank gave up.
    ///
    /// # Panics
    /// Where the rank is alone.
    pub(crate) fn leave(&mut self, fill: impl FnOnce(&mut Vec<f32>)) -> Result<Left<'a>, RunError> {
        let exchange = self.exchange.expect("a rank that is alone leaves nothing");
        let set = &exchange.left[self.left % 2];
        self.left += 1;
        fill(&mut set[self.rank].write().unwrap_or_else(PoisonError::into_inner));
        let start = self.clock.now();
        let outcome = exchange.meet();
        self.waited += self.clock.now().since(start);
        outcome.map(|()| Left(set))
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
                    let outcome = rank(number, &mut Peers::of(number, exchange, Clock::start()));
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

    /// Columns of several matrices, of numbers that no count of ranks divides, and of fewer than
    /// ranks.
    #[test]
    fn columns_are_joined_to_what_one_rank_computes() {
        let value = |matrix: usize, row: usize, column: usize| {
            (matrix * 10_000 + row * 100 + column) as f32
        };
        let columns = [7, 2, 12];
        let fill = |matrix: usize, part: Range<usize>, out: &mut [f32]| {
            for (row, out) in out.chunks_exact_mut(part.len().max(1)).enumerate() {
                out.iter_mut().zip(part.clone()).for_each(|(to, c)| *to = value(matrix, row, c));
            }
        };
        let rank = |peers: &mut Peers<'_>| {
            let mut all = Vec::new();
            for rows in [1, 4, 2] {
                let mut whole = columns.map(|columns| vec![f32::NAN; rows * columns]);
                let parts = columns.map(|columns| peers.part(columns));
                peers.join(rows, columns, whole.each_mut().map(Vec::as_mut_slice), |own| {
                    for (matrix, (out, part)) in own.into_iter().zip(parts).enumerate() {
                        fill(matrix, part, out);
                    }
                })?;
                all.extend(whole.concat());
            }
            Ok::<_, RunError>(all)
        };
        let expect = rank(&mut Peers::none(Clock::start())).unwrap();
        assert!(expect.iter().all(|value| value.is_finite()));
        for ranks in [2, 3, 5] {
            let exchange = Exchange::new(ranks);
            for found in together(&exchange, ranks, |_, peers| rank(peers)) {
                assert_eq!(found.unwrap(), expect, "{ranks}");
            }
        }
    }

    #[test]
    fn time_at_a_meeting_is_waiting() {
        let exchange = Exchange::new(2);
        exchange.begin();
        let clock = Clock::start();
        let (waited, least) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut peers = Peers::of(1, &exchange, clock);
                peers.leave(Vec::clear).map(|_| peers.waited()).unwrap()
            });
            while exchange.arrived.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let start = clock.now();
            while clock.now() == start {
                std::hint::spin_loop();
            }
            let least = clock.now().since(start);
            Peers::of(0, &exchange, clock).leave(Vec::clear).map(|_| ()).unwrap();
            (other.join().unwrap(), least)
        });
        assert!(waited >= least && least > Duration::ZERO, "{waited:?} of {least:?}");
    }
}
