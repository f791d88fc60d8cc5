//! From a file's tensors to packed weights, once, with progress.

use kernels::{KernelError, KernelPath, Linear, WeightFormat, dequantize_row};

use super::{Decoder, Embedding, Layer, Scratch};
use crate::arch::rope::Rotary;
use crate::arch::tensors::{LayerTensor, Naming};
use crate::config::{Architecture, ModelConfig};
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
        let layers = (0..config.layers).map(|layer| packer.layer(&config, layer));
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = packer.vector(naming.final_norm())?;
        let head = if config.tied { naming.embedding() } else { naming.head() };
        let head = packer.linear(head)?;
        let divisors = match naming.rope_divisors() {
            Some(name) if weights.entry(name).is_some() => Some(packer.vector(name)?),
            _ => None,
        };
        packer.finish();
        let rotary = Rotary::new(&config, divisors.as_deref());
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

    fn layer(&mut self, config: &ModelConfig, at: usize) -> Result<Layer, (String, KernelError)> {
        let name = |tensor| self.packing.naming.layer(at, tensor);
        use LayerTensor as T;
        let names = [T::Query, T::Key, T::Value, T::Output, T::Gate, T::Up, T::Down].map(name);
        let [attention_norm, mlp_norm] = [T::AttentionNorm, T::MlpNorm].map(name);
        let norms = [T::QueryNorm, T::KeyNorm].map(name);
        let head_norms = match config.architecture {
            Architecture::Llama => None,
            Architecture::Qwen3 => Some((self.vector(&norms[0])?, self.vector(&norms[1])?)),
        };
        Ok(Layer {
            attention_norm: self.vector(&attention_norm)?,
            query: self.linear(&names[0])?,
            key: self.linear(&names[1])?,
            value: self.linear(&names[2])?,
            head_norms,
            output: self.linear(&names[3])?,
            mlp_norm: self.vector(&mlp_norm)?,
            gate: self.linear(&names[4])?,
            up: self.linear(&names[5])?,
            down: self.linear(&names[6])?,
        })
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
