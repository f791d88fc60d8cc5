//! The only randomness of simulations.

use std::ops::RangeInclusive;

/// SplitMix64: any seed is a good seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x1234_5678_9abc_def0)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end() - range.start() + 1;
        range.start() + self.next() % span
    }

    pub(crate) fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        let (low, high) = (*range.start() as u64, *range.end() as u64);
        usize::try_from(self.within(low..=high)).expect("a size of a test")
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.size(0..=end - 1)
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.size(0..=choices.len() - 1)].clone()
    }
}
