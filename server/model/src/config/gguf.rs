//! The metadata of a GGUF file as a [`ModelConfig`].

use super::{
    Architecture, ConfigError, Draft, ModelConfig, Rope, RopePairs, RopeScaling, SlidingDraft,
    SlidingLayers,
};
use crate::weights::gguf::{GgufHeader, Value};

/// The one Gemma 3 model whose scores are not divided by the root of the head's size.
const GEMMA3_27B_LAYERS: u64 = 62;

impl ModelConfig {
    /// Reads a GGUF header: its metadata, and from its tensors whether the head is tied.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, its value, and what is supported.
    pub(crate) fn from_gguf(header: &GgufHeader) -> Result<Self, ConfigError> {
        let name = header.text("general.architecture")?;
        let name = name.ok_or_else(|| ConfigError::Missing("general.architecture".to_owned()))?;
        let architecture = Architecture::parse(name).ok_or_else(|| {
            ConfigError::unsupported("architecture", name, Architecture::SUPPORTED)
        })?;
        let key = |rest: &str| format!("{name}.{rest}");
        let count = |rest: &str| {
            let key = key(rest);
            header.count(&key)?.ok_or(ConfigError::Missing(key))
        };
        let (hidden, layers) = (count("embedding_length")?, count("block_count")?);
        let heads = count("attention.head_count")?;
        let (sliding, attention_scalar) = match architecture {
            Architecture::Llama | Architecture::Qwen3 | Architecture::DeepseekV4 => (None, None),
            Architecture::Gemma3 => {
                refuse_softcap(header, name)?;
                // No key holds the scalar: it is the head's size but in the largest model.
                let whole = (layers == GEMMA3_27B_LAYERS && heads > 0).then(|| hidden / heads);
                (sliding(header, name)?, whole.map(|scalar| scalar as f64))
            }
        };
        let config = Draft {
            architecture,
            hidden,
            layers,
            heads,
            kv_heads: header.count(&key("attention.head_count_kv"))?.unwrap_or(heads),
            head_dim: header.count(&key("attention.key_length"))?,
            intermediate: count("feed_forward_length")?,
            vocab: vocab(header, &key("vocab_size"))?,
            max_context: count("context_length")?,
            rms_eps: header
                .number(&key("attention.layer_norm_rms_epsilon"))?
                .ok_or_else(|| ConfigError::Missing(key("attention.layer_norm_rms_epsilon")))?,
            attention_scalar,
            // Converters store the sum.
            norm_offset: 0.0,
            rope: Rope {
                theta: header.number(&key("rope.freq_base"))?.unwrap_or(match architecture {
                    Architecture::Llama | Architecture::Qwen3 | Architecture::DeepseekV4 => {
                        10_000.0
                    }
                    Architecture::Gemma3 => 1_000_000.0,
                }),
                scaling: rope_scaling(header, name)?,
            },
            sliding,
            rope_pairs: match architecture {
                Architecture::Llama | Architecture::DeepseekV4 => RopePairs::Adjacent,
                Architecture::Qwen3 | Architecture::Gemma3 => RopePairs::HalfSplit,
            },
            tied: !header.tensors.contains_key("output.weight"),
            bos: header.count("tokenizer.ggml.bos_token_id")?,
            eos: end_tokens(header)?,
            deepseek_v4: None,
        }
        .check()?;
        for rest in ["rope.dimension_count", "attention.value_length"] {
            let key = key(rest);
            if let Some(dim) = header.count(&key)?
                && dim != config.head_dim as u64
            {
                let supported = format!("the head's {}", config.head_dim);
                return Err(ConfigError::unsupported(&key, dim, &supported));
            }
        }
        Ok(config)
    }
}

fn rope_scaling(header: &GgufHeader, architecture: &str) -> Result<RopeScaling, ConfigError> {
    let key = format!("{architecture}.rope.scaling.type");
    match header.text(&key)? {
        None | Some("none") => Ok(RopeScaling::Default),
        Some("linear") => {
            let key = format!("{architecture}.rope.scaling.factor");
            match header.number(&key)? {
                Some(factor) if factor > 0.0 && factor.is_finite() => {
                    Ok(RopeScaling::Linear { factor })
                }
                Some(factor) => Err(ConfigError::invalid(&key, factor, "a positive number")),
                None => Err(ConfigError::Missing(key)),
            }
        }
        Some(kind) => Err(ConfigError::unsupported(&key, kind, "none, linear")),
    }
}

/// The layers that see a window: five in six where the file does not say.
fn sliding(header: &GgufHeader, architecture: &str) -> Result<Option<SlidingDraft>, ConfigError> {
    let key = |rest: &str| format!("{architecture}.{rest}");
    let Some(window) = header.count(&key("attention.sliding_window"))? else { return Ok(None) };
    let period = header.count(&key("attention.sliding_window_pattern"))?.unwrap_or(6);
    let theta = header.number(&key("rope.freq_base_swa"))?.unwrap_or(10_000.0);
    Ok(Some(SlidingDraft {
        window,
        layers: SlidingLayers::AllBut(period),
        rope: Rope { theta, scaling: RopeScaling::Default },
    }))
}

fn refuse_softcap(header: &GgufHeader, architecture: &str) -> Result<(), ConfigError> {
    for rest in ["final_logit_softcapping", "attn_logit_softcapping"] {
        let key = format!("{architecture}.{rest}");
        if let Some(cap) = header.number(&key)?
            && cap != 0.0
        {
            return Err(ConfigError::unsupported(&key, cap, "0"));
        }
    }
    Ok(())
}

/// Some files leave the key out; the embedding and the token list say the same.
fn vocab(header: &GgufHeader, key: &str) -> Result<u64, ConfigError> {
    if let Some(vocab) = header.count(key)? {
        return Ok(vocab);
    }
    if let Some(tokens) = header.metadata.get("tokenizer.ggml.tokens").and_then(Value::strings) {
        return Ok(tokens.len() as u64);
    }
    Err(ConfigError::Missing(key.to_owned()))
}

fn end_tokens(header: &GgufHeader) -> Result<Vec<u64>, ConfigError> {
    let mut ids = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        if let Some(id) = header.count(key)?
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    Ok(ids)
}

impl GgufHeader {
    fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    fn count(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        self.read(key, "a whole number", Value::as_u64)
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(value) => match convert(value) {
                Some(converted) => Ok(Some(converted)),
                None => Err(ConfigError::invalid(key, value.describe(), expected)),
            },
        }
    }
}
