//! A runner that only pretends: deterministic tokens, modelled step times, failures on demand.
//!
//! It keeps the tokens it is fed in its pages and reads them back through the page tables, so a
//! scheduler that mixes up pages gets other tokens or an error. It computes no attention and has
//! no weights.

mod cells;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use memory_pool::{LinkPart, PageBytes};
use types::{PageId, PoolId, TokenId};

use self::cells::{CELL_BYTES, Cell, Cells};
use crate::runner::{
    Batch, Logits, ModelRunner, ModelSpec, PageMover, PartSpec, PoolSpec, RunError, Slice,
};

/// How many of the last tokens decide the next one.
const TAIL: usize = 4;

/// What a [`FakeRunner`] pretends to be.
#[derive(Debug, Clone)]
pub struct FakeOptions {
    /// Vocabulary size.
    pub vocab: usize,
    /// Longest context.
    pub max_context: usize,
    /// Tokens per page.
    pub page_tokens: usize,
    /// Layers it pretends to have, at least one; they set the page size reported, and a page holds
    /// its tokens in each of them.
    pub layers: usize,
    /// Where set, it pretends to have as many layers again that see so many positions, in a pool
    /// of their own.
    pub window: Option<usize>,
    /// The tokens it answers with; must be in the vocabulary and not empty.
    pub emit: Range<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// How many of 1000 answers' tokens are the first `eos`; zero: never.
    pub eos_per_mille: u32,
    /// Makes another model: other tokens for the same prompts.
    pub seed: u64,
    /// How long its steps take.
    pub timing: FakeTiming,
    /// Whether `execute` sleeps its modelled time.
    pub real_time: bool,
    /// The step (0 = the first) that fails with [`RunError::Backend`].
    pub fail_at_step: Option<u64>,
    /// The step that panics.
    pub panic_at_step: Option<u64>,
    /// The step whose logits hold a NaN.
    pub nan_at_step: Option<u64>,
}

impl Default for FakeOptions {
    /// 512 tokens, 4096 positions, pages of 16, lower-case ASCII answers that never end.
    fn default() -> Self {
        Self {
            vocab: 512,
            max_context: 4096,
            page_tokens: 16,
            layers: 2,
            window: None,
            emit: 97..123,
            eos: vec![TokenId(511)],
            eos_per_mille: 0,
            seed: 0,
            timing: FakeTiming::default(),
            real_time: false,
            fail_at_step: None,
            panic_at_step: None,
            nan_at_step: None,
        }
    }
}

/// A linear model of a step's time.
#[derive(Debug, Clone, Copy)]
pub struct FakeTiming {
    /// Every step.
    pub step: Duration,
    /// Each token of a slice longer than one token.
    pub prefill_token: Duration,
    /// Each slice of one token.
    pub decode_row: Duration,
}

impl Default for FakeTiming {
    /// About what a small model does on two cores.
    fn default() -> Self {
        Self {
            step: Duration::from_millis(2),
            prefill_token: Duration::from_micros(500),
            decode_row: Duration::from_millis(1),
        }
    }
}

impl FakeTiming {
    /// The time that `batch` takes.
    #[must_use]
    pub fn of(&self, batch: &Batch) -> Duration {
        let nanos = |each: Duration, count: usize| each.as_nanos() as u64 * count as u64;
        let decode = batch.slices.iter().filter(|slice| slice.len == 1).count();
        let prefill = batch.tokens.len() - decode;
        let work = nanos(self.prefill_token, prefill) + nanos(self.decode_row, decode);
        self.step + Duration::from_nanos(work)
    }
}

/// See the module.
#[derive(Debug)]
pub struct FakeRunner {
    options: FakeOptions,
    spec: ModelSpec,
    /// What the slots of each pool hold.
    cells: Arc<Cells>,
    /// The pages of each pool.
    pages: Vec<usize>,
    steps: u64,
}

impl FakeRunner {
    /// A runner without pages yet.
    ///
    /// # Panics
    /// Where `emit` or `eos` is outside the vocabulary, or `emit` is empty.
    #[must_use]
    pub fn new(options: FakeOptions) -> Self {
        let FakeOptions { vocab, emit, eos, .. } = &options;
        assert!(options.layers > 0, "a model has layers");
        assert!(!emit.is_empty() && emit.end as usize <= *vocab, "emit {emit:?} of {vocab}");
        assert!(eos.iter().all(|token| token.index() < *vocab), "eos {eos:?} of {vocab}");
        let pool = |name, window: Option<usize>| {
            let first = if window.is_some() { options.layers } else { 0 };
            let layers = (first..first + options.layers).collect();
            let layer_bytes = options.page_tokens as u64 * 256;
            let part = PartSpec { name, layers, layer_bytes, host: true, replicated: true };
            PoolSpec { name, page_tokens: options.page_tokens, window, parts: vec![part] }
        };
        let windowed = options.window.map(|window| pool("swa", Some(window.max(1))));
        let spec = ModelSpec {
            name: "fake".to_owned(),
            architecture: "fake".to_owned(),
            vocab: options.vocab,
            max_context: options.max_context,
            eos: options.eos.clone(),
            bos: None,
            pools: [pool("kv", None)].into_iter().chain(windowed).collect(),
            parameters: 0,
            weight_bytes: 0,
            kernels: Vec::new(),
        };
        let bytes = options.page_tokens * CELL_BYTES;
        let parts = spec.link_parts().into_iter();
        let parts = parts.map(|part| LinkPart { layer_bytes: bytes, ..part }).collect();
        let cells = Arc::new(Cells::new(options.page_tokens, options.layers, parts));
        Self { options, spec, cells, pages: Vec::new(), steps: 0 }
    }

    /// How many steps were executed, failed ones included.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The greedy token after `context`: a pure function of its last four tokens, its length, and
    /// the options. What a test expects of the engine.
    #[must_use]
    pub fn next_token(options: &FakeOptions, context: &[TokenId]) -> TokenId {
        let tail = &context[context.len().saturating_sub(TAIL)..];
        Self::token_after(options, context.len(), tail)
    }

    fn token_after(options: &FakeOptions, length: usize, tail: &[TokenId]) -> TokenId {
        let mut hash = mix(options.seed ^ length as u64);
        for token in tail {
            hash = mix(hash ^ u64::from(token.0));
        }
        if let Some(eos) = options.eos.first()
            && (hash >> 32) % 1000 < u64::from(options.eos_per_mille)
        {
            return *eos;
        }
        let span = options.emit.end - options.emit.start;
        TokenId(options.emit.start + (hash % u64::from(span)) as u32)
    }

    /// The page of a position, and its slot there.
    fn slot(&self, batch: &Batch, slice: usize, pool: usize, position: usize) -> (PageId, usize) {
        let page_tokens = self.options.page_tokens;
        let page = batch.pages(slice, id(pool)).page_of(position, page_tokens);
        (page, position % page_tokens)
    }

    fn cell(
        &self,
        batch: &Batch,
        slice: usize,
        pool: usize,
        position: usize,
    ) -> Result<TokenId, RunError> {
        let (page, slot) = self.slot(batch, slice, pool, position);
        let stored = self.cells.get(pool, page, slot);
        stored.filter(|cell| cell.position == position).map(|cell| cell.token).ok_or_else(|| {
            RunError::BadBatch(format!("page {page} does not hold position {position}"))
        })
    }

    /// Writes the cells of the slices, all of a layer before the next one's, and tells.
    fn store(&self, batch: &Batch) {
        let layers = self.options.layers;
        for layer in 0..self.pages.len() * layers {
            let (pool, at) = (layer / layers, layer % layers);
            for (slice, part) in batch.slices.iter().enumerate() {
                let tokens = &batch.tokens[part.first..part.first + part.len];
                for (position, &token) in (part.start..).zip(tokens) {
                    let (page, slot) = self.slot(batch, slice, pool, position);
                    self.cells.set(pool, page, at, slot, Cell { token, position });
                }
            }
            if let Some(progress) = &batch.progress {
                progress.advance(0, layer + 1);
            }
        }
    }

    /// One cell of every page that the slice sees shows a page that was taken.
    fn look_at_pages(&self, batch: &Batch, slice: usize) -> Result<(), RunError> {
        let Slice { start, .. } = batch.slices[slice];
        let end = batch.slices[slice].end();
        let page_tokens = self.options.page_tokens;
        for (pool, spec) in self.spec.pools.iter().enumerate() {
            let seen = spec.first_seen(start);
            let starts = (seen.next_multiple_of(page_tokens)..end).step_by(page_tokens);
            for position in [seen].into_iter().chain(starts) {
                self.cell(batch, slice, pool, position)?;
            }
        }
        Ok(())
    }

    /// Writes the logits that follow the slice's token before `end`: the next token at 8, all
    /// others at most 1.
    fn answer(
        &self,
        batch: &Batch,
        slice: usize,
        end: usize,
        row: &mut [f32],
    ) -> Result<(), RunError> {
        let mut tail = [TokenId(0); TAIL];
        let tail = &mut tail[..TAIL.min(end)];
        for (token, position) in tail.iter_mut().zip(end.saturating_sub(TAIL)..end) {
            *token = self.cell(batch, slice, 0, position)?;
        }
        let next = Self::token_after(&self.options, end, tail);
        let mut hash = mix(end as u64 ^ (u64::from(next.0) << 32));
        for logit in row.iter_mut() {
            hash = hash.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *logit = (hash >> 40) as f32 / (1u64 << 24) as f32;
        }
        row[next.index()] = 8.0;
        Ok(())
    }
}

fn id(pool: usize) -> PoolId {
    PoolId(u16::try_from(pool).expect("two pools at most"))
}

impl ModelRunner for FakeRunner {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        assert_eq!(pages.len(), self.spec.pools.len(), "a number of pages per pool");
        self.pages = pages.to_vec();
        self.cells.allocate(pages);
        Ok(())
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        if self.pages.is_empty() {
            return Err(RunError::NotAllocated);
        }
        let step = self.steps;
        self.steps += 1;
        let vocab = self.options.vocab;
        batch.check(&self.spec, &self.pages)?;
        if self.options.real_time {
            std::thread::sleep(self.options.timing.of(batch));
        }
        if self.options.fail_at_step == Some(step) {
            return Err(RunError::Backend(format!("injected failure at step {step}")));
        }
        assert!(self.options.panic_at_step != Some(step), "injected panic at step {step}");
        if let Some(loads) = &batch.loads {
            loads.wait_all()?;
        }
        self.store(batch);
        let rows = logits.reset(batch.logits_rows(), vocab);
        let mut row = rows.chunks_exact_mut(vocab);
        for (at, slice) in batch.slices.iter().enumerate() {
            self.look_at_pages(batch, at)?;
            let first = slice.end() - slice.logits;
            for (end, row) in (first + 1..=slice.end()).zip(row.by_ref()) {
                self.answer(batch, at, end, row)?;
            }
        }
        if self.options.nan_at_step == Some(step)
            && let Some(first) = rows.first_mut()
        {
            *first = f32::NAN;
        }
        Ok(())
    }

    fn modelled_time(&self, batch: &Batch) -> Option<Duration> {
        Some(self.options.timing.of(batch))
    }

    fn mover(&self) -> Option<Arc<dyn PageMover>> {
        let cells: Arc<dyn PageMover> = Arc::<Cells>::clone(&self.cells);
        Some(cells)
    }

    fn page_bytes(&self) -> Option<Arc<dyn PageBytes>> {
        let cells: Arc<dyn PageBytes> = Arc::<Cells>::clone(&self.cells);
        (!self.pages.is_empty()).then_some(cells)
    }
}

fn mix(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use types::PageId;

    use super::*;
    use crate::runner::PageList;

    fn ids(values: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
        values.into_iter().map(TokenId).collect()
    }

    fn greedy(logits: &Logits, row: usize) -> TokenId {
        let row = logits.row(row);
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        TokenId(best as u32)
    }

    fn whole(pages: &[PageId]) -> [PageList<'_>; 1] {
        [PageList::whole(pages)]
    }

    #[test]
    fn tokens_depend_on_the_prompt_and_not_on_chunks_or_neighbours() {
        let options = FakeOptions::default();
        let mut runner = FakeRunner::new(options.clone());
        runner.allocate(&[8]).unwrap();
        let prompt = ids(5..45);
        let expect = FakeRunner::next_token(&options, &prompt);
        let pages = [3, 1, 0].map(PageId);
        let mut logits = Logits::new();
        let mut batch = Batch::default();
        batch.push(&prompt[..7], 0, 0, whole(&pages));
        runner.execute(&batch, &mut logits).unwrap();
        assert_eq!(logits.rows(), 0);
        batch.clear();
        batch.push(&ids([9, 9]), 0, 1, whole(&[PageId(7)]));
        batch.push(&prompt[7..], 7, 1, whole(&pages));
        runner.execute(&batch, &mut logits).unwrap();
        assert_eq!(greedy(&logits, 1), expect);
        assert!(options.emit.contains(&expect.0));
    }

    #[test]
    fn inner_positions_answer_as_if_they_were_last() {
        let options = FakeOptions::default();
        let mut runner = FakeRunner::new(options.clone());
        runner.allocate(&[8]).unwrap();
        let prompt = ids(5..45);
        let mut logits = Logits::new();
        let mut batch = Batch::default();
        batch.push(&prompt[..20], 0, 0, whole(&[3, 1, 0].map(PageId)));
        batch.push(&prompt[20..], 20, 15, whole(&[3, 1, 0].map(PageId)));
        runner.execute(&batch, &mut logits).unwrap();
        assert_eq!(logits.rows(), 15);
        for (row, end) in (26..=40).enumerate() {
            assert_eq!(greedy(&logits, row), FakeRunner::next_token(&options, &prompt[..end]));
        }
    }

    #[test]
    fn a_stolen_page_is_an_error() {
        let mut runner = FakeRunner::new(FakeOptions::default());
        runner.allocate(&[4]).unwrap();
        let mut logits = Logits::new();
        let mut batch = Batch::default();
        batch.push(&ids(0..17), 0, 1, whole(&[PageId(0), PageId(1)]));
        runner.execute(&batch, &mut logits).unwrap();
        batch.clear();
        batch.push(&ids([1]), 16, 1, whole(&[PageId(2), PageId(1)]));
        let error = runner.execute(&batch, &mut logits).unwrap_err();
        assert!(error.to_string().contains("page 2 does not hold position 0"), "{error}");
    }

    #[test]
    fn a_window_reads_its_own_pages_and_none_before() {
        let options = FakeOptions { window: Some(16), ..FakeOptions::default() };
        let mut runner = FakeRunner::new(options.clone());
        runner.allocate(&[4, 2]).unwrap();
        let prompt = ids(5..53);
        let kv = [0, 1, 2, 3].map(PageId);
        let run = |runner: &mut FakeRunner, start: usize, len: usize, first, swa: &[u32]| {
            let swa: Vec<_> = swa.iter().copied().map(PageId).collect();
            let lists = [PageList::whole(&kv), PageList { first, pages: &swa }];
            let mut batch = Batch::default();
            batch.push(&prompt[start..start + len], start, 1, lists);
            let mut logits = Logits::new();
            runner.execute(&batch, &mut logits).map(|()| greedy(&logits, 0))
        };
        run(&mut runner, 0, 31, 0, &[0, 1]).unwrap();
        // Position 31 sees 16 to 31: page 0 may be used again, here for 32 and on.
        let next = run(&mut runner, 31, 17, 1, &[1, 0]).unwrap();
        assert_eq!(next, FakeRunner::next_token(&options, &prompt));
        let error = run(&mut runner, 33, 1, 1, &[0, 1]).unwrap_err().to_string();
        assert!(error.contains("page 0 does not hold position 18"), "{error}");
    }

    #[test]
    fn failures_come_at_their_step() {
        let options =
            FakeOptions { fail_at_step: Some(1), nan_at_step: Some(0), ..FakeOptions::default() };
        let mut runner = FakeRunner::new(options);
        let mut logits = Logits::new();
        let mut batch = Batch::default();
        batch.push(&ids([1]), 0, 1, whole(&[PageId(0)]));
        assert_eq!(runner.execute(&batch, &mut logits), Err(RunError::NotAllocated));
        runner.allocate(&[1]).unwrap();
        runner.execute(&batch, &mut logits).unwrap();
        assert!(logits.row(0)[0].is_nan());
        assert!(matches!(runner.execute(&batch, &mut logits), Err(RunError::Backend(_))));
        assert_eq!(runner.steps(), 2);
        let time = runner.modelled_time(&batch).unwrap();
        assert_eq!(time, Duration::from_millis(3));
    }
}
