//! Dense decoders on several ranks.

use kernels::WeightFormat;
use types::{PageId, TokenId};

use super::*;
use crate::arch::convert::{GgufFile, Kind};
use crate::arch::golden::{Golden, check_ranks, continue_greedily, fixture, runner};
use crate::arch::invariance;
use crate::load::{LoadOptions, load};
use crate::runner::PageList;

/// The third has one K/V head, which both ranks hold.
const MODELS: [&str; 5] =
    ["tiny-llama", "tiny-llama-bf16", "tiny-llama3-rope", "tiny-qwen3", "tiny-gemma3"];

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
    for name in ["tiny-llama3-rope", "tiny-qwen3", "tiny-gemma3"] {
        invariance::check_ranks(&fixture(name), &invariance::prompts(name), 2);
    }
}

#[test]
fn four_ranks_hold_each_of_two_heads_twice() {
    for name in ["tiny-qwen3", "tiny-gemma3"] {
        check_ranks(&fixture(name), name, 4);
    }
    let options = LoadOptions { tp_size: 4, ..LoadOptions::default() };
    let [two, four] =
        [on_two(1), options].map(|options| runner(&fixture("tiny-qwen3"), options).spec().clone());
    assert_eq!(four.pools, two.pools);
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
    for (ranks, works) in [(3, 2), (5, 4), (7, 4)] {
        let options = LoadOptions { tp_size: ranks, ..LoadOptions::default() };
        let error = load(&fixture("tiny-llama"), options).err().unwrap().to_string();
        let expect = format!(
            "{ranks} ranks: num_attention_heads is 4, which they cannot share out evenly; {works}"
        );
        assert!(error.contains(&expect), "{error}");
    }
}

/// Consecutive tokens of a request that has the first four pages of each pool.
pub(super) fn step(
    runner: &RanksRunner<impl ModelShare>,
    tokens: std::ops::Range<u32>,
    start: usize,
) -> Batch {
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
    let batch = step(&runner, 5..25, 0);
    let mut expect = Logits::new();
    runner.execute(&batch, &mut expect).unwrap();
    for rank in [0, 1] {
        runner.let_panic(rank);
        let error = runner.execute(&batch, &mut Logits::new()).unwrap_err().to_string();
        assert_eq!(error, format!("rank {rank}: panicked: injected panic"));
        let mut again = Logits::new();
        runner.execute(&batch, &mut again).unwrap();
        assert_eq!(again, expect);
    }
}
