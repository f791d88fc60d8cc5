//! Pages that are about to be computed, so that nobody computes them twice in one step.

use std::collections::HashSet;

use types::TokenId;

use crate::hash::{HashFn, PageHasher};

/// The pages that the requests of one step have announced to compute. Kept from step to step, so
/// that its memory is allocated once.
///
/// Pages are told apart by their chained hash alone: the worst that a collision does is that
/// somebody waits for one step in vain.
#[derive(Debug)]
pub struct Claims {
    hasher: PageHasher,
    pages: HashSet<u64>,
}

impl Claims {
    pub(crate) fn new(hash: HashFn) -> Self {
        Self { hasher: PageHasher::new(hash), pages: HashSet::new() }
    }

    /// Forgets everything; for the next step.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Whether nothing was announced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn add<'a>(&mut self, before: u64, pages: impl Iterator<Item = &'a [TokenId]>) {
        let mut hash = before;
        for page in pages {
            hash = self.hasher.page(hash, page);
            self.pages.insert(hash);
        }
    }

    pub(crate) fn has(&mut self, before: u64, page: &[TokenId]) -> bool {
        !self.pages.is_empty() && {
            let hash = self.hasher.page(before, page);
            self.pages.contains(&hash)
        }
    }
}
