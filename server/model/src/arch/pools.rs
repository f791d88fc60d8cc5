//! The KV pools of a model: one for layers that see everything, a second for those that see a
//! sliding window, so that the pages which the window has left behind are given back.

use memory_pool::KvLayout;

use crate::config::ModelConfig;
use crate::runner::{PartSpec, PoolSpec};

/// The pool of layers that see everything; always the first.
const GLOBAL: &str = "kv";
/// The pool of layers that see a window.
const SLIDING: &str = "swa";

/// Where a layer's K/V rows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The pool, and as each has one part, the part too.
    pub(crate) pool: usize,
    /// The layer's number among those of the pool.
    pub(crate) layer: usize,
}

/// The place of each layer.
pub(crate) fn places(config: &ModelConfig) -> impl Iterator<Item = Place> {
    let mut used = [0; 2];
    (0..config.layers).map(move |layer| {
        let pool = usize::from(is_sliding(config, layer));
        used[pool] += 1;
        Place { pool, layer: used[pool] - 1 }
    })
}

/// The pools of a rank that computes `config`, with pages of `page_tokens` tokens. Each has one
/// part, of the same name. `replicated`: every rank has all heads.
pub(crate) fn specs(config: &ModelConfig, page_tokens: usize, replicated: bool) -> Vec<PoolSpec> {
    let spec = |name, window: Option<usize>| {
        let layers = 0..config.layers;
        let layers = layers.filter(|layer| is_sliding(config, *layer) == window.is_some());
        let layer_bytes = layout(config, page_tokens).layer_bytes() as u64;
        let layers = layers.collect();
        let part = PartSpec { name, layers, layer_bytes, host: true, replicated };
        PoolSpec { name, page_tokens, window, parts: vec![part] }
    };
    let mut specs = vec![spec(GLOBAL, None)];
    specs.extend(config.sliding.as_ref().map(|sliding| spec(SLIDING, Some(sliding.window))));
    specs
}

/// How the rows of a layer lie in a page.
pub(crate) const fn layout(config: &ModelConfig, page_tokens: usize) -> KvLayout {
    let ModelConfig { kv_heads, head_dim, .. } = *config;
    KvLayout { kv_heads, head_dim, page_tokens }
}

fn is_sliding(config: &ModelConfig, layer: usize) -> bool {
    config.sliding.as_ref().is_some_and(|sliding| sliding.layers[layer])
}
