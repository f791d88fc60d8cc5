//! Pages that go to another runner of the same model: a request goes on there as if it had been
//! computed there. What a pass tells of its progress is true when it is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memory_pool::{Block, LayerProgress, PageBytes, ProgressState};
use types::{PageId, PoolId, TokenId};

use crate::arch::golden::{fixture, runner};
use crate::load::{LoadOptions, load_deepseek_v4};
use crate::runner::{Batch, Logits, ModelRunner, PageList, PoolSpec};
use crate::{FakeOptions, FakeRunner};

/// Pages of each pool.
const PAGES: usize = 12;
/// Tokens behind what is sent, and how many of them are a chunk of the prompt.
const MORE: usize = 5;
const PROMPT_MORE: usize = 2;

/// Where the pages of a request lie: the page with so many before it is page `(index * step + 1) %
/// PAGES` of each pool.
#[derive(Debug, Clone, Copy)]
struct Places {
    step: usize,
}

impl Places {
    fn page(self, index: usize) -> PageId {
        PageId(((index * self.step + 1) % PAGES) as u32)
    }

    /// What a slice at `start` sees, up to `end`, and nothing before.
    fn lists(self, pools: &[PoolSpec], start: usize, end: usize) -> Vec<(usize, Vec<PageId>)> {
        let list = |pool: &PoolSpec| {
            let first = pool.first_seen(start) / pool.page_tokens;
            (first, (first..end.div_ceil(pool.page_tokens)).map(|at| self.page(at)).collect())
        };
        pools.iter().map(list).collect()
    }
}

/// What was read when it was announced.
#[derive(Default)]
struct Seen {
    layers: usize,
    blocks: Vec<(Block, Bytes)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a slice, and reads what it writes as soon as that is announced: it does not change any
/// more.
fn run(
    runner: &mut dyn ModelRunner,
    places: Places,
    tokens: &[TokenId],
    start: usize,
    logits: &mut Logits,
) {
    let end = start + tokens.len();
    let pools = runner.spec().pools.clone();
    let lists = places.lists(&pools, start, end);
    let mut batch = Batch::default();
    let pages = lists.iter().map(|(first, pages)| PageList { first: *first, pages });
    batch.push(tokens, start, 1, pages);
    let bytes = runner.page_bytes().expect("its pages are allocated");
    let (ranks, layers) = (bytes.ranks(), runner.spec().layers());
    let progress = LayerProgress::new(ranks, layers);
    batch.progress = Some(progress.clone());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let look = {
        let (bytes, seen, progress) = (Arc::clone(&bytes), Arc::clone(&seen), progress.clone());
        let touched = pools.iter().map(|pool| {
            let written = start / pool.page_tokens..end.div_ceil(pool.page_tokens);
            written.map(|at| places.page(at)).collect()
        });
        let touched: Vec<Vec<PageId>> = touched.collect();
        move || {
            let mut seen = lock(&seen);
            let told = progress.layers();
            assert!(told >= seen.layers, "{told} layers after {}", seen.layers);
            for (number, part) in (0_u16..).zip(bytes.parts()) {
                let new = part.layers_within(seen.layers)..part.layers_within(told);
                for layer in new.map(|layer| layer as u16) {
                    for page in &touched[usize::from(part.pool.0)] {
                        for rank in 0..ranks as u16 {
                            let layers = layer..layer + 1;
                            let block = Block { rank, part: number, page: *page, layers };
                            let copy = bytes.read(&block).to_vec();
                            seen.blocks.push((block, copy.into()));
                        }
                    }
                }
            }
            seen.layers = told;
        }
    };
    progress.on_change(Box::new(look));
    runner.execute(&batch, logits).unwrap();
    assert_eq!((progress.layers(), progress.state()), (layers, ProgressState::Running));
    progress.finish();
    let seen = lock(&seen);
    assert_eq!(seen.layers, layers, "every layer was announced");
    let written = bytes.parts().iter().map(|part| part.layers.len()).sum::<usize>() * ranks;
    assert!(seen.blocks.len() >= written, "each layer of each part was looked at");
    for (block, before) in &seen.blocks {
        assert_eq!(bytes.read(block), before, "{block:?} was announced too early");
    }
}

/// Feeds `tokens[from..]` in chunks of so many.
fn prefill(
    runner: &mut dyn ModelRunner,
    places: Places,
    tokens: &[TokenId],
    from: usize,
    chunk: usize,
) {
    let mut start = from;
    while start < tokens.len() {
        let end = tokens.len().min(start + chunk);
        run(runner, places, &tokens[start..end], start, &mut Logits::new());
        start = end;
    }
}

/// Goes on behind `prompt[..computed]`: the rest of the prompt, then greedily. The bits of all
/// logits.
fn go_on(
    runner: &mut dyn ModelRunner,
    places: Places,
    prompt: &[TokenId],
    computed: usize,
) -> Vec<Vec<u32>> {
    let (mut logits, mut rows) = (Logits::new(), Vec::new());
    let mut next = prompt[computed..].to_vec();
    let mut start = computed;
    while rows.len() < MORE {
        run(runner, places, &next, start, &mut logits);
        start += next.len();
        let row = logits.row(0);
        rows.push(row.iter().map(|value| value.to_bits()).collect());
        next = vec![TokenId(kernels::argmax(row).expect("finite") as u32)];
    }
    rows
}

/// The pages of a pool that a request keeps which has `computed` tokens: what its next token sees,
/// and as much for one that computes the last page again.
fn kept(pool: &PoolSpec, computed: usize) -> std::ops::Range<usize> {
    let window = pool.window.map(|window| (window - 1).div_ceil(pool.page_tokens));
    let last = computed.saturating_sub(1) / pool.page_tokens;
    window.map_or(0, |window| last.saturating_sub(window))..computed.div_ceil(pool.page_tokens)
}

/// Fills every page with what would spoil any result.
fn spoil(bytes: &dyn PageBytes) {
    for rank in 0..bytes.ranks() as u16 {
        for (part, own) in (0_u16..).zip(bytes.parts()) {
            for page in 0..PAGES as u32 {
                let layers = 0..own.layers.len() as u16;
                let rubbish = vec![0xff; own.page_bytes()];
                bytes.write(&Block { rank, part, page: PageId(page), layers }, &rubbish);
            }
        }
    }
}

/// Copies pages as a link does: by block, of one rank where all hold the same.
fn send(
    pools: &[PoolSpec],
    computed: usize,
    (from, theirs): (&dyn PageBytes, Places),
    (to, ours): (&dyn PageBytes, Places),
) {
    assert_eq!(from.parts(), to.parts());
    for (number, part) in (0_u16..).zip(from.parts()) {
        for index in kept(&pools[usize::from(part.pool.0)], computed) {
            for layer in 0..part.layers.len() as u16 {
                let block = |rank, places: Places| {
                    let page = places.page(index);
                    Block { rank, part: number, page, layers: layer..layer + 1 }
                };
                for rank in 0..to.ranks() as u16 {
                    let own = if part.replicated { 0 } else { rank };
                    let bytes = from.read(&block(own, theirs));
                    assert_eq!(bytes.len(), part.layer_bytes);
                    to.write(&block(rank, ours), &bytes);
                }
                if part.replicated {
                    let all = |rank| from.read(&block(rank as u16, theirs));
                    assert!((1..from.ranks()).all(|rank| all(rank) == all(0)), "{}", part.name);
                }
            }
        }
    }
}

/// Computes `computed` tokens at `here` and goes on with them at both.
fn check(
    here: &mut dyn ModelRunner,
    there: &mut dyn ModelRunner,
    computed: usize,
    chunk: usize,
    what: &str,
) {
    let (theirs, ours) = (Places { step: 5 }, Places { step: 7 });
    let pools = here.spec().pools.clone();
    let prompt: Vec<_> =
        (0..computed + PROMPT_MORE).map(|at| TokenId((at * 37 % 400) as u32 + 5)).collect();
    let [from, to] = [&*here, &*there].map(|runner| runner.page_bytes().expect("allocated"));
    spoil(&*from);
    prefill(here, theirs, &prompt[..computed], 0, chunk);
    spoil(&*to);
    send(&pools, computed, (&*from, theirs), (&*to, ours));
    let expect = go_on(here, theirs, &prompt, computed);
    let found = go_on(there, ours, &prompt, computed);
    assert!(found == expect, "{what}, {computed} tokens in chunks of {chunk}");
}

fn options(tp_size: usize, page_tokens: Option<usize>) -> LoadOptions {
    LoadOptions { threads: 2, tp_size, page_tokens, ..LoadOptions::default() }
}

#[test]
fn dense_decoders_go_on_from_pages_that_were_sent() {
    for name in ["tiny-llama", "tiny-llama3-rope", "tiny-gemma3"] {
        for tp_size in [1, 2] {
            let [mut here, mut there] = [0; 2].map(|_| {
                let mut runner = runner(&fixture(name), options(tp_size, None));
                let pools = runner.spec().pools.len();
                runner.allocate(&vec![PAGES; pools]).unwrap();
                runner
            });
            let whole = tp_size == 1 || name == "tiny-llama3-rope";
            let parts = here.spec().link_parts();
            assert!(parts.iter().all(|part| part.replicated == whole), "{name} on {tp_size}");
            for (computed, chunk) in [(1, 1), (16, 7), (47, 100), (96, 33), (100, 5)] {
                let what = format!("{name} on {tp_size}");
                check(&mut here, &mut there, computed, chunk, &what);
            }
        }
    }
}

#[test]
fn deepseek_v4_goes_on_from_pages_that_were_sent() {
    let load = |tp_size| {
        let path = fixture("tiny-deepseek-v4");
        let mut runner = load_deepseek_v4(&path, options(tp_size, Some(128))).unwrap();
        runner.allocate(&[PAGES; 2]).unwrap();
        runner
    };
    // Its ranks hold the same, so as many may send as like.
    for (ranks, other) in [(1, 1), (2, 2), (1, 2), (2, 1)] {
        let (mut here, mut there) = (load(ranks), load(other));
        assert!(here.spec().link_parts().iter().all(|part| part.replicated));
        for (computed, chunk) in [(3, 2), (130, 64), (256, 100), (387, 1000)] {
            let what = format!("from {ranks} to {other} ranks");
            check(&mut here, &mut there, computed, chunk, &what);
        }
    }
}

#[test]
fn a_fake_goes_on_from_pages_that_were_sent() {
    for window in [None, Some(1), Some(20)] {
        let options = FakeOptions { window, ..FakeOptions::default() };
        let [mut here, mut there] = [0; 2].map(|_| {
            let mut runner = FakeRunner::new(options.clone());
            assert!(runner.page_bytes().is_none(), "there are no pages");
            let pools = runner.spec().pools.len();
            runner.allocate(&vec![PAGES; pools]).unwrap();
            runner
        });
        for (computed, chunk) in [(1, 1), (16, 7), (47, 100), (100, 5)] {
            check(&mut here, &mut there, computed, chunk, &format!("{window:?}"));
        }
    }
}

/// A window page less, and it shows: the test above would see what a link forgets.
#[test]
fn what_is_not_sent_is_missed() {
    let mut runner = runner(&fixture("tiny-gemma3"), options(1, None));
    runner.allocate(&[PAGES; 2]).unwrap();
    let places = Places { step: 5 };
    let prompt: Vec<_> = (0..60).map(|at| TokenId(at + 5)).collect();
    let bytes = runner.page_bytes().expect("allocated");
    let mut row = |spoilt: Option<(PoolId, usize, usize)>| {
        prefill(&mut runner, places, &prompt[..50], 0, 100);
        if let Some((pool, index, layer)) = spoilt {
            let part = bytes.parts().iter().position(|part| part.pool == pool).unwrap();
            let (layer, page) = (layer as u16, places.page(index));
            let block = Block { rank: 0, part: part as u16, page, layers: layer..layer + 1 };
            bytes.write(&block, &vec![0; bytes.parts()[part].layer_bytes]);
        }
        let mut logits = Logits::new();
        run(&mut runner, places, &prompt[50..], 50, &mut logits);
        logits.row(0).to_vec()
    };
    let expect = row(None);
    // Position 50 sees from 31 on: the last row of the second page of the window.
    for (pool, index, layer) in [(0, 0, 0), (0, 3, 1), (1, 1, 0), (1, 2, 4), (1, 3, 2)] {
        assert_ne!(row(Some((PoolId(pool), index, layer))), expect, "{pool} {index} {layer}");
    }
    assert_eq!(row(Some((PoolId(1), 0, 0))), expect, "no token sees it");
}

#[test]
fn a_pass_announces_nothing_that_a_rank_has_not_written() {
    let mut runner = runner(&fixture("tiny-llama"), options(2, None));
    let tokens: Vec<_> = (5..25).map(TokenId).collect();
    let pages = [0, 1].map(PageId);
    let mut batch = Batch::default();
    batch.push(&tokens, 0, 1, [PageList::whole(&pages)]);
    let progress = LayerProgress::new(2, runner.spec().layers());
    batch.progress = Some(progress.clone());
    runner.let_panic(1);
    assert!(runner.execute(&batch, &mut Logits::new()).is_err());
    assert_eq!((progress.layers(), progress.state()), (0, ProgressState::Running));
    batch.clear();
    assert_eq!(batch.progress, None, "it is that of one pass");
}
