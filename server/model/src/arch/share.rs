//! Tensor parallelism: the share of a rank in a model, and the sums that join the shares.
//!
//! Ranks decide nothing: every one computes the same batch with the same pages. Heads and the
//! inner features of the MLP are split, so that each block ends in one partial sum per rank; norms,
//! the residual stream and the embedding are the same everywhere.

mod exchange;

use std::ops::Range;

pub(crate) use exchange::{Exchange, Peers};

use super::tensors::{LayerTensor, Naming};
use crate::config::ModelConfig;
use crate::weights::Weights;

/// What one rank has of a dense model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The inner features of the MLP.
    inner: Range<usize>,
}

impl Share {
    /// The shares of `ranks` ranks.
    ///
    /// # Errors
    /// Why the model has no such shares.
    pub(crate) fn all(
        ranks: usize,
        config: &ModelConfig,
        naming: Naming,
        weights: &Weights,
    ) -> Result<Vec<Self>, String> {
        let ModelConfig { heads, kv_heads, head_dim, intermediate, .. } = *config;
        if ranks == 0 || !kv_heads.is_multiple_of(ranks) {
            return Err(format!("{kv_heads} K/V heads cannot be shared out evenly"));
        }
        // A rank's columns of a matrix are whole blocks of its format.
        let block = |tensor| {
            let name = |layer| naming.layer(config.architecture, layer, tensor);
            let entries = (0..config.layers).filter_map(|layer| weights.entry(&name(layer)));
            entries.map(|entry| entry.format.block_values()).max().unwrap_or(1)
        };
        let (own, of_heads) = (heads / ranks * head_dim, block(LayerTensor::Output));
        if ranks > 1 && !own.is_multiple_of(of_heads) {
            return Err(format!("a rank's heads have {own} features, weights come in {of_heads}s"));
        }
        let of_mlp = if ranks > 1 { block(LayerTensor::Down) } else { intermediate };
        let blocks = intermediate / of_mlp;
        if blocks < ranks {
            return Err(format!("{intermediate} features of the MLP are {blocks} blocks"));
        }
        let share = |rank| {
            let Range { start, end } = part(blocks, rank, ranks);
            Self { rank, ranks, inner: start * of_mlp..end * of_mlp }
        };
        Ok((0..ranks).map(share).collect())
    }

    /// The rank's part of `count` things, as even as it goes.
    pub(crate) fn of(&self, count: usize) -> Range<usize> {
        part(count, self.rank, self.ranks)
    }

    /// The inner features of the MLP.
    pub(crate) fn inner(&self) -> Range<usize> {
        self.inner.clone()
    }

    /// The model as the rank computes it.
    pub(crate) fn config(&self, whole: &ModelConfig) -> ModelConfig {
        ModelConfig {
            heads: whole.heads / self.ranks,
            kv_heads: whole.kv_heads / self.ranks,
            intermediate: self.inner.len(),
            ..whole.clone()
        }
    }
}

fn part(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    count * rank / ranks..count * (rank + 1) / ranks
}
