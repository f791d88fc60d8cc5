//! What a request computes never depends on its neighbours, its chunks, the threads, or whose pages
//! its prefix lies in: bit for bit.

use types::{PageId, PoolId, TokenId};

use super::golden::{NAME, Tables, runner};
use crate::arch::golden::Golden;
use crate::ranks::DeepseekRunner;
use crate::runner::{Batch, Logits, ModelRunner, PageList};

const STEPS: usize = 10;

pub(super) fn prompts() -> Vec<Vec<TokenId>> {
    let golden = Golden::read(NAME);
    (0..5).map(|prompt| golden.tokens(&format!("p{prompt}.input_ids"))).collect()
}

pub(super) fn tables(pages: impl IntoIterator<Item = u32> + Clone) -> Tables {
    let list = || pages.clone().into_iter().map(PageId).collect();
    Tables([list(), list()])
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

fn best(row: &[f32]) -> TokenId {
    TokenId(kernels::argmax(row).expect("finite") as u32)
}

/// Feeds `ids[from..]` in `chunks` and goes on greedily; the logits of the last [`STEPS`] tokens.
pub(super) fn run(
    runner: &mut DeepseekRunner,
    tables: &Tables,
    ids: &[TokenId],
    from: usize,
    chunks: &[usize],
) -> Vec<Vec<u32>> {
    let (mut ids, mut start) = (ids.to_vec(), from);
    let (mut batch, mut logits, mut rows) = (Batch::default(), Logits::new(), Vec::new());
    let mut chunks = chunks.iter().cycle();
    while rows.len() < STEPS {
        let end = ids.len().min(start + chunks.next().expect("endless"));
        let last = end == ids.len();
        batch.clear();
        batch.push(&ids[start..end], start, usize::from(last), tables.lists());
        runner.execute(&batch, &mut logits).unwrap();
        start = end;
        if last {
            rows.push(bits(logits.row(0)));
            ids.push(best(logits.row(0)));
        }
    }
    rows
}

#[test]
fn chunks_and_threads_do_not_show() {
    let (mut one, mut two) = (runner(1, 4), runner(3, 4));
    let tables = tables([2, 0, 3, 1]);
    for ids in prompts() {
        let expect = run(&mut one, &tables, &ids, 0, &[1000]);
        let plans: [&[usize]; 7] =
            [&[1], &[3], &[57], &[64], &[100], &[130], &[3, 1, 57, 5, 130, 2, 3]];
        for chunks in plans {
            let found = run(&mut two, &tables, &ids, 0, chunks);
            assert!(found == expect, "{} tokens in chunks of {chunks:?}", ids.len());
        }
    }
}

#[test]
fn neighbours_do_not_show() {
    let prompts = prompts();
    let mut runner = runner(2, 20);
    let own: Vec<Tables> = (0..5).map(|at| tables((0..4).map(|i| i * 5 + at))).collect();
    let alone: Vec<_> =
        prompts.iter().zip(&own).map(|(ids, t)| run(&mut runner, t, ids, 0, &[1000])).collect();
    runner.allocate(&[20, 20]).unwrap();
    let mut ids = prompts.clone();
    let (mut starts, mut found) = ([0; 5], vec![Vec::new(); 5]);
    let chunks = [1, 2, 31, 64, 101];
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    while found.iter().any(|rows| rows.len() < STEPS) {
        batch.clear();
        let mut served = Vec::new();
        for at in (0..5).filter(|at| found[*at].len() < STEPS) {
            let end = ids[at].len().min(starts[at] + chunks[at]);
            let last = end == ids[at].len();
            batch.push(&ids[at][starts[at]..end], starts[at], last.into(), own[at].lists());
            starts[at] = end;
            if last {
                served.push(at);
            }
        }
        runner.execute(&batch, &mut logits).unwrap();
        for (row, at) in served.into_iter().enumerate() {
            found[at].push(bits(logits.row(row)));
            ids[at].push(best(logits.row(row)));
        }
    }
    assert!(found == alone);
}

/// Fills a page of every part with what would spoil a result.
pub(super) fn spoil(runner: &mut DeepseekRunner, only: impl Fn(&str) -> bool, page: PageId) {
    let parts: Vec<(usize, usize)> = {
        let parts = runner.memories()[0].parts().enumerate();
        let parts = parts.filter(|(_, part)| only(part.name));
        parts.map(|(part, layout)| (part, layout.layers.len())).collect()
    };
    for (part, layers) in parts {
        for layer in 0..layers {
            runner.compute(0).block_mut::<f32>(part, page, layer).fill(f32::NAN);
        }
    }
}

/// Copies what the host tier keeps of a page.
fn copy(runner: &mut DeepseekRunner, pool: PoolId, from: PageId, to: PageId) {
    let history = |name: &str| !name.contains("swa") && !name.contains("state");
    let parts: Vec<(usize, usize)> = {
        let parts = runner.memories()[0].parts().enumerate();
        let parts = parts.filter(|(_, part)| part.host && history(part.name) == (pool.0 == 0));
        parts.map(|(part, layout)| (part, layout.layers.len())).collect()
    };
    for (part, layers) in parts {
        for layer in 0..layers {
            let bytes = runner.compute(0).block::<f32>(part, from, layer).to_vec();
            runner.compute(0).block_mut::<f32>(part, to, layer).copy_from_slice(&bytes);
        }
    }
}

#[test]
fn a_prefix_in_pages_of_another_request_is_as_if_computed() {
    let ids = prompts().remove(4);
    assert_eq!(ids.len(), 700);
    let mut runner = runner(2, 12);
    let expect = run(&mut runner, &tables([0, 1, 2]), &ids, 0, &[1000]);
    for shared in [1, 2] {
        // Another request with the same first pages, which then goes on otherwise, inside a page.
        let mut other = ids[..shared * 256].to_vec();
        other.extend(ids[..90].iter().rev());
        let first = tables([3, 4, 5, 6]);
        let before = run(&mut runner, &first, &other, 0, &[100]);
        let window = shared - 1;
        let own = Tables([
            (0..3).map(|i| PageId(if i < shared { 3 + i as u32 } else { 7 + i as u32 })).collect(),
            (window..3)
                .map(|i| PageId(if i < shared { 3 + i as u32 } else { 7 + i as u32 }))
                .collect(),
        ]);
        for page in 7..12 {
            spoil(&mut runner, |_| true, PageId(page));
        }
        // Of the window, only the last page of the prefix is left.
        for page in 0..window {
            spoil(
                &mut runner,
                |name| name.contains("swa") || name.contains("state"),
                PageId(3 + page as u32),
            );
        }
        let found = run_from(&mut runner, &own, window, &ids, shared * 256, &[57]);
        assert!(found == expect, "{shared} pages");
        // What was added beside it changed nothing of the other.
        let again = run_from(
            &mut runner,
            &Tables([first.0[0].clone(), first.0[1][window..].to_vec()]),
            window,
            &other,
            shared * 256,
            &[64],
        );
        assert!(again == before, "{shared} pages");
    }
}

/// As [`run`], with the first pages of the window given back.
fn run_from(
    runner: &mut DeepseekRunner,
    tables: &Tables,
    first: usize,
    ids: &[TokenId],
    from: usize,
    chunks: &[usize],
) -> Vec<Vec<u32>> {
    let (mut ids, mut start) = (ids.to_vec(), from);
    let (mut batch, mut logits, mut rows) = (Batch::default(), Logits::new(), Vec::new());
    let mut chunks = chunks.iter().cycle();
    while rows.len() < STEPS {
        let end = ids.len().min(start + chunks.next().expect("endless"));
        let last = end == ids.len();
        batch.clear();
        let lists = [PageList::whole(&tables.0[0]), PageList { first, pages: &tables.0[1] }];
        batch.push(&ids[start..end], start, usize::from(last), lists);
        runner.execute(&batch, &mut logits).unwrap();
        start = end;
        if last {
            rows.push(bits(logits.row(0)));
            ids.push(best(logits.row(0)));
        }
    }
    rows
}

#[test]
fn pages_that_were_copied_elsewhere_serve_as_well() {
    let ids = prompts().remove(4);
    let mut runner = runner(1, 12);
    let expect = run(&mut runner, &tables([0, 1, 2]), &ids, 0, &[1000]);
    // Both whole pages of history, and the last one of the window, at other ids.
    for page in 3..12 {
        spoil(&mut runner, |_| true, PageId(page));
    }
    copy(&mut runner, PoolId(0), PageId(0), PageId(5));
    copy(&mut runner, PoolId(0), PageId(1), PageId(3));
    copy(&mut runner, PoolId(1), PageId(1), PageId(8));
    for page in 0..3 {
        spoil(&mut runner, |_| true, PageId(page));
    }
    let own = Tables([[5, 3, 9].map(PageId).to_vec(), [8, 4].map(PageId).to_vec()]);
    let found = run_from(&mut runner, &own, 1, &ids, 512, &[130]);
    assert!(found == expect);
}
