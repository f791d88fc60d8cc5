//! What a model is, read from `config.json` or from GGUF metadata into one [`ModelConfig`].
//!
//! Everything is checked here: a configuration that parses describes a model that this crate can
//! run. No weights are looked at.

mod deepseek_v4;
mod gguf;
mod hf;

use std::fmt;

use types::TokenId;

pub use self::deepseek_v4::{Compression, DeepseekV4, Indexer, Yarn};

/// The largest value of any dimension; far above real models, far below overflow.
const MAX_DIM: u64 = 1 << 24;
/// The most layers.
const MAX_LAYERS: u64 = 4096;

/// Families of models that this crate runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama and what is built like it (SmolLM2, TinyLlama).
    Llama,
    /// Qwen3, dense: Llama with an RMS norm on each query and key head.
    Qwen3,
    /// Gemma 3, text only: layers that see a window between those that see everything, norms
    /// before and after each block and on each query and key head, a GELU gate.
    Gemma3,
    /// DeepSeek-V4: several residual streams, experts, and a window of latents beside compressed
    /// history.
    DeepseekV4,
}

impl Architecture {
    /// Those that GGUF files may hold, as error messages list them.
    pub const SUPPORTED: &str = "llama, qwen3, gemma3";

    /// The name used in GGUF files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
            Self::DeepseekV4 => "deepseek_v4",
        }
    }

    /// Whether query and key heads have an RMS norm.
    pub(crate) const fn has_head_norms(self) -> bool {
        match self {
            Self::Llama | Self::DeepseekV4 => false,
            Self::Qwen3 | Self::Gemma3 => true,
        }
    }

    /// Whether what a block adds is normed before it is added.
    pub(crate) const fn has_post_norms(self) -> bool {
        match self {
            Self::Llama | Self::Qwen3 | Self::DeepseekV4 => false,
            Self::Gemma3 => true,
        }
    }

    /// The field of `config.json` that says how many numbers are inside the MLP, or one expert.
    const fn intermediate_field(self) -> &'static str {
        match self {
            Self::Llama | Self::Qwen3 | Self::Gemma3 => "intermediate_size",
            Self::DeepseekV4 => "moe_intermediate_size",
        }
    }

    /// What the gate of the MLP goes through.
    pub(crate) const fn activation(self) -> Activation {
        match self {
            Self::Llama | Self::Qwen3 | Self::DeepseekV4 => Activation::Silu,
            Self::Gemma3 => Activation::GeluTanh,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        match name {
            "llama" => Some(Self::Llama),
            "qwen3" => Some(Self::Qwen3),
            "gemma3" => Some(Self::Gemma3),
            _ => None,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The activation of an MLP's gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// GELU by a hyperbolic tangent.
    GeluTanh,
}

/// Which two numbers of a head rotary embedding turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// `i` and `i + head_dim / 2`.
    HalfSplit,
    /// `2 i` and `2 i + 1`: GGUF files of Llama models store their heads permuted for this.
    Adjacent,
}

/// How rotary frequencies differ from `theta ^ (-2 i / head_dim)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All wavelengths are stretched.
    Linear {
        /// By so much.
        factor: f64,
    },
    /// Llama 3: long wavelengths are stretched by `factor`, short ones kept, between them blended.
    Llama3 {
        /// How much the longest are stretched.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are stretched in full.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// The context that the unscaled model was trained with.
        original_context: f64,
    },
}

/// Layers that see a sliding window only.
#[derive(Debug, Clone, PartialEq)]
pub struct Sliding {
    /// Positions that a token sees in such a layer, its own included; at least 1.
    pub window: usize,
    /// Which layers those are: one entry per layer. At least one is, and one is not.
    pub layers: Vec<bool>,
    /// Base of their rotary frequencies.
    pub rope_theta: f64,
    /// The scaling of those.
    pub rope_scaling: RopeScaling,
}

/// A model's dimensions and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Numbers in a hidden state.
    pub hidden: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers in a head; even.
    pub head_dim: usize,
    /// Numbers inside the MLP.
    pub intermediate: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Longest context.
    pub max_context: usize,
    /// Added to the mean square in RMS norms.
    pub rms_eps: f32,
    /// Scores of attention are multiplied with it.
    pub attention_scale: f32,
    /// What the embedding's rows are multiplied with, if anything.
    pub embedding_scale: Option<f32>,
    /// Added to the stored weights of RMS norms: 1 where files store the difference from 1.
    pub norm_offset: f32,
    /// Base of the rotary frequencies, of layers that see everything.
    pub rope_theta: f64,
    /// Their scaling.
    pub rope_scaling: RopeScaling,
    /// The layers that do not see everything, where there are any.
    pub sliding: Option<Sliding>,
    /// Their pairing.
    pub rope_pairs: RopePairs,
    /// Whether the LM head is the embedding.
    pub tied: bool,
    /// First token of a text, if any.
    pub bos: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// What a DeepSeek-V4 model has beyond; `None` for all others.
    pub deepseek_v4: Option<Box<DeepseekV4>>,
}

/// Why a configuration describes no model that can run here.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A field that must be there is not.
    #[error("field {0} is missing")]
    Missing(String),
    /// The same, of a field that may hold only a few values.
    #[error("field {field} is missing, expected {expected}")]
    Absent {
        /// The field.
        field: String,
        /// What it may hold.
        expected: String,
    },
    /// A field holds what no model can have.
    #[error("field {field} is {found}, expected {expected}")]
    Invalid {
        /// The field.
        field: String,
        /// What it holds.
        found: String,
        /// What it may hold.
        expected: String,
    },
    /// A field asks for something that other programs may have, but not this one.
    #[error("{field} {found} is not supported; supported: {supported}")]
    Unsupported {
        /// The field.
        field: String,
        /// What it asks for.
        found: String,
        /// What would work.
        supported: String,
    },
}

impl ConfigError {
    fn absent(field: &str, expected: impl fmt::Display) -> Self {
        Self::Absent { field: field.to_owned(), expected: expected.to_string() }
    }

    fn invalid(field: &str, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        let (found, expected) = (shorten(&found.to_string()), expected.to_string());
        Self::Invalid { field: field.to_owned(), found, expected }
    }

    fn unsupported(field: &str, found: impl fmt::Display, supported: &str) -> Self {
        let (found, supported) = (shorten(&found.to_string()), supported.to_owned());
        Self::Unsupported { field: field.to_owned(), found, supported }
    }
}

/// At most 80 characters, so that a hostile file makes no endless line.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// What either file format says, before it is checked as a whole.
struct Draft {
    architecture: Architecture,
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: Option<u64>,
    intermediate: u64,
    vocab: u64,
    max_context: u64,
    rms_eps: f64,
    /// Scores are divided by the root of it; of the head's size where the file says nothing.
    attention_scalar: Option<f64>,
    norm_offset: f32,
    rope: Rope,
    sliding: Option<SlidingDraft>,
    rope_pairs: RopePairs,
    tied: bool,
    bos: Option<u64>,
    eos: Vec<u64>,
    deepseek_v4: Option<Box<DeepseekV4>>,
}

/// The rotary parameters of some layers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rope {
    theta: f64,
    scaling: RopeScaling,
}

/// [`Sliding`] before its number of layers is known to be sensible.
struct SlidingDraft {
    window: u64,
    layers: SlidingLayers,
    rope: Rope,
}

/// Which layers see a window.
enum SlidingLayers {
    /// All but every so many-th.
    AllBut(u64),
    /// One entry per layer.
    Listed(Vec<bool>),
}

impl Draft {
    fn check(self) -> Result<ModelConfig, ConfigError> {
        let dims = [
            ("hidden_size", self.hidden),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            (self.architecture.intermediate_field(), self.intermediate),
            ("vocab_size", self.vocab),
            ("max_position_embeddings", self.max_context),
        ];
        for (field, value) in dims {
            if value == 0 || value > MAX_DIM {
                return Err(ConfigError::invalid(field, value, format!("1 to {MAX_DIM}")));
            }
        }
        if self.layers == 0 || self.layers > MAX_LAYERS {
            let expected = format!("1 to {MAX_LAYERS}");
            return Err(ConfigError::invalid("num_hidden_layers", self.layers, expected));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of {} query heads", self.heads);
            return Err(ConfigError::invalid("num_key_value_heads", self.kv_heads, expected));
        }
        let head_dim = self.checked_head_dim()?;
        if !(self.rms_eps >= 0.0 && self.rms_eps < 1.0) {
            return Err(ConfigError::invalid("rms_norm_eps", self.rms_eps, "0 to 1"));
        }
        self.check_ropes()?;
        let attention_scale = self.attention_scale(head_dim)?;
        let sliding = match self.sliding {
            Some(sliding) => sliding.check(self.layers)?,
            None => None,
        };
        let token = |field: &str, id: u64| match u32::try_from(id) {
            Ok(small) if id < self.vocab => Ok(TokenId(small)),
            _ => Err(ConfigError::invalid(field, id, format!("below {} tokens", self.vocab))),
        };
        Ok(ModelConfig {
            architecture: self.architecture,
            hidden: self.hidden as usize,
            layers: self.layers as usize,
            heads: self.heads as usize,
            kv_heads: self.kv_heads as usize,
            head_dim: head_dim as usize,
            intermediate: self.intermediate as usize,
            vocab: self.vocab as usize,
            max_context: self.max_context as usize,
            rms_eps: self.rms_eps as f32,
            attention_scale,
            embedding_scale: match self.architecture {
                Architecture::Llama | Architecture::Qwen3 | Architecture::DeepseekV4 => None,
                Architecture::Gemma3 => Some((self.hidden as f64).sqrt() as f32),
            },
            norm_offset: self.norm_offset,
            rope_theta: self.rope.theta,
            rope_scaling: self.rope.scaling,
            sliding,
            rope_pairs: self.rope_pairs,
            tied: self.tied,
            bos: self.bos.map(|id| token("bos_token_id", id)).transpose()?,
            eos: self.eos.iter().map(|id| token("eos_token_id", *id)).collect::<Result<_, _>>()?,
            deepseek_v4: self.deepseek_v4,
        })
    }
}

impl Draft {
    /// The numbers of heads are in range.
    fn checked_head_dim(&self) -> Result<u64, ConfigError> {
        let head_dim = match self.head_dim {
            Some(dim) => dim,
            None if self.hidden.is_multiple_of(self.heads) => self.hidden / self.heads,
            None => return Err(ConfigError::Missing("head_dim".to_owned())),
        };
        if head_dim == 0 || head_dim > 65_536 || !head_dim.is_multiple_of(2) {
            return Err(ConfigError::invalid("head_dim", head_dim, "an even number, 2 to 65536"));
        }
        if self.heads * head_dim > MAX_DIM {
            let expected = format!("at most {MAX_DIM} numbers in all heads");
            return Err(ConfigError::invalid("head_dim", head_dim, expected));
        }
        Ok(head_dim)
    }

    fn check_ropes(&self) -> Result<(), ConfigError> {
        let ropes = [Some(self.rope), self.sliding.as_ref().map(|sliding| sliding.rope)];
        for Rope { theta, .. } in ropes.into_iter().flatten() {
            if !(theta >= 1.0 && theta.is_finite()) {
                return Err(ConfigError::invalid("rope_theta", theta, "at least 1"));
            }
        }
        Ok(())
    }

    fn attention_scale(&self, head_dim: u64) -> Result<f32, ConfigError> {
        match self.attention_scalar {
            None => Ok(1.0 / (head_dim as f32).sqrt()),
            Some(scalar) if scalar > 0.0 && scalar.is_finite() => Ok(scalar.powf(-0.5) as f32),
            Some(scalar) => {
                let field = "query_pre_attn_scalar";
                Err(ConfigError::invalid(field, scalar, "a positive number"))
            }
        }
    }
}

impl SlidingDraft {
    /// `None` where no layer sees a window after all.
    fn check(self, layers: u64) -> Result<Option<Sliding>, ConfigError> {
        let flags = match self.layers {
            SlidingLayers::AllBut(0) => {
                return Err(ConfigError::invalid("sliding_window_pattern", 0, "at least 1"));
            }
            SlidingLayers::AllBut(period) => {
                (1..=layers).map(|number| !number.is_multiple_of(period)).collect()
            }
            SlidingLayers::Listed(flags) => flags,
        };
        if flags.len() as u64 != layers {
            let expected = format!("{layers}, as many as layers");
            return Err(ConfigError::invalid("layer_types' length", flags.len(), expected));
        }
        if !flags.contains(&true) {
            return Ok(None);
        }
        if !flags.contains(&false) {
            let found = "sliding_attention in every layer";
            return Err(ConfigError::unsupported("layer_types", found, "one full_attention"));
        }
        if self.window == 0 || self.window > MAX_DIM {
            let expected = format!("1 to {MAX_DIM}");
            return Err(ConfigError::invalid("sliding_window", self.window, expected));
        }
        Ok(Some(Sliding {
            window: self.window as usize,
            layers: flags,
            rope_theta: self.rope.theta,
            rope_scaling: self.rope.scaling,
        }))
    }
}

#[cfg(test)]
mod tests;
