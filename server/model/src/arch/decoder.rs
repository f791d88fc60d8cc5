//! The dense decoder: weights packed once, and the forward pass over a batch.
//!
//! All tokens of a step are rows of one matrix through the linears; only attention looks at
//! slices. Every kernel computes a row from that row alone, which makes the whole pass
//! independent of batch and chunking.

mod forward;
mod pack;

use std::sync::Arc;

use kernels::{Activations, AttentionSequence, Linear, WeightFormat};

use super::pools::Place;
use super::rope::Rotary;
use crate::config::ModelConfig;
use crate::runner::KernelUse;
use crate::weights::{Entry, Weights};

pub(crate) use pack::Packing;

/// The share of one rank of a model, ready to run.
pub(crate) struct Decoder {
    /// The dimensions of the share; `vocab` is the whole model's.
    config: ModelConfig,
    embedding: Embedding,
    layers: Vec<Layer>,
    final_norm: Vec<f32>,
    /// The rank's rows of the vocabulary.
    head: Box<dyn Linear>,
    /// One per KV pool.
    rotary: Vec<Rotary>,
    page_tokens: usize,
    path: kernels::KernelPath,
    scratch: Scratch,
}

/// Rows are decoded from the mapped file as they are looked up.
struct Embedding {
    weights: Arc<Weights>,
    entry: Entry,
}

struct Layer {
    place: Place,
    attention_norm: Vec<f32>,
    query: Box<dyn Linear>,
    key: Box<dyn Linear>,
    value: Box<dyn Linear>,
    /// Norms of each query and key head, where the architecture has them.
    head_norms: Option<(Vec<f32>, Vec<f32>)>,
    output: Box<dyn Linear>,
    /// Norms of what the two blocks add, where the architecture has them.
    post_norms: Option<(Vec<f32>, Vec<f32>)>,
    mlp_norm: Vec<f32>,
    gate: Box<dyn Linear>,
    up: Box<dyn Linear>,
    down: Box<dyn Linear>,
}

/// Buffers of a step, kept for the next one.
#[derive(Default)]
struct Scratch {
    rows: Rows,
    positions: Vec<u32>,
    /// One per KV pool.
    pools: Vec<Reading>,
}

/// What attention reads of one pool.
#[derive(Default)]
struct Reading {
    /// The page lists of all slices, one after the other.
    pages: Vec<u32>,
    /// One per slice.
    sequences: Vec<AttentionSequence>,
}

/// One row per token of the step.
#[derive(Default)]
struct Rows {
    /// The residual stream.
    hidden: Vec<f32>,
    normed: Activations,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    attended: Activations,
    gate: Vec<f32>,
    up: Vec<f32>,
    activated: Activations,
    /// What a block adds to the residual stream.
    delta: Vec<f32>,
}

impl Decoder {
    /// The model's dimensions.
    #[cfg(test)]
    pub(crate) const fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Bytes of memory that the weights take, the mapped embedding not counted.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let norms = self.layers.iter().flat_map(Layer::norms).chain([&self.final_norm]);
        let norms: usize = norms.map(Vec::len).sum();
        self.linears().map(Linear::weight_bytes).sum::<u64>() + (norms * size_of::<f32>()) as u64
    }

    /// One entry per operation and format.
    pub(crate) fn kernels(&self) -> Vec<KernelUse> {
        let linear = |linear: &dyn Linear| kernel("linear", linear.format(), linear.kernel());
        let mut uses: Vec<KernelUse> = self.linears().map(linear).collect();
        let attention = kernels::attention_kernel(self.path, self.config.head_dim);
        uses.push(kernel("attention", WeightFormat::F32, attention));
        uses.sort_unstable();
        uses.dedup();
        uses
    }

    fn linears(&self) -> impl Iterator<Item = &dyn Linear> {
        self.layers.iter().flat_map(Layer::linears).chain([self.head.as_ref()])
    }
}

impl Layer {
    fn linears(&self) -> [&dyn Linear; 7] {
        let Self { query, key, value, output, gate, up, down, .. } = self;
        [query, key, value, output, gate, up, down].map(|linear| linear.as_ref())
    }

    fn norms(&self) -> impl Iterator<Item = &Vec<f32>> {
        let optional = [&self.head_norms, &self.post_norms].into_iter().flatten();
        let optional = optional.flat_map(|(first, second)| [first, second]);
        [&self.attention_norm, &self.mlp_norm].into_iter().chain(optional)
    }
}

fn kernel(op: &str, format: WeightFormat, kernel: &str) -> KernelUse {
    KernelUse { op: op.to_owned(), format: format.to_string(), kernel: kernel.to_owned() }
}
