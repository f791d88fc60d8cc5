//! The KV pools of a model: one for layers that see everything, a second for those that see a
//! sliding window, so that the pages which the window has left behind are given back.

use memory_pool::KvLayout;

use crate::config::ModelConfig;
use crate::runner::PoolSpec;

/// The pool of layers that see everything; always the first.
const GLOBAL: &str = "kv";
/// The pool of layers that see a window.
const SLIDING: &str = "swa";

/// Where a layer's K/V rows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The pool.
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

/// The pools, with pages of `page_tokens` tokens.
pub(crate) fn specs(config: &ModelConfig, page_tokens: usize) -> Vec<PoolSpec> {
    let spec = |name, window, layers| PoolSpec {
        name,
        layers,
        page_tokens,
        page_bytes: layout(config, layers, page_tokens).page_bytes(),
        window,
    };
    let sliding = (0..config.layers).filter(|layer| is_sliding(config, *layer)).count();
    let mut specs = vec![spec(GLOBAL, None, config.layers - sliding)];
    specs.extend(config.sliding.as_ref().map(|s| spec(SLIDING, Some(s.window), sliding)));
    specs
}

/// How the rows of `layers` layers lie in a page.
pub(crate) const fn layout(config: &ModelConfig, layers: usize, page_tokens: usize) -> KvLayout {
    let ModelConfig { kv_heads, head_dim, .. } = *config;
    KvLayout { layers, kv_heads, head_dim, page_tokens }
}

fn is_sliding(config: &ModelConfig, layer: usize) -> bool {
    config.sliding.as_ref().is_some_and(|sliding| sliding.layers[layer])
}
