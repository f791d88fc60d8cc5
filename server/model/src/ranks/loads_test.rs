//! Every runner waits, layer by layer, for the rows that come back from the host.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memory_pool::{
    CopyEngine, CopyHook, CopyPage, CopyStep, Direction, HostLayout, HostMemory, HostOptions,
    LoadGate,
};
use types::{PageId, PoolId};

use super::tests::step;
use super::*;
use crate::arch::golden::{fixture, runner};
use crate::load::{LoadOptions, load_deepseek_v4};

/// The order that fails.
const ILL: u64 = 9;
/// The order of which a layer comes when the one before has been computed.
const HELD: u64 = 4;
/// Far above what any step takes.
const NEVER: Duration = Duration::from_secs(60);

/// How many layers the step that is held has computed.
#[derive(Default)]
struct Computed {
    layers: Mutex<usize>,
    changed: Condvar,
}

impl Computed {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of `step` may begin.
    fn hold(&self, step: CopyStep) {
        assert!(step.id != ILL, "injected");
        let (HELD, Some(layer)) = (step.id, step.layer) else { return };
        let behind = |layers: &mut usize| *layers < layer;
        let (_lock, wait) = self.changed.wait_timeout_while(self.lock(), NEVER, behind).unwrap();
        assert!(
            !wait.timed_out(),
            "layer {layer} was waited for before the one before it was done"
        );
    }
}

/// Sees a step that waits at `gate`, on the first rank.
struct Watch<'a> {
    computed: &'a Computed,
    gate: LoadGate,
}

impl Trace for Watch<'_> {
    fn see(&mut self, layer: Option<usize>, point: &'static str, _: &[f32]) {
        match (layer, point) {
            (Some(layer), "attn_out") => {
                assert!(self.gate.is_open(0, layer), "layer {layer} was read too early");
            }
            (Some(layer), "out") => {
                *self.computed.lock() = layer + 1;
                self.computed.changed.notify_all();
            }
            (Some(_) | None, _) => {}
        }
    }
}

/// Pages that went to the host and come back, behind the gate of each rank: the same bits. A load
/// that fails fails the step.
fn check<M: ModelShare>(mut runner: RanksRunner<M>, what: &str) {
    let (ranks, pools) = (runner.memories().len(), runner.spec().pools.len());
    let page_tokens = runner.spec().pools[0].page_tokens;
    let host = HostMemory::allocate(
        &runner.spec().part_layouts(&vec![20; pools]),
        HostOptions {
            ranks,
            nodes: vec![None; ranks],
            layout: HostLayout::LayerFirst,
            ..HostOptions::default()
        },
        &mut |_| (),
    );
    let computed = Arc::new(Computed::default());
    let hook: CopyHook = {
        let computed = Arc::clone(&computed);
        Arc::new(move |step| computed.hold(step))
    };
    let memories = runner.memories().to_vec();
    let copies = CopyEngine::with_hook(memories, Arc::new(host.unwrap()), 8, hook);
    // The fourth page is written by the step itself, so no copy may have it.
    let whole = 3 * page_tokens;
    let prompt = step(&runner, 5..5 + whole as u32, 0);
    let other = step(&runner, 100..102 + whole as u32, 0);
    let mut next = step(&runner, 60..62, whole);
    let (mut expect, mut found) = (Logits::new(), Logits::new());
    runner.execute(&prompt, &mut found).unwrap();
    runner.execute(&next, &mut expect).unwrap();
    let pages: Vec<CopyPage> = (0..pools as u16)
        .flat_map(|pool| (0..3).map(move |page| (PoolId(pool), page)))
        .map(|(pool, page)| CopyPage { pool, device: PageId(page), host: PageId(19 - page) })
        .collect();
    copies.submit(1, Direction::Backup, pages.clone()).unwrap();
    copies.wait(1);
    for ids in [&[2, 3][..], &[HELD]] {
        // Other rows in the same pages.
        next.loads = None;
        runner.execute(&other, &mut found).unwrap();
        runner.execute(&next, &mut found).unwrap();
        assert_ne!(found, expect, "{what}");
        for (id, pages) in ids.iter().zip(pages.chunks(pages.len().div_ceil(ids.len()))) {
            copies.submit(*id, Direction::Load, pages.to_vec()).unwrap();
        }
        next.loads = copies.gate();
        if ids == [HELD] {
            let gate = next.loads.clone().expect("a load is held");
            let mut watch = Watch { computed: &computed, gate };
            runner.execute_traced(&next, &mut found, &mut watch).unwrap();
        } else {
            runner.execute(&next, &mut found).unwrap();
        }
        assert_eq!(found, expect, "{what}, {ids:?}");
    }
    copies.submit(ILL, Direction::Load, pages).unwrap();
    next.loads = copies.gate();
    let error = runner.execute(&next, &mut found).unwrap_err().to_string();
    assert!(error.ends_with("failed: injected"), "{error}");
    next.clear();
    assert_eq!(runner.execute(&next, &mut found), Ok(()));
}

fn options(tp_size: usize) -> LoadOptions {
    LoadOptions { threads: 2, tp_size, ..LoadOptions::default() }
}

#[test]
fn dense_ranks_wait_for_the_layers_that_are_loaded() {
    for (name, tp_size) in [("tiny-llama", 1), ("tiny-llama", 2), ("tiny-gemma3", 2)] {
        check(runner(&fixture(name), options(tp_size)), &format!("{name} on {tp_size}"));
    }
}

#[test]
fn deepseek_v4_waits_for_the_layers_that_are_loaded() {
    for tp_size in [1, 2] {
        let options = LoadOptions { page_tokens: Some(128), ..options(tp_size) };
        let mut runner = load_deepseek_v4(&fixture("tiny-deepseek-v4"), options).unwrap();
        runner.allocate(&[4, 4]).unwrap();
        check(runner, &format!("on {tp_size}"));
    }
}
