//! What the engine knows of a model: a batch of tokens in, logits out.
//!
//! Nothing here decides who runs or which page holds what; a runner trusts the page tables it is
//! given and checks only that they cover the tokens.

use std::time::Duration;

use types::{PageId, TokenId};

/// What a loaded model is and needs; fixed for the life of the runner.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// A short name for people: the folder or the name inside the file.
    pub name: String,
    /// The architecture, as in `llama` or `qwen3`.
    pub architecture: String,
    /// Rows of the embedding table; every token id is below it.
    pub vocab: usize,
    /// Positions that the model was made for; a request never grows past it.
    pub max_context: usize,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// The token that starts a text, where the model has one.
    pub bos: Option<TokenId>,
    /// One per KV pool, in the order of `PoolId`; dense models have one.
    pub pools: Vec<PoolSpec>,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of weights in memory once loaded (mapped files are not counted).
    pub weight_bytes: u64,
    /// Which kernel serves which operation; one entry per operation and format.
    pub kernels: Vec<KernelUse>,
}

/// One KV pool: what a page holds and weighs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The pool's name, a label value: `kv` for dense models.
    pub name: &'static str,
    /// Layers whose rows a page holds.
    pub layers: usize,
    /// Tokens of one page, over all its layers.
    pub page_tokens: usize,
    /// Bytes of one page.
    pub page_bytes: u64,
}

/// The kernel chosen for an operation; shown in the log and as an info metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelUse {
    /// What is computed: `linear`, `attention`.
    pub op: String,
    /// The format of the weights (or of the cache) it reads.
    pub format: String,
    /// The kernel's name.
    pub kernel: String,
}

/// The work of one step: tokens of several requests, one [`Slice`] each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// All tokens, the slices' one after the other.
    pub tokens: Vec<TokenId>,
    /// One per request in this step.
    pub slices: Vec<Slice>,
}

/// Consecutive tokens of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Index of its first token in [`Batch::tokens`].
    pub first: usize,
    /// Number of tokens; at least one.
    pub len: usize,
    /// Position of the first token in its request.
    pub start: usize,
    /// The request's page table; covers `start + len` positions. The rows of positions below
    /// `start` were written by earlier steps.
    pub pages: Vec<PageId>,
    /// Whether the logits that follow the last token are wanted.
    pub logits: bool,
}

impl Slice {
    /// The positions covered when this slice has run.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start + self.len
    }
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.slices.clear();
    }

    /// Adds a slice of `tokens` that starts at position `start` of its request.
    pub fn push(&mut self, tokens: &[TokenId], start: usize, pages: &[PageId], logits: bool) {
        let first = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        let pages = pages.to_vec();
        self.slices.push(Slice { first, len: tokens.len(), start, pages, logits });
    }

    /// How many rows of logits this batch produces.
    #[must_use]
    pub fn logits_rows(&self) -> usize {
        self.slices.iter().filter(|slice| slice.logits).count()
    }

    /// Whether every token, slice and page is in range for a model of `vocab` tokens whose first
    /// pool has `pages` pages of `page_tokens` tokens.
    ///
    /// # Errors
    /// [`RunError::BadBatch`] names the first thing that is out of range.
    pub fn check(
        &self,
        vocab: usize,
        max_context: usize,
        pages: usize,
        page_tokens: usize,
    ) -> Result<(), RunError> {
        let bad = |what: String| Err(RunError::BadBatch(what));
        if let Some(token) = self.tokens.iter().find(|token| token.index() >= vocab) {
            return bad(format!("token {token} in a vocabulary of {vocab}"));
        }
        let mut first = 0;
        for (index, slice) in self.slices.iter().enumerate() {
            if slice.first != first || slice.len == 0 {
                return bad(format!("slice {index} does not follow its neighbour, or is empty"));
            }
            first += slice.len;
            if slice.end() > max_context {
                let end = slice.end();
                return bad(format!("slice {index} ends at {end} of {max_context} positions"));
            }
            if slice.pages.len() * page_tokens < slice.end() {
                return bad(format!("slice {index} has too few pages for {}", slice.end()));
            }
            if let Some(page) = slice.pages.iter().find(|page| page.index() >= pages) {
                return bad(format!("slice {index} uses page {page} of {pages}"));
            }
        }
        if first != self.tokens.len() {
            return bad(format!("{first} tokens in slices, {} in the batch", self.tokens.len()));
        }
        Ok(())
    }
}

/// The output of a step: rows of `vocab` numbers, one per slice that asked, in batch order.
///
/// Kept from step to step, so that its memory is allocated once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Logits {
    vocab: usize,
    values: Vec<f32>,
}

impl Logits {
    /// No rows yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.vocab).unwrap_or(0)
    }

    /// Row `row`: one number per token of the vocabulary.
    ///
    /// # Panics
    /// Where `row >= self.rows()`.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.vocab..(row + 1) * self.vocab]
    }

    /// Makes room for `rows` rows of `vocab` and returns them all, row after row. What they hold
    /// is unspecified; a runner writes every one.
    pub fn reset(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        self.vocab = vocab;
        self.values.resize(rows * vocab, 0.0);
        &mut self.values
    }
}

/// Why a step (or its preparation) failed. The engine treats each as fatal for the batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// `execute` before `allocate`.
    #[error("no KV pages are allocated yet")]
    NotAllocated,
    /// The pool does not fit into memory.
    #[error("cannot allocate {bytes} bytes of KV pages")]
    OutOfMemory {
        /// What was asked for.
        bytes: u64,
    },
    /// The batch is inconsistent: a programming error of the caller.
    #[error("bad batch: {0}")]
    BadBatch(String),
    /// A logit is not a finite number.
    #[error("logit of token {token} is {value}, not a finite number")]
    NonFinite {
        /// The lowest such token.
        token: u32,
        /// `NaN`, `inf` or `-inf`.
        value: String,
    },
    /// The back-end failed (or a failure was injected).
    #[error("{0}")]
    Backend(String),
}

/// A model that can run. Lives on the engine's thread.
///
/// What a slice computes never depends on what else is in the batch, on how a prompt was cut into
/// slices, or on the number of threads: not by one bit.
pub trait ModelRunner: Send {
    /// What the model is and needs.
    fn spec(&self) -> &ModelSpec;

    /// Allocates the device pools: `pages` pages in each. Called once, before the first
    /// [`execute`](Self::execute).
    ///
    /// # Errors
    /// [`RunError::OutOfMemory`].
    fn allocate(&mut self, pages: usize) -> Result<(), RunError>;

    /// Runs the batch: writes each token's K/V rows into its slice's pages and leaves one row of
    /// logits per slice that wants them, in order.
    ///
    /// # Errors
    /// Any [`RunError`]; the pages of the batch's slices then hold rubbish.
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError>;

    /// The virtual time a step takes, for runners that only pretend to compute.
    fn modelled_time(&self, _batch: &Batch) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(tokens: &[u32], start: usize, pages: &[u32]) -> Batch {
        let tokens: Vec<_> = tokens.iter().copied().map(TokenId).collect();
        let pages: Vec<_> = pages.iter().copied().map(PageId).collect();
        let mut batch = Batch::default();
        batch.push(&tokens, start, &pages, true);
        batch
    }

    #[test]
    fn check_names_what_is_out_of_range() {
        let check = |batch: Batch, expect: &str| {
            let found = batch.check(10, 64, 4, 16).map_or_else(|e| e.to_string(), |()| "ok".into());
            assert!(found.contains(expect), "{found}");
        };
        check(batch(&[1, 2], 14, &[0]), "ok");
        check(batch(&[1, 10], 0, &[0]), "token 10");
        check(batch(&[1, 2], 15, &[0]), "too few pages");
        check(batch(&[1], 0, &[4]), "page 4 of 4");
        check(batch(&[1], 64, &[0, 1, 2, 3, 3]), "of 64 positions");
        check(batch(&[], 0, &[]), "empty");
        let mut loose = batch(&[1], 0, &[0]);
        loose.tokens.push(TokenId(1));
        check(loose, "1 tokens in slices, 2");
    }

    #[test]
    fn logits_are_rows() {
        let mut logits = Logits::new();
        assert_eq!(logits.rows(), 0);
        logits.reset(2, 3).copy_from_slice(&[1., 2., 3., 4., 5., 6.]);
        assert_eq!((logits.rows(), logits.row(1)), (2, &[4., 5., 6.][..]));
        assert_eq!(logits.reset(0, 3).len(), 0);
        assert_eq!(logits.rows(), 0);
    }
}
