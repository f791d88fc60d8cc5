//! Which tensors a model is made of, and that a file holds exactly those.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::config::{Architecture, ModelConfig};
use crate::weights::{Shape, Weights};

/// How a file format names tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// `model.layers.0.self_attn.q_proj.weight`
    Hf,
    /// `blk.0.attn_q.weight`
    Gguf,
}

/// A tensor of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    Output,
    PostAttentionNorm,
    MlpNorm,
    Gate,
    Up,
    Down,
    PostMlpNorm,
}

impl LayerTensor {
    pub(crate) const ALL: [Self; 13] = [
        Self::AttentionNorm,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::QueryNorm,
        Self::KeyNorm,
        Self::Output,
        Self::PostAttentionNorm,
        Self::MlpNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::PostMlpNorm,
    ];

    const fn hf(self, architecture: Architecture) -> &'static str {
        match self {
            Self::AttentionNorm => "input_layernorm",
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::QueryNorm => "self_attn.q_norm",
            Self::KeyNorm => "self_attn.k_norm",
            Self::Output => "self_attn.o_proj",
            // What others call so is the norm before the MLP.
            Self::PostAttentionNorm => "post_attention_layernorm",
            Self::MlpNorm if architecture.has_post_norms() => "pre_feedforward_layernorm",
            Self::MlpNorm => "post_attention_layernorm",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
            Self::PostMlpNorm => "post_feedforward_layernorm",
        }
    }

    const fn gguf(self) -> &'static str {
        match self {
            Self::AttentionNorm => "attn_norm",
            Self::Query => "attn_q",
            Self::Key => "attn_k",
            Self::Value => "attn_v",
            Self::QueryNorm => "attn_q_norm",
            Self::KeyNorm => "attn_k_norm",
            Self::Output => "attn_output",
            Self::PostAttentionNorm => "post_attention_norm",
            Self::MlpNorm => "ffn_norm",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
            Self::PostMlpNorm => "post_ffw_norm",
        }
    }

    fn shape(self, config: &ModelConfig) -> Shape {
        let ModelConfig { hidden, intermediate, head_dim, .. } = *config;
        let (q, kv) = (config.heads * head_dim, config.kv_heads * head_dim);
        Shape(match self {
            Self::AttentionNorm | Self::PostAttentionNorm | Self::MlpNorm | Self::PostMlpNorm => {
                vec![hidden]
            }
            Self::QueryNorm | Self::KeyNorm => vec![head_dim],
            Self::Query => vec![q, hidden],
            Self::Key | Self::Value => vec![kv, hidden],
            Self::Output => vec![hidden, q],
            Self::Gate | Self::Up => vec![intermediate, hidden],
            Self::Down => vec![hidden, intermediate],
        })
    }

    pub(crate) const fn is_used(self, architecture: Architecture) -> bool {
        match self {
            Self::QueryNorm | Self::KeyNorm => architecture.has_head_norms(),
            Self::PostAttentionNorm | Self::PostMlpNorm => architecture.has_post_norms(),
            Self::AttentionNorm
            | Self::Query
            | Self::Key
            | Self::Value
            | Self::Output
            | Self::MlpNorm
            | Self::Gate
            | Self::Up
            | Self::Down => true,
        }
    }
}

impl Naming {
    pub(crate) const fn embedding(self) -> &'static str {
        match self {
            Self::Hf => "model.embed_tokens.weight",
            Self::Gguf => "token_embd.weight",
        }
    }

    pub(crate) const fn final_norm(self) -> &'static str {
        match self {
            Self::Hf => "model.norm.weight",
            Self::Gguf => "output_norm.weight",
        }
    }

    pub(crate) const fn head(self) -> &'static str {
        match self {
            Self::Hf => "lm_head.weight",
            Self::Gguf => "output.weight",
        }
    }

    /// The divisors of rotary frequencies, which GGUF files of Llama 3 models carry.
    pub(crate) const fn rope_divisors(self) -> Option<&'static str> {
        match self {
            Self::Hf => None,
            Self::Gguf => Some("rope_freqs.weight"),
        }
    }

    pub(crate) fn layer(
        self,
        architecture: Architecture,
        layer: usize,
        tensor: LayerTensor,
    ) -> String {
        match self {
            Self::Hf => format!("model.layers.{layer}.{}.weight", tensor.hf(architecture)),
            Self::Gguf => format!("blk.{layer}.{}.weight", tensor.gguf()),
        }
    }

    /// Tensors that files may hold although they are not needed: a copy of a tied head, and
    /// buffers that old programs saved.
    fn is_ignored(self, name: &str, config: &ModelConfig) -> bool {
        match self {
            Self::Hf => {
                (config.tied && name == self.head()) || name.ends_with(".rotary_emb.inv_freq")
            }
            Self::Gguf => false,
        }
    }
}

/// Why a file's tensors are not those of the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorsError {
    /// A tensor is not in the file.
    #[error("{}: tensor {name} of shape {expected} is missing", path.display())]
    Missing {
        /// The model's first file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape, rows first.
        expected: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error("{}: tensor {name} has shape {found}, expected {expected}", path.display())]
    Shape {
        /// The model's first file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The shape in the file, rows first.
        found: String,
        /// The shape by the configuration, rows first.
        expected: String,
    },
    /// A tensor is stored in a way that it cannot be.
    #[error("{}: tensor {name} is stored as {found}, expected {expected}", path.display())]
    Type {
        /// The model's first file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The type in the file.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A tensor would not be used.
    #[error(
        "{}: tensor {name} of shape {found} is not part of a {model} \
         ({count} such tensors)", path.display()
    )]
    Extra {
        /// The model's first file.
        path: PathBuf,
        /// The first such tensor.
        name: String,
        /// Its shape, rows first.
        found: String,
        /// Architecture and number of layers.
        model: String,
        /// How many there are.
        count: usize,
    },
}

/// Whether `weights` holds exactly the tensors of the model; the number of weights if so.
///
/// # Errors
/// [`TensorsError`] names the first tensor that is missing, misshapen or unknown.
pub(crate) fn check(
    config: &ModelConfig,
    naming: Naming,
    weights: &Weights,
) -> Result<u64, TensorsError> {
    let mut parameters = 0;
    let mut known = BTreeSet::new();
    for (name, expected) in needed(config, naming) {
        let path = weights.path().to_owned();
        let expected_text = expected.to_string();
        let Some(entry) = weights.entry(&name) else {
            return Err(TensorsError::Missing { path, name, expected: expected_text });
        };
        if entry.shape != expected {
            let found = entry.shape.to_string();
            return Err(TensorsError::Shape { path, name, found, expected: expected_text });
        }
        parameters += expected.values().unwrap_or(0) as u64;
        known.insert(name);
    }
    if let Some(name) = naming.rope_divisors()
        && let Some(entry) = weights.entry(name)
    {
        let expected = Shape(vec![config.head_dim / 2]);
        if entry.shape != expected {
            return Err(TensorsError::Shape {
                path: weights.path().to_owned(),
                name: name.to_owned(),
                found: entry.shape.to_string(),
                expected: expected.to_string(),
            });
        }
        known.insert(name.to_owned());
    }
    let unknown = |name: &str| !known.contains(name) && !naming.is_ignored(name, config);
    let mut extra = weights.entries().filter(|(name, _)| unknown(name));
    if let Some((name, entry)) = extra.next() {
        return Err(TensorsError::Extra {
            path: weights.path().to_owned(),
            name: name.to_owned(),
            found: entry.shape.to_string(),
            model: format!("{} model of {} layers", config.architecture, config.layers),
            count: 1 + extra.count(),
        });
    }
    Ok(parameters)
}

/// Every tensor of the model with its shape.
fn needed(config: &ModelConfig, naming: Naming) -> Vec<(String, Shape)> {
    let table = Shape(vec![config.vocab, config.hidden]);
    let mut needed = vec![
        (naming.embedding().to_owned(), table.clone()),
        (naming.final_norm().to_owned(), Shape(vec![config.hidden])),
    ];
    if !config.tied {
        needed.push((naming.head().to_owned(), table));
    }
    let used = LayerTensor::ALL.into_iter().filter(|t| t.is_used(config.architecture));
    let used: Vec<_> = used.collect();
    for layer in 0..config.layers {
        let name = |tensor| naming.layer(config.architecture, layer, tensor);
        needed.extend(used.iter().map(|t| (name(*t), t.shape(config))));
    }
    needed
}
