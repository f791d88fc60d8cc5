//! From a file's tensors to packed weights, once, with progress.

use kernels::{KernelError, KernelPath, Linear, WeightFormat, dequantize_row};

use super::{Decoder, Embedding, Layer, Place, Scratch};
use crate::arch::pools;
use crate::arch::rope::Rotary;
use crate::arch::tensors::{LayerTensor, Naming};
use crate::config::ModelConfig;
use crate::weights::{Entry, Tensor, Weights};

/// How far packing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights that are packed.
    pub done: u64,
    /// Bytes of weights in all.
    pub total: u64,
}

/// How to pack.
pub(crate) struct Packing<'a> {
    pub(crate) naming: Naming,
    pub(crate) path: KernelPath,
    /// Whether quantised weights become f32.
    pub(crate) dequantize: bool,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
}

impl Decoder {
    /// Packs the weights of a model whose tensors were checked.
    ///
    /// # Errors
    /// The tensor and the reason, where no kernel takes it.
    ///
    /// # Panics
    /// Where a tensor is missing: `check_tensors` comes first.
    pub(crate) fn pack(
        config: ModelConfig,
        weights: Weights,
        packing: Packing<'_>,
    ) -> Result<Self, (String, KernelError)> {
        let total = weights.entries().map(|(_, entry)| entry.bytes as u64).sum();
        let path = packing.path;
        let mut packer =
            Packer { weights: &weights, packing, progress: Progress { done: 0, total } };
        let naming = packer.packing.naming;
        let places = pools::places(&config).enumerate();
        let layers = places.map(|(layer, place)| packer.layer(&config, layer, place));
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = packer.norm(&config, naming.final_norm())?;
        let head = if config.tied { naming.embedding() } else { naming.head() };
        let head = packer.linear(head)?;
        let divisors = match naming.rope_divisors() {
            Some(name) if weights.entry(name).is_some() => Some(packer.vector(name)?),
            _ => None,
        };
        packer.finish();
        let rotary =
            |rope, divisors| Rotary::new(rope, config.head_dim, config.max_context, divisors);
        let global = rotary((config.rope_theta, config.rope_scaling), divisors.as_deref());
        let sliding = config.sliding.as_ref();
        let sliding = sliding.map(|s| rotary((s.rope_theta, s.rope_scaling), None));
        let rotary = [global].into_iter().chain(sliding).collect();
        let entry = packer.entry(naming.embedding()).clone();
        let embedding = Embedding { weights, entry };
        let scratch = Scratch::default();
        Ok(Self { config, embedding, layers, final_norm, head, rotary, path, scratch })
    }
}

struct Packer<'a, 'p> {
    weights: &'a Weights,
    packing: Packing<'p>,
    progress: Progress,
}

impl<'a> Packer<'a, '_> {
    fn entry(&self, name: &str) -> &'a Entry {
        self.weights.entry(name).expect("the tensors were checked before packing")
    }

    fn layer(
        &mut self,
        config: &ModelConfig,
        at: usize,
        place: Place,
    ) -> Result<Layer, (String, KernelError)> {
        use LayerTensor as T;
        let (naming, architecture) = (self.packing.naming, config.architecture);
        let name = |tensor| naming.layer(architecture, at, tensor);
        let mut pair = |used: bool, tensors: [T; 2]| {
            if !used {
                return Ok(None);
            }
            let [first, second] = tensors.map(name);
            Ok(Some((self.norm(config, &first)?, self.norm(config, &second)?)))
        };
        let head_norms = pair(architecture.has_head_norms(), [T::QueryNorm, T::KeyNorm])?;
        let post_norms =
            pair(architecture.has_post_norms(), [T::PostAttentionNorm, T::PostMlpNorm])?;
        Ok(Layer {
            place,
            attention_norm: self.norm(config, &name(T::AttentionNorm))?,
            query: self.linear(&name(T::Query))?,
            key: self.linear(&name(T::Key))?,
            value: self.linear(&name(T::Value))?,
            head_norms,
            output: self.linear(&name(T::Output))?,
            post_norms,
            mlp_norm: self.norm(config, &name(T::MlpNorm))?,
            gate: self.linear(&name(T::Gate))?,
            up: self.linear(&name(T::Up))?,
            down: self.linear(&name(T::Down))?,
        })
    }

    /// The weights of a norm, as they multiply.
    fn norm(
        &mut self,
        config: &ModelConfig,
        name: &str,
    ) -> Result<Vec<f32>, (String, KernelError)> {
        let mut weights = self.vector(name)?;
        for weight in &mut weights {
            *weight += config.norm_offset;
        }
        Ok(weights)
    }

    /// A small tensor as f32.
    fn vector(&mut self, name: &str) -> Result<Vec<f32>, (String, KernelError)> {
        let entry = self.entry(name);
        let tensor = self.weights.tensor(entry);
        let mut values = vec![0.0; entry.shape.values().unwrap_or(0)];
        dequantize_row(tensor.format, tensor.bytes, &mut values)
            .map_err(|error| (name.to_owned(), error))?;
        self.advance(entry);
        Ok(values)
    }

    fn linear(&mut self, name: &str) -> Result<Box<dyn Linear>, (String, KernelError)> {
        let entry = self.entry(name);
        let tensor = self.weights.tensor(entry);
        let (rows, features) = (entry.shape.0[0], entry.shape.0[1]);
        let linear = if self.packing.dequantize && tensor.format.is_quantized() {
            widen(tensor, features).and_then(|bytes| {
                kernels::pack(WeightFormat::F32, &bytes, rows, features, self.packing.path)
            })
        } else {
            kernels::pack(tensor.format, tensor.bytes, rows, features, self.packing.path)
        };
        self.advance(entry);
        linear.map_err(|error| (name.to_owned(), error))
    }

    fn advance(&mut self, entry: &Entry) {
        self.progress.done = (self.progress.done + entry.bytes as u64).min(self.progress.total);
        (self.packing.progress)(self.progress);
    }

    /// Tensors that are not packed (an embedding of its own, ignored ones) count as done.
    fn finish(&mut self) {
        self.progress.done = self.progress.total;
        (self.packing.progress)(self.progress);
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
