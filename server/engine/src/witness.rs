//! A runner for tests that sees to it that every row of a request is its own.
//!
//! It writes each token with its position and a hash of everything before it into the rows of its
//! pages, in every layer of every part, and for each slice it reads back every row that the slice
//! sees, through the page lists. A row that holds anything else fails the step: a page of somebody
//! else, one that was overwritten, one whose rows have not come yet, a window that was given back
//! too early. The next token depends on the whole text, so an answer from a wrong prefix that is
//! whole in itself shows as well.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use memory_pool::{Compute, DeviceMemory, PoolError};
use model::{Batch, FakeOptions, Logits, ModelRunner, ModelSpec, PartSpec, PoolSpec, RunError};
use types::{PoolId, TokenId};

/// What is written of a token: the hash of the text up to it, with its layer and part, and its
/// position beside the token itself.
pub(crate) type Row = [u64; 2];

/// The device memory of a witness, for whoever copies pages of it in its name.
pub(crate) type Bytes = Arc<Mutex<Option<Compute>>>;

/// Layers of the model: even ones see everything, odd ones a window where there is one.
pub(crate) const LAYERS: usize = 4;

/// The text before its first token.
const START: u64 = 0x5be5;

/// See the module.
pub(crate) struct Witness {
    options: FakeOptions,
    spec: ModelSpec,
    /// The index pool and the spec of each part, in the order of the device's part numbers.
    parts: Vec<(PoolId, PartSpec)>,
    pages: Vec<usize>,
    bytes: Bytes,
    memories: Vec<Arc<DeviceMemory>>,
    /// Scratch: the hashes of the text of each slice, from its first position to its end.
    texts: Vec<Vec<u64>>,
}

impl Witness {
    /// A runner without pages. Of `options` it takes the vocabulary, the context, the page size,
    /// the window, what is answered, and the times.
    pub(crate) fn new(options: FakeOptions) -> Self {
        let layer_bytes = options.page_tokens * size_of::<Row>();
        let part = |name, layers: &[usize]| PartSpec {
            name,
            layers: layers.to_vec(),
            layer_bytes: layer_bytes as u64,
            host: true,
            replicated: true,
        };
        let pool = |name, window, parts| PoolSpec {
            name,
            page_tokens: options.page_tokens,
            window,
            parts,
        };
        let pools = match options.window {
            None => vec![pool("kv", None, vec![part("kv", &[0, 1, 2, 3])])],
            // The first pool has two parts, as models with compressed rows have.
            Some(_) => vec![
                pool("kv", None, vec![part("kv", &[0, 2]), part("kv_index", &[2])]),
                pool("swa", options.window, vec![part("swa", &[1, 3])]),
            ],
        };
        let spec = ModelSpec {
            name: "witness".to_owned(),
            architecture: "witness".to_owned(),
            vocab: options.vocab,
            max_context: options.max_context,
            eos: options.eos.clone(),
            bos: None,
            pools,
            parameters: 0,
            weight_bytes: 0,
            kernels: Vec::new(),
        };
        let parts = (0..).zip(&spec.pools);
        let parts = parts.flat_map(|(id, pool)| {
            pool.parts.iter().map(move |part| (PoolId(id), part.clone())).collect::<Vec<_>>()
        });
        let parts = parts.collect();
        let bytes = Arc::default();
        Self { options, spec, parts, pages: vec![], bytes, memories: vec![], texts: vec![] }
    }

    /// Its memory, empty before pages are allocated.
    pub(crate) fn bytes(&self) -> Bytes {
        Arc::clone(&self.bytes)
    }

    /// The index pool and the spec of each part, in the order of the device's part numbers.
    pub(crate) fn parts(&self) -> &[(PoolId, PartSpec)] {
        &self.parts
    }

    /// The hash of the text that ends with `token` at `position`.
    pub(crate) const fn after(before: u64, position: usize, token: TokenId) -> u64 {
        mix(before ^ ((token.0 as u64) << 32 | position as u64))
    }

    /// The hash of a whole text.
    pub(crate) fn text(tokens: &[TokenId]) -> u64 {
        let tokens = tokens.iter().enumerate();
        tokens.fold(START, |text, (position, token)| Self::after(text, position, *token))
    }

    /// The hashes of all beginnings of a text.
    pub(crate) fn texts(tokens: &[TokenId]) -> Vec<u64> {
        let mut hash = START;
        let tokens = tokens.iter().enumerate();
        let after = tokens.map(|(position, token)| {
            hash = Self::after(hash, position, *token);
            hash
        });
        after.collect()
    }

    /// What is written of `token` at `position` in a layer of a part; `text` ends with it.
    pub(crate) const fn row(
        text: u64,
        part: usize,
        layer: usize,
        position: usize,
        token: TokenId,
    ) -> Row {
        [text ^ salt(part, layer), (token.0 as u64) << 32 | position as u64]
    }

    /// Writes the logits that follow a text: the next token at 8, all others at most 1.
    pub(crate) fn answer(options: &FakeOptions, text: u64, row: &mut [f32]) {
        let hash = mix(text ^ options.seed);
        let eos = (hash >> 32) % 1000 < u64::from(options.eos_per_mille);
        let span = options.emit.end - options.emit.start;
        let next = match options.eos.first() {
            Some(eos_token) if eos => *eos_token,
            Some(_) | None => TokenId(options.emit.start + (hash % u64::from(span)) as u32),
        };
        let mut noise = hash;
        for logit in row.iter_mut() {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *logit = (noise >> 40) as f32 / (1u64 << 24) as f32;
        }
        row[next.index()] = 8.0;
    }

    /// Takes down the text of each slice: what its rows in the first layer say, which sees
    /// everything, and its own tokens behind.
    fn begin(&mut self, batch: &Batch, compute: &Compute) {
        let page_tokens = self.options.page_tokens;
        self.texts.resize_with(batch.slices.len(), Vec::new);
        for ((index, slice), text) in batch.slices.iter().enumerate().zip(&mut self.texts) {
            let list = batch.pages(index, self.parts[0].0);
            let before = pages(0..slice.start, page_tokens).flat_map(|(page, slots)| {
                let rows = compute.block::<Row>(0, list.pages[page - list.first], 0);
                rows[slots].iter().map(|row| TokenId((row[1] >> 32) as u32))
            });
            let own = &batch.tokens[slice.first..slice.first + slice.len];
            let mut hash = START;
            let tokens = before.chain(own.iter().copied()).enumerate();
            text.clear();
            text.extend(tokens.map(|(position, token)| {
                hash = Self::after(hash, position, token);
                hash
            }));
        }
    }

    /// Writes the rows of all slices in one layer of a part, its `at`-th.
    fn write(&self, batch: &Batch, (part, at): (usize, usize), compute: &mut Compute) {
        let page_tokens = self.options.page_tokens;
        let (pool, spec) = &self.parts[part];
        let salt = salt(part, spec.layers[at]);
        for (index, slice) in batch.slices.iter().enumerate() {
            let list = batch.pages(index, *pool);
            let tokens = &batch.tokens[slice.first..slice.first + slice.len];
            let mut written = (slice.start..).zip(tokens).zip(&self.texts[index][slice.start..]);
            for (page, slots) in pages(slice.start..slice.end(), page_tokens) {
                let rows = compute.block_mut::<Row>(part, list.pages[page - list.first], at);
                for row in &mut rows[slots] {
                    let ((position, token), text) = written.next().expect("a row for each token");
                    *row = [text ^ salt, u64::from(token.0) << 32 | position as u64];
                }
            }
        }
    }

    /// Reads what all slices see in one layer of a part, its `at`-th.
    fn read(
        &self,
        batch: &Batch,
        (part, at): (usize, usize),
        compute: &Compute,
    ) -> Result<(), RunError> {
        let page_tokens = self.options.page_tokens;
        let (pool, PartSpec { name, layers, .. }) = &self.parts[part];
        let salt = salt(part, layers[at]);
        for (index, slice) in batch.slices.iter().enumerate() {
            let list = batch.pages(index, *pool);
            let first = self.spec.pools[usize::from(pool.0)].first_seen(slice.start);
            let mut expected = (first..).zip(&self.texts[index][first..]);
            for (page, slots) in pages(first..slice.end(), page_tokens) {
                let page = list.pages[page - list.first];
                for row in &compute.block::<Row>(part, page, at)[slots] {
                    let (position, text) = expected.next().expect("a text for each position");
                    if row[0] != text ^ salt || row[1] & 0xffff_ffff != position as u64 {
                        let (layer, tokens) = (layers[at], slice.end());
                        return Err(RunError::BadBatch(format!(
                            "page {page} of {name}, layer {layer}, does not hold position \
                             {position} of slice {index}, which has {tokens} tokens: {row:x?}"
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The pages that `positions` lie in, and their slots there.
fn pages(
    positions: Range<usize>,
    page_tokens: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = positions;
    (start / page_tokens..end.div_ceil(page_tokens)).map(move |page| {
        let first = page * page_tokens;
        (page, start.max(first) - first..end.min(first + page_tokens) - first)
    })
}

pub(crate) fn lock(bytes: &Bytes) -> MutexGuard<'_, Option<Compute>> {
    bytes.lock().expect("nobody panics while holding it")
}

/// Sets the rows of one layer and part apart from those of all others.
const fn salt(part: usize, layer: usize) -> u64 {
    mix(((part as u64) << 32) | layer as u64)
}

const fn mix(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl ModelRunner for Witness {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        self.pages = pages.to_vec();
        let layouts = self.spec.part_layouts(pages).into_iter().map(|(part, _)| part).collect();
        let refused = |error: PoolError| RunError::Backend(error.to_string());
        let memory = DeviceMemory::new(layouts).map_err(refused)?;
        *lock(&self.bytes) = memory.compute();
        self.memories = vec![memory];
        Ok(())
    }

    fn memories(&self) -> &[Arc<DeviceMemory>] {
        &self.memories
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        batch.check(&self.spec, &self.pages)?;
        let bytes = Arc::clone(&self.bytes);
        for layer in 0..LAYERS {
            if let Some(loads) = &batch.loads {
                loads.wait(0, layer)?;
            }
            let mut bytes = lock(&bytes);
            let compute = bytes.as_mut().ok_or(RunError::NotAllocated)?;
            if layer == 0 {
                self.begin(batch, compute);
            }
            for part in 0..self.parts.len() {
                let at = self.parts[part].1.layers.iter().position(|own| *own == layer);
                if let Some(at) = at {
                    self.write(batch, (part, at), compute);
                    self.read(batch, (part, at), compute)?;
                }
            }
            drop(bytes);
            if let Some(progress) = &batch.progress {
                progress.advance(0, layer + 1);
            }
        }
        let vocab = self.options.vocab;
        let mut rows = logits.reset(batch.logits_rows(), vocab).chunks_exact_mut(vocab);
        for (text, slice) in self.texts.iter().zip(&batch.slices) {
            for text in &text[slice.end() - slice.logits..] {
                let row = rows.next().expect("a row for each that is wanted");
                Self::answer(&self.options, *text, row);
            }
        }
        Ok(())
    }

    fn modelled_time(&self, batch: &Batch) -> Option<Duration> {
        Some(self.options.timing.of(batch))
    }
}

#[cfg(test)]
mod tests {
    use model::PageList;
    use types::PageId;

    use super::*;

    const OPTIONS: fn() -> FakeOptions =
        || FakeOptions { page_tokens: 4, window: Some(5), ..FakeOptions::default() };

    fn ids(ids: &[u32]) -> Vec<PageId> {
        ids.iter().copied().map(PageId).collect()
    }

    /// Runs `tokens` from position `start` on, with pages of both pools.
    fn run(
        witness: &mut Witness,
        tokens: &[u32],
        start: usize,
        kv: &[u32],
        (first, swa): (usize, &[u32]),
    ) -> Result<Logits, String> {
        let tokens: Vec<_> = tokens.iter().copied().map(TokenId).collect();
        let (kv, swa) = (ids(kv), ids(swa));
        let mut batch = Batch::default();
        let lists = [PageList::whole(&kv), PageList { first, pages: &swa }];
        batch.push(&tokens, start, 1, lists);
        let mut logits = Logits::new();
        witness.execute(&batch, &mut logits).map_err(|error| error.to_string())?;
        Ok(logits)
    }

    #[test]
    fn a_text_in_its_pages_is_answered_and_any_other_page_is_found() {
        let mut witness = Witness::new(OPTIONS());
        witness.allocate(&[8, 8]).expect("a little memory");
        let text: Vec<u32> = (1..=11).collect();
        run(&mut witness, &text[..10], 0, &[4, 1, 2], (0, &[0, 1, 2])).expect("its own pages");
        // Another text with other pages, but for the second one.
        run(&mut witness, &[9; 4], 0, &[5], (0, &[5])).expect("its own pages");
        let logits = run(&mut witness, &text[10..], 10, &[4, 1, 2], (1, &[1, 2]));
        let mut expected = vec![0.0; OPTIONS().vocab];
        let text: Vec<_> = text.into_iter().map(TokenId).collect();
        Witness::answer(&OPTIONS(), Witness::text(&text), &mut expected);
        assert_eq!(logits.expect("its own pages").row(0), expected);

        for (kv, swa) in [
            // The page of another text, one in another order, and one never written.
            ([5, 1, 2], [1, 2]),
            ([1, 4, 2], [1, 2]),
            ([4, 7, 2], [1, 2]),
            ([4, 1, 2], [5, 2]),
            ([4, 1, 2], [0, 2]),
        ] {
            let found = run(&mut witness, &[11], 10, &kv, (1, &swa)).expect_err("a wrong page");
            assert!(found.contains("does not hold position"), "{found}");
        }
    }

    #[test]
    fn a_row_that_changed_in_one_layer_is_found() {
        let mut witness = Witness::new(OPTIONS());
        witness.allocate(&[8, 8]).expect("a little memory");
        let prompt: Vec<u32> = (1..=6).collect();
        run(&mut witness, &prompt, 0, &[0, 1], (0, &[0, 1])).expect("its own pages");
        for (part, at) in [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)] {
            let bytes = witness.bytes();
            let change = |by: u64| {
                let mut bytes = lock(&bytes);
                let compute = bytes.as_mut().expect("allocated");
                compute.block_mut::<Row>(part, PageId(0), at)[3][0] ^= by;
            };
            change(1);
            let found = run(&mut witness, &[7], 6, &[0, 1], (0, &[0, 1])).expect_err("a bit");
            assert!(found.contains("does not hold position 3"), "{found}");
            change(1);
            run(&mut witness, &[7], 6, &[0, 1], (0, &[0, 1])).expect("it is back");
        }
    }
}
