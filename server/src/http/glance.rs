//! A glance at a prompt before its tokens are counted: what must be refused is refused without the
//! work, and without waiting for those whose tokens are counted before.
//!
//! A glance costs a small part of tokenising. It never refuses what would be taken: it knows tokens
//! that the prompt has at least, and at most so many of them are cached as its beginning shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use admission::{Outlook, Rejected, Uncounted};
use engine::{Handle, Namespace};
use protocol::Prompt;
use tokenizer::Tokenizer;
use types::{Clock, TokenId};

use super::{Api, Serving};
use crate::cli::Role;

/// Shorter prompts are tokenised as fast as glanced at.
const WORTH_BYTES: usize = 4 << 10;

/// The beginning that is tokenised to see whether anything is cached; four times as much, and so
/// on, while all of it is.
const BEGINNING: usize = 2 << 10;

/// Weight of a prompt in [`Stretch`].
const WEIGHT: f64 = 1.0 / 16.0;

/// How many tokens prompts had for each that they had at least, on average over the last ones.
#[derive(Debug)]
pub(super) struct Stretch(AtomicU64);

impl Default for Stretch {
    fn default() -> Self {
        Self(AtomicU64::new(1.0_f64.to_bits()))
    }
}

impl Stretch {
    fn factor(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// A prompt of `least` tokens at least has `exact`. Two at a time may count as one.
    pub(super) fn learn(&self, least: usize, exact: usize) {
        if least > 0 {
            let seen = exact as f64 / least as f64;
            let factor = self.factor();
            self.0.store((factor + WEIGHT * (seen - factor)).to_bits(), Ordering::Relaxed);
        }
    }

    fn about(&self, least: u64) -> u64 {
        (least as f64 * self.factor()) as u64
    }
}

/// What a glance needs to know beside the prompt.
#[derive(Debug, Clone)]
pub(super) struct Glance {
    engine: Handle,
    namespace: Namespace,
    clock: Clock,
    stretch: Arc<Stretch>,
    /// A prefix that can be taken may begin with one that cannot: windows that only later pages
    /// have. Then nothing is known before all tokens are.
    windows: bool,
}

/// A prompt as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Look<'a> {
    /// A text, and whether the model's own prefix comes before it.
    Text(&'a str, bool),
    /// Its tokens.
    Tokens(&'a [TokenId]),
}

impl<'a> Look<'a> {
    /// The first of these prompts: where it is refused, all are.
    pub(super) fn first(prompts: &'a [Prompt]) -> Option<Self> {
        prompts.first().map(|prompt| match prompt {
            Prompt::Text(text) => Self::Text(text, true),
            Prompt::Tokens(tokens) => Self::Tokens(tokens),
        })
    }
}

/// What a glance has found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// Tokens that the prompt has at least; 0 where that is not known.
    pub(super) tokens: usize,
    /// Of those, uncached ones.
    uncached: u64,
}

impl Api {
    /// How to look at prompts of `namespace`; `None` where other workers compute them, whose door
    /// is theirs.
    pub(super) fn glance(&self, serving: &Serving, namespace: &Namespace) -> Option<Glance> {
        (self.role == Role::Unified).then(|| Glance {
            engine: serving.engine.clone(),
            namespace: namespace.clone(),
            clock: self.clock,
            stretch: Arc::clone(&self.stretch),
            windows: self.windows.iter().any(Option::is_some),
        })
    }
}

impl Glance {
    /// Looks at a prompt, and tells admission what to expect. With `thorough`, others will
    /// wait behind it: it is found out what they can count on.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn look(
        &self,
        tokenizer: &Tokenizer,
        look: Look<'_>,
        outlook: &Outlook,
        thorough: bool,
    ) -> Result<Seen, Rejected> {
        let tokens = match look {
            Look::Text(text, _) if text.len() < WORTH_BYTES => return Ok(Seen::default()),
            Look::Text(text, _) => tokenizer.least_tokens(text),
            Look::Tokens(tokens) => tokens.len(),
        };
        if tokens == 0 {
            return Ok(Seen::default());
        }
        let least = tokens as u64;
        if !thorough && outlook.may_have(least, self.clock.now()) {
            return Ok(Seen { tokens, uncached: 0 });
        }
        let cached = self.cached_at_most(tokenizer, look);
        let uncached = cached.map_or(0, |cached| least.saturating_sub(cached as u64));
        let seen = Seen { tokens, uncached };
        self.tell(outlook, seen)?;
        Ok(seen)
    }

    /// Tells admission what a glance has found.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn tell(&self, outlook: &Outlook, seen: Seen) -> Result<(), Rejected> {
        let Seen { uncached: least, .. } = seen;
        let about = self.stretch.about(least);
        outlook.expect(Uncounted { least, about }, self.clock.now())
    }

    /// Tokens of the prompt that can be cached at most, by its beginning; `None` where all of that
    /// is, or where it says nothing.
    fn cached_at_most(&self, tokenizer: &Tokenizer, look: Look<'_>) -> Option<usize> {
        let (text, special) = match look {
            Look::Tokens(tokens) => {
                return Some(self.engine.cached_prefix(&self.namespace, tokens));
            }
            Look::Text(text, special) => (text, special),
        };
        if self.windows {
            return None;
        }
        let mut most = BEGINNING;
        while most * 2 <= text.len() {
            let cut = tokenizer.cut(text, most)?;
            let tokens = tokenizer.encode(&text[..cut], special).ok()?;
            if let Some(cached) = self.engine.cached_before(&self.namespace, &tokens) {
                return Some(cached);
            }
            most *= 4;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prompts_have_at_least_is_stretched_to_what_they_have() {
        let stretch = Stretch::default();
        assert_eq!(stretch.about(1000), 1000);
        stretch.learn(0, 50);
        for _ in 0..100 {
            stretch.learn(100, 120);
        }
        let about = stretch.about(1000);
        assert!((1190..=1200).contains(&about), "{about}");
    }
}
