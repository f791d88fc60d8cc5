//! What a request computes never depends on its neighbours, its chunks or the threads: bit for bit.

use std::path::Path;

use kernels::KernelPath;
use types::{PageId, TokenId};

use super::convert::{GgufFile, Kind};
use super::golden::{Golden, continue_greedily, fixture, pages, runner};
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
    options: LoadOptions<'_>,
    prompts: &[Vec<TokenId>],
    chunks: &[&[usize]],
) -> Vec<Vec<f32>> {
    let mut runner = runner(path, options);
    runner.allocate(&[200]).unwrap();
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
            batch.push(
                tokens,
                request.computed,
                usize::from(last),
                [PageList::whole(&request.pages)],
            );
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
    for kernel_path in [KernelPath::Detect, KernelPath::Reference] {
        let options = |threads| LoadOptions { threads, kernel_path, ..LoadOptions::default() };
        let mut alone = runner(path, options(1));
        let alone = prompts.iter().map(|ids| bits(&continue_greedily(&mut alone, ids, STEPS).1));
        let expect: Vec<Vec<u32>> = alone.collect();
        let plans: [&[&[usize]]; 3] =
            [&[&[1000]], &[&[3, 1, 57, 5], &[1], &[16, 2]], &[&[1], &[2], &[31, 33]]];
        for (threads, plan) in [1, 2, 3].into_iter().zip(plans) {
            let found = run_together(path, options(threads), prompts, plan);
            for (prompt, (found, expect)) in found.iter().zip(&expect).enumerate() {
                let path = path.display();
                let what = format!("{path} {kernel_path} p{prompt}, {threads} threads, {plan:?}");
                assert!(bits(found) == *expect, "{what}");
            }
        }
    }
}

fn prompts(name: &str) -> Vec<Vec<TokenId>> {
    let golden = Golden::read(name);
    (0..3).map(|prompt| golden.tokens(&format!("p{prompt}.input_ids"))).collect()
}

#[test]
fn float_models_do_not_depend_on_batch_chunks_or_threads() {
    for name in ["tiny-llama3-rope", "tiny-qwen3", "tiny-llama-bf16"] {
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

/// Logits of inner positions are those that a slice ending there gives, and chunks of any size
/// may want any number of them.
#[test]
fn logits_of_inner_positions_do_not_depend_on_where_a_slice_ends() {
    let name = "tiny-llama3-rope";
    let ids = &prompts(name)[2];
    let pages = pages();
    let logits_of = |kernel_path, plan: &[(usize, usize)]| {
        let mut runner =
            runner(&fixture(name), LoadOptions { threads: 2, kernel_path, ..Default::default() });
        let (mut logits, mut rows, mut start) = (Logits::new(), Vec::new(), 0);
        for &(len, wanted) in plan.iter().cycle() {
            let len = len.min(ids.len() - start);
            if len == 0 {
                return rows;
            }
            let mut batch = Batch::default();
            let tokens = &ids[start..start + len];
            batch.push(tokens, start, wanted.min(len), [PageList::whole(&pages)]);
            runner.execute(&batch, &mut logits).unwrap();
            rows.extend((0..logits.rows()).map(|row| bits(logits.row(row))));
            start += len;
        }
        unreachable!("a cycle does not end");
    };
    for kernel_path in [KernelPath::Detect, KernelPath::Reference] {
        let every = logits_of(kernel_path, &[(1, 1)]);
        assert_eq!(every.len(), ids.len());
        assert!(logits_of(kernel_path, &[(1000, 1000)]) == every, "whole");
        assert!(logits_of(kernel_path, &[(7, 7), (1, 1), (30, 30)]) == every, "chunks");
        let last = logits_of(kernel_path, &[(1000, 40)]);
        assert!(last == every[ids.len() - 40..], "the last 40");
    }
}
