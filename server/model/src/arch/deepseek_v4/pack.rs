//! From a file's tensors to packed weights, once.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use kernels::{KernelPath, Linear, WeightFormat, dequantize_row};

use super::compress::Compressor;
use super::index::Indexer;
use super::moe::{Choice, Expert, Moe};
use super::tensors::{self, scale_of};
use super::{Attention, Embedding, Frequencies, Hyper, Layer, Model, Scratch, dequant, pools};
use crate::arch::share::part;
use crate::config::{Compression, DeepseekV4, ModelConfig};
use crate::load::LoadError;
use crate::runner::PoolSpec;
use crate::weights::{PackedFormat, Weights, WeightsError};

impl Model {
    /// Packs the share of rank `rank` of `ranks` of a model whose tensors were checked, and which
    /// so many ranks can share out.
    ///
    /// # Errors
    /// The tensor and the reason, where no kernel takes it or it holds what is no number.
    ///
    /// # Panics
    /// Where a tensor is missing: `check` comes first.
    pub(crate) fn pack(
        config: ModelConfig,
        weights: Arc<Weights>,
        path: KernelPath,
        pools: &[PoolSpec],
        (rank, ranks): (usize, usize),
    ) -> Result<Self, LoadError> {
        let v4 = config.deepseek_v4.as_deref().expect("the caller looked at the architecture");
        let v4 = v4.clone();
        let packer = Packer { weights: &weights, path, config: &config, v4: &v4, rank, ranks };
        let layers = (0..config.layers).map(|layer| packer.layer(layer, pools));
        let layers = layers.collect::<Result<_, _>>()?;
        let head_mix = packer.hyper("hc_head")?;
        let norm = packer.vector(tensors::NORM)?;
        let head = packer.rows(tensors::HEAD)?;
        let entry = weights.entry(tensors::EMBEDDING).expect("the tensors were checked").clone();
        let frequencies = [
            Frequencies::new(config.rope_theta, None, v4.rope_dim),
            Frequencies::new(v4.compress_rope_theta, v4.yarn, v4.rope_dim),
        ];
        Ok(Self {
            page_tokens: pools[0].page_tokens,
            embedding: Embedding { weights, entry },
            layers,
            head_mix,
            norm,
            head,
            frequencies,
            ones: vec![1.0; config.head_dim],
            scratch: Scratch::default(),
            config,
            v4,
        })
    }
}

struct Packer<'a> {
    weights: &'a Weights,
    path: KernelPath,
    config: &'a ModelConfig,
    v4: &'a DeepseekV4,
    rank: usize,
    ranks: usize,
}

/// A matrix in a form that kernels take: its bytes, rows and columns.
type Stored<'a> = (WeightFormat, Cow<'a, [u8]>, usize, usize);

impl<'a> Packer<'a> {
    fn layer(&self, at: usize, pools: &[PoolSpec]) -> Result<Layer, LoadError> {
        let compression = self.v4.layers[at];
        let name = |rest: &str| format!("layers.{at}.{rest}");
        Ok(Layer {
            compression,
            place: pools::place(pools, compression, at),
            attention_mix: self.hyper(&name("hc_attn"))?,
            attention_norm: self.vector(&name("attn_norm.weight"))?,
            attention: self.attention(&name("attn"), compression)?,
            mlp_mix: self.hyper(&name("hc_ffn"))?,
            mlp_norm: self.vector(&name("ffn_norm.weight"))?,
            moe: self.moe(&name("ffn"), at < self.v4.hash_layers)?,
        })
    }

    fn hyper(&self, prefix: &str) -> Result<Hyper, LoadError> {
        Ok(Hyper {
            linear: self.linear(&format!("{prefix}_fn"))?,
            base: self.vector(&format!("{prefix}_base"))?,
            scale: self.vector(&format!("{prefix}_scale"))?,
        })
    }

    fn attention(&self, at: &str, compression: Compression) -> Result<Attention, LoadError> {
        let v4 = self.v4;
        let linear = |name: &str| self.linear(&format!("{at}.{name}.weight"));
        let vector = |name: &str| self.vector(&format!("{at}.{name}"));
        let (rows, heads) = (|name: &str| self.rows(&format!("{at}.{name}.weight")), self.heads());
        let compressor = match compression {
            Compression::None => None,
            Compression::Sparse => {
                Some(self.compressor(&format!("{at}.compressor"), v4.sparse_ratio, true)?)
            }
            Compression::Heavy => {
                Some(self.compressor(&format!("{at}.compressor"), v4.heavy_ratio, false)?)
            }
        };
        let indexer = match (compression, v4.indexer) {
            (Compression::Sparse, Some(shape)) => Some(Indexer {
                shape,
                query: linear("indexer.wq_b")?,
                weights: linear("indexer.weights_proj")?,
                compressor: self.compressor(
                    &format!("{at}.indexer.compressor"),
                    v4.sparse_ratio,
                    true,
                )?,
            }),
            (Compression::None | Compression::Sparse | Compression::Heavy, _) => None,
        };
        Ok(Attention {
            query_a: linear("wq_a")?,
            query_norm: vector("q_norm.weight")?,
            query_b: self.rows_of_heads(&format!("{at}.wq_b.weight"))?,
            latent: linear("wkv")?,
            latent_norm: vector("kv_norm.weight")?,
            sink: vector("attn_sink")?[heads].to_vec(),
            output_a: self.groups(&format!("{at}.wo_a.weight"))?,
            output_b: rows("wo_b")?,
            compressor,
            indexer,
        })
    }

    fn compressor(&self, at: &str, ratio: usize, overlaps: bool) -> Result<Compressor, LoadError> {
        Ok(Compressor {
            value: self.linear(&format!("{at}.wkv.weight"))?,
            gate: self.linear(&format!("{at}.wgate.weight"))?,
            bias: self.vector(&format!("{at}.ape"))?,
            norm: self.vector(&format!("{at}.norm.weight"))?,
            ratio,
            overlaps,
        })
    }

    fn moe(&self, at: &str, by_hash: bool) -> Result<Moe, LoadError> {
        let expert = |number: usize| -> Result<Expert, LoadError> {
            let linear = |name| self.linear(&format!("{at}.experts.{number}.{name}.weight"));
            Ok(Expert { gate: linear("w1")?, up: linear("w3")?, down: linear("w2")? })
        };
        let shared = |name| self.rows(&format!("{at}.shared_experts.{name}.weight"));
        let experts = self.part(self.v4.experts).map(expert);
        Ok(Moe {
            router: self.rows(&format!("{at}.gate.weight"))?,
            choice: if by_hash {
                Choice::Table(self.table(&format!("{at}.gate.tid2eid"))?)
            } else {
                Choice::Score(self.vector(&format!("{at}.gate.bias"))?)
            },
            experts: experts.collect::<Result<_, _>>()?,
            shared: Expert { gate: shared("w1")?, up: shared("w3")?, down: shared("w2")? },
        })
    }

    /// A table of expert numbers.
    fn table(&self, name: &str) -> Result<Vec<u32>, LoadError> {
        let (entry, bytes) = self.weights.packed(name).expect("the tensors were checked");
        let values: Vec<i64> = match entry.format {
            PackedFormat::I32 => {
                let words = bytes.as_chunks::<4>().0.iter();
                words.map(|word| i64::from(i32::from_le_bytes(*word))).collect()
            }
            PackedFormat::I64 => {
                bytes.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect()
            }
            PackedFormat::E4M3 | PackedFormat::E8M0 | PackedFormat::I8 => Vec::new(),
        };
        let number = |value: i64| {
            let number = u32::try_from(value).ok();
            number.filter(|number| (*number as usize) < self.v4.experts).ok_or_else(|| {
                let most = self.v4.experts;
                self.damaged(name, format!("names expert {value} of {most}"))
            })
        };
        values.into_iter().map(number).collect()
    }

    fn damaged(&self, name: &str, what: String) -> LoadError {
        let what = format!("tensor {name} {what}");
        WeightsError::Damaged { path: self.weights.path().to_owned(), what }.into()
    }

    /// A small tensor as f32.
    fn vector(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        let entry = self.weights.entry(name).expect("the tensors were checked");
        let tensor = self.weights.tensor(entry);
        let mut values = vec![0.0; entry.shape.values().unwrap_or(0)];
        dequantize_row(tensor.format, tensor.bytes, &mut values)
            .map_err(|source| self.refused(name, source))?;
        Ok(values)
    }

    fn refused(&self, name: &str, source: kernels::KernelError) -> LoadError {
        let path = self.weights.path().to_owned();
        LoadError::Kernel { path, name: name.to_owned(), source }
    }

    /// The rank's part of `count` things.
    fn part(&self, count: usize) -> Range<usize> {
        part(count, self.rank, self.ranks)
    }

    /// The rank's heads: those of its groups.
    fn heads(&self) -> Range<usize> {
        let Range { start, end } = self.part(self.v4.output_groups);
        let of_a_group = self.config.heads / self.v4.output_groups;
        start * of_a_group..end * of_a_group
    }

    /// A whole matrix.
    fn linear(&self, name: &str) -> Result<Box<dyn Linear>, LoadError> {
        let stored = self.matrix(name)?;
        self.pack(name, &stored, 0..stored.2)
    }

    /// The rank's part of a matrix' rows.
    fn rows(&self, name: &str) -> Result<Box<dyn Linear>, LoadError> {
        let stored = self.matrix(name)?;
        self.pack(name, &stored, self.part(stored.2))
    }

    /// The rows of a matrix that the rank's heads have.
    fn rows_of_heads(&self, name: &str) -> Result<Box<dyn Linear>, LoadError> {
        let (Range { start, end }, dim) = (self.heads(), self.config.head_dim);
        self.pack(name, &self.matrix(name)?, start * dim..end * dim)
    }

    /// The rank's groups of a matrix.
    fn groups(&self, name: &str) -> Result<Vec<Box<dyn Linear>>, LoadError> {
        let (stored, rank) = (self.matrix(name)?, self.v4.output_rank);
        let groups = self.part(self.v4.output_groups);
        groups.map(|group| self.pack(name, &stored, group * rank..(group + 1) * rank)).collect()
    }

    fn pack(
        &self,
        name: &str,
        (format, bytes, rows, columns): &Stored<'_>,
        own: Range<usize>,
    ) -> Result<Box<dyn Linear>, LoadError> {
        let row = bytes.len() / rows;
        let bytes = &bytes[own.start * row..own.end * row];
        kernels::pack(*format, bytes, own.len(), *columns, self.path)
            .map_err(|source| self.refused(name, source))
    }

    /// The stored form that kernels take, and the shape.
    fn matrix(&self, name: &str) -> Result<Stored<'a>, LoadError> {
        if let Some(entry) = self.weights.entry(name) {
            let tensor = self.weights.tensor(entry);
            let [rows, columns] = [entry.shape.0[0], entry.shape.0[1]];
            return Ok((tensor.format, Cow::Borrowed(tensor.bytes), rows, columns));
        }
        let (entry, codes) = self.weights.packed(name).expect("the tensors were checked");
        let (_, scales) = self.weights.packed(&scale_of(name)).expect("the tensors were checked");
        let [rows, stored] = [entry.shape.0[0], entry.shape.0[1]];
        let (values, columns) = if entry.format == PackedFormat::E4M3 {
            (dequant::fp8(codes, scales, stored), stored)
        } else {
            (dequant::fp4(codes, scales), 2 * stored)
        };
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let (row, column) = (at / columns, at % columns);
            let what = format!("holds {} in row {row}, column {column}", values[at]);
            return Err(self.damaged(name, what));
        }
        let (format, bytes) = dequant::stored(&values);
        Ok((format, Cow::Owned(bytes), rows, columns))
    }
}
