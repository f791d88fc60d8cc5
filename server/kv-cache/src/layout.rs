//! The geometry of a pool, as far as counting pages needs it.

use types::{Bytes, Pages};

/// One pool: its name, the tokens a page holds, and how many pages there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Label value of metrics: `kv` for dense models.
    pub name: &'static str,
    /// Tokens of one page; at least 1.
    pub page_tokens: usize,
    /// Bytes of one page, for accounting only.
    pub page_bytes: Bytes,
    /// Pages of the pool; at least 1, less than 2^32.
    pub capacity: Pages,
}

impl PoolSpec {
    /// Pages that `tokens` tokens need.
    #[must_use]
    pub const fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }
}
