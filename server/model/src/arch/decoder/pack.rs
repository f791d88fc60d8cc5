//! From a file's tensors to packed weights, once.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use kernels::{KernelError, KernelPath, Linear, WeightFormat, dequantize_row};

use super::{Decoder, Embedding, Layer, Place, Scratch};
use crate::arch::pools;
use crate::arch::rope::Rotary;
use crate::arch::share::Share;
use crate::arch::tensors::{LayerTensor, Naming};
use crate::config::ModelConfig;
use crate::weights::{Entry, Tensor, Weights};

/// How to pack.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) naming: Naming,
    pub(crate) path: KernelPath,
    /// Whether quantised weights become f32.
    pub(crate) dequantize: bool,
    /// Tokens of a KV page.
    pub(crate) page_tokens: usize,
}

impl Decoder {
    /// Packs a rank's share of the weights of a model whose tensors were checked.
    ///
    /// # Errors
    /// The tensor and the reason, where no kernel takes it.
    ///
    /// # Panics
    /// Where a tensor is missing: `check_tensors` comes first.
    pub(crate) fn pack(
        config: &ModelConfig,
        weights: Arc<Weights>,
        packing: Packing,
        share: &Share,
    ) -> Result<Self, (String, KernelError)> {
        let path = packing.path;
        let vocab = share.of(config.vocab);
        let config = share.config(config);
        let packer = Packer { weights: &weights, packing, share };
        let naming = packer.packing.naming;
        let places = pools::places(&config).enumerate();
        let layers = places.map(|(layer, place)| packer.layer(&config, layer, place));
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = packer.norm(&config, naming.final_norm())?;
        let head = if config.tied { naming.embedding() } else { naming.head() };
        let head = packer.linear(head, Cut::Rows(vocab))?;
        let divisors = match naming.rope_divisors() {
            Some(name) if weights.entry(name).is_some() => Some(packer.vector(name)?),
            _ => None,
        };
        let rotary =
            |rope, divisors| Rotary::new(rope, config.head_dim, config.max_context, divisors);
        let global = rotary((config.rope_theta, config.rope_scaling), divisors.as_deref());
        let sliding = config.sliding.as_ref();
        let sliding = sliding.map(|s| rotary((s.rope_theta, s.rope_scaling), None));
        let rotary = [global].into_iter().chain(sliding).collect();
        let entry = packer.entry(naming.embedding()).clone();
        let embedding = Embedding { weights, entry };
        let scratch = Scratch::default();
        let page_tokens = packing.page_tokens;
        Ok(Self { config, embedding, layers, final_norm, head, rotary, page_tokens, path, scratch })
    }
}

struct Packer<'a> {
    weights: &'a Weights,
    packing: Packing,
    share: &'a Share,
}

/// Which part of a matrix a rank has.
enum Cut {
    /// Outputs.
    Rows(Range<usize>),
    /// Inputs; whole blocks of the format.
    Columns(Range<usize>),
}

impl<'a> Packer<'a> {
    fn entry(&self, name: &str) -> &'a Entry {
        self.weights.entry(name).expect("the tensors were checked before packing")
    }

    fn layer(
        &self,
        config: &ModelConfig,
        at: usize,
        place: Place,
    ) -> Result<Layer, (String, KernelError)> {
        use LayerTensor as T;
        let (naming, architecture) = (self.packing.naming, config.architecture);
        let name = |tensor| naming.layer(architecture, at, tensor);
        let pair = |used: bool, tensors: [T; 2]| {
            if !used {
                return Ok(None);
            }
            let [first, second] = tensors.map(name);
            Ok(Some((self.norm(config, &first)?, self.norm(config, &second)?)))
        };
        let head_norms = pair(architecture.has_head_norms(), [T::QueryNorm, T::KeyNorm])?;
        let post_norms =
            pair(architecture.has_post_norms(), [T::PostAttentionNorm, T::PostMlpNorm])?;
        let rows_of =
            |heads: Range<usize>| heads.start * config.head_dim..heads.end * config.head_dim;
        let first = self.share.rank * config.heads;
        let queries = rows_of(first..first + config.heads);
        let keys = rows_of(self.share.kv_heads());
        let inner = self.share.inner();
        let rows =
            |tensor, rows: &Range<usize>| self.linear(&name(tensor), Cut::Rows(rows.clone()));
        let columns = |tensor, columns: &Range<usize>| {
            self.linear(&name(tensor), Cut::Columns(columns.clone()))
        };
        Ok(Layer {
            place,
            attention_norm: self.norm(config, &name(T::AttentionNorm))?,
            query: rows(T::Query, &queries)?,
            key: rows(T::Key, &keys)?,
            value: rows(T::Value, &keys)?,
            head_norms,
            output: columns(T::Output, &queries)?,
            post_norms,
            mlp_norm: self.norm(config, &name(T::MlpNorm))?,
            gate: rows(T::Gate, &inner)?,
            up: rows(T::Up, &inner)?,
            down: columns(T::Down, &inner)?,
        })
    }

    /// The weights of a norm, as they multiply.
    fn norm(&self, config: &ModelConfig, name: &str) -> Result<Vec<f32>, (String, KernelError)> {
        let mut weights = self.vector(name)?;
        for weight in &mut weights {
            *weight += config.norm_offset;
        }
        Ok(weights)
    }

    /// A small tensor as f32.
    fn vector(&self, name: &str) -> Result<Vec<f32>, (String, KernelError)> {
        let entry = self.entry(name);
        let tensor = self.weights.tensor(entry);
        let mut values = vec![0.0; entry.shape.values().unwrap_or(0)];
        dequantize_row(tensor.format, tensor.bytes, &mut values)
            .map_err(|error| (name.to_owned(), error))?;
        Ok(values)
    }

    fn linear(&self, name: &str, cut: Cut) -> Result<Box<dyn Linear>, (String, KernelError)> {
        let entry = self.entry(name);
        let tensor = self.weights.tensor(entry);
        let (rows, features) = (entry.shape.0[0], entry.shape.0[1]);
        self.packed(tensor, (rows, features), cut).map_err(|error| (name.to_owned(), error))
    }

    fn packed(
        &self,
        Tensor { format, bytes }: Tensor<'_>,
        (rows, features): (usize, usize),
        cut: Cut,
    ) -> Result<Box<dyn Linear>, KernelError> {
        let row_bytes = format.row_bytes(features)?;
        let (bytes, rows, features) = match cut {
            Cut::Rows(own) => {
                let bytes = &bytes[own.start * row_bytes..own.end * row_bytes];
                (Cow::Borrowed(bytes), own.len(), features)
            }
            Cut::Columns(own) if own.len() == features => (Cow::Borrowed(bytes), rows, features),
            Cut::Columns(own) => {
                let own_bytes = format.row_bytes(own.start)?..format.row_bytes(own.end)?;
                let each = bytes.chunks_exact(row_bytes).flat_map(|row| &row[own_bytes.clone()]);
                (Cow::Owned(each.copied().collect()), rows, own.len())
            }
        };
        let path = self.packing.path;
        if self.packing.dequantize && format.is_quantized() {
            let bytes = widen(Tensor { format, bytes: &bytes }, features)?;
            return kernels::pack(WeightFormat::F32, &bytes, rows, features, path);
        }
        kernels::pack(format, &bytes, rows, features, path)
    }
}

/// Stored rows as f32, little endian.
fn widen(tensor: Tensor<'_>, features: usize) -> Result<Vec<u8>, KernelError> {
    let row_bytes = tensor.format.row_bytes(features)?;
    let mut row = vec![0.0f32; features];
    let mut bytes = Vec::with_capacity(tensor.bytes.len() / row_bytes * features * 4);
    for stored in tensor.bytes.chunks_exact(row_bytes) {
        dequantize_row(tensor.format, stored, &mut row)?;
        bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(bytes)
}
