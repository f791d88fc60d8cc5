//! What restricts the tokens of an answer beside their likelihood, such as a grammar.

use types::TokenId;

/// Follows one answer token by token and says which tokens may come next.
///
/// It belongs to one request and runs on the engine's thread: it must not block, and what it does
/// is paid by every running request. It is never asked about the past: a request that computes its
/// tokens again after a preemption keeps its constraint as it was.
pub trait Constraint: Send {
    /// The tokens that may come next; `None`: all. Called at most once before each token.
    ///
    /// Where an end of the answer is allowed, the mask holds a stop token of the request.
    ///
    /// # Errors
    /// [`ConstraintError`] ends the request with an error that shows its text.
    fn mask(&mut self) -> Result<Option<&TokenMask>, ConstraintError>;

    /// The answer goes on with `token`. Not called for stop tokens, which end it.
    ///
    /// # Errors
    /// [`ConstraintError`], as where the token does not fit; ends the request.
    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError>;

    /// Only a stop token may follow. The sampler then chooses among all stop tokens of the
    /// request, whatever the mask says; where the request has none, it asks for the mask.
    fn is_complete(&self) -> bool;
}

/// Why a constraint cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// A set of tokens: one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMask {
    vocab: usize,
    /// 32 tokens each, the lowest id in the lowest bit. Bits past the vocabulary are zero.
    words: Vec<u32>,
}

/// Tokens in a word of a mask.
const WORD: usize = u32::BITS as usize;

impl TokenMask {
    /// No token of a vocabulary of `vocab`.
    #[must_use]
    pub fn none(vocab: usize) -> Self {
        Self { vocab, words: vec![0; vocab.div_ceil(WORD)] }
    }

    /// The size of the vocabulary.
    #[must_use]
    pub const fn vocab(&self) -> usize {
        self.vocab
    }

    /// Puts a token in. Tokens past the vocabulary are ignored.
    pub fn allow(&mut self, token: TokenId) {
        if token.index() < self.vocab {
            self.words[token.index() / WORD] |= 1 << (token.index() % WORD);
        }
    }

    /// Takes every token out.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Becomes a copy of a bit set of 32 tokens per word, lowest id in the lowest bit. Words that
    /// are missing count as zero; bits past the vocabulary are dropped.
    pub fn copy_words(&mut self, words: &[u32]) {
        let count = words.len().min(self.words.len());
        self.words[..count].copy_from_slice(&words[..count]);
        self.words[count..].fill(0);
        if let Some(last) = self.words.last_mut()
            && !self.vocab.is_multiple_of(WORD)
        {
            *last &= (1 << (self.vocab % WORD)) - 1;
        }
    }

    /// Whether a token is in.
    #[must_use]
    pub fn allows(&self, token: TokenId) -> bool {
        let word = self.words.get(token.index() / WORD);
        word.is_some_and(|word| word >> (token.index() % WORD) & 1 == 1)
    }

    /// How many tokens are in.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The tokens, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(&word, at)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left = left.checked_sub(1)? & left;
                Some(TokenId(at * u32::BITS + bit))
            })
        })
    }

    /// Makes the logits of all other tokens of the row minus infinity.
    pub(crate) fn apply(&self, row: &mut [f32]) {
        for (chunk, &word) in row.chunks_mut(WORD).zip(&self.words) {
            match word {
                u32::MAX => {}
                0 => chunk.fill(f32::NEG_INFINITY),
                word => {
                    for (bit, logit) in chunk.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        let covered = self.words.len() * WORD;
        if let Some(rest) = row.get_mut(covered..) {
            rest.fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_set() {
        let mut mask = TokenMask::none(70);
        assert_eq!((mask.count(), mask.vocab()), (0, 70));
        for id in [0, 31, 32, 69, 70, 1000] {
            mask.allow(TokenId(id));
        }
        let ids: Vec<u32> = mask.iter().map(|token| token.0).collect();
        assert_eq!(ids, [0, 31, 32, 69]);
        assert!(mask.allows(TokenId(31)) && !mask.allows(TokenId(30)));
        assert!(!mask.allows(TokenId(70)) && !mask.allows(TokenId(1000)));
        let mut row = vec![1.0; 70];
        mask.apply(&mut row);
        let left: Vec<usize> = (0..70).filter(|at| row[*at] == 1.0).collect();
        assert_eq!(left, [0, 31, 32, 69]);
        mask.clear();
        assert_eq!(mask.iter().count(), 0);
    }

    #[test]
    fn words_past_the_vocabulary_are_dropped() {
        let mut mask = TokenMask::none(40);
        mask.copy_words(&[u32::MAX, u32::MAX, u32::MAX]);
        assert_eq!(mask.count(), 40);
        mask.copy_words(&[0b101]);
        assert_eq!(mask.iter().map(|token| token.0).collect::<Vec<_>>(), [0, 2]);
        let mut whole = TokenMask::none(64);
        whole.copy_words(&[u32::MAX, 1 << 31]);
        assert_eq!(whole.count(), 33);
        let mut row = vec![0.0; 100];
        whole.apply(&mut row);
        assert_eq!(row.iter().filter(|x| x.is_finite()).count(), 33);
    }
}
