//! Pages that know who may touch them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use memory_pool::{Block, LinkPart, PageBytes};
use types::{PageId, PoolId};

pub(crate) const PAGE_TOKENS: usize = 4;
/// Tokens before the last that the pages of the second pool are kept for.
pub(crate) const WINDOW: usize = 6;
pub(crate) const LAYERS: usize = 4;
const PAGES: [u32; 2] = [60, 24];

/// The parts of the model: one split over ranks or not, one with a window, and one more in the same
/// pool.
pub(crate) fn parts(replicated: bool) -> Vec<LinkPart> {
    let part = |name, pool, layers: &[usize], layer_bytes, replicated| LinkPart {
        name,
        pool: PoolId(pool),
        layers: layers.to_vec(),
        layer_bytes,
        replicated,
    };
    vec![
        part("kv", 0, &[0, 1, 3], 12, replicated),
        part("index", 0, &[1], 5, true),
        part("swa", 1, &[0, 2], 7, true),
    ]
}

#[derive(Default)]
struct Inner {
    /// By rank, part, page.
    bytes: BTreeMap<(u16, u16, PageId), Vec<u8>>,
    /// Pages of each pool that a link may write to.
    writable: BTreeSet<(PoolId, PageId)>,
    free: [Vec<PageId>; 2],
}

pub(crate) struct TestPages {
    ranks: u16,
    parts: Vec<LinkPart>,
    inner: Mutex<Inner>,
}

impl TestPages {
    pub(crate) fn new(ranks: u16, replicated: bool) -> Self {
        let mut inner = Inner::default();
        for (pool, pages) in PAGES.into_iter().enumerate() {
            inner.free[pool] = (0..pages).rev().map(PageId).collect();
        }
        Self { ranks, parts: parts(replicated), inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes pages, if there are as many.
    pub(crate) fn take(&self, wanted: [usize; 2]) -> Option<[Vec<PageId>; 2]> {
        let mut inner = self.inner();
        if wanted.iter().zip(&inner.free).any(|(wanted, free)| free.len() < *wanted) {
            return None;
        }
        let mut pool = 0;
        Some(wanted.map(|wanted| {
            let rest = inner.free[pool].len() - wanted;
            let taken = inner.free[pool].split_off(rest);
            pool += 1;
            taken
        }))
    }

    /// Gives pages back; what they held is gone at once.
    pub(crate) fn give_back(&self, pages: [Vec<PageId>; 2]) {
        let mut inner = self.inner();
        for (at, pages) in pages.into_iter().enumerate() {
            let pool = PoolId(u16::try_from(at).unwrap());
            for page in pages {
                assert!(!inner.free[at].contains(&page), "page {page} of {pool} is free already");
                let writable = inner.writable.contains(&(pool, page));
                assert!(!writable, "page {page} of {pool} is free while a link may write to it");
                let parts = self.parts.iter().zip(0_u16..).filter(|(part, _)| part.pool == pool);
                for (_, part) in parts {
                    for rank in 0..self.ranks {
                        inner.bytes.remove(&(rank, part, page));
                    }
                }
                // The next one to take a page takes this one.
                inner.free[at].push(page);
            }
        }
    }

    pub(crate) fn free(&self) -> [usize; 2] {
        let inner = self.inner();
        [inner.free[0].len(), inner.free[1].len()]
    }

    pub(crate) const fn all() -> [usize; 2] {
        [PAGES[0] as usize, PAGES[1] as usize]
    }

    /// Whether a link may write to these pages.
    pub(crate) fn open(&self, pages: &[Vec<PageId>; 2], open: bool) {
        let mut inner = self.inner();
        for (pool, pages) in pages.iter().enumerate() {
            for page in pages {
                let key = (PoolId(u16::try_from(pool).unwrap()), *page);
                if open {
                    inner.writable.insert(key);
                } else {
                    inner.writable.remove(&key);
                }
            }
        }
    }

    fn place<'a>(
        &self,
        inner: &'a mut Inner,
        rank: u16,
        part: u16,
        page: PageId,
    ) -> &'a mut Vec<u8> {
        let size = self.parts[usize::from(part)].page_bytes();
        inner.bytes.entry((rank, part, page)).or_insert_with(|| vec![0xee; size])
    }

    /// Computes a layer of the model in one page of a pool.
    pub(crate) fn compute(
        &self,
        request: u64,
        pool: PoolId,
        index: usize,
        page: PageId,
        layer: usize,
    ) {
        let mut inner = self.inner();
        for (part, number) in self.parts.iter().zip(0_u16..).filter(|(part, _)| part.pool == pool) {
            let Some(at) = part.layers.iter().position(|own| *own == layer) else { continue };
            for rank in 0..self.ranks {
                let rows = row(request, part, number, rank, index, at);
                let bytes = self.place(&mut inner, rank, number, page);
                bytes[at * part.layer_bytes..][..part.layer_bytes].copy_from_slice(&rows);
            }
        }
    }

    /// Whether a page of a pool holds what `request` has there.
    pub(crate) fn check(&self, request: u64, pool: PoolId, index: usize, page: PageId) {
        let mut inner = self.inner();
        for (part, number) in self.parts.iter().zip(0_u16..).filter(|(part, _)| part.pool == pool) {
            for rank in 0..self.ranks {
                let bytes = self.place(&mut inner, rank, number, page).clone();
                for (at, found) in bytes.chunks(part.layer_bytes).enumerate() {
                    let expected = row(request, part, number, rank, index, at);
                    let name = part.name;
                    assert_eq!(found, expected, "request {request}: {name} {rank} {index} {at}");
                }
            }
        }
    }
}

/// What a request has in one layer of one page.
fn row(request: u64, part: &LinkPart, number: u16, rank: u16, index: usize, at: usize) -> Vec<u8> {
    let rank = if part.replicated { 0 } else { u64::from(rank) + 1 };
    let seed = [request, u64::from(number), rank, index as u64, at as u64];
    let mix =
        |sum: u64, next: &u64| (sum ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let start = seed.iter().fold(1, mix);
    (0..part.layer_bytes as u64).map(|byte| (mix(start, &byte) >> 40) as u8).collect()
}

impl PageBytes for TestPages {
    fn ranks(&self) -> usize {
        usize::from(self.ranks)
    }

    fn parts(&self) -> &[LinkPart] {
        &self.parts
    }

    fn read(&self, block: &Block) -> Bytes {
        let size = self.parts[usize::from(block.part)].layer_bytes;
        let layers = usize::from(block.layers.start) * size..usize::from(block.layers.end) * size;
        let mut inner = self.inner();
        let page = self.place(&mut inner, block.rank, block.part, block.page);
        Bytes::copy_from_slice(&page[layers])
    }

    fn write(&self, block: &Block, bytes: &[u8]) {
        let part = &self.parts[usize::from(block.part)];
        let mut inner = self.inner();
        let mine = inner.writable.contains(&(part.pool, block.page));
        assert!(mine, "page {} of {} is written, and nobody's", block.page, part.pool);
        let layers = usize::from(block.layers.start) * part.layer_bytes
            ..usize::from(block.layers.end) * part.layer_bytes;
        let page = self.place(&mut inner, block.rank, block.part, block.page);
        page[layers].copy_from_slice(bytes);
    }
}

/// Pages of a sequence of `computed` tokens that are wanted by who has `skip` of them: first index
/// and how many, per pool.
pub(crate) fn wanted(computed: usize, skip: usize) -> [(usize, usize); 2] {
    let end = computed.div_ceil(PAGE_TOKENS);
    let first = skip / PAGE_TOKENS;
    let kept = (computed.saturating_sub(WINDOW - 1) / PAGE_TOKENS).max(first);
    [(first, end - first), (kept, end - kept)]
}
