//! What a request computes never depends on its neighbours, its chunks or the threads: bit for bit.

use std::path::Path;

use kernels::KernelPath;
use types::{PageId, TokenId};

use super::convert::{GgufFile, Kind};
use super::golden::{Golden, Tables, continue_greedily, fixture, runner};
use crate::load::LoadOptions;
use crate::runner::{Batch, Logits, ModelRunner, PageList};
use crate::{Sampler, SamplingParams};

const STEPS: usize = 12;

/// One request in the mill below.
struct Request {
    ids: Vec<TokenId>,
    prompt: usize,
    computed: usize,
    pages: Vec<PageId>,
    chunks: Vec<usize>,
    /// Logits of every generated token.
    rows: Vec<f32>,
}

impl Request {
    fn wants_more(&self) -> bool {
        self.ids.len() < self.prompt + STEPS
    }
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|value| value.to_bits()).collect()
}

/// Runs all prompts at once with chunked prefill mixed into decode; returns each one's logits.
fn run_together(
    path: &Path,
    options: LoadOptions,
    prompts: &[Vec<TokenId>],
    chunks: &[&[usize]],
) -> Vec<Vec<f32>> {
    let mut runner = runner(path, options);
    let pools = runner.spec().pools.len();
    runner.allocate(&vec![200; pools]).unwrap();
    let page = |request: usize, index: usize| PageId((index * prompts.len() + request) as u32);
    let mut requests: Vec<Request> = prompts
        .iter()
        .enumerate()
        .map(|(at, ids)| Request {
            ids: ids.clone(),
            prompt: ids.len(),
            computed: 0,
            pages: (0..(ids.len() + STEPS).div_ceil(16)).map(|i| page(at, i)).collect(),
            chunks: chunks[at % chunks.len()].to_vec(),
            rows: Vec::new(),
        })
        .collect();
    let vocab = runner.spec().vocab;
    let mut sampler = Sampler::new(SamplingParams::default(), &[], None, &[], vocab, 0);
    let mut logits = Logits::new();
    let mut batch = Batch::default();
    for step in 0.. {
        batch.clear();
        let mut served = Vec::new();
        for (at, request) in requests.iter_mut().enumerate() {
            if !request.wants_more() {
                continue;
            }
            let chunk = request.chunks[step % request.chunks.len()];
            let end = request.ids.len().min(request.computed + chunk);
            let last = end == request.ids.len();
            let tokens = &request.ids[request.computed..end];
            let lists = std::iter::repeat_n(PageList::whole(&request.pages), pools);
            batch.push(tokens, request.computed, usize::from(last), lists);
            request.computed = end;
            if last {
                served.push(at);
            }
        }
        if batch.slices.is_empty() {
            break;
        }
        runner.execute(&batch, &mut logits).unwrap();
        for (row, at) in served.into_iter().enumerate() {
            requests[at].rows.extend_from_slice(logits.row(row));
            let token = sampler.sample(logits.row(row)).unwrap().token;
            requests[at].ids.push(token);
        }
    }
    requests.into_iter().map(|request| request.rows).collect()
}

/// Alone on one thread, or together with others, cut in several ways, on one to three threads.
pub(super) fn check(path: &Path, prompts: &[Vec<TokenId>]) {
    check_ranks(path, prompts, 1);
}

/// As [`check`], on `tp_size` ranks.
pub(crate) fn check_ranks(path: &Path, prompts: &[Vec<TokenId>], tp_size: usize) {
    for kernel_path in [KernelPath::Detect, KernelPath::Reference] {
        let options =
            |threads| LoadOptions { threads, kernel_path, tp_size, ..LoadOptions::default() };
        let mut alone = runner(path, options(1));
        let alone = prompts.iter().map(|ids| bits(&continue_greedily(&mut alone, ids, STEPS).1));
        let expect: Vec<Vec<u32>> = alone.collect();
        let plans: [&[&[usize]]; 3] =
            [&[&[1000]], &[&[3, 1, 57, 5], &[1], &[16, 2]], &[&[1], &[2], &[31, 33]]];
        for (threads, plan) in [1, 2, 3].into_iter().zip(plans) {
            let found = run_together(path, options(threads), prompts, plan);
            for (prompt, (found, expect)) in found.iter().zip(&expect).enumerate() {
                let path = path.display();
                let what = format!(
                    "{path} {kernel_path} p{prompt}, {tp_size} ranks, {threads} threads, {plan:?}"
                );
                assert!(bits(found) == *expect, "{what}");
            }
        }
    }
}

pub(crate) fn prompts(name: &str) -> Vec<Vec<TokenId>> {
    let golden = Golden::read(name);
    (0..3).map(|prompt| golden.tokens(&format!("p{prompt}.input_ids"))).collect()
}

#[test]
fn float_models_do_not_depend_on_batch_chunks_or_threads() {
    for name in ["tiny-llama3-rope", "tiny-qwen3", "tiny-llama-bf16", "tiny-gemma3"] {
        check(&fixture(name), &prompts(name));
    }
}

#[test]
fn quantised_models_do_not_depend_on_batch_chunks_or_threads() {
    for (kind, name) in [(Kind::Q4_1, "tiny-llama"), (Kind::Q4_0, "tiny-qwen3")] {
        let file = GgufFile::convert(name, kind, "invariance");
        check(&file.0, &prompts(name));
    }
}

/// The logits at every position of `ids`, or at the last ones, by `plan`: lengths of slices and how
/// many rows of each are wanted, over and over.
fn logits_by_plan(
    name: &str,
    kernel_path: KernelPath,
    ids: &[TokenId],
    plan: &[(usize, usize)],
) -> Vec<Vec<u32>> {
    let options = LoadOptions { threads: 2, kernel_path, ..LoadOptions::default() };
    let mut runner = runner(&fixture(name), options);
    let tables = Tables::of(&runner);
    let (mut logits, mut rows, mut start) = (Logits::new(), Vec::new(), 0);
    for &(len, wanted) in plan.iter().cycle() {
        let len = len.min(ids.len() - start);
        let mut batch = Batch::default();
        batch.push(&ids[start..start + len], start, wanted.min(len), tables.lists());
        runner.execute(&batch, &mut logits).unwrap();
        rows.extend((0..logits.rows()).map(|row| bits(logits.row(row))));
        start += len;
        if start == ids.len() {
            break;
        }
    }
    rows
}

/// Logits of inner positions are those that a slice ending there gives.
#[test]
fn logits_of_inner_positions_do_not_depend_on_where_a_slice_ends() {
    for name in ["tiny-llama3-rope", "tiny-gemma3"] {
        let ids = &prompts(name)[2];
        for path in [KernelPath::Detect, KernelPath::Reference] {
            let by_plan = |plan: &[(usize, usize)]| logits_by_plan(name, path, ids, plan);
            let every = by_plan(&[(1, 1)]);
            assert_eq!(every.len(), ids.len());
            assert!(by_plan(&[(1000, 1000)]) == every, "{name} {path}: whole");
            assert!(by_plan(&[(7, 7), (1, 1), (30, 30)]) == every, "{name} {path}: chunks");
            let last = by_plan(&[(1000, 40)]);
            assert!(last == every[ids.len() - 40..], "{name} {path}: the last 40");
        }
    }
}

/// A request whose window pool has as few pages as the window needs, used round and round, against
/// one that keeps all of them.
#[test]
fn pages_that_a_window_has_left_behind_can_be_used_again() {
    let name = "tiny-gemma3";
    let ids = &prompts(name)[2];
    let (whole, rows) =
        continue_greedily(&mut runner(&fixture(name), LoadOptions::default()), ids, 60);
    for chunk in [1, 5, 16] {
        let mut runner = runner(&fixture(name), LoadOptions::default());
        let window = runner.spec().pools[1].clone();
        let page_tokens = window.page_tokens;
        // Up to so many pages hold what the rows of a chunk see, however they lie.
        let seen = window.window.unwrap() - 1 + chunk;
        let ring = (seen - 1) / page_tokens + 2;
        runner.allocate(&[10, ring]).unwrap();
        let kv: Vec<_> = (0..10).map(PageId).collect();
        let (mut found, mut tokens) = (Vec::new(), ids.clone());
        let (mut batch, mut logits, mut start) = (Batch::default(), Logits::new(), 0);
        while found.len() < rows.len() {
            let end = tokens.len().min(start + chunk);
            let first = window.first_seen(start) / page_tokens;
            let swa = (first..end.div_ceil(page_tokens)).map(|i| PageId((i % ring) as u32));
            let swa: Vec<_> = swa.collect();
            assert!(swa.len() <= ring);
            let lists = [PageList::whole(&kv), PageList { first, pages: &swa }];
            batch.clear();
            batch.push(&tokens[start..end], start, usize::from(end == tokens.len()), lists);
            runner.execute(&batch, &mut logits).unwrap();
            start = end;
            if end == tokens.len() {
                found.extend_from_slice(logits.row(0));
                tokens.push(whole[tokens.len() - ids.len()]);
            }
        }
        assert!(bits(&found) == bits(&rows), "chunks of {chunk}, {ring} pages");
    }
}
