//! Several ranks compute what one does, bit for bit, and cache the same on each.

use types::PageId;

use super::golden::{NAME, runner_on};
use super::invariance::{prompts, run, spoil, tables};
use crate::arch::golden::fixture;
use crate::load::{LoadOptions, load};
use crate::ranks::DeepseekRunner;
use crate::runner::{Batch, Logits, ModelRunner, PageList};

/// Of every part, page and layer, what the rank has there.
fn cached(runner: &mut DeepseekRunner, rank: usize) -> Vec<u32> {
    let memory = &runner.memories()[rank];
    let parts: Vec<_> = memory.parts().map(|part| (part.pages, part.layers.len())).collect();
    let compute = runner.compute(rank);
    let mut all = Vec::new();
    for (part, (pages, layers)) in parts.into_iter().enumerate() {
        for page in (0..pages as u32).map(PageId) {
            for layer in 0..layers {
                let block = compute.block::<f32>(part, page, layer);
                all.extend(block.iter().map(|value| value.to_bits()));
            }
        }
    }
    all
}

#[test]
fn ranks_do_not_show() {
    let (mut one, mut two) = (runner_on(1, 1, 4), runner_on(2, 3, 4));
    let tables = tables([2, 0, 3, 1]);
    for ids in prompts() {
        let expect = run(&mut one, &tables, &ids, 0, &[1000]);
        let plans: [&[usize]; 8] =
            [&[1000], &[1], &[3], &[57], &[64], &[100], &[130], &[3, 1, 57, 5, 130, 2, 3]];
        for chunks in plans {
            for page in 0..4 {
                spoil(&mut two, |_| true, PageId(page));
            }
            let found = run(&mut two, &tables, &ids, 0, chunks);
            assert!(found == expect, "{} tokens in chunks of {chunks:?}", ids.len());
        }
    }
}

#[test]
fn every_rank_caches_what_one_does() {
    let (mut one, mut two) = (runner_on(1, 1, 4), runner_on(2, 2, 4));
    let tables = tables([2, 0, 3, 1]);
    let whole = one.spec().pools.clone();
    assert_eq!(two.spec().pools, whole, "a rank's pages hold what all of them hold");
    for ids in prompts() {
        run(&mut one, &tables, &ids, 0, &[57]);
        run(&mut two, &tables, &ids, 0, &[57]);
        let expect = cached(&mut one, 0);
        for rank in [0, 1] {
            assert!(cached(&mut two, rank) == expect, "rank {rank}, {} tokens", ids.len());
        }
    }
}

#[test]
fn a_prefix_in_pages_of_another_request_is_as_if_computed_on_every_rank() {
    let ids = prompts().remove(4);
    let expect = run(&mut runner_on(1, 1, 3), &tables([0, 1, 2]), &ids, 0, &[1000]);
    let mut runner = runner_on(2, 2, 8);
    let mut other = ids[..512].to_vec();
    other.extend(ids[..90].iter().rev());
    run(&mut runner, &tables([3, 4, 5]), &other, 0, &[100]);
    for page in [0, 1, 2, 6, 7] {
        spoil(&mut runner, |_| true, PageId(page));
    }
    let found = run(&mut runner, &tables([3, 4, 6]), &ids, 512, &[57]);
    assert!(found == expect);
}

/// Large matrices are on one rank or cut; what is the same on both is small.
#[test]
fn each_rank_has_its_share() {
    let [one, two] = [1, 2].map(|ranks| runner_on(ranks, 1, 1).spec().weight_bytes);
    assert!(one < two && two < one * 3 / 2, "{two} of {one}");
    let mut runner = runner_on(2, 1, 1);
    for rank in [0, 1] {
        let layer = &runner.share(rank).layers[1];
        assert_eq!((layer.attention.sink.len(), layer.attention.output_a.len()), (2, 1));
        assert_eq!(layer.moe.experts.len(), 4);
    }
}

#[test]
fn ranks_that_do_not_fit_are_named_with_some_that_do() {
    for (ranks, works) in [(3, 2), (4, 2), (7, 2)] {
        let options = LoadOptions { tp_size: ranks, ..LoadOptions::default() };
        let error = load(&fixture(NAME), options).err().unwrap().to_string();
        let expect = format!(
            "{ranks} ranks: o_groups is 2, which they cannot share out evenly; {works} would work"
        );
        assert!(error.contains(&expect), "{error}");
    }
}

#[test]
fn a_rank_that_panics_fails_the_step_and_not_the_next_one() {
    let mut runner = runner_on(2, 2, 2);
    let (ids, pages) = (prompts().remove(3), [PageId(0), PageId(1)]);
    let mut batch = Batch::default();
    batch.push(&ids, 0, 1, [PageList::whole(&pages); 2]);
    let (mut expect, mut found) = (Logits::new(), Logits::new());
    runner.execute(&batch, &mut expect).unwrap();
    for rank in [0, 1] {
        runner.let_panic(rank);
        let error = runner.execute(&batch, &mut found).unwrap_err().to_string();
        assert_eq!(error, format!("rank {rank}: panicked: injected panic"));
        runner.execute(&batch, &mut found).unwrap();
        assert_eq!(found, expect);
    }
    assert_eq!(runner.busy().len(), 2);
    assert!(runner.busy().iter().all(|busy| !busy.is_zero()));
}
