//! The tokens that a request used, from the ends of its answers.

use protocol::Usage;

use crate::generate::sink::End;

/// Counts what answers used. A prompt counts once, however many answers it gets.
#[derive(Debug)]
pub(super) struct Tally {
    prompt_tokens: u64,
    generated_tokens: u64,
    /// Answers per prompt.
    n: usize,
    /// For each prompt, the tokens of it that none of its answers had to compute.
    cached: Vec<Option<u64>>,
}

impl Tally {
    /// Nothing counted, for prompts of so many tokens with `n` answers each.
    pub(super) fn new(prompts: impl ExactSizeIterator<Item = usize>, n: usize) -> Self {
        let cached = vec![None; prompts.len()];
        let prompt_tokens = prompts.map(|tokens| tokens as u64).sum();
        Self { prompt_tokens, generated_tokens: 0, n: n.max(1), cached }
    }

    /// Counts the end of one answer. Answers of one prompt take from the cache what the first of
    /// them has put there: only what all of them found was there before the request.
    pub(super) fn add(&mut self, choice: usize, end: &End) {
        self.generated_tokens += end.generated_tokens as u64;
        if let Some(cached) = self.cached.get_mut(choice / self.n) {
            let found = end.cached_tokens as u64;
            *cached = Some(cached.map_or(found, |least| least.min(found)));
        }
    }

    /// Tokens of all prompts together.
    pub(super) const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// What was counted.
    pub(super) fn usage(&self) -> Usage {
        let cached = self.cached.iter().flatten().sum();
        Usage::new(self.prompt_tokens, self.generated_tokens, cached)
    }
}

#[cfg(test)]
mod tests {
    use engine::Outcome;

    use super::*;
    use crate::generate::assemble::Delta;

    #[test]
    fn a_prompt_counts_once() {
        let end = |generated_tokens, cached_tokens| End {
            rest: Delta::default(),
            outcome: Outcome::Length,
            tool_calls: false,
            generated_tokens,
            cached_tokens,
        };
        let mut tally = Tally::new([40, 7].into_iter(), 2);
        for (choice, end) in [end(5, 16), end(6, 32), end(1, 0), end(2, 0)].iter().enumerate() {
            tally.add(choice, end);
        }
        assert_eq!(tally.usage(), Usage::new(47, 14, 16));
    }
}
