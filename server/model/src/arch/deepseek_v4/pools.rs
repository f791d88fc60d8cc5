//! The pools: pages of history, and pages of the window, which also carry the state of entries that
//! are not finished.

use crate::config::{Compression, DeepseekV4, ModelConfig};
use crate::runner::{PartSpec, PoolSpec};
use types::PoolId;

/// The index pool of history.
pub(super) const HISTORY: PoolId = PoolId(0);
/// The index pool of the window.
pub(super) const WINDOW: PoolId = PoolId(1);

const C4: &str = "deepseek_v4_c4";
const C4_INDEXER: &str = "deepseek_v4_c4_indexer";
const C128: &str = "deepseek_v4_c128";
const SWA: &str = "swa";
const C4_STATE: &str = "deepseek_v4_c4_state";
const C4_INDEXER_STATE: &str = "deepseek_v4_c4_indexer_state";
const C128_STATE: &str = "deepseek_v4_c128_state";

/// Rows of one layer: the number of its part among those of all pools, and the layer's number in
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) part: usize,
    pub(super) layer: usize,
}

/// Where a compressor keeps its entries, and the rows of those that are not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) rows: Block,
    pub(super) state: Block,
}

/// Where a layer's rows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) window: Block,
    pub(super) entries: Option<Entries>,
    pub(super) index: Option<Entries>,
}

/// The pools, with pages of `page_tokens` tokens, a multiple of
/// [`page_multiple`](DeepseekV4::page_multiple). Parts without layers are left out.
pub(crate) fn specs(config: &ModelConfig, v4: &DeepseekV4, page_tokens: usize) -> Vec<PoolSpec> {
    let (dim, index_dim) = (config.head_dim, v4.indexer.map_or(0, |indexer| indexer.head_dim));
    let [sparse, heavy] = [Compression::Sparse, Compression::Heavy].map(|c| v4.layers_with(c));
    let part = |name, layers: &[usize], values: usize| PartSpec {
        name,
        layers: layers.to_vec(),
        layer_bytes: (values * size_of::<f32>()) as u64,
        // The state of heavy layers is empty wherever a page ends.
        host: name != C128_STATE,
        // No rank has a part of a latent, a compressor or an indexer's keys.
        replicated: true,
    };
    let (sparse_rows, heavy_rows) = (page_tokens / v4.sparse_ratio, page_tokens / v4.heavy_ratio);
    // Values and gates of a token, both of two halves where windows overlap.
    let (sparse_state, heavy_state) = (2 * v4.sparse_ratio * 4, v4.heavy_ratio * 2);
    let all: Vec<usize> = (0..config.layers).collect();
    let history = vec![
        part(C4, &sparse, sparse_rows * dim),
        part(C4_INDEXER, &sparse, sparse_rows * index_dim),
        part(C128, &heavy, heavy_rows * dim),
    ];
    let window = vec![
        part(SWA, &all, page_tokens * dim),
        part(C4_STATE, &sparse, sparse_state * dim),
        part(C4_INDEXER_STATE, &sparse, sparse_state * index_dim),
        part(C128_STATE, &heavy, heavy_state * dim),
    ];
    let pool = |name, window, parts: Vec<PartSpec>| {
        let parts = parts.into_iter().filter(|part| !part.layers.is_empty()).collect();
        PoolSpec { name, page_tokens, window, parts }
    };
    vec![pool("kv", None, history), pool(SWA, Some(v4.window), window)]
}

/// The place of `layer` in `pools`, which are those of [`specs`].
pub(super) fn place(pools: &[PoolSpec], compression: Compression, layer: usize) -> Place {
    let parts = || pools.iter().flat_map(|pool| &pool.parts);
    let block = |name: &str| {
        let part = parts().position(|part| part.name == name).expect("the layer is in this part");
        let layers = &parts().nth(part).expect("just found").layers;
        let layer = layers.iter().position(|l| *l == layer).expect("the layer is in this part");
        Block { part, layer }
    };
    let entries = |rows, state| Some(Entries { rows: block(rows), state: block(state) });
    let window = block(SWA);
    match compression {
        Compression::None => Place { window, entries: None, index: None },
        Compression::Sparse => Place {
            window,
            entries: entries(C4, C4_STATE),
            index: entries(C4_INDEXER, C4_INDEXER_STATE),
        },
        Compression::Heavy => Place { window, entries: entries(C128, C128_STATE), index: None },
    }
}
