//! How long to wait before a peer is dialed again.

use std::time::Duration;

/// The first wait, before jitter.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait, before jitter: a peer that was restarted is found within this.
const LONGEST: Duration = Duration::from_secs(5);

/// Doubling waits with jitter; pure, so that a test can look at them.
///
/// A wait is 50 to 100 percent of its nominal length: decode workers that lost the same peer at the
/// same moment do not come back at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    nominal: Duration,
    random: u64,
}

impl Backoff {
    /// `seed` decides the jitter; different dialers should have different ones.
    pub(crate) fn new(seed: u64) -> Self {
        Self { nominal: FIRST, random: seed }
    }

    /// The next wait; the one after that is up to twice as long.
    pub(crate) fn wait(&mut self) -> Duration {
        let nominal = self.nominal;
        self.nominal = (nominal * 2).min(LONGEST);
        let half = nominal / 2;
        half + half.mul_f64(self.fraction())
    }

    /// A connection stood: the next loss is a new one.
    pub(crate) fn reset(&mut self) {
        self.nominal = FIRST;
    }

    /// Evenly in 0..1 (splitmix64, by Steele, Lea and Flood).
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_start_over() {
        for seed in 0..100 {
            let mut backoff = Backoff::new(seed);
            for nominal in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
                let wait = backoff.wait();
                let nominal = Duration::from_millis(nominal);
                assert!(wait >= nominal / 2 && wait <= nominal, "seed {seed}: {wait:?}");
            }
            backoff.reset();
            assert!(backoff.wait() <= FIRST);
        }
    }

    #[test]
    fn two_dialers_wait_differently() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            [backoff.wait(), backoff.wait(), backoff.wait()]
        };
        assert_ne!(waits(1), waits(2));
        assert_eq!(waits(1), waits(1));
    }
}
