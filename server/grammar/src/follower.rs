//! Follows one answer: the constraint that the sampler asks.

use llguidance::Matcher;
use llguidance::api::StopReason;
use model::{Constraint, ConstraintError, TokenMask};
use types::TokenId;

/// The position of one answer in its grammar.
///
/// A mask costs what `llguidance` needs to walk the vocabulary from here, bounded by the limits of
/// [`Compiler`](crate::Compiler); going beyond them is an error that ends this request alone.
pub struct Follower {
    matcher: Matcher,
    mask: TokenMask,
    stop_tokens: Vec<TokenId>,
}

impl Follower {
    pub(crate) fn new(matcher: Matcher, vocab: usize, stop_tokens: &[TokenId]) -> Self {
        let stop_tokens = stop_tokens.to_vec();
        Self { matcher, mask: TokenMask::none(vocab), stop_tokens }
    }

    fn fill(&mut self) -> Result<(), String> {
        if self.is_complete() {
            self.mask.clear();
            self.allow_stops();
            return Ok(());
        }
        let accepting = self.matcher.is_accepting().map_err(|error| first_line(&error))?;
        let mut allowed = match self.matcher.compute_mask() {
            Ok(allowed) => allowed,
            // Nothing can follow, but the answer may end here. Any other error, such as a bound
            // that was reached, says nothing about what can follow.
            Err(error) if accepting && is_dead_end(&error) => {
                self.mask.clear();
                self.allow_stops();
                return Ok(());
            }
            Err(error) if is_dead_end(&error) => return Err(DEAD_END.to_owned()),
            Err(error) => return Err(first_line(&error)),
        };
        // A token that ends the answer may also be one that the grammar has a place for: there it
        // would end an answer that is not complete.
        for stop in &self.stop_tokens {
            if stop.index() < allowed.len() {
                allowed.disallow_token(stop.0);
            }
        }
        self.mask.copy_words(allowed.as_slice());
        if accepting {
            self.allow_stops();
        }
        if self.mask.count() == 0 {
            return Err(DEAD_END.to_owned());
        }
        Ok(())
    }

    fn allow_stops(&mut self) {
        for stop in &self.stop_tokens {
            self.mask.allow(*stop);
        }
    }
}

impl Constraint for Follower {
    fn mask(&mut self) -> Result<Option<&TokenMask>, ConstraintError> {
        match self.fill() {
            Ok(()) => Ok(Some(&self.mask)),
            Err(reason) => {
                Err(ConstraintError(format!("the answer's form cannot be followed: {reason}")))
            }
        }
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        self.matcher.consume_token(token.0).map_err(|error| {
            let reason = first_line(&error);
            ConstraintError(format!("the answer left its form at token {token}: {reason}"))
        })
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }
}

/// What a form says that leads to nothing.
pub(crate) const DEAD_END: &str = "no token of the vocabulary can go on from here";

/// Whether the matcher found no token; its errors carry this as text alone.
pub(crate) fn is_dead_end(error: &impl std::fmt::Display) -> bool {
    first_line(error) == StopReason::NoExtensionBias.to_string()
}

/// Errors of the matcher go on with its whole state.
fn first_line(error: &impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
