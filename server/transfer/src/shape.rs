//! What both ends must have in common: the model, and how its KV lies in pages.

use memory_pool::PageBytes;

/// A part of a pool as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartShape {
    /// Its name, at most 64 bytes.
    pub name: String,
    /// Its pool.
    pub pool: u16,
    /// The model's layers whose rows it holds, ascending.
    pub layers: Vec<u16>,
    /// Bytes of one page in one layer, on one rank.
    pub layer_bytes: u32,
    /// Whether every rank holds the same bytes.
    pub replicated: bool,
}

/// A worker's model and layout. Two workers can exchange KV where these fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The fingerprint of configuration and weights, as text; at most 128 bytes.
    pub model: String,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// The type of the KV numbers; at most 32 bytes.
    pub kv_dtype: String,
    /// Tensor-parallel ranks.
    pub ranks: u16,
    /// The parts of all pools, in the model's order; at most [`PARTS_MAX`](crate::PARTS_MAX).
    pub parts: Vec<PartShape>,
}

impl Shape {
    /// Of a worker whose pages are `pages`.
    ///
    /// # Panics
    /// Where a number of the layout does not fit its field: no model has 65,536 layers.
    #[must_use]
    pub fn of(model: &str, page_tokens: u32, kv_dtype: &str, pages: &dyn PageBytes) -> Self {
        let short = |value: usize| u16::try_from(value).expect("layers, ranks: below 65,536");
        let part = |part: &memory_pool::LinkPart| PartShape {
            name: part.name.to_owned(),
            pool: part.pool.0,
            layers: part.layers.iter().map(|layer| short(*layer)).collect(),
            layer_bytes: u32::try_from(part.layer_bytes).expect("a layer of a page is below 4 GiB"),
            replicated: part.replicated,
        };
        Self {
            model: model.to_owned(),
            page_tokens,
            kv_dtype: kv_dtype.to_owned(),
            ranks: short(pages.ranks()),
            parts: pages.parts().iter().map(part).collect(),
        }
    }
}
