use std::sync::Arc;

use kernels::WeightFormat;
use memory_pool::{CopyEngine, CopyHook, CopyPage, Direction, HostLayout, HostMemory, HostOptions};
use types::{PageId, PoolId, TokenId};

use super::*;
use crate::arch::convert::{GgufFile, Kind};
use crate::arch::golden::{Golden, check_ranks, continue_greedily, fixture, runner};
use crate::arch::invariance;
use crate::load::{LoadOptions, load};
use crate::runner::PageList;

/// Those with more than one K/V head.
const MODELS: [&str; 4] = ["tiny-llama", "tiny-llama-bf16", "tiny-qwen3", "tiny-gemma3"];

fn on_two(threads: usize) -> LoadOptions {
    LoadOptions { threads, tp_size: 2, ..LoadOptions::default() }
}

#[test]
fn two_ranks_reproduce_every_golden_model() {
    for name in MODELS {
        check_ranks(&fixture(name), name, 2);
    }
}

#[test]
fn two_ranks_do_not_depend_on_batch_chunks_or_threads() {
    for name in ["tiny-qwen3", "tiny-gemma3"] {
        invariance::check_ranks(&fixture(name), &invariance::prompts(name), 2);
    }
}

/// Columns of quantised matrices are cut between blocks: what ranks add up is what one computes, up
/// to the order of the sum.
#[test]
fn quantised_models_are_cut_between_blocks() {
    for kind in [Kind::Q8_0, Kind::Q4_1] {
        let file = GgufFile::convert("tiny-llama", kind, "ranks");
        let ids = Golden::read("tiny-llama").tokens("p0.input_ids");
        let one = continue_greedily(&mut runner(&file.0, LoadOptions::default()), &ids, 8);
        let two = continue_greedily(&mut runner(&file.0, on_two(2)), &ids, 8);
        assert_eq!(one.0, two.0);
        let worst = one.1.iter().zip(&two.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // The int8 form of activations turns the last bit of a sum into a step now and then.
        assert!(worst < 2e-2, "{worst}");
    }
}

#[test]
fn each_rank_has_its_heads_its_threads_and_its_pages() {
    let mut two = runner(&fixture("tiny-llama"), on_two(3));
    let one = runner(&fixture("tiny-llama"), LoadOptions::default());
    assert_eq!(two.memories().len(), 2);
    let [whole, half] = [&one, &two].map(|runner| runner.spec().pools[0].page_bytes());
    assert_eq!(half * 2, whole);
    let bytes = |runner: &DenseRunner| runner.memories().iter().map(|m| m.bytes().0).sum::<u64>();
    assert_eq!(bytes(&one), bytes(&two));
    let threads: Vec<usize> = two.ranks.iter_mut().map(|rank| own(rank).threads()).collect();
    assert_eq!(threads, [2, 1]);
    // Norms are on both, everything else on one.
    let more = two.spec().weight_bytes - one.spec().weight_bytes;
    assert!(more < one.spec().weight_bytes / 50, "{more} of {}", one.spec().weight_bytes);
    assert_eq!(one.spec().kernels, two.spec().kernels);
    assert!(one.spec().kernels.iter().any(|used| used.format == WeightFormat::F32.to_string()));
}

#[test]
fn ranks_that_do_not_fit_are_named_with_some_that_do() {
    for (ranks, works) in [(3, 2), (4, 2), (7, 2)] {
        let options = LoadOptions { tp_size: ranks, ..LoadOptions::default() };
        let error = load(&fixture("tiny-llama"), options).err().unwrap().to_string();
        let expect =
            format!("{ranks} ranks: 2 K/V heads cannot be shared out evenly; {works} would");
        assert!(error.contains(&expect), "{error}");
    }
}

fn step(runner: &mut DenseRunner, tokens: std::ops::Range<u32>, start: usize) -> Batch {
    let tokens: Vec<_> = tokens.map(TokenId).collect();
    let pages: Vec<_> = (0..4).map(PageId).collect();
    let mut batch = Batch::default();
    let lists = runner.spec().pools.iter().map(|_| PageList::whole(&pages));
    batch.push(&tokens, start, 1, lists);
    batch
}

#[test]
fn a_rank_that_panics_fails_the_step_and_not_the_next_one() {
    let mut runner = runner(&fixture("tiny-llama"), on_two(2));
    let batch = step(&mut runner, 5..25, 0);
    let mut expect = Logits::new();
    runner.execute(&batch, &mut expect).unwrap();
    for rank in [0, 1] {
        runner.panic = Some(rank);
        let error = runner.execute(&batch, &mut Logits::new()).unwrap_err().to_string();
        assert_eq!(error, format!("rank {rank}: panicked: injected panic"));
        let mut again = Logits::new();
        runner.execute(&batch, &mut again).unwrap();
        assert_eq!(again, expect);
    }
}

/// Pages that went to the host and come back on both ranks, behind the gate of each: the same bits.
/// A load that fails fails the step.
#[test]
fn ranks_wait_for_the_layers_that_are_loaded() {
    for (name, tp_size) in [("tiny-llama", 1), ("tiny-llama", 2), ("tiny-gemma3", 2)] {
        let options = LoadOptions { threads: 2, tp_size, ..LoadOptions::default() };
        let mut runner = runner(&fixture(name), options);
        let pools = runner.spec().pools.len();
        let host = HostMemory::allocate(
            &runner.spec().part_layouts(&vec![50; pools]),
            HostOptions {
                ranks: tp_size,
                nodes: vec![None; tp_size],
                layout: HostLayout::LayerFirst,
                ..HostOptions::default()
            },
            &mut |_| (),
        );
        let hook: CopyHook = Arc::new(|step| assert!(step.id != 9, "injected"));
        let host = Arc::new(host.unwrap());
        let copies = CopyEngine::with_hook(runner.memories().to_vec(), host, 8, hook);
        let prompt = step(&mut runner, 5..53, 0);
        let mut next = step(&mut runner, 60..62, 48);
        let (mut expect, mut found) = (Logits::new(), Logits::new());
        runner.execute(&prompt, &mut found).unwrap();
        runner.execute(&next, &mut expect).unwrap();
        // The fourth page is written by the step itself, so no copy may have it.
        let pages: Vec<CopyPage> = (0..pools as u16)
            .flat_map(|pool| (0..3).map(move |page| (PoolId(pool), page)))
            .map(|(pool, page)| CopyPage { pool, device: PageId(page), host: PageId(49 - page) })
            .collect();
        copies.submit(1, Direction::Backup, pages.clone()).unwrap();
        copies.wait(1);
        // Other rows in the same pages.
        let other = step(&mut runner, 100..150, 0);
        runner.execute(&other, &mut found).unwrap();
        runner.execute(&next, &mut found).unwrap();
        assert_ne!(found, expect, "{name}");
        copies.submit(2, Direction::Load, pages[..2].to_vec()).unwrap();
        copies.submit(3, Direction::Load, pages[2..].to_vec()).unwrap();
        next.loads = copies.gate();
        runner.execute(&next, &mut found).unwrap();
        assert_eq!(found, expect, "{name} on {tp_size}");
        copies.submit(9, Direction::Load, pages).unwrap();
        next.loads = copies.gate();
        let error = runner.execute(&next, &mut found).unwrap_err().to_string();
        assert!(error.ends_with("failed: injected"), "{error}");
        next.loads = None;
        next.clear();
        assert_eq!(runner.execute(&next, &mut found), Ok(()));
    }
}
