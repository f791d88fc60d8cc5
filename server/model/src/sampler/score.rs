//! Log-probabilities of the model's own distribution.

use kernels::log_sum_exp;
use types::TokenId;

use super::finite_argmax;
use super::select::{Candidate, take_most_likely};
use crate::runner::RunError;

/// Scores tokens; keeps its memory from one to the next.
#[derive(Debug, Clone, Default)]
pub struct Scorer {
    top: Vec<(TokenId, f32)>,
    kept: Vec<Candidate>,
}

impl Scorer {
    /// The natural logarithm of `token`'s probability. [`top`](Self::top) then holds the `most`
    /// most likely tokens.
    ///
    /// # Errors
    /// [`RunError::NonFinite`] where a logit is not finite; [`RunError::Backend`] where the row
    /// has no such token.
    pub fn score(&mut self, row: &[f32], token: TokenId, most: u8) -> Result<f32, RunError> {
        finite_argmax(row)?;
        self.score_finite(row, token, most)
    }

    /// As [`score`](Self::score), for a row that is known to be finite.
    pub(super) fn score_finite(
        &mut self,
        row: &[f32],
        token: TokenId,
        most: u8,
    ) -> Result<f32, RunError> {
        let Some(logit) = row.get(token.index()) else {
            return Err(RunError::Backend(format!("no logit for token {token}")));
        };
        let normaliser = log_sum_exp(row);
        self.top.clear();
        take_most_likely(row, usize::from(most), &mut self.kept);
        let scored = self.kept.iter().map(|best| (TokenId(best.id), best.logit - normaliser));
        self.top.extend(scored);
        Ok(logit - normaliser)
    }

    /// The most likely tokens of the last scored row, most likely first, lowest id first among
    /// equals.
    #[must_use]
    pub fn top(&self) -> &[(TokenId, f32)] {
        &self.top
    }

    /// Forgets the last row.
    pub(super) fn clear(&mut self) {
        self.top.clear();
    }
}
