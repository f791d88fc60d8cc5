//! Time, dice, and what engines tell: the surroundings of the workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::{Observer, Outcome, RequestEnd, Sink, StepStats, TimeSource, TokenEvent, Verdict};
use types::{RequestId, Time, TokenId};

/// Fails the seed with a message, as `assert!` fails a test.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// Everything is done by one thread: no lock is ever contended.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("one thread")
}

/// `SplitMix64`: any seed is a good seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x1234_5678_9abc_def0)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn size(&mut self, low: usize, high: usize) -> usize {
        usize::try_from(self.within(low as u64, high as u64)).expect("a size of a test")
    }

    pub(crate) const fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.size(0, choices.len() - 1)].clone()
    }

    pub(crate) const fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.within(low, high))
    }
}

/// The clock of one worker. While a step of its engine runs it is ahead of the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerClock(Arc<AtomicU64>);

impl WorkerClock {
    pub(crate) fn read(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// It is at least `now`.
    pub(crate) fn reach(&self, now: Time) {
        self.0.fetch_max(now.0, Ordering::Relaxed);
    }

    fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a short time");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl TimeSource for WorkerClock {
    fn now(&mut self) -> Time {
        self.pass(Duration::from_nanos(200));
        self.read()
    }

    fn modelled(&mut self, busy: Duration) {
        self.pass(busy);
    }
}

/// What a sink heard.
#[derive(Debug)]
pub(crate) enum Said {
    Token(TokenId),
    End(Outcome),
}

/// What the sinks of one engine have heard and nobody has looked at, with the client's request and
/// the time.
pub(crate) type Told = Arc<Mutex<Vec<(usize, RequestId, Said, Time)>>>;

/// The sink of a client's request.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) client: usize,
    pub(crate) id: RequestId,
    pub(crate) told: Told,
}

impl Tap {
    fn tell(&self, said: Said, at: Time) {
        lock(&self.told).push((self.client, self.id, said, at));
    }
}

impl Sink for Tap {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        self.tell(Said::Token(event.token), event.now);
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        self.tell(Said::End(end.outcome.clone()), end.timings.ended);
    }
}

/// An observer that does not look.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Observer for Nobody {
    fn on_step(&mut self, _: &StepStats<'_>) {}

    fn on_request_end(&mut self, _: &RequestEnd) {}
}
