//! The tiny checkpoint against what its reference implementation computed: logits whole and
//! chunked, intermediate results, choices, every row of the pools, and greedy continuations.

use std::collections::HashMap;

use types::{PageId, TokenId};

use super::pools::{Block, Entries};
use crate::arch::golden::{CHUNKS, Golden, assert_close, fixture, kept_rows};
use crate::arch::trace::Trace;
use crate::load::{LoadOptions, load_deepseek_v4};
use crate::ranks::DeepseekRunner;
use crate::runner::{Batch, Logits, ModelRunner, PageList};

pub(super) const NAME: &str = "tiny-deepseek-v4";
const PAGES: u32 = 5;

pub(super) fn runner(threads: usize, pages: usize) -> DeepseekRunner {
    runner_on(1, threads, pages)
}

pub(super) fn runner_on(tp_size: usize, threads: usize, pages: usize) -> DeepseekRunner {
    let options = LoadOptions { threads, tp_size, ..LoadOptions::default() };
    let mut runner = load_deepseek_v4(&fixture(NAME), options).expect("the model loads");
    runner.allocate(&[pages, pages]).expect("small");
    runner
}

/// The pages of one request, in another order in each pool.
pub(super) struct Tables(pub(super) [Vec<PageId>; 2]);

impl Tables {
    fn new() -> Self {
        let pages = |step: u32, first: u32| {
            (0..PAGES).map(|i| PageId((i * step + first) % PAGES)).collect()
        };
        Self([pages(2, 3), pages(3, 1)])
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = PageList<'_>> {
        self.0.iter().map(|pages| PageList::whole(pages))
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

/// Cuts `ids[start..end]` so that logits come out at the probes.
fn push(
    batch: &mut Batch,
    tables: &Tables,
    ids: &[TokenId],
    (from, end): (usize, usize),
    probes: &[usize],
) {
    let mut start = from;
    for probe in probes.iter().filter(|probe| (from..end).contains(probe)) {
        batch.push(&ids[start..=*probe], start, 1, tables.lists());
        start = probe + 1;
    }
    if start < end {
        batch.push(&ids[start..end], start, 0, tables.lists());
    }
}

pub(super) fn rows_of(logits: &Logits) -> Vec<f32> {
    (0..logits.rows()).flat_map(|row| logits.row(row).to_vec()).collect()
}

fn check_whole(runner: &mut DeepseekRunner, golden: &Golden, prompt: usize) {
    let get = |name: &str| format!("p{prompt}.{name}");
    let ids = golden.tokens(&get("input_ids"));
    let probes = golden.integers(&get("probe_positions"));
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    push(&mut batch, &Tables::new(), &ids, (0, ids.len()), &probes);
    let mut seen = Recorder::default();
    runner.execute_traced(&batch, &mut logits, &mut seen).unwrap();
    assert_close(&rows_of(&logits), &golden.floats(&get("logits")), &get("logits"));
    let mut checked = 0;
    for (point, values) in &seen.0 {
        let name = get(&format!("trace.{point}"));
        let integers = |name: &str| -> Vec<i64> {
            golden.integers(name).into_iter().map(|value| i64::from(value as u32 as i32)).collect()
        };
        if point.ends_with("indexer.topk") {
            if golden.has(&name) {
                check_choice(values, &integers(&name), ids.len(), &name);
            }
        } else if point.ends_with("router.experts") {
            let found: Vec<i64> =
                kept_rows(values, ids.len(), &probes).iter().map(|e| *e as i64).collect();
            assert_eq!(found, integers(&name), "{name}");
        } else if point == "final_norm" || point == "hc_head" {
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
        checked += 1;
    }
    assert_eq!(checked, 6 * 12 + 2 + 3, "points of all layers, two indexers, the ends");
    check_pools(runner, golden, &get("pool"), ids.len());
}

/// The chosen entries of every position, as sets.
fn check_choice(found: &[f32], expect: &[i64], length: usize, what: &str) {
    let (width, wide) = (found.len() / length, expect.len() / length);
    for position in 0..length {
        let set = |values: Vec<i64>| {
            let mut set: Vec<i64> = values.into_iter().filter(|value| *value >= 0).collect();
            set.sort_unstable();
            set
        };
        let row = &found[position * width..(position + 1) * width];
        let found = set(row.iter().map(|value| *value as i64).collect());
        let expect = set(expect[position * wide..(position + 1) * wide].to_vec());
        assert_eq!(found, expect, "{what} at {position}");
    }
}

/// Rows of one layer, `row_len` numbers each.
fn read(
    runner: &mut DeepseekRunner,
    pages: &[PageId],
    at: Block,
    rows: impl Iterator<Item = (usize, usize)>,
    row_len: usize,
) -> Vec<f32> {
    let compute = runner.compute(0);
    rows.flat_map(|(page, slot)| {
        let block = compute.block::<f32>(at.part, pages[page], at.layer);
        block[slot * row_len..(slot + 1) * row_len].to_vec()
    })
    .collect()
}

/// Everything that is cached after `length` tokens.
fn check_pools(runner: &mut DeepseekRunner, golden: &Golden, prefix: &str, length: usize) {
    let [history, window] = Tables::new().0;
    let tokens = runner.spec().pools[0].page_tokens;
    let dim = runner.share(0).config.head_dim;
    for layer in 0..runner.share(0).layers.len() {
        let place = runner.share(0).layers[layer].place;
        let name = |rest: &str| format!("{prefix}.layer{layer}.{rest}");
        let recent = (length.saturating_sub(127)..length).map(|t| (t / tokens, t % tokens));
        let rows = read(runner, &window, place.window, recent, dim);
        assert_close(&rows, &golden.floats(&name("swa_kv")), &name("swa_kv"));
        for (kind, entries) in [("comp", place.entries), ("index", place.index)] {
            let Some(entries) = entries else { continue };
            let compressor = {
                let attention = &runner.share(0).layers[layer].attention;
                let indexer = attention.indexer.as_ref().map(|indexer| &indexer.compressor);
                if kind == "comp" { attention.compressor.as_ref() } else { indexer }
            };
            let compressor = compressor.expect("a layer with entries");
            let shape = (compressor.ratio, compressor.norm.len(), compressor.overlaps);
            let bias = compressor.bias.clone();
            let name = |rest: &str| name(&format!("{kind}.{rest}"));
            check_entries(
                runner,
                golden,
                (&history, &window),
                entries,
                (shape, &bias),
                length,
                name,
            );
        }
    }
}

fn check_entries(
    runner: &mut DeepseekRunner,
    golden: &Golden,
    (history, window): (&[PageId], &[PageId]),
    at: Entries,
    ((ratio, dim, overlaps), bias): ((usize, usize, bool), &[f32]),
    length: usize,
    name: impl Fn(&str) -> String,
) {
    let tokens = runner.spec().pools[0].page_tokens;
    let entries = length / ratio;
    let places = (0..entries).map(|w| (w * ratio / tokens, w * ratio % tokens / ratio));
    let rows = read(runner, history, at.rows, places, dim);
    if entries > 0 {
        assert_close(&rows, &golden.floats(&name("rows")), &name("rows"));
    }
    let (ring, width) = if overlaps { (2 * ratio, 2 * dim) } else { (ratio, dim) };
    let mut state = |positions: std::ops::Range<usize>| {
        let places = positions.map(|t| (t / tokens, t % ring));
        read(runner, window, at.state, places, 2 * width)
    };
    let tail = state(entries * ratio..length);
    if !tail.is_empty() {
        let rows = || tail.chunks_exact(2 * width);
        let values: Vec<f32> = rows().flat_map(|row| row[..width].to_vec()).collect();
        assert_close(&values, &golden.floats(&name("tail_kv")), &name("tail_kv"));
        let gates: Vec<f32> = rows().flat_map(|row| row[width..].to_vec()).collect();
        let gates: Vec<f32> = gates.iter().zip(bias).map(|(gate, bias)| gate - bias).collect();
        assert_close(&gates, &golden.floats(&name("tail_gate")), &name("tail_gate"));
    }
    if overlaps && entries > 0 {
        let before = state((entries - 1) * ratio..entries * ratio);
        for (part, from) in [("overlap_kv", 0), ("overlap_gate", width)] {
            let rows = before.chunks_exact(2 * width);
            let half: Vec<f32> = rows.flat_map(|row| row[from..from + dim].to_vec()).collect();
            assert_close(&half, &golden.floats(&name(part)), &name(part));
        }
    }
}

/// The same prompt in odd chunks, one step each.
fn check_chunked(runner: &mut DeepseekRunner, golden: &Golden, prompt: usize) {
    let get = |name: &str| format!("p{prompt}.{name}");
    let ids = golden.tokens(&get("input_ids"));
    let probes = golden.integers(&get("probe_positions"));
    let tables = Tables::new();
    let (mut logits, mut found, mut start) = (Logits::new(), Vec::new(), 0);
    for chunk in CHUNKS.iter().cycle() {
        let end = ids.len().min(start + chunk);
        if start == end {
            break;
        }
        let mut batch = Batch::default();
        push(&mut batch, &tables, &ids, (start, end), &probes);
        runner.execute(&batch, &mut logits).unwrap();
        found.extend(rows_of(&logits));
        start = end;
    }
    let name = get("chunked_odd.logits");
    assert_close(&found, &golden.floats(&name), &name);
}

/// Continues a prompt greedily; returns the tokens and each step's logits.
pub(super) fn continue_greedily(
    runner: &mut DeepseekRunner,
    ids: &[TokenId],
    steps: usize,
) -> (Vec<TokenId>, Vec<f32>) {
    let (mut logits, tables) = (Logits::new(), Tables::new());
    let mut batch = Batch::default();
    batch.push(ids, 0, 1, tables.lists());
    let (mut tokens, mut rows) = (Vec::new(), Vec::new());
    for step in 0..steps {
        runner.execute(&batch, &mut logits).unwrap();
        rows.extend_from_slice(logits.row(0));
        let token = TokenId(kernels::argmax(logits.row(0)).expect("finite") as u32);
        tokens.push(token);
        batch.clear();
        batch.push(&[token], ids.len() + step, 1, tables.lists());
    }
    (tokens, rows)
}

#[test]
fn tiny_deepseek_v4_is_reproduced() {
    check_ranks(1);
}

#[test]
fn two_ranks_reproduce_tiny_deepseek_v4() {
    check_ranks(2);
}

/// Everything on `tp_size` ranks; what is cached is that of the first.
fn check_ranks(tp_size: usize) {
    let golden = Golden::read(NAME);
    let mut runner = runner_on(tp_size, 2, PAGES as usize);
    let prompts = (0..).take_while(|i| golden.has(&format!("p{i}.input_ids"))).count();
    assert_eq!(prompts, 5);
    for prompt in 0..prompts {
        let get = |name: &str| format!("p{prompt}.{name}");
        check_whole(&mut runner, &golden, prompt);
        if golden.has(&get("chunked_odd.logits")) {
            check_chunked(&mut runner, &golden, prompt);
        }
        let ids = golden.tokens(&get("input_ids"));
        let (tokens, rows) = continue_greedily(&mut runner, &ids, 32);
        assert_eq!(tokens, golden.tokens(&get("greedy_ids")), "p{prompt}");
        assert_close(&rows, &golden.floats(&get("greedy_logits")), &get("greedy_logits"));
        check_pools(&mut runner, &golden, &get("pool_after_greedy"), ids.len() + 31);
    }
}
