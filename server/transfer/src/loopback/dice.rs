//! Repeatable randomness.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::room::Random;

/// SplitMix64: any seed is a good one. For simulations; its rooms and nonces can be guessed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x6c62_272e_07bb_0142)
    }

    /// Further dice, which do not depend on how often these are thrown later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number within a range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = (range.end() - range.start()).saturating_add(1);
        range.start() + self.next() % span
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a size")
    }

    /// Whether something happens that does so `per_mille` times out of 1000.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.next() % 1000 < u64::from(per_mille)
    }

    /// A duration up to `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.within(0..=nanos))
    }
}

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}
