//! Tokens from bytes: nothing here tokenizes, so a prompt's tokens are estimated by what earlier
//! prompts of the model had.

/// What a model is taken for before the first answer: English text.
const PRIOR: f64 = 4.0;

/// How many prompts are remembered, about.
const MEMORY: f64 = 32.0;

/// The share of the doubt that each prompt takes away which was no shorter than estimated.
const TRUST: f64 = 0.25;

/// Bytes per token of a model's prompts, as seen lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRatio {
    bytes: f64,
    tokens: f64,
    /// How much shorter than estimated prompts were lately, as a factor of at most 1; 0 at first.
    shortest: f64,
}

impl Default for TokenRatio {
    fn default() -> Self {
        // Weighs as much as one short prompt.
        Self { bytes: PRIOR * 64.0, tokens: 64.0, shortest: 0.0 }
    }
}

impl TokenRatio {
    /// A prompt of `bytes` had `tokens`.
    pub(crate) fn observe(&mut self, bytes: usize, tokens: u64) {
        if bytes == 0 || tokens == 0 {
            return;
        }
        let was = (tokens as f64 / self.tokens(bytes) as f64).min(1.0);
        let trusted = self.shortest + TRUST * (was - self.shortest);
        self.shortest = trusted.min(was);
        let keep = 1.0 - 1.0 / MEMORY;
        self.bytes = self.bytes * keep + bytes as f64;
        self.tokens = self.tokens * keep + tokens as f64;
    }

    /// Tokens of a prompt of `bytes`, at least 1.
    pub(crate) fn tokens(self, bytes: usize) -> u64 {
        // No tokenizer has more tokens than bytes by much, nor words of hundreds of bytes.
        let ratio = (self.bytes / self.tokens).clamp(0.5, 64.0);
        ((bytes as f64 / ratio) as u64).max(1)
    }

    /// What estimates are multiplied with where prompts must not be taken for longer than they
    /// are: at least `least`, and the nearer to 1 the better they were lately.
    pub(crate) const fn margin(self, least: f64) -> f64 {
        self.shortest.max(least).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_follows_what_answers_say() {
        let mut ratio = TokenRatio::default();
        assert_eq!(ratio.tokens(60_000), 15_000);
        ratio.observe(0, 5);
        ratio.observe(5, 0);
        assert_eq!(ratio.tokens(60_000), 15_000, "nothing was said");
        for _ in 0..200 {
            ratio.observe(3_000, 1_500);
        }
        let tokens = ratio.tokens(60_000);
        assert!((29_500..=30_500).contains(&tokens), "{tokens}");
        for _ in 0..200 {
            ratio.observe(1, u64::MAX);
        }
        assert_eq!(ratio.tokens(10), 20, "nonsense is bounded");
        assert_eq!(ratio.tokens(0), 1);
    }

    #[test]
    fn estimates_are_trusted_as_far_as_they_were_good() {
        let mut ratio = TokenRatio::default();
        assert_eq!(ratio.margin(0.8), 0.8, "nothing is known");
        for _ in 0..64 {
            ratio.observe(15_000, 15_000);
        }
        assert!(ratio.margin(0.8) > 0.98, "{ratio:?}");
        // One that is much shorter than its bytes say.
        ratio.observe(15_000, 5_000);
        assert_eq!(ratio.margin(0.8), 0.8, "{ratio:?}");
        assert!(ratio.margin(0.0) < 0.4, "{ratio:?}");
        // Longer ones say nothing against it.
        for _ in 0..8 {
            let before = ratio.margin(0.0);
            ratio.observe(15_000, 60_000);
            assert!(ratio.margin(0.0) > before, "{ratio:?}");
        }
    }
}
