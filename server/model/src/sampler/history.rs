//! Which tokens a request has seen, and what its penalties make of them.

use types::TokenId;

use super::{SamplingParams, TokenMask};

/// Penalised logits stay within this, so that no parameter makes one infinite.
const BOUND: f32 = 1e30;

/// A token that was seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    id: u32,
    /// How often it was generated; 0: it is only in the prompt.
    generated: u32,
}

/// The distinct tokens of a request, sorted by id. Grows with the number of distinct tokens and
/// allocates only when that doubles.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    seen: Vec<Seen>,
    counts: bool,
}

impl History {
    /// The history of a request that has generated nothing. Takes the prompt in only where the
    /// parameters look at it, and stays empty where they look at nothing.
    pub(super) fn new(params: &SamplingParams, prompt: &[TokenId], vocab: usize) -> Self {
        let mut seen = Vec::new();
        if params.repeats() {
            let mut distinct = TokenMask::none(vocab);
            prompt.iter().for_each(|token| distinct.allow(*token));
            seen.extend(distinct.iter().map(|token| Seen { id: token.0, generated: 0 }));
        }
        Self { seen, counts: params.penalises() }
    }

    /// A token was generated.
    pub(super) fn add(&mut self, token: TokenId) {
        if !self.counts {
            return;
        }
        match self.seen.binary_search_by_key(&token.0, |seen| seen.id) {
            Ok(at) => self.seen[at].generated = self.seen[at].generated.saturating_add(1),
            Err(at) => self.seen.insert(at, Seen { id: token.0, generated: 1 }),
        }
    }

    /// Whether no penalty changes any logit now.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Repetition penalty on what was seen, then presence and frequency penalty on what was
    /// generated.
    pub(super) fn penalise(&self, row: &mut [f32], params: &SamplingParams) {
        let repetition = if params.repeats() { params.repetition_penalty } else { 1.0 };
        for &Seen { id, generated } in &self.seen {
            let Some(logit) = row.get_mut(id as usize) else { continue };
            let mut new = *logit;
            if repetition != 1.0 {
                new = if new > 0.0 { new / repetition } else { new * repetition };
            }
            if generated > 0 {
                new -= params.presence_penalty + params.frequency_penalty * generated as f32;
            }
            *logit = new.clamp(-BOUND, BOUND);
        }
    }
}
