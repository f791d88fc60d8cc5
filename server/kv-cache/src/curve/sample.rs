//! Which pages are followed when there are too many: those with the smallest hashes.

/// A threshold on hashes of keys; it only falls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    /// So that tests can draw different samples of the same trace.
    seed: u64,
    threshold: u64,
}

impl Sampler {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, threshold: u64::MAX }
    }

    /// The share of all pages that is followed; exactly 1 as long as none was left out.
    pub(super) fn rate(self) -> f64 {
        if self.threshold == u64::MAX { 1.0 } else { self.threshold as f64 / 2_f64.powi(64) }
    }

    pub(super) const fn takes(self, key: u64) -> bool {
        self.hash(key) <= self.threshold
    }

    /// Lowers the threshold so that `most` of `keys` are left, or fewer.
    pub(super) fn shrink(&mut self, keys: impl Iterator<Item = u64>, most: usize) {
        let mut hashes: Vec<u64> = keys.map(|key| self.hash(key)).collect();
        if most < hashes.len() {
            // Hashes are a bijection of keys, so none is there twice.
            let (_, first_out, _) = hashes.select_nth_unstable(most);
            self.threshold = first_out.saturating_sub(1);
        }
    }

    /// A bijection that spreads its input over all bits (the finaliser of SplitMix64): keys may
    /// follow a pattern, and the list's map relies on bits of the key itself.
    const fn hash(self, key: u64) -> u64 {
        let mut x = key ^ self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
