//! The forward pass once more, in f64 and as its definition reads: whole prompts, no pages, no
//! chunks, no kernels.

use std::collections::BTreeMap;

use crate::config::{Compression, DeepseekV4, ModelConfig};

/// Values of one token.
type Row = Vec<f64>;

/// Choices between values as near as this are not the arithmetic's to make.
const NEAR: f64 = 2e-5;

/// A model whose weights lie open.
pub(super) struct Naive<'a> {
    pub(super) config: &'a ModelConfig,
    /// Every tensor by its name; whole numbers as well.
    pub(super) weights: &'a BTreeMap<String, Vec<f32>>,
    /// The first position at which a choice was too near to call; those before it do not depend on
    /// it.
    pub(super) sure: usize,
}

/// What a hyper-connection says of one token.
struct Mix {
    input: Row,
    after: Row,
    mixing: Vec<Row>,
}

/// A compressor: its tensors' prefix, and its shape.
#[derive(Clone, Copy)]
struct Compressor<'a> {
    at: &'a str,
    dim: usize,
    ratio: usize,
    overlaps: bool,
}

impl<'a> Naive<'a> {
    /// The logits that follow each token.
    pub(super) fn logits(&mut self, ids: &[u32]) -> Vec<Row> {
        self.sure = ids.len();
        let (hidden, v4) = (self.config.hidden, self.v4());
        let embedding = self.tensor("embed.weight").chunks(hidden);
        let rows: Vec<Row> = embedding.map(wide).collect();
        let mut streams: Vec<Vec<Row>> =
            ids.iter().map(|id| vec![rows[*id as usize].clone(); v4.streams]).collect();
        for layer in 0..self.config.layers {
            for block in ["attn", "ffn"] {
                let at = format!("layers.{layer}");
                let mixes: Vec<Mix> =
                    streams.iter().map(|s| self.mix(s, &format!("{at}.hc_{block}"))).collect();
                let norm = wide(self.tensor(&format!("{at}.{block}_norm.weight")));
                let x: Vec<Row> = mixes.iter().map(|mix| self.rms(&mix.input, &norm)).collect();
                let added = if block == "attn" {
                    self.attention(layer, &x)
                } else {
                    self.experts(layer, ids, &x)
                };
                streams = streams.iter().zip(&mixes).zip(&added).map(next).collect();
            }
        }
        let norm = wide(self.tensor("norm.weight"));
        let ends = streams.iter().map(|s| self.rms(&self.mix(s, "hc_head").input, &norm));
        let ends: Vec<Row> = ends.collect();
        self.product("head.weight", &ends)
    }

    fn v4(&self) -> &'a DeepseekV4 {
        self.config.deepseek_v4.as_ref().expect("it is one")
    }

    fn tensor(&self, name: &str) -> &'a [f32] {
        self.weights.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Each row times the transposed matrix.
    fn product(&self, name: &str, x: &[Row]) -> Vec<Row> {
        let len = x[0].len();
        let matrix: Vec<Row> = self.tensor(name).chunks(len).map(wide).collect();
        x.iter().map(|x| matrix.iter().map(|row| dot(row, x)).collect()).collect()
    }

    fn rms(&self, x: &[f64], weights: &[f64]) -> Row {
        let squares: f64 = x.iter().map(|x| x * x).sum();
        let scale = 1.0 / (squares / x.len() as f64 + f64::from(self.config.rms_eps)).sqrt();
        x.iter().zip(weights).map(|(x, w)| x * scale * w).collect()
    }

    fn mix(&self, streams: &[Row], at: &str) -> Mix {
        let (n, eps) = (streams.len(), f64::from(self.v4().hyper_eps));
        let flat = streams.concat();
        let flat = self.rms(&flat, &vec![1.0; flat.len()]);
        let z = self.product(&format!("{at}_fn"), &[flat]).remove(0);
        let base = wide(self.tensor(&format!("{at}_base")));
        let scale = wide(self.tensor(&format!("{at}_scale")));
        let weight = |i: usize, kind: usize| z[i] * scale[kind] + base[i];
        let before = (0..n).map(|j| sigmoid(weight(j, 0)) + eps);
        let input = sum(before.zip(streams).map(|(w, s)| (w, s.clone())));
        if z.len() == n {
            return Mix { input, after: Row::new(), mixing: Vec::new() };
        }
        let after = (n..2 * n).map(|i| 2.0 * sigmoid(weight(i, 1))).collect();
        let row = |j: usize| -> Row { (0..n).map(|k| weight(2 * n + j * n + k, 2)).collect() };
        let mut mixing: Vec<Row> = (0..n).map(|j| softmax(&row(j))).collect();
        mixing.iter_mut().flatten().for_each(|value| *value += eps);
        divide_columns(&mut mixing, eps);
        for _ in 1..self.v4().sinkhorn_passes {
            for row in &mut mixing {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|value| *value /= sum);
            }
            divide_columns(&mut mixing, eps);
        }
        Mix { input, after, mixing }
    }

    /// Turns the last numbers of a head at `position`, forwards or back.
    fn rope(&self, head: &mut [f64], position: usize, compressed: bool, sign: f64) {
        let v4 = self.v4();
        let dim = v4.rope_dim as f64;
        let theta = if compressed { v4.compress_rope_theta } else { self.config.rope_theta };
        let first = head.len() - v4.rope_dim;
        for pair in 0..v4.rope_dim / 2 {
            let mut frequency = theta.powf(-2.0 * pair as f64 / dim);
            if let Some(yarn) = v4.yarn.filter(|_| compressed) {
                let turns = |turns: f64| {
                    let length = yarn.original_context / (turns * std::f64::consts::TAU);
                    dim * length.ln() / (2.0 * theta.ln())
                };
                let low = turns(yarn.beta_fast).floor().max(0.0);
                let mut high = turns(yarn.beta_slow).ceil().min(dim - 1.0);
                high += if low == high { 0.001 } else { 0.0 };
                let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                frequency = frequency / yarn.factor * ramp + frequency * (1.0 - ramp);
            }
            let angle = sign * f64::from(position as f32 * frequency as f32);
            let (a, b) = (head[first + 2 * pair], head[first + 2 * pair + 1]);
            head[first + 2 * pair] = a * angle.cos() - b * angle.sin();
            head[first + 2 * pair + 1] = a * angle.sin() + b * angle.cos();
        }
    }

    /// The finished entries of a compressor.
    fn compress(&self, shape: Compressor<'_>, x: &[Row]) -> Vec<Row> {
        let Compressor { at, dim, ratio, overlaps } = shape;
        let values = self.product(&format!("{at}.wkv.weight"), x);
        let mut gates = self.product(&format!("{at}.wgate.weight"), x);
        let bias = wide(self.tensor(&format!("{at}.ape")));
        for (t, gate) in gates.iter_mut().enumerate() {
            let len = gate.len();
            let bias = &bias[t % ratio * len..];
            gate.iter_mut().zip(bias).for_each(|(gate, bias)| *gate += bias);
        }
        let norm = wide(self.tensor(&format!("{at}.norm.weight")));
        let entry = |window: usize| {
            let own = window * ratio..(window + 1) * ratio;
            // The token, and which of its channels.
            let mut slots: Vec<(usize, usize)> = Vec::new();
            if overlaps && window > 0 {
                slots.extend((own.start - ratio..own.start).map(|t| (t, 0)));
            }
            slots.extend(own.clone().map(|t| (t, if overlaps { dim } else { 0 })));
            let channel = |j: usize| {
                let gates: Row = slots.iter().map(|(t, at)| gates[*t][at + j]).collect();
                let weights = softmax(&gates);
                slots.iter().zip(weights).map(|((t, at), w)| w * values[*t][at + j]).sum()
            };
            let mixed: Row = (0..dim).map(channel).collect();
            let mut entry = self.rms(&mixed, &norm);
            self.rope(&mut entry, own.start, true, 1.0);
            entry
        };
        (0..x.len() / ratio).map(entry).collect()
    }

    fn attention(&mut self, layer: usize, x: &[Row]) -> Vec<Row> {
        let (v4, dim, heads) = (self.v4(), self.config.head_dim, self.config.heads);
        let at = format!("layers.{layer}.attn");
        let kind = v4.layers[layer];
        let compressed = kind != Compression::None;
        let norm = wide(self.tensor(&format!("{at}.q_norm.weight")));
        let low = self.product(&format!("{at}.wq_a.weight"), x);
        let low: Vec<Row> = low.iter().map(|row| self.rms(row, &norm)).collect();
        let mut queries = self.product(&format!("{at}.wq_b.weight"), &low);
        for (t, query) in queries.iter_mut().enumerate() {
            for head in query.chunks_mut(dim) {
                head.copy_from_slice(&self.rms(head, &vec![1.0; dim]));
                self.rope(head, t, compressed, 1.0);
            }
        }
        let norm = wide(self.tensor(&format!("{at}.kv_norm.weight")));
        let latents = self.product(&format!("{at}.wkv.weight"), x);
        let mut latents: Vec<Row> = latents.iter().map(|row| self.rms(row, &norm)).collect();
        latents.iter_mut().enumerate().for_each(|(t, row)| self.rope(row, t, compressed, 1.0));
        let own = format!("{at}.compressor");
        let entries = v4.ratio(kind).map(|ratio| {
            let overlaps = kind == Compression::Sparse;
            let shape = Compressor { at: &own, dim, ratio, overlaps };
            (ratio, self.compress(shape, x))
        });
        let chosen = (kind == Compression::Sparse).then(|| self.choose(&at, x, &low));
        let sink = wide(self.tensor(&format!("{at}.attn_sink")));
        let mut joined = Vec::new();
        for t in 0..x.len() {
            let first = (t + 1).saturating_sub(v4.window);
            let mut seen: Vec<&Row> = latents[first..=t].iter().collect();
            if let Some((ratio, entries)) = &entries {
                let visible = (t + 1) / ratio;
                match &chosen {
                    Some(chosen) => seen.extend(chosen[t].iter().map(|entry| &entries[*entry])),
                    None => seen.extend(&entries[..visible]),
                }
            }
            let mut out = Row::new();
            for head in 0..heads {
                let query = &queries[t][head * dim..(head + 1) * dim];
                let mut scores: Row =
                    seen.iter().map(|row| dot(query, row) / (dim as f64).sqrt()).collect();
                scores.push(sink[head]);
                let weights = softmax(&scores);
                let rows = seen.iter().zip(weights).map(|(row, w)| (w, (*row).clone()));
                let mut attended = sum(rows);
                self.rope(&mut attended, t, compressed, -1.0);
                out.extend(attended);
            }
            joined.push(self.join_groups(&at, &out));
        }
        self.product(&format!("{at}.wo_b.weight"), &joined)
    }

    /// The first matrix of the output projection, group by group.
    fn join_groups(&self, at: &str, heads: &[f64]) -> Row {
        let (groups, rank) = (self.v4().output_groups, self.v4().output_rank);
        let width = heads.len() / groups;
        let matrix: Vec<Row> =
            self.tensor(&format!("{at}.wo_a.weight")).chunks(width).map(wide).collect();
        let row = |row: usize| {
            let group = row / rank;
            dot(&matrix[row], &heads[group * width..(group + 1) * width])
        };
        (0..groups * rank).map(row).collect()
    }

    /// The entries that the indexer picks for each token.
    fn choose(&mut self, at: &str, x: &[Row], low: &[Row]) -> Vec<Vec<usize>> {
        let (v4, at) = (self.v4(), format!("{at}.indexer"));
        let shape = v4.indexer.expect("sparse layers have one");
        let (dim, ratio) = (shape.head_dim, v4.sparse_ratio);
        let keys = format!("{at}.compressor");
        let keys = self.compress(Compressor { at: &keys, dim, ratio, overlaps: true }, x);
        let queries = self.product(&format!("{at}.wq_b.weight"), low);
        let weights = self.product(&format!("{at}.weights_proj.weight"), x);
        let scale = 1.0 / ((shape.heads * dim) as f64).sqrt();
        let mut all = Vec::new();
        for (t, (mut query, weights)) in queries.into_iter().zip(weights).enumerate() {
            query.chunks_mut(dim).for_each(|head| self.rope(head, t, true, 1.0));
            let visible = (t + 1) / ratio;
            let mut scores = Row::new();
            for key in &keys[..visible] {
                let mut score = 0.0;
                for (head, weight) in query.chunks(dim).zip(&weights) {
                    let product = dot(head, key);
                    if visible > shape.top && product.abs() < NEAR {
                        self.sure = self.sure.min(t);
                    }
                    score += weight * scale * product.max(0.0);
                }
                scores.push(score);
            }
            all.push(self.best(&scores, shape.top, t));
        }
        all
    }

    /// The numbers of the best, of equal ones the first, ascending.
    fn best(&mut self, scores: &[f64], count: usize, t: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        if let (Some(last), Some(next)) = (order.get(count - 1), order.get(count)) {
            let both_nothing = scores[*last] == 0.0 && scores[*next] == 0.0;
            if scores[*last] - scores[*next] < NEAR && !both_nothing {
                self.sure = self.sure.min(t);
            }
        }
        order.truncate(count);
        order.sort_unstable();
        order
    }

    fn experts(&mut self, layer: usize, ids: &[u32], x: &[Row]) -> Vec<Row> {
        let (v4, at) = (self.v4(), format!("layers.{layer}.ffn"));
        let count = v4.experts_per_token;
        let routed = self.product(&format!("{at}.gate.weight"), x);
        let mut all = Vec::new();
        for (t, logits) in routed.iter().enumerate() {
            let scores: Row = logits.iter().map(|l| (1.0 + l.exp()).ln().sqrt()).collect();
            let chosen = if layer < v4.hash_layers {
                let table = self.tensor(&format!("{at}.gate.tid2eid"));
                let row = &table[ids[t] as usize * count..][..count];
                row.iter().map(|expert| *expert as usize).collect()
            } else {
                let bias = wide(self.tensor(&format!("{at}.gate.bias")));
                let biased: Row = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
                self.best(&biased, count, t)
            };
            let total: f64 = chosen.iter().map(|expert| scores[*expert]).sum::<f64>() + 1e-20;
            let mut rows: Vec<(f64, Row)> = Vec::new();
            for expert in chosen {
                let weight = f64::from(v4.routed_scale) * scores[expert] / total;
                rows.push((weight, self.expert(&format!("{at}.experts.{expert}"), &x[t])));
            }
            rows.push((1.0, self.expert(&format!("{at}.shared_experts"), &x[t])));
            all.push(sum(rows));
        }
        all
    }

    fn expert(&self, at: &str, x: &Row) -> Row {
        let limit = f64::from(self.v4().swiglu_limit);
        let linear = |name: &str, x: &Row| {
            self.product(&format!("{at}.{name}.weight"), std::slice::from_ref(x)).remove(0)
        };
        let (gate, up) = (linear("w1", x), linear("w3", x));
        let inner = gate.iter().zip(&up).map(|(gate, up)| {
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(gate) * up
        });
        linear("w2", &inner.collect())
    }
}

/// The streams after a block.
fn next(((streams, mix), added): ((&Vec<Row>, &Mix), &Row)) -> Vec<Row> {
    let stream = |to: usize| {
        let own = std::iter::once((mix.after[to], added.clone()));
        let from = streams.iter().enumerate();
        sum(own.chain(from.map(|(from, stream)| (mix.mixing[from][to], stream.clone()))))
    };
    (0..streams.len()).map(stream).collect()
}

fn wide(values: &[f32]) -> Row {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rows by their weights.
fn sum(rows: impl IntoIterator<Item = (f64, Row)>) -> Row {
    let mut total = Row::new();
    for (weight, row) in rows {
        total.resize(row.len(), 0.0);
        total.iter_mut().zip(row).for_each(|(total, value)| *total += weight * value);
    }
    total
}

fn softmax(scores: &[f64]) -> Row {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Row = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / total).collect()
}

fn divide_columns(matrix: &mut [Row], eps: f64) {
    for column in 0..matrix.len() {
        let total = matrix.iter().map(|row| row[column]).sum::<f64>() + eps;
        matrix.iter_mut().for_each(|row| row[column] /= total);
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
