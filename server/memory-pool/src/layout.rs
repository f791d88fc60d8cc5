//! How the K and V rows of a token lie inside a page. Numbers only.

/// The shape of a page: `[layer][K, V][kv_head][slot][head_dim]` of f32, contiguous.
///
/// A page holds all layers of its tokens ("page first"), so that it moves between tiers and
/// machines as one copy; inside a layer the rows of one head are contiguous, as attention reads
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers with a KV cache.
    pub layers: usize,
    /// K/V heads of a layer.
    pub kv_heads: usize,
    /// Numbers in a row of one head.
    pub head_dim: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
}

impl KvLayout {
    /// Numbers in the K (or the V) part of one layer of a page.
    #[must_use]
    pub const fn part_len(&self) -> usize {
        self.kv_heads * self.page_tokens * self.head_dim
    }

    /// Numbers in a page.
    #[must_use]
    pub const fn page_len(&self) -> usize {
        self.layers * 2 * self.part_len()
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> u64 {
        (self.page_len() * size_of::<f32>()) as u64
    }

    /// Where the K part of `layer` starts inside a page.
    #[must_use]
    pub const fn k_part(&self, layer: usize) -> usize {
        layer * 2 * self.part_len()
    }

    /// Where the V part of `layer` starts inside a page.
    #[must_use]
    pub const fn v_part(&self, layer: usize) -> usize {
        self.k_part(layer) + self.part_len()
    }

    /// Where the row of `head` and `slot` starts inside a part.
    #[must_use]
    pub const fn row(&self, head: usize, slot: usize) -> usize {
        (head * self.page_tokens + slot) * self.head_dim
    }
}
