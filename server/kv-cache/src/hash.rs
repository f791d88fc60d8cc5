//! Chained hashes of pages: a page is named by everything up to its end.
//!
//! The hash of a page covers the hash of the page before it, and the first page covers the hash of
//! the namespace; so equal names mean equal prefixes, as far as 64 bits go. A name only finds
//! candidates: whoever uses a page compares its tokens. The function has no secret seed, so that
//! two processes give the same prefix the same name.

use types::TokenId;
use xxhash_rust::xxh3::xxh3_64;

use crate::namespace::Namespace;

/// Hashes one page: a scratch buffer, the hash before it, its tokens.
pub(crate) type HashFn = fn(&mut Vec<u8>, u64, &[TokenId]) -> u64;

/// `xxh3_64` of the hash before (8 bytes) and each token (4 bytes), all little-endian.
pub(crate) fn page_hash(scratch: &mut Vec<u8>, before: u64, tokens: &[TokenId]) -> u64 {
    scratch.clear();
    scratch.extend_from_slice(&before.to_le_bytes());
    for token in tokens {
        scratch.extend_from_slice(&token.0.to_le_bytes());
    }
    xxh3_64(scratch)
}

/// The names of the whole pages of `tokens`, one per page of `page_tokens` tokens: equal names mean
/// equal tokens up to the page's end, in the same namespace.
///
/// # Panics
/// When `page_tokens` is 0.
#[must_use]
pub fn page_keys(namespace: &Namespace, tokens: &[TokenId], page_tokens: usize) -> Vec<u64> {
    let mut hasher = PageHasher::new(page_hash);
    let chain = |before: &mut u64, page| {
        *before = hasher.page(*before, page);
        Some(*before)
    };
    tokens.chunks_exact(page_tokens).scan(namespace.seed(), chain).collect()
}

/// A hash function with the memory it works in.
#[derive(Debug, Clone)]
pub(crate) struct PageHasher {
    function: HashFn,
    scratch: Vec<u8>,
}

impl PageHasher {
    pub(crate) const fn new(function: HashFn) -> Self {
        Self { function, scratch: Vec::new() }
    }

    /// The hash of the page of `tokens` that follows the page with the hash `before`.
    pub(crate) fn page(&mut self, before: u64, tokens: &[TokenId]) -> u64 {
        (self.function)(&mut self.scratch, before, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_covers_the_page_and_everything_before_it() {
        let mut hasher = PageHasher::new(page_hash);
        let [a, b] = [[1, 2].map(TokenId), [3, 4].map(TokenId)];
        let (first, other) = (hasher.page(0, &a), hasher.page(1, &a));
        assert_ne!(first, other, "the seed counts");
        assert_ne!(hasher.page(first, &b), hasher.page(other, &b), "the page before counts");
        assert_eq!(hasher.page(first, &b), hasher.page(first, &b));
        // The format is a promise to other processes: little-endian bytes.
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        bytes.extend([1, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(hasher.page(7, &[TokenId(1), TokenId(0x102)]), xxh3_64(&bytes));
    }
}
