//! The geometry of a pool, as far as counting pages needs it.

use types::{Bytes, Pages};

/// One pool: its name, the tokens a page holds, how many pages there are, and how far its layers
/// look back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Label value of metrics: `kv` for dense models.
    pub name: &'static str,
    /// Tokens of one page; at least 1.
    pub page_tokens: usize,
    /// Bytes of one page, for accounting only.
    pub page_bytes: Bytes,
    /// Pages of the pool; at least 1, less than 2^32 - 1.
    pub capacity: Pages,
    /// Tokens that a layer of this pool looks back, the one being computed included; at least 1.
    /// `None`: all of them.
    pub window: Option<usize>,
}

impl PoolSpec {
    /// Pages that `tokens` tokens need, when none was given back.
    #[must_use]
    pub const fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }

    /// The most pages that a request of `tokens` tokens ever holds in this pool, when at most
    /// `chunk` tokens are computed at a time. A window pool gives back what no later token sees,
    /// so there it is about the window and one chunk, however long the request.
    #[must_use]
    pub fn pages_at_most(&self, tokens: usize, chunk: usize) -> usize {
        let all = self.pages_for(tokens);
        match self.window {
            None => all,
            Some(_) => {
                // From the first page kept to the end of the chunk: whole pages before, the page
                // that the chunk begins in, and the chunk behind it.
                let before = self.window_pages().unwrap_or(0) + 1;
                all.min(before + self.pages_for(chunk.saturating_add(self.page_tokens - 1)))
            }
        }
    }

    /// Whole pages before a page boundary of which a token behind the boundary sees some part.
    pub(crate) const fn window_pages(&self) -> Option<usize> {
        match self.window {
            Some(window) => Some((window.saturating_sub(1)).div_ceil(self.page_tokens)),
            None => None,
        }
    }

    /// The first page that a request with `computed` tokens in its pages keeps: what its next
    /// tokens see, and what another request sees that computes its last page again. 0 without a
    /// window.
    #[must_use]
    pub const fn first_kept(&self, computed: usize) -> usize {
        match self.window_pages() {
            // One page more than the next token needs: whoever finds the same prefix may use at
            // most all tokens but one, which can be the page boundary before.
            Some(pages) => (computed.saturating_sub(1) / self.page_tokens).saturating_sub(pages),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(page_tokens: usize, window: Option<usize>) -> PoolSpec {
        PoolSpec { name: "p", page_tokens, page_bytes: Bytes(1), capacity: Pages(1), window }
    }

    #[test]
    fn a_window_is_bounded_by_its_own_tokens() {
        assert_eq!(spec(16, None).pages_at_most(1000, 8), 63);
        assert_eq!(spec(16, None).first_kept(1000), 0);
        let check = |page_tokens: usize, window: usize, chunk: usize| {
            let spec = spec(page_tokens, Some(window));
            let mut computed = 0;
            for step in 0..400 {
                let len = [chunk, 1, (step % chunk) + 1][step % 3];
                let first = spec.first_kept(computed);
                assert!(
                    computed == 0 || first * page_tokens <= computed.saturating_sub(window - 1)
                );
                let held = spec.pages_for(computed + len) - first;
                let most = spec.pages_at_most(computed + len, chunk);
                assert!(held <= most, "{held} of {most} at {computed} + {len}, {spec:?}");
                computed += len;
            }
        };
        for page_tokens in [1, 2, 4, 16] {
            for window in [1, 2, 3, 16, 17, 40] {
                for chunk in [1, 3, 8, 48] {
                    check(page_tokens, window, chunk);
                }
            }
        }
    }
}
