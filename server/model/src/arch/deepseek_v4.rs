//! DeepSeek-V4: weights packed once, and the forward pass over a batch.
//!
//! The residual is several streams, mixed by hyper-connections. Attention reads one latent per
//! token, key and value at once: those of a window, and entries that stand for several tokens each.
//! As in the dense decoder, every result depends on its own row and on stored rows alone, each sum
//! in one order, so that neither batch nor chunks show.

mod attention;
mod compress;
mod dequant;
mod forward;
mod hyper;
mod index;
mod moe;
mod pack;
mod pools;
mod rope;
mod tensors;

use std::sync::Arc;

use kernels::{Activations, Linear};

use self::attention::Attention;
use self::hyper::Hyper;
use self::moe::Moe;
use self::pools::Place;
use self::rope::{Angles, Frequencies};
use crate::config::{Compression, DeepseekV4, ModelConfig};
use crate::runner::KernelUse;
use crate::weights::{Entry, Weights};

pub(crate) use pools::specs;
pub(crate) use tensors::{Checked, check as check_tensors};

/// The share of one rank of a model, ready to run.
///
/// A rank has a part of the heads with their groups of the output projection, a part of the
/// experts, and a part of the rows of every other large matrix behind which results are joined. The
/// latent, the compressors and the indexer's matrices are the same on every rank, as are the rows
/// in its pages; the indexer's scores are shared out. No sum is ever cut, so that any number of
/// ranks computes the bits of one.
pub(crate) struct Model {
    /// The dimensions of the whole model.
    config: ModelConfig,
    v4: DeepseekV4,
    page_tokens: usize,
    embedding: Embedding,
    layers: Vec<Layer>,
    /// The mixing of the streams after the last layer.
    head_mix: Hyper,
    norm: Vec<f32>,
    /// The rank's rows of the vocabulary.
    head: Box<dyn Linear>,
    /// Of layers without and with compression.
    frequencies: [Frequencies; 2],
    /// Weights of a norm that has none.
    ones: Vec<f32>,
    scratch: Scratch,
}

/// Rows are decoded from the mapped file as they are looked up.
struct Embedding {
    weights: Arc<Weights>,
    entry: Entry,
}

struct Layer {
    compression: Compression,
    place: Place,
    attention_mix: Hyper,
    attention_norm: Vec<f32>,
    attention: Attention,
    mlp_mix: Hyper,
    mlp_norm: Vec<f32>,
    moe: Moe,
}

/// Buffers of a step, kept for the next one.
#[derive(Default)]
struct Scratch {
    positions: Vec<u32>,
    /// The slice of each row.
    slices: Vec<u32>,
    /// Of each row's position, without and with compression.
    angles: [Angles; 2],
    /// The residual streams of each row, one after the other; and those being made.
    streams: Activations,
    next: Activations,
    /// What the hyper-connection says of each row.
    mix: Vec<f32>,
    /// What enters a block, before and after its norm.
    collapsed: Vec<f32>,
    normed: Activations,
    /// What a block adds.
    delta: Vec<f32>,
    attention: attention::Scratch,
    moe: moe::Scratch,
}

impl Model {
    /// Bytes of memory that the weights take, the mapped embedding not counted. Vectors count
    /// nothing: they are thousandths.
    pub(crate) fn weight_bytes(&self) -> u64 {
        self.linears().iter().map(|linear| linear.weight_bytes()).sum()
    }

    /// One entry per operation and format.
    pub(crate) fn kernels(&self) -> Vec<KernelUse> {
        let kernel = |linear: &&dyn Linear| KernelUse {
            op: "linear".to_owned(),
            format: linear.format().to_string(),
            kernel: linear.kernel().to_owned(),
        };
        let mut uses: Vec<KernelUse> = self.linears().iter().map(kernel).collect();
        uses.push(KernelUse {
            op: "attention".to_owned(),
            format: "f32".to_owned(),
            kernel: "portable-latent".to_owned(),
        });
        uses.sort_unstable();
        uses.dedup();
        uses
    }

    fn linears(&self) -> Vec<&dyn Linear> {
        let mut all = vec![self.head.as_ref(), self.head_mix.linear()];
        for layer in &self.layers {
            all.extend([layer.attention_mix.linear(), layer.mlp_mix.linear()]);
            layer.attention.list_linears(&mut all);
            layer.moe.list_linears(&mut all);
        }
        all
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod quantised;
#[cfg(test)]
mod random;
#[cfg(test)]
mod ranks;
