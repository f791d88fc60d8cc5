//! Tokens from bytes: nothing here tokenizes, so a prompt's tokens are estimated by what earlier
//! prompts of the model had.

/// What a model is taken for before the first answer: English text.
const PRIOR: f64 = 4.0;

/// How many prompts are remembered, about.
const MEMORY: f64 = 32.0;

/// Bytes per token of a model's prompts, as seen lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRatio {
    bytes: f64,
    tokens: f64,
}

impl Default for TokenRatio {
    fn default() -> Self {
        // Weighs as much as one short prompt.
        Self { bytes: PRIOR * 64.0, tokens: 64.0 }
    }
}

impl TokenRatio {
    /// A prompt of `bytes` had `tokens`.
    pub(crate) fn observe(&mut self, bytes: usize, tokens: u64) {
        if bytes == 0 || tokens == 0 {
            return;
        }
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
}
