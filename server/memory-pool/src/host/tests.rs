use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::system::Mapping;
use super::*;

/// Counts mapped bytes and fails one call.
struct Failing {
    mapped: Arc<AtomicUsize>,
    /// The step, and how many calls of it succeed before one fails.
    fault: Mutex<Option<(SlabStep, usize)>>,
    huge: bool,
    policy: Option<i32>,
}

impl Failing {
    fn new(fault: Option<(SlabStep, usize)>) -> Arc<Self> {
        let fault = Mutex::new(fault);
        Arc::new(Self { mapped: Arc::default(), fault, huge: true, policy: None })
    }

    fn meet(&self, step: SlabStep) -> std::io::Result<()> {
        let mut fault = self.fault.lock().unwrap();
        match &mut *fault {
            Some((at, 0)) if *at == step => {
                *fault = None;
                Err(std::io::Error::from_raw_os_error(libc::ENOMEM))
            }
            Some((at, left)) if *at == step => {
                *left -= 1;
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl System for Failing {
    fn map(&self, bytes: usize, huge: HugePages) -> std::io::Result<Mapping> {
        self.meet(SlabStep::Map)?;
        if huge != HugePages::Off && !self.huge {
            return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(Machine.map(bytes, HugePages::Off)?.counted(&self.mapped))
    }

    fn bind(&self, map: &Mapping, node: u32) -> std::io::Result<()> {
        self.meet(SlabStep::Bind)?;
        match self.policy {
            Some(error) => Err(std::io::Error::from_raw_os_error(error)),
            None => Machine.bind(map, node),
        }
    }

    fn touch(&self, map: &Mapping, from: usize) -> std::io::Result<()> {
        self.meet(SlabStep::Touch)?;
        Machine.touch(map, from)
    }

    fn lock(&self, _: &Mapping) -> std::io::Result<()> {
        self.meet(SlabStep::Lock)
    }
}

const KV: PoolId = PoolId(0);
const SWA: PoolId = PoolId(1);

fn part(name: &'static str, layers: &[usize], layer_bytes: usize, pages: usize) -> PartLayout {
    PartLayout { name, layers: layers.to_vec(), layer_bytes, pages, host: true }
}

/// Two index pools, three mirrored parts, one that is not.
fn parts(pages: usize) -> Vec<(PartLayout, PoolId)> {
    let own = PartLayout { host: false, ..part("own", &[0], 64, pages) };
    vec![
        (part("a", &[0, 2], 3000, pages), KV),
        (part("b", &[2, 3, 5], 100, pages), KV),
        (own, KV),
        (part("swa", &[1, 4], 5000, pages / 2), SWA),
    ]
}

fn options(ranks: usize) -> HostOptions {
    let nodes = vec![None; ranks];
    HostOptions { ranks, nodes, slab_bytes: Bytes(20_000), ..HostOptions::default() }
}

fn silent(_: Progress) {}

#[test]
fn pages_are_found_again_in_every_layout() {
    for layout in [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect] {
        let options = HostOptions { layout, ..options(2) };
        let memory = HostMemory::allocate(&parts(8), options, &mut silent).unwrap();
        let names: Vec<_> = memory.parts().map(|(part, pool)| (part.name, pool)).collect();
        assert_eq!(names, [("a", KV), ("b", KV), ("swa", SWA)]);
        let text = |rank: usize, part: usize, page: usize, len: usize| -> Vec<u8> {
            (0..len).map(|i| (i / 7 + rank * 91 + part * 37 + page * 11) as u8).collect()
        };
        let all = |each: &mut dyn FnMut(usize, usize, usize, usize)| {
            for rank in 0..2 {
                for (number, (part, _)) in memory.parts().enumerate() {
                    for page in 0..part.pages {
                        each(rank, number, page, part.page_bytes());
                    }
                }
            }
        };
        all(&mut |rank, part, page, len| {
            memory.write_page(rank, part, PageId(page as u32), &text(rank, part, page, len));
        });
        all(&mut |rank, part, page, len| {
            let mut found = vec![0; len];
            memory.read_page(rank, part, PageId(page as u32), &mut found);
            assert!(found == text(rank, part, page, len), "{layout:?} {rank} {part} {page}");
        });
    }
}

#[test]
fn slabs_are_counted_and_progress_ends_at_the_total() {
    let mut last = None;
    let mut hear = |progress: Progress| {
        assert!(last.is_none_or(|last: Progress| last.done < progress.done));
        last = Some(progress);
    };
    let memory = HostMemory::allocate(&parts(8), options(2), &mut hear).unwrap();
    let last = last.unwrap();
    assert_eq!(last.done, last.total);
    let bytes = memory.bytes();
    // 20 kB hold three pages of 6,000 bytes, all of 300, two of 10,000.
    let found: Vec<_> =
        bytes.iter().map(|b| (b.part, b.rank, b.pages, b.bytes.0, b.slabs)).collect();
    let expect = [
        ("a", 0, 8, 48_000, 3),
        ("a", 1, 8, 48_000, 3),
        ("b", 0, 8, 2_400, 1),
        ("b", 1, 8, 2_400, 1),
        ("swa", 0, 4, 40_000, 2),
        ("swa", 1, 4, 40_000, 2),
    ];
    assert_eq!(found, expect);
    let mapped: u64 = bytes.iter().map(|bytes| bytes.mapped.0).sum();
    assert_eq!(mapped, last.total.0);
    assert!(bytes.iter().all(|b| b.mapped.0 >= b.bytes.0));
    let placed: u64 = memory.placement().iter().map(|(_, bytes)| bytes.0).sum();
    assert!(placed == 0 || placed.abs_diff(mapped) < mapped / 100, "{placed} of {mapped}");
}

#[test]
fn growing_and_shrinking_keep_the_pages_that_stay() {
    for layout in [HostLayout::LayerFirst, HostLayout::PageFirst] {
        let options = HostOptions { layout, ..options(1) };
        let memory = HostMemory::allocate(&parts(8), options, &mut silent).unwrap();
        let page = |number: u8| vec![number; 6000];
        let check = |pages: u8| {
            for number in 0..pages {
                let mut found = vec![0; 6000];
                memory.read_page(0, 0, PageId(number.into()), &mut found);
                assert!(found == page(number), "{layout:?} page {number}");
            }
        };
        let write = |pages: std::ops::Range<u8>| {
            for number in pages {
                memory.write_page(0, 0, PageId(number.into()), &page(number));
            }
        };
        let of = |name| *memory.bytes().iter().find(|bytes| bytes.part == name).unwrap();
        write(0..8);
        memory.resize(KV, 13, &mut silent).unwrap();
        assert_eq!((of("a").pages, of("b").pages, of("swa").pages), (13, 13, 4));
        write(8..13);
        check(13);
        memory.resize(KV, 4, &mut silent).unwrap();
        // The second slab holds pages 3 to 5.
        assert_eq!((of("a").pages, of("a").slabs, of("b").slabs), (4, 2, 1));
        check(4);
        memory.resize(KV, 6, &mut silent).unwrap();
        assert_eq!((of("a").pages, of("a").slabs), (6, 2));
        check(6);
        memory.resize(KV, 0, &mut silent).unwrap();
        assert_eq!((of("a").mapped.0, of("swa").pages), (0, 4));
        memory.resize(KV, 2, &mut silent).unwrap();
        assert_eq!((of("a").pages, of("b").pages), (2, 2));
    }
}

#[test]
fn a_failure_half_way_frees_everything_and_says_where() {
    use SlabStep::{Bind, Lock, Map, Touch};
    let cases = [
        (Map, 4, "a, rank 1, slab 1 (17.58 KiB on NUMA node 0): cannot be mapped"),
        (Bind, 7, "b, rank 1, slab 0 (2.34 KiB on NUMA node 0): cannot be bound"),
        (Touch, 9, "swa, rank 0, slab 1"),
        (Lock, 11, "swa, rank 1, slab 1"),
    ];
    for (step, after, expect) in cases {
        let system = Failing::new(Some((step, after)));
        let options = HostOptions { nodes: vec![Some(0); 2], lock: true, ..options(2) };
        let made = HostMemory::allocate_by(system.clone(), &parts(8), options, &mut silent);
        let error = made.unwrap_err().to_string();
        assert!(error.contains(expect), "{step:?}: {error}");
        assert!(error.contains("ory"), "the system's reason: {error}");
        assert_eq!(system.mapped.load(Ordering::Relaxed), 0, "{step:?}");
    }
}

#[test]
fn a_pool_that_cannot_grow_stays_as_it_was() {
    let system = Failing::new(None);
    let memory =
        HostMemory::allocate_by(system.clone(), &parts(8), options(2), &mut silent).unwrap();
    let before = (memory.bytes(), system.mapped.load(Ordering::Relaxed));
    memory.write_page(1, 0, PageId(7), &[9; 6000]);
    *system.fault.lock().unwrap() = Some((SlabStep::Touch, 3));
    let error = memory.resize(KV, 100, &mut silent).unwrap_err().to_string();
    assert!(error.contains("a, rank 0, slab 6"), "{error}");
    assert_eq!((memory.bytes(), system.mapped.load(Ordering::Relaxed)), before);
    let mut page = [0; 6000];
    memory.read_page(1, 0, PageId(7), &mut page);
    assert_eq!(page, [9; 6000]);
    drop(memory);
    assert_eq!(system.mapped.load(Ordering::Relaxed), 0);
}

#[test]
fn what_the_system_lacks_is_noted_once() {
    let mut system = Failing::new(None);
    let own = Arc::get_mut(&mut system).unwrap();
    (own.huge, own.policy) = (false, Some(libc::ENOSYS));
    let options =
        HostOptions { nodes: vec![Some(0), Some(1)], huge_pages: HugePages::TwoMiB, ..options(2) };
    let memory = HostMemory::allocate_by(system, &parts(8), options, &mut silent).unwrap();
    let notes: Vec<_> = memory.notes().iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("no reserved pages of 2 MiB for host memory"), "{notes:?}");
    assert!(notes[1].starts_with("host memory is not bound to NUMA nodes: "), "{notes:?}");
}

/// On the machine itself: a node that is there works or is noted, one that is not is an error.
#[test]
fn real_nodes_are_bound_and_others_are_named() {
    let options = |node| HostOptions { nodes: vec![Some(node)], ..options(1) };
    let memory = HostMemory::allocate(&parts(8), options(0), &mut silent).unwrap();
    let unbound = !memory.notes().is_empty();
    let placed = memory.placement();
    assert!(
        unbound || placed.len() <= 1 && placed.iter().all(|(node, _)| *node == 0),
        "{placed:?}"
    );
    match HostMemory::allocate(&parts(8), options(999), &mut silent) {
        Ok(memory) => assert!(unbound && !memory.notes().is_empty()),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("on NUMA node 999): cannot be bound to the node"), "{error}");
        }
    }
}

#[test]
fn ranks_and_nodes_agree() {
    let options = HostOptions { ranks: 2, ..HostOptions::default() };
    let error = HostMemory::allocate(&parts(8), options, &mut silent).unwrap_err();
    assert!(error.to_string().starts_with("1 NUMA nodes given for 2 ranks"), "{error}");
    let none = HostMemory::allocate(&[], HostOptions::default(), &mut silent).unwrap();
    assert_eq!((none.bytes(), none.placement()), (vec![], vec![]));
}
