//! Where bytes lie: parts of a pool, their pages, and the K and V rows inside a page. Numbers only.

/// One part of an index pool: bytes that share the page ids of the pool. Page first: a page holds
/// its layers one after the other, `layer_bytes` each, so that it moves as one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartLayout {
    /// Its name, unique within a model.
    pub name: &'static str,
    /// The model's layers whose rows it holds, ascending.
    pub layers: Vec<usize>,
    /// Bytes of one page in one layer.
    pub layer_bytes: usize,
    /// Number of pages.
    pub pages: usize,
    /// Whether the host tier mirrors it.
    pub host: bool,
}

impl PartLayout {
    /// Bytes of a page, all layers; saturates.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.layer_bytes.saturating_mul(self.layers.len())
    }

    /// Bytes of all pages; saturates.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.page_bytes().saturating_mul(self.pages)
    }
}

/// The shape of one layer of a page of attention rows: `[K, V][kv_head][slot][head_dim]` of f32,
/// contiguous. The rows of one head lie side by side, as attention reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// K/V heads of a layer.
    pub kv_heads: usize,
    /// Numbers in a row of one head.
    pub head_dim: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
}

impl KvLayout {
    /// Numbers in the K (or the V) plane of one layer of a page.
    #[must_use]
    pub const fn plane_len(&self) -> usize {
        self.kv_heads * self.page_tokens * self.head_dim
    }

    /// Bytes of one layer of a page.
    #[must_use]
    pub const fn layer_bytes(&self) -> usize {
        2 * self.plane_len() * size_of::<f32>()
    }

    /// Where the row of `head` and `slot` starts inside a plane.
    #[must_use]
    pub const fn row(&self, head: usize, slot: usize) -> usize {
        (head * self.page_tokens + slot) * self.head_dim
    }
}
