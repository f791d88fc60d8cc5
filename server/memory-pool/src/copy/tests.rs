use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::host::{HostLayout, HostOptions};
use crate::layout::PartLayout;
use types::Bytes;

const KV: PoolId = PoolId(0);
const SWA: PoolId = PoolId(1);
const DEVICE: usize = 6;
const HOST: usize = 10;

/// Parts as of a model with sidecars; one is not mirrored. The device has another order of parts.
fn parts(pages: usize) -> Vec<(PartLayout, PoolId)> {
    let part = |name, layers: &[usize], layer_bytes, host| PartLayout {
        name,
        layers: layers.to_vec(),
        layer_bytes,
        pages,
        host,
    };
    vec![
        (part("swa", &[0, 1, 2, 3], 96, true), SWA),
        (part("kept", &[0, 1], 40, false), SWA),
        (part("c4", &[1, 3], 520, true), KV),
        (part("indexer", &[1, 3], 44, true), KV),
        (part("c128", &[2], 8, true), KV),
    ]
}

struct Rig {
    devices: Vec<Arc<DeviceMemory>>,
    host: Arc<HostMemory>,
}

impl Rig {
    fn new(ranks: usize, nodes: Vec<Option<u32>>, layout: HostLayout) -> Self {
        let device = |_| {
            let parts = parts(DEVICE).into_iter().map(|(part, _)| part).collect();
            DeviceMemory::new(parts).unwrap()
        };
        let options =
            HostOptions { ranks, nodes, layout, slab_bytes: Bytes(3000), ..HostOptions::default() };
        let host = HostMemory::allocate(&parts(HOST), options, &mut |_| ()).unwrap();
        Self { devices: (0..ranks).map(device).collect(), host: Arc::new(host) }
    }

    fn engine(&self, queue: usize) -> CopyEngine {
        CopyEngine::new(self.devices.clone(), Arc::clone(&self.host), queue)
    }

    fn hooked(&self, queue: usize, hook: CopyHook) -> CopyEngine {
        CopyEngine::with_hook(self.devices.clone(), Arc::clone(&self.host), queue, hook)
    }
}

/// The bytes of every page on both sides, by rank, part name and page: the naive copy.
#[derive(Default)]
struct Naive {
    device: HashMap<(usize, &'static str, u32), Vec<u8>>,
    host: HashMap<(usize, &'static str, u32), Vec<u8>>,
}

impl Naive {
    fn copy(&mut self, ranks: usize, direction: Direction, pages: &[CopyPage]) {
        for rank in 0..ranks {
            for page in pages {
                let own = |part: &(PartLayout, PoolId)| part.1 == page.pool && part.0.host;
                for (part, _) in parts(0).into_iter().filter(own) {
                    let device = (rank, part.name, page.device.0);
                    let host = (rank, part.name, page.host.0);
                    match direction {
                        Direction::Backup => {
                            self.host.insert(host, self.device[&device].clone());
                        }
                        Direction::Load => {
                            self.device.insert(device, self.host[&host].clone());
                        }
                    }
                }
            }
        }
    }
}

/// Random numbers of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// Fills every page of both sides with noise.
fn fill(rig: &Rig, dice: &mut Dice) -> Naive {
    let mut naive = Naive::default();
    let mut noise = |len: usize| -> Vec<u8> { (0..len).map(|_| dice.below(256) as u8).collect() };
    for (rank, device) in rig.devices.iter().enumerate() {
        let mut compute = device.compute().unwrap();
        for (part, layout) in device.parts().enumerate() {
            for page in 0..DEVICE as u32 {
                let bytes = noise(layout.page_bytes());
                for (layer, bytes) in bytes.chunks(layout.layer_bytes).enumerate() {
                    compute.block_mut::<u8>(part, PageId(page), layer).copy_from_slice(bytes);
                }
                naive.device.insert((rank, layout.name, page), bytes);
            }
        }
        for (part, (layout, _)) in rig.host.parts().enumerate() {
            for page in 0..HOST as u32 {
                let bytes = noise(layout.page_bytes());
                rig.host.write_page(rank, part, PageId(page), &bytes);
                naive.host.insert((rank, layout.name, page), bytes);
            }
        }
    }
    naive
}

fn check(rig: &Rig, naive: &Naive, what: &str) {
    for (rank, device) in rig.devices.iter().enumerate() {
        let compute = device.compute().unwrap();
        for (part, layout) in device.parts().enumerate() {
            for page in 0..DEVICE as u32 {
                let layers = 0..layout.layers.len();
                let found =
                    layers.flat_map(|l| compute.block::<u8>(part, PageId(page), l).to_vec());
                let found: Vec<u8> = found.collect();
                let name = layout.name;
                assert!(found == naive.device[&(rank, name, page)], "{what}: {name} {page}");
            }
        }
        for (part, (layout, _)) in rig.host.parts().enumerate() {
            for page in 0..HOST as u32 {
                let mut found = vec![0; layout.page_bytes()];
                rig.host.read_page(rank, part, PageId(page), &mut found);
                let name = layout.name;
                assert!(found == naive.host[&(rank, name, page)], "{what}: host {name} {page}");
            }
        }
    }
}

/// Random pages, no page twice on the side that is written.
fn pages(dice: &mut Dice, direction: Direction) -> Vec<CopyPage> {
    let mut pages: Vec<CopyPage> = Vec::new();
    for _ in 0..dice.below(8) {
        let page = CopyPage {
            pool: [KV, SWA][dice.below(2)],
            device: PageId(dice.below(DEVICE) as u32),
            host: PageId(dice.below(HOST) as u32),
        };
        let same = |other: &CopyPage| {
            other.pool == page.pool
                && match direction {
                    Direction::Backup => other.host == page.host,
                    Direction::Load => other.device == page.device,
                }
        };
        if !pages.iter().any(same) {
            pages.push(page);
        }
    }
    pages
}

/// Many copies at once, without waiting in between: what is queued is done in its order.
#[test]
fn random_copies_do_what_naive_ones_do() {
    for layout in [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect] {
        for seed in 0..12 {
            let what = format!("{layout:?} seed {seed}");
            let mut dice = Dice(seed);
            let ranks = 1 + dice.below(3);
            // Ranks on one node and on several; threads stay where the system lets them.
            let nodes = (0..ranks).map(|_| [None, Some(0)][dice.below(2)]).collect();
            let rig = Rig::new(ranks, nodes, layout);
            let mut naive = fill(&rig, &mut dice);
            let engine = rig.engine(40);
            let mut expect = Vec::new();
            for id in 0..30 {
                let direction = Direction::ALL[dice.below(2)];
                let pages = pages(&mut dice, direction);
                naive.copy(ranks, direction, &pages);
                expect.push((id, direction, pages.clone()));
                engine.submit(id, direction, pages).unwrap();
            }
            (0..30).for_each(|id| engine.wait(id));
            let mut done = Vec::new();
            engine.poll(&mut done);
            done.sort_by_key(|done| done.id);
            assert!(done.iter().all(|done| done.result.is_ok()), "{what}");
            check_bytes(&engine, &done, ranks);
            let done: Vec<_> = done.into_iter().map(|d| (d.id, d.direction, d.pages)).collect();
            assert_eq!(done, expect, "{what}");
            check(&rig, &naive, &what);
        }
    }
}

/// The counters agree with what each copy says.
fn check_bytes(engine: &CopyEngine, done: &[CopyDone], ranks: usize) {
    let stats = engine.stats();
    assert_eq!((stats.pending_backups, stats.pending_loads), (0, 0));
    assert_eq!((stats.parts.len(), stats.busy.len()), (4 * ranks, ranks));
    for (number, (part, pool)) in engine.shared.host.parts().enumerate() {
        for direction in Direction::ALL {
            let own = done.iter().filter(|done| done.direction == direction);
            let told: u64 = own.clone().map(|done| done.bytes[number]).sum();
            let pages = own.flat_map(|done| &done.pages).filter(|page| page.pool == pool).count();
            assert_eq!(told, (pages * part.page_bytes() * ranks) as u64);
            let own = stats.parts.iter().filter(|parts| parts.part == part.name);
            let counted = own.map(|parts| match direction {
                Direction::Backup => parts.backup_bytes,
                Direction::Load => parts.load_bytes,
            });
            assert_eq!(counted.sum::<u64>(), told);
        }
    }
}

/// An engine whose copies announce each step and wait for a word to go on. The words end first,
/// so that a failing test does not wait for copies that wait.
struct Stepped {
    go: Option<Sender<()>>,
    steps: Receiver<CopyStep>,
    engine: CopyEngine,
}

impl Stepped {
    fn new(rig: &Rig, queue: usize) -> Self {
        let (tell, steps) = channel();
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let hook: CopyHook = Arc::new(move |step| {
            tell.send(step).ok();
            // Without a sender, copies go on.
            wait.lock().unwrap().recv().ok();
        });
        Self { go: Some(go), steps, engine: rig.hooked(queue, hook) }
    }

    fn step(&self) -> CopyStep {
        self.steps.recv().unwrap()
    }
}

fn page(pool: PoolId, device: u32, host: u32) -> CopyPage {
    CopyPage { pool, device: PageId(device), host: PageId(host) }
}

#[test]
fn a_layer_is_released_when_its_bytes_are_there() {
    let rig = Rig::new(2, vec![None; 2], HostLayout::PageFirst);
    let naive = fill(&rig, &mut Dice(5));
    let stepped = Stepped::new(&rig, 4);
    let engine = &stepped.engine;
    assert!(engine.gate().is_none());
    engine.submit(1, Direction::Load, vec![page(KV, 2, 7), page(SWA, 1, 3)]).unwrap();
    let gate = engine.gate().unwrap();
    let computes = [0, 1].map(|rank| rig.devices[rank].compute().unwrap());
    let there = |rank: usize, name: &'static str, device: u32, host: u32, layer: usize| {
        let (part, layout) =
            rig.devices[rank].parts().enumerate().find(|(_, part)| part.name == name).unwrap();
        let at = layout.layers.iter().position(|own| *own == layer).unwrap();
        let expect = &naive.host[&(rank, name, host)][at * layout.layer_bytes..];
        let found: &[u8] = computes[rank].block(part, PageId(device), at);
        found == &expect[..layout.layer_bytes]
    };
    for layer in 0..4 {
        for rank in 0..2 {
            let step = stepped.step();
            assert_eq!((step.rank, step.layer), (rank, Some(layer)));
            // Each rank is held before this layer: earlier ones are there, this one is not.
            for other in 0..2 {
                let open = layer + usize::from(other < rank);
                assert!((0..open).all(|layer| gate.is_open(other, layer)), "{layer} {rank}");
                assert!(open > 3 || !gate.is_open(other, open), "{layer} {rank} {other}");
                assert!((0..open).all(|layer| there(other, "swa", 1, 3, layer)));
                assert!(open > 3 || !there(other, "swa", 1, 3, open));
                assert!(open < 2 || there(other, "c4", 2, 7, 1));
                assert!(open > 3 || !there(other, "c4", 2, 7, 3));
            }
            stepped.go.as_ref().unwrap().send(()).unwrap();
        }
    }
    assert_eq!(gate.wait_all(), Ok(()));
    engine.wait(1);
    assert!(engine.gate().is_none());
}

#[test]
fn loads_in_a_row_go_layer_by_layer_together_and_a_backup_parts_them() {
    let rig = Rig::new(1, vec![None], HostLayout::PageFirst);
    let mut stepped = Stepped::new(&rig, 9);
    stepped.engine.submit(1, Direction::Backup, vec![page(KV, 0, 0)]).unwrap();
    let first = stepped.step();
    assert_eq!((first.id, first.layer), (1, None));
    for (id, direction) in
        [(2, Direction::Load), (3, Direction::Load), (4, Direction::Backup), (5, Direction::Load)]
    {
        stepped.engine.submit(id, direction, vec![page(KV, id as u32, 0)]).unwrap();
    }
    assert_eq!(
        (stepped.engine.stats().pending_backups, stepped.engine.stats().pending_loads),
        (2, 3)
    );
    stepped.go = None;
    let seen: Vec<_> = (0..4 * 2 + 1 + 4).map(|_| stepped.step()).collect();
    let seen: Vec<_> = seen.into_iter().map(|step| (step.id, step.layer)).collect();
    let both = (0..4).flat_map(|layer| [(2, Some(layer)), (3, Some(layer))]);
    let expect = both.chain([(4, None)]).chain((0..4).map(|layer| (5, Some(layer))));
    assert_eq!(seen, expect.collect::<Vec<_>>());
    let engine = &stepped.engine;
    (1..6).for_each(|id| engine.wait(id));
    let busy = engine.stats().busy[0];
    let mut done = Vec::new();
    engine.poll(&mut done);
    let told = |direction| -> Duration {
        done.iter().filter(|done| done.direction == direction).map(|done| done.busy).sum()
    };
    assert_eq!((busy.backup, busy.load), (told(Direction::Backup), told(Direction::Load)));
}

#[test]
fn a_full_queue_gives_the_pages_back_until_copies_are_polled() {
    let rig = Rig::new(1, vec![None], HostLayout::LayerFirst);
    let mut stepped = Stepped::new(&rig, 2);
    let pages = vec![page(KV, 1, 1), page(SWA, 2, 2)];
    let Stepped { engine, go, steps } = &mut stepped;
    engine.submit(1, Direction::Backup, pages.clone()).unwrap();
    steps.recv().unwrap();
    engine.submit(2, Direction::Load, pages.clone()).unwrap();
    let full = engine.submit(3, Direction::Load, pages.clone());
    assert_eq!(full, Err(Full(pages.clone())));
    *go = None;
    engine.wait(2);
    assert_eq!(engine.submit(3, Direction::Load, pages.clone()), Err(Full(pages.clone())));
    let mut done = Vec::new();
    engine.poll(&mut done);
    assert_eq!(done.iter().map(|done| done.id).collect::<Vec<_>>(), [1, 2]);
    engine.submit(3, Direction::Load, pages).unwrap();
    engine.wait(3);
}

#[test]
fn a_copy_that_fails_says_so_and_the_next_one_works() {
    let rig = Rig::new(2, vec![None; 2], HostLayout::PageFirst);
    let hook: CopyHook = Arc::new(|step| {
        assert!(step.id != 7 || step.layer != Some(2), "injected");
    });
    let engine = rig.hooked(9, hook);
    engine.submit(7, Direction::Load, vec![page(KV, 0, 0)]).unwrap();
    engine.wait(7);
    // The step that runs next must not take the rubbish for rows.
    let gate = engine.gate().unwrap();
    let failed = gate.wait(0, 3).unwrap_err().to_string();
    assert!(failed.ends_with("injected"), "{failed}");
    let mut done = Vec::new();
    engine.poll(&mut done);
    assert_eq!(done[0].result, Err(CopyFailed("injected".into())));
    assert!(engine.gate().is_none());
    engine.submit(8, Direction::Backup, vec![page(KV, DEVICE as u32, 0)]).unwrap();
    engine.submit(9, Direction::Load, vec![page(KV, 0, 0)]).unwrap();
    engine.wait(9);
    done.clear();
    engine.poll(&mut done);
    let unknown = done[0].result.clone().unwrap_err().to_string();
    assert!(unknown.contains("page 6 of 6 in c4"), "{unknown}");
    assert_eq!(done[1].result, Ok(()));
}

#[test]
fn dropping_the_engine_joins_its_threads_and_opens_the_gates() {
    let rig = Rig::new(1, vec![None], HostLayout::PageFirst);
    let stepped = Stepped::new(&rig, 4);
    let Stepped { go, steps, engine } = stepped;
    engine.submit(1, Direction::Load, vec![page(KV, 0, 0)]).unwrap();
    steps.recv().unwrap();
    engine.submit(2, Direction::Backup, vec![page(KV, 1, 1)]).unwrap();
    engine.submit(3, Direction::Load, vec![page(KV, 2, 2)]).unwrap();
    let gate = engine.gate().unwrap();
    let waiter = std::thread::spawn(move || (gate.wait(0, 3), gate.wait_all()));
    let shared = Arc::downgrade(&engine.shared);
    let dropped = std::thread::spawn(move || drop(engine));
    // The first load goes on only after the engine was told to stop.
    while !shared.upgrade().is_some_and(|shared| shared.lock().stop) {
        std::thread::yield_now();
    }
    drop(go);
    dropped.join().unwrap();
    assert!(shared.upgrade().is_none(), "no thread holds on");
    let stopped = Err(LoadFailed("the copy engine is stopped".into()));
    assert_eq!(waiter.join().unwrap(), (stopped.clone(), stopped));
    assert_eq!(Arc::strong_count(&rig.host), 1);
}

#[test]
fn memory_that_does_not_match_is_refused() {
    let rig = Rig::new(1, vec![None], HostLayout::PageFirst);
    let attempt = |devices: Vec<Arc<DeviceMemory>>| {
        let start = || drop(CopyEngine::new(devices, Arc::clone(&rig.host), 1));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)).is_ok()
    };
    assert!(attempt(rig.devices.clone()));
    assert!(!attempt(Vec::new()));
    let mut other = parts(DEVICE);
    other[2].0.layer_bytes += 1;
    let other = other.into_iter().map(|(part, _)| part).collect();
    assert!(!attempt(vec![DeviceMemory::new(other).unwrap()]));
}
