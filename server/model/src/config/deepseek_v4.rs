//! What a DeepSeek-V4 model has beyond the common dimensions.

/// How attention of a layer sees what its window has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Entries of overlapping windows, of which an indexer picks the best.
    Sparse,
    /// Entries of windows side by side, all of which are seen.
    Heavy,
}

/// The rotary scaling of layers with compression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// How much the longest wavelengths are stretched.
    pub factor: f64,
    /// The context that the unscaled model was trained with.
    pub original_context: f64,
    /// Wavelengths that turn more often than this in the original context are kept.
    pub beta_fast: f64,
    /// Wavelengths that turn less often than this are stretched in full.
    pub beta_slow: f64,
}

/// The indexer of sparse layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexer {
    /// Its query heads.
    pub heads: usize,
    /// Numbers in a head and in a key.
    pub head_dim: usize,
    /// Entries that a query sees at most.
    pub top: usize,
}

/// Dimensions and constants of a DeepSeek-V4 model. `intermediate` of the
/// [`ModelConfig`](super::ModelConfig) is that of one expert, `rope_theta` that of layers without
/// compression.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepseekV4 {
    /// One per layer.
    pub layers: Vec<Compression>,
    /// Tokens of an entry of sparse layers; at least 2.
    pub sparse_ratio: usize,
    /// Tokens of an entry of heavy layers; at least 2.
    pub heavy_ratio: usize,
    /// Positions that a token sees as they are, its own included.
    pub window: usize,
    /// The numbers at the end of each head that rotate; even.
    pub rope_dim: usize,
    /// Base of the rotary frequencies of layers with compression.
    pub compress_rope_theta: f64,
    /// Their scaling.
    pub yarn: Option<Yarn>,
    /// Numbers of a query before it is spread over heads.
    pub query_rank: usize,
    /// Groups of heads in the output projection; divides the heads.
    pub output_groups: usize,
    /// Numbers of one group between its two matrices.
    pub output_rank: usize,
    /// `None` where no layer is sparse.
    pub indexer: Option<Indexer>,
    /// Experts of a layer that tokens choose from.
    pub experts: usize,
    /// How many of them a token goes through.
    pub experts_per_token: usize,
    /// The first layers, in which a table says which experts a token takes.
    pub hash_layers: usize,
    /// The weights of a token's experts add up to this.
    pub routed_scale: f32,
    /// What goes into an expert's activation is cut off here.
    pub swiglu_limit: f32,
    /// Residual streams.
    pub streams: usize,
    /// Passes of the normalisation of their mixing matrix; at least 1.
    pub sinkhorn_passes: usize,
    /// Added where that normalisation divides.
    pub hyper_eps: f32,
}

impl DeepseekV4 {
    /// Tokens of one entry of a layer with this compression.
    #[must_use]
    pub const fn ratio(&self, compression: Compression) -> Option<usize> {
        match compression {
            Compression::None => None,
            Compression::Sparse => Some(self.sparse_ratio),
            Compression::Heavy => Some(self.heavy_ratio),
        }
    }

    /// The layers with this compression, ascending.
    #[must_use]
    pub fn layers_with(&self, compression: Compression) -> Vec<usize> {
        (0..self.layers.len()).filter(|layer| self.layers[*layer] == compression).collect()
    }

    /// Tokens of a page are a multiple of this, so that entries and the state of unfinished ones
    /// never reach across pages.
    #[must_use]
    pub fn page_multiple(&self) -> usize {
        let mut multiple = 128;
        for (compression, ring) in
            [(Compression::Sparse, 2 * self.sparse_ratio), (Compression::Heavy, self.heavy_ratio)]
        {
            if self.layers.contains(&compression) {
                multiple = lcm(multiple, ring);
            }
        }
        multiple
    }
}

const fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
