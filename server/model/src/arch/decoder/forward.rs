//! One step: embed, layers, head.

use kernels::{
    AttentionSequence, AttentionShape, KvGeometry, PagedKv, RopeStyle, RopeTable, ThreadPool, add,
    dequantize_row, paged_attention, rms_norm, rms_norm_in_place, rope, silu_mul,
};
use memory_pool::DevicePool;
use types::{PoolId, TokenId};

use super::{Decoder, Embedding, Layer, Rows, Scratch};
use crate::config::{ModelConfig, RopePairs};
use crate::runner::{Batch, Logits, Slice};

/// Sees the intermediate results of a step, all rows of the batch each time.
pub(crate) trait Trace {
    /// `layer` is the layer that computed `values`, if one did.
    fn see(&mut self, layer: Option<usize>, point: &'static str, values: &[f32]);
}

/// Sees nothing and costs nothing.
pub(crate) struct NoTrace;

impl Trace for NoTrace {
    fn see(&mut self, _: Option<usize>, _: &'static str, _: &[f32]) {}
}

/// What a layer needs beside its weights.
struct Step<'a> {
    config: &'a ModelConfig,
    attention: AttentionShape,
    sequences: &'a [AttentionSequence<'a>],
    batch: &'a Batch,
    positions: &'a [u32],
    table: &'a RopeTable,
    threads: &'a ThreadPool,
}

impl Decoder {
    /// Runs a checked batch: fills `pool` and leaves the wanted rows in `logits`.
    pub(crate) fn forward(
        &mut self,
        batch: &Batch,
        pool: &mut DevicePool,
        logits: &mut Logits,
        threads: &ThreadPool,
        trace: &mut impl Trace,
    ) {
        let config = &self.config;
        let Scratch { rows, positions, pages } = &mut self.scratch;
        positions.clear();
        pages.clear();
        for (at, slice) in batch.slices.iter().enumerate() {
            positions.extend((slice.start..slice.end()).map(|position| position as u32));
            pages.extend(batch.pages(at, PoolId(0)).pages.iter().map(|page| page.0));
        }
        let sequences = sequences(batch, pages);
        let furthest = batch.slices.iter().map(Slice::end).max().unwrap_or(0);
        let step = Step {
            config,
            attention: AttentionShape {
                heads: config.heads,
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                path: self.path,
            },
            sequences: &sequences,
            batch,
            positions,
            table: self.rotary.table(furthest),
            threads,
        };
        self.embedding.look_up(&batch.tokens, config.hidden, &mut rows.hidden);
        trace.see(None, "embed", &rows.hidden);
        for (at, layer) in self.layers.iter().enumerate() {
            layer.attend(at, &step, rows, pool);
            trace.see(Some(at), "attn_out", &rows.delta);
            add(&mut rows.hidden, &rows.delta, threads);
            layer.mlp(&step, rows);
            trace.see(Some(at), "mlp_out", &rows.delta);
            add(&mut rows.hidden, &rows.delta, threads);
            trace.see(Some(at), "out", &rows.hidden);
        }
        // The head is the largest linear: only the rows that are asked for go through it.
        keep_wanted(&batch.slices, config.hidden, &mut rows.hidden);
        let wanted = batch.logits_rows();
        let out = logits.reset(wanted, config.vocab);
        if wanted > 0 {
            rms_norm(&rows.hidden, &self.final_norm, config.rms_eps, &mut rows.normed, threads);
            trace.see(None, "final_norm", rows.normed.as_slice());
            self.head.forward(&rows.normed, out, threads);
        }
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
    /// Writes this layer's K/V rows and leaves in `delta` what attention adds.
    fn attend(&self, at: usize, step: &Step<'_>, rows: &mut Rows, pool: &mut DevicePool) {
        let Step { config, threads, positions, .. } = *step;
        let (count, dim) = (positions.len(), config.head_dim);
        let (q_len, kv_len) = (config.heads * dim, config.kv_heads * dim);
        rms_norm(&rows.hidden, &self.attention_norm, config.rms_eps, &mut rows.normed, threads);
        rows.query.resize(count * q_len, 0.0);
        rows.key.resize(count * kv_len, 0.0);
        rows.value.resize(count * kv_len, 0.0);
        self.query.forward(&rows.normed, &mut rows.query, threads);
        self.key.forward(&rows.normed, &mut rows.key, threads);
        self.value.forward(&rows.normed, &mut rows.value, threads);
        if let Some((query_norm, key_norm)) = &self.head_norms {
            rms_norm_in_place(&mut rows.query, query_norm, config.rms_eps, threads);
            rms_norm_in_place(&mut rows.key, key_norm, config.rms_eps, threads);
        }
        let style = match config.rope_pairs {
            RopePairs::HalfSplit => RopeStyle::HalfSplit,
            RopePairs::Adjacent => RopeStyle::AdjacentPair,
        };
        rope(&mut rows.query, dim, positions, step.table, style, threads);
        rope(&mut rows.key, dim, positions, step.table, style, threads);
        store(at, step, &rows.key, &rows.value, pool);
        let layout = pool.layout();
        let geometry = KvGeometry {
            kv_heads: layout.kv_heads,
            head_dim: layout.head_dim,
            page_tokens: layout.page_tokens,
            page_stride: layout.page_len(),
            key_offset: layout.k_part(at),
            value_offset: layout.v_part(at),
        };
        let kv = PagedKv::new(pool.values(), geometry);
        let attended = rows.attended.resize(count, q_len);
        paged_attention(step.attention, &rows.query, kv, step.sequences, attended, threads);
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
        self.gate.forward(&rows.normed, &mut rows.gate, threads);
        self.up.forward(&rows.normed, &mut rows.up, threads);
        silu_mul(&rows.gate, &rows.up, count, &mut rows.activated, threads);
        self.down.forward(&rows.activated, &mut rows.delta, threads);
    }
}

fn sequences<'a>(batch: &Batch, pages: &'a [u32]) -> Vec<AttentionSequence<'a>> {
    let mut rest = pages;
    batch
        .slices
        .iter()
        .enumerate()
        .map(|(at, slice)| {
            let (own, others) = rest.split_at(batch.pages(at, PoolId(0)).pages.len());
            rest = others;
            AttentionSequence {
                first_row: slice.first,
                rows: slice.len,
                start: slice.start,
                pages: own,
            }
        })
        .collect()
}

/// Writes the K/V rows of every token into its page.
fn store(layer: usize, step: &Step<'_>, key: &[f32], value: &[f32], pool: &mut DevicePool) {
    let row = step.config.kv_heads * step.config.head_dim;
    let page_tokens = pool.layout().page_tokens;
    for (at, slice) in step.batch.slices.iter().enumerate() {
        let pages = step.batch.pages(at, PoolId(0));
        for (index, position) in (slice.first..).zip(slice.start..slice.end()) {
            let rows = index * row..(index + 1) * row;
            let page = pages.page_of(position, page_tokens);
            let slot = position % page_tokens;
            pool.write(page, layer, slot, &key[rows.clone()], &value[rows]);
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
