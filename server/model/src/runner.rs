//! What the engine knows of a model: a batch of tokens in, logits out.
//!
//! Nothing here decides who runs or which page holds what; a runner trusts the page tables it is
//! given and checks only that they cover the tokens.

mod pools;

use std::sync::Arc;
use std::time::Duration;

use memory_pool::{DeviceMemory, LayerProgress, LoadFailed, LoadGate, PageBytes, RankPages};
use types::{PageId, PoolId, TokenId};

pub use self::pools::{PartSpec, PoolSpec};
use crate::sampler::ConstraintError;

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
    /// One per KV pool, in the order of `PoolId`: one for layers that see everything, a second
    /// where other layers see only a window.
    pub pools: Vec<PoolSpec>,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of weights in memory once loaded (mapped files are not counted).
    pub weight_bytes: u64,
    /// Which kernel serves which operation; one entry per operation and format.
    pub kernels: Vec<KernelUse>,
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
///
/// Kept from step to step: once it has seen its largest step it allocates nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// All tokens, the slices' one after the other.
    pub tokens: Vec<TokenId>,
    /// One per request in this step.
    pub slices: Vec<Slice>,
    /// The page lists of all slices, slice after slice, in the order of `PoolId`.
    lists: Vec<List>,
    /// The pages of all lists, one after the other.
    pages: Vec<PageId>,
    /// Copies into pages of this batch that may still run.
    pub loads: Option<LoadGate>,
    /// Whom the runner tells which layers' rows are in the pages, of as many ranks as it has and
    /// as many layers as [`ModelSpec::layers`]. How the step ended is the caller's to say.
    pub progress: Option<LayerProgress>,
}

/// Consecutive tokens of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Index of its first token in [`Batch::tokens`].
    pub first: usize,
    /// Number of tokens; at least one.
    pub len: usize,
    /// Position of the first token in its request. The rows of positions below it were written by
    /// earlier steps.
    pub start: usize,
    /// For how many of its last tokens the logits that follow them are wanted: none, the last
    /// one's, up to all `len`.
    pub logits: usize,
    /// Index of its first entry in `Batch::lists`.
    lists: usize,
}

/// The pages of one request in one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageList<'a> {
    /// Pages before this index of the request's page table were given back: no later token sees
    /// them. `pages[0]` holds the tokens from `first * page_tokens` on.
    pub first: usize,
    /// The pages from there on, in the order of their tokens.
    pub pages: &'a [PageId],
}

impl<'a> PageList<'a> {
    /// A list with nothing given back.
    #[must_use]
    pub const fn whole(pages: &'a [PageId]) -> Self {
        Self { first: 0, pages }
    }

    /// The page of `position`.
    ///
    /// # Panics
    /// Where the list does not hold it.
    #[must_use]
    pub fn page_of(&self, position: usize, page_tokens: usize) -> PageId {
        self.pages[position / page_tokens - self.first]
    }
}

/// Where a [`PageList`] lies in `Batch::pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct List {
    first: usize,
    at: usize,
    len: usize,
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
        self.lists.clear();
        self.pages.clear();
        self.loads = None;
        self.progress = None;
    }

    /// Adds a slice of `tokens` that starts at position `start` of its request and wants the
    /// logits that follow its last `logits` tokens.
    ///
    /// `tables` has one list per pool, in the order of `PoolId`. Each covers the slice's own
    /// positions and every earlier one that they see; pages beyond do no harm.
    pub fn push<'a>(
        &mut self,
        tokens: &[TokenId],
        start: usize,
        logits: usize,
        tables: impl IntoIterator<Item = PageList<'a>>,
    ) {
        let (first, lists) = (self.tokens.len(), self.lists.len());
        self.tokens.extend_from_slice(tokens);
        for PageList { first, pages } in tables {
            self.lists.push(List { first, at: self.pages.len(), len: pages.len() });
            self.pages.extend_from_slice(pages);
        }
        self.slices.push(Slice { first, len: tokens.len(), start, logits, lists });
    }

    /// The pages of slice `slice` in `pool`.
    ///
    /// # Panics
    /// Where there is no such slice, or it was pushed without a list for that pool.
    #[must_use]
    pub fn pages(&self, slice: usize, pool: PoolId) -> PageList<'_> {
        self.lists_of(slice).nth(usize::from(pool.0)).expect("a list per pool was pushed")
    }

    /// The lists of slice `slice`, in the order of `PoolId`.
    fn lists_of(&self, slice: usize) -> impl ExactSizeIterator<Item = PageList<'_>> {
        let end = self.slices.get(slice + 1).map_or(self.lists.len(), |next| next.lists);
        self.lists[self.slices[slice].lists..end].iter().map(|list| PageList {
            first: list.first,
            pages: &self.pages[list.at..list.at + list.len],
        })
    }

    /// How many rows of logits this batch produces.
    #[must_use]
    pub fn logits_rows(&self) -> usize {
        self.slices.iter().map(|slice| slice.logits).sum()
    }

    /// Whether every token, slice and page is in range for a model of `spec` whose pools have
    /// `pages` pages each, in the order of `PoolId`.
    ///
    /// # Errors
    /// [`RunError::BadBatch`] names the first thing that is out of range.
    pub fn check(&self, spec: &ModelSpec, pages: &[usize]) -> Result<(), RunError> {
        let bad = |what: String| Err(RunError::BadBatch(what));
        let vocab = spec.vocab;
        if let Some(token) = self.tokens.iter().find(|token| token.index() >= vocab) {
            return bad(format!("token {token} in a vocabulary of {vocab}"));
        }
        let mut first = 0;
        for (index, slice) in self.slices.iter().enumerate() {
            if slice.first != first || slice.len == 0 {
                return bad(format!("slice {index} does not follow its neighbour, or is empty"));
            }
            first += slice.len;
            if slice.end() > spec.max_context {
                let (end, most) = (slice.end(), spec.max_context);
                return bad(format!("slice {index} ends at {end} of {most} positions"));
            }
            if slice.logits > slice.len {
                let Slice { logits, len, .. } = slice;
                return bad(format!("slice {index} wants {logits} logits for {len} tokens"));
            }
            self.check_pages(index, spec, pages)?;
        }
        if first != self.tokens.len() {
            return bad(format!("{first} tokens in slices, {} in the batch", self.tokens.len()));
        }
        Ok(())
    }

    fn check_pages(&self, index: usize, spec: &ModelSpec, pages: &[usize]) -> Result<(), RunError> {
        let bad = |what: String| Err(RunError::BadBatch(format!("slice {index} {what}")));
        let slice = &self.slices[index];
        let lists = self.lists_of(index);
        if lists.len() != spec.pools.len() || pages.len() != spec.pools.len() {
            return bad(format!("has pages in {} pools of {}", lists.len(), spec.pools.len()));
        }
        for ((list, pool), pages) in lists.zip(&spec.pools).zip(pages) {
            let name = pool.name;
            if (list.first + list.pages.len()) * pool.page_tokens < slice.end() {
                return bad(format!("has too few pages in {name} for {}", slice.end()));
            }
            let seen = pool.first_seen(slice.start);
            if list.first * pool.page_tokens > seen {
                return bad(format!("sees position {seen}, which {name} gave back"));
            }
            if let Some(page) = list.pages.iter().find(|page| page.index() >= *pages) {
                return bad(format!("uses page {page} of {pages} in {name}"));
            }
        }
        Ok(())
    }
}

/// The output of a step: rows of `vocab` numbers, [`Slice::logits`] of each slice in batch
/// order, in the order of their tokens.
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
    /// The request's constraint failed or leaves no token.
    #[error("the constraint of the answer: {0}")]
    Constraint(ConstraintError),
    /// The rows of an earlier page never came from the host tier.
    #[error(transparent)]
    Load(#[from] LoadFailed),
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

    /// Allocates the device pools: `pages` has the number of pages of each, in the order of
    /// `PoolId`. Called once, before the first [`execute`](Self::execute).
    ///
    /// # Errors
    /// [`RunError::OutOfMemory`].
    ///
    /// # Panics
    /// Where `pages` has not one number per pool.
    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError>;

    /// The memory behind the pages, one per rank, for the threads that copy pages; none where there
    /// are no bytes or [`allocate`](Self::allocate) was not called.
    fn memories(&self) -> &[Arc<DeviceMemory>] {
        &[]
    }

    /// Who moves what pages hold between the tiers, where there are no [memories](Self::memories).
    /// `None` where there is nothing to move.
    fn mover(&self) -> Option<Arc<dyn PageMover>> {
        None
    }

    /// What a link to another process reads and writes pages by, valid until the next
    /// [`allocate`](Self::allocate); `None` where pages hold nothing or are not allocated yet. Not
    /// meant for each step: it may allocate.
    fn page_bytes(&self) -> Option<Arc<dyn PageBytes>> {
        let memories = self.memories();
        (!memories.is_empty()).then(|| {
            let pages = RankPages::new(memories.to_vec(), self.spec().link_parts());
            let pages: Arc<dyn PageBytes> = Arc::new(pages);
            pages
        })
    }

    /// Runs the batch: writes each token's K/V rows into its slice's pages and leaves the rows of
    /// logits that are wanted, slice after slice, in the order of their tokens. Waits at
    /// [`Batch::loads`] before it reads the rows of a layer. Once the rows of a layer are in their
    /// pages on a rank, computed and loaded ones, it tells [`Batch::progress`]; it writes none of
    /// them again. Reads no row outside a pool's window; once it has seen its largest batch it
    /// allocates nothing.
    ///
    /// # Errors
    /// Any [`RunError`]; the pages of the batch's slices then hold rubbish.
    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError>;

    /// How long each rank computed in the last [`execute`](Self::execute): without what it waited
    /// for other ranks and for loads. Empty where that is not measured.
    fn busy(&self) -> &[Duration] {
        &[]
    }

    /// The virtual time a step takes, for runners that only pretend to compute.
    fn modelled_time(&self, _batch: &Batch) -> Option<Duration> {
        None
    }
}

/// Moves what pages hold between the tiers, for runners that pretend to have memory.
pub trait PageMover: Send + Sync {
    /// The host page holds what the device page does.
    fn back_up(&self, pool: PoolId, device: PageId, host: PageId);

    /// The device page holds what the host page does.
    fn load(&self, pool: PoolId, device: PageId, host: PageId);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ModelSpec {
        let pool = |name, window| PoolSpec { name, page_tokens: 16, window, parts: Vec::new() };
        ModelSpec {
            name: String::new(),
            architecture: String::new(),
            vocab: 10,
            max_context: 64,
            eos: Vec::new(),
            bos: None,
            pools: vec![pool("kv", None), pool("swa", Some(16))],
            parameters: 0,
            weight_bytes: 0,
            kernels: Vec::new(),
        }
    }

    fn ids<T>(ids: &[u32], id: impl Fn(u32) -> T) -> Vec<T> {
        ids.iter().copied().map(id).collect()
    }

    /// One slice of `tokens` with `kv` pages in the first pool, and `swa` pages, from page
    /// `first` on, in the second.
    fn batch(tokens: &[u32], start: usize, kv: &[u32], first: usize, swa: &[u32]) -> Batch {
        let (kv, swa) = (ids(kv, PageId), ids(swa, PageId));
        let mut batch = Batch::default();
        let lists = [PageList::whole(&kv), PageList { first, pages: &swa }];
        batch.push(&ids(tokens, TokenId), start, 1, lists);
        batch
    }

    #[test]
    fn check_names_what_is_out_of_range() {
        let check = |batch: Batch, expect: &str| {
            let found = batch.check(&spec(), &[4, 2]);
            let found = found.map_or_else(|e| e.to_string(), |()| "ok".into());
            assert!(found.contains(expect), "{found}");
        };
        let one = |tokens: &[u32], start, kv: &[u32]| batch(tokens, start, kv, 0, &[1, 0, 1, 0]);
        check(one(&[1, 2], 14, &[0]), "ok");
        check(one(&[1, 10], 0, &[0]), "token 10");
        check(one(&[1, 2], 15, &[0]), "too few pages in kv");
        check(one(&[1], 0, &[4]), "page 4 of 4 in kv");
        check(one(&[1], 64, &[0, 1, 2, 3, 3]), "of 64 positions");
        check(one(&[], 0, &[]), "empty");
        let mut loose = one(&[1], 0, &[0]);
        loose.tokens.push(TokenId(1));
        check(loose, "1 tokens in slices, 2");
        let mut greedy = one(&[1], 0, &[0]);
        greedy.slices[0].logits = 2;
        check(greedy, "2 logits for 1 tokens");
        let mut short = Batch::default();
        short.push(&[TokenId(1)], 0, 1, [PageList::whole(&[PageId(0)])]);
        check(short, "pages in 1 pools of 2");
    }

    #[test]
    fn check_knows_which_pages_a_window_has_left_behind() {
        let check = |start, first, swa: &[u32], expect: &str| {
            let found = batch(&[1, 2], start, &[0, 1, 2, 3], first, swa).check(&spec(), &[4, 2]);
            let found = found.map_or_else(|e| e.to_string(), |()| "ok".into());
            assert!(found.contains(expect), "{start} {first}: {found}");
        };
        // Position 30 sees 15 to 30: the first page is needed; 31 sees 16 to 31: it is not.
        check(30, 0, &[0, 1], "ok");
        check(30, 1, &[0], "sees position 15, which swa gave back");
        check(31, 1, &[0, 1], "ok");
        check(31, 1, &[0], "too few pages in swa for 33");
        check(31, 1, &[0, 2], "page 2 of 2 in swa");
    }

    #[test]
    fn each_slice_finds_its_own_pages() {
        let mut batch = Batch::default();
        for (pages, first) in [(&[3, 1][..], 0), (&[], 0), (&[2], 5)] {
            let pages = ids(pages, PageId);
            let lists = [PageList::whole(&pages), PageList { first, pages: &pages }];
            batch.push(&[TokenId(1)], 0, 0, lists);
        }
        let first = batch.pages(0, PoolId(1));
        assert_eq!(first, PageList { first: 0, pages: &[PageId(3), PageId(1)] });
        assert_eq!(batch.pages(1, PoolId(0)).pages, &[]);
        let last = batch.pages(2, PoolId(1));
        assert_eq!(last, PageList { first: 5, pages: &[PageId(2)] });
        assert_eq!(last.page_of(83, 16), PageId(2));
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
