//! Device pages of a test, and which of them are free.

use memory_pool::{Block, DeviceMemory, LinkPart, PageBytes, PartLayout, RankPages};
use std::sync::{Arc, Mutex};
use types::{PageId, PoolId};

pub(crate) const PAGE_TOKENS: usize = 16;
/// The model's layers.
pub(crate) const LAYERS: usize = 6;
/// Pages of each pool.
pub(crate) const PAGES: usize = 96;
/// The pool with a window: it sends the last two pages only.
pub(crate) const WINDOW: PoolId = PoolId(1);
pub(crate) const FULL: PoolId = PoolId(0);

/// Two pools, three parts, one of them the same on every rank.
pub(crate) fn parts() -> Vec<LinkPart> {
    let part = |name, pool, layers: &[usize], layer_bytes, replicated| LinkPart {
        name,
        pool,
        layers: layers.to_vec(),
        layer_bytes,
        replicated,
    };
    vec![
        part("kv", FULL, &[0, 2, 3, 5], 8 << 10, false),
        part("latent", FULL, &[1, 4], 768, true),
        part("swa", WINDOW, &[1, 2, 4], 20 << 10, false),
    ]
}

/// The pages of one worker.
pub(crate) struct Pages {
    pub(crate) bytes: Arc<RankPages>,
    free: Mutex<[Vec<PageId>; 2]>,
}

impl Pages {
    pub(crate) fn new(ranks: usize) -> Arc<Self> {
        let layout = |part: LinkPart| PartLayout {
            name: part.name,
            layers: part.layers,
            layer_bytes: part.layer_bytes,
            pages: PAGES,
            host: true,
        };
        let memory = |_| DeviceMemory::new(parts().into_iter().map(layout).collect()).unwrap();
        let memories = (0..ranks).map(memory).collect();
        let all = || (0..PAGES as u32).map(PageId).collect();
        Arc::new(Self {
            bytes: Arc::new(RankPages::new(memories, parts())),
            free: Mutex::new([all(), all()]),
        })
    }

    /// `None` where there are too few.
    pub(crate) fn take(&self, pool: PoolId, count: usize) -> Option<Vec<PageId>> {
        let free = &mut self.free.lock().unwrap()[usize::from(pool.0)];
        (free.len() >= count).then(|| free.split_off(free.len() - count))
    }

    pub(crate) fn give(&self, pool: PoolId, pages: Vec<PageId>) {
        self.free.lock().unwrap()[usize::from(pool.0)].extend(pages);
    }

    pub(crate) fn all_free(&self) -> bool {
        self.free.lock().unwrap().iter().all(|free| free.len() == PAGES)
    }

    /// Writes one layer of the model into a page of a pool, on every rank.
    pub(crate) fn compute(
        &self,
        text: u64,
        pool: PoolId,
        index: usize,
        page: PageId,
        layer: usize,
    ) {
        for (block, bytes) in self.rows(text, pool, index, page, Some(layer)) {
            self.bytes.write(&block, &bytes);
        }
    }

    /// Whether a page holds what was computed for this place of a text.
    pub(crate) fn holds(&self, text: u64, pool: PoolId, index: usize, page: PageId) -> bool {
        self.rows(text, pool, index, page, None)
            .into_iter()
            .all(|(block, bytes)| self.bytes.read(&block) == bytes)
    }

    /// What is in a page: different for every text, place, part, layer and, where ranks differ,
    /// rank.
    fn rows(
        &self,
        text: u64,
        pool: PoolId,
        index: usize,
        page: PageId,
        layer: Option<usize>,
    ) -> Vec<(Block, Vec<u8>)> {
        let mut rows = Vec::new();
        for (number, part) in parts().into_iter().enumerate().filter(|(_, part)| part.pool == pool)
        {
            for (at, of_model) in part.layers.iter().enumerate() {
                if layer.is_some_and(|layer| layer != *of_model) {
                    continue;
                }
                for rank in 0..self.bytes.ranks() {
                    let source = if part.replicated { 0 } else { rank };
                    let key = [text, index as u64, number as u64, at as u64, source as u64];
                    let layers = at as u16..at as u16 + 1;
                    let block = Block { rank: rank as u16, part: number as u16, page, layers };
                    rows.push((block, pattern(key, part.layer_bytes)));
                }
            }
        }
        rows
    }
}

/// Bytes that a key decides.
fn pattern(key: [u64; 5], length: usize) -> Vec<u8> {
    let mut state = key.iter().fold(0x1234_5678_u64, |state, word| {
        (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
