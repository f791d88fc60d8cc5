//! Attention over one latent per token: those of the window, and entries of compressed history.

use kernels::{
    Activations, Linear, ThreadPool, attend_rows, forward_all, rms_norm, rms_norm_in_place,
};
use memory_pool::Compute;

use super::compress::{self, Compressor};
use super::index::{self, Indexer};
use super::pools::{HISTORY, Place, WINDOW};
use super::rope::{Angles, Frequencies};
use crate::arch::share::Peers;
use crate::arch::trace::Trace;
use crate::config::{DeepseekV4, ModelConfig};
use crate::runner::{Batch, RunError};

pub(super) struct Attention {
    pub(super) query_a: Box<dyn Linear>,
    pub(super) query_norm: Vec<f32>,
    pub(super) query_b: Box<dyn Linear>,
    pub(super) latent: Box<dyn Linear>,
    pub(super) latent_norm: Vec<f32>,
    /// One per head of the rank: a score that takes its share of the softmax and adds nothing.
    pub(super) sink: Vec<f32>,
    /// One per group of heads of the rank.
    pub(super) output_a: Vec<Box<dyn Linear>>,
    /// The rank's rows.
    pub(super) output_b: Box<dyn Linear>,
    pub(super) compressor: Option<Compressor>,
    pub(super) indexer: Option<Indexer>,
}

#[derive(Default)]
pub(super) struct Scratch {
    low: Vec<f32>,
    low_normed: Activations,
    query: Vec<f32>,
    latent: Vec<f32>,
    attended: Vec<f32>,
    group: Activations,
    group_out: Vec<f32>,
    joined: Activations,
    rows: compress::Rows,
    compress: compress::Scratch,
    index: index::Scratch,
}

/// What a layer's attention needs beside its weights.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) v4: &'a DeepseekV4,
    pub(super) layer: usize,
    pub(super) place: Place,
    pub(super) batch: &'a Batch,
    pub(super) positions: &'a [u32],
    pub(super) slices: &'a [u32],
    /// Of this layer's kind.
    pub(super) angles: &'a Angles,
    pub(super) frequencies: &'a Frequencies,
    pub(super) ones: &'a [f32],
    pub(super) page_tokens: usize,
    pub(super) threads: &'a ThreadPool,
}

impl Attention {
    /// Writes this layer's rows and leaves in `delta` what attention adds.
    pub(super) fn forward<T: Trace>(
        &self,
        step: Step<'_>,
        x: &Activations,
        scratch: &mut Scratch,
        memory: &mut Compute,
        (delta, trace, peers): (&mut Vec<f32>, &mut T, &mut Peers<'_>),
    ) -> Result<(), RunError> {
        let Step { config, threads, .. } = step;
        self.project(step, x, scratch);
        let compress = compress::Step {
            batch: step.batch,
            positions: step.positions,
            frequencies: step.frequencies,
            rms_eps: config.rms_eps,
            page_tokens: step.page_tokens,
            threads,
        };
        if let Some(compressor) = &self.compressor {
            compressor.project(compress, x, &mut scratch.rows);
        }
        if let Some(indexer) = &self.indexer {
            indexer.compressor.project(compress, x, &mut scratch.index.rows);
            let inputs = (x, &scratch.low_normed);
            indexer.project(inputs, step.angles, &mut scratch.index, threads);
        }
        // From here on, rows of earlier steps are read.
        peers.wait(step.batch.loads.as_ref(), step.layer)?;
        self.store_latents(step, &scratch.latent, memory);
        if let (Some(compressor), Some(at)) = (&self.compressor, step.place.entries) {
            compressor.store(compress, &scratch.rows, at, memory, &mut scratch.compress);
        }
        if let (Some(indexer), Some(at)) = (&self.indexer, step.place.index) {
            let rows = &scratch.index.rows;
            indexer.compressor.store(compress, rows, at, memory, &mut scratch.compress);
        }
        peers.tell(step.batch.progress.as_ref(), step.layer + 1);
        if let (Some(indexer), Some(at)) = (&self.indexer, step.place.index) {
            let choice = index::Step {
                batch: step.batch,
                positions: step.positions,
                slices: step.slices,
                page_tokens: step.page_tokens,
                threads,
            };
            indexer.choose(choice, at.rows, memory, &mut scratch.index, peers)?;
            if T::ON {
                let shape = (indexer.shape.top, indexer.compressor.ratio);
                index::shown(step.layer, step.positions, shape, &scratch.index.chosen, trace);
            }
        }
        self.attend(step, scratch, memory);
        step.angles.rotate(&mut scratch.attended, config.head_dim, true, threads);
        self.output(step, scratch, delta, peers)
    }

    /// Queries of the rank's heads, and latents, of all rows.
    fn project(&self, step: Step<'_>, x: &Activations, scratch: &mut Scratch) {
        let Step { config, threads, angles, .. } = step;
        let (rows, dim, eps) = (x.rows(), config.head_dim, config.rms_eps);
        let Scratch { low, low_normed, query, latent, .. } = scratch;
        low.resize(rows * step.v4.query_rank, 0.0);
        latent.resize(rows * dim, 0.0);
        let outputs = [&mut **low, &mut **latent];
        forward_all([&*self.query_a, &*self.latent], x, outputs, threads);
        rms_norm(low, &self.query_norm, eps, low_normed, threads);
        query.resize(rows * self.sink.len() * dim, 0.0);
        self.query_b.forward(low_normed, query, threads);
        rms_norm_in_place(query, step.ones, eps, threads);
        angles.rotate(query, dim, false, threads);
        rms_norm_in_place(latent, &self.latent_norm, eps, threads);
        angles.rotate(latent, dim, false, threads);
    }

    fn store_latents(&self, step: Step<'_>, latent: &[f32], memory: &mut Compute) {
        let (dim, at, page_tokens) = (step.config.head_dim, step.place.window, step.page_tokens);
        for (number, slice) in step.batch.slices.iter().enumerate() {
            let pages = step.batch.pages(number, WINDOW);
            for (row, position) in (slice.first..).zip(slice.start..slice.end()) {
                let page = pages.page_of(position, page_tokens);
                let slot = position % page_tokens * dim;
                memory.block_mut::<f32>(at.part, page, at.layer)[slot..slot + dim]
                    .copy_from_slice(&latent[row * dim..(row + 1) * dim]);
            }
        }
    }

    /// Each head of the rank of each row, in the order window, entries.
    fn attend(&self, step: Step<'_>, scratch: &mut Scratch, memory: &Compute) {
        let Step { config, v4, page_tokens, batch, place, .. } = step;
        let (heads, dim) = (self.sink.len(), config.head_dim);
        let Scratch { query, attended, index, .. } = scratch;
        attended.resize(query.len(), 0.0);
        let ratio = self.compressor.as_ref().map_or(1, |compressor| compressor.ratio);
        let top = self.indexer.as_ref().map_or(usize::MAX, |indexer| indexer.shape.top);
        let chosen = &index.chosen;
        let grain = heads.div_ceil(step.threads.threads());
        step.threads.for_each_row(attended, dim, grain, |at, out| {
            let (row, head) = (at / heads, at % heads);
            let (position, slice) = (step.positions[row] as usize, step.slices[row] as usize);
            let (recent, history) = (batch.pages(slice, WINDOW), batch.pages(slice, HISTORY));
            let first = (position + 1).saturating_sub(v4.window);
            let window = position + 1 - first;
            let visible = if place.entries.is_some() { (position + 1) / ratio } else { 0 };
            let latent = |i: usize| {
                let position = first + i;
                let page = recent.page_of(position, page_tokens);
                let block = memory.block::<f32>(place.window.part, page, place.window.layer);
                &block[position % page_tokens * dim..][..dim]
            };
            let entry = |i: usize| {
                let entry = if visible <= top { i } else { chosen[row * top + i] as usize };
                let page = history.page_of(entry * ratio, page_tokens);
                let at = place.entries.expect("entries are counted only where there are some");
                let block = memory.block::<f32>(at.rows.part, page, at.rows.layer);
                &block[entry * ratio % page_tokens / ratio * dim..][..dim]
            };
            let seen = |i: usize| if i < window { latent(i) } else { entry(i - window) };
            let query = &query[at * dim..(at + 1) * dim];
            let count = window + visible.min(top);
            attend_rows(query, config.attention_scale, self.sink[head], count, seen, out);
        });
    }

    /// The output projection: the rank's groups, and from those of all ranks its rows, which are
    /// joined in their turn.
    fn output(
        &self,
        step: Step<'_>,
        scratch: &mut Scratch,
        delta: &mut Vec<f32>,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let Step { config, v4, threads, .. } = step;
        let Scratch { attended, group, group_out, joined, .. } = scratch;
        let (rows, row_len) = (step.positions.len(), self.sink.len() * config.head_dim);
        let (own, rank) = (self.output_a.len(), v4.output_rank);
        let (width, whole) = (row_len / own, v4.output_groups * rank);
        peers.join(rows, [whole], [joined.resize(rows, whole)], |[out]| {
            for (number, linear) in self.output_a.iter().enumerate() {
                let part = group.resize(rows, width);
                for (to, from) in part.chunks_exact_mut(width).zip(attended.chunks_exact(row_len)) {
                    to.copy_from_slice(&from[number * width..(number + 1) * width]);
                }
                group_out.resize(rows * rank, 0.0);
                linear.forward(group, group_out, threads);
                let to = out.chunks_exact_mut(own * rank);
                for (to, from) in to.zip(group_out.chunks_exact(rank)) {
                    to[number * rank..(number + 1) * rank].copy_from_slice(from);
                }
            }
        })?;
        delta.resize(rows * config.hidden, 0.0);
        let hidden = config.hidden;
        peers.join(rows, [hidden], [delta], |[out]| self.output_b.forward(joined, out, threads))
    }

    pub(super) fn list_linears<'a>(&'a self, all: &mut Vec<&'a dyn Linear>) {
        all.extend([&*self.query_a, &*self.query_b, &*self.latent, &*self.output_b]);
        all.extend(self.output_a.iter().map(|linear| linear.as_ref()));
        if let Some(compressor) = &self.compressor {
            compressor.list_linears(all);
        }
        if let Some(indexer) = &self.indexer {
            indexer.list_linears(all);
        }
    }
}
