//! The tiny checkpoints against what their reference implementation computed: logits whole and
//! chunked, intermediate results, K/V rows, and greedy continuations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use types::{PageId, TokenId};

use super::Trace;
use super::pools::{layout, places};
use crate::config::RopePairs;
use crate::load::{LoadOptions, load_dense};
use crate::ranks::DenseRunner;
use crate::runner::{Batch, Logits, ModelRunner, PageList};

/// The recommended bound on any f32 difference.
const TOLERANCE: f32 = 2e-4;
pub(super) const CHUNKS: [usize; 7] = [3, 1, 57, 5, 130, 2, 3];
const PAGES: usize = 40;

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models").join(name)
}

pub(crate) fn runner(path: &Path, options: LoadOptions) -> DenseRunner {
    let (mut runner, _) = load_dense(path, options).expect("the model loads");
    let pools = runner.spec().pools.len();
    runner.allocate(&vec![PAGES; pools]).expect("small");
    runner
}

/// The pages of one request in every pool, each in another order, none of them ascending.
pub(crate) struct Tables(Vec<Vec<PageId>>);

impl Tables {
    /// All pages of a runner that [`runner`] made.
    pub(crate) fn of(runner: &DenseRunner) -> Self {
        let pools = 0..runner.spec().pools.len() as u32;
        let page = |pool: u32, page: u32| PageId((page * 7 + 3 + pool * 5) % PAGES as u32);
        Self(pools.map(|pool| (0..PAGES as u32).map(|i| page(pool, i)).collect()).collect())
    }

    /// With nothing given back.
    pub(crate) fn lists(&self) -> impl Iterator<Item = PageList<'_>> {
        self.0.iter().map(|pages| PageList::whole(pages))
    }
}

/// The reference's tensors.
pub(crate) struct Golden(HashMap<String, (Dtype, Vec<u8>)>);

impl Golden {
    pub(crate) fn read(name: &str) -> Self {
        let bytes = std::fs::read(fixture(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let copy = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            (name, (view.dtype(), view.data().to_vec()))
        };
        Self(tensors.tensors().into_iter().map(copy).collect())
    }

    fn words(&self, name: &str, dtype: Dtype) -> impl Iterator<Item = [u8; 4]> {
        let (found, bytes) = self.0.get(name).unwrap_or_else(|| panic!("no tensor {name}"));
        assert_eq!(*found, dtype, "{name}");
        bytes.as_chunks::<4>().0.iter().copied()
    }

    pub(super) fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name, Dtype::F32).map(f32::from_le_bytes).collect()
    }

    pub(super) fn integers(&self, name: &str) -> Vec<usize> {
        self.words(name, Dtype::I32).map(|word| i32::from_le_bytes(word) as usize).collect()
    }

    pub(crate) fn tokens(&self, name: &str) -> Vec<TokenId> {
        self.integers(name).into_iter().map(|id| TokenId(id as u32)).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

#[derive(Default)]
struct Recorder(HashMap<String, Vec<f32>>);

impl Trace for Recorder {
    fn see(&mut self, layer: Option<usize>, point: &'static str, values: &[f32]) {
        let name = match layer {
            Some(layer) => format!("layer{layer}.{point}"),
            None => point.to_owned(),
        };
        self.0.insert(name, values.to_vec());
    }
}

pub(super) fn assert_close(found: &[f32], expect: &[f32], what: &str) {
    assert_eq!(found.len(), expect.len(), "{what}");
    let worst = found.iter().zip(expect).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= TOLERANCE && !worst.is_nan(), "{what}: off by {worst}");
}

/// A batch that is one prompt, cut so that logits come out at `probes`.
fn whole(tables: &Tables, prompt: &[TokenId], probes: &[usize]) -> Batch {
    let mut batch = Batch::default();
    let mut start = 0;
    for probe in probes {
        batch.push(&prompt[start..=*probe], start, 1, tables.lists());
        start = probe + 1;
    }
    assert_eq!(start, prompt.len());
    batch
}

/// Rows of the positions that the golden file keeps of a traced tensor.
pub(super) fn kept_rows(values: &[f32], length: usize, probes: &[usize]) -> Vec<f32> {
    let width = values.len() / length;
    if length <= 20 {
        return values.to_vec();
    }
    probes.iter().flat_map(|probe| values[probe * width..(probe + 1) * width].to_vec()).collect()
}

fn check_whole(runner: &mut DenseRunner, golden: &Golden, prompt: usize) {
    let get = |name: &str| format!("p{prompt}.{name}");
    let ids = golden.tokens(&get("input_ids"));
    let probes = golden.integers(&get("probe_positions"));
    let mut logits = Logits::new();
    let mut seen = Recorder::default();
    let batch = whole(&Tables::of(runner), &ids, &probes);
    runner.execute_traced(&batch, &mut logits, &mut seen).unwrap();
    let rows: Vec<f32> = (0..logits.rows()).flat_map(|row| logits.row(row).to_vec()).collect();
    assert_close(&rows, &golden.floats(&get("logits")), &get("logits"));
    for (point, values) in &seen.0 {
        let name = get(&format!("trace.{point}"));
        if point == "final_norm" {
            // Only rows with logits get this far.
            let all = golden.floats(&name);
            let width = values.len() / probes.len();
            let kept = |i: usize| if ids.len() <= 20 { probes[i] } else { i };
            let row = |row: usize| all[row * width..(row + 1) * width].to_vec();
            let expect: Vec<f32> = (0..probes.len()).flat_map(|i| row(kept(i))).collect();
            assert_close(values, &expect, &name);
        } else {
            assert_close(&kept_rows(values, ids.len(), &probes), &golden.floats(&name), &name);
        }
    }
    if ids.len() <= 20 && runner.memories().len() == 1 {
        check_pool(runner, golden, prompt, ids.len());
    }
}

fn check_pool(runner: &mut DenseRunner, golden: &Golden, prompt: usize, length: usize) {
    let tables = Tables::of(runner);
    let config = runner.share(0).config().clone();
    for (layer, place) in places(&config).enumerate() {
        let pages = &tables.0[place.pool];
        let layout = layout(&config, runner.spec().pools[0].page_tokens);
        let parts = [("k", 0), ("v", layout.plane_len())];
        for (part, start) in parts {
            let mut rows = Vec::new();
            for head in 0..layout.kv_heads {
                for position in 0..length {
                    let page = pages[position / layout.page_tokens];
                    let page: &[f32] = runner.compute(0).block(place.pool, page, place.layer);
                    let at = start + layout.row(head, position % layout.page_tokens);
                    let row = &page[at..at + layout.head_dim];
                    if part == "k" && config.rope_pairs == RopePairs::Adjacent {
                        // The file's heads are permuted against the reference's.
                        rows.extend(row.iter().step_by(2));
                        rows.extend(row[1..].iter().step_by(2));
                    } else {
                        rows.extend_from_slice(row);
                    }
                }
            }
            let name = format!("p{prompt}.pool.layer{layer}.{part}");
            assert_close(&rows, &golden.floats(&name), &name);
        }
    }
}

/// The same prompt in odd chunks, one step each; compares the logits at the probes.
fn check_chunked(runner: &mut DenseRunner, golden: &Golden, prompt: usize) {
    let get = |name: &str| format!("p{prompt}.{name}");
    let ids = golden.tokens(&get("input_ids"));
    let probes = golden.integers(&get("probe_positions"));
    let expect = golden.floats(&get("chunked_odd.logits"));
    let tables = Tables::of(runner);
    let mut logits = Logits::new();
    let mut found = Vec::new();
    let mut start = 0;
    for chunk in CHUNKS.iter().cycle() {
        let end = ids.len().min(start + chunk);
        if start == end {
            break;
        }
        let mut batch = Batch::default();
        let mut from = start;
        for probe in probes.iter().filter(|probe| (start..end).contains(probe)) {
            batch.push(&ids[from..=*probe], from, 1, tables.lists());
            from = probe + 1;
        }
        if from < end {
            batch.push(&ids[from..end], from, 0, tables.lists());
        }
        runner.execute(&batch, &mut logits).unwrap();
        found.extend((0..logits.rows()).flat_map(|row| logits.row(row).to_vec()));
        start = end;
    }
    assert_close(&found, &expect, &get("chunked_odd.logits"));
}

/// Continues a prompt greedily; returns the tokens and each step's logits.
pub(crate) fn continue_greedily(
    runner: &mut DenseRunner,
    ids: &[TokenId],
    steps: usize,
) -> (Vec<TokenId>, Vec<f32>) {
    let (params, vocab) = (crate::SamplingParams::default(), runner.spec().vocab);
    let mut sampler = crate::Sampler::new(params, &[], None, ids, vocab, 0);
    let mut logits = Logits::new();
    let tables = Tables::of(runner);
    let mut batch = Batch::default();
    batch.push(ids, 0, 1, tables.lists());
    let (mut tokens, mut rows) = (Vec::new(), Vec::new());
    for step in 0..steps {
        runner.execute(&batch, &mut logits).unwrap();
        rows.extend_from_slice(logits.row(0));
        let token = sampler.sample(logits.row(0)).unwrap().token;
        tokens.push(token);
        batch.clear();
        batch.push(&[token], ids.len() + step, 1, tables.lists());
    }
    (tokens, rows)
}

fn check(name: &str) {
    check_model(&fixture(name), name);
}

/// The model at `path` reproduces the golden values of fixture `name`.
pub(crate) fn check_model(path: &Path, name: &str) {
    check_ranks(path, name, 1);
}

/// As [`check_model`], on `tp_size` ranks.
pub(crate) fn check_ranks(path: &Path, name: &str, tp_size: usize) {
    let golden = Golden::read(name);
    let options = LoadOptions { threads: 2, tp_size, ..LoadOptions::default() };
    let mut runner = runner(path, options);
    let prompts = (0..).take_while(|i| golden.has(&format!("p{i}.input_ids"))).count();
    assert_eq!(prompts, 4, "{name}");
    for prompt in 0..prompts {
        check_whole(&mut runner, &golden, prompt);
        // One token cannot be cut.
        if golden.has(&format!("p{prompt}.chunked_odd.logits")) {
            check_chunked(&mut runner, &golden, prompt);
        }
        let ids = golden.tokens(&format!("p{prompt}.input_ids"));
        let (tokens, rows) = continue_greedily(&mut runner, &ids, 32);
        assert_eq!(tokens, golden.tokens(&format!("p{prompt}.greedy_ids")), "{name} p{prompt}");
        let expect = golden.floats(&format!("p{prompt}.greedy_logits"));
        assert_close(&rows, &expect, &format!("{name} p{prompt}.greedy_logits"));
    }
}

#[test]
fn tiny_llama_is_reproduced() {
    check("tiny-llama");
}

#[test]
fn tiny_llama_in_bf16_is_reproduced() {
    check("tiny-llama-bf16");
}

#[test]
fn tiny_llama3_rope_is_reproduced() {
    check("tiny-llama3-rope");
}

#[test]
fn tiny_qwen3_is_reproduced() {
    check("tiny-qwen3");
}

#[test]
fn tiny_gemma3_is_reproduced() {
    check("tiny-gemma3");
}
