//! One step: embed, layers, head.

use kernels::{
    AttentionSequence, AttentionShape, RopeStyle, ThreadPool, add, dequantize_row, forward_all,
    gelu_tanh_mul, paged_attention, rms_norm, rms_norm_in_place, rope, scale, silu_mul,
};
use memory_pool::{Compute, KvLayout};
use types::{PoolId, TokenId};

use super::{Decoder, Embedding, Layer, Place, Reading, Rotary, Rows, Scratch};
use crate::arch::pools;
use crate::arch::share::{ModelShare, Peers};
use crate::arch::trace::Trace;
use crate::config::{Activation, ModelConfig, RopePairs};
use crate::runner::{Batch, Logits, RunError, Slice};

/// What a layer needs beside its weights.
struct Step<'a> {
    config: &'a ModelConfig,
    /// Of layers that see everything.
    attention: AttentionShape,
    /// Of a layer's rows in a page.
    layout: KvLayout,
    /// One per pool, as `rotary`.
    reading: &'a [Reading],
    rotary: &'a [Rotary],
    batch: &'a Batch,
    positions: &'a [u32],
    threads: &'a ThreadPool,
}

impl ModelShare for Decoder {
    fn vocab(&self) -> usize {
        self.head.out_features()
    }

    fn reach(&mut self, positions: usize) {
        for rotary in &mut self.rotary {
            rotary.reach(positions);
        }
    }

    fn forward<T: Trace>(
        &mut self,
        batch: &Batch,
        memory: &mut Compute,
        logits: &mut Logits,
        threads: &ThreadPool,
        trace: &mut T,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let config = &self.config;
        let Scratch { rows, positions, pools: reading } = &mut self.scratch;
        positions.clear();
        for slice in &batch.slices {
            positions.extend((slice.start..slice.end()).map(|position| position as u32));
        }
        reading.resize_with(self.rotary.len(), Reading::default);
        for (pool, reading) in (0..).map(PoolId).zip(reading.iter_mut()) {
            reading.fill(batch, pool);
        }
        let furthest = batch.slices.iter().map(Slice::end).max().unwrap_or(0);
        for rotary in &mut self.rotary {
            rotary.reach(furthest);
        }
        let step = Step {
            config,
            attention: AttentionShape {
                heads: config.heads,
                scale: config.attention_scale,
                window: None,
                path: self.path,
            },
            layout: pools::layout(config, self.page_tokens),
            reading,
            rotary: &self.rotary,
            batch,
            positions,
            threads,
        };
        self.embedding.look_up(&batch.tokens, config.hidden, &mut rows.hidden);
        if let Some(factor) = config.embedding_scale {
            scale(&mut rows.hidden, factor, threads);
        }
        trace.see(None, "embed", &rows.hidden);
        for (at, layer) in self.layers.iter().enumerate() {
            layer.keys_and_values(&step, rows, memory);
            peers.wait(batch.loads.as_ref(), at)?;
            peers.tell(batch.progress.as_ref(), at + 1);
            layer.attend(&step, rows, memory);
            peers.add_up(&mut rows.delta, threads)?;
            trace.see(Some(at), "attn_out", &rows.delta);
            layer.add_delta(layer.post_norms.as_ref().map(|norms| &norms.0), &step, rows);
            layer.mlp(&step, rows);
            peers.add_up(&mut rows.delta, threads)?;
            trace.see(Some(at), "mlp_out", &rows.delta);
            layer.add_delta(layer.post_norms.as_ref().map(|norms| &norms.1), &step, rows);
            trace.see(Some(at), "out", &rows.hidden);
        }
        // The head is the largest linear: only the rows that are asked for go through it.
        keep_wanted(&batch.slices, config.hidden, &mut rows.hidden);
        let wanted = batch.logits_rows();
        let out = logits.reset(wanted, self.head.out_features());
        if wanted > 0 {
            rms_norm(&rows.hidden, &self.final_norm, config.rms_eps, &mut rows.normed, threads);
            trace.see(None, "final_norm", rows.normed.as_slice());
            self.head.forward(&rows.normed, out, threads);
        }
        Ok(())
    }
}

impl Embedding {
    fn look_up(&self, tokens: &[TokenId], hidden: usize, rows: &mut Vec<f32>) {
        let table = self.weights.tensor(&self.entry);
        let row_bytes = table.bytes.len() / self.entry.shape.0[0];
        rows.resize(tokens.len() * hidden, 0.0);
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(hidden)) {
            let stored = &table.bytes[token.index() * row_bytes..][..row_bytes];
            dequantize_row(table.format, stored, row).expect("the table's shape was checked");
        }
    }
}

impl Layer {
    /// Computes this layer's queries and writes its K/V rows.
    fn keys_and_values(&self, step: &Step<'_>, rows: &mut Rows, memory: &mut Compute) {
        let Step { config, threads, positions, .. } = *step;
        let table = step.rotary[self.place.pool].table();
        let (count, dim) = (positions.len(), config.head_dim);
        let (q_len, kv_len) = (config.heads * dim, config.kv_heads * dim);
        rms_norm(&rows.hidden, &self.attention_norm, config.rms_eps, &mut rows.normed, threads);
        rows.query.resize(count * q_len, 0.0);
        rows.key.resize(count * kv_len, 0.0);
        rows.value.resize(count * kv_len, 0.0);
        let linears = [&*self.query, &*self.key, &*self.value];
        let outputs = [&mut *rows.query, &mut *rows.key, &mut *rows.value];
        forward_all(linears, &rows.normed, outputs, threads);
        if let Some((query_norm, key_norm)) = &self.head_norms {
            rms_norm_in_place(&mut rows.query, query_norm, config.rms_eps, threads);
            rms_norm_in_place(&mut rows.key, key_norm, config.rms_eps, threads);
        }
        let style = match config.rope_pairs {
            RopePairs::HalfSplit => RopeStyle::HalfSplit,
            RopePairs::Adjacent => RopeStyle::AdjacentPair,
        };
        rope(&mut rows.query, dim, positions, table, style, threads);
        rope(&mut rows.key, dim, positions, table, style, threads);
        self.store(step, &rows.key, &rows.value, memory);
    }

    /// Leaves in `delta` what attention adds.
    fn attend(&self, step: &Step<'_>, rows: &mut Rows, memory: &Compute) {
        let Step { config, threads, positions, .. } = *step;
        let Place { pool, layer } = self.place;
        let count = positions.len();
        let kv = memory.keys_and_values(pool, layer, step.layout);
        let attended = rows.attended.resize(count, config.heads * config.head_dim);
        let Reading { pages, sequences } = &step.reading[pool];
        let shape = step.shape_of(pool);
        paged_attention(shape, &rows.query, kv, pages, sequences, attended, threads);
        rows.delta.resize(count * config.hidden, 0.0);
        self.output.forward(&rows.attended, &mut rows.delta, threads);
    }

    /// Leaves in `delta` what the MLP adds.
    fn mlp(&self, step: &Step<'_>, rows: &mut Rows) {
        let Step { config, threads, positions, .. } = *step;
        let count = positions.len();
        rms_norm(&rows.hidden, &self.mlp_norm, config.rms_eps, &mut rows.normed, threads);
        rows.gate.resize(count * config.intermediate, 0.0);
        rows.up.resize(count * config.intermediate, 0.0);
        let outputs = [&mut *rows.gate, &mut *rows.up];
        forward_all([&*self.gate, &*self.up], &rows.normed, outputs, threads);
        match config.architecture.activation() {
            Activation::Silu => {
                silu_mul(&rows.gate, &rows.up, count, &mut rows.activated, threads);
            }
            Activation::GeluTanh => {
                gelu_tanh_mul(&rows.gate, &rows.up, count, &mut rows.activated, threads);
            }
        }
        self.down.forward(&rows.activated, &mut rows.delta, threads);
    }

    /// Adds `delta` to the residual stream, through `norm` where there is one.
    fn add_delta(&self, norm: Option<&Vec<f32>>, step: &Step<'_>, rows: &mut Rows) {
        if let Some(norm) = norm {
            rms_norm_in_place(&mut rows.delta, norm, step.config.rms_eps, step.threads);
        }
        add(&mut rows.hidden, &rows.delta, step.threads);
    }

    /// Writes the K/V rows of every token into its page.
    fn store(&self, step: &Step<'_>, key: &[f32], value: &[f32], memory: &mut Compute) {
        let Place { pool, layer } = self.place;
        let row = step.config.kv_heads * step.config.head_dim;
        let page_tokens = step.layout.page_tokens;
        let id = PoolId(pool as u16);
        for (at, slice) in step.batch.slices.iter().enumerate() {
            let pages = step.batch.pages(at, id);
            for (index, position) in (slice.first..).zip(slice.start..slice.end()) {
                let rows = index * row..(index + 1) * row;
                let page = pages.page_of(position, page_tokens);
                let slot = position % page_tokens;
                let row = (&key[rows.clone()], &value[rows]);
                memory.write_rows((pool, page, layer), step.layout, slot, row);
            }
        }
    }
}

impl Step<'_> {
    /// Attention of the layers in pool `pool`.
    fn shape_of(&self, pool: usize) -> AttentionShape {
        let sliding = self.config.sliding.as_ref().filter(|_| pool > 0);
        AttentionShape { window: sliding.map(|sliding| sliding.window), ..self.attention }
    }
}

impl Reading {
    /// Takes over the page lists of `pool`.
    fn fill(&mut self, batch: &Batch, pool: PoolId) {
        let Self { pages, sequences } = self;
        pages.clear();
        sequences.clear();
        for (at, slice) in batch.slices.iter().enumerate() {
            let (start, list) = (pages.len(), batch.pages(at, pool));
            pages.extend(list.pages.iter().map(|page| page.0));
            sequences.push(AttentionSequence {
                first_row: slice.first,
                rows: slice.len,
                start: slice.start,
                first_page: list.first,
                pages: start..pages.len(),
            });
        }
    }
}

/// Moves the rows that want logits to the front, in their order, and drops the rest.
fn keep_wanted(slices: &[Slice], hidden: usize, rows: &mut Vec<f32>) {
    let mut kept = 0;
    for slice in slices {
        let end = slice.first + slice.len;
        rows.copy_within((end - slice.logits) * hidden..end * hidden, kept * hidden);
        kept += slice.logits;
    }
    rows.truncate(kept * hidden);
}
