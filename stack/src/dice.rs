//! A small seeded generator of random numbers: variety and replay, not secrecy.

/// SplitMix64: the same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

/// 2^-53: one step of a float between 0 and 1.
const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for each list of `parts`, whatever was drawn from others.
    pub(crate) fn of(seed: u64, parts: &[u64]) -> Self {
        let mut mixed = Self(seed);
        for part in parts {
            mixed = Self(mixed.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        }
        Self(mixed.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform from `low` to `high`, the latter not included; `low` where the range is empty.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % high.saturating_sub(low).max(1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.range(0, 100) < chance
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() <= probability && probability > 0.0
    }

    /// Uniform over (0, 1]: never 0, so that its logarithm is finite.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 * STEP
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma with mean `shape` (Marsaglia and Tsang 2000); `shape` is above 0.
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        assert!(shape > 0.0, "a gamma distribution has a shape above 0, not {shape}");
        if shape < 1.0 {
            let boost = self.unit().powf(1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let cube = (1.0 + c * normal).powi(3);
            if cube <= 0.0 {
                continue;
            }
            let accept = 0.5 * normal * normal + d - d * cube + d * cube.ln();
            if self.unit().ln() < accept {
                return d * cube;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..40_000).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, squares / values.len() as f64)
    }

    #[test]
    fn the_distributions_have_their_moments() {
        let mut dice = Dice::new(11);
        let check = |name: &str, (mean, variance): (f64, f64), expect: (f64, f64)| {
            assert!((mean - expect.0).abs() < 0.05 * expect.0.max(0.4), "{name}: mean {mean}");
            assert!((variance - expect.1).abs() < 0.1 * expect.1, "{name}: variance {variance}");
        };
        check("unit", moments(|| dice.unit()), (0.5, 1.0 / 12.0));
        check("exponential", moments(|| dice.exponential()), (1.0, 1.0));
        check("normal", moments(|| dice.normal()), (0.0, 1.0));
        for shape in [0.25, 1.0, 4.0] {
            check("gamma", moments(|| dice.gamma(shape)), (shape, shape));
        }
    }

    #[test]
    fn parts_give_generators_of_their_own() {
        let first = |seed: u64, parts: &[u64]| Dice::of(seed, parts).next();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        let all = [first(1, &[2, 3]), first(1, &[3, 2]), first(1, &[2]), first(2, &[2, 3])];
        for (at, value) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(value), "{all:?}");
        }
    }
}
