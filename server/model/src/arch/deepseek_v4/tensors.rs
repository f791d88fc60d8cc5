//! Which tensors a model is made of, by the names of published checkpoints, and that a file holds
//! exactly those.

use std::collections::BTreeSet;

use super::dequant::{FP4_BLOCK, FP8_BLOCK};
use crate::arch::TensorsError;
use crate::config::{Compression, DeepseekV4, ModelConfig};
use crate::weights::{PackedFormat, Shape, Weights};

pub(super) const EMBEDDING: &str = "embed.weight";
pub(super) const HEAD: &str = "head.weight";
pub(super) const NORM: &str = "norm.weight";
/// Tensors of the block that predicts further tokens.
const MTP: &str = "mtp.";

/// How a tensor may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As floats.
    Plain,
    /// As floats, FP8 or FP4.
    Matrix,
    /// As whole numbers.
    Integers,
}

/// What [`check`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Number of weights.
    pub(crate) parameters: u64,
    /// Tensors of the block that predicts further tokens, which are not used.
    pub(crate) skipped: usize,
}

/// The name of the scales of a tensor.
pub(super) fn scale_of(name: &str) -> String {
    format!("{}.scale", name.strip_suffix(".weight").unwrap_or(name))
}

/// Whether `weights` holds exactly the tensors of the model, leaving out those of the block that
/// predicts further tokens.
///
/// # Errors
/// [`TensorsError`] names the first tensor that is missing, misshapen, of a wrong type, or unknown.
pub(crate) fn check(config: &ModelConfig, weights: &Weights) -> Result<Checked, TensorsError> {
    let v4 = config.deepseek_v4.as_deref().expect("the caller looked at the architecture");
    let mut known = BTreeSet::new();
    let mut parameters = 0;
    for (name, kind, shape) in needed(config, v4) {
        parameters += match kind {
            Kind::Integers => 0,
            Kind::Plain | Kind::Matrix => shape.values().unwrap_or(0) as u64,
        };
        check_one(weights, &name, kind, &shape, &mut known)?;
        known.insert(name);
    }
    let plain = weights.entries().map(|(name, entry)| (name, &entry.shape));
    let packed = weights.packed_entries().map(|(name, entry)| (name, &entry.shape));
    let (mut skipped, mut extra) = (0, Vec::new());
    for (name, shape) in plain.chain(packed).filter(|(name, _)| !known.contains(*name)) {
        if name.starts_with(MTP) {
            skipped += 1;
        } else {
            extra.push((name, shape));
        }
    }
    match extra.iter().min_by_key(|(name, _)| *name) {
        None => Ok(Checked { parameters, skipped }),
        Some((name, shape)) => Err(TensorsError::Extra {
            path: weights.path().to_owned(),
            name: (*name).to_owned(),
            found: shape.to_string(),
            model: format!("{} model of {} layers", config.architecture, config.layers),
            count: extra.len(),
        }),
    }
}

/// Checks one tensor, and adds its scales, where it has some, to `known`.
fn check_one(
    weights: &Weights,
    name: &str,
    kind: Kind,
    expected: &Shape,
    known: &mut BTreeSet<String>,
) -> Result<(), TensorsError> {
    let path = || weights.path().to_owned();
    let shaped = |name: &str, found: &Shape, expected: &Shape| {
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.to_string(), expected.to_string());
        Err(TensorsError::Shape { path: path(), name: name.to_owned(), found, expected })
    };
    let wrong_type = |found: String, expected: &'static str| {
        Err(TensorsError::Type { path: path(), name: name.to_owned(), found, expected })
    };
    let missing = |name: String, expected: &Shape| TensorsError::Missing {
        path: path(),
        name,
        expected: expected.to_string(),
    };
    let floats = match kind {
        Kind::Plain => "F32, F16, BF16",
        Kind::Matrix => "F32, F16, BF16, F8_E4M3, or I8 with two FP4 codes",
        Kind::Integers => "I32, I64",
    };
    if let Some(entry) = weights.entry(name) {
        return match kind {
            Kind::Plain | Kind::Matrix => shaped(name, &entry.shape, expected),
            Kind::Integers => wrong_type(entry.format.to_string(), floats),
        };
    }
    let Some((entry, _)) = weights.packed(name) else {
        return Err(missing(name.to_owned(), expected));
    };
    let scales = match (kind, entry.format) {
        (Kind::Integers, PackedFormat::I32 | PackedFormat::I64) => {
            return shaped(name, &entry.shape, expected);
        }
        (Kind::Matrix, PackedFormat::E4M3) => {
            shaped(name, &entry.shape, expected)?;
            Shape(expected.0.iter().map(|dim| dim.div_ceil(FP8_BLOCK)).collect())
        }
        (Kind::Matrix, PackedFormat::I8) if expected.0[1].is_multiple_of(FP4_BLOCK) => {
            shaped(name, &entry.shape, &Shape(vec![expected.0[0], expected.0[1] / 2]))?;
            Shape(vec![expected.0[0], expected.0[1] / FP4_BLOCK])
        }
        (_, other) => return wrong_type(format!("{other:?}"), floats),
    };
    let scale = scale_of(name);
    let Some((entry, _)) = weights.packed(&scale) else { return Err(missing(scale, &scales)) };
    shaped(&scale, &entry.shape, &scales)?;
    if entry.format != PackedFormat::E8M0 {
        let (name, found) = (scale, format!("{:?}", entry.format));
        return Err(TensorsError::Type { path: path(), name, found, expected: "F8_E8M0" });
    }
    known.insert(scale);
    Ok(())
}

/// Every tensor of the model.
pub(super) fn needed(config: &ModelConfig, v4: &DeepseekV4) -> Vec<(String, Kind, Shape)> {
    let (hidden, streams) = (config.hidden, v4.streams);
    let mut list = List { prefix: String::new(), all: Vec::new() };
    list.plain(EMBEDDING, &[config.vocab, hidden]);
    list.plain(HEAD, &[config.vocab, hidden]);
    list.plain(NORM, &[hidden]);
    list.plain("hc_head_fn", &[streams, streams * hidden]);
    list.plain("hc_head_base", &[streams]);
    list.plain("hc_head_scale", &[1]);
    for layer in 0..config.layers {
        list.prefix = format!("layers.{layer}.");
        for norm in ["attn_norm.weight", "ffn_norm.weight"] {
            list.plain(norm, &[hidden]);
        }
        let mixed = 2 * streams + streams * streams;
        for name in ["hc_attn", "hc_ffn"] {
            list.plain(&format!("{name}_fn"), &[mixed, streams * hidden]);
            list.plain(&format!("{name}_base"), &[mixed]);
            list.plain(&format!("{name}_scale"), &[3]);
        }
        list.prefix = format!("layers.{layer}.attn.");
        list.attention(config, v4, v4.layers[layer]);
        list.prefix = format!("layers.{layer}.ffn.");
        list.experts(config, v4, layer < v4.hash_layers);
    }
    list.all
}

struct List {
    prefix: String,
    all: Vec<(String, Kind, Shape)>,
}

impl List {
    fn add(&mut self, name: &str, kind: Kind, shape: &[usize]) {
        self.all.push((format!("{}{name}", self.prefix), kind, Shape(shape.to_vec())));
    }

    fn plain(&mut self, name: &str, shape: &[usize]) {
        self.add(name, Kind::Plain, shape);
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) {
        self.add(name, Kind::Matrix, &shape);
    }

    fn attention(&mut self, config: &ModelConfig, v4: &DeepseekV4, compression: Compression) {
        let (hidden, dim) = (config.hidden, config.head_dim);
        let all_heads = config.heads * dim;
        self.matrix("wq_a.weight", [v4.query_rank, hidden]);
        self.plain("q_norm.weight", &[v4.query_rank]);
        self.matrix("wq_b.weight", [all_heads, v4.query_rank]);
        self.matrix("wkv.weight", [dim, hidden]);
        self.plain("kv_norm.weight", &[dim]);
        self.plain("attn_sink", &[config.heads]);
        let joined = v4.output_groups * v4.output_rank;
        self.matrix("wo_a.weight", [joined, all_heads / v4.output_groups]);
        self.matrix("wo_b.weight", [hidden, joined]);
        match compression {
            Compression::None => {}
            Compression::Heavy => self.compressor("", v4.heavy_ratio, [dim, dim], hidden),
            Compression::Sparse => {
                self.compressor("", v4.sparse_ratio, [2 * dim, dim], hidden);
                let indexer = v4.indexer.expect("sparse layers have an indexer");
                let (heads, dim) = (indexer.heads, indexer.head_dim);
                self.matrix("indexer.wq_b.weight", [heads * dim, v4.query_rank]);
                self.matrix("indexer.weights_proj.weight", [heads, hidden]);
                self.compressor("indexer.", v4.sparse_ratio, [2 * dim, dim], hidden);
            }
        }
    }

    fn compressor(&mut self, prefix: &str, ratio: usize, [width, dim]: [usize; 2], hidden: usize) {
        self.matrix(&format!("{prefix}compressor.wkv.weight"), [width, hidden]);
        self.matrix(&format!("{prefix}compressor.wgate.weight"), [width, hidden]);
        self.plain(&format!("{prefix}compressor.ape"), &[ratio, width]);
        self.plain(&format!("{prefix}compressor.norm.weight"), &[dim]);
    }

    fn experts(&mut self, config: &ModelConfig, v4: &DeepseekV4, by_hash: bool) {
        let (hidden, inner) = (config.hidden, config.intermediate);
        self.matrix("gate.weight", [v4.experts, hidden]);
        if by_hash {
            let shape = [config.vocab, v4.experts_per_token];
            self.add("gate.tid2eid", Kind::Integers, &shape);
        } else {
            self.plain("gate.bias", &[v4.experts]);
        }
        let experts = (0..v4.experts).map(|expert| format!("experts.{expert}"));
        for expert in experts.chain(["shared_experts".to_owned()]) {
            self.matrix(&format!("{expert}.w1.weight"), [inner, hidden]);
            self.matrix(&format!("{expert}.w3.weight"), [inner, hidden]);
            self.matrix(&format!("{expert}.w2.weight"), [hidden, inner]);
        }
    }
}
