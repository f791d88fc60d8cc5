//! Tensor parallelism: the share of a rank in a model, and the sums that join the shares.
//!
//! Ranks decide nothing: every one computes the same batch with the same pages. In dense decoders
//! heads and the inner features of the MLP are split, so that each block ends in one partial sum
//! per rank; norms, the residual stream and the embedding are the same everywhere.

mod exchange;

use std::ops::Range;

pub(crate) use exchange::{Exchange, Left, Peers};

use kernels::ThreadPool;
use memory_pool::Compute;

use super::tensors::{LayerTensor, Naming};
use super::trace::Trace;
use crate::config::ModelConfig;
use crate::runner::{Batch, Logits, RunError};
use crate::weights::Weights;

/// A rank's share of a model, ready to run.
pub(crate) trait ModelShare: Send {
    /// Rows of the vocabulary that this rank computes.
    fn vocab(&self) -> usize;

    /// Prepares for requests of up to `positions` positions, so that no step has to.
    fn reach(&mut self, positions: usize);

    /// Runs a checked batch: fills its pages and leaves the wanted rows of the rank's part of the
    /// vocabulary in `logits`.
    ///
    /// # Errors
    /// [`RunError::Load`] where rows of an earlier page never came, and whatever made another rank
    /// give up.
    fn forward<T: Trace>(
        &mut self,
        batch: &Batch,
        memory: &mut Compute,
        logits: &mut Logits,
        threads: &ThreadPool,
        trace: &mut T,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError>;
}

/// What one rank has of a dense model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The heads with keys and values of their own. Where there are fewer than ranks, several ranks
    /// have the same one: that of their queries.
    kv_heads: Range<usize>,
    /// The inner features of the MLP.
    inner: Range<usize>,
}

impl Share {
    /// The shares of `ranks` ranks, which the configuration allows.
    ///
    /// # Errors
    /// Why the weights have no such shares.
    pub(crate) fn all(
        ranks: usize,
        config: &ModelConfig,
        naming: Naming,
        weights: &Weights,
    ) -> Result<Vec<Self>, String> {
        let ModelConfig { heads, kv_heads, head_dim, intermediate, .. } = *config;
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
            let first = kv_heads * rank / ranks;
            let kv_heads = first..first + (kv_heads / ranks).max(1);
            Self { rank, ranks, kv_heads, inner: start * of_mlp..end * of_mlp }
        };
        Ok((0..ranks).map(share).collect())
    }

    /// The rank's part of `count` things, as even as it goes.
    pub(crate) fn of(&self, count: usize) -> Range<usize> {
        part(count, self.rank, self.ranks)
    }

    /// The heads with keys and values of their own.
    pub(crate) fn kv_heads(&self) -> Range<usize> {
        self.kv_heads.clone()
    }

    /// The inner features of the MLP.
    pub(crate) fn inner(&self) -> Range<usize> {
        self.inner.clone()
    }

    /// The model as the rank computes it.
    pub(crate) fn config(&self, whole: &ModelConfig) -> ModelConfig {
        ModelConfig {
            heads: whole.heads / self.ranks,
            kv_heads: self.kv_heads.len(),
            intermediate: self.inner.len(),
            ..whole.clone()
        }
    }
}

/// The part of rank `rank` of `count` things, as even as it goes.
pub(crate) fn part(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    count * rank / ranks..count * (rank + 1) / ranks
}
