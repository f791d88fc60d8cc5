//! One step: embed, layers, head.

use kernels::{Activations, ThreadPool, dequantize_row, rms_norm};
use memory_pool::Compute;
use types::TokenId;

use super::attention::Step;
use super::hyper::Shape;
use super::{Embedding, Model, Scratch, moe};
use crate::arch::share::{ModelShare, Peers};
use crate::arch::trace::Trace;
use crate::config::Compression;
use crate::runner::{Batch, Logits, RunError, Slice};

impl ModelShare for Model {
    fn vocab(&self) -> usize {
        self.head.out_features()
    }

    fn reach(&mut self, _: usize) {
        // Angles are those of a step's positions.
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
        let shape = self.shape();
        let Self { config, v4, scratch, .. } = self;
        scratch.begin(batch, &self.frequencies);
        self.embedding.look_up(&batch.tokens, shape, &mut scratch.streams);
        if T::ON {
            let rows = scratch.streams.as_slice().chunks_exact(config.hidden);
            let first: Vec<f32> = rows.step_by(shape.streams).flatten().copied().collect();
            trace.see(None, "embed", &first);
        }
        for (at, layer) in self.layers.iter().enumerate() {
            let Scratch { streams, next, mix, collapsed, normed, delta, .. } = scratch;
            let kind = usize::from(layer.compression != Compression::None);
            layer.attention_mix.before(shape, streams, (mix, collapsed), threads);
            show_mix(at, ATTENTION, shape, mix, collapsed, trace);
            rms_norm(collapsed, &layer.attention_norm, config.rms_eps, normed, threads);
            let step = Step {
                config,
                v4,
                layer: at,
                place: layer.place,
                batch,
                positions: &scratch.positions,
                slices: &scratch.slices,
                angles: &scratch.angles[kind],
                frequencies: &self.frequencies[kind],
                ones: &self.ones,
                page_tokens: self.page_tokens,
                threads,
            };
            let rest = (&mut *delta, &mut *trace, &mut *peers);
            layer.attention.forward(step, normed, &mut scratch.attention, memory, rest)?;
            trace.see(Some(at), "attn_out", delta);
            layer.attention_mix.after(shape, streams, (mix, delta), next, threads);
            std::mem::swap(streams, next);
            layer.mlp_mix.before(shape, streams, (mix, collapsed), threads);
            show_mix(at, MLP, shape, mix, collapsed, trace);
            rms_norm(collapsed, &layer.mlp_norm, config.rms_eps, normed, threads);
            let step = moe::Step { config, v4, tokens: &batch.tokens, threads };
            let (rest, seen) = ((&mut *delta, &mut *peers), (at, &mut *trace));
            layer.moe.forward(step, normed, &mut scratch.moe, rest, seen)?;
            trace.see(Some(at), "mlp_out", delta);
            layer.mlp_mix.after(shape, streams, (mix, delta), next, threads);
            std::mem::swap(streams, next);
            trace.see(Some(at), "out", streams.as_slice());
        }
        self.head(batch, logits, threads, trace);
        Ok(())
    }
}

impl Model {
    /// The logits of the rows that are asked for.
    fn head<T: Trace>(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        threads: &ThreadPool,
        trace: &mut T,
    ) {
        let shape = self.shape();
        let Scratch { streams, next, mix, collapsed, normed, .. } = &mut self.scratch;
        let wanted = batch.logits_rows();
        let out = logits.reset(wanted, self.head.out_features());
        if wanted == 0 {
            return;
        }
        keep_wanted(&batch.slices, wanted, streams, next);
        self.head_mix.before(shape, next, (mix, collapsed), threads);
        trace.see(None, "hc_head", collapsed);
        rms_norm(collapsed, &self.norm, shape.rms_eps, normed, threads);
        trace.see(None, "final_norm", normed.as_slice());
        self.head.forward(normed, out, threads);
    }

    fn shape(&self) -> Shape {
        Shape {
            streams: self.v4.streams,
            hidden: self.config.hidden,
            passes: self.v4.sinkhorn_passes,
            hyper_eps: self.v4.hyper_eps,
            rms_eps: self.config.rms_eps,
        }
    }
}

impl Scratch {
    /// Positions, slices and angles of all rows.
    fn begin(&mut self, batch: &Batch, frequencies: &[super::Frequencies; 2]) {
        self.positions.clear();
        self.slices.clear();
        for (number, slice) in batch.slices.iter().enumerate() {
            self.positions.extend((slice.start..slice.end()).map(|position| position as u32));
            self.slices.resize(self.positions.len(), number as u32);
        }
        for (angles, frequencies) in self.angles.iter_mut().zip(frequencies) {
            angles.fill(frequencies, &self.positions);
        }
    }
}

impl Embedding {
    /// Starts each stream of each row with its token's row.
    fn look_up(&self, tokens: &[TokenId], shape: Shape, streams: &mut Activations) {
        let Shape { streams: count, hidden, .. } = shape;
        let table = self.weights.tensor(&self.entry);
        let row_bytes = table.bytes.len() / self.entry.shape.0[0];
        let rows = streams.resize(tokens.len(), count * hidden);
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(count * hidden)) {
            let stored = &table.bytes[token.index() * row_bytes..][..row_bytes];
            let (first, others) = row.split_at_mut(hidden);
            dequantize_row(table.format, stored, first).expect("the table's shape was checked");
            for other in others.chunks_exact_mut(hidden) {
                other.copy_from_slice(first);
            }
        }
    }
}

/// Copies the streams of the rows that want logits, in their order.
fn keep_wanted(slices: &[Slice], wanted: usize, from: &Activations, to: &mut Activations) {
    let len = from.features();
    let mut rows = to.resize(wanted, len).chunks_exact_mut(len);
    for slice in slices {
        let end = slice.first + slice.len;
        for (row, to) in (end - slice.logits..end).zip(&mut rows) {
            to.copy_from_slice(from.row(row));
        }
    }
}

/// The points of a hyper-connection.
type Points = [&'static str; 3];
const ATTENTION: Points = ["attn_hc.post", "attn_hc.comb", "attn_hc.collapsed"];
const MLP: Points = ["ffn_hc.post", "ffn_hc.comb", "ffn_hc.collapsed"];

fn show_mix<T: Trace>(
    layer: usize,
    points: Points,
    shape: Shape,
    mix: &[f32],
    collapsed: &[f32],
    trace: &mut T,
) {
    if !T::ON {
        return;
    }
    let [post, comb, input] = points;
    let streams = shape.streams;
    let rows = || mix.chunks_exact(2 * streams + streams * streams);
    let after: Vec<f32> = rows().flat_map(|row| &row[streams..2 * streams]).copied().collect();
    let mixing: Vec<f32> = rows().flat_map(|row| &row[2 * streams..]).copied().collect();
    trace.see(Some(layer), post, &after);
    trace.see(Some(layer), comb, &mixing);
    trace.see(Some(layer), input, collapsed);
}
